"""Codec `exact`: dense gradients whose sums are the true ones, correctly rounded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from netfold.homomorphic.codec import Origin
from netfold.homomorphic.codecs.dense import DIGITS_ELEMENTS, Dense, Family
from netfold.kinds import register


@register
@dataclass(frozen=True)
class DenseExact(Family):
    """Dense gradients whose decoded sums are the true sums, correctly rounded.

    block_elements: elements that share a number of digits; a power of two from 64 to 65536.
    """

    kind: ClassVar[str] = "exact"
    origin: ClassVar[Origin] = Origin("ours", "")

    block_elements: int = DIGITS_ELEMENTS

    def __post_init__(self) -> None:
        _ = self.setting  # rejects values out of range

    @property
    def setting(self) -> Dense:
        """Values exact."""
        return Dense("exact", self.block_elements)
