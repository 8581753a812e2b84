"""Every collective on every kind of topology, without and with loss: exact, or refused with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.errors import ScenarioError
from netfold.sim.resolve import resolve
from netfold.sim.run.run import run_variant
from netfold.sim.scenario import load
from netfold.topologies.kind import topology_kinds

WORKERS = 8
# The smallest network of each kind that is not trivial, with 8 to 16 hosts.
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "star": {"hosts": 8},
    "leaf_spine": {"leaves": 4, "spines": 2, "hosts_per_leaf": 2},
    "fat_tree": {"k": 4},
    "dumbbell": {"hosts_per_side": 4},
    "ring": {"switches": 8},
    "torus": {"dimensions": [3, 3]},
    "hypercube": {"dimension": 3},
    "dragonfly": {"groups": 3, "routers_per_group": 2, "hosts_per_router": 2, "global_links": 1},
    "jellyfish": {"switches": 8, "degree": 3},
    "bcube": {"n": 3, "k": 1},
    "rail_optimized": {"islands_per_pod": 2, "gpus_per_island": 4, "spines": 1},
}
ELSEWHERE = {"file", "topohub"}  # networks that are not generated: their own tests run them
COLLECTIVE_KEYS: dict[str, dict[str, Any]] = {
    "hierarchical": {"group_size": 4, "inner": {"kind": "ring"}, "outer": {"kind": "halving_doubling"}},
    "in_network": {"aggregators": "tree"},
    "parameter_server": {"servers": 2, "placement": "beside_workers"},
    "tree": {"chunk": "1KiB"},
}


def test_every_kind_is_here() -> None:
    assert TOPOLOGIES.keys() | ELSEWHERE == topology_kinds().keys() | {"file"}


@pytest.mark.parametrize("loss", [0, 0.01], ids=["clean", "loss"])
@pytest.mark.parametrize("collective", list(COLLECTIVES))
@pytest.mark.parametrize("kind", list(TOPOLOGIES))
def test_the_sum_is_exact(kind: str, collective: str, loss: float, tmp_path: Path) -> None:
    settings = {
        "name": "matrix",
        "seed": 5,
        "topology": {"kind": kind, **TOPOLOGIES[kind]},
        "workers": WORKERS,
        "workload": {"kind": "synthetic", "elements": 3000},
        "codec": {"kind": "fixed_point", "factor": 1e6},
        "collective": {"kind": collective, **COLLECTIVE_KEYS.get(collective, {})},
        "faults": [{"kind": "loss", "rate": loss}] if loss else [],
    }
    file = tmp_path / "matrix.yaml"
    file.write_text(json.dumps(settings))

    plan = resolve(load(file))
    result = run_variant(plan, plan.variants[0])

    verdicts = {check.name: check.verdict for check in result.checks}
    assert set(verdicts.values()) == {"pass"}, verdicts
    lost = sum(link.lost_packets for link in result.links)
    assert (lost > 0) == (loss > 0)


def test_what_no_switch_can_do_is_refused(tmp_path: Path) -> None:
    """In-network aggregation needs a switch that adds up: on plain ones the reason names what is missing."""
    for kind, keys in TOPOLOGIES.items():
        settings = {
            "name": "plain",
            "topology": {"kind": kind, **keys, "switch": "plain"},
            "workers": WORKERS,
            "workload": {"kind": "synthetic", "elements": 3000},
            "codec": {"kind": "fixed_point"},
            "collective": {"kind": "in_network"},
        }
        file = tmp_path / f"{kind}.yaml"
        file.write_text(json.dumps(settings))
        with pytest.raises(ScenarioError, match="no switch can aggregate: profiles found are 'plain'"):
            resolve(load(file))
