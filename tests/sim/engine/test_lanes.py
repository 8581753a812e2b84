"""Sums in narrow lanes and of absent workers in both engines: sizes, times, overflows and refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.merge import MERGEABLE, Merge
from netfold.sim.engine.engine_data import Branch, Overflow, Scaled, Segment, all_members
from netfold.switch.program import ProgramSpec, runnable
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.network import compile_network
from tests.sim.engine.small import (
    FABRIC,
    FRAME,
    LINK,
    TWO_LEVELS,
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

TYPES: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16, 32: np.int32}
HEADER_BYTES = 34  # of a packet of 4 words, 50 B


@pytest.mark.parametrize("program", [SWITCHML, TREE, TIMED])
@pytest.mark.parametrize("overflow", Overflow)
@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("beyond", [0, 1])
def test_sums_at_the_end_of_a_lane_and_one_beyond(
    engine: Make, program: ProgramSpec, overflow: Overflow, bits: int, beyond: int
) -> None:
    """127 is counted nowhere, 128 in its lane alone: one of 16 or 8."""
    network = star_of(2)
    sim = engine(network)
    timer = {"slot_timer_ps": 10**9} if program is TIMED else {}
    number = sim.add_job(job(network, 1, program=program, overflow=overflow, **timer))
    most, count = 2 ** (bits - 1) - 1, 128 // bits
    first, second = [1] * count, [-2] * count
    first[2], second[2] = most - 3, 3 + beyond
    words = [np.array(lanes, TYPES[bits]).view(np.int32) for lanes in (first, second)]
    segments = [segment(each, lane_bits=bits, holders=np.zeros(1, np.uint32)) for each in words]

    start(sim, number, [[each] for each in segments])
    run(sim, 2)

    right = [-1] * count
    right[2] = (-most - 1 if overflow is Overflow.WRAP else most) if beyond else most
    for each in segments:
        assert each.result.view(TYPES[bits]).tolist() == right
    assert sim.switch_counters(number)["overflowed_words"] == beyond


@pytest.mark.parametrize(
    ("changes", "of_job", "text"),
    [
        ({"lane_bits": 12}, {}, "add merges lanes of 4, 8, 16 or 32 bits, found 12"),
        ({"lane_bits": 8, "merge": Merge.MAX}, {}, "max merges lanes of 32 bits, found 8"),
        ({"lane_bits": 4}, {"overflow": Overflow.SATURATE}, "lanes of 4 bits need adders that wrap"),
        ({"lane_bits": 4}, {"overflow": Overflow.STICKY}, "lanes of 4 bits need adders that wrap"),
    ],
)
def test_lanes_that_an_engine_does_not_add(
    changes: dict[str, Any], of_job: dict[str, Any], text: str
) -> None:
    network = star_of(2)
    sim = compiled(network)
    number = sim.add_job(job(network, 1, **of_job))
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        sim.open_stream(number, 0, [segment(np.zeros(4, np.int32), **changes)])


def test_tables_and_lanes_belong_to_each_other_and_to_their_job() -> None:
    network = star_of(2)
    sim = compiled(network)
    number = sim.add_job(job(network, 1, lanes=2))

    def send(worker: int, bits: int, table: NDArray[np.int32]) -> None:
        fields = {"result": np.zeros(bits // 4, np.int32), "table": table, "lane_bits": bits}
        sim.open_stream(number, worker, [segment(np.full(1, 7, np.uint32), Merge.TABLE_ADD, **fields)])

    table = np.full(16, 127, np.int32)
    send(0, 8, table)
    told = "TABLE_ADD in lanes of 16 bits gives 4 words for each, the job has 2"
    with pytest.raises(ValueError, match=f"^{told}$"):
        send(1, 16, table)
    told = "a table for lanes of 8 bits has values from -128 to 127, found 127 to 128"
    with pytest.raises(ValueError, match=f"^{told}"):
        send(1, 8, np.arange(113, 129, dtype=np.int32).clip(127))


def test_scaled_words_and_words_with_a_server_have_no_narrow_lanes() -> None:
    bits = 8
    network = star_of(3)
    text = f"^scaled streams and programs with a server add whole words, found {bits}-bit lanes$"
    sim = compiled(network)
    atp = sim.add_job(atp_job(network, 1, overflow=Overflow.WRAP))
    with pytest.raises(ValueError, match=text):
        sim.open_stream(atp, 0, [segment(np.zeros(4, np.int32), lane_bits=bits)])
    sim = compiled(network)
    number = sim.add_job(job(network, 1))
    scaled = Scaled(np.zeros(1, np.int8), np.zeros(1, np.int8))
    with pytest.raises(ValueError, match=text):
        sim.open_stream(number, 0, [segment(np.zeros(4, np.float32), lane_bits=bits)], scaled)


HEADER_PS = 272_000  # on LINK
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
    assert links_total(sim, "sent_bytes") == 8 * HEADER_BYTES + words
    total = sum(one for rank, one in enumerate(integers(4, 3)) if rank not in absent)
    for one in own:
        assert np.array_equal(one.result, np.zeros(3, np.int32) if nobody else total)
        assert one.members is not None
        bitmap = sum(1 << rank for rank in range(4) if rank not in absent)
        assert one.members.tolist() == [[present, bitmap]]


@pytest.mark.parametrize("merge", [merge for merge in Merge if merge in MERGEABLE])
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


@pytest.mark.parametrize("program", [SWITCHML, TREE])
@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("absent", [set(), {1}, {2, 3}, {0, 2, 3}, {0, 1, 2, 3}], ids=str)
def test_lifted_results_weigh_as_lanes_whatever_completes_them(
    engine: Make, program: ProgramSpec, bits: int, absent: set[int]
) -> None:
    """Codes, and headers of those who are absent, go up to the leaf; lanes from there on.

    The last worker of each rack comes late, so that in some cases a header completes a slot of words.
    """
    sim = engine(FABRIC)
    number = sim.add_job(job(FABRIC, 1, program=program, lanes=bits // 4, **TWO_LEVELS))
    table = np.arange(16, dtype=np.int32) * 16 - 120  # sums of four leave 8 bits
    words = [0x76543210 + 0x01010101 * rank for rank in range(4)]
    own = [
        segment(
            np.full(0 if rank in absent else 3, word, np.uint32),
            Merge.TABLE_ADD,
            result=np.full(3 * bits // 4, 77, np.int32),
            absent_words=3 if rank in absent else 0,
            members=all_members(1, 4),
            table=table,
            lane_bits=bits,
        )
        for rank, word in enumerate(words)
    ]
    for rank in (0, 2):
        sim.open_stream(number, rank, [own[rank]])
    sim.run(10 * X)
    for rank in (1, 3):
        sim.open_stream(number, rank, [own[rank]])
    done = run(sim, 4)

    present = [rank for rank in range(4) if rank not in absent]
    sums = [sum(int(table[words[rank] >> 4 * lane & 15]) for rank in present) for lane in range(8)]
    half = 2 ** (bits - 1)
    lanes = [(total + half) % (2 * half) - half for total in sums]
    racks = sum(not {2 * rack, 2 * rack + 1} <= absent for rack in (0, 1))
    carrying = racks + (2 + 4 if present else 0)  # partials, and results at either level
    assert links_total(sim, "sent_bytes") == HEADER_BYTES * 12 + 16 * len(present) + 4 * bits * carrying
    for one in own:
        assert one.result.view(TYPES[bits]).tolist() == 3 * lanes
        assert one.members is not None
        assert one.members.tolist() == [[len(present), sum(1 << rank for rank in present)]]
    if not absent:
        assert {one.time_ps for one in done} == {11 * X + 3 * 8000 * (HEADER_BYTES + 4 * bits) + 4 * D}


@pytest.mark.parametrize("workers", [32, 34])
def test_who_is_named_up_to_32_workers(engine: Make, workers: int) -> None:
    network = compile_network(leaf_spine(2, 1, workers // 2, LINK, LINK))
    below = (Branch(workers, 0), Branch(workers + 1, 0))
    homes = tuple(1 + rank // (workers // 2) for rank in range(workers))
    sim = engine(network)
    number = sim.add_job(job(network, 1, switch=workers + 2, branches=below, homes=homes))
    own = [replace(one, holders=None) for one in segments(integers(workers, 4), {0, 5})]
    start(sim, number, [[one] for one in own])
    run(sim, workers)

    bitmap = 2**32 - 1 - 0b100001 if workers == 32 else 0
    for one in own:
        assert one.members is not None
        assert one.members.tolist() == [[workers - 2, bitmap]]


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
