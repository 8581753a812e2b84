"""Training tasks: a model, its loss, the samples of each worker at each step, and a test on others.

Samples depend on (seed, step, worker) alone. Each worker draws from its own shard of the data, with
replacement. A task that holds out a part of its data for tests divides only the rest into shards.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.draws import keyed, shards
from netfold.sim.workload.training.images import Digits
from netfold.sim.workload.training.models import Perceptron
from netfold.sim.workload.workload import Score

HELD_OUT = 5  # one image in so many


class Task(Protocol):
    """A model with data for a fixed number of workers."""

    def build(self) -> nn.Module:
        """Return the model with new weights from PyTorch's global generator."""
        ...

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Inputs of the model and targets of the loss: one batch."""
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean over the batch, a scalar."""
        ...

    def score(self, model: nn.Module) -> Score | None:
        """Return how well a model does on the held-out data; None if nothing is held out."""
        ...


class DigitsTask:
    """Recognition of handwritten digits by a perceptron of the given sizes.

    A fifth of the images can be held out: the same ones for every seed and number of workers.
    """

    def __init__(
        self,
        digits: Digits,
        sizes: tuple[int, int, int],
        batch: int,
        workers: int,
        seed: int,
        holds_out: bool = False,
    ) -> None:
        self._sizes = sizes
        self._images = torch.from_numpy(digits.images)
        self._labels = torch.from_numpy(digits.labels)
        samples = np.arange(len(digits.labels))
        self._tested = samples[:0]
        if holds_out:
            order = keyed(0, "held-out digits").permutation(len(samples))
            self._tested, samples = np.split(order, [len(order) // HELD_OUT])
        self._shards = [samples[own] for own in shards(len(samples), workers, seed)]
        self._batch = batch
        self._seed = seed

    def build(self) -> nn.Module:
        """Return a Perceptron."""
        return Perceptron(self._sizes)

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Images `(batch, pixels)` and labels `(batch,)`."""
        chosen = keyed(self._seed, "batch", step, worker).choice(self._shards[worker], self._batch)
        return (self._images[chosen],), self._labels[chosen]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy."""
        return functional.cross_entropy(outputs, targets)

    def score(self, model: nn.Module) -> Score | None:
        """Accuracy: the share of held-out images whose own label has the largest of ten finite logits."""
        if not len(self._tested):
            return None
        logits = model(self._images[self._tested])
        is_right = (logits.argmax(1) == self._labels[self._tested]) & logits.isfinite().all(1)
        return Score("accuracy", is_right.double().mean().item())
