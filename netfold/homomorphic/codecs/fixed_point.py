"""Codec `fixed_point`: dense gradients as integers, as SwitchML and ATP send them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from netfold.homomorphic.codec import Carrier, Origin
from netfold.homomorphic.codecs.dense import Dense, Family
from netfold.kinds import register


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
