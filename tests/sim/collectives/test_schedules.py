"""Schedules of collectives between hosts: their transfers, times and sums, beside plain programs."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.merge import Merge, merge_all, replay
from netfold.homomorphic.message import Message
from netfold.sim.collectives.collective import Collective
from netfold.sim.collectives.hierarchical_schedule import (
    HierarchicalPlan,
    HierarchicalRun,
    compose,
    outline_of_hierarchy,
)
from netfold.sim.collectives.host_collective import HostCollective, HostPlan
from netfold.sim.collectives.host_messages import ScheduledRun
from netfold.sim.collectives.kinds.all_gather import AllGather
from netfold.sim.collectives.kinds.halving_doubling import HalvingDoubling
from netfold.sim.collectives.kinds.ring import Ring
from netfold.sim.collectives.kinds.torus_2d import Torus2d
from netfold.sim.collectives.kinds.tree import Tree, binary_tree
from netfold.sim.collectives.schedule_costs import Routed, pace_of
from netfold.sim.collectives.transfers import (
    Cut,
    Outline,
    ScheduleBuilder,
    Step,
    Transfers,
    equal_cuts,
    outline_of,
)
from netfold.sim.engine.engine_data import NONE, Schedule
from netfold.sim.workload.device_rooflines import Device
from netfold.sim.workload.devices import FixedDevice, NoDevice
from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph
from netfold.topologies.network import Network, compile_network, path
from tests.examples import examples
from tests.reference.collectives import programs
from tests.reference.collectives.hosts import Hosts, Wire, in_any_order, leaves
from tests.reference.collectives.links import Links
from tests.reference.collectives.programs import Kind, tree_of
from tests.sim.engine.checked_schedule import check_schedule
from tests.sim.exchanges import (
    FRAME,
    INTEGER_MERGES,
    assert_fair_signs,
    context_of,
    halving_schedule,
    messages_of,
    options_of,
    ring_schedule,
    tree_schedule,
)
from tests.sim.host_codecs import Cascade, Union, cascade_encoded, to_list
from tests.sim.scenes import BYTE_PS, LINK, Exchanged, Started, small_star

RING, HALVING, TREE = Kind("ring"), Kind("halving_doubling"), Kind("tree")


@dataclass(frozen=True)
class Case:
    """A collective: `start` takes a context, `program` starts its oracle; messages have `size` words."""

    name: str
    workers: int
    size: int
    cut: Cut
    run: Callable[..., Collective]
    plan: Callable[..., HostPlan]
    program: Callable[..., None]

    def started(self, device: Any = None, **changes: int) -> Started:
        options, seed = options_of(FRAME, {"timeout_ps": 10**11, **changes})
        plan = self.plan(kind=self.name, **options)
        return lambda env, fabric: self.run(plan, context_of(env, fabric, self.workers, device, seed))


def whole(schedule: Schedule) -> Cut:
    return Cut(schedule, equal_cuts(schedule.chunks))


def collective_of(kind: Kind, words: int = 0) -> HostCollective:
    """With chunks of so many words; 0: larger than any message here."""
    chunk = f"{4 * words}B" if words else "1MiB"
    if kind.name == "ring":
        return Ring(kind="ring", channels=kind.channels, **({"chunk": chunk} if words else {}))
    if kind.name == "tree":
        return Tree(kind="tree", trees=kind.trees, chunk=chunk)
    return HalvingDoubling(kind="halving_doubling")


def cut_of(kind: Kind, workers: int) -> Cut:
    """The schedule of a share that is carried as a whole."""
    parts = kind.channels * workers if kind.name == "ring" else kind.trees
    return collective_of(kind, 1).cut(workers, parts * kind.pieces)


def flat(kind: Kind, workers: int, size: int) -> Case:
    """A collective of all workers; its chunks are such that there are as many pieces as `kind` says."""
    parts = kind.channels * workers if kind.name == "ring" else kind.trees
    words = max(1, -(-size // (parts * kind.pieces)))
    while -(-size // (parts * words)) < kind.pieces and words > 1:
        words -= 1
    pieces = max(1, -(-size // (parts * words))) if kind.pieces > 1 else 1
    kind = Kind(kind.name, kind.trees, pieces, kind.channels)
    lanes = "own" if kind.name in ("ring", "tree") else "none"
    collective = collective_of(kind, words if pieces > 1 else 0)

    def plan(**options: Any) -> HostPlan:
        return HostPlan(collective=collective, **options)

    def program(hosts: Hosts, **options: Any) -> None:
        programs.flat(hosts, workers, kind, lanes=lanes, **options)

    return Case(kind.name, workers, size, cut_of(kind, workers), ScheduledRun, plan, program)


def hierarchy(groups: list[list[int]], inner: Kind, outer: Kind, size: int, blocks: int = 1) -> Case:
    """A hierarchy whose messages are so many blocks."""
    words = max(1, -(-size // blocks))
    blocks = max(1, -(-size // words))
    cut = compose(groups, lambda members: cut_of(inner, members), cut_of(outer, len(groups)), blocks)

    def plan(**options: Any) -> HierarchicalPlan:
        return HierarchicalPlan(
            groups=tuple(map(tuple, groups)),
            parts=(collective_of(inner), collective_of(outer)),
            block_words=words,
            collective=collective_of(outer),
            **options,
        )

    def program(hosts: Hosts, **options: Any) -> None:
        programs.hierarchy(hosts, groups, inner, outer, blocks, **options)

    return Case("hierarchical", sum(map(len, groups)), size, cut, HierarchicalRun, plan, program)


@st.composite
def kinds(draw: st.DrawFn, most: int = 1) -> Kind:
    """A collective; a ring or tree of up to `most` pieces, a ring with up to three channels."""
    name = draw(st.sampled_from(["ring", "halving_doubling", "tree"]))
    pieces = draw(st.integers(1, most))
    if name == "ring":
        return Kind(name, pieces=pieces, channels=draw(st.integers(1, 3)) if most > 1 else 1)
    return Kind(name, trees=draw(st.integers(1, 2)), pieces=pieces if name == "tree" else 1)


@st.composite
def groupings(draw: st.DrawFn, most: int) -> list[list[int]]:
    """Workers in any order, in groups of any sizes."""
    order = draw(st.permutations(range(draw(st.integers(1, most)))))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(order) - 1)), max_size=len(order) - 1)))
    edges = [0, *(cut for cut in cuts if cut < len(order)), len(order)]
    return [list(order[first:end]) for first, end in pairwise(edges)]


@st.composite
def cases(draw: st.DrawFn, most: int = 9, sizes: tuple[int, ...] = (0, 1, 7, 200, 1500)) -> Case:
    """A collective of up to `most` workers."""
    size = draw(st.sampled_from(sizes))
    if draw(st.booleans()):
        return flat(draw(kinds(3)), draw(st.integers(1, most)), size)
    groups = draw(groupings(most))
    return hierarchy(groups, draw(kinds()), draw(kinds()), size, draw(st.integers(1, 3)))


def on(network: Network, size: int, window: int = 512, ack_every: int = 16) -> Hosts:
    """The oracle's hosts on a network with one path between any two."""
    sizes = FRAME.overhead_bytes, FRAME.first_bytes, FRAME.last_bytes, FRAME.ack_bytes
    wire = Wire(FRAME.elements, *sizes, window, ack_every)
    links = Links(list(zip(network.rate_bps.tolist(), network.delay_ps.tolist(), strict=True)))
    return Hosts(links, lambda a, b: tuple(path(network, a, b, 0)), wire, size)


def exchanged(case: Case, network: Network, messages: list[Message], **changes: Any) -> Exchanged:
    return Exchanged(network, case.started(**changes)).run([[(one,)] for one in messages])


def tree_network(data: st.DataObject, hosts: int) -> Network:
    """A random tree of switches with hosts at random ones, and links of random rates and delays."""
    graph, switches = new_graph("tree"), data.draw(st.integers(1, 4), label="switches")

    def link(one: str, other: str) -> None:
        rate = data.draw(st.sampled_from([1, 10, 25, 40, 100])) * 10**9
        add_link(graph, one, other, LinkSpec(rate, data.draw(st.integers(0, 3 * 10**6)), 1 << 28))

    for host in range(hosts):
        add_host(graph, f"h{host}")
    for switch in range(switches):
        add_switch(graph, f"s{switch}", tier=1, profile="plain")
        if switch:
            link(f"s{switch}", f"s{data.draw(st.integers(0, switch - 1))}")
    homes = [*range(switches), *(data.draw(st.integers(0, switches - 1)) for _ in range(hosts))]
    for host, switch in enumerate(homes[:hosts]):
        link(f"h{host}", f"s{switch}")
    return compile_network(graph)


UP_TO = (*range(1, 10), 12, 15, 16, 17, 31, 32, 33, 40)


def schedules(workers: int) -> list[Schedule]:
    return [
        ring_schedule(workers),
        ring_schedule(workers, 2, 3),
        ring_schedule(workers, 3),
        halving_schedule(workers),
        tree_schedule(workers, 1, 2),
        tree_schedule(workers, 2, 3),
    ]


@pytest.mark.parametrize("workers", UP_TO)
def test_every_schedule_is_an_all_reduce(workers: int) -> None:
    for schedule in schedules(workers):
        assert (schedule.workers, schedule.transfers > 0) == (workers, workers > 1)
        check_schedule(schedule)


@examples(35)
@given(groups=groupings(16), inner=kinds(), outer=kinds(), blocks=st.integers(1, 3))
def test_so_is_every_hierarchy_of_any_groups(
    groups: list[list[int]], inner: object, outer: object, blocks: int
) -> None:
    cut = compose(groups, lambda size: cut_of(inner, size), cut_of(outer, len(groups)), blocks)

    check_schedule(cut.schedule)
    assert len(cut.cuts) == cut.schedule.chunks + 1
    assert list(cut.cuts) == sorted(set(cut.cuts))
    assert (cut.cuts[0], cut.cuts[-1]) == (0, 1)
    # What a worker sends to another shares one window, in all phases and blocks, and with nobody else.
    made = cut.schedule
    pairs = list(zip(made.source.tolist(), made.target.tolist(), strict=True))
    lanes = made.lane.tolist()
    assert NONE not in lanes
    assert len(set(zip(pairs, lanes, strict=True))) == len(set(pairs)) == len(set(lanes))


@examples(30)
@given(case=cases(7, sizes=(64,)), seed=st.integers(0, 10**6))
def test_no_order_of_events_breaks_it(case: Case, seed: int) -> None:
    """Transfers that take any time: what is waited for is enough, and merges are always the same."""
    held = in_any_order(case.cut.schedule, seed)

    for worker in held:
        for value in worker:
            assert sorted(leaves(value)) == list(range(case.workers))
    assert in_any_order(case.cut.schedule, seed + 1) == held


def sent(cut: Cut, size: Fraction = Fraction(1)) -> list[Fraction]:
    """What each worker sends, as shares of a message."""
    found = [Fraction(0)] * cut.schedule.workers
    for row in range(cut.schedule.transfers):
        first, end = int(cut.schedule.first[row]), int(cut.schedule.first[row] + cut.schedule.count[row])
        found[cut.schedule.source[row]] += cut.cuts[end] - cut.cuts[first]
    return found


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 8, 16, 32])
def test_every_worker_sends_the_published_words(workers: int) -> None:
    """2 (n − 1) / n of a message on a ring; as many by halving and doubling among a power of two."""
    ring = [Fraction(2 * (workers - 1), workers)] * workers

    assert sent(whole(ring_schedule(workers))) == ring
    assert sent(whole(ring_schedule(workers, 3, 2))) == ring
    if workers & (workers - 1) == 0:
        assert sent(whole(halving_schedule(workers))) == ring
    else:  # those left out give all they have to the next, which gives the result back
        core = 1 << (workers.bit_length() - 1)
        one, extra = Fraction(2 * (core - 1), core), workers - core
        expected = [Fraction(1), one + 1] * extra + [one] * (core - extra)
        assert sent(whole(halving_schedule(workers))) == expected


@examples(50)
@given(
    flows=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(2, 4)), min_size=1, max_size=80
    ),
    workers=st.sampled_from([4, 4096]),
)
def test_what_one_sends_another_on_a_channel_shares_a_lane(
    flows: list[tuple[int, int, int]], workers: int
) -> None:
    """Lanes are numbered by channel, source and target; among many workers most numbers are not there."""
    ends = [(source * workers // 4, target * workers // 4, channel) for source, target, channel in flows]
    source, target, channel = np.array(ends, np.int64).T
    builder = ScheduleBuilder(workers, 1)
    builder.add((source, target), (0, 1), merges=True, channel=channel)

    order = sorted({(channel, source, target) for source, target, channel in ends})
    expected = [order.index((channel, source, target)) for source, target, channel in ends]
    assert builder.schedule(has_lanes=True).lane.tolist() == expected


@pytest.mark.parametrize("workers", UP_TO)
def test_two_trees_share_the_work(workers: int) -> None:
    """Nobody has children in both, so nobody sends more than two messages (Sanders et al., section 3)."""
    trees = [binary_tree(workers, number) for number in (0, 1)]
    children = [(tree.children >= 0).sum(axis=1) for tree in trees]

    assert not ((children[0] > 0) & (children[1] > 0)).any()
    assert max(sent(whole(tree_schedule(workers, 2, 2))), default=0) <= 2
    depth = workers.bit_length() - 1  # ⌊log2 n⌋
    assert [int(tree.depths.max()) for tree in trees] == [depth, depth]
    for number, tree in enumerate(trees):
        root, below = tree_of(workers, number)
        assert tree.root == root
        for parent, expected in below.items():
            assert [one for one in tree.children[parent].tolist() if one >= 0] == expected
            assert all(int(tree.parents[child]) == parent for child in expected)


def depth_of(schedule: Schedule) -> int:
    """The longest chain of transfers one after the other: each waits for one that was processed."""
    depths = np.zeros(schedule.transfers + 1, np.int64)  # the last one is that of none
    for row in range(schedule.transfers):
        waits = schedule.waits_for[schedule.waits_first[row] : schedule.waits_first[row + 1]]
        sent = 1 + max((int(depths[one]) for one in waits), default=0)
        depths[row] = max(sent, int(depths[schedule.follows[row]]))
    return int(depths.max())


@pytest.mark.parametrize("workers", UP_TO)
def test_the_longest_chains_are_as_long_as_published(workers: int) -> None:
    rounds = workers.bit_length() - 1
    assert depth_of(ring_schedule(workers)) == 2 * (workers - 1)
    assert depth_of(tree_schedule(workers)) == 2 * rounds
    is_power = workers == 1 << rounds
    assert depth_of(halving_schedule(workers)) == 2 * rounds + (0 if is_power else 2)
    assert rounds == np.ceil(np.log2(workers)) - (0 if is_power else 1)


PACKET_PS = 100 * BYTE_PS


def time_ps(case: Case, **changes: int) -> int:
    messages = messages_of(Merge.ADD, case.workers, case.size)
    return exchanged(case, small_star(case.workers), messages, **changes).end_ps


def way_ps(packets: int) -> int:
    """Packets one after the other over two links; the first is waited for twice."""
    return (packets + 1) * PACKET_PS + 2 * LINK.delay_ps


@pytest.mark.parametrize("workers", [4, 8, 13])
@pytest.mark.parametrize("trees", [1, 2])
def test_long_messages_on_trees_take_as_many_words_as_the_busiest_worker_sends(
    workers: int, trees: int
) -> None:
    """2 M on two trees and 3 M on one, and the time of a chunk for each way."""
    packets, pieces = 2400, 150
    case = flat(Kind("tree", trees=trees, pieces=pieces), workers, packets * FRAME.elements)
    found = time_ps(case, ack_every=512, window=4096)

    chunk = packets // (trees * pieces)
    most = (2 if trees == 2 else 3) * packets * PACKET_PS
    ways = 2 * (workers.bit_length() - 1)
    assert most <= found <= 1.1 * most + 3 * ways * way_ps(chunk)
    outline = collective_of(Kind("tree", trees=trees)).outline(workers)
    pace = pace_of(routed_of(replace(outline, block_words=0), workers), FRAME)
    assert pace.time_ps(case.size) == pytest.approx(most + ways * way_ps(1))
    # The first chunk of every tree passes all levels by itself.
    pace = pace_of(routed_of(replace(outline, block_words=trees * chunk * FRAME.elements), workers), FRAME)
    # On one tree, what goes up is ready first and delays what goes down.
    assert pace.time_ps(case.size) * 0.95 < found < pace.time_ps(case.size) * (1.1 if trees == 2 else 1.2)


def routed_of(outline: Outline, hosts: int) -> Routed:
    nodes = [*range(hosts), *range(hosts)]  # servers beside workers are the second half
    return Routed(outline, small_star(hosts), nodes, lambda *flow: 0)


@pytest.mark.parametrize("workers", range(2, 65))
def test_costs_of_any_number_of_workers(workers: int) -> None:
    """Closed forms of the papers: words per worker, ways, and merges, as shares of a message."""
    rounds = workers.bit_length() - 1
    size = 1 << rounds
    of_core = 2 * (size - 1) / size + (2 if size < workers else 0)
    shapes = [
        (Ring(kind="ring"), 2 * (workers - 1) / workers, 2 * (workers - 1), 2 * (workers - 1) * workers),
        (
            HalvingDoubling(kind="halving_doubling"),
            of_core,
            2 * rounds + 2 * (size < workers),
            2 * size * rounds + 2 * (workers - size),
        ),
        (AllGather(kind="all_gather"), workers - 1, workers - 1, workers * (workers - 1)),
        *(
            (
                Torus2d(kind="torus_2d", rows=rows),
                2 * (workers - 1) / workers,
                2 * (rows + workers // rows - 2),
                2 * workers * (workers // rows - 1) + 2 * (rows - 1) * workers,
            )
            for rows in range(1, workers + 1)
            if workers % rows == 0
        ),
    ]
    for collective, words, ways, transfers in shapes:
        outline = collective.outline(workers)
        pace = pace_of(routed_of(outline, workers), FRAME)
        assert pace.elements_per_s == pytest.approx(FRAME.elements / (PACKET_PS * 1e-12) / words)
        assert (outline.hops, outline.transfers) == (ways, transfers)
        assert pace.latency_ps == ways * way_ps(1)
        assert {channel for level in outline.levels for channel in level.channel.tolist()} == {0}
    for trees in (1, 2):
        outline = Tree(kind="tree", trees=trees).outline(workers)
        assert (outline.hops, outline.transfers) == (2 * rounds, 2 * (workers - 1) * trees)


def test_levels_are_the_same_where_all_their_steps_are() -> None:
    """0 and 1 exchange three times; 2 and 3 send at the first two levels, not to the same."""
    pair, turned = np.array([0, 1]), np.array([1, 0])
    steps = [Step(pair, turned, 0), Step(np.array([3]), np.array([2]), 0)]
    steps += [Step(pair, turned, 0), Step(np.array([2]), np.array([3]), 0), Step(pair, turned, 0)]
    outline = outline_of(Transfers(4, 1, steps))

    assert [(level.times, level.source.tolist()) for level in outline.levels] == [
        (1, [0, 1, 3]), (1, [0, 1, 2]), (1, [0, 1])
    ]  # fmt: skip


@pytest.mark.parametrize("workers", [2, 3, 5, 8])
def test_in_an_all_gather_every_worker_receives_all_messages_each_once_after_it_was_there(
    workers: int,
) -> None:
    schedule = AllGather(kind="all_gather").cut(workers).schedule
    held = {worker: {worker} for worker in range(workers)}

    for number in range(schedule.transfers):
        source, target, cell = (
            int(column[number]) for column in (schedule.source, schedule.target, schedule.first)
        )
        awaited = schedule.waits_for[schedule.waits_first[number] : schedule.waits_first[number + 1]]
        brought = [int(schedule.first[other]) for other in awaited if int(schedule.target[other]) == source]
        assert brought == ([] if cell == source else [cell])
        assert len(awaited) == len(brought)
        assert cell not in held[target]
        held[target].add(cell)
    assert all(len(cells) == workers for cells in held.values())


@pytest.mark.parametrize(("is_cut", "share"), [(False, 2 * 1 / 2 + 2 * 1 / 2 / 2), (True, 1.5)])
def test_blocks_of_a_hierarchy_count_what_the_busiest_link_carries_in_all(is_cut: bool, share: float) -> None:
    """Two pairs: one message in and one back inside, of which each owner exchanges half across."""
    ring = collective_of(RING)
    outline = outline_of_hierarchy(((0, 1), (2, 3)), (ring, ring), 64, 16 if is_cut else 64)

    assert outline.is_pipelined == is_cut
    wire = FRAME.elements / (PACKET_PS * 1e-12)
    assert pace_of(routed_of(outline, 4), FRAME).elements_per_s == pytest.approx(wire / share)
    assert outline.transfers == (4 if is_cut else 1) * (4 + 8 + 4)


@examples(25)
@given(data=st.data(), merge=st.sampled_from([*INTEGER_MERGES, Merge.TABLE_ADD]))
def test_every_worker_gets_the_merge_of_all(data: st.DataObject, merge: Merge) -> None:
    case = data.draw(cases())
    loss = data.draw(st.sampled_from([0.0, 0.02]), label="loss")
    messages = messages_of(merge, case.workers, case.size)
    pauses = [[data.draw(st.integers(0, 10**9))] for _ in messages]
    start = case.started(timeout_ps=10**8, seed=data.draw(st.integers(1, 99)))
    done = Exchanged(small_star(case.workers), start, loss).run([[(one,)] for one in messages], pauses)

    expected = merge_all(merge, [one.words for one in messages], table=messages[0].table)
    for ((merged,),) in done.received:
        assert expected.dtype == merged.words.dtype
        assert expected.tolist() == merged.words.tolist()
        assert (case.workers, None, False) == (merged.workers, merged.present, merged.is_mixed)


@examples(20)
@given(data=st.data())
def test_absent_workers_pass_on_what_arrives(data: st.DataObject) -> None:
    case = data.draw(cases(sizes=(7, 200)))
    messages = messages_of(Merge.ADD, case.workers, case.size)
    absent = data.draw(st.sets(st.integers(0, case.workers - 1)), label="absent")
    sent = [
        replace(one, words=one.words[:0], absent_words=case.size) if rank in absent else one
        for rank, one in enumerate(messages)
    ]
    done = exchanged(case, small_star(case.workers), sent)

    present = [rank not in absent for rank in range(case.workers)]
    expected = np.zeros(case.size, np.int32)
    for rank in np.flatnonzero(present):
        expected += messages[rank].words
    for ((merged,),) in done.received:
        assert expected.tolist() == merged.words.tolist()
        assert merged.workers == sum(present)
        assert all(present) if merged.present is None else merged.present.tolist() == present


@examples(20)
@given(data=st.data(), is_union=st.booleans())
def test_codecs_merge_parts_of_any_length_hop_by_hop(data: st.DataObject, is_union: bool) -> None:
    """Lists of unequal length, even empty ones, and cascaded signs, whose result depends on the order."""
    case = data.draw(cases(sizes=(64,)))
    random = np.random.default_rng(case.workers)
    if is_union:
        merge, words = Union(300), []
        for rank in range(case.workers):
            gradient = random.standard_normal(300).astype(np.float32)
            chosen = np.sort(random.choice(300, 20 * (rank % 3), replace=False))
            words.append(to_list(gradient, chosen))
    else:
        merge = Cascade()  # type: ignore[assignment]
        words = [
            cascade_encoded(random.standard_normal(300).astype(np.float32), np.float32(rank + 1))
            for rank in range(case.workers)
        ]
    done = exchanged(
        case, small_star(case.workers), [Message(one, Merge.HOST, "x", host_merge=merge) for one in words]
    )

    order = done.collective.merge_orders(0, 0)[0, 0]
    right = replay(merge, words, order)
    for ((merged,),) in done.received:
        assert right.tolist() == merged.words.tolist()
        assert merged.workers == case.workers


@pytest.mark.parametrize(("workers", "chunks"), [(1, 2), (2, 4), (7, 8), (8, 12)])
def test_two_trees_cut_what_a_codec_merges_by_twice_their_depth(workers: int, chunks: int) -> None:
    """With 1, 2, 7 and 8 workers they are 0, 1, 2 and 3 links deep; each has at least one part."""
    tree: Any = Exchanged(small_star(workers), flat(TREE, workers, 64).started()).collective

    assert tree.cut(0, True).schedule.chunks == chunks


@pytest.mark.parametrize("seed", range(3))
def test_signs_are_one_random_workers_bits(seed: int) -> None:
    """In uneven groups too."""
    size = 7000
    case = [
        flat(HALVING, 7, size),
        flat(Kind("tree", pieces=3), 6, size),
        hierarchy([[0, 1], [2, 3, 4, 5], [6]], TREE, HALVING, size, 2),
    ][seed]
    messages = messages_of(Merge.SIGN, case.workers, size)
    done = exchanged(case, small_star(case.workers), messages)

    assert_fair_signs(messages, [merged for ((merged,),) in done.received])


BYTE_A_NS = 8 * 10**9  # bit/s of memory


class Timed(Exchanged):
    """Notes when each worker has its result."""

    def _work(self, worker: int, *rest: Any) -> Generator[simpy.Event, Any, None]:
        yield from super()._work(worker, *rest)
        self.ends_ps[worker] = int(self.environment.now)

    def timed(self, messages: list[Message]) -> dict[int, int]:
        self.ends_ps: dict[int, int] = {}
        self.run([[(one,)] for one in messages])
        return self.ends_ps


def ends_of(case: Case, network: Any, window: int, ack_every: int, is_charged: bool) -> tuple[Any, Any]:
    """When each worker ends: by the oracle, and by the engine."""
    hosts = on(network, case.size, window, ack_every)
    device: Device = (
        FixedDevice(forward_ps=0, backward_ps=0, memory_bps=BYTE_A_NS) if is_charged else NoDevice()
    )
    if is_charged:
        case.program(hosts, merge_ps=lambda words: 3 * 4 * words * 1000)
    else:
        case.program(hosts)
    hosts.links.run()
    for rank in range(case.workers):
        held = sorted(hosts.results[rank])
        assert sum(share.end - share.start for share, _ in held) == 1
        assert all(sorted(leaves(value)) == list(range(case.workers)) for _, value in held)
    messages = messages_of(Merge.ADD, case.workers, case.size)
    start = case.started(device, window=window, ack_every=ack_every)
    return hosts.done_ps, Timed(network, start).timed(messages)


@examples(30)
@given(data=st.data())
def test_every_worker_ends_when_the_programs_of_the_papers_do(data: st.DataObject) -> None:
    """On random trees of switches, with links of any rate, small windows, and merges that take time."""
    case = data.draw(cases(sizes=(1, 7, 200, 1500)))
    network = tree_network(data, case.workers)
    window, ack_every = data.draw(st.sampled_from([(4, 2), (40, 4), (512, 16)]))
    expected, found = ends_of(case, network, window, ack_every, data.draw(st.booleans(), label="charged"))

    assert found == expected


CASES = [
    *(flat(Kind("ring", channels=k, pieces=p), n, 960) for n in (2, 5, 8) for k, p in ((1, 1), (2, 2))),
    *(flat(HALVING, n, 960) for n in (2, 3, 8, 11)),
    *(flat(Kind("tree", trees=t, pieces=p), n, 960) for n in (3, 8, 11) for t, p in ((1, 1), (2, 3))),
    hierarchy([[0, 1, 2, 3], [4, 5, 6, 7]], RING, RING, 960, 2),
    hierarchy([[0, 1, 2], [3, 4, 5, 6, 7]], TREE, HALVING, 960, 3),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.workers}")
def test_equal_links_with_all_their_ties_end_at_the_same_time(case: Case) -> None:
    """A star on which everything happens at once: the order of one instant decides."""
    expected, found = ends_of(case, small_star(case.workers), 512, 16, is_charged=False)

    assert max(found.values()) == max(expected.values())


@examples(25)
@given(data=st.data())
def test_floats_are_added_in_the_order_of_the_programs(data: st.DataObject) -> None:
    """Bit for bit, word by word, as the nest of merges says that the oracle's workers end with."""
    case = data.draw(cases(sizes=(1, 37, 60)))
    network = tree_network(data, case.workers)
    hosts = on(network, case.size)
    case.program(hosts)
    hosts.links.run()
    messages = messages_of(Merge.FLOAT_ADD, case.workers, case.size)
    received = Exchanged(network, case.started()).run([[(one,)] for one in messages]).received

    expected = np.empty(case.size, np.float32)
    for share, value in hosts.results[0]:
        first, end = int(share.start * case.size), int(share.end * case.size)
        expected[first:end] = _added(value, [one.words[first:end] for one in messages])
    for ((merged,),) in received:
        assert expected.tobytes() == merged.words.tobytes()


def _added(value: Any, words: list[Any]) -> Any:
    if isinstance(value, int):
        return words[value]
    return np.asarray(_added(value[0], words) + _added(value[1], words), np.float32)


@pytest.mark.parametrize(
    ("module", "name", "told"),
    [
        ("host_collective", "HostSection", "use HostCollective"),
        ("host_collective", "ChunkedSection", "use ChunkedCollective"),
        ("host_messages", "ScheduledCollective", "a HostCollective needs no class that runs it"),
    ],
)
def test_a_name_that_is_gone_says_what_to_use(module: str, name: str, told: str) -> None:
    with pytest.raises(ImportError, match=told):
        getattr(import_module(f"netfold.sim.collectives.{module}"), name)
