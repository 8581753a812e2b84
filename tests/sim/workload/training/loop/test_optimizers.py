"""Optimizers against the loop that a user of PyTorch writes, and against formulas in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from netfold.sim.workload.fusion.one import ONE_BUCKET
from netfold.sim.workload.training.loop.passes import one_thread
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.optimizers.adam import Adam
from netfold.sim.workload.training.optimizers.adamw import AdamW
from netfold.sim.workload.training.optimizers.rule import Optimizer
from netfold.sim.workload.training.optimizers.sgd import Sgd
from netfold.sim.workload.training.schedules.cosine import Cosine
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.sim.workload.training.loop.given import Given, bytes_of, linear, made, totals, train, weights_of

RATE = 0.07
Class = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, tuple[Optimizer, Class]] = {
    "plain": (Sgd(), lambda own: torch.optim.SGD(own, RATE)),
    "momentum": (Sgd(0.9), lambda own: torch.optim.SGD(own, RATE, momentum=0.9)),
    "nesterov": (
        Sgd(0.8, nesterov=True, weight_decay=0.01),
        lambda own: torch.optim.SGD(own, RATE, momentum=0.8, nesterov=True, weight_decay=0.01),
    ),
    "decay": (Sgd(weight_decay=0.1), lambda own: torch.optim.SGD(own, RATE, weight_decay=0.1)),
    "adam": (Adam(), lambda own: torch.optim.Adam(own, RATE)),
    "adam-decay": (
        Adam((0.8, 0.95), 1e-6, 0.1),
        lambda own: torch.optim.Adam(own, RATE, (0.8, 0.95), 1e-6, 0.1),
    ),
    "adamw": (AdamW(), lambda own: torch.optim.AdamW(own, RATE)),
}
STATEFUL = {"plain": 0, "momentum": 1, "nesterov": 1, "decay": 0, "adam": 2, "adam-decay": 2, "adamw": 2}


def training(optimizer: Optimizer, workers: int = 4) -> TrainingWorkload:
    return made(Given(linear), workers, RATE, Recipe(optimizer))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_pytorch_on_the_mean_gradient(name: str) -> None:
    """Of 4 workers, so that the mean is exact; bit for bit, by one thread."""
    optimizer, make = OPTIMIZERS[name]
    workload = training(optimizer)
    model = copy.deepcopy(workload.model)
    plain = make(list(model.parameters()))
    for step in range(12):
        found = totals(workload, step)
        for bucket, total in zip(workload.buckets, found, strict=True):
            for tensor in bucket.tensors:
                mean = torch.from_numpy(total[tensor.place].copy()).view(tensor.shape) / 4
                model.get_parameter(tensor.name).grad = mean
        with one_thread():
            plain.step()
        workload.apply(step, found)
        theirs = {key: one.detach().numpy().tobytes() for key, one in model.named_parameters()}

        assert bytes_of(workload) == theirs


def test_momentum_and_adam_by_their_formulas() -> None:
    for optimizer in (Sgd(0.9, nesterov=True, weight_decay=0.02), Adam(weight_decay=0.02), AdamW()):
        workload = training(optimizer, workers=3)
        name = "0.weight"
        weights = weights_of(workload)[name].astype(float)
        velocity = first = second = np.zeros_like(weights)
        for step in range(1, 6):
            total = next(
                total[tensor.place].reshape(tensor.shape)
                for bucket, total in zip(workload.buckets, totals(workload, step), strict=True)
                for tensor in bucket.tensors
                if tensor.name == name
            )
            gradient = total.astype(float) / 3
            if isinstance(optimizer, Sgd):
                gradient = gradient + 0.02 * weights
                velocity = gradient if step == 1 else 0.9 * velocity + gradient
                weights = weights - RATE * (gradient + 0.9 * velocity)
            else:
                if isinstance(optimizer, AdamW):
                    weights = weights * (1 - RATE * 0.01)
                else:
                    gradient = gradient + 0.02 * weights
                first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
                root = np.sqrt(second / (1 - 0.999**step)) + 1e-8
                weights = weights - RATE * first / (1 - 0.9**step) / root
            workload.apply(step, totals(workload, step))

            np.testing.assert_allclose(weights_of(workload)[name], weights, rtol=2e-5, atol=2e-6)


def test_plain_sgd_has_no_state() -> None:
    assert [name for name, (optimizer, _) in OPTIMIZERS.items() if optimizer.is_plain] == ["plain"]
    workload = training(Sgd(), workers=3)
    train(workload, range(2))

    assert not [key for key in workload.state() if key.startswith("optimizer")]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_is_what_is_counted_and_a_stop_changes_nothing(name: str) -> None:
    optimizer, _ = OPTIMIZERS[name]
    recipe = Recipe(optimizer, Cosine(warmup=3), steps=10)
    whole, first, resumed = (made(Given(linear), 3, RATE, recipe) for _ in range(3))
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
    assert sum(one.size for one in large) == optimizer.state_floats * elements
    assert optimizer.state_floats == STATEFUL[name]
    assert {one.shape for one in large} <= {one.shape for one in weights_of(whole).values()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_restart_forgets_what_the_optimizer_remembers(name: str) -> None:
    workload = training(OPTIMIZERS[name][0])
    start = bytes_of(workload)
    train(workload, range(4))
    once = bytes_of(workload)
    workload.restart()

    assert bytes_of(workload) == start
    train(workload, range(4))
    assert bytes_of(workload) == once


def test_buckets_change_nothing() -> None:
    trained = []
    for fusion in (None, ONE_BUCKET):
        workload = made(Given(linear), 3, RATE, Recipe(Adam()), fusion)
        train(workload, range(4))
        trained.append((bytes_of(workload), workload.update_norm))

    assert trained[0] == trained[1]


def test_the_norm_is_that_of_what_the_optimizer_moved() -> None:
    workload = training(Adam())
    before = weights_of(workload)
    train(workload, range(1))
    moved = [before[name].astype(float) - one for name, one in weights_of(workload).items()]

    norm = np.sqrt(sum((one**2).sum() for one in moved))
    assert workload.update_norm == pytest.approx(norm, rel=1e-6)


def test_an_update_passes_the_optimizer_by() -> None:
    workload = training(Sgd(0.9))
    before, found = weights_of(workload), totals(workload, 0)
    workload.apply(0, found, [True] * len(found))
    for bucket, total in zip(workload.buckets, found, strict=True):
        for tensor in bucket.tensors:
            update = total[tensor.place].reshape(tensor.shape)
            assert bytes_of(workload)[tensor.name] == (before[tensor.name] - update).tobytes()
    assert not [key for key in workload.state() if key.startswith("optimizer")]


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


def test_the_generator_of_pytorch_and_its_threads_are_left_alone() -> None:
    workload, state, threads = training(AdamW()), torch.get_rng_state(), torch.get_num_threads()
    train(workload, range(2))

    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == threads
