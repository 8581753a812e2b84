"""No fusion: each layer is a bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from netfold.sim.workload.fusion.rule import Fusion, FusionSection, Partition
from netfold.sim.workload.layers import Layer


@dataclass(frozen=True)
class NoFusion(Fusion):
    """Each layer is a bucket."""

    title: ClassVar[str] = "no fusion"

    def partition(self, layers: Sequence[Layer]) -> Partition:
        """Each layer by itself."""
        return tuple((index,) for index in range(len(layers)))


class NoneSection(FusionSection):
    """Each layer is a bucket."""

    kind: Literal["none"] = "none"

    def rule(self) -> Fusion:
        """The rule."""
        return NoFusion()
