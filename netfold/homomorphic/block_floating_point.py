"""Block floating point as in SwitchML's workers: one shared exponent per block, int32 words.

A block's exponent e has 2**e > max|x|. Workers agree on the largest; with n workers a value becomes
`round(x · scale)`, `scale = (2**31 − 1) / (n · 2**e)`, so the sum of n such integers cannot leave int32.
Scale, product and quotient are float32 and ties round to even, as in the vector code of the released client
(p4lang/p4app-switchML, cpu_exponent_quantizer_ppp.cc; Sapio et al., NSDI 2021).

This module differs where the client silently computes NaN: e is at least `smallest_exponent`, so blocks of
denormals and zeros have a finite scale (values below half a step of about n · 2**-127 become zero), and
values out of range are errors. Above 255 workers the scale is a little smaller, because the rounding errors
of n values could add up to more than int32 holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import DecodeError, EncodeError
from netfold.homomorphic.error_bounds import BlockBound, FactorBound, largest_magnitudes, raise_to_largest
from netfold.homomorphic.merge import WORD_MAX, Merged
from netfold.homomorphic.message import Gradient, Round
from netfold.kernels.compiled import kernel

# Compact arrays: some values of a gradient, in ascending order and cut at its blocks.


class Compact(NamedTuple):
    """Values of some elements; block b's are `values[starts[b]:starts[b + 1]]`."""

    values: Gradient
    starts: NDArray[np.int64]  # (blocks + 1,)
    gradient: Gradient  # the source of the values


def block_starts(elements: int, block_elements: int) -> NDArray[np.int64]:
    """Starts of blocks, and the number of elements as the last: `(blocks + 1,)`."""
    blocks = -(-elements // block_elements)
    return np.minimum(np.arange(blocks + 1) * block_elements, elements)


def all_of(gradient: Gradient, block_elements: int) -> Compact:
    return Compact(gradient, block_starts(gradient.size, block_elements), gradient)


# Error texts for values that integers cannot hold.


def not_finite(gradient: Gradient) -> str:
    """Error text for the first element that is NaN or infinite."""
    index = int(np.flatnonzero(~np.isfinite(gradient))[0])
    return (
        f"gradient[{index}] is {gradient[index]}: only finite values can be carried; "
        "lower the learning rate, or skip such steps"
    )


_EXPONENT_BIAS = 126
"""Bias of float32 exponents, less one: 2**(biased − 126) > |x|."""


@kernel
def scale_of(exponent: int, workers: int) -> np.float32:
    """Integers per unit of value in a block with this agreed exponent (float32)."""
    full = 2147483647.0 if workers <= 255 else 2147483392.0 - workers
    return np.float32(np.float32(full) / np.float32(workers * math.ldexp(1.0, exponent)))


@kernel
def quantize_value(value: np.float32, scale: np.float32) -> np.int32:
    product = np.rint(value * scale)
    # What int32 cannot hold becomes -2**31, as the client's vector conversion makes it. Only an exponent
    # below the value's own gives such a product: a switch that lost some worker's exponent agreed on it.
    is_held = np.float32(-(2.0**31)) <= product < np.float32(2.0**31)
    return np.int32(product) if is_held else np.int32(-(2**31))


@kernel
def quantize_block(
    values: NDArray[np.float32], exponent: int, workers: int, words: NDArray[np.int32]
) -> None:
    """Write the integers of one block (any number of elements) into `words`, of the same length."""
    scale = scale_of(exponent, workers)
    for i in range(values.size):
        words[i] = quantize_value(values[i], scale)


@kernel
def _write_scales(exponents: NDArray[np.int32], workers: int, scales: NDArray[np.float32]) -> None:
    for block in range(exponents.size):
        scales[block] = scale_of(exponents[block], workers)


def scales_of(exponents: NDArray[Any], workers: int) -> NDArray[np.float32]:
    """Scale of every block, `(blocks,)`."""
    scales = np.empty(exponents.size, np.float32)
    _write_scales(exponents.astype(np.int32, copy=False), workers, scales)
    return scales


@kernel
def quantize(
    values: NDArray[np.float32],
    starts: NDArray[np.int64],
    scales: NDArray[np.float32],
    words: NDArray[np.int32],
) -> None:
    """Write the integer of every value; block k has values from `starts[k] - starts[0]` on."""
    for block in range(scales.size):
        first, last = starts[block] - starts[0], starts[block + 1] - starts[0]
        block_values = values[first:last]
        block_words = words[first:last]
        scale = scales[block]
        for i in range(block_values.size):
            block_words[i] = quantize_value(block_values[i], scale)


@kernel
def dequantize(
    words: NDArray[np.int32],
    starts: NDArray[np.int64],
    scales: NDArray[np.float32],
    values: NDArray[np.float32],
) -> None:
    """Write the float32 value of every merged word; blocks are as in `quantize`."""
    for block in range(scales.size):
        first, last = starts[block] - starts[0], starts[block + 1] - starts[0]
        block_words = words[first:last]
        block_values = values[first:last]
        scale = scales[block]
        for i in range(block_words.size):
            block_values[i] = np.float32(block_words[i]) / scale


def smallest_exponent(workers: int) -> int:
    # The smallest with a finite float32 scale: n · 2**e > 2**-97.
    return -96 - (workers - 1).bit_length()


def largest_exponent(workers: int) -> int:
    # An int8 holds e ≤ 127, float32 arithmetic n · 2**e < 2**128.
    return 128 - workers.bit_length()


def empty_exponent(workers: int) -> int:
    # Below all others, so that a block of zeros does not affect a maximum.
    return smallest_exponent(workers) - 1


def block_exponents(gradient: Gradient, block_elements: int, workers: int) -> NDArray[np.int8]:
    """One worker's exponent of each block of a 1-D float32 gradient, `(blocks,)`; the last may be short."""
    exponents = announced_exponents(all_of(gradient, block_elements), workers)
    return np.maximum(exponents, smallest_exponent(workers)).astype(np.int8)


def announced_exponents(nonzeros: Compact, workers: int) -> NDArray[np.int32]:
    # As `block_exponents`, but with `empty_exponent` for blocks of zeros; so `nonzeros` may omit zeros.
    largest = np.zeros(nonzeros.starts.size - 1, np.int32)
    raise_to_largest(nonzeros.values.view(np.int32), nonzeros.starts, largest)
    exponents: NDArray[np.int32] = (largest >> 23) - np.int32(_EXPONENT_BIAS)  # 129 for NaN and infinity
    if exponents.size and exponents.max() > largest_exponent(workers):
        raise EncodeError(_too_large(nonzeros.gradient, workers))
    exponents = np.maximum(exponents, np.int32(smallest_exponent(workers)))
    exponents[largest == 0] = empty_exponent(workers)
    return exponents


def _too_large(gradient: Gradient, workers: int) -> str:
    """Error text for the first element that is out of range."""
    if not np.isfinite(gradient).all():
        return not_finite(gradient)
    limit = 2.0 ** largest_exponent(workers)
    index = int(np.flatnonzero(np.abs(gradient) >= limit)[0])
    return (
        f"gradient[{index}] is {gradient[index]:g}: with {workers} workers fixed point carries magnitudes "
        f"below {limit:g}; clip or scale the gradient"
    )


def error_bound(gradients: Sequence[Gradient], block_elements: int, spare_bits: int = 0) -> BlockBound:
    """Largest `|decoded − Σ gradients|` of block fixed point, for any finite gradients.

    `spare_bits`: largest excess of the exponent in use over the workers' largest exponent.
    """
    workers = len(gradients)
    largest, least = largest_magnitudes(gradients, block_elements), smallest_exponent(workers)
    _, exponents = np.frexp(largest)
    exponents = np.where(largest == 0, least, np.maximum(exponents, least))
    levels, level_of_block = np.unique(exponents, return_inverse=True)
    half_steps = [workers * 2.0 ** (spare_bits - 1) / scale_of(int(level), workers) for level in levels]
    return BlockBound(np.array(half_steps, np.float64)[level_of_block], block_elements)


# Fixed point with a constant factor, as in ATP's workers (in-ATP/ATP, quantize.h).
#
# A value becomes `round(x · factor)`, without an agreement in advance (Lao et al., NSDI 2021). The range is
# small and fixed. A value out of range is an error, or a network that can adds it as float32.


_FACTOR_MIN = 2.0**-128  # half of it turns every float32 into 0; far smaller ones have infinite bounds


def check_factor(factor: float) -> None:
    if not _FACTOR_MIN <= factor < math.inf:
        raise ValueError(
            f"factor is {factor}: must be finite and at least {_FACTOR_MIN:.3g}, for example 1e6"
        )


def factor_error_bound(gradients: Sequence[Gradient], factor: float) -> FactorBound:
    """Largest `|decoded − Σ gradients|` with a constant factor, for any finite gradients."""
    workers = len(gradients)
    largest = sum(
        float(largest_magnitudes([gradient], max(1, gradient.size)).max(initial=0)) for gradient in gradients
    )
    return FactorBound(workers, factor, may_be_float=largest * factor + workers / 2 >= WORD_MAX)


def factor_words(gradient: Gradient, factor: float, round: Round) -> NDArray[np.int32]:
    # With this limit the sum of all workers' words stays in int32.
    limit = WORD_MAX if round.takes_floats else WORD_MAX // round.workers
    words = np.empty(gradient.size, np.int32)
    if round_products(gradient, factor, limit, words):
        return words
    scaled = np.rint(np.multiply(gradient, factor, dtype=np.float64))
    is_carried = np.isfinite(gradient) if round.takes_floats else np.abs(scaled) <= limit
    if not is_carried.all():
        raise EncodeError(_too_large_for_factor(gradient, factor, int(np.argmin(is_carried)), round.workers))
    # What is out of range here, the network adds as floats instead.
    return np.clip(scaled, -limit, limit).astype(np.int32)


@kernel
def round_products(gradient: Gradient, factor: float, limit: int, words: NDArray[np.int32]) -> bool:
    """Write `round(x · factor)` of every element; returns whether all are within the limit."""
    most = np.float64(limit)
    beyond = 0
    for i in range(gradient.size):
        product = np.rint(np.float64(gradient[i]) * factor)
        fits = abs(product) <= most  # not true of NaN
        beyond += not fits
        words[i] = np.int32(product if fits else 0.0)
    return beyond == 0


def factor_sums(merged: Merged, factor: float) -> Gradient:
    """Values of merged integers and of float sums."""
    decoded: Gradient = (merged.words / factor).astype(np.float32)
    if merged.is_float is not None:
        decoded[merged.is_float] = merged.words.view(np.float32)[merged.is_float]
    return decoded


def _too_large_for_factor(gradient: Gradient, factor: float, index: int, workers: int) -> str:
    """Error text for an element that is out of range with this factor."""
    if not np.isfinite(gradient[index]):
        return not_finite(gradient)
    largest = WORD_MAX // workers / factor
    return (
        f"gradient[{index}] is {gradient[index]:g}: with {workers} workers factor {factor:g} "
        f"carries magnitudes up to {largest:g}; use a smaller factor, or program atp"
    )


# Maxima that workers agree on block by block: checks and forecasts.


Int32s = NDArray[np.int32]


def check_maxima(name: str, sent: Int32s, merged: Int32s, limit: int) -> None:
    # A maximum over all workers is at least what this worker sent.
    wrong = np.flatnonzero((merged < sent) | (merged > limit))
    if wrong.size:
        block = int(wrong[0])
        raise DecodeError(
            f"the merged {name} of block {block} is {merged[block]}: must be between {sent[block]}, "
            f"which this worker sent, and {limit}"
        )


def largest_so_far(rounds: Sequence[Int32s], empty: int) -> Int32s:
    """Largest of several rounds' maxima, per block.

    A block that was empty in all rounds takes the larger maximum of its nearest non-empty neighbours. If all
    blocks were empty, they stay empty.
    """
    largest: Int32s = np.max(rounds, axis=0)
    known_blocks = np.flatnonzero(largest != empty)
    if known_blocks.size == 0:
        return largest
    after = np.searchsorted(known_blocks, np.arange(largest.size))
    before = known_blocks[np.maximum(after - 1, 0)]
    guess = np.maximum(largest[before], largest[known_blocks[np.minimum(after, known_blocks.size - 1)]])
    return np.where(largest == empty, guess, largest)
