"""Fusion: which layers' gradients are sent together, as one bucket.

A rule is a `Fusion`: its fields are its keys in a scenario, and it turns layers into a partition. Rules that
weigh what buckets cost are in `fusion_rules.py`; all other code knows no rule by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field

from netfold.errors import OptionError, did_you_mean, shown
from netfold.homomorphic.message import Gradient, Tensor
from netfold.kinds import family, register
from netfold.sim.keys import ByKind, Option, Size
from netfold.sim.workload.layers import FLOAT_BYTES, Layer, is_vector, layers_of, place_tensors
from netfold.units import SIZE

# The contract of a rule of fusion.


Partition = tuple[tuple[int, ...], ...]
"""For each bucket, the places of its layers in the list of layers."""


@family("fusion_rules", "netfold.sim.workload.fusion_rules")
class Fusion(Option, ABC):
    """A rule that divides layers into buckets: a frozen dataclass whose fields are its keys.

    A rule that weighs the costs of encoding and sending is a `Weighing` (`fusion_rules.py`).
    """

    kind: ClassVar[str]
    title: ClassVar[str] = "a rule of its own"  # what the report calls it

    @abstractmethod
    def partition(self, layers: Sequence[Layer]) -> Partition:
        """Divide layers, given in gradient-ready order; every layer is in exactly one bucket.

        A bucket may hold any layers: it is ready when its last one is. The order of buckets does not matter.

        Raises
        ------
        OptionError
            The rule's options do not fit these layers, or it has not got what it weighs.
        """

    @property
    def outline(self) -> Fusion:
        # A rule with as many buckets as this one may make, and a full one as large, for estimates.
        return self

    def piece_elements(self, elements: int) -> int:
        # The gradient is one vector, of whose layers nothing is known.
        return elements

    def full_elements(self, layers: Sequence[Layer]) -> int:
        # The largest bucket, unless the rule has a size of its own.
        return max(sum(layers[index].elements for index in members) for members in self.partition(layers))


@register
@dataclass(frozen=True)
class NoFusion(Fusion):
    """Each layer is a bucket."""

    kind: ClassVar[str] = "none"
    title: ClassVar[str] = "no fusion"

    def partition(self, layers: Sequence[Layer]) -> Partition:
        return tuple((index,) for index in range(len(layers)))


@register
@dataclass(frozen=True)
class OneBucket(Fusion):
    """The whole gradient is one bucket."""

    kind: ClassVar[str] = "one"
    title: ClassVar[str] = "one bucket"

    def partition(self, layers: Sequence[Layer]) -> Partition:
        return (tuple(range(len(layers))),)


ONE_BUCKET = OneBucket()


# Fusion by size, as in PyTorch's DistributedDataParallel.


DDP_BYTES = 25 << 20  # the default of DistributedDataParallel


@register
@dataclass(frozen=True)
class BySize(Fusion):
    """Layers, in gradient-ready order, until a bucket has a size; only the last bucket may be smaller.

    So a large layer makes a larger bucket, as in PyTorch's DistributedDataParallel (which divides between any
    two tensors, and limits the first bucket to 1 MiB; this rule does neither).
    """

    kind: ClassVar[str] = "size"
    title: ClassVar[str] = "by size"
    bytes: Size
    """Size from which on a bucket is full."""

    def partition(self, layers: Sequence[Layer]) -> Partition:
        """Neighbouring layers together."""
        buckets: list[list[int]] = []
        size_bytes = self.bytes  # the first layer begins a bucket, as after a full one
        for index, layer in enumerate(layers):
            if size_bytes >= self.bytes:
                buckets.append([])
                size_bytes = 0
            buckets[-1].append(index)
            size_bytes += layer.elements * FLOAT_BYTES
        return tuple(map(tuple, buckets))

    def piece_elements(self, elements: int) -> int:
        return min(self._elements, elements)

    def full_elements(self, layers: Sequence[Layer]) -> int:
        return self.piece_elements(sum(layer.elements for layer in layers))

    @property
    def _elements(self) -> int:
        return -(-self.bytes // FLOAT_BYTES)


# Fusion as given: a list of buckets, each a list of layers.


_KEY = "buckets"
_SHOWN = 8  # layers in an error


def _name_or_number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"must be the name or the number of a layer, found {shown(value)}")
    return value


LayerName = Annotated[str | int, BeforeValidator(_name_or_number)]


@register
@dataclass(frozen=True)
class AsGiven(Fusion):
    """The buckets as listed."""

    kind: ClassVar[str] = "partition"
    title: ClassVar[str] = "as listed"
    buckets: Annotated[tuple[Annotated[tuple[LayerName, ...], Field(min_length=1)], ...], Field(min_length=1)]
    """The layers of each bucket, by name, or by number from 0 on in gradient-ready order; each layer once."""

    def partition(self, layers: Sequence[Layer]) -> Partition:
        """The buckets, with every layer once."""
        numbers = {layer.name: index for index, layer in enumerate(layers)}
        owners: dict[int, int] = {}
        for bucket, members in enumerate(self.buckets):
            for member in members:
                index = _index(member, layers, numbers)
                if index in owners:
                    raise OptionError(_KEY, _twice(layers[index], owners[index], bucket), _list(layers))
                owners[index] = bucket
        if missing := [layer.name for index, layer in enumerate(layers) if index not in owners]:
            names = ", ".join(map(repr, missing[:_SHOWN])) + (", …" if len(missing) > _SHOWN else "")
            what = "layer" if len(missing) == 1 else "layers"
            raise OptionError(_KEY, f"{what} {names} in no bucket", "name every layer once")
        return tuple(
            tuple(sorted(index for index, owner in owners.items() if owner == bucket))
            for bucket in range(len(self.buckets))
        )


def _index(member: str | int, layers: Sequence[Layer], numbers: dict[str, int]) -> int:
    """The place of a layer that is given by name or number."""
    if isinstance(member, str):
        if member not in numbers:
            hint = did_you_mean(member, numbers) + _list(layers)
            raise OptionError(_KEY, f"there is no layer {shown(member)}", hint)
        return numbers[member]
    if not 0 <= member < len(layers):
        raise OptionError(
            _KEY,
            f"there is no layer {member}, the last of {len(layers)} is {len(layers) - 1}",
            _list(layers),
        )
    return member


def _twice(layer: Layer, first: int, second: int) -> str:
    where = f"twice in bucket {first}" if first == second else f"in the buckets {first} and {second}"
    return f"the layer {shown(layer.name)} is {where}"


def _list(layers: Sequence[Layer]) -> str:
    listed = [f"{index} is {layer.name!r}" for index, layer in enumerate(layers[:_SHOWN])]
    more = [f"and {len(layers) - _SHOWN} more"] if len(layers) > _SHOWN else []
    return f"layers, in gradient-ready order: {', '.join(listed + more)}"


# The keys `fusion` and `bucket`.


def _only_without_fusion(size_bytes: int | None) -> int | None:
    """Refuse the short form beside the long one; loading writes it out where it is alone."""
    if size_bytes is not None:
        size = SIZE.format(size_bytes)
        raise ValueError(
            f"bucket and fusion are both given\nbucket: {size} is short for fusion: {{kind: size, "
            f"bytes: {size}}}: leave out one"
        )
    return size_bytes


AnyFusion = Annotated[Fusion, ByKind()]
ShortFusion = Annotated[Size | None, AfterValidator(_only_without_fusion)]


# Buckets: tensors of whole layers that are sent as one unit.


@dataclass(frozen=True)
class Bucket:
    """A part of the gradient that is sent as one unit."""

    index: int
    name: str  # its first and last tensor
    elements: int
    ready_share: float  # share of the backward pass after which it is ready, in (0, 1]
    start: int  # offset in the gradient of all buckets, one after another, elements
    tensors: tuple[Tensor, ...] = ()
    """Tensors in order, without gaps; their starts are offsets in the bucket."""

    @property
    def stop(self) -> int:
        return self.start + self.elements


Fused = tuple[tuple[Bucket, ...], tuple[tuple[int, ...], ...]]
"""The buckets of a gradient, in gradient-ready order, and their tensors as places in the list of all."""


def pieces_of(tensors: tuple[Tensor, ...], fusion: Fusion) -> tuple[Tensor, ...]:
    """The tensors; of a gradient that is one vector, the pieces that a rule cuts it into.

    The pieces are equal, but the last may be smaller.
    """
    if bucket_count(tensors, fusion) == 1 or not is_vector(tensors):
        return tensors
    elements = tensors[0].elements
    size = fusion.piece_elements(elements)
    starts = range(0, elements, size)
    return place_tensors(
        Tensor(f"part{index}", (min(size, elements - start),), "") for index, start in enumerate(starts)
    )


def bucket_count(tensors: Sequence[Tensor], fusion: Fusion) -> int:
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
    for index, group in enumerate(sorted(partition, key=max)):
        places = tuple(tensor_index for layer in sorted(group) for tensor_index in layers[layer].members)
        bucket_tensors = place_tensors(tensors[tensor_index] for tensor_index in places)
        first, last = bucket_tensors[0].name, bucket_tensors[-1].name
        name = first if len(bucket_tensors) == 1 else f"{first}..{last}"
        elements = sum(tensor.elements for tensor in bucket_tensors)
        buckets.append(Bucket(index, name, elements, layers[max(group)].ready_share, start, bucket_tensors))
        members.append(places)
        start += elements
    return tuple(buckets), tuple(members)


def fuse_tensors(tensors: tuple[Tensor, ...], fusion: Fusion, ready_shares: Sequence[float] = ()) -> Fused:
    pieces = pieces_of(tensors, fusion)
    # The pieces of a vector are ready when it is.
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
        self._places = [_join([tensors[index].place for index in bucket]) for bucket in members]

    @property
    def copies(self) -> bool:
        # Gradients are copies where a bucket has tensors from several places.
        return any(len(places) > 1 for places in self._places)

    def cut(self, flat: Gradient) -> list[Gradient]:
        """The buckets of one worker: views where its tensors are neighbours, else copies."""
        return [
            flat[places[0]] if len(places) == 1 else np.concatenate([flat[span] for span in places])
            for places in self._places
        ]


def _join(places: Sequence[slice]) -> list[slice]:
    """Places with neighbours made one."""
    joined = list(places[:1])
    for span in places[1:]:
        if span.start == joined[-1].stop:
            joined[-1] = slice(joined[-1].start, span.stop)
        else:
            joined.append(span)
    return joined
