"""What training knows of a step, updates that are applied as they are, and a stop and resume."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from netfold.homomorphic.round import StepFact
from netfold.sim.workload import TrainingSpec, Workload, training_workload
from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.fusion.one import ONE_BUCKET
from netfold.sim.workload.fusion.partition import AsGiven
from netfold.sim.workload.fusion.rule import Fusion
from netfold.sim.workload.training.data.images import Digits
from netfold.sim.workload.training.models.perceptrons import Mlp
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.training.tasks.images import ImagesTask
from netfold.sim.workload.training.workload import TrainingWorkload

RATE, WORKERS = 0.3, 3
Weights = dict[str, NDArray[np.float32]]


def made(digits: Digits, fusion: Fusion = NoFusion(), seed: int = 7) -> TrainingWorkload:
    return TrainingWorkload(
        ImagesTask(digits, Mlp().module, TaskSettings("digits", 16, WORKERS, seed)),
        WORKERS,
        RATE,
        fusion,
        seed,
    )


def totals(workload: Workload, step: int) -> list[NDArray[np.float32]]:
    return [np.sum(parts, axis=0, dtype=np.float32) for parts in zip(*workload.gradients(step), strict=True)]


def weights_of(workload: TrainingWorkload) -> Weights:
    return {name: one.detach().numpy().copy() for name, one in workload.model.named_parameters()}


def train(workload: Workload, steps: Sequence[int]) -> None:
    for step in steps:
        workload.apply(step, totals(workload, step))


def gradient_at(
    digits: Digits, weights: dict[str, NDArray[np.float32]], step: int, worker: int
) -> dict[str, NDArray[np.float32]]:
    """A worker's gradient at these weights, of a model that is built for it."""
    task = ImagesTask(digits, Mlp().module, TaskSettings("digits", 16, WORKERS, seed=7))
    model = Mlp().module()
    model.load_state_dict({name: torch.from_numpy(one) for name, one in weights.items()})
    (images,), labels = task.samples(step, worker)
    torch.nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
    return {name: one.grad.numpy() for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("fusion", [NoFusion(), ONE_BUCKET])
def test_gradients_at_kept_weights_are_those_of_a_model_with_these_weights(
    digits: Digits, fusion: Fusion
) -> None:
    """Workers keep at different steps; the batch is that of the step, the weights those of the keeping."""
    workload = made(digits, fusion)
    kept: dict[int, dict[str, NDArray[np.float32]]] = {}
    for step in range(4):
        for worker in {0: (0, 1, 2), 2: (1,)}.get(step, ()):
            workload.keep_weights(worker)
            kept[worker] = weights_of(workload)
        before = [[part.copy() for part in parts] for parts in workload.gradients(step)]
        model = weights_of(workload)
        for worker in range(WORKERS):
            found = workload.kept_gradients(step, worker)
            expected = gradient_at(digits, kept[worker], step, worker)
            for bucket, part in zip(workload.buckets, found, strict=True):
                assert part.shape == (bucket.elements,)
                assert part.dtype == np.float32
                for tensor in bucket.tensors:
                    np.testing.assert_allclose(
                        part[tensor.place].reshape(tensor.shape), expected[tensor.name], rtol=1e-4, atol=1e-7
                    )
        for worker, parts in enumerate(workload.gradients(step)):
            assert all(np.array_equal(one, other) for one, other in zip(parts, before[worker], strict=True))
        assert all(np.array_equal(model[name], one) for name, one in weights_of(workload).items())
        workload.apply(step, totals(workload, step))


def test_at_weights_just_kept_the_gradient_is_that_of_the_step(digits: Digits) -> None:
    workload = made(digits)
    train(workload, [0, 1])
    workload.keep_weights(2)

    assert [part.tobytes() for part in workload.kept_gradients(2, 2)] == [
        part.tobytes() for part in workload.gradients(2)[2]
    ]


def test_workers_that_keep_nothing_are_told(digits: Digits) -> None:
    workload = made(digits)
    workload.keep_weights(0)

    with pytest.raises(RuntimeError, match="worker 1 has kept no weights: call keep_weights before"):
        workload.kept_gradients(0, 1)
    workload.restart()
    with pytest.raises(RuntimeError, match="worker 0 has kept no weights"):
        workload.kept_gradients(0, 0)


def distance(before: Weights, after: Weights) -> float:
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


def test_the_norm_does_not_depend_on_buckets(digits: Digits) -> None:
    found = []
    for fusion in (NoFusion(), ONE_BUCKET):
        workload = made(digits, fusion)
        train(workload, [0])
        found.append(workload.update_norm)

    assert found[0] == found[1]


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
    train(first, [5])  # the state is a copy
    resumed = made(digits, fusion)
    train(resumed, [0])  # what it did before does not matter
    resumed.restore(state)

    assert resumed.next_step == 5
    for workload in (whole, resumed):
        train(workload, range(workload.next_step, 10))
    assert {name: one.tobytes() for name, one in weights_of(whole).items()} == {
        name: one.tobytes() for name, one in weights_of(resumed).items()
    }
    assert (whole.update_norm, whole.next_step) == (resumed.update_norm, resumed.next_step)
    assert kept(whole) == kept(resumed)
    assert {name: array.tobytes() for name, array in whole.state().items()} == {
        name: array.tobytes() for name, array in resumed.state().items()
    }


def test_a_restart_after_a_restore_is_the_start_of_the_training(digits: Digits) -> None:
    first, second = made(digits), made(digits)
    start = weights_of(second)
    first.keep_weights(1)
    train(first, range(3))
    second.restore(first.state())
    second.restart()

    assert {name: one.tobytes() for name, one in weights_of(second).items()} == {
        name: one.tobytes() for name, one in start.items()
    }
    with pytest.raises(RuntimeError, match="worker 1 has kept no weights"):
        second.kept_gradients(0, 1)


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
    train(workload, [0])
    workload.keep_weights(1)

    assert workload.state()["kept"].tolist() == [0, 1, 0]


def test_training_knows_all_facts() -> None:
    workload = training_workload(TrainingSpec("mlp", 4), 1, 1)

    assert workload.facts == TrainingSpec("mlp").facts == frozenset(StepFact)
