"""Real steps of small models beside what a calibrated device predicts for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.calibrate.timing import least_ns
from netfold.sim.workload.hardware import RooflineDevice
from netfold.sim.workload.model_probe import probe
from netfold.units import PS_PER_US


@dataclass(frozen=True)
class Checked:
    """A step of a model: forward and backward."""

    model: str
    predicted_us: float
    measured_us: float  # the least of several

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted_us / self.measured_us


class _Sample(NamedTuple):
    name: str
    model: nn.Module
    inputs: Tensor
    targets: Tensor


def checked(device: RooflineDevice) -> list[Checked]:
    """Predictions and measurements of a multilayer perceptron and a convolutional network, with this many
    threads as PyTorch is set to.
    """
    return [_check(device, sample) for sample in _samples()]


def _samples() -> list[_Sample]:
    """Models of the sizes that are trained here, with inputs that do not matter."""
    perceptron = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    network = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3136, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    return [
        _Sample("MLP 784-512-10, 16 samples", perceptron, torch.ones(16, 784), torch.zeros(16).long()),
        _Sample("MLP 784-512-10, 128 samples", perceptron, torch.ones(128, 784), torch.zeros(128).long()),
        _Sample("CNN of 2 layers, 16 images", network, torch.ones(16, 1, 28, 28), torch.zeros(16).long()),
    ]


def _check(device: RooflineDevice, sample: _Sample) -> Checked:
    def loss() -> Tensor:
        return functional.cross_entropy(sample.model(sample.inputs), sample.targets)

    def step() -> None:
        loss().backward()  # type: ignore[no-untyped-call]
        sample.model.zero_grad(set_to_none=True)

    passes = device.passes(probe(sample.model, loss).cost)
    predicted_us = (passes.forward_ps + passes.backward_ps) / PS_PER_US
    return Checked(sample.name, predicted_us, least_ns(step) / 1000)
