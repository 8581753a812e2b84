"""Small tasks and models of text whose batches are given, and sums that a perfect network would deliver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.data_readers import Images, Ratings
from netfold.sim.workload.fusion import Fusion, NoFusion
from netfold.sim.workload.model import Model, Parts, Task, TaskSettings
from netfold.sim.workload.model_task import ModelTask
from netfold.sim.workload.models.bert import BertQa
from netfold.sim.workload.models.built_in import BuiltIn
from netfold.sim.workload.models.gpt import Gpt
from netfold.sim.workload.models.images import ImageModel
from netfold.sim.workload.models.lstm import LstmBillion, LstmModel
from netfold.sim.workload.models.mlp import Mlp
from netfold.sim.workload.models.ncf import Ncf
from netfold.sim.workload.training import TrainingWorkload
from netfold.sim.workload.training_keys import Recipe
from netfold.sim.workload.weights import drawing, one_thread
from netfold.sim.workload.workload import Score, Workload, keyed

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


def buffers_of(model: nn.Module) -> dict[str, bytes]:
    return {name: one.numpy().tobytes() for name, one in model.named_buffers()}


def weights_of(workload: TrainingWorkload) -> dict[str, NDArray[np.float32]]:
    return {name: one.detach().numpy().copy() for name, one in workload.model.named_parameters()}


def bytes_of(workload: TrainingWorkload) -> dict[str, bytes]:
    return {name: one.tobytes() for name, one in weights_of(workload).items()}


def flat(state: Any) -> Any:
    """A workload's state with bytes for arrays, so that two can be compared."""
    if isinstance(state, dict):
        return {key: flat(value) for key, value in state.items()}
    if isinstance(state, list):
        return [flat(value) for value in state]
    return (state.shape, state.tobytes()) if isinstance(state, np.ndarray) else state


LSTM = LstmModel(vocabulary=500, embedding=8, hidden=16, layers=2, bptt=12)
SAMPLED = LstmBillion(vocabulary=40_000, embedding=8, hidden=16, samples=200, bptt=12)
BERT = BertQa(vocabulary=1200, sequence=32, positions=40, layers=2, heads=2, width=16, inner=24, dropout=0.0)
GPT = Gpt(context=24, layers=2, heads=2, width=16, dropout=0.0)
SPARSE_NCF = Ncf(expand=(2, 3), sparse=True)
ROWS: list[Model] = [LSTM, SAMPLED, BERT, SPARSE_NCF]


def task_of(model: Model, batch: int = 4, workers: int = 2, seed: int = 1, holds_out: bool = False) -> Task:
    """The model's task on its first data."""
    return model.task(TaskSettings(model.data_named(None).name, batch, workers, seed, holds_out))


def task_with(
    model: BuiltIn, parts: Callable[[], Parts], settings: TaskSettings, metric: str = ""
) -> ModelTask:
    """A model with data that a test makes."""
    with drawing(settings.seed, "weights"):
        return ModelTask(parts(), metric or model.metric, model.module, settings)


def images_task(images: Images, settings: TaskSettings, model: ImageModel = Mlp()) -> ModelTask:
    return task_with(model, lambda: model.classifying(images, settings.holds_out), settings)


def ratings_task(
    ratings: Ratings,
    copies: tuple[int, int] = (1, 1),
    *,
    batch: int,
    workers: int = 1,
    seed: int,
    holds_out: bool = False,
) -> ModelTask:
    model, settings = Ncf(expand=copies), TaskSettings("", batch, workers, seed, holds_out)
    return task_with(model, lambda: model.choosing(ratings, settings), settings)


def module_of(task: Task, seed: int = 1) -> torch.nn.Module:
    """A module of the task's, from the same seed the same."""
    task.build()  # the first was made with the task
    torch.manual_seed(seed)
    return task.build()


def backward(task: Task, module: torch.nn.Module, step: int = 0, worker: int = 0) -> dict[str, torch.Tensor]:
    """The gradients of a batch, by name, as PyTorch gives them; the module keeps none."""
    inputs, targets = task.samples(step, worker)
    task.loss(module(*inputs), targets).backward()  # type: ignore[no-untyped-call]
    found: dict[str, torch.Tensor] = {}
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        found[name], parameter.grad = parameter.grad, None
    return found
