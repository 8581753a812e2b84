"""Perceptrons that recognise digits."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from netfold.sim.keys import Count
from netfold.sim.workload.data_readers import load_images
from netfold.sim.workload.model import Data, Density, Parts, TaskSettings
from netfold.sim.workload.models.images import ImageModel


class Perceptron(ImageModel):
    """What perceptrons have in common: images `(batch, pixels)` in, ten logits out, with ReLUs in between."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Inputs, hidden layers, outputs."""

    def module(self) -> nn.Module:
        """Linear layers and ReLUs in turn."""
        modules: list[nn.Module] = []
        for inputs, outputs in pairwise(self.sizes):
            modules += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*modules[:-1])

    def make(self, settings: TaskSettings) -> Parts:
        """Which digit is it?"""
        return self.classifying(load_images(settings.data, self.sizes[0]), settings.holds_out)

    def inputs(self) -> tuple[Tensor, ...]:
        """An image."""
        return (torch.zeros(1, self.sizes[0]),)


@dataclass(frozen=True)
class Mlp(Perceptron):
    """A small classifier of digits, 64-128-10: 9,610 parameters."""

    kind: ClassVar[str] = "mlp"

    title: ClassVar[str] = "MLP 64-128-10"
    source: ClassVar[str] = "a perceptron for the 8 by 8 pixels of scikit-learn's digits"
    data: ClassVar[tuple[Data, ...]] = (Data("digits"),)

    @property
    def sizes(self) -> tuple[int, ...]:
        """64-128-10."""
        return 64, 128, 10


@dataclass(frozen=True)
class Mlp784(Perceptron):
    """A larger classifier of digits, 784-512-10: 407,050 parameters."""

    kind: ClassVar[str] = "mlp_784"
    hidden: Annotated[tuple[Count, ...], Field(min_length=1)] = (512,)
    """Sizes of its hidden layers."""

    title: ClassVar[str] = "MLP 784"
    source: ClassVar[str] = "a perceptron for the 28 by 28 pixels of MNIST"
    data: ClassVar[tuple[Data, ...]] = (Data("digits"), Data("mnist-5k"), Data("fashion-mnist"))
    densities: ClassVar[tuple[Density, ...]] = (
        Density(16, 0.495, 0.667, {"hidden": (256, 128)}, "mnist-5k"),
    )

    @property
    def sizes(self) -> tuple[int, ...]:
        """784-512-10, or with other hidden layers."""
        return 784, *self.hidden, 10
