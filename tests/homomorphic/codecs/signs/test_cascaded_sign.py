"""Codec `cascaded_sign` against plain decompression, addition and compression."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.codec import EncodeError
from netfold.homomorphic.codecs.signs.cascaded_sign import CascadedSign
from netfold.homomorphic.fold import fold
from netfold.homomorphic.message import Gradient, Merge
from netfold.homomorphic.round import Round
from netfold.testing import check_round
from tests.examples import examples
from tests.reference.systems import cascaded_sign as twin

# Differences of float32 scales are far from their rounding: no plain tie is decided by it.
VALUES = st.sampled_from([-8.0, -1.0, -0.125, -0.0, 0.0, 0.25, 2.0, 5.0])


@examples(80)
@given(
    st.integers(1, 40).flatmap(
        lambda size: st.lists(st.lists(VALUES, min_size=size, max_size=size), min_size=1, max_size=5)
    )
)
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
