"""Merged lanes against the words sent: each lane by itself, just inside and just outside of its limits."""

from __future__ import annotations

import random as rnd
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netfold.homomorphic.bounds import PART_ELEMENTS
from netfold.homomorphic.codec import Decoded
from netfold.homomorphic.codecs.dense.kinds import Uncompressed
from netfold.homomorphic.message import Holders, Merge, Merged, Message
from netfold.sim.checks.rounds import Findings, Operation, examine
from netfold.sim.engine.interface import Overflow
from tests.reference.codecs.sums import right_merge

TYPES: dict[int, type[np.signedinteger[Any]]] = {8: np.int8, 16: np.int16, 32: np.int32}


def examined(
    sent: Sequence[Message], received: Sequence[Merged], overflow: Overflow = Overflow.WRAP
) -> Findings:
    """Findings on a round of one message; no decoded sum is wrong."""
    zeros = [np.zeros(1, np.float32)] * len(sent)
    operation = Operation(
        {rank: (one,) for rank, one in enumerate(sent)},
        {rank: (one,) for rank, one in enumerate(received)},
        7,
    )
    decoded = [Decoded(zero, zero) for zero in zeros]
    return examine(Uncompressed(), zeros, decoded, [operation], overflow=overflow)


def of_words(merge: Merge, lane_bits: int, workers: int, size: int) -> list[Message]:
    """Random words of every worker."""
    random = np.random.default_rng(lane_bits)
    half = 2 ** (lane_bits - 1)
    table = random.integers(-half, half, 16).astype(np.int32) if merge is Merge.TABLE_ADD else None
    dtype = np.int32 if table is None else np.uint32
    columns = [random.integers(0, 2**32, size, np.uint32).view(dtype) for _ in range(workers)]
    return [Message(words, merge, "sums", table=table, lane_bits=lane_bits) for words in columns]


def of_lanes(lane_bits: int, *columns: Sequence[int]) -> list[Message]:
    """One message per worker, with these lanes."""
    arrays = [np.array(lanes, TYPES[lane_bits]).view(np.int32) for lanes in columns]
    return [Message(words, Merge.ADD, "sums", lane_bits=lane_bits) for words in arrays]


def result(lane_bits: int, lanes: Sequence[int], workers: int) -> Merged:
    return Merged(np.array(lanes, TYPES[lane_bits]).view(np.int32), workers)


@pytest.mark.parametrize("size", [1, PART_ELEMENTS + 1])
@pytest.mark.parametrize(
    ("merge", "lane_bits"),
    [(Merge.ADD, 4), (Merge.ADD, 8), (Merge.ADD, 16), (Merge.TABLE_ADD, 8), (Merge.TABLE_ADD, 16)],
)
def test_one_bit_of_a_lane_is_seen_and_named(merge: Merge, lane_bits: int, size: int) -> None:
    sent = of_words(merge, lane_bits, 5, size)
    words = np.array(right_merge(sent).words, np.int32)
    right = Merged(words, 5)
    assert examined(sent, [right] * 5).wrong_words == 0
    assert examined(sent, [right] * 5).merges_verified()

    bits = 32 if lane_bits == 4 else lane_bits  # counters are compared as words
    for word, bit in ((0, 0), (words.size - 1, 31), (words.size // 2, 17)):
        wrong = words.copy()
        wrong.view(np.uint32)[word] ^= np.uint32(1 << bit)
        found = examined(sent, [right, Merged(wrong, 5), right, right, right])

        assert (found.wrong_words, found.merges_verified()) == (1, False)
        first = found.first_wrong
        assert first is not None
        lane = None if bits == 32 else bit // bits
        assert (first.worker, first.word, first.lane) == (1, word, lane)
        place = word * (32 // bits) + (lane or 0)
        lanes = (wrong.view(TYPES[bits])[place], words.view(TYPES[bits])[place])
        assert (first.received, first.right) == lanes
        named = f"word {word}" if lane is None else f"lane {lane} of word {word}"
        assert str(first).startswith(
            f"worker 1, {named} of 'sums' (received {lanes[0]}, the sum is {lanes[1]})"
        )


@pytest.mark.parametrize("lane_bits", [8, 16])
def test_a_carry_from_lane_to_lane_is_wrong(lane_bits: int) -> None:
    """What adders of 32 bits would make of the lanes."""
    count = 32 // lane_bits
    sent = of_lanes(lane_bits, [-1] * count, [1] + [0] * (count - 1))
    carried = sum(message.words.astype(np.int64) for message in sent).astype(np.int32)

    right = result(lane_bits, [0] + [-1] * (count - 1), 2)
    assert examined(sent, [right] * 2).wrong_words == 0
    assert carried.tolist() == [0]
    assert examined(sent, [Merged(carried, 2)] * 2).wrong_words == 2 * (count - 1)


@pytest.mark.parametrize("lane_bits", [8, 16])
@pytest.mark.parametrize("overflow", Overflow)
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_lane_may_be_clipped_where_its_sum_leaves_it(
    lane_bits: int, overflow: Overflow, beyond: int
) -> None:
    """127 is never 126; 128 is 127 in adders that do not wrap, and −128 in those that do."""
    most = 2 ** (lane_bits - 1) - 1
    rest = [0] * (32 // lane_bits - 1)
    sent = of_lanes(lane_bits, [most, *rest], [beyond, *rest])

    def found(lane: int) -> tuple[int, int]:
        findings = examined(sent, [result(lane_bits, [lane, *rest], 2)] * 2, overflow)
        return findings.wrong_words, findings.clipped_words

    if not beyond:
        assert (found(most), found(-most - 1)) == ((0, 0), (2, 0))
        # sticky adders may have stuck at the limit, from which no word moves them
        assert found(most - 1) == (2, 0)
    elif overflow is Overflow.WRAP:
        assert (found(-most - 1), found(most)) == ((0, 0), (2, 0))
    else:
        assert (found(most), found(most - 1)) == ((0, 2), (2, 0))


@pytest.mark.parametrize("lane_bits", [8, 16, 32])
def test_a_lane_may_stick_one_above_its_smallest(lane_bits: int) -> None:
    """Adders stick at −127 already, so that −127 − 1 may stay −127; one more is wrong."""
    most, rest = 2 ** (lane_bits - 1) - 1, [0] * (32 // lane_bits - 1)
    sent = of_lanes(lane_bits, [-most, *rest], [-1, *rest])
    for lane, overflow, counts in (
        (-most, Overflow.STICKY, (0, 2)),
        (-most + 1, Overflow.STICKY, (2, 0)),
        (-most - 1, Overflow.STICKY, (0, 0)),
        (-most, Overflow.SATURATE, (2, 0)),
    ):
        found = examined(sent, [result(lane_bits, [lane, *rest], 2)] * 2, overflow)
        assert (found.wrong_words, found.clipped_words) == counts


def clipped(lanes: list[int], most: int, picks: rnd.Random, sticks: bool) -> int:
    """Registers of a lane's width that saturate, in some order and tree; or that stick, one by one."""

    def clip(lane: int) -> int:
        return max(-most - 1, min(most, lane))

    sums = list(lanes)
    if sticks:
        picks.shuffle(sums)
        total = sums[0]
        for lane in sums[1:]:
            total = total if abs(total) >= most else clip(total + lane)
        return total
    while len(sums) > 1:
        one, other = (sums.pop(picks.randrange(len(sums))) for _ in range(2))
        sums.append(clip(one + other))
    return sums[0]


@given(
    lane_bits=st.sampled_from([8, 16, 32]),
    workers=st.integers(1, 5),
    overflow=st.sampled_from([Overflow.SATURATE, Overflow.STICKY]),
    data=st.data(),
)
def test_lanes_of_adders_that_do_not_wrap_are_never_wrong(
    lane_bits: int, workers: int, overflow: Overflow, data: st.DataObject
) -> None:
    most, count = 2 ** (lane_bits - 1) - 1, 32 // lane_bits
    ends = [most, most - 1, -most, -most - 1, most // 2 + 1, -most // 2, 0, 1, -1]
    lanes = st.one_of(st.integers(-most - 1, most), st.sampled_from(ends))
    columns = [data.draw(st.lists(lanes, min_size=count, max_size=count)) for _ in range(workers)]
    picks = rnd.Random(data.draw(st.integers(0, 2**32)))
    sums = [
        clipped(list(own), most, picks, overflow is Overflow.STICKY) for own in zip(*columns, strict=True)
    ]
    sent = of_lanes(lane_bits, *columns)

    found = examined(sent, [result(lane_bits, sums, workers)] * workers, overflow)

    assert found.wrong_words == 0
    differing = sum(total != sum(own) for total, own in zip(sums, zip(*columns, strict=True), strict=True))
    assert found.clipped_words <= workers * differing


def test_lanes_that_hold_some_workers_are_their_sum() -> None:
    """Two words a unit: in the first of workers 0 and 2, in the second of worker 1."""
    sent = of_lanes(8, [1] * 16, [10] * 16, [100] * 16)
    lanes: NDArray[np.int8] = np.array([101] * 8 + [10] * 8, np.int8)
    one = Merged(lanes.view(np.int32), 3, holders=Holders(np.array([0b101, 0b010], np.uint32), 2))
    assert examined(sent, [one] * 3).wrong_words == 0
    wrong = lanes.copy()
    wrong[9] = 11
    found = examined(sent, [replace(one, words=wrong.view(np.int32))] * 3)
    assert (found.wrong_words, found.first_wrong and found.first_wrong.lane) == (3, 1)


def test_lanes_that_are_missing_are_all_wrong() -> None:
    sent = of_words(Merge.TABLE_ADD, 8, 2, 10)
    words = np.array(right_merge(sent).words, np.int32)
    assert words.size == 20
    assert examined(sent, [Merged(words, 2), Merged(words[:19], 2)]).wrong_words == 20
