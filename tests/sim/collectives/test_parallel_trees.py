"""Trees in parallel: the words that each carries, packets per link by counting, sums under faults, places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.in_network.shares import Shares, Units, divided
from netfold.sim.engine.interface import Segment, Shared, all_members
from netfold.sim.plan.idle_network import job_pace
from netfold.sim.plan.plan import VariantPlan
from netfold.sim.run.outcome import VariantResult
from netfold.topologies.routing import path
from tests.sim.scenes import job_plan, only, simulate

RACKS = """\
name: racks
seed: 1
topology: {kind: leaf_spine, leaves: 4, spines: 4, hosts_per_leaf: 4, rate: 100Gbps, uplink_rate: 40Gbps,
  delay: 1us, switch: ideal}
workers: 16
workload: {kind: synthetic, elements: 100000}
codec: {kind: fixed_point, factor: 1e6}
collective: {kind: in_network, frame: udp-256, aggregators: tree}
"""


@given(units=st.integers(0, 200), trees=st.integers(1, 64), number=st.integers(0, 1000))
def test_shares_are_all_units_once_and_alike(units: int, trees: int, number: int) -> None:
    runs = divided(units, trees, number)

    carried = [unit for run in sorted(runs) for unit in range(run.first, run.first + run.size)]
    assert carried == list(range(units))
    sizes = [run.size for run in runs]
    assert max(sizes) - min(sizes) <= 1
    if units:
        assert runs[number % trees].first == 0
        assert runs[number % trees].size == max(sizes)


@pytest.mark.parametrize(("merge", "width"), [(Merge.ADD, 1), (Merge.TABLE_ADD, 8)])
@pytest.mark.parametrize("size", [1, 95, 96, 97, 300])
def test_pieces_are_the_memory_of_the_whole(merge: Merge, width: int, size: int) -> None:
    """Units of 2 packets of 8 words: pieces cover words and results, and share what is marked by packet."""
    shares = Shares(3, 1, 2, 8)
    units = -(-size // 16)
    segment = Segment(
        np.arange(size, dtype=np.int32),
        np.zeros(width * size, np.int32),
        merge,
        shared=Shared(np.zeros(width * size, np.int32), np.zeros(2 * units, np.uint8)),
        own=np.zeros(2 * units, np.uint8),
        members=all_members(2 * units, 4),
    )
    place = OperationPlace(0, 0, 0)
    runs = shares.of(0, place, 0, segment)
    pieces = [shares.piece(segment, run) for run in runs if run.size]

    assert np.array_equal(np.concatenate([piece.words for piece in pieces]), segment.words)
    for piece in pieces:
        assert piece.shared is not None
        assert piece.own is not None
        piece.result[:] = 1
        piece.shared.words[:] += 1
        piece.shared.seen[:] += 1
        piece.own[:] += 1
    assert segment.shared is not None
    assert segment.own is not None
    for array in (segment.result, segment.shared.words, segment.shared.seen, segment.own):
        assert (array == 1).all()
    for word in range(width * size):
        tree, own = shares.locate(place, 0, word)
        unit = word // width // 16
        assert runs[tree].first <= unit < runs[tree].first + runs[tree].size
        assert own == word - 16 * width * runs[tree].first


def test_an_absent_worker_has_the_share_of_the_others() -> None:
    shares = Shares(2, 2, 1, 8)
    absent = Segment(np.zeros(0, np.int32), np.zeros(20, np.int32), Merge.ADD, absent_words=20)
    first, second = (shares.piece(absent, run) for run in shares.of(0, OperationPlace(0, 0, 0), 0, absent))

    assert (first.size, second.size) == (16, 4)
    assert first.words.size == second.words.size == 0
    assert shares.of(1, OperationPlace(0, 0, 0), 0, absent) == (Units(0, 2), Units(2, 1))


def edges(variant: VariantPlan) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
    """Of each tree its number, and (source, target, route) of each hop up."""
    for number, tree in enumerate(job_plan(variant).collective.aggregations):
        homes = tree.homes or (0,) * len(tree.hosts)
        hops = [
            (host, tree.points[home], route)
            for host, home, route in zip(tree.hosts, homes, tree.routes, strict=True)
        ]
        hops += [(branch.switch, tree.points[branch.parent], branch.route) for branch in tree.branches]
        yield number, hops


def counted(variant: VariantPlan, packets: list[int]) -> Counter[str]:
    """Packets per link, by walking each hop of each tree there and back."""
    found: Counter[str] = Counter()
    names = variant.network.link_names
    for number, hops in edges(variant):
        for source, target, route in hops:
            for way in (
                path(variant.network, source, target, route),
                path(variant.network, target, source, route),
            ):
                found.update({names[link]: packets[number] for link in way})
    return found


def carried(result: VariantResult) -> dict[str, int]:
    return {link.link: link.packets for link in result.links if link.packets}


@pytest.mark.parametrize(("trees", "aggregators"), [(1, "tree"), (3, "tor"), (4, "core"), (7, 2)], ids=str)
def test_packets_of_every_link(tmp_path: Path, trees: int, aggregators: object) -> None:
    """100,000 words are 1563 packets of 64, divided among the trees; each crosses each hop there and back."""
    sets = (f"collective.trees={trees}", f"collective.aggregators={aggregators}", "collective.slots=70")
    variant, result = only(tmp_path, *sets, text=RACKS), simulate(tmp_path, *sets, text=RACKS)

    least, more = divmod(1563, trees)
    expected = counted(variant, [least + (tree < more) for tree in range(trees)])
    assert carried(result) == dict(expected)
    by_name = {link.link: link.bytes for link in result.links}
    assert all(by_name[name] == 332 * packets for name, packets in expected.items())
    assert {check.verdict for check in result.jobs[0].checks} == {"pass"}


@pytest.mark.parametrize(
    ("codec", "faults", "multicast"),
    [
        ("codec={kind: fixed_point}", "[{kind: loss, rate: 2%}]", "auto"),
        ("codec={kind: fixed_point, factor: 1e6}", "[{kind: duplicate, rate: 5%}]", "off"),
        ("codec={kind: none}", "[{kind: loss, rate: 2%}]", "off"),
    ],
)
def test_sums_are_right_whatever_is_lost(tmp_path: Path, codec: str, faults: str, multicast: str) -> None:
    """Retransmissions of one tree touch no other; scaled streams have their exponents in the same tree."""
    sets = ("collective.trees=3", codec, f"faults={faults}", f"collective.multicast={multicast}")
    result = simulate(
        tmp_path,
        *sets,
        *("workload.elements=20000", "collective.slots=48", "collective.timeout=300us"),
        *("collective.aggregators=core", "workers=8"),
        text=RACKS,
    )

    assert {check.verdict for check in result.jobs[0].checks} == {"pass"}
    assert result.jobs[0].journal.steps


def test_small_buckets_spread_over_the_trees(tmp_path: Path) -> None:
    """Each of 100 buckets is one packet, and goes to the next of four trees."""
    workload = "workload={kind: synthetic, elements: 6400, bucket: 256B}"
    sets = (workload, "collective.trees=4", "workers={count: 4, placement: spread}")
    result = simulate(
        tmp_path, *sets, "collective.aggregators=one", "topology.uplink_rate=400Gbps", text=RACKS
    )

    sent = Counter()
    for name, packets in carried(result).items():
        if "->spine" in name:
            sent[name.split("->")[1]] += packets
    assert sent == {f"spine{number}": 25 * 4 for number in range(4)}  # of four workers each
    assert {check.verdict for check in result.jobs[0].checks} == {"pass"}


def test_one_large_bucket_is_faster_over_all_spines(tmp_path: Path) -> None:
    """Uplinks of 25 Gbps below hosts of 100 Gbps: four trees carry four times as much, after their start."""
    slots = 256
    sets = ("topology.uplink_rate=25Gbps", "workload.elements=400000", f"collective.slots={slots}")
    times = []
    for trees in (1, 4):
        variant = only(tmp_path, *sets, f"collective.trees={trees}", text=RACKS)
        result = simulate(tmp_path, *sets, f"collective.trees={trees}", text=RACKS)
        times.append(result.jobs[0].journal.steps[0].end_ps)
        pace = job_pace(variant.network, *job_plan(variant).collective.aggregations)
        assert times[-1] == pytest.approx(pace.time_ps(400_000), rel=0.002)

    start_ps = 3 * slots / 4 * 332 * 80  # the last tree's first packet waits for three windows at 100 Gbps
    assert times[1] == pytest.approx(times[0] / 4 + start_ps, rel=0.02)
    assert times[0] > 3 * times[1]


@pytest.mark.parametrize("uplink", ["50Gbps", "400Gbps"])
def test_the_closed_form_of_parallel_trees(tmp_path: Path, uplink: str) -> None:
    """Where hosts' links are the busiest, as many trees are as fast as these.

    At 50 Gbps a tree that starts late could catch up, and does not quite: the form leaves that out.
    """
    sets = (f"topology.uplink_rate={uplink}", "workload.elements=400000", "collective.trees=3")
    variant, result = only(tmp_path, *sets, text=RACKS), simulate(tmp_path, *sets, text=RACKS)

    pace = job_pace(variant.network, *job_plan(variant).collective.aggregations)
    assert result.jobs[0].journal.steps[0].end_ps == pytest.approx(pace.time_ps(400_000), rel=0.015)


def test_a_crash_is_diagnosed_tree_by_tree(tmp_path: Path) -> None:
    """Units of both trees wait for the crashed worker, each at its own root."""
    result = simulate(
        tmp_path,
        *("collective.trees=2", "workload.elements=20000", "workers=4", "topology.hosts_per_leaf=1"),
        *("collective.timeout=100us", "collective.slots=4"),
        "faults=[{kind: worker_crash, worker: 1, at: 5us}]",
        text=RACKS,
    )
    diagnosis = result.jobs[0].facts.diagnosis

    assert "stuck" in {check.verdict for check in result.jobs[0].checks}
    assert diagnosis is not None
    told = str(diagnosis)
    assert "spine0" in told
    assert "spine1" in told
    assert "worker 1 has crashed" in told


def test_a_reboot_of_one_tree(tmp_path: Path) -> None:
    """What the registers of one switch lose is sent again, on all trees that it is part of."""
    result = simulate(
        tmp_path,
        *("collective.trees=4", "workload.elements=20000", "collective.timeout=100us", "collective.slots=16"),
        "faults=[{kind: switch_reboot, switch: leaf2, at: 10us}]",
        text=RACKS,
    )

    assert {check.verdict for check in result.jobs[0].checks} == {"pass"}
