"""What only trees of switches show on a kind of topology, and switches that cannot add up.

That every collective runs on every kind, with loss and without, is in `tests/pairs`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netfold.sim.errors import ScenarioError
from netfold.sim.resolve import resolve
from netfold.sim.run.run import run_variant
from netfold.sim.scenario import load
from netfold.topologies.kind import topology_kinds
from tests.pairs.networks import small_network

WORKERS = 8


def scenario(folder: Path, kind: str, **changes: Any) -> Path:
    """The smallest network of a kind with as many hosts as workers."""
    file = folder / f"{kind}.yaml"
    settings = {
        "name": "trees",
        "seed": 5,
        "topology": {"kind": kind, **small_network(kind, WORKERS), **changes.pop("topology", {})},
        "workers": WORKERS,
        "workload": {"kind": "synthetic", "elements": 3000},
        "codec": {"kind": "fixed_point", "factor": 1e6},
        "collective": {"kind": "in_network"},
        **changes,
    }
    file.write_text(json.dumps(settings))
    return file


@pytest.mark.parametrize("kind", topology_kinds())
def test_a_tree_of_switches_adds_up_despite_losses(kind: str, tmp_path: Path) -> None:
    """The array leaves it to netfold whether one switch aggregates or a tree."""
    collective = {"kind": "in_network", "aggregators": "tree", "slots": 8}
    loss = [{"kind": "loss", "rate": 0.01}]
    plan = resolve(load(scenario(tmp_path, kind, collective=collective, faults=loss)))
    result = run_variant(plan, plan.variants[0])

    verdicts = {check.name: check.verdict for check in result.checks}
    assert set(verdicts.values()) == {"pass"}, verdicts
    assert sum(link.lost_packets for link in result.links) > 0


@pytest.mark.parametrize("kind", topology_kinds())
def test_what_no_switch_can_do_is_refused(kind: str, tmp_path: Path) -> None:
    """In-network aggregation needs a switch that adds up: on plain ones the reason names what is missing."""
    with pytest.raises(ScenarioError, match="no switch can aggregate: profiles found are 'plain'"):
        resolve(load(scenario(tmp_path, kind, topology={"switch": "plain"})))
