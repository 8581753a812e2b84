"""Optimizers against the loop that a user of PyTorch writes, and against formulas in float64."""

from __future__ import annotations

import numpy as np
import pytest

from netfold.sim.workload.fusion.one import ONE_BUCKET
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.optimizers.adam import Adam
from netfold.sim.workload.training.optimizers.adamw import AdamW
from netfold.sim.workload.training.optimizers.rule import Optimizer
from netfold.sim.workload.training.optimizers.sgd import Sgd
from netfold.sim.workload.training.schedules.cosine import Cosine
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.sim.workload.training.loop.given import Given, bytes_of, linear, made, totals, train, weights_of

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
