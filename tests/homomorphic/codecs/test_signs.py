"""One bit an element: votes of majority, and signs that are summed in a cascade."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import DecodeError, EncodeError
from netfold.homomorphic.codecs.signs.cascaded_sign import CascadedSign
from netfold.homomorphic.codecs.signs.majority import Majority, MajorityEncoder
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Gradient, Merge, Merged
from netfold.homomorphic.round import Round
from netfold.testing import check_round
from tests.examples import examples
from tests.homomorphic.gradients import rows_of
from tests.reference.systems import signs as twin

VALUES = st.sampled_from([-1e30, -1.0, -1e-45, -0.0, 0.0, 1e-45, 2.5, math.inf, -math.inf])


@examples(50)
@given(rows=rows_of(VALUES, 40, 15))
def test_a_round_by_plain_python(rows: list[list[float]]) -> None:
    workers = len(rows)
    signs = [[1 if value >= 0 else -1 for value in row] for row in rows]
    balance = [sum(column) for column in zip(*signs, strict=True)]
    majority = [0 if not one else math.copysign(workers, one) for one in balance]

    found = check_round(Majority(), [np.array(row, np.float32) for row in rows])

    assert found.decoded[0].tolist() == majority
    assert [one.tolist() for one in found.contributions] == signs
    words = found.messages[0][0][0].words.view(np.uint32)
    votes = [int(words[place // 8]) >> 4 * (place % 8) & 15 for place in range(8 * words.size)]
    assert votes == [int(sign > 0) for sign in signs[0]] + [0] * (8 * words.size - len(signs[0]))


def test_how_many_workers_fit() -> None:
    assert Majority().refusal(15, "wrap") is None
    refusal = Majority().refusal(16, "wrap")
    assert refusal is not None
    assert refusal.reason == "majority has room for 15 workers, found 16"
    for overflow in ("saturate", "sticky"):
        refusal = Majority().refusal(2, overflow)
        assert refusal is not None
        assert "needs adders that wrap: votes are packed in words" in refusal.reason


def test_a_value_that_is_no_number_has_no_sign() -> None:
    with pytest.raises(EncodeError, match=r"gradient\[1\] is nan"):
        check_round(Majority(), [np.array([1, math.nan], np.float32)])


def test_more_votes_than_workers_are_refused() -> None:
    exchange = MajorityEncoder().exchange(np.zeros(9, np.float32), Round(0, 0, 3, 1))
    next(exchange)

    with pytest.raises(DecodeError, match="element 8 has more votes than there are workers, 3"):
        exchange.send((Merged(np.array([0x33333333, 4], np.int32), 3),))


# Differences of float32 scales are far from their rounding: no plain tie is decided by it.
CASCADED_SIGN_VALUES = st.sampled_from([-8.0, -1.0, -0.125, -0.0, 0.0, 0.25, 2.0, 5.0])


@examples(80)
@given(rows_of(CASCADED_SIGN_VALUES, 40, 5))
def test_a_chain_of_merges_by_plain_python(given_rows: list[list[float]]) -> None:
    found = check_round(CascadedSign(), [np.array(row, np.float32) for row in given_rows])

    assert found.decoded[0].tolist() == pytest.approx(twin.chains(given_rows), rel=1e-6, abs=1e-30)
    for row, one in zip(given_rows, found.contributions, strict=True):
        parts = [twin.compressed(row[cut]).values for cut in twin.cuts(len(row), len(given_rows))]
        assert one.tolist() == [value for part in parts for value in part]


@pytest.mark.parametrize(("elements", "parts"), [(6400, 3), (33, 2), (5, 1)])
def test_an_element_costs_one_bit_and_a_part_two_words(elements: int, parts: int) -> None:
    done = check_round(CascadedSign(), [np.ones(elements, np.float32)] * 3)
    assert done.announced_bytes(0) == 4 * -(-elements // 32) + 8 * parts
    assert done.messages[0][0][0].merge is Merge.HOST
    assert CascadedSign().bits_per_element(3) == (1, 1)


def test_equal_scales_of_opposite_signs_give_a_zero_that_is_positive() -> None:
    done = check_round(CascadedSign(), [np.array([2, -2, 2], np.float32), np.array([-2, -2, 2], np.float32)])
    scale = np.float32(8 / 3)  # magnitudes 0, 4 and 4
    assert done.decoded[0].tolist() == [scale, -scale, scale]


def test_feedback_keeps_what_was_not_sent() -> None:
    encoder = CascadedSign(feedback=True).worker(0, 1, 1)
    owed = np.zeros(4)
    for step, values in enumerate(([1.0, -2.0, 0.0, 5.0], [1.0, 1.0, -1.0, -1.0], [0.5, 0.0, 0.0, 8.0])):
        gradient: Gradient = np.array(values, np.float32)
        (done,) = fold([encoder], [gradient], Round(step, 0, 1, 1)).results
        owed = owed + values
        sent = twin.compressed(owed.tolist()).values
        assert done.contribution.tolist() == pytest.approx(sent, rel=1e-6)
        owed = owed - sent
        (held,) = encoder.state().values()
        assert held.tolist() == pytest.approx(owed.tolist(), abs=1e-5)
    assert CascadedSign(feedback=True).state_bytes == 4
    assert CascadedSign().state_bytes == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_values_that_leave_float32_are_refused(value: float) -> None:
    with pytest.raises(EncodeError, match=r"gradient\[1\] is .*: the scales of 2 workers may leave float32"):
        check_round(CascadedSign(), [np.array([1, value], np.float32)] * 2)
