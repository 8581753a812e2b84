"""What classifiers of images have in common: pictures, of which some are held out, and accuracy."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.data_readers import Images, load_pictures
from netfold.sim.workload.model import Data, Parts, TaskSettings
from netfold.sim.workload.model_task import Batches, Draw
from netfold.sim.workload.models.built_in import BuiltIn
from netfold.sim.workload.workload import keyed

SMALL_IMAGES = (
    Data("photos", "CIFAR-10: patches of ten photos, each a class"),
    Data("mnist-5k", "CIFAR-10: grey digits with a margin, in three equal channels"),
    Data("fashion-mnist", "CIFAR-10: grey pictures of clothes with a margin, in three equal channels"),
)
LARGE_IMAGES = (Data("photos", "ImageNet: crops of ten photos, each a class"),)
HELD_OUT = 5  # one image in so many
_TESTED_BYTES = 4 << 20
"""Bytes of images that are tested at once."""


class Pictures(Batches):
    """Images and their labels.

    The data set's own test part is held out, if it has one. Otherwise a fifth of the images can be: the same
    ones for every seed and number of workers.
    """

    def __init__(self, images: Images, holds_out: bool) -> None:
        self._images = images
        self._labels = torch.from_numpy(images.labels)
        self._trained = np.arange(len(images.labels))
        self._tested = self._trained[:0]
        if images.tested is not None:
            self._trained, self._tested = np.setdiff1d(self._trained, images.tested), images.tested
        elif holds_out:
            order = keyed(0, "held-out digits").permutation(len(self._trained))
            self._tested, self._trained = np.split(order, [len(order) // HELD_OUT])

    def __len__(self) -> int:
        return len(self._trained)

    def batch(self, shard: NDArray[np.int64], draw: Draw) -> tuple[tuple[Tensor, ...], Tensor]:
        """Images `(batch, …)` and labels `(batch,)`."""
        chosen = self._trained[draw.samples(shard)]
        return (torch.from_numpy(self._images.take(chosen)),), self._labels[chosen]

    def accuracy(self, module: nn.Module) -> float:
        """The share of held-out images whose own label has the largest of finite logits."""
        # Large images are taken in parts, so that not all are in memory.
        at_once = max(1, _TESTED_BYTES // self._images.take(self._tested[:1]).nbytes)
        parts = np.split(self._tested, range(at_once, len(self._tested), at_once))
        return torch.cat([self._is_right(module, part) for part in parts]).double().mean().item()

    def _is_right(self, module: nn.Module, samples: NDArray[np.int64]) -> Tensor:
        logits = module(torch.from_numpy(self._images.take(samples)))
        is_right: Tensor = (logits.argmax(1) == self._labels[samples]) & logits.isfinite().all(1)
        return is_right


class ImageModel(BuiltIn):
    """A classifier of images `(batch, channels, side, side)`."""

    channels: ClassVar[int]
    side: ClassVar[int]  # pixels
    metric: ClassVar[str] = "accuracy"
    chance: ClassVar[float] = 0.1  # all of the data sets have ten classes

    def make(self, settings: TaskSettings) -> Parts:
        """Which class is shown?"""
        return self.classifying(load_pictures(settings.data, self.channels, self.side), settings.holds_out)

    def classifying(self, images: Images, holds_out: bool) -> Parts:
        """The parts of a training on these images."""
        data = Pictures(images, holds_out)
        score = data.accuracy if holds_out else None
        return Parts(self.module(), data, functional.cross_entropy, score)

    def inputs(self) -> tuple[Tensor, ...]:
        """Two images: batch norms need more than one."""
        return (torch.zeros(2, self.channels, self.side, self.side),)
