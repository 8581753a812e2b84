"""The rounds of a job have all bytes that its workers' hosts put on their links, and took from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.run.run import run_variant
from tests.sim.scenes import plan

# Keys beside those that a collective needs: several chunks, and servers on the hosts of workers.
KEYS: dict[str, dict[str, Any]] = {
    "tree": {"chunk": "512B"},
    "parameter_server": {"placement": "beside_workers"},
}


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_rounds_have_all_bytes(tmp_path: Path, kind: str) -> None:
    """With six workers, some have their result while they still pass it on."""
    collective = {"kind": kind, **COLLECTIVES[kind].choices().get("", {}), **KEYS.get(kind, {})}
    sets = (f"collective={json.dumps(collective)}", "workers=6", "topology.hosts=6", "workload.steps=2")
    resolved = plan(tmp_path, *sets)
    result = run_variant(resolved, resolved.variants[0])

    assert sum(one.wire_bytes_up for one in result.rounds) == sum(
        link.bytes for link in result.links if link.source.startswith("h")
    )
    assert sum(one.wire_bytes_down for one in result.rounds) == sum(
        link.bytes for link in result.links if link.target.startswith("h")
    )


@pytest.mark.parametrize("collective", ["{kind: ring}", "{kind: in_network, frame: udp-256}"])
def test_jobs_that_follow_each_other_on_the_same_hosts_have_their_own_bytes(
    tmp_path: Path, collective: str
) -> None:
    """Equal jobs put equally many bytes on the wire, and together all that the links carried."""
    arrivals = "jobs=[{name: a, count: 3, arrivals: {kind: even, gap: 1us}}]"
    sets = (f"collective={collective}", "admission=fifo", "workers=4", "topology.hosts=4", arrivals)
    resolved = plan(tmp_path, *sets)
    result = run_variant(resolved, resolved.variants[0])
    sizes = {
        label: sum(one.wire_bytes_up for one in result.rounds if one.variant == label)
        for label in {one.variant for one in result.rounds}
    }

    assert len(sizes) == 3
    assert len(set(sizes.values())) == 1
    assert sum(sizes.values()) == sum(link.bytes for link in result.links if link.source.startswith("h"))
