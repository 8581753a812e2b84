"""Whole runs of scheduled collectives, the size of their schedules, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netfold.sim.collectives.between_hosts import ScheduleSize
from netfold.sim.engine.engine import Engine
from netfold.sim.resolve import resolve
from netfold.sim.results import summarize
from netfold.sim.run.run import run_variant
from netfold.sim.scenario import load
from tests.sim.scenes import DENSE, TINY, plan, refused, simulate, write

SCENE = """\
name: scheduled
seed: 7
topology: {kind: leaf_spine, leaves: 3, spines: 2, hosts_per_leaf: 4, switch: plain}
workers: 10
workload: {kind: synthetic, elements: 6000, density: 30%}
codec: {kind: none}
collective: {kind: ring}
"""
COLLECTIVES = {
    "channels": "{kind: ring, channels: 3, chunk: 512B}",
    "halving": "{kind: halving_doubling}",
    "trees": "{kind: tree, chunk: 1KiB}",
    "one tree": "{kind: tree, trees: 1, chunk: 1KiB}",
    "racks": "{kind: hierarchical, chunk: 8KiB, inner: {kind: ring}, outer: {kind: halving_doubling}}",
    "uneven": "{kind: hierarchical, group_size: 4, inner: {kind: tree}, outer: {kind: ring, channels: 2}}",
    "torus inside": "{kind: hierarchical, group_size: 6, inner: {kind: torus_2d, rows: 2}, "
    "outer: {kind: tree}}",
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_sums_are_right_on_every_schedule_where_packets_are_lost(tmp_path: Path, name: str) -> None:
    """With merges of all hosts; other codecs are in tests/pairs."""
    sets = (f"collective={COLLECTIVES[name]}", "codec={kind: lossless}", "faults=[{kind: loss, rate: 1%}]")
    result = simulate(tmp_path, *sets, text=SCENE)

    assert {check.verdict for check in result.jobs[0].checks} == {"pass"}
    (entry,) = summarize(result.facts, result.records)["variants"]
    assert bool(entry["metrics"]["packets_lost"]) == bool(entry["metrics"]["packets_retransmitted"])


MARSIT = """\
name: marsit
seed: 5
topology: {kind: leaf_spine, leaves: 3, spines: 2, hosts_per_leaf: 4, switch: plain}
workers: 11
workload: {kind: training, model: mlp, batch: 2, learning_rate: 0.01, steps: 4}
codec: {kind: marsit, every: 3}
collective: {kind: ring}
faults: [{kind: loss, rate: 1%}]
"""


@pytest.mark.parametrize("name", ["halving", "uneven"])
def test_signs_are_weighed_by_the_workers_that_they_hold(tmp_path: Path, name: str) -> None:
    result = simulate(tmp_path, f"collective={COLLECTIVES[name]}", text=MARSIT)

    (job,) = result.jobs
    assert {check.verdict for check in job.checks} == {"pass"}
    (fair,) = (check.detail for check in job.checks if check.name == "merges_are_right")
    assert "each worker's as often as is fair" in fair


def test_codecs_whose_workers_may_be_absent_run_too(tmp_path: Path) -> None:
    text = MARSIT.replace("{kind: marsit, every: 3}", "{kind: sasg_summed}").replace(
        "learning_rate: 0.01, ", ""
    )
    result = simulate(tmp_path, f"collective={COLLECTIVES['uneven']}", text=text)

    assert {check.verdict for check in result.jobs[0].checks} == {"pass"}


@pytest.mark.parametrize(
    ("collective", "told"),
    [
        (
            "{kind: hierarchical, inner: {kind: all_gather}, outer: {kind: ring}}",
            "collective.inner.kind: cannot use 'all_gather' as a kind\n"
            "  allowed: ring, halving_doubling, tree, torus_2d",
        ),
        (
            "{kind: hierarchical, groups: island, inner: {kind: ring}, outer: {kind: ring}}",
            "host h0 is in no island: the topology has none\n  use rack, or group_size",
        ),
        (
            "{kind: hierarchical, group_size: 1, inner: {kind: ring}, outer: {kind: ring}}",
            "every worker is in a group of its own: there is nothing to do inside groups",
        ),
        (
            "{kind: hierarchical, group_size: 10, inner: {kind: ring}, outer: {kind: ring}}",
            "all workers are in one group: there is nothing to do across groups\n  use group_size, such as 5",
        ),
        (
            "{kind: hierarchical, group_size: 5, inner: {kind: torus_2d, rows: 7}, outer: {kind: ring}}",
            "5 workers cannot stand in 7 rows",
        ),
        (
            "{kind: hierarchical, groups: 4, inner: {kind: ring}, outer: {kind: ring}}",
            "collective.groups: must be rack or island, found 4\n"
            "  for groups of 4 workers use group_size: 4; for 4 groups, group_count: 4",
        ),
        (
            "{kind: hierarchical, group_size: 2, group_count: 5, inner: {kind: ring}, outer: {kind: ring}}",
            "has group_size and group_count, which contradict each other\n  use one of them",
        ),
        ("{kind: ring, channels: 1025}", "collective.channels: must be at most 1024, found 1025"),
        ("{kind: ring, chunk: 3B}", "must be at least 4B, found '3B'"),
        ("{kind: halving_doubling, window: 8}", "a window of 8 packets is smaller than ack_every, 16"),
    ],
)
def test_what_cannot_be_carried_is_told(tmp_path: Path, collective: str, told: str) -> None:
    assert told in refused(tmp_path, f"collective={collective}", text=SCENE)


@pytest.mark.parametrize("outer", ["ring", "in_network"])
def test_one_worker_is_told_that_there_are_no_groups(tmp_path: Path, outer: str) -> None:
    hierarchy = f"collective={{kind: hierarchical, inner: {{kind: ring}}, outer: {{kind: {outer}}}}}"
    told = refused(tmp_path, hierarchy, "workers=1", text=SCENE)

    assert "workers: one worker: there are no groups to divide it into" in told


@pytest.mark.parametrize(
    ("keys", "sizes"),
    [
        ("groups: rack", [4, 4, 2]),
        ("group_size: 4", [4, 4, 2]),
        ("group_count: 4", [3, 2, 3, 2]),
        ("group_count: 2", [5, 5]),
    ],
)
def test_groups_in_rank_order_have_a_size_or_a_count(tmp_path: Path, keys: str, sizes: list[int]) -> None:
    collective = f"{{kind: hierarchical, {keys}, inner: {{kind: ring}}, outer: {{kind: tree}}}}"
    (variant,) = plan(tmp_path, f"collective={collective}", text=SCENE).variants
    groups = variant.jobs[0].collective.groups  # type: ignore[attr-defined]

    assert [len(group) for group in groups] == sizes
    assert [rank for group in groups for rank in group] == list(range(10))


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
@pytest.mark.parametrize("workers", [1, 6, 7])
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
