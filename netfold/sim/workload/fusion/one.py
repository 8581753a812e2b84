"""Fusion of all layers: the whole gradient is one bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from netfold.sim.workload.fusion.rule import Fusion, FusionSection, Partition
from netfold.sim.workload.layers import Layer


@dataclass(frozen=True)
class OneBucket(Fusion):
    """All layers in one bucket."""

    title: ClassVar[str] = "one bucket"

    def partition(self, layers: Sequence[Layer]) -> Partition:
        """All layers together."""
        return (tuple(range(len(layers))),)


ONE_BUCKET = OneBucket()


class OneSection(FusionSection):
    """The whole gradient is one bucket."""

    kind: Literal["one"] = "one"

    def rule(self) -> Fusion:
        """The rule."""
        return OneBucket()
