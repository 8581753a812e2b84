"""Fusion by size, as in PyTorch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from netfold.sim.keys.fields import Size
from netfold.sim.workload.fusion.rule import Fusion, FusionSection, Partition
from netfold.sim.workload.layers import FLOAT_BYTES, Layer

DDP_BYTES = 25 << 20  # the default of DistributedDataParallel


@dataclass(frozen=True)
class BySize(Fusion):
    """Whole layers, in order, until a bucket has this size or more.

    So a large layer makes a larger bucket, and only the last bucket may be smaller, as in PyTorch's
    DistributedDataParallel (which divides between any two tensors, and limits the first bucket to 1 MiB;
    this rule does neither).
    """

    bytes: int
    title: ClassVar[str] = "by size"

    def partition(self, layers: Sequence[Layer]) -> Partition:
        """Neighbouring layers together."""
        buckets: list[list[int]] = []
        size_bytes = self.bytes  # as if a full bucket came before
        for index, layer in enumerate(layers):
            if size_bytes >= self.bytes:
                buckets.append([])
                size_bytes = 0
            buckets[-1].append(index)
            size_bytes += layer.elements * FLOAT_BYTES
        return tuple(map(tuple, buckets))

    def piece_elements(self, elements: int) -> int:
        """Elements of this size, or all."""
        return min(self._elements, elements)

    def full_elements(self, layers: Sequence[Layer]) -> int:
        """Elements of a bucket of this size, or of the whole gradient if it is smaller."""
        return self.piece_elements(sum(layer.elements for layer in layers))

    @property
    def _elements(self) -> int:
        return -(-self.bytes // FLOAT_BYTES)


class SizeSection(FusionSection):
    """Layers, in gradient-ready order, until a bucket has a size; only the last bucket may be smaller."""

    kind: Literal["size"] = "size"
    bytes: Size
    """Size from which on a bucket is full."""

    def rule(self) -> Fusion:
        """The rule."""
        return BySize(self.bytes)
