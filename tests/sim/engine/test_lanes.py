"""Sums in narrow lanes in both engines: sizes and times in closed form, overflows just inside and outside."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Branch, Overflow, Scaled, Segment
from netfold.switch.program import ProgramSpec
from netfold.switch.programs.switchml import SWITCHML
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network
from tests.reference.switch.merging import lanes_of, words_per_word
from tests.sim.engine.small import (
    LINK,
    D,
    Make,
    Sim,
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

FABRIC = compile_network(leaf_spine(2, 1, 2, LINK, LINK))  # hosts 0 … 3, leaves 4 and 5, spine 6
TWO_LEVELS: dict[str, Any] = {"switch": 6, "branches": (Branch(4, 0), Branch(5, 0)), "homes": (1, 1, 2, 2)}
TYPES: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16, 32: np.int32}
NARROW = [4, 8, 16]
HEADER_BYTES = 34  # of a packet of 4 words, 50 B


def lanes_segment(lanes: list[int], bits: int, units: int = 1) -> Segment:
    """A segment of these lanes, added; of 4 bits, they are not negative."""
    if bits == 4:
        words = [
            sum(lane << 4 * i for i, lane in enumerate(lanes[k : k + 8])) for k in range(0, len(lanes), 8)
        ]
        own = np.array(words, np.uint32).view(np.int32)
    else:
        own = np.array(lanes, TYPES[bits]).view(np.int32)
    return segment(own, lane_bits=bits, holders=np.zeros(units, np.uint32))


def codes(word: int, bits: int, table: NDArray[np.int32], count: int = 1) -> Segment:
    """A segment of codes, `count` times the same word."""
    result = np.zeros(words_per_word(Merge.TABLE_ADD, bits) * count, np.int32)
    words = np.full(count, word, np.uint32)
    holders = np.zeros(-(-count // 4), np.uint32)
    return segment(words, Merge.TABLE_ADD, result=result, table=table, lane_bits=bits, holders=holders)


def summed(sim: Sim, number: int, own: list[Segment]) -> list[int]:
    """Run one stream per worker; returns when each was done."""
    start(sim, number, [[each] for each in own])
    return [one.time_ps for one in sorted(run(sim, len(own)), key=lambda one: one.worker)]


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
    own = [lanes_segment(first, bits), lanes_segment(second, bits)]

    summed(sim, number, own)

    right = [-1] * count
    right[2] = (-most - 1 if overflow is Overflow.WRAP else most) if beyond else most
    for each in own:
        assert each.result.view(TYPES[bits]).tolist() == right
    assert sim.switch_counters(number)["overflowed_words"] == beyond


@pytest.mark.parametrize("workers", [15, 16])
def test_votes_of_fifteen_workers_and_of_sixteen(engine: Make, workers: int) -> None:
    """All of them use the sign bit of their words, which is no overflow: only a lost vote is one."""
    network = star_of(workers)
    sim = engine(network)
    number = sim.add_job(job(network, 1))
    own = [lanes_segment([1] * 8, 4) for _ in range(workers)]

    summed(sim, number, own)

    assert sim.switch_counters(number)["overflowed_words"] == (0 if workers == 15 else 8)
    assert {int(each.result[0]) for each in own} == {-1 if workers == 15 else 0x11111110}


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_lifted_lanes_make_results_shorter(engine: Make, bits: int) -> None:
    """Codes go up to the leaf; lanes from there on: 2, 4 or 8 words for each, in time and in bytes."""
    sim = engine(FABRIC)
    number = sim.add_job(job(FABRIC, 1, lanes=bits // 4, **TWO_LEVELS))
    table = np.arange(16, dtype=np.int32) * 4 - 30
    own = [codes(0xFEDC3210 + rank, bits, table) for rank in range(4)]

    done = summed(sim, number, own)

    right = [sum(int(table[(0xFEDC3210 + rank >> 4 * lane) & 15]) for rank in range(4)) for lane in range(8)]
    assert all(each.result.view(TYPES[bits]).tolist() == right for each in own)
    size_bytes = HEADER_BYTES + 4 * 4 * bits // 4
    assert set(done) == {X + 3 * size_bytes * 8000 + 4 * D}
    assert links_total(sim, "sent_bytes") == 4 * 50 + (2 + 2 + 4) * size_bytes


@pytest.mark.parametrize("bits", NARROW)
def test_added_lanes_weigh_as_words(engine: Make, bits: int) -> None:
    sim = engine(FABRIC)
    number = sim.add_job(job(FABRIC, 2, **TWO_LEVELS))
    own = [lanes_segment([rank] * (8 * 32 // bits), bits, 2) for rank in range(4)]

    done = summed(sim, number, own)

    assert set(done) == {5 * X + 4 * D}
    assert links_total(sim, "sent_bytes") == 2 * (4 + 2 + 2 + 4) * 50
    total = sum(6 << place for place in range(0, 32, bits))
    assert all({word % 2**32 for word in each.result.tolist()} == {total} for each in own)


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_a_slot_that_answers_early_has_lanes_of_its_width(engine: Make, bits: int) -> None:
    """Worker 1 never comes: what worker 0 sent weighs as lanes do."""
    network = star_of(2)
    sim = engine(network)
    number = sim.add_job(job(network, 1, program=TIMED, slot_timer_ps=5 * X, lanes=bits // 4))
    table = np.arange(16, dtype=np.int32) - 8
    own = codes(0x01234567, bits, table)
    sim.open_stream(number, 0, [own])
    (done,) = run(sim, 1)

    size_bytes = HEADER_BYTES + 4 * 4 * bits // 4
    assert done.time_ps == X + D + 5 * X + size_bytes * 8000 + D
    lanes = [lane for word in own.result.tolist() for lane in lanes_of(word, bits)]
    assert lanes == [-1, -2, -3, -4, -5, -6, -7, -8]


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
    table = np.full(16, 127, np.int32)
    sim.open_stream(number, 0, [codes(7, 8, table)])
    with pytest.raises(
        ValueError, match=r"^TABLE_ADD in lanes of 16 bits gives 4 words for each, the job has 2$"
    ):
        sim.open_stream(number, 1, [codes(7, 16, table)])
    with pytest.raises(
        ValueError, match=r"^a table for lanes of 8 bits has values from -128 to 127, found 127 to 128"
    ):
        sim.open_stream(number, 1, [codes(7, 8, np.arange(113, 129, dtype=np.int32).clip(127))])


def test_workers_whose_lanes_differ_are_refused() -> None:
    network = star_of(2)
    sim = compiled(network)
    number = sim.add_job(job(network, 1))
    words = np.zeros(4, np.int32)
    sim.open_stream(number, 0, [segment(words, lane_bits=8)])
    text = (
        "worker 1 of job 0 streams 4 words by ADD without floats to fall back to, "
        "another worker 4 words by ADD in 8-bit lanes without floats to fall back to"
    )
    with pytest.raises(ValueError, match=f"^{text}$"):
        sim.open_stream(number, 1, [segment(words)])


@pytest.mark.parametrize("bits", NARROW)
def test_scaled_words_and_words_with_a_server_have_no_narrow_lanes(bits: int) -> None:
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
