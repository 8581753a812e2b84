"""Block floating point on compact arrays: a float32 becomes an integer multiple of its block's agreed step.

The arithmetic is in `exponents`. A block of zeros announces a special exponent. Steps may come from a
forecast: they must be safe and may be a little too coarse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import ErrorBound
from netfold.homomorphic.message import Gradient, Merge, Merged, Message, Words, Work
from netfold.homomorphic.numbers import exponents
from netfold.homomorphic.numbers.compact import Compact
from netfold.homomorphic.numbers.maxima import check_maxima, largest_so_far
from netfold.homomorphic.round import Round

SPARE_BITS = 3  # a forecast exponent may exceed the actual one by this much


@dataclass(frozen=True)
class AgreedExponents:
    """The largest exponent of each block over all workers."""

    exponents: NDArray[np.int32]  # (blocks,); `exponents.empty_exponent` where all values are zero
    workers: int

    @property
    def digits(self) -> NDArray[np.int64]:
        """One word per value."""
        return np.ones(self.exponents.size, np.int64)

    @cached_property
    def scales(self) -> NDArray[np.float32]:
        """Integers per unit of value, `(blocks,)`."""
        least = np.int32(exponents.smallest_exponent(self.workers))
        return exponents.scales_of(np.maximum(self.exponents, least), self.workers)

    def encode(self, values: Gradient, starts: NDArray[np.int64], group_blocks: int, words: Words) -> None:
        """Round to steps of each block; groups do not matter for single words."""
        exponents.quantize(values, starts, self.scales, words)

    def decode(self, words: Words, starts: NDArray[np.int64], group_blocks: int, values: Gradient) -> int:
        """Multiply by steps; no sum is infinite."""
        exponents.dequantize(words, starts, self.scales, values)
        return 0

    def part(self, first_block: int, last_block: int) -> AgreedExponents:
        """The exponents of a range of blocks."""
        return AgreedExponents(self.exponents[first_block:last_block], self.workers)

    def covers(self, actual: AgreedExponents) -> NDArray[np.bool_]:
        """Blocks whose steps are neither too fine nor much too coarse, and blocks of zeros."""
        is_empty = actual.exponents == exponents.empty_exponent(self.workers)
        excess = self.exponents - actual.exponents
        return np.asarray(is_empty | ((excess >= 0) & (excess <= SPARE_BITS)))


@dataclass(frozen=True)
class BlockExponent:
    """Block floating point: values become integer multiples of their block's agreed step."""

    merge: ClassVar[Merge] = Merge.ADD
    dtype: ClassVar[type[np.generic]] = np.int32
    label: ClassVar[str] = "exponents"

    block_elements: int

    def announce(self, nonzeros: Compact, round: Round) -> tuple[Message, ...]:
        """Announce one exponent per block."""
        words = exponents.announced_exponents(nonzeros, round.workers)
        return (Message(words, Merge.MAX, self.label, Work(nonzeros.values.nbytes, words.nbytes)),)

    def agree(
        self, elements: int, sent: Sequence[Message], merged: Sequence[Merged], round: Round
    ) -> AgreedExponents:
        """Take the largest exponents."""
        limit = exponents.largest_exponent(round.workers)
        check_maxima("exponent", sent[0].words, merged[0].words, limit)
        return AgreedExponents(merged[0].words, round.workers)

    def forecast(self, history: Sequence[AgreedExponents]) -> AgreedExponents:
        """One more than the largest exponent so far; for empty blocks, than that of their neighbours."""
        workers = history[-1].workers
        empty = exponents.empty_exponent(workers)
        largest = largest_so_far([one.exponents for one in history], empty)
        raised = np.minimum(largest + np.int32(1), np.int32(exponents.largest_exponent(workers)))
        return AgreedExponents(np.where(largest == empty, largest, raised), workers)

    def record(self, agreed: AgreedExponents) -> NDArray[np.int32]:
        """The exponents."""
        return agreed.exponents

    def recall(self, words: NDArray[np.int32], workers: int) -> AgreedExponents:
        """These exponents."""
        return AgreedExponents(words, workers)

    def error_bound(self, gradients: Sequence[Gradient], is_forecast: bool) -> ErrorBound:
        """The bound of fixed point, with the coarsest steps of a forecast."""
        return exponents.error_bound(gradients, self.block_elements, SPARE_BITS if is_forecast else 0)
