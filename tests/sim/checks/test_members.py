"""Absent workers have no words; results that claim other contributors than those who sent some are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.merge import merged_message
from netfold.homomorphic.message import EXPONENT_MIN, Holders, Merge, Merged, Message, Scaling
from netfold.sim.checks.rounds.merges.words import check_message
from netfold.sim.checks.rounds.results import MessagePlace, Tallies
from netfold.sim.engine.interface import Overflow
from tests.reference.codecs.sums import right_merge

PLACE = MessagePlace(operation=0, part=0, label="values")
SIZE, WORKERS = 5, 4
MERGES = [Merge.ADD, Merge.OR, Merge.MAX, Merge.FLOAT_ADD, Merge.TABLE_ADD, Merge.SIGN]
TABLE = np.arange(-8, 8, dtype=np.int32)


def sent(merge: Merge, absent: set[int], workers: int = WORKERS) -> list[Message]:
    random = np.random.default_rng(1)
    messages = []
    for rank in range(workers):
        words: Any = random.integers(0, 2**31, SIZE, dtype=np.uint32).astype(merge.dtypes[0])
        size = SIZE if rank in absent else 0
        table = TABLE if merge is Merge.TABLE_ADD else None
        kept = words[:0] if size else words
        messages.append(Message(kept, merge, "values", table=table, absent_words=size))
    return messages


def found(messages: list[Message], received: list[Merged], overflow: Overflow = Overflow.WRAP) -> Tallies:
    tallies = Tallies()
    check_message(PLACE, messages, received, overflow, tallies)
    return tallies


def wrong(tallies: Tallies) -> int:
    return tallies.wrong.count + tallies.wrong_floats.count


def wrong_words(messages: list[Message], words: Sequence[int]) -> int:
    """Wrong words over all workers, all of which receive these."""
    present = np.array([not one.is_absent for one in messages])
    merged = Merged(np.array(words, messages[0].words.dtype), int(present.sum()), present=present)
    return wrong(found(messages, [merged] * len(messages)))


@pytest.mark.parametrize("absent", [set(), {1}, {0, 2, 3}, {0, 1, 2, 3}])
@pytest.mark.parametrize("merge", MERGES)
def test_right_results_of_those_who_are_there(merge: Merge, absent: set[int]) -> None:
    messages = sent(merge, absent)
    right = merged_message(messages)

    for overflow in Overflow:
        if overflow is Overflow.WRAP or merge not in (Merge.ADD, Merge.TABLE_ADD):
            assert wrong(found(messages, [right] * WORKERS, overflow)) == 0


@pytest.mark.parametrize("merge", MERGES)
def test_a_missing_worker_is_noticed_although_another_is_absent(merge: Merge) -> None:
    """Worker 3 has words, and is left out; whether the result admits that or not."""
    messages = sent(merge, {1})
    fewer = merged_message(sent(merge, {1, 3}))
    claiming = replace(fewer, workers=3, present=np.array([True, False, True, True]))

    assert wrong(found(messages, [fewer] * WORKERS)) > 0
    if merge is not Merge.SIGN:  # where nothing but the claim tells
        assert wrong(found(messages, [claiming] * WORKERS)) > 0


CLAIMS = {
    "too few": ({"workers": 2}, "it claims 2 contributors, 3 sent words"),
    "too many": ({"workers": 4, "present": None}, "it claims 4 contributors, 3 sent words"),
    "others": (
        {"present": np.array([True, True, True, False])},
        "it claims words of workers 0, 1, 2; they were sent by workers 0, 2, 3",
    ),
    "unnamed": ({"present": None}, "it does not say who contributed"),
    "mixed": ({"is_mixed": True}, "parts of it claim different contributors"),
}


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("merge", MERGES)
def test_wrong_claims(merge: Merge, claim: str) -> None:
    """At one worker of four: all its words count as wrong."""
    messages = sent(merge, {1})
    right = merged_message(messages)
    changes, words = CLAIMS[claim]
    tallies = found(messages, [right, right, replace(right, **changes), right])

    assert wrong(tallies) == right.words.size
    tally = tallies.wrong_floats if merge is Merge.FLOAT_ADD else tallies.wrong
    assert tally.first is not None
    assert str(tally.first).startswith(f"worker 2, word 0 of 'values' ({words})")


def test_wrong_words_are_not_counted_again() -> None:
    messages = sent(Merge.ADD, {1})
    right = merged_message(messages)
    words = right.words.copy()
    words[3] ^= 4
    damaged = replace(right, words=words, workers=2)

    assert found(messages, [damaged] + [right] * 3).wrong.count == 1


def test_bits_are_named_only_where_they_have_room() -> None:
    """Of 32 workers a result says who; of 33 only how many."""
    for workers, count in ((32, 32 * SIZE), (33, 0)):
        messages = sent(Merge.ADD, {1}, workers)
        unnamed = replace(merged_message(messages), present=None)
        assert found(messages, [unnamed] * workers).wrong.count == count


@pytest.mark.parametrize(
    ("merge", "dtype", "right"),
    [
        (Merge.ADD, np.int32, [-3, -7]),
        (Merge.MAX, np.int32, [-1, -3]),  # an absent worker has no zero
        (Merge.OR, np.uint32, [7, 5]),
        (Merge.FLOAT_ADD, np.float32, [-3, -7]),
    ],
)
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_absent_workers_have_no_words(
    merge: Merge, dtype: type[np.generic], right: list[int], missing: int
) -> None:
    """Two of three workers send; one word more than their sum is wrong at each worker."""
    rows = [[6, 5], [3, 4]] if merge is Merge.OR else [[-1, -3], [-2, -4]]
    messages = [Message(np.array(row, dtype), merge, "values") for row in rows]
    messages.insert(missing, Message(np.empty(0, dtype), merge, "values", absent_words=2))

    assert wrong_words(messages, right) == 0
    assert wrong_words(messages, [right[0], right[1] + 1]) == 3


@pytest.mark.parametrize(("words", "count"), [([], 4), ([0, 0], 0), ([0, 1], 2), ([0, 0, 0], 6)])
@pytest.mark.parametrize(
    ("merge", "dtype", "least"),
    [
        (Merge.ADD, np.int32, 0),
        (Merge.OR, np.uint32, 0),
        (Merge.SIGN, np.uint32, 0),
        (Merge.FLOAT_ADD, np.float32, 0),
        (Merge.MAX, np.int32, -(2**31)),
    ],
)
def test_words_of_nobody_change_no_others(
    merge: Merge, dtype: type[np.generic], least: int, words: list[int], count: int
) -> None:
    """Zeros, or the smallest of all: as many as the others' would be, at each of two workers."""
    messages = [Message(np.empty(0, dtype), merge, "values", absent_words=2)] * 2
    assert wrong_words(messages, [least + word for word in words]) == count


def test_float_sums_have_no_addition_for_absent_workers() -> None:
    """One worker's words arrive as they are."""
    messages = [
        Message(np.array([1.0], np.float32)[rank:], Merge.FLOAT_ADD, "values", absent_words=min(rank, 1))
        for rank in range(3)
    ]
    near = Merged(np.nextafter(messages[0].words, np.float32(2)), 1, present=np.arange(3) == 0)
    tallies = found(messages, [near] * 3)
    assert (tallies.float_words, tallies.wrong_floats.count) == (3, 3)


def test_holders_are_some_of_those_who_sent_words() -> None:
    """Of slots with timers: fewer may be right, an absent one is wrong."""
    messages = sent(Merge.ADD, {1})
    for bitmap, count in ((0b1001, 0), (0b1011, SIZE)):
        ranks = [rank for rank in range(WORKERS) if bitmap >> rank & 1]
        words = right_merge([messages[rank] for rank in ranks if rank != 1]).words
        merged = Merged(
            np.array(words, np.int32),
            len(ranks),
            holders=Holders(np.array([bitmap], np.uint32), 64),
            present=np.array([bool(bitmap >> rank & 1) for rank in range(WORKERS)]),
        )
        assert found(messages, [merged]).wrong.count == count


@pytest.mark.parametrize("exponent", [EXPONENT_MIN, -127])
def test_exponents_that_nobody_announced(exponent: int) -> None:
    scaling = Scaling(np.zeros(3, np.int8), 2, WORKERS)
    message = Message(np.empty(0, np.float32), Merge.ADD, "values", scaling=scaling, absent_words=SIZE)
    nobody = Merged(
        np.zeros(SIZE, np.int32), 0, np.full(3, exponent, np.int8), present=np.zeros(WORKERS, np.bool_)
    )

    is_right = exponent == EXPONENT_MIN
    assert (found([message] * WORKERS, [nobody] * WORKERS).wrong.count == 0) == is_right
