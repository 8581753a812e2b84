"""What only trees of switches show on a kind of topology.

That every collective runs on every kind, with loss and without, is in `tests/pairs`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netfold.sim.resolve import resolve
from netfold.sim.run.run import run_variant
from netfold.sim.scenario import load
from netfold.topologies.kind import topology_kinds
from tests.pairs.networks import small_network

WORKERS = 8


@pytest.mark.parametrize("kind", topology_kinds())
def test_a_tree_of_switches_adds_up_despite_losses(kind: str, tmp_path: Path) -> None:
    """The array leaves it to netfold whether one switch aggregates or a tree."""
    file = tmp_path / f"{kind}.yaml"
    settings = {
        "name": "trees",
        "seed": 5,
        "topology": {"kind": kind, **small_network(kind, WORKERS)},
        "workers": WORKERS,
        "workload": {"kind": "synthetic", "elements": 3000},
        "codec": {"kind": "fixed_point", "factor": 1e6},
        "collective": {"kind": "in_network", "aggregators": "tree", "slots": 8},
        "faults": [{"kind": "loss", "rate": 0.01}],
    }
    file.write_text(json.dumps(settings))
    plan = resolve(load(file))
    result = run_variant(plan, plan.variants[0])

    verdicts = {check.name: check.verdict for check in result.checks}
    assert set(verdicts.values()) == {"pass"}, verdicts
    assert sum(link.lost_packets for link in result.links) > 0
