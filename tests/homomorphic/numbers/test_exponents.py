"""Block floating point: agreement with the released client where that is defined, and its corners."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from netfold.homomorphic.codec import EncodeError
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.numbers.compact import all_of
from netfold.homomorphic.numbers.exponents import (
    announced_exponents,
    block_exponents,
    largest_exponent,
    quantize_block,
    scale_of,
    smallest_exponent,
)
from tests.reference.codecs.codecs import quantise_exactly

BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(value=finite, log2_workers=st.integers(0, 5))
def test_integers_are_the_exact_product_rounded_half_to_even(value: float, log2_workers: int) -> None:
    """With 2^k workers the scale is a power of two as well, so the float32 product is exact (or tiny)."""
    workers = 1 << log2_workers
    x = np.array([value], np.float32)
    if abs(value) >= 2.0 ** largest_exponent(workers):
        return
    (exponent,) = block_exponents(x, 1, workers)
    words = np.empty(1, np.int32)
    quantize_block(x, exponent, workers, words)

    assert quantise_exactly(value, int(exponent), workers) == words[0]


def test_a_product_beyond_int32_is_the_least_integer() -> None:
    """As CVTPS2DQ has it; 2^31 is the first that is beyond, and -2^31 the last that is not."""
    below = float(np.nextafter(np.float32(2**31), np.float32(0)))
    values = np.array([below, 2.0**31, -(2.0**31), -(2.0**31) - 256, 1e30, -1e30], np.float32)
    words = np.empty(values.size, np.int32)
    quantize_block(values, 31, 1, words)

    assert words.tolist() == [int(below)] + [-(2**31)] * 5


@pytest.mark.parametrize("workers", [*range(1, 33), 64, 255, 256, 264, 1000, 4096, 65_536, 99_999])
def test_sums_of_the_largest_values_fit_int32(workers: int) -> None:
    words = np.empty(1, np.int32)
    for sign in (1, -1):
        quantize_block(np.array([sign * BELOW_ONE], np.float32), 0, workers, words)

        assert -(2**31) <= workers * int(words[0]) <= 2**31 - 1
    assert workers * int(words[0]) < -(2**31) * (1 - 2.0**-14)  # and they use the range


@given(block=arrays(np.float32, st.integers(1, 40), elements=finite), block_elements=st.integers(1, 40))
def test_exponents_exceed_every_value_and_half_of_them_does_not(block: Gradient, block_elements: int) -> None:
    block = block / np.float32(16)  # what three workers can carry
    for k, exponent in enumerate(block_exponents(block, block_elements, 3).tolist()):
        largest = float(np.abs(block[k * block_elements : (k + 1) * block_elements]).max())

        assert largest < 2.0**exponent
        assert exponent == smallest_exponent(3) or largest >= 2.0 ** (exponent - 1)


@pytest.mark.parametrize("workers", [1, 2, 3, 32, 64, 1000])
def test_scales_are_finite_for_all_exponents_allowed(workers: int) -> None:
    low, high = smallest_exponent(workers), largest_exponent(workers)

    assert all(0 < scale_of(exponent, workers) < np.inf for exponent in range(low, high + 1))
    assert 2.0**31 / (workers * 2.0 ** (low - 1)) >= 2.0**128  # one lower would not be
    assert -128 <= low < high <= 127


@pytest.mark.parametrize("workers", [1, 2, 3, 255, 256])
def test_a_block_of_zeros_announces_less_than_the_tiniest_value(workers: int) -> None:
    """So that it does not count in a maximum, and all workers know where there is nothing at all."""
    values = np.array([0, -0.0, 2.0**-149, 0, 0, 1.5], np.float32)
    zeros, tiny, ones = announced_exponents(all_of(values, 2), workers).tolist()

    assert zeros == tiny - 1
    assert np.isfinite(scale_of(tiny, workers))
    assert ones == 1


@pytest.mark.parametrize(
    ("value", "workers", "text"),
    [
        (
            np.nan,
            1,
            "gradient[300] is nan: only finite values can be carried; "
            "lower the learning rate, or skip such steps",
        ),
        (
            -(2.0**125),
            8,
            "gradient[300] is -4.25353e+37: with 8 workers fixed point carries magnitudes below 2.12676e+37; "
            "clip or scale the gradient",
        ),
    ],
)
def test_what_fixed_point_cannot_carry(value: float, workers: int, text: str) -> None:
    gradient = np.ones(400, np.float32)
    gradient[300] = value
    with pytest.raises(EncodeError, match=f"^{re.escape(text)}$"):
        block_exponents(gradient, 64, workers)
