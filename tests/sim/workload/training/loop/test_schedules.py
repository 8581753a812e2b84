"""Schedules of the learning rate against PyTorch's, and the rate that codecs are told."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.schedules.constant import Constant
from netfold.sim.workload.training.schedules.cosine import Cosine
from netfold.sim.workload.training.schedules.linear import Linear
from netfold.sim.workload.training.schedules.rule import Schedule
from netfold.sim.workload.training.schedules.step import Step
from tests.sim.workload.training.loop.given import Given, linear, made, totals, weights_of

STEPS, RATE = 20, 0.5
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
        lambda own, steps: lr_scheduler.CosineAnnealingLR(own, steps, eta_min=0.1 * RATE),
    ),
    "linear": (
        lambda warmup: Linear(0.2, warmup=warmup),
        lambda own, steps: lr_scheduler.LinearLR(own, 1.0, 0.2, steps),
    ),
}


def rates_of_pytorch(make: Make, warmup: int) -> list[float]:
    """Rates of a loop that calls `step` of the schedule after every step."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], RATE)
    schedule = make(optimizer, STEPS - warmup)
    if warmup:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], RATE)
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

    assert [RATE * schedule.factor(step, STEPS) for step in range(STEPS)] == pytest.approx(expected, rel=1e-9)


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
    workload = made(Given(linear), 2, RATE, recipe)
    expected = [RATE * factor for factor in (0.5, 1, 1, 0.5, 0.5, 0.25)]

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
    other = made(Given(linear), 2, RATE, recipe)
    workload.gradients(0)
    workload.apply(2, totals(workload, 2))
    other.restore(workload.state())
    assert other.learning_rate == expected[3]
