"""Encoders of dense values: what they agree on first, their messages, and their decoded sums.

Encoders keep no state, so one serves all workers and rounds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from netfold.homomorphic.bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.codec import Decoded, Encoder, Exchange
from netfold.homomorphic.index.members import (
    WorkerBucket,
    exchange_members,
    full_support,
    members_of,
    report_infinite,
    word_layout,
)
from netfold.homomorphic.message import Gradient, Merge, Merged, Message, Scaling, Work
from netfold.homomorphic.numbers import exponents
from netfold.homomorphic.numbers.compact import all_of, block_starts
from netfold.homomorphic.numbers.factor import factor_error_bound, factor_sums, factor_words
from netfold.homomorphic.numbers.formats import Values, number_format, number_merges
from netfold.homomorphic.round import Round


class DenseEncoder(Encoder):
    """One worker's side, with the properties that its codec reports."""

    @property
    @abstractmethod
    def merges(self) -> frozenset[Merge]:
        """Merges of its messages."""

    @property
    @abstractmethod
    def is_linear(self) -> bool:
        """Whether a round is one message that, summed over some workers, decodes to their gradients' sum."""

    @abstractmethod
    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """Largest allowed `|decoded − Σ gradients|`."""


@dataclass(frozen=True)
class FloatEncoder(DenseEncoder):
    """The gradient itself; the network adds in float32."""

    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.FLOAT_ADD})
    is_linear: ClassVar[bool] = True

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send the gradient; return the merged words, read-only because workers may share them."""
        decode_work = Work(gradient.nbytes, gradient.nbytes)
        (merged,) = yield (Message(gradient, Merge.FLOAT_ADD, "values", decode_work=decode_work),)
        decoded: Gradient = merged.words.view()
        decoded.flags.writeable = False
        return Decoded(decoded, gradient)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """Bound n − 1 float32 additions."""
        return FloatAddBound(len(gradients))


@dataclass(frozen=True)
class BlockEncoder(DenseEncoder):
    """Block floating point in one scaled message: the network agrees on the exponents (see `Scaling`)."""

    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD})
    is_linear: ClassVar[bool] = False  # agreed exponents are those of all workers

    block_elements: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send the gradient with its block exponents; return the dequantised integer sum."""
        own = exponents.block_exponents(gradient, self.block_elements, round.workers)
        (merged,) = yield (
            Message(
                gradient,
                Merge.ADD,
                "values",
                # Read once for the exponents and once to quantise.
                Work(2 * gradient.nbytes, gradient.nbytes + own.nbytes),
                Scaling(own, self.block_elements, round.workers),
                decode_work=Work(gradient.nbytes + own.nbytes, gradient.nbytes),
            ),
        )
        assert merged.exponents is not None, "the driver must return the agreed exponents of a scaled message"
        decoded = np.empty(gradient.size, np.float32)
        starts = block_starts(gradient.size, self.block_elements)
        exponents.dequantize(
            merged.words, starts, exponents.scales_of(merged.exponents, round.workers), decoded
        )
        return Decoded(decoded, gradient)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """Bound block floating point (`BlockBound`)."""
        return exponents.error_bound(gradients, self.block_elements)


@dataclass(frozen=True)
class FactorEncoder(DenseEncoder):
    """Integers by a constant factor; a network that can adds floats where they overflow."""

    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD})
    is_linear: ClassVar[bool] = True

    factor: float

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send integers, and also the floats to a network that adds those where integers overflow."""
        (merged,) = yield (
            Message(
                factor_words(gradient, self.factor, round),
                Merge.ADD,
                "values",
                Work(gradient.nbytes, gradient.nbytes),
                decode_work=Work(gradient.nbytes, gradient.nbytes),
                floats=gradient if round.takes_floats else None,
            ),
        )
        return Decoded(factor_sums(merged, self.factor), gradient)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """Bound a constant factor (`FactorBound`)."""
        return factor_error_bound(gradients, self.factor)


@dataclass(frozen=True)
class AgreedEncoder(DenseEncoder):
    """Any number format: the workers agree on its blocks first, then send all elements."""

    is_linear: ClassVar[bool] = False  # what a word means depends on all workers

    values: Values
    block_elements: int

    @property
    def merges(self) -> frozenset[Merge]:
        """The merges of the number format."""
        return number_merges(self.values)

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Agree on the numbers, sum the words, decode the sums."""
        if not gradient.size:
            return Decoded(np.zeros(0, np.float32), gradient)
        numbers = number_format(self.values, self.block_elements)
        announced = numbers.announce(all_of(gradient, self.block_elements), round)
        merged: tuple[Merged, ...] = (yield announced) if announced else ()
        agreed = numbers.agree(gradient.size, announced, merged, round)
        place = word_layout(members_of(full_support(gradient.size), self.block_elements), agreed)
        if not place.offsets[-1]:  # zeros everywhere
            return Decoded(np.zeros(gradient.size, np.float32), gradient)
        bucket = WorkerBucket(gradient, round)
        infinite = yield from exchange_members(bucket, place, numbers, "values")
        report_infinite(infinite, bucket.decoded, round)
        return Decoded(bucket.decoded, gradient)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """The bound of the number format."""
        numbers = number_format(self.values, self.block_elements)
        return numbers.error_bound(gradients, is_forecast=False)
