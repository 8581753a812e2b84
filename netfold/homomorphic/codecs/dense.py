"""Dense gradients: words for every element. One codec, and other names for some of its settings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from netfold.homomorphic import block_floating_point
from netfold.homomorphic.block_floating_point import (
    all_of,
    block_starts,
    check_factor,
    factor_error_bound,
    factor_sums,
    factor_words,
)
from netfold.homomorphic.codec import (
    BitsPerElement,
    Carrier,
    Codec,
    Decoded,
    Encoder,
    Exchange,
    Origin,
    Promise,
)
from netfold.homomorphic.error_bounds import ErrorBound, FloatAddBound
from netfold.homomorphic.merge import WORD_BITS, Merge, Merged, Work
from netfold.homomorphic.message import Gradient, Message, Round, Scaling
from netfold.homomorphic.number_formats import Values, number_format, number_merges
from netfold.homomorphic.union_index import (
    WORD_ELEMENTS,
    WorkerBucket,
    check_block_elements,
    exchange_values,
    full_support,
    report_infinite,
    support_of,
    word_layout,
)
from netfold.kinds import register

# Encoders of dense values: what they agree on first, their messages, and their decoded sums.
#
# Encoders keep no state, so one serves all workers and rounds.


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
        return FloatAddBound(len(gradients))


@dataclass(frozen=True)
class BlockEncoder(DenseEncoder):
    """Block floating point in one scaled message: the network agrees on the exponents (see `Scaling`)."""

    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD})
    is_linear: ClassVar[bool] = False  # agreed exponents are those of all workers

    block_elements: int

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send the gradient with its block exponents; return the dequantised integer sum."""
        (block_exponents,) = round.once(
            "exponents",
            [gradient],
            [],
            lambda: (block_floating_point.block_exponents(gradient, self.block_elements, round.workers),),
        )
        (merged,) = yield (
            Message(
                gradient,
                Merge.ADD,
                "values",
                # Read once for the exponents and once to quantise.
                Work(2 * gradient.nbytes, gradient.nbytes + block_exponents.nbytes),
                Scaling(block_exponents, self.block_elements, round.workers),
                decode_work=Work(gradient.nbytes + block_exponents.nbytes, gradient.nbytes),
            ),
        )
        assert merged.exponents is not None, "the driver must return the agreed exponents of a scaled message"
        agreed, sums = merged.exponents, merged.words

        def decode() -> tuple[Gradient]:
            decoded = np.empty(gradient.size, np.float32)
            starts = block_starts(gradient.size, self.block_elements)
            block_floating_point.dequantize(
                sums, starts, block_floating_point.scales_of(agreed, round.workers), decoded
            )
            return (decoded,)

        (decoded,) = round.once("values", [sums], [agreed], decode)
        return Decoded(decoded, gradient)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        return block_floating_point.error_bound(gradients, self.block_elements)


@dataclass(frozen=True)
class FactorEncoder(DenseEncoder):
    """Integers by a constant factor; a network that can adds floats where they overflow."""

    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD})
    is_linear: ClassVar[bool] = True

    factor: float

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Send integers, and also the floats to a network that adds those where integers overflow."""
        (words,) = round.once("words", [gradient], [], lambda: (factor_words(gradient, self.factor, round),))
        (merged,) = yield (
            Message(
                words,
                Merge.ADD,
                "values",
                Work(gradient.nbytes, gradient.nbytes),
                decode_work=Work(gradient.nbytes, gradient.nbytes),
                floats=gradient if round.takes_floats else None,
            ),
        )
        is_float = np.empty(0, np.bool_) if merged.is_float is None else merged.is_float
        (decoded,) = round.once(
            "values", [merged.words], [is_float], lambda: (factor_sums(merged, self.factor),)
        )
        return Decoded(decoded, gradient)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        return factor_error_bound(gradients, self.factor)


@dataclass(frozen=True)
class AgreedEncoder(DenseEncoder):
    """Any number format: the workers agree on its blocks first, then send all elements."""

    is_linear: ClassVar[bool] = False  # what a word means depends on all workers

    values: Values
    block_elements: int

    @property
    def merges(self) -> frozenset[Merge]:
        return number_merges(self.values)

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Agree on the numbers, sum the words, decode the sums."""
        if not gradient.size:
            return Decoded(np.zeros(0, np.float32), gradient)
        numbers = number_format(self.values, self.block_elements)
        announced = numbers.announce(all_of(gradient, self.block_elements), round)
        merged: tuple[Merged, ...] = (yield announced) if announced else ()
        agreed = numbers.agree(gradient.size, announced, merged, round)
        layout = word_layout(support_of(full_support(gradient.size), self.block_elements), agreed)
        if not layout.offsets[-1]:  # zeros everywhere
            return Decoded(np.zeros(gradient.size, np.float32), gradient)
        bucket = WorkerBucket(gradient, round)
        infinite = yield from exchange_values(bucket, layout, numbers, "values")
        report_infinite(infinite, bucket.decoded, round)
        return Decoded(bucket.decoded, gradient)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        numbers = number_format(self.values, self.block_elements)
        return numbers.error_bound(gradients, is_forecast=False)


# The kinds of dense codecs: `dense`, and other names for some of its settings, with fewer options.
#
# A name and its setting send the same words, decode the same sums and reject the same values.


EXPONENT_ELEMENTS = 256  # default: the payload of SwitchML's larger packet
DIGITS_ELEMENTS = 4096

DenseValues = Literal["block_exponent", "float32", "exact", "factor"]


class Family(Codec):
    """Base of the dense kinds: each is a setting of `dense`."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}

    @property
    @abstractmethod
    def setting(self) -> Dense:
        """The setting of `dense` that this kind names."""

    @property
    def promise(self) -> Promise:
        """Exact values promise the true sum, the others a bound."""
        return Promise.EXACT if self.setting.values == "exact" else Promise.BOUNDED

    @property
    def merges(self) -> frozenset[Merge]:
        return self.setting.encoder.merges

    @property
    def is_uncompressed(self) -> bool:
        """True of float32 values."""
        return self.setting.values == "float32"

    @property
    def is_linear(self) -> bool:
        """True if the words depend on this worker only."""
        return self.setting.encoder.is_linear

    def bits_per_element(self, workers: int) -> BitsPerElement | None:
        """A word of every element, and its share of an exponent; exact values need a number that depends."""
        if self.setting.values == "exact":
            return None
        is_scaled = self.setting.values == "block_exponent"
        blocks = self.setting.block_elements or EXPONENT_ELEMENTS
        bits = WORD_BITS + (8 / blocks if is_scaled else 0)
        return BitsPerElement(bits, bits)

    def worker(self, rank: int, workers: int, seed: int) -> DenseEncoder:
        return self.setting.encoder

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        return self.setting.encoder.error_bound(gradients)


@register
@dataclass(frozen=True)
class Dense(Family):
    """Dense gradients: one word, or a few, for every element.

    values: how a value becomes words: block_exponent (one integer, as fixed_point), float32 (as none), exact
        (several integers, whose sum is the true one), factor (one integer, the same factor for all elements).
    block_elements: block_exponent: elements that share an exponent; left out, the network's unit, or 256
        without a network. exact: elements that share a number of digits, a power of two from 64 to 65536;
        left out, 4096.
    factor: factor: integers per unit of value; ATP's is 1e6.
    """

    kind: ClassVar[str] = "dense"
    origin: ClassVar[Origin] = Origin("ours", "")

    values: DenseValues = "block_exponent"
    block_elements: int | None = None
    factor: float | None = None

    def __post_init__(self) -> None:
        if self.values == "factor":
            if self.factor is None:
                raise ValueError("values is 'factor': it needs a factor, for example 1e6")
            check_factor(self.factor)
        elif self.factor is not None:
            raise ValueError(f"factor belongs to values factor, found values {self.values}; remove it")
        if self.block_elements is not None:
            self._check_block_elements(self.block_elements)

    def _check_block_elements(self, block_elements: int) -> None:
        """Reject a block size that does not fit the values."""
        if self.values == "exact":
            check_block_elements(block_elements, WORD_ELEMENTS)
        elif self.values != "block_exponent":
            raise ValueError(
                "block_elements belongs to values block_exponent and exact, "
                f"found values {self.values}; remove it"
            )
        elif block_elements < 1:
            raise ValueError(
                f"block_elements is {block_elements}: a block needs at least 1 element; "
                f"leave it out for the network's unit"
            )

    @property
    def setting(self) -> Dense:
        """Itself."""
        return self

    @property
    def encoder(self) -> DenseEncoder:
        """The encoder of these values."""
        match self.values:
            case "float32":
                return FloatEncoder()
            case "block_exponent":
                return BlockEncoder(self.block_elements or EXPONENT_ELEMENTS)
            case "exact":
                return AgreedEncoder("exact", self.block_elements or DIGITS_ELEMENTS)
            case "factor":
                assert self.factor is not None, "checked when the codec was made"
                return FactorEncoder(self.factor)

    def carried_by(self, carrier: Carrier) -> Dense:
        """Fill in the network's unit as the block of exponents if that is left out."""
        if self.values != "block_exponent":
            return self
        return replace(self, block_elements=self.block_elements or carrier.unit_elements)
