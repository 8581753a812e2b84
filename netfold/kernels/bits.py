"""Words and arrays of them: counting bits, comparing bit by bit, the largest elements without a sort."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.compiled import intrinsic, kernel
from netfold.kernels.keyed_random import splitmix64

# Bits of a word, and those of a float64: one instruction each.


@intrinsic
def popcount(typing_context: Any, word: Any) -> Any:
    """Number of set bits of a uint64."""
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """Position of the lowest set bit of a uint64; 64 if there is none."""
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


@intrinsic
def bits_of(typing_context: Any, number: Any) -> Any:
    """The bits of a float64, as int64."""
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def double_of(typing_context: Any, bits: Any) -> Any:
    """The float64 with these bits, an int64."""
    from llvmlite import ir
    from numba import types

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


# Comparison of arrays, bit by bit.


_SLICE = 1 << 18  # elements compared at once; a difference ends the search


def same_bits(first: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether two 1-D arrays of 4-byte items have the same bits, including NaN and signs of zeros."""
    if identity(first) == identity(other):
        return True
    if first.size != other.size:
        return False
    bits, other_bits = first.view(np.int32), other.view(np.int32)
    slices = (slice(begin, begin + _SLICE) for begin in range(0, first.size, _SLICE))
    return not any(count_differing(bits[part], other_bits[part]) for part in slices)


def identity(array: NDArray[Any] | None) -> tuple[Any, ...]:
    """Equal for arrays that are the same memory."""
    if array is None:
        return ()
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str


@kernel
def count_differing(words: NDArray[np.int32], expected: NDArray[np.int32]) -> int:
    count = 0
    for i in range(words.size):
        count += words[i] != expected[i]
    return count


# The largest elements of an array, exactly and without sorting it.
#
# A sample gives a bound that a few more elements reach than are wanted. One pass collects those, and the
# wanted ones are selected among them. The sample decides the time only: if it misleads, all elements are
# looked at.


_SAMPLE = 1 << 16
_ELEMENTS_MIN = 4 * _SAMPLE  # below, the sample costs more than it saves
_DEVIATIONS = 5
"""Margin in deviations of the sample's count: too few elements are collected once in three million calls."""
_MAGNITUDE = np.int32(0x7FFFFFFF)  # the bits of a float32 without its sign
_CHUNK = 32

Places = NDArray[np.int64]
Int32s = NDArray[np.int32]


def largest(values: NDArray[np.float32], count: int) -> Places:
    """The `count` elements of the largest magnitude, in ascending order; the first of equal ones.

    values: `(elements,)`, of which there are at least `count`. NaN counts as larger than infinity.
    """
    bits = np.ascontiguousarray(values).view(np.int32)
    if count == 0:
        return np.empty(0, np.int64)
    places = _by_sample(bits, count) if bits.size >= _ELEMENTS_MIN else None
    if places is None:
        places = np.flatnonzero(_choose(bits & _MAGNITUDE, count))
    return places


def _choose(magnitudes: Int32s, count: int) -> NDArray[np.bool_]:
    """Whether each magnitude is among the `count` largest, or the first of equal ones."""
    least_index = magnitudes.size - count
    least = np.partition(magnitudes, least_index)[least_index]
    is_chosen: NDArray[np.bool_] = magnitudes > least
    equal = np.flatnonzero(magnitudes == least)
    is_chosen[equal[: count - np.count_nonzero(is_chosen)]] = True
    return is_chosen


def _by_sample(bits: Int32s, count: int) -> Places | None:
    """`largest` by way of a sample; None if that has misled, or cannot help."""
    expected = _SAMPLE * count / bits.size
    rank = math.ceil(expected + _DEVIATIONS * math.sqrt(expected)) + _DEVIATIONS
    if 2 * rank > _SAMPLE:
        return None
    sample = np.empty(_SAMPLE, np.int32)
    _draw(bits, sample)
    # Zeros are never collected. Where there are fewer others than wanted, the first zeros complete them.
    least = max(1, int(np.partition(sample, _SAMPLE - rank)[_SAMPLE - rank]))
    room = 2 * rank * (bits.size // _SAMPLE + 1)
    places, magnitudes = np.empty(room, np.uint32), np.empty(room, np.int32)
    collected = _collect(bits, np.int32(least), places, magnitudes)
    if collected < 0:
        return None
    if collected >= count:
        return places[:collected][_choose(magnitudes[:collected], count)].astype(np.int64)
    if least > 1:
        return None
    zeros = np.flatnonzero((bits & _MAGNITUDE) == 0)[: count - collected]
    return np.sort(np.concatenate([places[:collected].astype(np.int64), zeros]))


@kernel
def _draw(bits: Int32s, sample: Int32s) -> None:
    """Write magnitudes from random places of an array of less than 2**32."""
    size = np.uint64(bits.size)
    for i in range(sample.size):
        index = ((splitmix64(i) >> np.uint64(32)) * size) >> np.uint64(32)
        sample[i] = bits[index] & _MAGNITUDE


@kernel
def _collect(bits: Int32s, least: np.int32, places: NDArray[np.uint32], magnitudes: Int32s) -> int:
    """Write places and magnitudes of elements of at least `least`; returns how many, −1 without room."""
    count = np.uint64(0)
    for chunk in range((bits.size + _CHUNK - 1) // _CHUNK):
        chunk_bits = bits[_CHUNK * chunk : _CHUNK * (chunk + 1)]
        mask = 0
        for j in range(chunk_bits.size):
            mask |= int((chunk_bits[j] & _MAGNITUDE) >= least) << j
        word = np.uint64(mask)
        if word and np.int64(count) + _CHUNK > places.size:
            return int(np.int64(-1))
        while word:
            j = trailing_zeros(word)
            places[count] = np.uint32(_CHUNK * chunk) + np.uint32(j)
            magnitudes[count] = chunk_bits[j] & _MAGNITUDE
            count += np.uint64(1)
            word &= word - np.uint64(1)
    return int(np.int64(count))
