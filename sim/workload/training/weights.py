"""The weights of a model that all workers share: updates, copies that workers keep, state for resuming."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from netfold.homomorphic.codec import State
from netfold.homomorphic.message import Gradient

_SLICE = 1 << 16  # elements

Copy = dict[str, Gradient]  # flat weights by name of the parameter


class Weights:
    """The trained weights of a model. Updates change the model in place.

    Parameters
    ----------
    model
        Its parameters are float32 and contiguous.
    names
        The parameters that are trained.
    """

    def __init__(self, model: nn.Module, names: Sequence[str]) -> None:
        self._model = model
        self._shapes = {name: tuple(model.get_parameter(name).shape) for name in names}
        # Views that share memory with the model: what `move` subtracts from.
        self._views = {name: model.get_parameter(name).detach().numpy().reshape(-1) for name in names}
        self._start: Copy | None = None  # before the first update, once it is made
        self._now: Copy | None = None  # as they are now, once a worker keeps them
        self._kept: dict[int, Copy] = {}  # by worker; those who keep the same share a copy
        self._past: nn.Module | None = None  # a model for kept weights
        self.update_norm: float | None = None  # of the last `move`: L2, in float64

    def move(self, moves: Sequence[tuple[Sequence[str], Gradient, np.float32 | None]]) -> None:
        """Subtract from the weights, in float32.

        Each move has the parameters' names, their totals one after another, and the rate by which totals are
        multiplied; without one they are subtracted as they are.
        """
        self._remember_start()
        self._now = None
        squares: list[float] = []
        for names, total, rate in moves:
            start = 0
            for name in names:
                weights = self._views[name]
                squares += _move(weights, total[start : start + weights.size], rate)
                start += weights.size
        self.update_norm = math.sqrt(math.fsum(squares))  # exact, whatever the order of parameters

    def keep(self, worker: int) -> None:
        """Keep the weights as they are now for a worker."""
        if self._now is None:
            self._now = self._copied()
        self._kept[worker] = self._now

    def model_at_kept(self, worker: int) -> nn.Module:
        """A copy of the model with the weights that a worker keeps; valid until the next call.

        Raises
        ------
        RuntimeError
            The worker has kept none.
        """
        if worker not in self._kept:
            raise RuntimeError(f"worker {worker} has kept no weights: call keep_weights before")
        if self._past is None:
            self._past = copy.deepcopy(self._model)
        for name, weights in self._kept[worker].items():
            self._past.get_parameter(name).data = torch.from_numpy(weights).view(self._shapes[name])
        return self._past

    def restart(self) -> None:
        """Back to the weights before the first update; workers keep none."""
        if self._start is not None:
            self._write(self._start)
        self._now, self._kept, self.update_norm = None, {}, None

    def state(self, workers: int) -> State:
        """A copy of the weights, those that workers keep, and the update's norm."""
        kept = list({id(one): one for one in self._kept.values()}.values())
        places = {id(one): index for index, one in enumerate(kept)}
        found: State = {
            "kept": np.array(
                [places[id(self._kept[rank])] if rank in self._kept else -1 for rank in range(workers)]
            )
        }
        if self.update_norm is not None:
            found["update_norm"] = np.array(self.update_norm)
        for prefix, weights in [("weights", self._views), *((f"kept{i}", one) for i, one in enumerate(kept))]:
            for name, values in weights.items():
                found[f"{prefix}.{name}"] = values.reshape(self._shapes[name]).copy()
        return found

    def restore(self, state: Mapping[str, NDArray[Any]], workers: int) -> None:
        """Continue from a state.

        Raises
        ------
        ValueError
            The state is not of this model and number of workers.
        """
        places = state.get("kept")
        if places is None or places.shape != (workers,):
            raise ValueError(f"the state is not that of a training with {workers} workers")
        copies = int(places.max()) + 1
        prefixes = ["weights", *(f"kept{index}" for index in range(copies))]
        wanted = {f"{prefix}.{name}": shape for prefix in prefixes for name, shape in self._shapes.items()}
        found = {name: array for name, array in state.items() if name not in ("kept", "update_norm")}
        for name in {**wanted, **found}:
            held, needed = (found[name].shape if name in found else None), wanted.get(name)
            if held != needed:
                raise ValueError(f"the state is of another model: {name} has shape {held}, must be {needed}")
        self._remember_start()
        read = [
            {name: np.array(state[f"{prefix}.{name}"], np.float32).reshape(-1) for name in self._shapes}
            for prefix in prefixes
        ]
        self._write(read[0])
        self._now = None
        self._kept = {rank: read[1 + place] for rank, place in enumerate(places.tolist()) if place >= 0}
        self.update_norm = float(state["update_norm"]) if "update_norm" in state else None

    def _remember_start(self) -> None:
        if self._start is None:
            self._start = self._copied()

    def _copied(self) -> Copy:
        return {name: weights.copy() for name, weights in self._views.items()}

    def _write(self, values: Copy) -> None:
        for name, weights in self._views.items():
            np.copyto(weights, values[name])


def _move(weights: Gradient, total: Gradient, rate: np.float32 | None) -> list[float]:
    """weights -= rate · total, in slices, so that temporaries stay in the cache; returns sums of squares."""
    squares = []
    for first in range(0, weights.size, _SLICE):
        part = slice(first, first + _SLICE)
        step = total[part] if rate is None else rate * total[part]
        weights[part] -= step
        squares.append(float(np.square(step, dtype=np.float64).sum()))
    return squares
