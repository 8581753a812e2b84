"""The kinds of dense codecs: `dense`, and other names for some of its settings, with fewer options.

A name and its setting send the same words, decode the same sums and reject the same values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from netfold.homomorphic.bounds import ErrorBound
from netfold.homomorphic.carrier import Carrier
from netfold.homomorphic.codec import Codec, Origin, Promise, register
from netfold.homomorphic.codecs.dense.encoders import (
    AgreedEncoder,
    BlockEncoder,
    DenseEncoder,
    FactorEncoder,
    FloatEncoder,
)
from netfold.homomorphic.index.bits import WORD_ELEMENTS
from netfold.homomorphic.index.membership import check_block_elements
from netfold.homomorphic.message import Gradient, Merge
from netfold.homomorphic.numbers.factor import check_factor

EXPONENT_ELEMENTS = 256  # default: the payload of SwitchML's larger packet
_DIGITS_ELEMENTS = 4096

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
        """The merges of the encoder."""
        return self.setting.encoder.merges

    @property
    def is_uncompressed(self) -> bool:
        """True of float32 values."""
        return self.setting.values == "float32"

    @property
    def is_linear(self) -> bool:
        """True if the words depend on this worker only."""
        return self.setting.encoder.is_linear

    def worker(self, rank: int, workers: int, seed: int) -> DenseEncoder:
        """The encoder, which keeps no state."""
        return self.setting.encoder

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """The bound of the encoder."""
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
                return AgreedEncoder("exact", self.block_elements or _DIGITS_ELEMENTS)
            case "factor":
                assert self.factor is not None, "checked when the codec was made"
                return FactorEncoder(self.factor)

    def carried_by(self, carrier: Carrier) -> Dense:
        """Fill in the network's unit as the block of exponents if that is left out."""
        if self.values != "block_exponent":
            return self
        return replace(self, block_elements=self.block_elements or carrier.unit_elements)


@register
@dataclass(frozen=True)
class Uncompressed(Family):
    """Dense float32 gradients; the sum depends on the order of the network's additions. No options."""

    kind: ClassVar[str] = "none"
    origin: ClassVar[Origin] = Origin("published", "the baseline of all")

    @property
    def setting(self) -> Dense:
        """Values float32."""
        return Dense("float32")


@register
@dataclass(frozen=True)
class FixedPoint(Family):
    """Dense gradients as int32 words with an agreed exponent per block, or with a constant factor.

    block_elements: elements that share an exponent; left out, the network's unit (a UDP packet, an RDMA
    message), or 256 without a network.
    factor: integers per unit of value, the same for all elements, instead of exponents; ATP's is 1e6.
    """

    kind: ClassVar[str] = "fixed_point"
    origin: ClassVar[Origin] = Origin(
        "published", "SwitchML: Sapio et al., NSDI 2021; with a factor, ATP: Lao et al., NSDI 2021"
    )
    settings: ClassVar[tuple[str, ...]] = ("", "factor=1e6")

    block_elements: int | None = None
    factor: float | None = None

    def __post_init__(self) -> None:
        setting = self.setting  # rejects values out of range
        if setting.factor is not None and self.block_elements is not None:
            raise ValueError(
                "factor and block_elements exclude each other: with a factor no block has an exponent; "
                "leave one of them out"
            )

    @property
    def setting(self) -> Dense:
        """Values factor, or block_exponent."""
        if self.factor is not None:
            return Dense("factor", factor=self.factor)
        return Dense("block_exponent", self.block_elements)

    def carried_by(self, carrier: Carrier) -> FixedPoint:
        """Fill in the block as its setting does."""
        return replace(self, block_elements=self.setting.carried_by(carrier).block_elements)


@register
@dataclass(frozen=True)
class DenseExact(Family):
    """Dense gradients whose decoded sums are the true sums, correctly rounded.

    block_elements: elements that share a number of digits; a power of two from 64 to 65536.
    """

    kind: ClassVar[str] = "exact"
    origin: ClassVar[Origin] = Origin("ours", "")

    block_elements: int = _DIGITS_ELEMENTS

    def __post_init__(self) -> None:
        _ = self.setting  # rejects values out of range

    @property
    def setting(self) -> Dense:
        """Values exact."""
        return Dense("exact", self.block_elements)
