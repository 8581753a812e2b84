"""Perceptrons that recognise digits."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from netfold.homomorphic.message import Tensor
from netfold.sim.keys import Count
from netfold.sim.workload.layers import placed
from netfold.sim.workload.model import Data, Density, Model, TaskSettings, linear

if TYPE_CHECKING:
    from torch import nn

    from netfold.sim.workload.model import Task


class Perceptron(Model):
    """What perceptrons have in common: images in, ten logits out, with ReLUs in between."""

    metric: ClassVar[str] = "accuracy"

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Inputs, hidden layers, outputs."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The layers from the last on; every other module is a ReLU."""
        layers = reversed(list(enumerate(pairwise(self.sizes))))
        return placed(tensor for index, pair in layers for tensor in linear(str(2 * index), *pair))

    def module(self) -> nn.Module:
        """Linear layers and ReLUs in turn."""
        from netfold.sim.workload.networks import perceptron

        return perceptron(self.sizes)

    def task(self, settings: TaskSettings) -> Task:
        """Which digit is it?"""
        from netfold.sim.workload.data_readers import load_images
        from netfold.sim.workload.tasks import ImagesTask

        return ImagesTask(load_images(settings.data, self.sizes[0]), self.module, settings)


class Mlp(Perceptron):
    """A small classifier of digits, 64-128-10."""

    kind: Literal["mlp"] = "mlp"

    title: ClassVar[str] = "MLP 64-128-10"
    source: ClassVar[str] = "a perceptron for the 8 by 8 pixels of scikit-learn's digits"
    data: ClassVar[tuple[Data, ...]] = (Data("digits"),)

    @property
    def sizes(self) -> tuple[int, ...]:
        """64-128-10."""
        return 64, 128, 10


class Mlp784(Perceptron):
    """A larger classifier of digits, 784-512-10."""

    kind: Literal["mlp_784"] = "mlp_784"
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
