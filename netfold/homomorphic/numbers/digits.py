"""Kernels of exact numbers: float32 values as integer digits whose sums are exact.

Every float32 is an integer multiple of 2**low, where low is the exponent of the lowest bit set in its block,
and smaller than 2**top. That integer is cut into digits of D bits, each with the sign of the value, and the
digits of n workers are added as int32: with n · (2**D − 1) < 2**31 no sum overflows, so the merged digits
hold the true sum in any order. It is then rounded once, to the nearest float32, ties to even. This is
Kulisch's long accumulator, limited to the bits that a block uses, with a carry only at the end.

Rounding needs no wide integers: after carries, all digits below the top one have the same sign. They are
added from the top in float64, each time rounded to odd. A sum rounded to odd with 53 bits rounds to float32
as the exact one does (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms
using rounding to odd", IEEE Transactions on Computers 57(4), 2008).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.bits import bits_of, double_of, trailing_zeros
from netfold.homomorphic.kernels.compiled import inlined, kernel
from netfold.homomorphic.message import Gradient

CHUNK_ELEMENTS = 512  # decoded at a time: digits and partial sums stay in the L1 cache

EMPTY_TOP = -149  # below the top of any value except zero: zeros do not affect a maximum
EMPTY_LOW = 128  # above the low of any value: zeros do not affect a minimum

_INFINITE_EXPONENT = 128  # 2**128 is beyond float32

Int32s = NDArray[np.int32]


class Ranges(NamedTuple):
    """The bits of values that the digits hold, per block, and the bits of a digit."""

    tops: Int32s  # (blocks,) values are smaller than 2**top
    lows: Int32s  # (blocks,) values are multiples of 2**low
    digits: NDArray[np.int64]  # (blocks,) digits per value: ⌈(top − low) / digit_bits⌉
    digit_bits: int
    sum_bits: int  # extra bits of a sum over all workers


@inlined
def _power_of_two(exponent: int) -> float:
    """2**exponent as a float64, for exponents from −1022 to 1023."""
    power: float = double_of(np.int64(exponent + 1023) << np.int64(52))
    return power


@kernel
def block_ranges(bits: Int32s, starts: NDArray[np.int64], largest: Int32s, lows: Int32s) -> None:
    """Bits of the largest magnitude of each block, and the exponent of its lowest set bit.

    `bits` are those of float32 values. A block of zeros has 0 and `EMPTY_LOW`.
    """
    for block in range(largest.size):
        block_bits = bits[starts[block] : starts[block + 1]]
        high = np.int32(0)
        low = np.int32(EMPTY_LOW)
        for i in range(block_bits.size):
            magnitude = block_bits[i] & np.int32(0x7FFFFFFF)
            high = max(high, magnitude)
            # The implicit bit may be set for denormals too: a lower bit is set.
            mantissa = np.uint64(np.uint32(magnitude) | np.uint32(0x800000))
            zeros = np.int32(trailing_zeros(mantissa))
            exponent = max(magnitude >> np.int32(23), np.int32(1)) + zeros - np.int32(150)
            low = min(low, exponent if magnitude else np.int32(EMPTY_LOW))
        largest[block] = high
        lows[block] = low


@inlined
def _most(digits: NDArray[np.int64]) -> int:
    """Digit planes of a group: the most digits of its blocks."""
    most = 0
    for block in range(digits.size):
        most = max(most, digits[block])
    return most


@kernel
def split_members(
    values: Gradient, starts: NDArray[np.int64], group_blocks: int, ranges: Ranges, words: Int32s
) -> None:
    """Write the digits of each block's values into `words`; positions count from `starts[0]`."""
    position = 0
    for first in range(0, ranges.digits.size, group_blocks):
        last = min(first + group_blocks, ranges.digits.size)
        begin = starts[first]
        members = starts[last] - begin
        planes = _most(ranges.digits[first:last])
        for block in range(first, last):
            block_values = values[starts[block] - starts[0] : starts[block + 1] - starts[0]]
            offset = position + starts[block] - begin
            for plane in range(planes):
                block_words = words[offset : offset + block_values.size]
                if plane < ranges.digits[block]:
                    exponent = ranges.lows[block] + plane * ranges.digit_bits
                    _write_digits(block_values, exponent, ranges.digit_bits, block_words)
                else:
                    block_words[:] = 0
                offset += members
        position += planes * members


@inlined
def _write_digits(values: Gradient, exponent: int, digit_bits: int, words: Int32s) -> None:
    """Write the digit of weight 2**exponent of every value, with the value's sign."""
    scale = _power_of_two(-exponent)
    above = _power_of_two(-exponent - digit_bits)
    radix = _power_of_two(digit_bits)
    for i in range(values.size):
        value = np.float64(values[i])  # float64 holds every product and difference here exactly
        words[i] = np.int32(np.trunc(value * scale) - radix * np.trunc(value * above))


@kernel
def join_members(
    words: Int32s,
    starts: NDArray[np.int64],
    group_blocks: int,
    ranges: Ranges,
    scratch: tuple[Int32s, NDArray[np.float64]],
    values: Gradient,
) -> int:
    """Write the float32 nearest to each sum of digits into `values`; return the number of infinite ones.

    The scratch is `(most digits of a block, CHUNK_ELEMENTS)` and `(CHUNK_ELEMENTS,)`.
    """
    infinite = 0
    position = 0
    for first in range(0, ranges.digits.size, group_blocks):
        last = min(first + group_blocks, ranges.digits.size)
        begin = starts[first]
        members = starts[last] - begin
        for block in range(first, last):
            block_values = values[starts[block] - starts[0] : starts[block + 1] - starts[0]]
            block_words = words[position + starts[block] - begin :]
            _join_block(block_words, members, block, ranges, scratch, block_values)
            if ranges.tops[block] + ranges.sum_bits >= _INFINITE_EXPONENT:
                for i in range(block_values.size):
                    infinite += np.isinf(block_values[i])
        position += _most(ranges.digits[first:last]) * members
    return infinite


@kernel
def _join_block(
    words: Int32s,
    members: int,
    block: int,
    ranges: Ranges,
    scratch: tuple[Int32s, NDArray[np.float64]],
    values: Gradient,
) -> None:
    """Decode one block; digit p of its element i is `words[p · members + i]`."""
    planes = ranges.digits[block]
    scale = _power_of_two(ranges.lows[block])
    if planes == 0:
        values[:] = 0
    elif planes == 1:
        _join_one(words, scale, values)
    elif planes == 2:
        _join_two(words, words[members:], scale, ranges.digit_bits, values)
    elif planes == 3:
        _join_three(words, words[members:], words[2 * members :], scale, ranges.digit_bits, values)
    else:
        radix = _power_of_two(ranges.digit_bits)
        for i in range(0, values.size, CHUNK_ELEMENTS):
            chunk = values[i : i + CHUNK_ELEMENTS]
            sums = scratch[1][: chunk.size]
            _carry(words[i:], members, planes, ranges.digit_bits, scratch[0], chunk.size)
            sums[:] = 0
            for plane in range(planes - 1, -1, -1):
                _append(scratch[0][plane][: chunk.size], radix, sums)
            _round(sums, scale, chunk)


@inlined
def _sum_to_odd(large: float, small: float) -> float:
    """large + small, rounded to odd: if float64 cannot hold it, its neighbour with an odd last bit."""
    total = large + small
    taken = total - large
    error = (large - (total - taken)) + (small - taken)
    bits: np.int64 = bits_of(total)
    # Step away from zero if the error has the sign of the sum, else towards zero; no step if the bit is odd.
    step = ((bits ^ bits_of(error)) >> np.int64(63)) | np.int64(1)
    is_odd = bits & np.int64(1)
    odd: float = double_of(bits + (np.int64(0) if error == 0 or is_odd else step))
    return odd


@kernel
def _join_one(words: Int32s, scale: float, values: Gradient) -> None:
    """Decode one digit, which is the sum and exact in float64."""
    for i in range(values.size):
        values[i] = np.float32(words[i] * scale)


@kernel
def _join_two(low: Int32s, high: Int32s, scale: float, digit_bits: int, values: Gradient) -> None:
    """Decode two digits, which need no carry: both are exact in float64."""
    radix = _power_of_two(digit_bits)
    for i in range(values.size):
        values[i] = np.float32(_sum_to_odd(high[i] * radix, np.float64(low[i])) * scale)


@kernel
def _join_three(
    low: Int32s, middle: Int32s, high: Int32s, scale: float, digit_bits: int, values: Gradient
) -> None:
    """Decode three digits at once: `_carry` and `_append` without buffers."""
    radix = _power_of_two(digit_bits)
    bits = np.int64(digit_bits)
    mask = (np.int64(1) << bits) - np.int64(1)
    for i in range(values.size):
        digit = np.int64(low[i])
        above = np.int64(middle[i]) + (digit >> bits)
        top = np.int32(high[i] + (above >> bits))
        upper = _sum_to_odd(top * radix, np.float64(np.int32(above & mask)))
        values[i] = np.float32(_sum_to_odd(upper * radix, np.float64(np.int32(digit & mask))) * scale)


@kernel
def _carry(words: Int32s, members: int, planes: int, digit_bits: int, digits: Int32s, count: int) -> None:
    """Carry between digits: write rows of `digits` that are 0 to 2**digit_bits − 1 below the top.

    The top row keeps the sign. Sums still fit int32: carries are between −n and n − 1 with n workers.
    """
    bits = np.int64(digit_bits)
    mask = (np.int64(1) << bits) - np.int64(1)
    lowest = digits[0]
    for i in range(count):
        lowest[i] = words[i]
    for plane in range(1, planes):
        below = digits[plane - 1]
        above = digits[plane]
        plane_words = words[plane * members : plane * members + count]
        for i in range(plane_words.size):
            digit = np.int64(below[i])
            below[i] = np.int32(digit & mask)
            above[i] = np.int32(plane_words[i] + (digit >> bits))


@kernel
def _append(digits: Int32s, radix: float, sums: NDArray[np.float64]) -> None:
    """Append the next lower digit to each sum.

    Once a sum is inexact, its remaining digits are less than its distance to either neighbour: later steps
    change nothing.
    """
    for i in range(digits.size):
        sums[i] = _sum_to_odd(sums[i] * radix, np.float64(digits[i]))


@kernel
def _round(sums: NDArray[np.float64], scale: float, values: Gradient) -> None:
    """Write the float32 nearest to each scaled sum; the products are exact."""
    for i in range(values.size):
        values[i] = np.float32(sums[i] * scale)
