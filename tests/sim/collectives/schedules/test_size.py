"""The size of a schedule, which memory is estimated by, is that of the schedule that a run builds."""

from __future__ import annotations

from typing import Any

import pytest

from netfold.sim.collectives.between_hosts import ScheduleSize
from netfold.sim.engine.engine import Engine
from netfold.sim.resolve import resolve
from netfold.sim.run.run import run_variant
from netfold.sim.scenario import load
from tests.sim.scenes import DENSE, TINY, write


@pytest.mark.parametrize(
    "keys",
    [
        "{kind: ring}",
        "{kind: ring, channels: 2}",
        "{kind: ring, chunk: 64B}",
        "{kind: ring, channels: 3, chunk: 100B}",
        "{kind: halving_doubling}",
        "{kind: tree, chunk: 512B}",
        "{kind: tree, trees: 1, chunk: 512B}",
        "{kind: torus_2d, rows: 2}",
        "{kind: hierarchical, group_size: 3, chunk: 512B, inner: {kind: ring}, "
        "outer: {kind: halving_doubling}}",
    ],
)
@pytest.mark.parametrize("workers", [1, 2, 6, 7])
def test_it_is_the_size_of_the_schedule(
    keys: str, workers: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if workers < 4 and ("hierarchical" in keys or "rows" in keys):
        pytest.skip("too few workers for groups or rows")
    opened = []
    original = Engine.open_schedule

    def open_schedule(self: Engine, operation: Any) -> int:
        opened.append(operation.schedule)
        return original(self, operation)

    monkeypatch.setattr(Engine, "open_schedule", open_schedule)
    sets = [f"collective={keys}", f"workers={workers}", "topology.hosts=8", DENSE]
    plan = resolve(load(write(tmp_path, TINY), sets))
    (variant,) = plan.variants
    (job,) = variant.jobs
    run_variant(plan, variant)

    sizes = [ScheduleSize(one.transfers, one.chunks).tables_bytes(workers) for one in opened]
    assert set(sizes) <= {job.collective.tables_bytes}
    assert bool(opened) == (workers > 1)
