"""The weights of a model that all workers share: updates, copies that workers keep, state for resuming."""

from __future__ import annotations

import math
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from netfold.errors import DataError
from netfold.homomorphic.codec import State
from netfold.homomorphic.message import Gradient
from netfold.sim.workload.training.loop.memory import OptimizerMemory
from netfold.sim.workload.training.loop.passes import one_thread

_SLICE = 1 << 16  # elements
_OWN = ("kept", "update_norm")  # names in its state without a prefix

Copy = dict[str, Gradient]  # flat weights by name of the parameter


class Move(NamedTuple):
    """A total, and how it moves the weights."""

    names: Sequence[str]  # the parameters that it is of, one after another
    total: Gradient
    mean_of: int = 0  # the optimizer takes a step with total / mean_of; 0: weights −= total
    rate: float = 0.0  # of that step


class Weights:
    """The trained weights of a model. Updates change the model in place.

    Parameters
    ----------
    model
        Its trained parameters are float32; they are made contiguous.
    names
        The parameters that are trained.
    memory
        The optimizer, with its state.

    Raises
    ------
    DataError
        A trained parameter is not float32.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], memory: OptimizerMemory) -> None:
        self._model, self._memory = model, memory
        for name in names:
            _prepare(name, model.get_parameter(name))
        self.shapes = {name: tuple(model.get_parameter(name).shape) for name in names}
        # Views that share memory with the model: what `move` subtracts from.
        self.flat = {name: model.get_parameter(name).detach().numpy().reshape(-1) for name in names}
        self._start: int | None = None  # checksum of the weights before the first update, once it is made
        self._now: Copy | None = None  # as they are now, once a worker keeps them
        self._kept: dict[int, Copy] = {}  # by worker; those who keep the same share a copy
        self.update_norm: float | None = None  # of the last `move`: L2, in float64

    def move(self, moves: Sequence[Move], unused: Collection[str] = ()) -> None:
        """Take the optimizer's steps, or subtract from the weights in float32.

        What is `unused` stays as it is, and so does what the optimizer remembers of it: PyTorch's optimizers
        pass over a parameter without a gradient.
        """
        self._remember_start()
        self._now = None
        squares: list[float] = []
        for move in moves:
            start = 0
            for name in move.names:
                weights = self.flat[name]
                total = move.total[start : start + weights.size]
                start += weights.size
                if name not in unused:
                    squares += self._moved(name, total, move)
        self.update_norm = math.sqrt(math.fsum(squares))  # exact, whatever the order of parameters

    def _moved(self, name: str, total: Gradient, move: Move) -> list[float]:
        """Move a parameter; returns sums of squares of what was subtracted.

        In slices, so that temporaries stay in the cache, unless the optimizer remembers something.
        """
        weights, squares = self.flat[name], []
        size = max(1, weights.size) if move.mean_of and self._memory.has_state else _SLICE
        for first in range(0, weights.size, size):
            part = slice(first, first + size)
            step = total[part]
            if move.mean_of:
                before = weights[part].copy()
                with one_thread():
                    self._memory.step(name, weights[part], step / np.float32(move.mean_of), move.rate)
                step = np.subtract(before, weights[part], dtype=np.float64)
            else:
                weights[part] -= step
            squares.append(float(np.square(step, dtype=np.float64).sum()))
        return squares

    @contextmanager
    def replaced_by(self, values: Mapping[str, Gradient]) -> Iterator[None]:
        """Let the model run with other weights, which it shares memory with; its own stay as they are."""
        own = {name: self._model.get_parameter(name).data for name in self.shapes}
        for name, weights in values.items():
            self._model.get_parameter(name).data = self.tensor_of(name, weights)
        try:
            yield
        finally:
            for name, tensor in own.items():
                self._model.get_parameter(name).data = tensor

    def tensor_of(self, name: str, weights: Gradient) -> torch.Tensor:
        """A parameter's flat values as a tensor of its shape, in the same memory."""
        return torch.from_numpy(weights).view(self.shapes[name])

    def keep(self, worker: int) -> None:
        """Keep the weights as they are now for a worker."""
        if self._now is None:
            self._now = self._copied()
        self._kept[worker] = self._now

    def kept(self, worker: int) -> Copy:
        """The weights that a worker keeps.

        Raises
        ------
        RuntimeError
            The worker has kept none.
        """
        if worker not in self._kept:
            raise RuntimeError(f"worker {worker} has kept no weights: call keep_weights before")
        return self._kept[worker]

    @property
    def has_moved(self) -> bool:
        """Whether they may differ from those that the model was built with."""
        return self._start is not None

    def restart(self, fresh: nn.Module) -> None:
        """Back to the weights before the first update, which `fresh` has; workers keep none.

        Raises
        ------
        DataError
            A model that is built again has other weights.
        """
        for name, weights in self.flat.items():
            np.copyto(weights, fresh.get_parameter(name).detach().numpy().reshape(-1))
        if self._checksum() != self._start:
            raise DataError(
                "the model has other weights each time it is built, so no two variants begin alike",
                "draw them from PyTorch's global generator, which is seeded, or from one with a fixed seed",
            )
        self._start = None
        self.forget()

    def forget(self) -> None:
        """Forget what workers keep and what the optimizer remembers."""
        self._now, self._kept, self.update_norm = None, {}, None
        self._memory.restart()

    def state(self, workers: int) -> State:
        """A copy of the weights, those that workers keep, the update's norm, and the optimizer's state."""
        kept = list({id(one): one for one in self._kept.values()}.values())
        places = {id(one): index for index, one in enumerate(kept)}
        found: State = {
            "kept": np.array(
                [places[id(self._kept[rank])] if rank in self._kept else -1 for rank in range(workers)]
            )
        }
        if self.update_norm is not None:
            found["update_norm"] = np.array(self.update_norm)
        for prefix, weights in [("weights", self.flat), *((f"kept{i}", one) for i, one in enumerate(kept))]:
            for name, values in weights.items():
                found[f"{prefix}.{name}"] = values.reshape(self.shapes[name]).copy()
        return {**found, **self._memory.state()}

    def restore(self, state: Mapping[str, NDArray[Any]], workers: int) -> None:
        """Continue from a state.

        Raises
        ------
        ValueError
            The state is not of this model, optimizer and number of workers.
        """
        places = state.get("kept")
        if places is None or places.shape != (workers,):
            raise ValueError(f"the state is not that of a training with {workers} workers")
        copies = int(places.max()) + 1
        prefixes = ["weights", *(f"kept{index}" for index in range(copies))]
        wanted = {f"{prefix}.{name}": shape for prefix in prefixes for name, shape in self.shapes.items()}
        found = {
            name: one for name, one in state.items() if name not in _OWN and not self._memory.is_own(name)
        }
        for name in {**wanted, **found}:
            held, needed = (found[name].shape if name in found else None), wanted.get(name)
            if held != needed:
                raise ValueError(f"the state is of another model: {name} has shape {held}, must be {needed}")
        self._memory.restore(state)
        self._remember_start()
        read = [
            {name: np.array(state[f"{prefix}.{name}"], np.float32).reshape(-1) for name in self.shapes}
            for prefix in prefixes
        ]
        for name, weights in self.flat.items():
            np.copyto(weights, read[0][name])
        self._now = None
        self._kept = {rank: read[1 + place] for rank, place in enumerate(places.tolist()) if place >= 0}
        self.update_norm = float(state["update_norm"]) if "update_norm" in state else None

    def _remember_start(self) -> None:
        if self._start is None:
            self._start = self._checksum()

    def _checksum(self) -> int:
        found = 0
        for weights in self.flat.values():
            found = zlib.crc32(weights.data, found)
        return found

    def _copied(self) -> Copy:
        return {name: weights.copy() for name, weights in self.flat.items()}


def _prepare(name: str, parameter: nn.Parameter) -> None:
    """Let a parameter's values follow one another in memory."""
    if parameter.dtype != torch.float32:
        raise DataError(
            f"the parameter {name} has values of {parameter.dtype}, gradients are exchanged as float32",
            "train the model in float32: model.float()",
        )
    if not parameter.is_contiguous():
        parameter.data = parameter.data.contiguous()
