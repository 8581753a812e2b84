"""The task of a classifier of images: which class is shown?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.draws import keyed, shards
from netfold.sim.workload.training.data.images import Digits
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.workload import Score

HELD_OUT = 5  # one image in so many


class ImagesTask:
    """Classification of images by a module that gives logits `(batch, classes)`.

    A fifth of the images can be held out: the same ones for every seed and number of workers.
    """

    def __init__(self, digits: Digits, build: Callable[[], nn.Module], settings: TaskSettings) -> None:
        self._build = build
        self._images = torch.from_numpy(digits.images)
        self._labels = torch.from_numpy(digits.labels)
        samples = np.arange(len(digits.labels))
        self._tested = samples[:0]
        if settings.holds_out:
            order = keyed(0, "held-out digits").permutation(len(samples))
            self._tested, samples = np.split(order, [len(order) // HELD_OUT])
        self._shards = [samples[own] for own in shards(len(samples), settings.workers, settings.seed)]
        self._batch = settings.batch
        self._seed = settings.seed

    def build(self) -> nn.Module:
        """Return the module with new weights."""
        return self._build()

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Images `(batch, pixels)` and labels `(batch,)`."""
        chosen = keyed(self._seed, "batch", step, worker).choice(self._shards[worker], self._batch)
        return (self._images[chosen],), self._labels[chosen]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy."""
        return functional.cross_entropy(outputs, targets)

    def score(self, model: nn.Module) -> Score | None:
        """Accuracy: the share of held-out images whose own label has the largest of finite logits."""
        if not len(self._tested):
            return None
        logits = model(self._images[self._tested])
        is_right = (logits.argmax(1) == self._labels[self._tested]) & logits.isfinite().all(1)
        return Score("accuracy", is_right.double().mean().item())
