"""Exact numbers: digits that hold every bit of a block's values, so that their sum is rounded only once.

The workers agree on the bits in use, by MAX: per block the exponent above the largest magnitude, and the
negated exponent of the lowest bit set. The number of digits depends on the gradient: with eight workers,
values of one magnitude need two digits of 28 bits, bfloat16 values often one, and a tiny value next to a huge
one ten. `digits` has the kernels that cut, add and round digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import ErrorBound, RoundingBound
from netfold.homomorphic.codec import DecodeError, EncodeError
from netfold.homomorphic.message import Gradient, Merge, Merged, Message, Work
from netfold.homomorphic.numbers import digits
from netfold.homomorphic.numbers.compact import Compact
from netfold.homomorphic.numbers.digits import EMPTY_LOW, EMPTY_TOP, Int32s, Ranges
from netfold.homomorphic.numbers.maxima import check_maxima, largest_so_far
from netfold.homomorphic.numbers.refusals import not_finite
from netfold.homomorphic.round import Round

_INFINITY_BITS = 0x7F800000  # of float32; NaN is above
_TOP_MAX = 128  # all float32 are below 2**128
_LOW_MIN = -149  # all float32 are multiples of 2**−149
_SPARE_TOP_BITS = 1  # that a forecast adds at the upper end
_SPARE_LOW_BITS = 2  # and at the lower end, which depends on the smallest value and varies more


@dataclass(frozen=True)
class AgreedRanges:
    """The bits that each block's digits hold."""

    ranges: Ranges

    @property
    def digits(self) -> NDArray[np.int64]:
        """Words per value; 0 where all values are zero."""
        return self.ranges.digits

    def encode(self, values: Gradient, starts: NDArray[np.int64], group_blocks: int, words: Any) -> None:
        """Cut each value into digits."""
        digits.split_members(values, starts, group_blocks, self.ranges, words)

    def decode(self, words: Any, starts: NDArray[np.int64], group_blocks: int, values: Gradient) -> int:
        """Round each sum of digits to the nearest float32, ties to even."""
        most = int(self.digits.max(initial=0))
        scratch = (
            np.empty((most, digits.CHUNK_ELEMENTS), np.int32),
            np.empty(digits.CHUNK_ELEMENTS, np.float64),
        )
        return digits.join_members(words, starts, group_blocks, self.ranges, scratch, values)

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
        """Announce two words per block: all tops, then all negated lows.

        Raises
        ------
        EncodeError
            An element is NaN or infinite.
        """
        largest, lows = np.empty((2, nonzeros.starts.size - 1), np.int32)
        digits.block_ranges(nonzeros.values.view(np.int32), nonzeros.starts, largest, lows)
        if largest.max(initial=0) >= _INFINITY_BITS:
            raise EncodeError(not_finite(nonzeros.gradient))
        _, tops = np.frexp(largest.view(np.float32))
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
        """Tops, then lows."""
        return np.concatenate([agreed.ranges.tops, agreed.ranges.lows])

    def recall(self, words: NDArray[np.int32], workers: int) -> AgreedRanges:
        """The ranges of these tops and lows."""
        tops, lows = np.split(words, 2)
        return _agreed(tops, lows, workers)

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        """The bound of a sum that is rounded once."""
        return RoundingBound(len(gradients))


def _agreed(tops: Int32s, lows: Int32s, workers: int) -> AgreedRanges:
    """Ranges with the most bits per digit for which sums over all workers fit int32."""
    sum_bits = (workers - 1).bit_length()
    digit_bits = 31 - sum_bits
    counts = np.maximum(-((lows - tops) // digit_bits), 0).astype(np.int64)
    return AgreedRanges(Ranges(tops.astype(np.int32), lows.astype(np.int32), counts, digit_bits, sum_bits))
