"""The number formats: how a float32 becomes words that can be added.

| values | words | merge | agreed first, per block | the sum |
|---|---|---|---|---|
| block_exponent | one int32 | ADD | the largest exponent | to a step of its block |
| float32 | one float32 | FLOAT_ADD | nothing | rounded at each addition |
| exact | K int32 digits | ADD | highest and lowest bit in use | rounded once, see `Exact` |

A format reads compact arrays: the values of some elements (all, or the members of an index) in ascending
order, cut at the blocks of the gradient. With `starts` (blocks + 1,), block b's values begin at
`starts[b] - starts[0]`, so a slice of starts goes with a slice of values.

Words are in groups of `group_blocks` blocks. A group of m values has K · m words, where K is the most digits
that one of its blocks needs: the lowest digits of all values, then the next digits, and so on. Digits that a
block does not need are zero. Groups are coded independently, so threads may share the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic import block_floating_point
from netfold.homomorphic.block_floating_point import (
    Compact,
    check_maxima,
    largest_so_far,
    not_finite,
)
from netfold.homomorphic.codec import DecodeError, EncodeError, Promise
from netfold.homomorphic.error_bounds import ErrorBound, FloatAddBound, RoundingBound
from netfold.homomorphic.merge import Merge, Merged, Words, Work
from netfold.homomorphic.message import Gradient, Message, Round
from netfold.kernels.bits import bits_of, double_of, trailing_zeros
from netfold.kernels.compiled import inlined, kernel

# Exact numbers: digits that hold every bit of a block's values, so that their sum is rounded only once.
#
# The workers agree on the bits in use, by MAX: per block the exponent above the largest magnitude, and the
# negated exponent of the lowest bit set. The number of digits depends on the gradient: with eight workers,
# values of one magnitude need two digits of 28 bits, bfloat16 values often one, and a tiny value next to a
# huge one ten.
#
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
        blocks = slice(first_block, last_block)
        ranges = self.ranges
        return AgreedRanges(
            ranges._replace(tops=ranges.tops[blocks], lows=ranges.lows[blocks], digits=ranges.digits[blocks])
        )

    def covers(self, actual: AgreedRanges) -> NDArray[np.bool_]:
        """Blocks whose bits are all within the forecast ones."""
        forecast, other = self.ranges, actual.ranges
        return np.asarray((forecast.tops >= other.tops) & (forecast.lows <= other.lows))


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
        return _agree(tops, lows, round.workers)

    def forecast(self, history: Sequence[AgreedRanges]) -> AgreedRanges:
        """The union of earlier ranges (for empty blocks, of their neighbours'), plus some bits.

        Unused bits of the last digit extend the lower end.
        """
        last = history[-1].ranges
        tops = largest_so_far([agreed.ranges.tops for agreed in history], EMPTY_TOP)
        lows = -largest_so_far([-agreed.ranges.lows for agreed in history], -EMPTY_LOW)
        is_empty = tops == EMPTY_TOP
        tops = np.minimum(tops + _SPARE_TOP_BITS, _TOP_MAX)
        spans = tops - lows + _SPARE_LOW_BITS
        lows = np.maximum(tops - -(-spans // last.digit_bits) * last.digit_bits, _LOW_MIN)
        tops[is_empty], lows[is_empty] = EMPTY_TOP, EMPTY_LOW
        return _agree(tops, lows, 1 << last.sum_bits)

    def record(self, agreed: AgreedRanges) -> NDArray[np.int32]:
        return np.concatenate([agreed.ranges.tops, agreed.ranges.lows])

    def recall(self, words: NDArray[np.int32], workers: int) -> AgreedRanges:
        """The ranges of these tops and lows."""
        tops, lows = np.split(words, 2)
        return _agree(tops, lows, workers)

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        return RoundingBound(len(gradients))


def _agree(tops: Int32s, lows: Int32s, workers: int) -> AgreedRanges:
    """Ranges with the most bits per digit for which sums over all workers fit int32."""
    sum_bits = (workers - 1).bit_length()
    digit_bits = 31 - sum_bits
    counts = np.maximum(-((lows - tops) // digit_bits), 0).astype(np.int64)
    return AgreedRanges(Ranges(tops.astype(np.int32), lows.astype(np.int32), counts, digit_bits, sum_bits))


# Block floating point on compact arrays: a float32 becomes an integer multiple of its block's agreed step.
#
# The arithmetic is in `block_floating_point.py`. A block of zeros announces a special exponent. Steps may
# come from a forecast: they must be safe and may be a little too coarse.


SPARE_BITS = 3  # a forecast exponent may exceed the actual one by this much


@dataclass(frozen=True)
class AgreedExponents:
    """The largest exponent of each block over all workers."""

    exponents: NDArray[np.int32]  # (blocks,); `block_floating_point.empty_exponent` where all values are zero
    workers: int

    @property
    def digits(self) -> NDArray[np.int64]:
        return np.ones(self.exponents.size, np.int64)

    @cached_property
    def scales(self) -> NDArray[np.float32]:
        """Integers per unit of value, `(blocks,)`."""
        least = np.int32(block_floating_point.smallest_exponent(self.workers))
        return block_floating_point.scales_of(np.maximum(self.exponents, least), self.workers)

    def encode(self, values: Gradient, starts: NDArray[np.int64], group_blocks: int, words: Words) -> None:
        # Groups do not matter for single words.
        block_floating_point.quantize(values, starts, self.scales, words)

    def decode(self, words: Words, starts: NDArray[np.int64], group_blocks: int, values: Gradient) -> int:
        """Multiply by steps; no sum is infinite."""
        block_floating_point.dequantize(words, starts, self.scales, values)
        return 0

    def part(self, first_block: int, last_block: int) -> AgreedExponents:
        return AgreedExponents(self.exponents[first_block:last_block], self.workers)

    def covers(self, actual: AgreedExponents) -> NDArray[np.bool_]:
        """Blocks whose steps are neither too fine nor much too coarse, and blocks of zeros."""
        is_empty = actual.exponents == block_floating_point.empty_exponent(self.workers)
        excess = self.exponents - actual.exponents
        return np.asarray(is_empty | ((excess >= 0) & (excess <= SPARE_BITS)))


@dataclass(frozen=True)
class BlockExponent:
    """Block floating point: values become integer multiples of their block's agreed step.

    Here the codec's own messages agree on the exponents. Those of a scaled message are agreed on in two
    steps (`codec_driver.py`), or by a switch ahead of the values (`lead` in `sim/engine/switchml_stream.py`).
    """

    merge: ClassVar[Merge] = Merge.ADD
    dtype: ClassVar[type[np.generic]] = np.int32
    label: ClassVar[str] = "exponents"

    block_elements: int

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        """Announce one exponent per block."""
        words = block_floating_point.announced_exponents(nonzeros, round.workers)
        return (Message(words, Merge.MAX, self.label, Work(nonzeros.values.nbytes, words.nbytes)),)

    def agree(
        self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round
    ) -> AgreedExponents:
        """Take the largest exponents."""
        limit = block_floating_point.largest_exponent(round.workers)
        check_maxima("exponent", sent[0].words, merged[0].words, limit)
        return AgreedExponents(merged[0].words, round.workers)

    def forecast(self, history: Sequence[AgreedExponents]) -> AgreedExponents:
        """One more than the largest exponent so far; for empty blocks, than that of their neighbours."""
        workers = history[-1].workers
        empty = block_floating_point.empty_exponent(workers)
        largest = largest_so_far([agreed.exponents for agreed in history], empty)
        raised = np.minimum(largest + np.int32(1), np.int32(block_floating_point.largest_exponent(workers)))
        return AgreedExponents(np.where(largest == empty, largest, raised), workers)

    def record(self, agreed: AgreedExponents) -> NDArray[np.int32]:
        return agreed.exponents

    def recall(self, words: NDArray[np.int32], workers: int) -> AgreedExponents:
        return AgreedExponents(words, workers)

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        return block_floating_point.error_bound(
            gradients, self.block_elements, SPARE_BITS if is_forecast else 0
        )


Values = Literal["block_exponent", "float32", "exact"]
Starts = NDArray[np.int64]  # (blocks + 1,)


class Agreed(Protocol):
    """The agreement of all workers on a round's numbers."""

    @property
    def digits(self) -> NDArray[np.int64]:
        # Words per value, `(blocks,)`.
        ...

    def encode(self, values: Gradient, starts: Starts, group_blocks: int, words: Words) -> None:
        # Writes as many words as `word_starts` says.
        ...

    def decode(self, words: Words, starts: Starts, group_blocks: int, values: Gradient) -> int:
        """Write the values of merged words; return the number of finite sums that are infinite in float32."""

    def part(self, first_block: int, last_block: int) -> Self:
        # `last_block` itself is left out.
        ...

    def covers(self, actual: Self) -> NDArray[np.bool_]:
        """Whether words made with this forecast are right for the actual numbers, `(blocks,)`.

        Words of blocks that are not covered are meaningless.
        """


A = TypeVar("A", bound=Agreed)


class NumberFormat(Protocol[A]):
    """A number format, without state."""

    merge: ClassVar[Merge]
    dtype: ClassVar[type[np.generic]]
    label: ClassVar[str]
    """Label of the message that it announces, if any."""

    @property
    def block_elements(self) -> int: ...

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        """The message for the agreement, merged by MAX; or none.

        Elements that `nonzeros` omits must be zero.

        Raises
        ------
        EncodeError
            An element is out of the format's range.
        """

    def agree(self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round) -> A:
        """Make the agreement from the merged announcements; `sent` are this worker's.

        Raises
        ------
        DecodeError
            The merged announcements contradict the sent ones.
        """

    def forecast(self, history: Sequence[A]) -> A:
        # From at least one earlier round of the bucket, for its next.
        ...

    def record(self, agreed: A) -> NDArray[np.int32]: ...

    def recall(self, words: NDArray[np.int32], workers: int) -> A: ...

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound: ...


def number_format(values: Values, block_elements: int) -> NumberFormat[Any]:
    formats: dict[Values, Callable[[int], NumberFormat[Any]]] = {
        "block_exponent": BlockExponent,
        "float32": Float32,
        "exact": Exact,
    }
    return formats[values](block_elements)


def number_merges(values: Values) -> frozenset[Merge]:
    return frozenset({Merge.FLOAT_ADD}) if values == "float32" else frozenset({Merge.MAX, Merge.ADD})


def number_promise(values: Values) -> Promise:
    return Promise.EXACT if values == "exact" else Promise.BOUNDED


def word_starts(agreed: Agreed, starts: Starts, group_blocks: int) -> NDArray[np.int64]:
    """Start of each group's words, and the number of words as the last: `(groups + 1,)`."""
    blocks = agreed.digits.size
    if blocks == 0:
        return np.zeros(1, np.int64)
    firsts = np.arange(0, blocks, group_blocks)
    members = np.diff(np.append(starts[firsts], starts[blocks]))
    counts = members * np.maximum.reduceat(agreed.digits, firsts)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


@dataclass(frozen=True)
class AgreedNothing:
    """The empty agreement of floats."""

    blocks: int

    @property
    def digits(self) -> NDArray[np.int64]:
        return np.ones(self.blocks, np.int64)

    def encode(self, values: Gradient, starts: Starts, group_blocks: int, words: Words) -> None:
        # Groups do not matter for single words.
        np.copyto(words, values)

    def decode(self, words: Words, starts: Starts, group_blocks: int, values: Gradient) -> int:
        """Copy the sums; infinite ones come from the network and are not counted."""
        np.copyto(values, words)
        return 0

    def part(self, first_block: int, last_block: int) -> AgreedNothing:
        return AgreedNothing(last_block - first_block)

    def covers(self, actual: AgreedNothing) -> NDArray[np.bool_]:
        # Floats need no forecast.
        return np.ones(self.blocks, np.bool_)


@dataclass(frozen=True)
class Float32:
    """The values themselves; NaN and infinity propagate as in float32 addition."""

    merge: ClassVar[Merge] = Merge.FLOAT_ADD
    dtype: ClassVar[type[np.generic]] = np.float32
    label: ClassVar[str] = ""

    block_elements: int

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        return ()

    def agree(
        self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round
    ) -> AgreedNothing:
        return AgreedNothing(-(-elements // self.block_elements))

    def forecast(self, history: Sequence[AgreedNothing]) -> AgreedNothing:
        return history[-1]

    def record(self, agreed: AgreedNothing) -> NDArray[np.int32]:
        return np.array([agreed.blocks], np.int32)

    def recall(self, words: NDArray[np.int32], workers: int) -> AgreedNothing:
        return AgreedNothing(int(words[0]))

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        return FloatAddBound(len(gradients))
