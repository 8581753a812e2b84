"""Small tasks whose batches and models are given, and sums that a perfect network would deliver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload import Workload
from netfold.sim.workload.draws import keyed
from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.fusion.rule import Fusion
from netfold.sim.workload.training.loop.passes import one_thread
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.tasks.task import Task
from netfold.sim.workload.training.workload import TrainingWorkload
from netfold.sim.workload.workload import Score

INPUTS, OUTPUTS, BATCH, SEED = 5, 3, 4, 11


@dataclass
class Given:
    """A model that is built by a function; inputs are normal, or with `ids` whole numbers below it."""

    make: Callable[[], nn.Module]
    ids: int = 0
    metric: str = "loss"
    seed: int = SEED  # of the batches

    def build(self) -> nn.Module:
        return self.make()

    def samples(self, step: int, worker: int) -> tuple[tuple[Tensor, ...], Tensor]:
        generator = keyed(self.seed, "given", step, worker)
        if self.ids:
            inputs = torch.from_numpy(generator.integers(self.ids, size=BATCH))
        else:
            inputs = torch.from_numpy(generator.standard_normal((BATCH, INPUTS), np.float32))
        return (inputs,), torch.from_numpy(generator.integers(OUTPUTS, size=BATCH))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)

    def score(self, model: nn.Module) -> Score | None:
        inputs, targets = self.samples(10**6, 0)
        return Score(self.metric, self.loss(model(*inputs), targets).item())


class Told(nn.Module):
    """Answers as a function tells it, and notes what it was asked."""

    def __init__(self, answer: Callable[..., Tensor]) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[tuple[Tensor, ...]] = []

    def forward(self, *inputs: Tensor) -> Tensor:
        self.asked.append(inputs)
        return self.answer(*inputs)


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.Tanh(), nn.Linear(7, OUTPUTS))


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, OUTPUTS))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 40), nn.Dropout(0.5), nn.Linear(40, OUTPUTS))


def made(
    task: Given,
    workers: int = 4,
    rate: float = 0.1,
    recipe: Recipe | None = None,
    fusion: Fusion | None = None,
) -> TrainingWorkload:
    return TrainingWorkload(task, workers, rate, fusion or NoFusion(), SEED, 1, recipe or Recipe())


def totals(workload: Workload, step: int) -> list[NDArray[np.float32]]:
    return [np.sum(parts, axis=0, dtype=np.float32) for parts in zip(*workload.gradients(step), strict=True)]


def train(workload: Workload, steps: range) -> None:
    for step in steps:
        workload.apply(step, totals(workload, step))


def one_pass(model: nn.Module, task: Task, step: int, worker: int) -> float:
    """The loss by PyTorch alone; the model then has its gradients."""
    model.zero_grad()
    inputs, targets = task.samples(step, worker)
    with one_thread():
        loss = task.loss(model(*inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def by_name(workload: Workload, parts: Any) -> dict[str, NDArray[np.float32]]:
    """Of the parts of all buckets, what belongs to each tensor, in its shape."""
    return {
        tensor.name: part[tensor.place].reshape(tensor.shape)
        for bucket, part in zip(workload.buckets, parts, strict=True)
        for tensor in bucket.tensors
    }


def weights_of(workload: TrainingWorkload) -> dict[str, NDArray[np.float32]]:
    return {name: one.detach().numpy().copy() for name, one in workload.model.named_parameters()}


def bytes_of(workload: TrainingWorkload) -> dict[str, bytes]:
    return {name: one.tobytes() for name, one in weights_of(workload).items()}
