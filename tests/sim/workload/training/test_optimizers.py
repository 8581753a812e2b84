"""Optimizers and learning-rate schedules have the bits of PyTorch's."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.fusion.one import ONE_BUCKET
from netfold.sim.workload.training.loop.passes import one_thread
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.optimizers.adam import Adam
from netfold.sim.workload.training.optimizers.adamw import AdamW
from netfold.sim.workload.training.optimizers.rule import Optimizer
from netfold.sim.workload.training.optimizers.sgd import Sgd
from netfold.sim.workload.training.schedules.constant import Constant
from netfold.sim.workload.training.schedules.cosine import Cosine
from netfold.sim.workload.training.schedules.linear import Linear
from netfold.sim.workload.training.schedules.rule import Schedule
from netfold.sim.workload.training.schedules.step import Step
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.sim.workload.training.given import (
    INPUTS,
    OUTPUTS,
    Given,
    bytes_of,
    linear,
    made,
    normed,
    totals,
    train,
    weights_of,
)

RATE = 0.07
OPTIMIZERS: list[tuple[Optimizer, int]] = [  # and how many numbers it remembers of each weight
    *((Sgd(), 0), (Sgd(0.9), 1), (Sgd(0.8, nesterov=True, weight_decay=0.01), 1), (Sgd(weight_decay=0.1), 0)),
    *((Adam(), 2), (Adam((0.8, 0.95), 1e-6, 0.1), 2), (AdamW(), 2)),
]


def training(optimizer: Optimizer, workers: int = 4) -> TrainingWorkload:
    return made(Given(linear), workers, RATE, Recipe(optimizer))


@pytest.mark.parametrize(("optimizer", "floats"), OPTIMIZERS)
def test_state_is_what_is_counted_and_a_stop_changes_nothing(optimizer: Optimizer, floats: int) -> None:
    """Nor does a restart."""
    recipe = Recipe(optimizer, Cosine(warmup=3), steps=10)
    whole, first, resumed = (made(Given(linear), 3, RATE, recipe) for _ in range(3))
    start = bytes_of(whole)
    train(whole, range(10))
    train(first, range(5))
    state = {key: one.copy() for key, one in first.state().items()}
    train(first, range(5, 7))  # the state is a copy
    train(resumed, range(2))
    resumed.restore(state)
    train(resumed, range(5, 10))

    assert bytes_of(whole) == bytes_of(resumed)
    assert whole.update_norm == resumed.update_norm
    elements = sum(bucket.elements for bucket in whole.buckets)
    large = [one for key, one in state.items() if key.startswith("optimizer/") and one.ndim]
    assert sum(one.size for one in large) == optimizer.state_floats * elements == floats * elements
    assert {one.shape for one in large} <= {one.shape for one in weights_of(whole).values()}
    assert optimizer.is_plain == (optimizer == Sgd())
    whole.restart()
    assert bytes_of(whole) == start
    train(whole, range(10))
    assert bytes_of(whole) == bytes_of(resumed)


def test_the_norm_is_that_of_what_the_optimizer_moved_and_updates_pass_it_by() -> None:
    workload = training(Adam())
    before, found = weights_of(workload), totals(workload, 0)
    workload.apply(0, found)
    after = weights_of(workload)
    assert workload.update_norm == pytest.approx(
        np.sqrt(sum(((before[name].astype(float) - one) ** 2).sum() for name, one in after.items())), rel=1e-6
    )
    workload.restart()
    workload.apply(0, found, [True] * len(found))
    for bucket, total in zip(workload.buckets, found, strict=True):
        for tensor in bucket.tensors:
            update = total[tensor.place].reshape(tensor.shape)
            assert bytes_of(workload)[tensor.name] == (before[tensor.name] - update).tobytes()
    assert not [key for key in workload.state() if key.startswith("optimizer")]


def test_buckets_change_nothing() -> None:
    trained = []
    for fusion in (None, ONE_BUCKET):
        workload = made(Given(linear), 3, RATE, Recipe(Adam()), fusion)
        train(workload, range(4))
        trained.append((bytes_of(workload), workload.update_norm))

    assert trained[0] == trained[1]


def test_totals_may_be_read_only_and_stay_as_they_are() -> None:
    workload = training(Sgd(0.9, weight_decay=0.1))
    for step in range(2):
        found = totals(workload, step)
        kept = [one.copy() for one in found]
        for one in found:
            one.flags.writeable = False
        workload.apply(step, found)
        assert all(np.array_equal(one, other) for one, other in zip(found, kept, strict=True))


def test_a_state_of_another_optimizer_is_refused() -> None:
    adam, momentum = training(Adam()), training(Sgd(0.9))
    train(adam, range(1))
    train(momentum, range(1))
    state = adam.state()
    key = "optimizer/exp_avg/0.weight"
    for workload, wrong, message in (
        (momentum, state, "the state is of another model or optimizer: it has optimizer/"),
        (
            adam,
            {**state, key: np.zeros(3, np.float32)},
            f"the state is of another model: {key} has shape (3,), must be (7, 5)",
        ),
        (adam, {name: one for name, one in state.items() if name != key}, f"the state has no {key}"),
    ):
        with pytest.raises(ValueError) as caught:
            workload.restore(wrong)
        assert str(caught.value).startswith(message)
    with pytest.raises(ValueError, match="the state is of another model or optimizer: it has optimizer/"):
        training(Sgd()).restore(state)


STEPS, SCHEDULES_RATE = 20, 0.5
Make = Callable[[torch.optim.Optimizer, int], lr_scheduler.LRScheduler]
SCHEDULES: dict[str, tuple[Callable[[int], Schedule], Make]] = {
    "constant": (
        lambda warmup: Constant(warmup=warmup),
        lambda own, steps: lr_scheduler.ConstantLR(own, 1.0, steps),
    ),
    "step": (
        lambda warmup: Step(6, 0.3, warmup=warmup),
        lambda own, steps: lr_scheduler.StepLR(own, 6, 0.3),
    ),
    "cosine": (
        lambda warmup: Cosine(0.1, warmup=warmup),
        lambda own, steps: lr_scheduler.CosineAnnealingLR(own, steps, eta_min=0.1 * SCHEDULES_RATE),
    ),
    "linear": (
        lambda warmup: Linear(0.2, warmup=warmup),
        lambda own, steps: lr_scheduler.LinearLR(own, 1.0, 0.2, steps),
    ),
}


def rates_of_pytorch(make: Make, warmup: int) -> list[float]:
    """Rates of a loop that calls `step` of the schedule after every step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], SCHEDULES_RATE)
    schedule = make(optimizer, STEPS - warmup)
    if warmup:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], SCHEDULES_RATE)
        first = lr_scheduler.LinearLR(optimizer, 1 / (warmup + 1), 1.0, warmup)
        schedule = lr_scheduler.SequentialLR(
            optimizer, [first, make(optimizer, STEPS - warmup)], milestones=[warmup]
        )
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of the order of calls inside SequentialLR
        for _ in range(STEPS):
            found.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
    return found


@pytest.mark.parametrize("warmup", [0, 1, 5])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_those_of_pytorch(name: str, warmup: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = rates_of_pytorch(SCHEDULES[name][1], warmup)
    schedule = SCHEDULES[name][0](warmup)

    assert [SCHEDULES_RATE * schedule.factor(step, STEPS) for step in range(STEPS)] == pytest.approx(
        expected, rel=1e-9
    )


def test_edges() -> None:
    assert [Constant(warmup=3).factor(step, 9) for step in range(5)] == [0.25, 0.5, 0.75, 1, 1]
    assert [Step(2, 0.5).factor(step, 9) for step in range(5)] == [1, 1, 0.5, 0.5, 0.25]
    assert Cosine().factor(0, 10) == 1.0
    assert Cosine().factor(5, 10) == pytest.approx(0.5)
    for schedule in (Cosine(0.25), Linear(0.25)):  # beyond the last step it is the floor
        assert schedule.factor(10, 10) == pytest.approx(0.25)
        assert schedule.factor(99, 10) == pytest.approx(0.25)
    assert Linear(warmup=30).factor(10, 5) == 11 / 31  # a warm-up that never ends
    assert Cosine().factor(0, 1) == 1.0


def test_codecs_are_told_the_rate_of_each_step() -> None:
    recipe = Recipe(schedule=Step(2, 0.5, warmup=1), steps=6)
    workload = made(Given(linear), 2, SCHEDULES_RATE, recipe)
    expected = [SCHEDULES_RATE * factor for factor in (0.5, 1, 1, 0.5, 0.5, 0.25)]

    assert workload.learning_rate == expected[0]
    for step, rate in enumerate(expected):
        before, found = weights_of(workload), totals(workload, step)
        assert workload.learning_rate == rate
        workload.apply(step, found)
        for bucket, total in zip(workload.buckets, found, strict=True):
            for tensor in bucket.tensors:
                moved = np.float32(rate / 2) * total[tensor.place].reshape(tensor.shape)
                assert np.array_equal(weights_of(workload)[tensor.name], before[tensor.name] - moved)
    workload.restart()
    assert workload.learning_rate == expected[0]
    other = made(Given(linear), 2, SCHEDULES_RATE, recipe)
    workload.gradients(0)
    workload.apply(2, totals(workload, 2))
    other.restore(workload.state())
    assert other.learning_rate == expected[3]


AGAINST_PYTORCH_RATE, AGAINST_PYTORCH_STEPS = 0.1, 12
Class = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
SGD: dict[str, tuple[Optimizer, Class]] = {
    "plain": (Sgd(), lambda own: torch.optim.SGD(own, AGAINST_PYTORCH_RATE)),
    "momentum": (Sgd(0.9), lambda own: torch.optim.SGD(own, AGAINST_PYTORCH_RATE, 0.9)),
    "nesterov": (
        Sgd(0.9, nesterov=True),
        lambda own: torch.optim.SGD(own, AGAINST_PYTORCH_RATE, 0.9, nesterov=True),
    ),
    "decay": (
        Sgd(weight_decay=0.01),
        lambda own: torch.optim.SGD(own, AGAINST_PYTORCH_RATE, weight_decay=0.01),
    ),
    "all": (
        Sgd(0.8, nesterov=True, weight_decay=0.01),
        lambda own: torch.optim.SGD(own, AGAINST_PYTORCH_RATE, 0.8, nesterov=True, weight_decay=0.01),
    ),
}
ADAM: dict[str, tuple[Optimizer, Class]] = {
    "adam": (Adam(), lambda own: torch.optim.Adam(own, AGAINST_PYTORCH_RATE)),
    "adam-all": (
        Adam((0.8, 0.95), 1e-6, 0.1),
        lambda own: torch.optim.Adam(own, AGAINST_PYTORCH_RATE, (0.8, 0.95), 1e-6, 0.1),
    ),
    "adamw": (AdamW(), lambda own: torch.optim.AdamW(own, AGAINST_PYTORCH_RATE)),
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
    return TrainingWorkload(task, workers, AGAINST_PYTORCH_RATE, NoFusion(), seed, recipe=Recipe(optimizer))


def plainly_trained(
    model: nn.Module, task: Given, make: Class, workers: int, steps: int = AGAINST_PYTORCH_STEPS
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
    train(workload, range(AGAINST_PYTORCH_STEPS))

    assert bytes_of(workload) == expected


@pytest.mark.parametrize(("name", "is_sparse"), [("plain", True), ("momentum", True), ("nesterov", False)])
def test_sgd_on_rows_is_that_of_torch(name: str, is_sparse: bool) -> None:
    """With sparse gradients PyTorch has no weight decay, and its Nesterov is refused in places."""
    optimizer, theirs = SGD[name]
    task = Given(lambda: embedded(is_sparse), ids=40, seed=5)
    workload = workload_of(task, optimizer, 2, 5)
    expected, _ = plainly_trained(copy.deepcopy(workload.model), task, theirs, 2)
    train(workload, range(AGAINST_PYTORCH_STEPS))

    assert bytes_of(workload) == expected


@pytest.mark.parametrize("name", [*SGD, *ADAM])
def test_parameters_that_a_pass_leaves_out_are_as_with_ddp(name: str) -> None:
    """What no worker uses keeps its weights and its momentum, and does not decay."""
    optimizer, theirs = (SGD | ADAM)[name]
    for workers in (1, 3):
        task = Given(Experts, seed=workers)
        workload = workload_of(task, optimizer, workers, 1)
        expected, unused = plainly_trained(copy.deepcopy(workload.model), task, theirs, workers)
        train(workload, range(AGAINST_PYTORCH_STEPS))

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
    train(whole, range(AGAINST_PYTORCH_STEPS))
    train(first, range(5))
    resumed.restore(first.state())
    train(resumed, range(5, AGAINST_PYTORCH_STEPS))
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
        task, 2, AGAINST_PYTORCH_RATE, NoFusion(), 6, recipe=Recipe(Adam(weight_decay=0.1), local_steps=3)
    )
    before = {name: one.detach().clone() for name, one in workload.model.named_parameters()}
    for worker, parts in enumerate(workload.gradients(0)):
        model = copy.deepcopy(workload.model)
        optimizer = torch.optim.Adam(model.parameters(), AGAINST_PYTORCH_RATE, weight_decay=0.1)
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
