"""The protocol of workloads: a gradient per step and worker, in buckets in the order they become ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

FLOAT_BYTES = 4

Gradient = NDArray[np.float32]


@dataclass(frozen=True)
class Bucket:
    """A slice of the flat gradient that is sent as one unit."""

    index: int
    name: str  # its first and last tensor
    elements: int
    ready_share: float  # share of the backward pass after which it is ready, in (0, 1]
    start: int  # offset in the flat gradient, elements

    @property
    def stop(self) -> int:
        """Offset just past the bucket in the flat gradient, elements."""
        return self.start + self.elements


@dataclass(frozen=True)
class StepCost:
    """Arithmetic and memory traffic of one step of one worker, which a device turns into time."""

    forward_flops: int = 0
    backward_flops: int = 0
    forward_bytes: int = 0
    backward_bytes: int = 0


class Workload(Protocol):
    """Gradients of `workers` workers, step after step, and the use of their sum."""

    @property
    def workers(self) -> int:
        """Number of workers."""
        ...

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Slices that cover the flat gradient without gap, in gradient-ready order."""
        ...

    @property
    def cost(self) -> StepCost:
        """Work of one step of one worker."""
        ...

    @property
    def loss(self) -> float | None:
        """Mean over workers of the last `gradients()`; None if nothing is trained."""
        ...

    def gradients(self, step: int) -> list[list[Gradient]]:
        """Gradients as `[worker][bucket]`, 1-D and contiguous.

        The arrays belong to the workload: the caller must not write to them, and the call for another step
        overwrites them.
        """
        ...

    def restart(self) -> None:
        """Return to the state before the first step, for another run of the same steps."""
        ...

    def apply(self, step: int, sums: Sequence[Gradient]) -> None:
        """Update the weights by -learning_rate · sum / workers; `sums` has one array per bucket."""
        ...


class Untrained:
    """The part of a `Workload` without training that does not depend on its gradients."""

    def __init__(self, parts: Sequence[GradientPart], bucket_bytes: int | None, workers: int) -> None:
        elements = sum(part.elements for part in parts)
        if len(parts) == 1 and bucket_bytes is not None:  # a single array is cut into equal pieces
            size = -(-bucket_bytes // FLOAT_BYTES)
            starts = range(0, elements, size)
            parts = [
                GradientPart(f"part{index}", min(size, elements - start))
                for index, start in enumerate(starts)
            ]
        self._workers = workers
        self._buckets = make_buckets(parts, bucket_bytes or elements * FLOAT_BYTES)

    @property
    def workers(self) -> int:
        """How many workers take part."""
        return self._workers

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """Equal slices of a single array (the last may be smaller), else whole tensors."""
        return self._buckets

    @property
    def cost(self) -> StepCost:
        """Nothing: no model computes these gradients."""
        return StepCost()

    @property
    def loss(self) -> float | None:
        """None: nothing is trained."""
        return None

    def restart(self) -> None:
        """Do nothing: the gradients of a step depend only on its number."""

    def apply(self, step: int, sums: Sequence[Gradient]) -> None:
        """Do nothing: there are no weights."""


class GradientPart(NamedTuple):
    """A named part of the gradient that is never split between buckets."""

    name: str
    elements: int


def group(parts: Sequence[GradientPart], bucket_bytes: int) -> list[list[int]]:
    """Indices of the parts of each bucket: whole parts, in order, until it has `bucket_bytes` or more.

    So a large part makes a larger bucket, and only the last bucket may be smaller, as in PyTorch's
    DistributedDataParallel (which also limits the first bucket to 1 MiB; this function does not).
    """
    groups: list[list[int]] = []
    size_bytes = bucket_bytes  # as if a full bucket came before
    for index, part in enumerate(parts):
        if size_bytes >= bucket_bytes:
            groups.append([])
            size_bytes = 0
        groups[-1].append(index)
        size_bytes += part.elements * FLOAT_BYTES
    return groups


def make_buckets(parts: Sequence[GradientPart], bucket_bytes: int) -> tuple[Bucket, ...]:
    """Buckets over parts given in gradient-ready order.

    `ready_share` is the share of gradient elements up to the bucket's end. It approximates the backward pass
    by a constant rate of gradient bytes (embedding tables really take less time per byte, convolutions more).
    """
    elements_total = sum(part.elements for part in parts)
    buckets: list[Bucket] = []
    start = 0
    for index, members in enumerate(group(parts, bucket_bytes)):
        first, last = parts[members[0]].name, parts[members[-1]].name
        elements = sum(parts[member].elements for member in members)
        name = first if len(members) == 1 else f"{first}..{last}"
        buckets.append(Bucket(index, name, elements, (start + elements) / elements_total, start))
        start += elements
    return tuple(buckets)


def split(flat: Gradient, buckets: Sequence[Bucket]) -> list[Gradient]:
    """Views of one worker's flat gradient `(elements,)`, one per bucket."""
    return [flat[bucket.start : bucket.stop] for bucket in buckets]
