"""A model with its data: batches of each worker, the loss, and tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import TensorDataset, default_collate

from netfold.sim.workload.model import Parts, TaskSettings
from netfold.sim.workload.workload import Score, keyed, shards


class Draw:
    """The random numbers of one batch."""

    def __init__(self, settings: TaskSettings, step: int, worker: int) -> None:
        self.batch = settings.batch
        self.generator = keyed(settings.seed, "batch", step, worker)
        self._key = step, worker
        self._seed = settings.seed

    def samples(self, shard: NDArray[np.int64]) -> NDArray[np.int64]:
        """Samples `(batch,)` of a shard, with replacement."""
        chosen: NDArray[np.int64] = self.generator.choice(shard, self.batch)
        return chosen

    def keyed(self, rng_stream: str) -> np.random.Generator:
        # Independent of what is drawn from this one.
        return keyed(self._seed, rng_stream, *self._key)


class Batches(ABC):
    """Data that make whole batches, because these are faster than samples, or more than them."""

    @abstractmethod
    def __len__(self) -> int:
        """Samples, which the workers share out."""

    @abstractmethod
    def batch(self, shard: NDArray[np.int64], draw: Draw) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs of the module and targets, of a worker that has these of the samples."""


class ModelTask:
    """A `Task` made of the parts of a training.

    Parameters
    ----------
    parts
        The module is as its maker left it, with weights from the generator for weights.
    metric
        What the score is a value of.
    module
        Makes another module, with new weights from PyTorch's global generator.
    settings
        Batch, workers and seed.

    Raises
    ------
    DataError
        There are fewer samples than workers.
    """

    def __init__(
        self, parts: Parts, metric: str, module: Callable[[], nn.Module], settings: TaskSettings
    ) -> None:
        self._parts, self._metric, self._module, self._settings = parts, metric, module, settings
        self._is_new = True  # whether the parts' module is still as it was made
        self._shards = shards(len(parts.data), settings.workers, settings.seed)

    def build(self) -> nn.Module:
        """Return the module; another call makes another."""
        if self._is_new:
            self._is_new = False
            return self._parts.module
        return self._module()

    def samples(self, step: int, worker: int) -> tuple[tuple[Any, ...], Any]:
        """Inputs of the module, and the target; of named inputs one mapping, which is the target too."""
        draw = Draw(self._settings, step, worker)
        batch = self._batch(self._parts.data, self._shards[worker], draw)
        return ((batch,), batch) if isinstance(batch, Mapping) else (tuple(batch[:-1]), batch[-1])

    def _batch(self, data: Any, shard: NDArray[np.int64], draw: Draw) -> Any:
        """Samples of a shard as one batch: inputs and target, or a mapping."""
        if isinstance(data, Batches):
            inputs, target = data.batch(shard, draw)
            return [*inputs, target]
        chosen = draw.samples(shard)
        if isinstance(data, TensorDataset):
            return [tensor[torch.from_numpy(chosen)] for tensor in data.tensors]
        return self._collate([data[index] for index in chosen.tolist()])

    def _collate(self, items: list[Any]) -> Any:
        # As PyTorch's loaders do it.
        return default_collate(items)

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """The mean over the batch, a scalar."""
        value: Tensor = self._parts.loss(outputs, targets)
        return value

    def score(self, model: nn.Module) -> Score | None:
        """How good a model is on the held-out data; None if nothing is held out."""
        if self._parts.score is None:
            return None
        return Score(self._metric, self._parts.score(model))
