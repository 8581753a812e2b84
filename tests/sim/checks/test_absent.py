"""Merged words of messages that some workers do not contribute to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from netfold.homomorphic.message import Merge, Merged, Message
from netfold.sim.checks.rounds.results import MessagePlace, Tallies
from netfold.sim.checks.rounds.words import check_message
from netfold.sim.engine.interface import Overflow


def wrong(sent: Sequence[Message], words: Sequence[int]) -> int:
    """Wrong words over all workers, all of which receive these."""
    tallies = Tallies()
    merged = Merged(np.array(words, sent[0].words.dtype), len(sent))
    check_message(MessagePlace(0, 0, "values"), sent, [merged] * len(sent), Overflow.WRAP, tallies)
    return tallies.wrong.count + tallies.wrong_floats.count


def absent(merge: Merge, dtype: type[np.generic], words: int) -> Message:
    return Message(np.empty(0, dtype), merge, "values", absent_words=words)


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
    merged = Merged(np.nextafter(one.words, np.float32(2)), 3)

    check_message(MessagePlace(0, 0, "values"), sent, [merged] * 3, Overflow.WRAP, tallies)

    assert (tallies.float_words, tallies.wrong_floats.count) == (3, 3)


@pytest.mark.parametrize(("words", "count"), [([], 0), ([0, 0], 0), ([0, 1], 4), ([0, 0, 0], 6)])
def test_a_message_of_nobody_is_empty_or_zero(words: list[int], count: int) -> None:
    assert wrong([absent(Merge.ADD, np.int32, 2)] * 2, words) == count
