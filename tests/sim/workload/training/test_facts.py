"""What training knows of a step, updates that are applied as they are, and a stop and resume."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.fusion.one import ONE_BUCKET
from netfold.sim.workload.fusion.partition import AsGiven
from netfold.sim.workload.fusion.rule import Fusion
from netfold.sim.workload.training.data.images import Digits
from netfold.sim.workload.training.models.perceptrons import Mlp
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.training.tasks.images import ImagesTask
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.sim.workload.training.loop.given import bytes_of, totals, train, weights_of

RATE, WORKERS = 0.3, 3


def made(digits: Digits, fusion: Fusion = NoFusion(), seed: int = 7) -> TrainingWorkload:
    return TrainingWorkload(
        ImagesTask(digits, Mlp().module, TaskSettings("digits", 16, WORKERS, seed)),
        WORKERS,
        RATE,
        fusion,
        seed,
    )


@pytest.mark.parametrize("fusion", [NoFusion(), ONE_BUCKET])
def test_gradients_at_kept_weights_are_those_of_a_model_with_these_weights(
    digits: Digits, fusion: Fusion
) -> None:
    """Workers keep at different steps; the batch is that of the step, the weights those of the keeping."""
    workload, other = made(digits, fusion), made(digits, fusion)
    kept: dict[int, dict[str, Any]] = {}
    for step in range(4):
        for worker in {0: (0, 1, 2), 2: (1,)}.get(step, ()):
            workload.keep_weights(worker)
            kept[worker] = {f"weights.{name}": one for name, one in weights_of(workload).items()}
        before = [[part.tobytes() for part in parts] for parts in workload.gradients(step)]
        model = bytes_of(workload)
        for worker in range(WORKERS):
            found = workload.kept_gradients(step, worker)
            other.restore({**other.state(), **kept[worker]})
            expected = other.gradients(step)[worker]
            assert [part.tobytes() for part in found] == [part.tobytes() for part in expected]
            assert [part.shape for part in found] == [(bucket.elements,) for bucket in workload.buckets]
        assert [[part.tobytes() for part in parts] for parts in workload.gradients(step)] == before
        assert bytes_of(workload) == model
        train(workload, range(step, step + 1))


def test_workers_that_keep_nothing_are_told(digits: Digits) -> None:
    """After a restart nobody has kept anything, and weights are those of the start, whatever was restored."""
    workload, other = made(digits), made(digits)
    start = bytes_of(workload)
    workload.keep_weights(0)

    with pytest.raises(RuntimeError, match="worker 1 has kept no weights: call keep_weights before"):
        workload.kept_gradients(0, 1)
    train(workload, range(3))
    other.restore(workload.state())
    for one in (workload, other):
        one.restart()
        with pytest.raises(RuntimeError, match="worker 0 has kept no weights"):
            one.kept_gradients(0, 0)
        assert bytes_of(one) == start


def distance(before: Mapping[str, Any], after: Mapping[str, Any]) -> float:
    """L2, in float64."""
    return math.sqrt(math.fsum(((before[name].astype(float) - after[name]) ** 2).sum() for name in after))


def test_the_norm_of_an_update_is_the_distance_that_weights_move(digits: Digits) -> None:
    workload = made(digits)
    assert (workload.update_norm, workload.learning_rate, workload.next_step) == (None, RATE, 0)
    for step in range(3):
        before = weights_of(workload)
        workload.apply(step, totals(workload, step))

        assert workload.update_norm == pytest.approx(distance(before, weights_of(workload)), rel=1e-14)
        assert workload.next_step == step + 1
    workload.restart()
    assert (workload.update_norm, workload.next_step) == (None, 0)


def test_updates_are_subtracted_as_they_are_and_sums_as_ever(digits: Digits) -> None:
    workload, plain = made(digits), made(digits)
    found = totals(workload, 0)
    before = weights_of(workload)
    workload.apply(0, found, [False, True])
    plain.apply(0, found)
    after, alone = weights_of(workload), weights_of(plain)
    first, second = workload.buckets

    for tensor in first.tensors:
        assert after[tensor.name].tobytes() == alone[tensor.name].tobytes()
    for tensor in second.tensors:
        update = found[1][tensor.place].reshape(tensor.shape)
        assert after[tensor.name].tobytes() == (before[tensor.name] - update).tobytes()
    names = [tensor.name for tensor in first.tensors]
    sums = distance({name: before[name] for name in names}, {name: after[name] for name in names})
    update = np.linalg.norm(found[1].astype(np.float64))
    assert workload.update_norm == pytest.approx(math.hypot(sums, update), rel=1e-14)


@pytest.mark.parametrize("fusion", [NoFusion(), AsGiven((("2", "0"),))])
def test_five_steps_stopped_and_five_more_are_ten(digits: Digits, fusion: Fusion) -> None:
    """Into a new workload, which may even have other buckets, with weights that workers kept before."""

    def kept(workload: TrainingWorkload) -> dict[tuple[int, str], bytes]:
        return {
            (worker, tensor.name): part[tensor.place].tobytes()
            for worker in (0, 2)
            for bucket, part in zip(workload.buckets, workload.kept_gradients(9, worker), strict=True)
            for tensor in bucket.tensors
        }

    whole, first = made(digits), made(digits)
    for workload in (whole, first):
        for step in range(5):
            if step in (0, 3):
                workload.keep_weights(2 if step else 0)
            workload.apply(step, totals(workload, step))
    state = {name: array.copy() for name, array in first.state().items()}
    train(first, range(5, 6))  # the state is a copy
    resumed = made(digits, fusion)
    train(resumed, range(1))  # what it did before does not matter
    resumed.restore(state)

    assert resumed.next_step == 5
    for workload in (whole, resumed):
        train(workload, range(workload.next_step, 10))
    assert bytes_of(whole) == bytes_of(resumed)
    assert (whole.update_norm, whole.next_step) == (resumed.update_norm, resumed.next_step)
    assert kept(whole) == kept(resumed)
    assert {name: array.tobytes() for name, array in whole.state().items()} == {
        name: array.tobytes() for name, array in resumed.state().items()
    }


def test_a_state_of_something_else_is_refused(digits: Digits) -> None:
    workload = made(digits)
    state = workload.state()
    fewer = {name: array for name, array in state.items() if name != "weights.0.bias"}
    for wrong, message in (
        ({}, "the state has no step, but nothing"),
        ({**state, "kept": np.zeros(2, np.int64)}, "the state is not that of a training with 3 workers"),
        (fewer, "the state is of another model: weights.0.bias has shape None, must be (128,)"),
        (
            {**state, "weights.0.bias": np.zeros(127, np.float32)},
            "the state is of another model: weights.0.bias has shape (127,), must be (128,)",
        ),
        (
            {**state, "weights.9.bias": np.zeros(3, np.float32)},
            "the state is of another model: weights.9.bias has shape (3,), must be None",
        ),
    ):
        with pytest.raises(ValueError) as caught:
            workload.restore(wrong)

        assert str(caught.value) == message


def test_workers_that_keep_the_same_share_a_copy(digits: Digits) -> None:
    workload = made(digits)
    for worker in range(WORKERS):
        workload.keep_weights(worker)
    assert {name.partition(".")[0] for name in workload.state()} == {"kept", "kept0", "weights", "step"}
    train(workload, range(1))
    workload.keep_weights(1)

    assert workload.state()["kept"].tolist() == [0, 1, 0]
