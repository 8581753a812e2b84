"""Optimizers and learning-rate schedules have the bits of PyTorch's; trainings have those of a user's loop.

The loop takes nothing from netfold but the batches and the weights at the start. With gradients it does what
DDP does with `find_unused_parameters`: a worker that does not use a parameter adds zero to its sum, and one
that no worker uses keeps no gradient, so optimizers pass over it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler

from netfold.sim.workload.fusion import ONE_BUCKET
from netfold.sim.workload.learning_rate import Constant, Cosine, Linear, RateSchedule, StepDecay
from netfold.sim.workload.optimizers import Adam, AdamW, Optimizer, Sgd
from netfold.sim.workload.training_keys import Recipe
from netfold.sim.workload.weights import one_thread
from tests.sim.workload.given import (
    INPUTS,
    OUTPUTS,
    Given,
    buffers_of,
    by_name,
    bytes_of,
    flat,
    linear,
    made,
    normed,
    one_pass,
    totals,
    train,
    weights_of,
)

RATE, STEPS = 0.07, 12
SGD, ADAM = torch.optim.SGD, torch.optim.Adam
OPTIMIZERS: dict[str, tuple[Optimizer, int, Callable[..., torch.optim.Optimizer]]] = {
    # ours, how many numbers it remembers of each weight, and PyTorch's
    "plain": (Sgd(), 0, SGD),
    "momentum": (Sgd(0.9), 1, partial(SGD, momentum=0.9)),
    "nesterov": (Sgd(0.9, nesterov=True), 1, partial(SGD, momentum=0.9, nesterov=True)),
    "decay": (Sgd(weight_decay=0.1), 0, partial(SGD, weight_decay=0.1)),
    "all": (
        Sgd(0.8, nesterov=True, weight_decay=0.01),
        1,
        partial(SGD, momentum=0.8, nesterov=True, weight_decay=0.01),
    ),
    "adam": (Adam(), 2, ADAM),
    "adam-all": (
        Adam((0.8, 0.95), 1e-6, 0.1),
        2,
        partial(ADAM, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    ),
    "adamw": (AdamW(), 2, torch.optim.AdamW),
}
LOCAL = [(name, 2) for name in ("plain", "momentum", "adam")]


@pytest.mark.parametrize(("name", "local_steps"), [*((name, 1) for name in OPTIMIZERS), *LOCAL])
def test_state_is_what_is_counted_and_a_stop_changes_nothing(name: str, local_steps: int) -> None:
    """Nor does a restart; statistics of batches are in the state. Of local steps every worker has its own."""
    optimizer, floats, _ = OPTIMIZERS[name]
    recipe = Recipe(optimizer=optimizer, schedule=Cosine(warmup=3), steps=10, local_steps=local_steps)
    whole, first, resumed = (made(Given(normed), 3, RATE, recipe) for _ in range(3))
    start = bytes_of(whole)
    train(whole, range(10))
    train(first, range(5))
    state = first.state()
    before, norm, statistics = flat(state), first.update_norm, buffers_of(first.model)
    train(first, range(5, 7))
    assert flat(state) == before  # it is a copy
    train(resumed, range(2))
    resumed.restore(state)
    assert (resumed.update_norm, buffers_of(resumed.model)) == (norm, statistics)
    train(resumed, range(5, 10))

    assert bytes_of(whole) == bytes_of(resumed)
    assert whole.update_norm == resumed.update_norm
    ends = [flat(each.state()) for each in (whole, resumed)]
    assert ends[0] == ends[1]
    elements = sum(bucket.elements for bucket in whole.buckets) * (3 if local_steps > 1 else 1)
    memories = [state["optimizer"], *(state["local"] or ())]
    parts = [(name, part) for memory in memories for name, own in memory.items() for part in own.values()]
    large = [(name, part) for name, part in parts if part.ndim]
    assert sum(part.size for _, part in large) == optimizer.state_floats * elements == floats * elements
    assert all(part.size == weights_of(whole)[name].size for name, part in large)
    assert optimizer.is_plain == (optimizer == Sgd())
    whole.restart()
    assert bytes_of(whole) == start
    train(whole, range(10))
    assert flat(whole.state()) == ends[1]


def test_buckets_change_nothing() -> None:
    trained = []
    for fusion in (None, ONE_BUCKET):
        workload = made(Given(linear), 3, RATE, Recipe(optimizer=Adam()), fusion)
        train(workload, range(4))
        trained.append((bytes_of(workload), workload.update_norm))

    assert trained[0] == trained[1]


def test_totals_may_be_read_only_and_stay_as_they_are() -> None:
    workload = made(Given(linear), 4, RATE, Recipe(optimizer=Sgd(0.9, weight_decay=0.1)))
    for step in range(2):
        sums = totals(workload, step)
        kept = [part.copy() for part in sums]
        for part in sums:
            part.flags.writeable = False
        workload.apply(step, sums)
        assert all(map(np.array_equal, sums, kept))


SCHEDULED = 20  # steps
Make = Callable[[torch.optim.Optimizer, int], lr_scheduler.LRScheduler]
SCHEDULES: dict[str, tuple[Callable[..., RateSchedule], Make]] = {
    "constant": (Constant, lambda of, steps: lr_scheduler.ConstantLR(of, 1.0, steps)),
    "step": (partial(StepDecay, 6, 0.3), lambda of, steps: lr_scheduler.StepLR(of, 6, 0.3)),
    "cosine": (partial(Cosine, 0.1), lambda of, steps: lr_scheduler.CosineAnnealingLR(of, steps, 0.1 * RATE)),
    "linear": (partial(Linear, 0.2), lambda of, steps: lr_scheduler.LinearLR(of, 1.0, 0.2, steps)),
}


@pytest.mark.filterwarnings("ignore")  # PyTorch's own, of the order of calls inside SequentialLR
@pytest.mark.parametrize("warmup", [0, 1, 5])
@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_those_of_pytorch(name: str, warmup: int) -> None:
    """Of a loop that calls `step` of the schedule after every step."""
    ours, theirs = SCHEDULES[name]
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], RATE)
    first = [lr_scheduler.LinearLR(optimizer, 1 / (warmup + 1), 1.0, warmup)] if warmup else []
    schedule = theirs(optimizer, SCHEDULED - warmup)
    if warmup:
        schedule = lr_scheduler.SequentialLR(optimizer, [*first, schedule], milestones=[warmup])
    expected = []
    for _ in range(SCHEDULED):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    rates = [RATE * ours(warmup=warmup).factor(step, SCHEDULED) for step in range(SCHEDULED)]

    assert rates == pytest.approx(expected, rel=1e-9)


def test_schedules_beyond_their_steps() -> None:
    for schedule in (Cosine(0.25), Linear(0.25)):  # the floor
        assert [schedule.factor(step, 10) for step in (10, 99)] == pytest.approx([0.25, 0.25])
    assert Linear(warmup=30).factor(10, 5) == 11 / 31  # a warm-up that never ends
    assert Cosine().factor(0, 1) == 1.0


def test_codecs_are_told_the_rate_of_each_step() -> None:
    recipe = Recipe(schedule=StepDecay(2, 0.5, warmup=1), steps=6)
    workload, other = (made(Given(linear), 2, 0.5, recipe) for _ in range(2))
    expected = [0.5 * factor for factor in (0.5, 1, 1, 0.5, 0.5, 0.25)]

    for step, rate in enumerate(expected):
        before, sums = weights_of(workload), totals(workload, step)
        assert workload.learning_rate == rate
        workload.apply(step, sums)
        for name, total in by_name(workload, sums).items():
            assert np.array_equal(weights_of(workload)[name], before[name] - np.float32(rate / 2) * total)
    workload.restart()
    assert workload.learning_rate == expected[0]
    workload.gradients(0)
    workload.apply(2, totals(workload, 2))
    other.restore(workload.state())
    assert other.learning_rate == expected[3]


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


def plainly_trained(
    model: nn.Module, task: Given, name: str, workers: int
) -> tuple[dict[str, bytes], list[set[str]]]:
    """The weights after the steps of a plain loop, and what no worker used in each step."""
    optimizer = OPTIMIZERS[name][2](list(model.parameters()), RATE)
    unused = []
    for step in range(STEPS):
        sums: dict[str, Tensor] = {}
        for worker in range(workers):
            one_pass(model, task, step, worker)
            for key, parameter in model.named_parameters():
                if (gradient := parameter.grad) is not None:
                    gradient = gradient.to_dense() if gradient.is_sparse else gradient.clone()
                    sums[key] = sums[key] + gradient if key in sums else gradient
        for key, parameter in model.named_parameters():
            mean = sums[key] / workers if key in sums else None
            is_sparse = parameter.grad is not None and parameter.grad.is_sparse
            parameter.grad = mean.to_sparse(1) if is_sparse and mean is not None else mean
        unused.append({key for key, _ in model.named_parameters()} - sums.keys())
        with one_thread():
            optimizer.step()
    return {key: weights.detach().numpy().tobytes() for key, weights in model.named_parameters()}, unused


TASKS = [(normed, 4), (convolutional, 3), (wide, 1), (Experts, 1), (Experts, 3)]
ROWS = [("plain", embedded, 2), ("momentum", embedded, 2), ("nesterov", partial(embedded, False), 2)]


@pytest.mark.parametrize(
    ("name", "make", "workers"), [*((name, *task) for name in OPTIMIZERS for task in TASKS), *ROWS]
)
def test_optimizers_are_those_of_torch(name: str, make: Callable[[], nn.Module], workers: int) -> None:
    """What no worker uses keeps its weights and its momentum, and does not decay.

    With sparse gradients PyTorch has no weight decay, and its Nesterov is refused in places.
    """
    task = Given(make, ids=40 if workers == 2 else 0, seed=workers)
    workload = made(task, workers, RATE, Recipe(optimizer=OPTIMIZERS[name][0]))
    expected, unused = plainly_trained(copy.deepcopy(workload.model), task, name, workers)
    train(workload, range(STEPS))

    assert bytes_of(workload) == expected
    assert (len(set(map(frozenset, unused))) > 1) == (make is Experts)  # not the same in all steps


def test_a_parameter_that_a_worker_leaves_out_has_a_gradient_of_zero() -> None:
    task = Given(Experts)
    workload = made(task, 2, RATE)
    for worker, parts in enumerate(workload.gradients(0)):
        (inputs,), _ = task.samples(0, worker)
        chosen = {f"experts.{number}" for number in workload.model.gate(inputs).argmax(1).tolist()}
        for name, part in by_name(workload, parts).items():
            assert bool(part.any()) == (name.rpartition(".")[0] in {"gate", *chosen})


def test_a_note_counts_the_tensors_that_were_left_out() -> None:
    """Counted by the plain loop; a stop changes nothing, and a restart forgets."""
    task = Given(Experts)
    whole, first, resumed = (made(task, 1, RATE, Recipe(optimizer=Adam())) for _ in range(3))
    _, unused = plainly_trained(copy.deepcopy(whole.model), task, "adam", 1)
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
    assert made(Given(normed), 1, RATE).notes == ()
    whole.restart()
    assert whole.notes == ()


@pytest.mark.parametrize(("make", "name"), [(linear, "plain"), (Experts, "adam-all")])
def test_what_is_sent_is_how_far_each_workers_local_steps_go(
    make: Callable[[], nn.Module], name: str
) -> None:
    """They pass over what the worker does not use, as PyTorch's: what is sent of that is zero."""
    (optimizer, _, theirs), task = OPTIMIZERS[name], Given(make)
    workload = made(task, 3, RATE, Recipe(optimizer=optimizer, local_steps=3))
    before, losses = weights_of(workload), []
    for worker, parts in enumerate(workload.gradients(2)):
        model = copy.deepcopy(workload.model)
        stepper = theirs(model.parameters(), RATE)
        for local in range(3):
            losses.append(one_pass(model, task, 2 * 3 + local, worker))
            with one_thread():
                stepper.step()
        for key, part in by_name(workload, parts).items():
            assert part.tobytes() == (before[key] - model.get_parameter(key).detach().numpy()).tobytes()
    assert workload.loss == pytest.approx(np.mean(losses), rel=1e-12)
    assert bytes_of(workload) == {key: part.tobytes() for key, part in before.items()}  # until the exchange
