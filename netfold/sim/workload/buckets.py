"""Buckets: tensors of whole layers that are sent as one unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Tensor
from netfold.sim.workload.fusion.rule import Fusion, Partition
from netfold.sim.workload.layers import Layer, is_vector, layers_of, placed


@dataclass(frozen=True)
class Bucket:
    """A part of the gradient that is sent as one unit."""

    index: int
    name: str  # its first and last tensor
    elements: int
    ready_share: float  # share of the backward pass after which it is ready, in (0, 1]
    start: int  # offset in the gradient of all buckets, one after another, elements
    tensors: tuple[Tensor, ...] = ()  # in order, without gaps; their starts are offsets in the bucket

    @property
    def stop(self) -> int:
        """Offset just past the bucket in the gradient of all buckets, elements."""
        return self.start + self.elements


class Fused(NamedTuple):
    """The buckets of a gradient, in gradient-ready order."""

    buckets: tuple[Bucket, ...]
    members: tuple[tuple[int, ...], ...]  # tensors of each bucket, as places in the list of all tensors


def pieces_of(tensors: tuple[Tensor, ...], fusion: Fusion) -> tuple[Tensor, ...]:
    """The tensors; of a gradient that is one vector, the pieces that a rule cuts it into.

    The pieces are equal, but the last may be smaller.
    """
    if bucket_count(tensors, fusion) == 1 or not is_vector(tensors):
        return tensors
    elements = tensors[0].elements
    size = fusion.piece_elements(elements)
    starts = range(0, elements, size)
    return placed(
        Tensor(f"part{index}", (min(size, elements - start),), "") for index, start in enumerate(starts)
    )


def bucket_count(tensors: Sequence[Tensor], fusion: Fusion) -> int:
    """Number of buckets, without making them.

    Raises
    ------
    FusionError
        The rule's options do not fit these layers.
    """
    buckets = len(fusion.partition(layers_of(tensors)))
    if not is_vector(tensors):
        return buckets
    return -(-tensors[0].elements // fusion.piece_elements(tensors[0].elements))


def fuse(tensors: Sequence[Tensor], layers: Sequence[Layer], partition: Partition) -> Fused:
    """Buckets of layers in gradient-ready order: a bucket is ready when its last layer is.

    Parameters
    ----------
    tensors
        All tensors, in gradient-ready order.
    layers
        Their layers, as `layers_of` makes them.
    partition
        What a rule of fusion returned for these layers.
    """
    buckets: list[Bucket] = []
    members: list[tuple[int, ...]] = []
    start = 0
    for index, own in enumerate(sorted(partition, key=max)):
        places = tuple(place for layer in sorted(own) for place in layers[layer].members)
        found = placed(tensors[place] for place in places)
        first, last = found[0].name, found[-1].name
        name = first if len(found) == 1 else f"{first}..{last}"
        elements = sum(tensor.elements for tensor in found)
        buckets.append(Bucket(index, name, elements, layers[max(own)].ready_share, start, found))
        members.append(places)
        start += elements
    return Fused(tuple(buckets), tuple(members))


def fused(tensors: tuple[Tensor, ...], fusion: Fusion, ready_shares: Sequence[float] = ()) -> Fused:
    """Buckets of tensors by a rule; a single vector is cut into the rule's pieces.

    `ready_shares` of the tensors are as for `layers_of`; the pieces of a vector are ready when it is.

    Raises
    ------
    FusionError
        The rule's options do not fit these layers.
    """
    pieces = pieces_of(tensors, fusion)
    if len(pieces) > len(tensors):
        tensors, ready_shares = pieces, tuple(ready_shares) * len(pieces)
    layers = layers_of(tensors, ready_shares=ready_shares)
    return fuse(tensors, layers, fusion.partition(layers))


class Cutter:
    """Cuts a flat gradient `(elements,)`, in which tensors follow one another, into buckets.

    Parameters
    ----------
    tensors
        All tensors with their starts in the flat gradient, in gradient-ready order.
    members
        The tensors of each bucket, as places in that list.
    """

    def __init__(self, tensors: Sequence[Tensor], members: Sequence[Sequence[int]]) -> None:
        self._places = [_joined([tensors[place].place for place in own]) for own in members]

    @property
    def copies(self) -> bool:
        """Whether a bucket has tensors from several places, so that its gradients are copies."""
        return any(len(places) > 1 for places in self._places)

    def cut(self, flat: Gradient) -> list[Gradient]:
        """The buckets of one worker: views where its tensors are neighbours, else copies."""
        return [
            flat[places[0]] if len(places) == 1 else np.concatenate([flat[place] for place in places])
            for places in self._places
        ]


def _joined(places: Sequence[slice]) -> list[slice]:
    """Places with neighbours made one."""
    found = list(places[:1])
    for place in places[1:]:
        if place.start == found[-1].stop:
            found[-1] = slice(found[-1].start, place.stop)
        else:
            found.append(place)
    return found
