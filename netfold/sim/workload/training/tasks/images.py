"""The task of a classifier of images: which class is shown?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.training.data.images import Images
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.workload import Score, keyed, shards

HELD_OUT = 5  # one image in so many
_TESTED_BYTES = 4 << 20  # of images that are tested at once


class ImagesTask:
    """Classification of images by a module that gives logits `(batch, classes)`.

    The data set's own test part is held out, if it has one. Otherwise a fifth of the images can be: the same
    ones for every seed and number of workers.
    """

    def __init__(self, images: Images, build: Callable[[], nn.Module], settings: TaskSettings) -> None:
        self._build = build
        self._images = images
        self._labels = torch.from_numpy(images.labels)
        samples = np.arange(len(images.labels))
        self._tested = samples[:0]
        if images.tested is not None:
            samples = np.setdiff1d(samples, images.tested)
            self._tested = images.tested if settings.holds_out else self._tested
        elif settings.holds_out:
            order = keyed(0, "held-out digits").permutation(len(samples))
            self._tested, samples = np.split(order, [len(order) // HELD_OUT])
        self._shards = [samples[own] for own in shards(len(samples), settings.workers, settings.seed)]
        self._batch = settings.batch
        self._seed = settings.seed

    def build(self) -> nn.Module:
        """Return the module with new weights."""
        return self._build()

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Images `(batch, …)` and labels `(batch,)`."""
        chosen = keyed(self._seed, "batch", step, worker).choice(self._shards[worker], self._batch)
        return (torch.from_numpy(self._images.take(chosen)),), self._labels[chosen]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross entropy."""
        return functional.cross_entropy(outputs, targets)

    def score(self, model: nn.Module) -> Score | None:
        """Accuracy: the share of held-out images whose own label has the largest of finite logits."""
        if not len(self._tested):
            return None
        rights = [self._is_right(model, part) for part in self._parts()]
        return Score("accuracy", torch.cat(rights).double().mean().item())

    def _parts(self) -> list[NDArray[np.int64]]:
        """The tested images in parts, so that large ones are not all in memory."""
        sample_bytes = self._images.take(self._tested[:1]).nbytes
        at_once = max(1, _TESTED_BYTES // sample_bytes)
        return np.split(self._tested, range(at_once, len(self._tested), at_once))

    def _is_right(self, model: nn.Module, samples: NDArray[np.int64]) -> Tensor:
        """Whether each image's own label has the largest of finite logits."""
        logits = model(torch.from_numpy(self._images.take(samples)))
        is_right: Tensor = (logits.argmax(1) == self._labels[samples]) & logits.isfinite().all(1)
        return is_right
