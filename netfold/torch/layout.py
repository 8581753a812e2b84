"""The buckets that codecs see: whole layers of a model, the same in every step.

DDP forms its buckets anew after the first steps, and puts tensors of one layer into two buckets. A codec
remembers things by bucket, and a layer must not be split. So codecs have buckets of their own, by the rule
of `fusion: {kind: size}` in a scenario: whole layers, the last one of the model first, as backward meets
them. What DDP hands in is put into them parameter by parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from netfold.errors import DataError
from netfold.homomorphic.round import Tensor
from netfold.sim.workload.fusion import Bucket, BySize, fused
from netfold.sim.workload.layers import named_tensors, placed, unnamed_tensors

_TENSORS_SHOWN = 3


class Place(NamedTuple):
    """Where a parameter is."""

    bucket: int
    tensor: Tensor  # its start is the offset in the bucket


@dataclass(frozen=True)
class Layout:
    """The buckets of a model, and the place of each of its parameters."""

    buckets: tuple[Bucket, ...]
    places: Mapping[torch.Tensor, Place]

    @property
    def described(self) -> list[list[str]]:
        """The tensors of each bucket, in words: what a saved state must have in common with it."""
        return [[_in_words(tensor) for tensor in bucket.tensors] for bucket in self.buckets]


def named(parameters: Iterable[tuple[str, torch.Tensor]]) -> dict[torch.Tensor, str]:
    """The names of parameters, in their order, from `Module.named_parameters()`.

    Raises
    ------
    DataError
        It is something else.
    """
    try:
        found = {parameter: name for name, parameter in parameters}
    except (TypeError, ValueError):
        found = {}
    if not found or not all(isinstance(key, torch.Tensor) and isinstance(found[key], str) for key in found):
        raise DataError(
            "`parameters` has no names and parameters",
            "give the model's own: parameters=model.named_parameters()",
        )
    return found


def make_layout(
    parameters: Sequence[torch.Tensor], names: Mapping[torch.Tensor, str], bucket_bytes: int
) -> Layout:
    """The buckets of a model.

    Parameters
    ----------
    parameters
        All that have gradients, in the order of the model.
    names
        Of these and possibly others; their order counts. Empty: unknown. Then a matrix begins a layer, and
        the vectors after it belong to it.
    bucket_bytes
        Size from which on a bucket is full, counted in float32.

    Raises
    ------
    DataError
        A parameter has no name.
    """
    if names:
        if missing := [tuple(one.shape) for one in parameters if one not in names]:
            raise DataError(
                f"the model has a parameter of shape {missing[0]} that `parameters` does not name",
                "give the names of the model that DistributedDataParallel wraps, and a state to each model",
            )
        wanted = set(parameters)
        parameters = [one for one in names if one in wanted]
        tensors = named_tensors([names[one] for one in parameters], [tuple(one.shape) for one in parameters])
    else:
        tensors = unnamed_tensors([tuple(one.shape) for one in parameters])
    backward = tuple(reversed(tensors))
    buckets, members = fused(placed(backward), BySize(bucket_bytes))
    owners = list(reversed(parameters))
    places = {
        owners[member]: Place(bucket.index, tensor)
        for bucket, own in zip(buckets, members, strict=True)
        for member, tensor in zip(own, bucket.tensors, strict=True)
    }
    return Layout(buckets, places)


def different(own: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> str:
    """Where the tensors of two layouts differ, in words; empty if nowhere."""
    for index in range(max(len(own), len(other))):
        one, two = (_outline(each[index]) if index < len(each) else "" for each in (own, other))
        if list(own[index : index + 1]) != list(other[index : index + 1]):
            return f"bucket {index} has {two or 'no tensors'} there, {one or 'no tensors'} here"
    return ""


def _outline(tensors: Sequence[str]) -> str:
    more = len(tensors) - _TENSORS_SHOWN
    return ", ".join(tensors[:_TENSORS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _in_words(tensor: Tensor) -> str:
    return f"{tensor.name} {'x'.join(map(str, tensor.shape)) or 'scalar'}"
