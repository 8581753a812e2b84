"""Exact numbers: digits that hold every bit of a block's values, so that their sum is rounded only once.

The workers agree on the bits in use, by MAX: per block the exponent above the largest magnitude, and the
negated exponent of the lowest bit set. The number of digits depends on the gradient: with eight workers,
values of one magnitude need two digits of 28 bits, bfloat16 values often one, and a tiny value next to a huge
one ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import ErrorBound, RoundingBound
from netfold.homomorphic.codec import DecodeError, EncodeError
from netfold.homomorphic.exponents import Compact, check_maxima, largest_so_far, not_finite
from netfold.homomorphic.message import Gradient, Merge, Merged, Message, Round, Work
from netfold.kernels.bits import bits_of, double_of, trailing_zeros
from netfold.kernels.compiled import inlined, kernel

# Kernels of exact numbers: float32 values as integer digits whose sums are exact.
#
# Every float32 is an integer multiple of 2**low, where low is the exponent of the lowest bit set in its
# block, and smaller than 2**top. That integer is cut into digits of D bits, each with the sign of the
# value, and the digits of n workers are added as int32: with n · (2**D − 1) < 2**31 no sum overflows, so
# the merged digits hold the true sum in any order. It is then rounded once, to the nearest float32, ties to
# even. This is Kulisch's long accumulator, limited to the bits that a block uses, with a carry only at the
# end.
#
# Rounding needs no wide integers: after carries, all digits below the top one have the same sign. They are
# added from the top in float64, each time rounded to odd. A sum rounded to odd with 53 bits rounds to
# float32 as the exact one does (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved
# algorithms using rounding to odd", IEEE Transactions on Computers 57(4), 2008).


CHUNK_ELEMENTS = 512  # decoded at a time: digits and partial sums stay in the L1 cache

EMPTY_TOP = -149  # below the top of any value except zero: zeros do not affect a maximum
EMPTY_LOW = 128  # above the low of any value: zeros do not affect a minimum

_INFINITE_EXPONENT = 128  # 2**128 is beyond float32

Int32s = NDArray[np.int32]


class Ranges(NamedTuple):
    """The bits of values that the digits hold, per block, and the bits of a digit."""

    tops: Int32s  # (blocks,) values are smaller than 2**top
    lows: Int32s  # (blocks,) values are multiples of 2**low
    digits: NDArray[np.int64]  # (blocks,) digits per value: ⌈(top − low) / digit_bits⌉, 0 where all are zero
    digit_bits: int
    sum_bits: int  # extra bits of a sum over all workers


class Scratch(NamedTuple):
    """Buffers for decoding one chunk of a block."""

    digits: Int32s  # (most digits of a block, CHUNK_ELEMENTS)
    sums: NDArray[np.float64]  # (CHUNK_ELEMENTS,)


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
    scratch: Scratch,
    values: Gradient,
) -> int:
    """Write the float32 nearest to each sum of digits into `values`; return the number of infinite ones."""
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
    scratch: Scratch,
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
            sums = scratch.sums[: chunk.size]
            _carry(words[i:], members, planes, ranges.digit_bits, scratch.digits, chunk.size)
            sums[:] = 0
            for plane in range(planes - 1, -1, -1):
                _append(scratch.digits[plane][: chunk.size], radix, sums)
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
    # Once a sum is inexact, its remaining digits are less than its distance to either neighbour: later steps
    # change nothing.
    for i in range(digits.size):
        sums[i] = _sum_to_odd(sums[i] * radix, np.float64(digits[i]))


@kernel
def _round(sums: NDArray[np.float64], scale: float, values: Gradient) -> None:
    """Write the float32 nearest to each scaled sum; the products are exact."""
    for i in range(values.size):
        values[i] = np.float32(sums[i] * scale)


_INFINITY_BITS = 0x7F800000
"""Bits of a float32 infinity; those of NaN are above."""
_TOP_MAX = 128  # all float32 are below 2**128
_LOW_MIN = -149  # all float32 are multiples of 2**−149
_SPARE_TOP_BITS = 1
"""Bits that a forecast adds at the upper end."""
_SPARE_LOW_BITS = 2
"""Bits that a forecast adds at the lower end, which depends on the smallest value and varies more."""


@dataclass(frozen=True)
class AgreedRanges:
    """The bits that each block's digits hold."""

    ranges: Ranges

    @property
    def digits(self) -> NDArray[np.int64]:
        return self.ranges.digits

    def encode(self, values: Gradient, starts: NDArray[np.int64], group_blocks: int, words: Any) -> None:
        split_members(values, starts, group_blocks, self.ranges, words)

    def decode(self, words: Any, starts: NDArray[np.int64], group_blocks: int, values: Gradient) -> int:
        """Round each sum of digits to the nearest float32, ties to even."""
        most = int(self.digits.max(initial=0))
        scratch = Scratch(np.empty((most, CHUNK_ELEMENTS), np.int32), np.empty(CHUNK_ELEMENTS, np.float64))
        return join_members(words, starts, group_blocks, self.ranges, scratch, values)

    def part(self, first_block: int, last_block: int) -> AgreedRanges:
        """The ranges of a range of blocks."""
        some = slice(first_block, last_block)
        ranges = self.ranges
        return AgreedRanges(
            ranges._replace(tops=ranges.tops[some], lows=ranges.lows[some], digits=ranges.digits[some])
        )

    def covers(self, actual: AgreedRanges) -> NDArray[np.bool_]:
        """Blocks whose bits are all within the forecast ones."""
        mine, other = self.ranges, actual.ranges
        return np.asarray((mine.tops >= other.tops) & (mine.lows <= other.lows))


@dataclass(frozen=True)
class Exact:
    """Digits of an agreed range of bits; the decoded sum is the float32 nearest to the true sum."""

    merge: ClassVar[Merge] = Merge.ADD
    dtype: ClassVar[type[np.generic]] = np.int32
    label: ClassVar[str] = "ranges"

    block_elements: int

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        largest, lows = np.empty((2, nonzeros.starts.size - 1), np.int32)
        block_ranges(nonzeros.values.view(np.int32), nonzeros.starts, largest, lows)
        if largest.max(initial=0) >= _INFINITY_BITS:
            raise EncodeError(not_finite(nonzeros.gradient))
        _, tops = np.frexp(largest.view(np.float32))
        # Two words per block: all tops, then all negated lows.
        words = np.concatenate([np.where(largest == 0, EMPTY_TOP, tops), -lows]).astype(np.int32)
        return (Message(words, Merge.MAX, self.label, Work(nonzeros.values.nbytes, words.nbytes)),)

    def agree(
        self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round
    ) -> AgreedRanges:
        """Take the union of all workers' ranges.

        Raises
        ------
        DecodeError
            A range does not contain what this worker sent, or is impossible.
        """
        own_tops, own_lows = np.split(sent[0].words, 2)
        tops, negated_lows = np.split(merged[0].words, 2)
        check_maxima("top exponent", own_tops, tops, _TOP_MAX)
        check_maxima("negated lowest exponent", own_lows, negated_lows, -_LOW_MIN)
        lows = -negated_lows
        is_empty = (tops == EMPTY_TOP) & (lows == EMPTY_LOW)
        wrong = np.flatnonzero((tops <= lows) & ~is_empty)
        if wrong.size:
            block = int(wrong[0])
            raise DecodeError(
                f"the merged exponents of block {block} say that values below 2**{tops[block]} are multiples "
                f"of 2**{lows[block]}: a worker's exponents were damaged on the way"
            )
        return _agreed(tops, lows, round.workers)

    def forecast(self, history: Sequence[AgreedRanges]) -> AgreedRanges:
        """The union of earlier ranges (for empty blocks, of their neighbours'), plus some bits.

        Unused bits of the last digit extend the lower end.
        """
        last = history[-1].ranges
        tops = largest_so_far([one.ranges.tops for one in history], EMPTY_TOP)
        lows = -largest_so_far([-one.ranges.lows for one in history], -EMPTY_LOW)
        is_empty = tops == EMPTY_TOP
        tops = np.minimum(tops + _SPARE_TOP_BITS, _TOP_MAX)
        spans = tops - lows + _SPARE_LOW_BITS
        lows = np.maximum(tops - -(-spans // last.digit_bits) * last.digit_bits, _LOW_MIN)
        tops[is_empty], lows[is_empty] = EMPTY_TOP, EMPTY_LOW
        return _agreed(tops, lows, 1 << last.sum_bits)

    def record(self, agreed: AgreedRanges) -> NDArray[np.int32]:
        return np.concatenate([agreed.ranges.tops, agreed.ranges.lows])

    def recall(self, words: NDArray[np.int32], workers: int) -> AgreedRanges:
        """The ranges of these tops and lows."""
        tops, lows = np.split(words, 2)
        return _agreed(tops, lows, workers)

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        return RoundingBound(len(gradients))


def _agreed(tops: Int32s, lows: Int32s, workers: int) -> AgreedRanges:
    """Ranges with the most bits per digit for which sums over all workers fit int32."""
    sum_bits = (workers - 1).bit_length()
    digit_bits = 31 - sum_bits
    counts = np.maximum(-((lows - tops) // digit_bits), 0).astype(np.int64)
    return AgreedRanges(Ranges(tops.astype(np.int32), lows.astype(np.int32), counts, digit_bits, sum_bits))
