"""Whole trainings against the loop that a user of PyTorch writes, with `torch.optim`, bit for bit.

The loop takes nothing from netfold but the batches and the weights at the start. With gradients it does what
DDP does with `find_unused_parameters`: a worker that does not use a parameter adds zero to
its sum, and one that no worker uses keeps no gradient, so optimizers pass over it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.training.loop.passes import one_thread
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.optimizers.adam import Adam
from netfold.sim.workload.training.optimizers.adamw import AdamW
from netfold.sim.workload.training.optimizers.rule import Optimizer
from netfold.sim.workload.training.optimizers.sgd import Sgd
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.sim.workload.training.loop.given import (
    INPUTS,
    OUTPUTS,
    Given,
    bytes_of,
    normed,
    train,
)

RATE, STEPS = 0.1, 12
Class = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
SGD: dict[str, tuple[Optimizer, Class]] = {
    "plain": (Sgd(), lambda own: torch.optim.SGD(own, RATE)),
    "momentum": (Sgd(0.9), lambda own: torch.optim.SGD(own, RATE, 0.9)),
    "nesterov": (Sgd(0.9, nesterov=True), lambda own: torch.optim.SGD(own, RATE, 0.9, nesterov=True)),
    "decay": (Sgd(weight_decay=0.01), lambda own: torch.optim.SGD(own, RATE, weight_decay=0.01)),
    "all": (
        Sgd(0.8, nesterov=True, weight_decay=0.01),
        lambda own: torch.optim.SGD(own, RATE, 0.8, nesterov=True, weight_decay=0.01),
    ),
}
ADAM: dict[str, tuple[Optimizer, Class]] = {
    "adam": (Adam(), lambda own: torch.optim.Adam(own, RATE)),
    "adam-all": (
        Adam((0.8, 0.95), 1e-6, 0.1),
        lambda own: torch.optim.Adam(own, RATE, (0.8, 0.95), 1e-6, 0.1),
    ),
    "adamw": (AdamW(), lambda own: torch.optim.AdamW(own, RATE)),
}


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, INPUTS)),
        nn.Conv1d(1, 8, 3, padding=1),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8 * INPUTS, OUTPUTS),
    )


def wide() -> nn.Module:
    """A tensor of 88,500 elements: more than one slice, and no whole number of vectors."""
    return nn.Sequential(nn.Linear(INPUTS, 295), nn.Tanh(), nn.Linear(295, 300), nn.Tanh(), nn.Linear(300, 3))


def embedded(is_sparse: bool = True) -> nn.Module:
    return nn.Sequential(nn.Embedding(40, 6, sparse=is_sparse), nn.Linear(6, OUTPUTS))


class Experts(nn.Module):
    """Each sample goes to one of eight experts, so batches leave some out; a spare layer is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(INPUTS, 8)
        self.experts = nn.ModuleList(nn.Linear(INPUTS, OUTPUTS) for _ in range(8))
        self.spare = nn.Linear(INPUTS, OUTPUTS)

    def forward(self, inputs: Tensor) -> Tensor:
        weights = self.gate(inputs).softmax(1)
        rows = []
        for row, weight in zip(inputs, weights, strict=True):
            chosen = int(weight.argmax())
            rows.append(self.experts[chosen](row) * weight[chosen])
        return torch.stack(rows)


def workload_of(task: Given, optimizer: Optimizer, workers: int, seed: int) -> TrainingWorkload:
    return TrainingWorkload(task, workers, RATE, NoFusion(), seed, recipe=Recipe(optimizer))


def plainly_trained(
    model: nn.Module, task: Given, make: Class, workers: int, steps: int = STEPS
) -> tuple[dict[str, bytes], list[set[str]]]:
    """The weights after the steps of a plain loop, and what no worker used in each step."""
    optimizer = make(list(model.parameters()))
    unused = []
    with one_thread():
        for step in range(steps):
            sums: dict[str, Tensor] = {}
            for worker in range(workers):
                optimizer.zero_grad()
                inputs, targets = task.samples(step, worker)
                task.loss(model(*inputs), targets).backward()  # type: ignore[no-untyped-call]
                for name, parameter in model.named_parameters():
                    if (gradient := parameter.grad) is not None:
                        gradient = gradient.to_dense() if gradient.is_sparse else gradient.clone()
                        sums[name] = sums[name] + gradient if name in sums else gradient
            for name, parameter in model.named_parameters():
                mean = sums[name] / workers if name in sums else None
                is_sparse = parameter.grad is not None and parameter.grad.is_sparse
                parameter.grad = mean.to_sparse(1) if is_sparse and mean is not None else mean
            unused.append({name for name, _ in model.named_parameters()} - sums.keys())
            optimizer.step()
    return {name: one.detach().numpy().tobytes() for name, one in model.named_parameters()}, unused


@pytest.mark.parametrize("name", [*SGD, *ADAM])
@pytest.mark.parametrize(("make", "workers"), [(normed, 4), (convolutional, 3), (wide, 1)])
def test_optimizers_are_those_of_torch(make: Callable[[], nn.Module], workers: int, name: str) -> None:
    optimizer, theirs = (SGD | ADAM)[name]
    task = Given(make, seed=workers)
    workload = workload_of(task, optimizer, workers, 1)
    expected, _ = plainly_trained(copy.deepcopy(workload.model), task, theirs, workers)
    train(workload, range(STEPS))

    assert bytes_of(workload) == expected


@pytest.mark.parametrize(("name", "is_sparse"), [("plain", True), ("momentum", True), ("nesterov", False)])
def test_sgd_on_rows_is_that_of_torch(name: str, is_sparse: bool) -> None:
    """With sparse gradients PyTorch has no weight decay, and its Nesterov is refused in places."""
    optimizer, theirs = SGD[name]
    task = Given(lambda: embedded(is_sparse), ids=40, seed=5)
    workload = workload_of(task, optimizer, 2, 5)
    expected, _ = plainly_trained(copy.deepcopy(workload.model), task, theirs, 2)
    train(workload, range(STEPS))

    assert bytes_of(workload) == expected


@pytest.mark.parametrize("name", [*SGD, *ADAM])
def test_parameters_that_a_pass_leaves_out_are_as_with_ddp(name: str) -> None:
    """What no worker uses keeps its weights and its momentum, and does not decay."""
    optimizer, theirs = (SGD | ADAM)[name]
    for workers in (1, 3):
        task = Given(Experts, seed=workers)
        workload = workload_of(task, optimizer, workers, 1)
        expected, unused = plainly_trained(copy.deepcopy(workload.model), task, theirs, workers)
        train(workload, range(STEPS))

        assert bytes_of(workload) == expected
        assert len({frozenset(one) for one in unused}) > 1  # not the same in all steps


def test_a_parameter_that_a_worker_leaves_out_has_a_gradient_of_zero() -> None:
    task = Given(Experts, seed=4)
    workload = workload_of(task, Sgd(), 2, 4)
    gradients = workload.gradients(0)
    for worker in range(2):
        (inputs,), _ = task.samples(0, worker)
        chosen = set(workload.model.gate(inputs).argmax(1).tolist())
        for bucket, part in zip(workload.buckets, gradients[worker], strict=True):
            for tensor in bucket.tensors:
                kind, _, number = tensor.layer.partition(".")
                is_used = kind == "gate" or (kind == "experts" and int(number) in chosen)
                assert bool(part[tensor.place].any()) == is_used


def test_a_note_counts_the_tensors_that_were_left_out() -> None:
    """Counted by the plain loop; a stop changes nothing, and a restart forgets."""
    task = Given(Experts, seed=4)
    whole, first, resumed = (workload_of(task, Adam(), 1, 4) for _ in range(3))
    _, unused = plainly_trained(copy.deepcopy(whole.model), task, ADAM["adam"][1], 1)
    never = set.intersection(*unused)
    partly = set.union(*unused) - never
    train(whole, range(STEPS))
    train(first, range(5))
    resumed.restore(first.state())
    train(resumed, range(5, STEPS))
    some, none = whole.notes

    assert {"spare.weight", "spare.bias"} <= never
    assert some.startswith(f"{len(partly)} tensors, such as 'experts.")
    assert none.startswith(f"{len(never)} tensors, such as '")
    assert resumed.notes == whole.notes
    assert workload_of(Given(normed), Sgd(), 1, 4).notes == ()
    whole.restart()
    assert whole.notes == ()


def test_local_steps_pass_over_what_a_worker_does_not_use() -> None:
    """A worker's own optimizer does, as PyTorch's; what is exchanged of it is zero."""
    task = Given(Experts, seed=6)
    workload = TrainingWorkload(
        task, 2, RATE, NoFusion(), 6, recipe=Recipe(Adam(weight_decay=0.1), local_steps=3)
    )
    before = {name: one.detach().clone() for name, one in workload.model.named_parameters()}
    for worker, parts in enumerate(workload.gradients(0)):
        model = copy.deepcopy(workload.model)
        optimizer = torch.optim.Adam(model.parameters(), RATE, weight_decay=0.1)
        with one_thread():
            for local in range(3):
                optimizer.zero_grad()
                inputs, targets = task.samples(local, worker)
                task.loss(model(*inputs), targets).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        for bucket, part in zip(workload.buckets, parts, strict=True):
            for tensor in bucket.tensors:
                moved = before[tensor.name] - model.get_parameter(tensor.name).detach()
                assert part[tensor.place].tobytes() == moved.numpy().tobytes()
