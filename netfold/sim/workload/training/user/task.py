"""The task of a user's model: its module, its data in shards, its loss and its score."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, redirect_stdout
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import TensorDataset, default_collate

from netfold.errors import UserModelError
from netfold.homomorphic.round import Tensor as Described
from netfold.sim.workload.layers import placed
from netfold.sim.workload.training.loop.passes import drawing, one_thread
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.training.probe import probe
from netfold.sim.workload.training.user.parts import Parts, kind_of, read_parts, require_same
from netfold.sim.workload.training.user.source import UserFile, beside, call, function_of, seeded
from netfold.sim.workload.training.user.watch import Watch
from netfold.sim.workload.workload import Score, keyed, shards


class UserTask:
    """A `Task` made of what the user's function returns.

    Raises
    ------
    UserModelError
        The function cannot be called, or returns what cannot be trained.
    DataError
        There are fewer samples than workers.
    """

    def __init__(self, model: UserFile, settings: TaskSettings) -> None:
        self._model, self._settings = model, settings
        self._watch = Watch(model.path, model.file, settings.seed)
        self._function = function_of(model)
        self._parts = self._made()
        self._is_new = True  # whether the parts' module is still as the function has made it
        if settings.holds_out and self._parts.score is None:
            raise UserModelError(
                f"{model.make} returned no score, which evaluate needs",
                "return module, data, loss, score: a function of the module that returns a number; or remove "
                "evaluate",
            )
        self._shards = shards(len(self._parts.data), settings.workers, settings.seed)
        self._has_names = isinstance(self._first(self._parts), Mapping)

    def _made(self) -> Parts:
        returned = call(self._model, self._function, self._settings.seed)
        return read_parts(returned, self._model.make)

    def build(self) -> nn.Module:
        """Return the module as the user's function has made it; another call makes another."""
        if not self._is_new:
            self._parts = self._made()
        self._is_new = False
        module = self._parts.module
        for parameter in module.parameters():
            parameter.data = parameter.data.contiguous()
        self._watch.guard(module.train(), self._has_names)
        return module

    def samples(self, step: int, worker: int) -> tuple[tuple[Any, ...], Any]:
        """Inputs of the module, and the target; of named inputs one mapping, which is the target too."""
        self._watch.begin(step, worker)
        settings = self._settings
        chosen = keyed(settings.seed, "batch", step, worker).choice(self._shards[worker], settings.batch)
        with seeded(settings.seed, "samples", step, worker):
            batch = self._batch(self._parts, chosen)
        if self._has_names:
            return (batch,), batch
        return tuple(batch[:-1]), batch[-1]

    def blaming(self) -> AbstractContextManager[None]:
        """Tell what the user's code raises in a pass, with the step, the worker and the line."""
        return self._watch.blaming()

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """The user's loss, a scalar."""
        with self._watch.drawing(), self._watch.blaming():
            value = self._parts.loss(outputs, targets)
        return self._watch.loss(value)

    def score(self, model: nn.Module) -> Score | None:
        """The user's score; None if there is none."""
        if self._parts.score is None:
            return None
        with self._watch.blaming(), redirect_stdout(sys.stderr):
            found = self._parts.score(model)
        return Score("score", _number(found, self._model.make))

    def _batch(self, parts: Parts, chosen: NDArray[np.int64]) -> Any:
        """Samples as one batch: a list of tensors, or a mapping."""
        make, where = self._model.make, self._watch.where
        with self._watch.blaming(), beside(self._model):
            if isinstance(parts.data, TensorDataset):
                return [one[torch.from_numpy(chosen)] for one in _with_target(parts.data.tensors, make)]
            items = [parts.data[index] for index in chosen.tolist()]
        return _collated(items, make, where)

    def tensors(self) -> tuple[Described, ...]:
        """The parameters in gradient-ready order, from a pass of worker 0's first batch.

        Raises
        ------
        UserModelError
            The module cannot be trained on it, or another call of the function returns something else.
        """
        other = self._made()
        batches = self._first(self._parts), self._first(other)
        require_same(self._parts, other, batches, self._model.make)
        del other
        module = self.build()
        with one_thread(), self.blaming():
            found = probe(module, lambda: self._first_loss(module))
        shapes = {name: tuple(one.shape) for name, one in module.named_parameters()}
        return placed(Described(name, shapes[name], found.layers[name]) for name in found.order)

    def _first(self, parts: Parts) -> Any:
        """The first sample of worker 0's shard, as a batch."""
        with seeded(self._settings.seed, "samples", 0, 0):
            return self._batch(parts, self._shards[0][:1])

    def _first_loss(self, module: nn.Module) -> Tensor:
        inputs, targets = self.samples(0, 0)
        with drawing(self._settings.seed, "forward", 0, 0):
            return self.loss(module(*inputs), targets)


def tensors_of(model: UserFile, settings: TaskSettings) -> tuple[Described, ...]:
    """The parameters of a user's model; a file is looked at once for the same settings.

    Raises
    ------
    UserModelError
        It cannot be trained.
    """
    key = (model, settings)
    if key not in _known:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[key] = UserTask(model, settings).tensors()
    return _known[key]


_known: dict[tuple[UserFile, TaskSettings], tuple[Described, ...]] = {}
_KNOWN_MAX = 32


def _collated(items: list[Any], make: str, where: str) -> Any:
    """Samples put together as PyTorch's loaders do it."""
    first = items[0]
    if not isinstance(first, Mapping):
        items = [_with_target(item, make) for item in items]
    try:
        return default_collate(items)
    except (RuntimeError, TypeError, KeyError) as error:
        before = f"{where}: " if where else ""
        why = " ".join(str(error).split())
        raise UserModelError(
            f"{before}{make}: the samples of a batch do not fit together: {why}",
            "give all samples the same shapes, as tensors, arrays or numbers",
        ) from error


def _with_target(item: Any, make: str) -> Any:
    """A sample that has an input and a target."""
    if not isinstance(item, tuple | list) or len(item) < 2:
        found = f"{len(item)} value" if isinstance(item, tuple | list) else type(item).__name__
        raise UserModelError(
            f"{make}: a sample must be (input, target), found {found}",
            "give the target too; or a mapping of named inputs, which the loss gets as well",
        )
    return item


def _number(score: Any, make: str) -> float:
    """What the user's score returned, as a number."""
    try:
        value = float(score)
    except (TypeError, ValueError, RuntimeError):
        has_many = isinstance(score, Tensor) and score.numel() != 1
        found = f"a tensor of {' x '.join(map(str, score.shape))}" if has_many else kind_of(score)
        raise UserModelError(
            f"{make}: the score must be a number, found {found}",
            "return one that is larger for better models",
        ) from None
    if not math.isfinite(value):
        raise UserModelError(f"{make}: the score is {value}", "return a finite number")
    return value
