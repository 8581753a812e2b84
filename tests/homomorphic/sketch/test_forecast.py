"""What a history remembers of the rounds of a bucket, and for how long."""

from __future__ import annotations

import numpy as np
import pytest

from netfold.homomorphic.numbers.formats import AgreedNothing, number_format
from netfold.homomorphic.numbers.maxima import largest_so_far
from netfold.homomorphic.round import Round
from netfold.homomorphic.sketch.forecast import History, Seen, with_margin


def test_a_history_goes_by_what_is_recent_and_of_the_same_length() -> None:
    numbers, history = number_format("float32", 64), History()
    for step, elements, members in [(0, 128, 9), (1, 64, 3), (3, 128, 5), (4, 100, 60)]:
        blocks = -(-elements // 64)
        seen = Seen(np.full(blocks, members, np.int64), AgreedNothing(blocks))
        history.add(Round(step, 0, 2, 7), elements, seen)

    def expected(step: int, elements: int, bucket: int = 0) -> list[int] | None:
        forecast = history.forecast(Round(step, bucket, 2, 7), elements, numbers)
        return None if forecast is None else forecast.members.tolist()

    assert [expected(step, 128) for step in (5, 7, 8, 10, 11)] == [[9, 9], [9, 9], [5, 5], [5, 5], None]
    assert (expected(5, 64), expected(5, 100), expected(5, 127)) == ([3], [60, 60], None)
    assert expected(5, 128, bucket=1) is None


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([[3, 1], [2, 5]], [3, 5]),
        ([[9, 9, 4, 9, 7, 9]], [4, 4, 4, 7, 7, 7]),  # the only neighbour, or the larger of two
        ([[9, 7, 9, 9, 4, 9]], [7, 7, 7, 7, 4, 4]),
        ([[9, 9, 9]], [9, 9, 9]),
    ],
)
def test_blocks_that_were_empty_take_the_larger_of_their_neighbours(
    rounds: list[list[int]], expected: list[int]
) -> None:
    """9 stands for empty; where a round has another number that counts."""
    known = [np.where(np.array(one) == 9, -99, one).astype(np.int32) for one in rounds]

    assert largest_so_far(known, -99).tolist() == [-99 if one == 9 else one for one in expected]


def test_margins_are_a_twentieth_and_three_standard_deviations() -> None:
    assert with_margin(np.array([0, 1, 100, 10_000])).tolist() == [0, 5, 135, 10_800]
