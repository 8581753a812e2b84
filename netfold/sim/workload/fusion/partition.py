"""Fusion as given: a list of buckets, each a list of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from netfold.errors import shown
from netfold.sim.workload.fusion.rule import Fusion, FusionError, FusionSection, Partition
from netfold.sim.workload.layers import Layer
from netfold.spelling import did_you_mean

_KEY = "buckets"
_SHOWN = 8  # layers in an error


@dataclass(frozen=True)
class AsGiven(Fusion):
    """The buckets that a user wrote down."""

    title: ClassVar[str] = "as listed"
    buckets: tuple[tuple[str | int, ...], ...]  # layers by name, or by number in gradient-ready order

    def partition(self, layers: Sequence[Layer]) -> Partition:
        """The buckets, with every layer once."""
        numbers = {layer.name: index for index, layer in enumerate(layers)}
        owners: dict[int, int] = {}
        for bucket, members in enumerate(self.buckets):
            for member in members:
                index = _index(member, layers, numbers)
                if index in owners:
                    raise FusionError(_KEY, _twice(layers[index], owners[index], bucket), _listed(layers))
                owners[index] = bucket
        if missing := [layer.name for index, layer in enumerate(layers) if index not in owners]:
            names = ", ".join(map(repr, missing[:_SHOWN])) + (", …" if len(missing) > _SHOWN else "")
            what = "layer" if len(missing) == 1 else "layers"
            raise FusionError(_KEY, f"{what} {names} in no bucket", "name every layer once")
        return tuple(
            tuple(sorted(index for index, owner in owners.items() if owner == bucket))
            for bucket in range(len(self.buckets))
        )


def _index(member: str | int, layers: Sequence[Layer], numbers: dict[str, int]) -> int:
    """The place of a layer that is given by name or number."""
    if isinstance(member, str):
        if member not in numbers:
            hint = did_you_mean(member, numbers) + _listed(layers)
            raise FusionError(_KEY, f"there is no layer {shown(member)}", hint)
        return numbers[member]
    if not 0 <= member < len(layers):
        raise FusionError(
            _KEY,
            f"there is no layer {member}, the last of {len(layers)} is {len(layers) - 1}",
            _listed(layers),
        )
    return member


def _twice(layer: Layer, first: int, second: int) -> str:
    where = f"twice in bucket {first}" if first == second else f"in the buckets {first} and {second}"
    return f"the layer {shown(layer.name)} is {where}"


def _listed(layers: Sequence[Layer]) -> str:
    """The layers with their numbers."""
    listed = [f"{index} is {layer.name!r}" for index, layer in enumerate(layers[:_SHOWN])]
    more = [f"and {len(layers) - _SHOWN} more"] if len(layers) > _SHOWN else []
    return f"layers, in gradient-ready order: {', '.join(listed + more)}"


def _name_or_number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"must be the name or the number of a layer, found {shown(value)}")
    return value


LayerName = Annotated[str | int, BeforeValidator(_name_or_number)]


class PartitionSection(FusionSection):
    """The buckets as listed."""

    kind: Literal["partition"] = "partition"
    buckets: Annotated[tuple[Annotated[tuple[LayerName, ...], Field(min_length=1)], ...], Field(min_length=1)]
    """The layers of each bucket, by name, or by number from 0 on in gradient-ready order; each layer once."""

    def rule(self) -> Fusion:
        """The rule."""
        return AsGiven(self.buckets)
