"""Small models of text, and training by plain NumPy with the mean of the workers' gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from netfold.sim.workload.training.models.ncf import Ncf
from netfold.sim.workload.training.models.spec import Model, TaskSettings
from netfold.sim.workload.training.models.text.bert import BertQa
from netfold.sim.workload.training.models.text.gpt import Gpt
from netfold.sim.workload.training.models.text.lstm import LstmBillion, LstmModel
from netfold.sim.workload.training.tasks.task import Task
from netfold.sim.workload.training.workload import one_thread

LSTM = LstmModel(vocabulary=500, embedding=8, hidden=16, layers=2, bptt=12)
SAMPLED = LstmBillion(vocabulary=40_000, embedding=8, hidden=16, samples=200, bptt=12)
BERT = BertQa(vocabulary=1200, sequence=32, positions=40, layers=2, heads=2, width=16, inner=24, dropout=0.0)
GPT = Gpt(context=24, layers=2, heads=2, width=16, dropout=0.0)
SPARSE_NCF = Ncf(expand=(2, 3), sparse=True)
ROWS: list[Model] = [LSTM, SAMPLED, BERT, SPARSE_NCF]

Step = Callable[[str, NDArray[np.float32]], NDArray[np.float32]]  # from a gradient to what is subtracted


def task_of(model: Model, batch: int = 4, workers: int = 2, seed: int = 1, holds_out: bool = False) -> Task:
    """The model's task on its first data."""
    return model.task(TaskSettings(model.data[0].name, batch, workers, seed, holds_out))


def module_of(task: Task, seed: int = 1) -> torch.nn.Module:
    """The task's module, from the same seed the same."""
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


def adam(rate: float) -> Step:
    """Kingma and Ba, ICLR 2015, algorithm 1, with its default constants."""
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    times: dict[str, int] = {}

    def step(name: str, gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        times[name] = times.get(name, 0) + 1
        first[name] = 0.9 * first.get(name, 0) + 0.1 * gradient
        second[name] = 0.999 * second.get(name, 0) + 0.001 * gradient**2
        mean, square = first[name] / (1 - 0.9 ** times[name]), second[name] / (1 - 0.999 ** times[name])
        return np.asarray(rate * mean / (np.sqrt(square) + 1e-8), np.float32)

    return step


def momentum(rate: float, share: float) -> Step:
    """Gradient descent with momentum, as PyTorch's SGD."""
    kept: dict[str, Any] = {}

    def step(name: str, gradient: NDArray[np.float32]) -> NDArray[np.float32]:
        kept[name] = share * kept.get(name, 0) + gradient
        return np.asarray(rate * kept[name], np.float32)

    return step


def train(
    task: Task, module: torch.nn.Module, workers: int, steps: range, step_of: Step, is_same: bool = False
) -> list[float]:
    """Steps with the mean gradient of all workers, whose mean losses are returned.

    With `is_same` every step has the batches of the first.
    """
    losses = []
    for step in steps:
        total: dict[str, NDArray[np.float32]] = {}
        loss = 0.0
        for worker in range(workers):
            inputs, targets = task.samples(0 if is_same else step, worker)
            with one_thread():
                value = task.loss(module(*inputs), targets)
                value.backward()  # type: ignore[no-untyped-call]
            loss += value.item() / workers
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None
            total[name] = parameter.grad.to_dense().numpy() / np.float32(workers)
            parameter.grad = None
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.sub_(torch.from_numpy(step_of(name, total[name])))
        losses.append(loss)
    return losses
