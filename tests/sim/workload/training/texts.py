"""Small models of text, their modules and gradients."""

from __future__ import annotations

import torch

from netfold.sim.workload.training.models.ncf import Ncf
from netfold.sim.workload.training.models.spec import Model, TaskSettings
from netfold.sim.workload.training.models.text.bert import BertQa
from netfold.sim.workload.training.models.text.gpt import Gpt
from netfold.sim.workload.training.models.text.lstm import LstmBillion, LstmModel
from netfold.sim.workload.training.tasks.task import Task

LSTM = LstmModel(vocabulary=500, embedding=8, hidden=16, layers=2, bptt=12)
SAMPLED = LstmBillion(vocabulary=40_000, embedding=8, hidden=16, samples=200, bptt=12)
BERT = BertQa(vocabulary=1200, sequence=32, positions=40, layers=2, heads=2, width=16, inner=24, dropout=0.0)
GPT = Gpt(context=24, layers=2, heads=2, width=16, dropout=0.0)
SPARSE_NCF = Ncf(expand=(2, 3), sparse=True)
ROWS: list[Model] = [LSTM, SAMPLED, BERT, SPARSE_NCF]


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
