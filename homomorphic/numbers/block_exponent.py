"""Block floating point on compact arrays: a float32 becomes an integer of a step its block has agreed on.

The arithmetic is that of `fixed_point`. Two things differ: a block of zeros says so, in the place of an
exponent, and steps may come from a forecast, which must be safe and may be a little coarse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import ErrorBound
from netfold.homomorphic.codec import Gradient, Merge, Merged, Message, Round, Words, Work
from netfold.homomorphic.codecs import fixed_point
from netfold.homomorphic.codecs.fixed_point import quantized, scale_of
from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.numbers.compact import Compact
from netfold.homomorphic.numbers.maxima import check_maxima, largest_so_far

SPARE_BITS = 3  # an exponent from a forecast may be this much larger than the one that turns out


@kernel
def scales_of(exponents: NDArray[np.int32], workers: int, scales: NDArray[np.float32]) -> None:
    """Write the scale of every block into `scales`."""
    for block in range(exponents.size):
        scales[block] = scale_of(exponents[block], workers)


@kernel
def quantize_members(
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
            block_words[i] = quantized(block_values[i], scale)


@kernel
def dequantize_members(
    words: NDArray[np.int32],
    starts: NDArray[np.int64],
    scales: NDArray[np.float32],
    values: NDArray[np.float32],
) -> None:
    """Write the float32 value of every merged word; they lie as in `quantize_members`."""
    for block in range(scales.size):
        first, last = starts[block] - starts[0], starts[block + 1] - starts[0]
        block_words = words[first:last]
        block_values = values[first:last]
        scale = scales[block]
        for i in range(block_words.size):
            block_values[i] = np.float32(block_words[i]) / scale


@dataclass(frozen=True)
class AgreedExponents:
    """The largest exponent of each block over all workers."""

    exponents: NDArray[np.int32]  # (blocks,); `fixed_point.empty_exponent` where all values are zero
    workers: int

    @property
    def digits(self) -> NDArray[np.int64]:
        """One word per value."""
        return np.ones(self.exponents.size, np.int64)

    @cached_property
    def scales(self) -> NDArray[np.float32]:
        """Integers per unit of value, `(blocks,)`."""
        scales = np.empty(self.exponents.size, np.float32)
        least = np.int32(fixed_point.smallest_exponent(self.workers))
        scales_of(np.maximum(self.exponents, least), self.workers, scales)
        return scales

    def encode(self, values: Gradient, starts: NDArray[np.int64], group_blocks: int, words: Words) -> None:
        """Round to steps of each block; groups make no difference to single words."""
        quantize_members(values, starts, self.scales, words)

    def decode(self, words: Words, starts: NDArray[np.int64], group_blocks: int, values: Gradient) -> int:
        """Count steps; no sum is infinite."""
        dequantize_members(words, starts, self.scales, values)
        return 0

    def part(self, first_block: int, last_block: int) -> AgreedExponents:
        """Exponents of some blocks."""
        return AgreedExponents(self.exponents[first_block:last_block], self.workers)

    def covers(self, actual: AgreedExponents) -> NDArray[np.bool_]:
        """Blocks whose steps are neither too fine nor much too coarse, and those of zeros."""
        is_empty = actual.exponents == fixed_point.empty_exponent(self.workers)
        excess = self.exponents - actual.exponents
        return np.asarray(is_empty | ((excess >= 0) & (excess <= SPARE_BITS)))


@dataclass(frozen=True)
class BlockExponent:
    """Block floating point: values become integers of a step that their block has agreed on."""

    merge: ClassVar[Merge] = Merge.ADD
    dtype: ClassVar[type[np.generic]] = np.int32
    label: ClassVar[str] = "exponents"

    block_elements: int

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        """One exponent per block."""
        exponents = fixed_point.announced_exponents(nonzeros, round.workers)
        return (Message(exponents, Merge.MAX, self.label, Work(nonzeros.values.nbytes, exponents.nbytes)),)

    def agree(
        self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round
    ) -> AgreedExponents:
        """The largest exponents."""
        limit = fixed_point.largest_exponent(round.workers)
        check_maxima("exponent", sent[0].words, merged[0].words, limit)
        return AgreedExponents(merged[0].words, round.workers)

    def forecast(self, history: Sequence[AgreedExponents]) -> AgreedExponents:
        """One more than the largest exponent so far; of its neighbours where a block was empty."""
        workers = history[-1].workers
        empty = fixed_point.empty_exponent(workers)
        largest = largest_so_far([one.exponents for one in history], empty)
        raised = np.minimum(largest + np.int32(1), np.int32(fixed_point.largest_exponent(workers)))
        return AgreedExponents(np.where(largest == empty, largest, raised), workers)

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        """That of fixed point, with steps as coarse as a forecast may make them."""
        return fixed_point.error_bound(gradients, self.block_elements, SPARE_BITS if is_forecast else 0)
