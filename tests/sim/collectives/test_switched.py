"""Hierarchies with switches inside or across groups: sums, packets by counting, times, refusals."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.sim.collectives.collective import collectives
from netfold.sim.collectives.hierarchical_switched import (
    Shape,
    SwitchedPlan,
    half,
    lanes_of,
    pace_of_phases,
    sharing,
)
from netfold.sim.collectives.schedule_costs import tables_bytes
from netfold.sim.engine.engine import Engine
from netfold.sim.run.run import run_variant
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from tests.examples import examples
from tests.sim.collectives.test_schedules import HALVING, RING, TREE, cut_of
from tests.sim.engine.checked_schedule import check_schedule
from tests.sim.scenes import DENSE, TINY, job_plan, only, plan, refused, simulate, write

SCENE = """\
name: switched
seed: 7
topology: {kind: leaf_spine, leaves: 3, spines: 2, hosts_per_leaf: 4}
workers: 12
workload: {kind: synthetic, elements: 12000}
codec: {kind: fixed_point, factor: 1e6}
collective: {kind: ring}
"""
SWITCH, AROUND = "{kind: in_network}", "{kind: ring}"
ATP = "{kind: in_network, program: atp}"
PARTS = {
    "in, ring": (SWITCH, "{kind: ring}"),
    "in, tree": (SWITCH, "{kind: tree}"),
    "in, in": (SWITCH, SWITCH),
    "ring, in": ("{kind: ring}", SWITCH),
    "tree, in": ("{kind: tree, trees: 1}", SWITCH),
    "halving, in": ("{kind: halving_doubling}", "{kind: in_network, trees: 2}"),
}


def hierarchy(inner: str, outer: str, more: str = "group_size: 4") -> str:
    return f"collective={{kind: hierarchical, {more}, inner: {inner}, outer: {outer}}}"


def verdicts(result: Any) -> set[str]:
    return {check.verdict for check in result.jobs[0].checks}


@pytest.mark.parametrize("parts", PARTS)
def test_sums_are_exact(tmp_path: Path, parts: str) -> None:
    """Also in uneven groups, in blocks, and with loss, of which every phase has some."""
    sets = (hierarchy(*PARTS[parts], "group_size: 4, chunk: 8KiB"),)
    even = simulate(tmp_path, *sets, text=SCENE)
    uneven = simulate(tmp_path, *sets, "workers=9", "faults=[{kind: loss, rate: 1%}]", text=SCENE)

    assert verdicts(even) == verdicts(uneven) == {"pass"}
    assert sum(link.lost_packets for link in even.links) == 0
    assert sum(link.lost_packets for link in uneven.links) > 0


def test_signs_survive_where_groups_are_equal(tmp_path: Path) -> None:
    sets = (
        "codec={kind: marsit, every: 3}",
        "workload={kind: training, model: mlp, batch: 2, learning_rate: 0.01, steps: 4}",
        "topology.switch=ideal",
    )
    collective = hierarchy(SWITCH, "{kind: ring}", "groups: rack")
    result = simulate(tmp_path, collective, *sets, text=SCENE)

    assert verdicts(result) == {"pass"}
    (fair,) = (check.detail for check in result.jobs[0].checks if check.name == "merges_are_right")
    assert "each worker's as often as is fair" in fair
    told = refused(tmp_path, collective, *sets, "workers=10", text=SCENE)
    assert "groups of 2, 4 workers would count as one each" in told
    assert "use groups of equal size" in told


def test_packets_by_counting(tmp_path: Path) -> None:
    """Of P packets a message, 4 P reach each rack's switch, and 3 P / 4 the spine for each of 4 jobs."""
    inner, outer = "{kind: in_network, frame: udp-256}", "{kind: in_network, frame: udp-256, switch: spine0}"
    sets = hierarchy(inner, outer.replace("spine0", "spine0, aggregators: one")), "workload.elements=15360"
    result = simulate(tmp_path, *sets, text=SCENE)
    facts = result.jobs[0].facts

    packets = 15360 // 64
    taken = [(one["switch"], one["packets"], one["results"]) for one in facts.switches]
    assert taken == [
        *((f"leaf{rack}", 4 * packets, packets) for rack in range(3)),
        *[("spine0", 3 * packets // 4, packets // 4)] * 4,
    ]
    crossing = Counter[str]()
    for link in result.links:
        if "leaf" in link.link and "spine" in link.link:
            crossing["up" if link.link.startswith("leaf") else "down"] += link.packets
    assert crossing == {"up": 3 * packets, "down": 3 * packets}


def test_packets_pass_as_often_as_those_of_the_part_with_more_passes(tmp_path: Path) -> None:
    def passes(collective: str) -> tuple[int, int]:
        return job_plan(only(tmp_path, "topology.switch=tofino2", collective, text=SCENE)).collective.passes

    frames = [f"{{kind: in_network, frame: {frame}}}" for frame in ("udp-256", "roce-1024")]
    small, large = (passes(f"collective={one}") for one in frames)
    assert small[0] < large[0]
    assert passes(hierarchy(*frames)) == passes(hierarchy(*reversed(frames))) == large


LONG = ("topology={kind: star, hosts: 12, switch: ideal}", "workload.elements=600000")
FAST = "{kind: in_network, slots: 2048, frame: udp-256}"
WORD_IN, WORD_HOST = 332 * 8 / 64 / 100e9, 1106 * 8 / 256 / 100e9  # seconds at 100 Gbps


@pytest.mark.parametrize(
    ("inner", "outer", "in_words", "host_words"),
    [
        (FAST, "{kind: ring}", 1, 2 * 2 / 3 / 4 + 3 / 4),
        (FAST, FAST, 1 + 1 / 4, 3 / 4),
        ("{kind: ring}", FAST, 1 / 4, 2 * 3 / 4),
        ("{kind: tree}", FAST, 1 / 2, 2 * 3 / 2),
    ],
)
def test_phases_take_their_times(
    tmp_path: Path, inner: str, outer: str, in_words: float, host_words: float
) -> None:
    """Three groups of four on one switch: the sum on paper, and the closed form with its ways.

    Two trees carry half of the words each: a worker gets those of two children, then passes on one half.
    """
    sets = (hierarchy(inner, outer), *LONG)
    variant, result = only(tmp_path, *sets, text=SCENE), simulate(tmp_path, *sets, text=SCENE)
    end_ps = result.jobs[0].journal.steps[0].end_ps

    on_paper_s = 600_000 * (in_words * WORD_IN + host_words * WORD_HOST)
    assert end_ps == pytest.approx(on_paper_s * 1e12, rel=0.06)
    assert end_ps > on_paper_s * 1e12
    (variant_read,) = load(write(tmp_path, SCENE), sets).variants
    section: Any = variant_read.collective
    plan = job_plan(variant).collective
    assert isinstance(plan, SwitchedPlan)
    shape = Shape(section, plan.groups, collectives()[section.inner.kind], collectives()[section.outer.kind])
    scenario = SimpleNamespace(scenario=SimpleNamespace(seed=7))
    job: Any = SimpleNamespace(
        site=SimpleNamespace(network=variant.network),
        nodes=job_plan(variant).hosts,
        index=0,
        location=scenario,
        elements=600_000,
    )
    pace = pace_of_phases(shape, job, plan.inside, plan.across)
    assert end_ps == pytest.approx(pace.time_ps(600_000), rel=0.01)
    best = collectives()["hierarchical"].estimate
    assert best is not None
    assert best(section, variant.network, job_plan(variant).hosts, 600_000, 7).seconds < end_ps / 1e12


@examples(30)
@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=5), data=st.data())
def test_lanes_carry_every_word_once(sizes: list[int], data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([None, RING, TREE, HALVING]))
    words, blocks = data.draw(st.integers(0, 500)), data.draw(st.integers(1, 4))
    first = np.cumsum([0, *sizes]).tolist()
    groups = [range(begin, begin + size) for begin, size in zip(first[:-1], sizes, strict=True)]

    lanes = lanes_of(groups, sharing if kind is None else lambda size: cut_of(kind, size))

    carried = Counter(
        word for lane in lanes for at in lane.slices(words, blocks) for word in range(words)[at]
    )
    assert carried == Counter(range(words))
    assert sum(lane.share for lane in lanes) == pytest.approx(1)
    for lane in lanes:
        assert [worker in group for worker, group in zip(lane.members, groups, strict=True)] == [True] * len(
            sizes
        )
    assert not any(one.members == two.members for one, two in combinations(lanes, 2))


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_sharing_is_an_all_reduce_of_two_halves(workers: int) -> None:
    cut = sharing(workers)
    check_schedule(cut.schedule)

    up, down = half(cut, merges=True).schedule, half(cut, merges=False).schedule
    assert up.transfers == down.transfers == workers * (workers - 1)
    assert up.merges.all()
    assert not down.merges.any()
    received = {(int(t), int(c)) for t, c in zip(down.target, down.first, strict=True)}
    assert received == {(to, chunk) for to in range(workers) for chunk in range(workers) if to != chunk}


def test_a_crash_is_named_by_rank_in_the_job(tmp_path: Path) -> None:
    inner = "{kind: in_network, slots: 4, timeout: 100us}"
    faults = "faults=[{kind: worker_crash, worker: 6, at: 5us}]"
    result = simulate(tmp_path, hierarchy(inner, "{kind: ring}", "groups: rack"), faults, text=SCENE)

    told = str(result.jobs[0].facts.diagnosis)
    assert "worker 6 has crashed" in told
    assert "leaf1" in told


@pytest.mark.parametrize(
    ("inner", "outer", "sets", "told"),
    [
        (SWITCH, AROUND, ["topology.switch=plain"], "no switch can aggregate"),
        (SWITCH, AROUND, ["codec={kind: fp16}"], "needs host, which a hierarchy with switches cannot"),
        (ATP, SWITCH, [], "collective.inner.program: program atp may deliver the sum of only some workers"),
        (AROUND, "{kind: in_network, slots: 1000000}", [], "use 11264 slots at most"),
        (
            "{kind: in_network, overflow: saturate}",
            AROUND,
            [],
            "parts of the hierarchy treat sums that overflow differently: saturate, wrap; sums of hosts wrap",
        ),
        ("{kind: in_network, timeout: 1us}", AROUND, [], "smaller window (collective.inner.slots)"),
        ("{kind: torus_2d, rows: 5}", SWITCH, [], "4 workers cannot stand in 5 rows"),
        (SWITCH, "{kind: torus_2d, rows: 5}", [], "cannot stand in 5 rows"),
        (AROUND, "{kind: in_network, switch: x}", [], "collective.outer.switch: there is no switch 'x'"),
        (
            SWITCH,
            AROUND,
            ["codec={kind: sasg_summed}", "workload={kind: training, model: mlp, batch: 2, steps: 2}"],
            "the phases of a hierarchy with switches do not pass on who did",
        ),
    ],
)
def test_what_cannot_be_carried_is_told(
    tmp_path: Path, inner: str, outer: str, sets: list[str], told: str
) -> None:
    assert told in refused(tmp_path, hierarchy(inner, outer, "groups: rack"), *sets, text=SCENE)


@pytest.mark.parametrize(
    ("size", "told"), [(16, ""), (17, "cannot fold packets of 256 words over 4 pipelines for 17 workers")]
)
def test_a_group_is_no_larger_than_a_switch_can_tell(tmp_path: Path, size: int, told: str) -> None:
    inner = "{kind: in_network, aggregators: one}"
    sets = (
        hierarchy(inner, "{kind: ring}", f"group_size: {size}"),
        f"workers={2 * size}",
        f"topology={{kind: star, hosts: {2 * size}}}",
    )
    if not told:
        assert len(job_plan(only(tmp_path, *sets, text=SCENE)).collective.aggregations) == 2
        return
    text = refused(tmp_path, *sets, text=SCENE)
    assert f"collective.group_size: inner: SwitchML {told}" in text
    assert "use smaller groups; use 16 workers at most" in text


RUNS_SCENE = """\
name: scheduled
seed: 7
topology: {kind: leaf_spine, leaves: 3, spines: 2, hosts_per_leaf: 4, switch: plain}
workers: 10
workload: {kind: synthetic, elements: 6000, density: 30%}
codec: {kind: none}
collective: {kind: ring}
"""

COMPOSED = [kind for kind, spec in collectives().items() if spec.is_between_hosts or spec.as_part]


@pytest.mark.parametrize(
    ("collective", "told"),
    [
        (
            "{kind: hierarchical, inner: {kind: all_gather}, outer: {kind: ring}}",
            f"collective.inner.kind: cannot use 'all_gather' as a kind\n  allowed: {', '.join(COMPOSED)}",
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
            "{kind: hierarchical, group_size: 5, inner: {kind: ring}, outer: {kind: torus_2d, rows: 3}}",
            "2 workers cannot stand in 3 rows",
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
def test_what_a_scenario_cannot_carry_is_told(tmp_path: Path, collective: str, told: str) -> None:
    assert told in refused(tmp_path, f"collective={collective}", text=RUNS_SCENE)


@pytest.mark.parametrize("outer", ["ring", "in_network"])
def test_one_worker_is_told_that_there_are_no_groups(tmp_path: Path, outer: str) -> None:
    told = refused(tmp_path, hierarchy("{kind: ring}", f"{{kind: {outer}}}"), "workers=1", text=RUNS_SCENE)

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
    (variant,) = plan(tmp_path, f"collective={collective}", text=RUNS_SCENE).variants
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

    sizes = [tables_bytes(one.transfers, one.chunks, workers) for one in opened]
    assert set(sizes) <= {job.collective.tables_bytes}
    assert bool(opened) == (workers > 1)
