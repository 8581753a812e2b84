"""From DDP's buckets to those of codecs, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from netfold.errors import DataError, RunError
from netfold.homomorphic.message import Gradient, Tensor
from netfold.sim.workload.fusion import Bucket, BySize, fused
from netfold.sim.workload.layers import named_tensors, placed, unnamed_tensors
from netfold.torch.exchange import Handed, Part

# The buckets that codecs see: whole layers of a model, the same in every step.
#
# DDP forms its buckets anew after the first steps, and puts tensors of one layer into two buckets. A codec
# remembers things by bucket, and a layer must not be split. So codecs have buckets of their own, by the rule
# of `fusion: {kind: size}` in a scenario: whole layers, the last one of the model first, as backward meets
# them. What DDP hands in is put into them parameter by parameter.


_TENSORS_SHOWN = 3


class ParameterPlace(NamedTuple):
    """Where a parameter is."""

    bucket: int
    tensor: Tensor  # its start is the offset in the bucket


@dataclass(frozen=True)
class ParameterLayout:
    """The buckets of a model, and the place of each of its parameters."""

    buckets: tuple[Bucket, ...]
    places: Mapping[torch.Tensor, ParameterPlace]

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
) -> ParameterLayout:
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
        owners[member]: ParameterPlace(bucket.index, tensor)
        for bucket, own in zip(buckets, members, strict=True)
        for member, tensor in zip(own, bucket.tensors, strict=True)
    }
    return ParameterLayout(buckets, places)


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


class Assembly:
    """Collects gradients until a bucket of the layout is complete, runs its round, and writes the mean back.

    The layout is made in the first step, of all parameters that DDP hands in until its last bucket.

    Parameters
    ----------
    run
        A round: from this worker's gradient to the mean.
    names
        Of the model's parameters; empty: unknown.
    bucket_bytes
        Size from which on a bucket of codecs is full.
    """

    def __init__(
        self, run: Callable[[Part, Gradient], Gradient], names: Mapping[torch.Tensor, str], bucket_bytes: int
    ) -> None:
        self._run, self._names, self._bucket_bytes = run, names, bucket_bytes
        self._layout: ParameterLayout | None = None
        self._expected: Sequence[Sequence[str]] | None = None  # the layout of a state that was loaded
        self._waiting: list[Handed] = []  # buckets of DDP that wait for the layout
        self._gradients: list[Gradient] = []  # each bucket's gradient
        self._given: list[list[tuple[Handed, int]]] = []  # each bucket's parameters, and who gave them

    @property
    def tensors(self) -> list[list[str]] | None:
        """The tensors of the layout, in words; None if there is none yet."""
        if self._layout is None:
            return None if self._expected is None else [list(own) for own in self._expected]
        return self._layout.described

    def expect(self, tensors: Sequence[Sequence[str]] | None) -> None:
        """Require that the layout has these tensors, now or once it is made.

        Raises
        ------
        DataError
            It has others.
        """
        self._expected = tensors
        if self._layout is not None and tensors is not None:
            self._check(self._layout)

    def take(self, handed: Handed) -> None:
        """Take a bucket of DDP, and run the rounds that it completes, in the order of their numbers.

        Raises
        ------
        RunError, DataError
            A round fails, or the parameters are those of another model.
        """
        if self._layout is None:
            self._waiting.append(handed)
            if not handed.is_last:
                return
            self._lay_out()
            waiting, self._waiting = self._waiting, []
        else:
            waiting = [handed]
        complete = sorted(bucket for one in waiting for bucket in self._put(one))
        for bucket in complete:
            self._round(bucket)

    def release(self) -> None:
        """Give all buckets back as they are."""
        held = {id(one): one for given in self._given for one, _ in given}
        held |= {id(one): one for one in self._waiting}
        self._waiting, self._given = [], [[] for _ in self._given]
        for one in held.values():
            one.finish()

    def _lay_out(self) -> None:
        """Make the layout: DDP's buckets begin with the model's last parameters."""
        parameters = [parameter for one in reversed(self._waiting) for parameter in one.parameters]
        layout = make_layout(parameters, self._names, self._bucket_bytes)
        self._check(layout)
        self._layout = layout
        self._gradients = [np.zeros(bucket.elements, np.float32) for bucket in layout.buckets]
        self._given = [[] for _ in layout.buckets]

    def _check(self, layout: ParameterLayout) -> None:
        if self._expected is None:
            return
        if found := different(layout.described, self._expected):
            raise DataError(
                f"the state that was loaded is of another model: {found}",
                "load it for the same model, with the same `parameters` and `bucket`",
            )

    def _put(self, handed: Handed) -> list[int]:
        """Copy the gradients of a bucket of DDP; returns the buckets that this completes."""
        assert self._layout is not None
        complete = []
        with handed.on_stream():
            for number, (parameter, gradient) in enumerate(
                zip(handed.parameters, handed.gradients, strict=True)
            ):
                place = self._layout.places.get(parameter)
                if place is None:
                    raise RunError(
                        f"DDP handed in a parameter of shape {tuple(parameter.shape)} that the model did not "
                        "have in the first step",
                        "give each model a state of its own",
                    )
                _view(self._gradients[place.bucket], place.tensor.place, gradient).copy_(gradient)
                given = self._given[place.bucket]
                given.append((handed, number))
                if len(given) == len(self._layout.buckets[place.bucket].tensors):
                    complete.append(place.bucket)
        return complete

    def _round(self, number: int) -> None:
        """Run a round, write the mean to the buckets of DDP, and give back those that are complete."""
        assert self._layout is not None
        bucket, given = self._layout.buckets[number], self._given[number]
        taken_bytes = sum(
            one.gradients[place].element_size() * one.gradients[place].numel() for one, place in given
        )
        part = Part(given[0][0].step, number, bucket.name, bucket.tensors, taken_bytes)
        mean = self._run(part, self._gradients[number])
        self._given[number] = []
        mean = np.require(mean, requirements=["C", "W"])  # PyTorch demands this of an array
        for handed, place in given:
            own, gradient = self._layout.places[handed.parameters[place]], handed.gradients[place]
            with handed.on_stream():
                gradient.copy_(_view(mean, own.tensor.place, gradient))
            handed.left -= 1
            if not handed.left:
                handed.finish()


def _view(flat: Gradient, place: slice, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(flat[place]).view(like.shape)
