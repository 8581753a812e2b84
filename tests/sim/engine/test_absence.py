"""Absent workers in both engines: packets that are headers, closed forms, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Branch, Segment, all_members
from netfold.switch.programs import runnable
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network
from tests.examples import examples
from tests.reference.switch.merging import lanes_of, lifted, packed, signed, words_per_word
from tests.sim.engine.small import (
    FRAME,
    LINK,
    D,
    Make,
    X,
    atp_job,
    compiled,
    job,
    links_total,
    run,
    segment,
    star_of,
    start,
)

HEADER, HEADER_PS = 34, 272_000  # of FRAME without words, and its time on LINK
ALL_MERGES = [Merge.ADD, Merge.OR, Merge.MAX, Merge.FLOAT_ADD, Merge.SIGN, Merge.TABLE_ADD]
TABLE = np.arange(-8, 8, dtype=np.int32)


def segments(words: list[NDArray[Any]], absent: set[int], merge: Merge = Merge.ADD) -> list[Segment]:
    """One segment of each worker, with room for who contributed; units of one packet."""
    size, lanes = words[0].size, 8 if merge is Merge.TABLE_ADD else 1
    packets = -(-size // FRAME.elements)
    return [
        segment(
            own[:0] if rank in absent else own,
            merge,
            result=np.full(lanes * size, 77, np.int32),
            absent_words=size if rank in absent else 0,
            members=all_members(packets, len(words)),
            holders=np.zeros(packets, np.uint32),
            table=TABLE if merge is Merge.TABLE_ADD else None,
        )
        for rank, own in enumerate(words)
    ]


def integers(workers: int, size: int) -> list[NDArray[np.int32]]:
    return [np.arange(size, dtype=np.int32) + 1000 * (rank + 1) for rank in range(workers)]


@pytest.mark.parametrize("absent", [set(), {0}, {0, 1, 3}, {0, 1, 2, 3}])
def test_the_time_and_bytes_of_one_packet(engine: Make, absent: set[int]) -> None:
    """All start at once: the slot waits for the longest packet. The result of nobody is a header."""
    network = star_of(4)
    sim = engine(network)
    number = sim.add_job(job(network, slots=1))
    own = segments(integers(4, 3), absent)
    start(sim, number, [[one] for one in own])
    finished = {done.time_ps for done in run(sim, 4)}

    nobody = len(absent) == 4
    assert finished == {2 * (D + (HEADER_PS if nobody else X))}
    present = 4 - len(absent)
    words = 16 * (present + (0 if nobody else 4))
    assert links_total(sim, "sent_bytes") == 8 * HEADER + words
    total = sum(one for rank, one in enumerate(integers(4, 3)) if rank not in absent)
    for one in own:
        assert np.array_equal(one.result, np.zeros(3, np.int32) if nobody else total)
        assert one.members is not None
        bitmap = sum(1 << rank for rank in range(4) if rank not in absent)
        assert one.members.tolist() == [[present, bitmap]]


@pytest.mark.parametrize("merge", ALL_MERGES)
@pytest.mark.parametrize("program", ["switchml", "tree", "timed"])
def test_old_words_of_a_slot_do_not_show(engine: Make, program: str, merge: Merge) -> None:
    """One slot, used again and again: by all, by one that comes last, by nobody, by all."""
    network = star_of(3)
    lanes = 8 if merge is Merge.TABLE_ADD else 1
    timer = {"slot_timer_ps": 10**9} if program == "timed" else {}
    sim = engine(network)
    number = sim.add_job(job(network, slots=1, program=runnable()[program], lanes=lanes, **timer))
    words = [np.array([rank + 1, 7, 3, 5], np.uint32).view(merge.dtypes[0]) for rank in range(3)]
    for absent in (set(), {0, 1}, {0, 1, 2}, {1, 2}, set()):
        own = segments(words, absent, merge)
        if program != "timed":
            own = [replace(one, holders=None) for one in own]
        start(sim, number, [[one] for one in own])
        run(sim, 3)
        present = [rank for rank in range(3) if rank not in absent]
        results = {one.result.tobytes() for one in own}
        assert len(results) == 1
        if not present:
            word = -(2**31) if merge is Merge.MAX else 0
            assert own[0].result.tolist() == [word] * (4 * lanes)
        elif len(present) == 1:
            alone = words[present[0]]
            codes = [code >> 4 * lane & 15 for code in alone.view(np.uint32).tolist() for lane in range(8)]
            right = TABLE[codes] if merge is Merge.TABLE_ADD else alone.view(np.int32)
            assert own[0].result.tolist() == right.tolist()
        assert own[0].members is not None
        assert own[0].members.tolist() == [[len(present), sum(1 << rank for rank in present)]]


def test_a_rack_of_absent_workers_sends_a_header_up(engine: Make) -> None:
    """Two racks of two on a tree: the partial of the second is a header, results go down whole."""
    network = compile_network(leaf_spine(2, 1, 2, LINK, LINK))
    hosts = tuple(int(node) for node in np.flatnonzero(network.is_host))
    root, left, right = tree_of(network, hosts)
    below = (Branch(left, 0), Branch(right, 0))
    for program, absent in ((None, {2, 3}), (TREE, {2, 3}), (None, {0, 1, 2, 3})):
        sim = engine(network)
        change = {} if program is None else {"program": program}
        number = sim.add_job(
            job(network, 1, switch=root, hosts=hosts, branches=below, homes=(1, 1, 2, 2), **change)
        )
        own = [replace(one, holders=None) for one in segments(integers(4, 4), absent)]
        start(sim, number, [[one] for one in own])
        run(sim, 4)
        words = 0 if len(absent) == 4 else 16 * (2 + 1 + 2 + 4)
        assert links_total(sim, "sent_bytes") == HEADER * (4 + 2 + 2 + 4) + words
        bitmap = sum(1 << rank for rank in range(4) if rank not in absent)
        for one in own:
            assert one.members is not None
            assert one.members.tolist() == [[4 - len(absent), bitmap]]


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("absent", [{1}, {3}, {0, 1}, {2, 3}, {0, 2, 3}, {0, 1, 2, 3}])
def test_lifted_results_weigh_as_lanes_whatever_completes_them(
    engine: Make, bits: int, absent: set[int]
) -> None:
    """Codes, and headers of those who are absent, go up to the leaf; lanes from there on.

    The last worker of each rack comes late, so that in some cases a header completes a slot of words.
    """
    network = compile_network(leaf_spine(2, 1, 2, LINK, LINK))
    hosts = tuple(int(node) for node in np.flatnonzero(network.is_host))
    root, left, right = tree_of(network, hosts)
    tree: Any = {"branches": (Branch(left, 0), Branch(right, 0)), "homes": (1, 1, 2, 2)}
    sim = engine(network)
    number = sim.add_job(job(network, 1, switch=root, hosts=hosts, lanes=bits // 4, **tree))
    table = np.arange(16, dtype=np.int32) * 16 - 120  # sums of four leave 8 bits
    words = [np.full(3, 0x76543210 + 0x01010101 * rank, np.uint32) for rank in range(4)]
    own = [
        segment(
            one[:0] if rank in absent else one,
            Merge.TABLE_ADD,
            result=np.full(3 * bits // 4, 77, np.int32),
            absent_words=3 if rank in absent else 0,
            members=all_members(1, 4),
            table=table,
            lane_bits=bits,
        )
        for rank, one in enumerate(words)
    ]
    for rank in (0, 2):
        sim.open_stream(number, rank, [own[rank]])
    sim.run(10 * X)
    for rank in (1, 3):
        sim.open_stream(number, rank, [own[rank]])
    run(sim, 4)

    present = [rank for rank in range(4) if rank not in absent]
    sums = [sum(int(table[int(words[rank][0]) >> 4 * lane & 15]) for rank in present) for lane in range(8)]
    half = 2 ** (bits - 1)
    lanes = [(total + half) % (2 * half) - half for total in sums]
    found = {8: np.int8, 16: np.int16, 32: np.int32}[bits]
    racks = sum(not {2 * rack, 2 * rack + 1} <= absent for rack in (0, 1))
    carrying = racks + (2 + 4 if present else 0)  # partials, and results at either level
    assert links_total(sim, "sent_bytes") == HEADER * 12 + 16 * len(present) + 4 * bits * carrying
    for one in own:
        assert one.result.view(found).tolist() == 3 * lanes
        assert one.members is not None
        assert one.members.tolist() == [[len(present), sum(1 << rank for rank in present)]]


@examples(60)
@given(data=st.data())
def test_narrow_lanes_of_those_who_are_there(data: st.DataObject) -> None:
    """Under any program, in units of several packets, again and again: each lane's sum, modulo its width."""
    program = data.draw(st.sampled_from(["switchml", "tree", "timed"]))
    workers, bits = data.draw(st.integers(1, 5)), data.draw(st.sampled_from([4, 8, 16, 32]))
    merge = Merge.ADD if bits == 4 else data.draw(st.sampled_from([Merge.ADD, Merge.TABLE_ADD]))
    width = words_per_word(merge, bits)
    network = star_of(workers)
    units = 1 if program == "timed" else data.draw(st.sampled_from([1, 2]))
    changes: dict[str, Any] = {"slot_timer_ps": 10**9} if program == "timed" else {}
    sim = compiled(network)
    number = sim.add_job(
        job(network, 2 * units, unit_packets=units, program=runnable()[program], lanes=width, **changes)
    )
    table = np.arange(-8, 8, dtype=np.int32) << bits - 4  # from one end of a lane to the other
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    for _ in range(data.draw(st.integers(1, 3))):
        size = data.draw(st.integers(1, 40))
        absent = data.draw(st.sets(st.integers(0, workers - 1)) | st.just(set(range(workers))))
        words = random.integers(0, 2**32, (workers, size), dtype=np.uint32).view(merge.dtypes[0])
        packets = -(-size // (units * FRAME.elements)) * units
        own = [
            segment(
                words[rank][:0] if rank in absent else words[rank],
                merge,
                result=np.full(width * size, 77, np.int32),
                absent_words=size if rank in absent else 0,
                members=all_members(packets, workers),
                holders=np.zeros(packets, np.uint32) if program == "timed" else None,
                table=table if merge is Merge.TABLE_ADD else None,
                lane_bits=bits,
            )
            for rank in range(workers)
        ]
        start(sim, number, [[one] for one in own])
        run(sim, workers)

        present = [rank for rank in range(workers) if rank not in absent]
        right = lanes_sum([words[rank].tolist() for rank in present], merge, table.tolist(), bits)
        members = [[len(present), sum(1 << rank for rank in present)]] * -(-size // FRAME.elements)
        for one in own:
            assert one.result.tolist() == (right if present else [0] * (width * size))
            assert one.members is not None
            assert one.members[: len(members)].tolist() == members


def lanes_sum(rows: list[list[int]], merge: Merge, table: list[int], bits: int) -> list[int]:
    """The sum of some workers' words in plain Python; lanes of 4 bits are added as words."""
    if merge is Merge.TABLE_ADD:
        rows = [lifted(row, table, bits) for row in rows]
    wide = 32 if bits == 4 else bits
    lanes = [[lane for word in row for lane in lanes_of(word, wide)] for row in rows]
    sums = [signed(sum(column), wide) for column in zip(*lanes, strict=True)]
    count = 32 // wide
    return [packed(sums[first : first + count], wide) for first in range(0, len(sums), count)]


def tree_of(network: Any, hosts: tuple[int, ...]) -> tuple[int, int, int]:
    """Root, and the leaf of the first and of the last host."""
    leaf = [int(network.link_target[host]) for host in (hosts[0], hosts[-1])]
    others = [node for node in range(len(network.nodes)) if not network.is_host[node] and node not in leaf]
    return others[0], leaf[0], leaf[1]


@pytest.mark.parametrize("workers", [32, 34])
def test_who_is_named_up_to_32_workers(engine: Make, workers: int) -> None:
    network = compile_network(leaf_spine(2, 1, workers // 2, LINK, LINK))
    hosts = tuple(int(node) for node in np.flatnonzero(network.is_host))
    root, left, right = tree_of(network, hosts)
    homes = tuple(1 + rank // (workers // 2) for rank in range(workers))
    below = (Branch(left, 0), Branch(right, 0))
    sim = engine(network)
    number = sim.add_job(job(network, 1, switch=root, hosts=hosts, branches=below, homes=homes))
    own = [replace(one, holders=None) for one in segments(integers(workers, 4), {0, 5})]
    start(sim, number, [[one] for one in own])
    run(sim, workers)

    bitmap = 2**32 - 1 - 0b100001 if workers == 32 else 0
    for one in own:
        assert one.members is not None
        assert one.members.tolist() == [[workers - 2, bitmap]]


def test_a_worker_whose_header_is_late_is_no_holder_either_way() -> None:
    """TIMED: the row answers without it, and later tells it the same."""
    network = star_of(3)
    sim = compiled(network)
    number = sim.add_job(job(network, slots=1, program=TIMED, slot_timer_ps=50_000_000))
    own = segments(integers(3, 4), {2})
    for rank in (0, 1):
        sim.open_stream(number, rank, [own[rank]])
    run(sim, 2)
    sim.open_stream(number, 2, [own[2]])
    run(sim, 1)

    for one in own:
        assert one.holders is not None
        assert one.members is not None
        assert (one.holders.tolist(), one.members.tolist()) == ([0b11], [[2, 0b11]])
    assert sim.switch_counters(number)["timed_out"] == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"absent_words": 8}, "another worker 4 words by ADD"),
        ({"words": np.zeros(4, np.int32)}, "an absent worker has no words, found 4"),
        ({"members": np.zeros((2, 2), np.uint32)}, r"members must be uint32 of shape \(1, 2\)"),
        ({"members": np.zeros((1, 2), np.int32)}, r"members must be uint32 of shape \(1, 2\)"),
        ({"result": np.zeros(3, np.int32)}, "expected 4 words, found 3"),
    ],
)
def test_segments_that_contradict_each_other_are_refused(change: dict[str, Any], words: str) -> None:
    network = star_of(2)
    sim = compiled(network)
    number = sim.add_job(job(network, slots=1))
    first, second = (replace(one, holders=None) for one in segments(integers(2, 4), {1}))
    if change.get("absent_words"):
        change = {**change, "result": np.zeros(8, np.int32), "members": None}
    sim.open_stream(number, 0, [first])

    with pytest.raises(ValueError, match=words):
        sim.open_stream(number, 1, [replace(second, **change)])
    sim.open_stream(number, 1, [second])


def test_atp_refuses() -> None:
    network = star_of(3)
    sim = compiled(network)
    number = sim.add_job(atp_job(network, window=1))
    _, absent = segments(integers(2, 4), {1})

    with pytest.raises(ValueError, match="atp cannot carry the header of an absent worker"):
        sim.open_stream(number, 1, [replace(absent, holders=None, members=None)])
