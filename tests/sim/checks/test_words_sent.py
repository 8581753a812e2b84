"""Merged words are held to the words sent: float32 words just inside and outside, and absent workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from netfold.homomorphic.message import Merge, Merged, Message
from netfold.sim.checks.rounds.merges.words import check_message
from netfold.sim.checks.rounds.results import MessagePlace, Tallies
from netfold.sim.engine.interface import Overflow


def wrong(sent: Sequence[Message], words: Sequence[int]) -> int:
    """Wrong words over all workers, all of which receive these."""
    tallies = Tallies()
    present = np.array([not one.is_absent for one in sent])
    merged = Merged(np.array(words, sent[0].words.dtype), int(present.sum()), present=present)
    check_message(MessagePlace(0, 0, "values"), sent, [merged] * len(sent), Overflow.WRAP, tallies)
    return tallies.wrong.count + tallies.wrong_floats.count


def absent(merge: Merge, dtype: type[np.generic], words: int) -> Message:
    return Message(np.empty(0, dtype), merge, "values", absent_words=words)


@pytest.mark.parametrize(
    ("off_by", "is_wrong"), [(-2, True), (-1, False), (0, False), (1, False), (3, True), (2**27, True)]
)
@pytest.mark.parametrize("workers", [[0], [1], [0, 1]])
def test_float_words_just_inside_and_just_outside(off_by: int, is_wrong: bool, workers: list[int]) -> None:
    """1 and 2**-24 are added once: off by (1 + 2**-24) · 2**-24 at most."""
    total = 1 + 2.0**-24
    sent = [Message(np.array([one], np.float32), Merge.FLOAT_ADD, "values") for one in (1, 2.0**-24)]
    words = [total + off_by * 2.0**-24 if worker in workers else 1.0 for worker in range(2)]
    received = [Merged(np.array([word], np.float32), 2) for word in words]
    tallies = Tallies()

    check_message(MessagePlace(0, 0, "values"), sent, received, Overflow.WRAP, tallies)

    assert (tallies.float_words, tallies.wrong_floats.count) == (2, is_wrong * len(workers))
    first = tallies.wrong_floats.first
    assert (first is None) == (not is_wrong)
    if first is not None:
        assert (first.worker, first.word, first.right) == (workers[0], 0, total)


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
    sent = [Message(np.array(row, dtype), merge, "values") for row in rows]
    sent.insert(missing, absent(merge, dtype, 2))

    assert wrong(sent, right) == 0
    assert wrong(sent, [right[0], right[1] + 1]) == 3


def test_float_sums_have_no_addition_for_absent_workers() -> None:
    """One worker's words arrive as they are."""
    one = Message(np.array([1.0], np.float32), Merge.FLOAT_ADD, "values")
    sent = [one, absent(Merge.FLOAT_ADD, np.float32, 1), absent(Merge.FLOAT_ADD, np.float32, 1)]
    tallies = Tallies()
    merged = Merged(np.nextafter(one.words, np.float32(2)), 1, present=np.array([True, False, False]))

    check_message(MessagePlace(0, 0, "values"), sent, [merged] * 3, Overflow.WRAP, tallies)

    assert (tallies.float_words, tallies.wrong_floats.count) == (3, 3)


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
    assert wrong([absent(merge, dtype, 2)] * 2, [least + word for word in words]) == count
