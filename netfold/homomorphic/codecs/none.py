"""Codec `none`: dense float32 gradients, the baseline of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from netfold.homomorphic.codec import Origin
from netfold.homomorphic.codecs.dense import Dense, Family
from netfold.kinds import register


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
