"""Virtual workers against backward passes written out by hand."""

import copy

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from netfold.sim.workload import TrainingSpec, Workload, training_workload
from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.fusion.size import BySize
from netfold.sim.workload.training.data.images import Digits
from netfold.sim.workload.training.data.ratings import Ratings
from netfold.sim.workload.training.models.perceptrons import Mlp
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.training.tasks.images import ImagesTask
from netfold.sim.workload.training.tasks.recommender import RecommenderTask
from netfold.sim.workload.training.tasks.task import Task
from netfold.sim.workload.training.workload import TrainingWorkload

MLP = TrainingSpec("mlp", batch=16, learning_rate=0.1)
ORDER = ["2.bias", "2.weight", "0.bias", "0.weight"]  # back to front, bias before weight


def sums(workload: Workload, step: int) -> list[NDArray[np.float32]]:
    """What a perfect network would deliver: one array per bucket."""
    gradients = workload.gradients(step)
    return [np.sum(parts, axis=0, dtype=np.float32) for parts in zip(*gradients, strict=True)]


def mlp_gradient(
    weights: dict[str, NDArray[np.float64]], images: NDArray[np.float64], labels: NDArray[np.int64]
) -> dict[str, NDArray[np.float64]]:
    """Gradient of the mean cross entropy of the 64-128-10 perceptron, by the chain rule."""
    hidden = np.maximum(images @ weights["0.weight"].T + weights["0.bias"], 0)
    logits = hidden @ weights["2.weight"].T + weights["2.bias"]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1
    at_logits = shares / len(labels)
    at_hidden = (at_logits @ weights["2.weight"]) * (hidden > 0)
    return {
        "2.bias": at_logits.sum(axis=0),
        "2.weight": at_logits.T @ hidden,
        "0.bias": at_hidden.sum(axis=0),
        "0.weight": at_hidden.T @ images,
    }


def test_one_step_of_sgd_by_hand(digits: Digits) -> None:
    task = ImagesTask(digits, Mlp().module, TaskSettings("digits", batch=16, workers=3, seed=7))
    workload = TrainingWorkload(task, 3, learning_rate=0.5, fusion=BySize(2**20), seed=7)
    before = {
        name: value.detach().numpy().astype(np.float64) for name, value in workload.model.named_parameters()
    }
    gradients = workload.gradients(4)
    by_hand = []
    for worker in range(3):
        (images,), labels = task.samples(4, worker)
        by_hand.append(mlp_gradient(before, images.numpy().astype(np.float64), labels.numpy()))
        expected = np.concatenate([by_hand[worker][name].ravel() for name in ORDER])

        np.testing.assert_allclose(np.concatenate(gradients[worker]), expected, rtol=1e-4, atol=1e-7)

    workload.apply(4, [np.sum(parts, axis=0) for parts in zip(*gradients, strict=True)])
    for name, value in workload.model.named_parameters():
        moved = before[name] - 0.5 / 3 * sum(gradient[name] for gradient in by_hand)

        np.testing.assert_allclose(value.detach().numpy(), moved, rtol=1e-5, atol=1e-7)


def by_autograd(workload: TrainingWorkload, task: Task, step: int, worker: int) -> NDArray[np.float32]:
    """One worker's gradient from a private copy of the model."""
    model = copy.deepcopy(workload.model)
    inputs, targets = task.samples(step, worker)
    names = [tensor.name for bucket in workload.buckets for tensor in bucket.tensors]
    gradients = torch.autograd.grad(
        task.loss(model(*inputs), targets), [model.get_parameter(name) for name in names]
    )
    return np.concatenate([gradient.numpy().ravel() for gradient in gradients])


def test_every_worker_has_its_own_gradient_and_buffer(movielens: Ratings) -> None:
    task = RecommenderTask(movielens, (2, 1), batch=64, workers=3, seed=1)
    workload = TrainingWorkload(task, 3, learning_rate=0.1, fusion=NoFusion(), seed=1)
    for step in (0, 1):
        gradients = workload.gradients(step)
        expected = [by_autograd(workload, task, step, worker) for worker in range(3)]

        assert [part.tobytes() for part in expected] == [
            np.concatenate(parts).tobytes() for parts in gradients
        ]
        assert all(part.ndim == 1 and part.flags.c_contiguous for parts in gradients for part in parts)
        workload.apply(step, [np.sum(parts, axis=0) for parts in zip(*gradients, strict=True)])


def test_buckets_follow_the_backward_pass(movielens: Ratings) -> None:
    task = RecommenderTask(movielens, (1, 1), batch=8, workers=1, seed=1)
    buckets = TrainingWorkload(task, 1, 0.1, NoFusion(), seed=1).buckets
    names = [tensor.name for bucket in buckets for tensor in bucket.tensors]

    assert names[:2] == ["output.bias", "output.weight"]
    mlp = [name for name in names if name.startswith("mlp.")]
    assert [f"mlp.{layer}.0.{kind}" for layer in (2, 1, 0) for kind in ("bias", "weight")] == mlp
    assert names.index("mlp_user.weight") > names.index("mlp.0.0.weight")
    assert names.index("mlp_item.weight") > names.index("mlp.0.0.weight")
    assert len(names) == len(set(names)) == 12


def test_bucket_size_changes_nothing_but_the_cut() -> None:
    def trained(bucket_bytes: int) -> tuple[list[str], bytes]:
        workload = training_workload(TrainingSpec("mlp", 16, 0.1, BySize(bucket_bytes)), workers=2, seed=1)
        for step in range(3):
            workload.apply(step, sums(workload, step))
        return [bucket.name for bucket in workload.buckets], np.concatenate(sums(workload, 3)).tobytes()

    whole, cut = trained(2**20), trained(5000)

    assert whole[0] == ["2.bias..0.weight"]
    assert cut[0] == ["2.bias..2.weight", "0.bias..0.weight"]
    assert whole[1] == cut[1]


def test_training_learns() -> None:
    workload = training_workload(TrainingSpec("mlp", batch=16, learning_rate=0.5), workers=8, seed=1)
    losses = []
    for step in range(150):
        total = sums(workload, step)
        losses.append(workload.loss)
        workload.apply(step, total)

    assert losses[0] == pytest.approx(np.log(10), abs=0.1)  # ten classes, no idea
    assert losses[-1] is not None
    assert losses[-1] < 0.25


def test_loss_is_the_mean_over_workers(digits: Digits) -> None:
    task = ImagesTask(digits, Mlp().module, TaskSettings("digits", batch=16, workers=3, seed=7))
    workload = TrainingWorkload(task, 3, learning_rate=0.5, fusion=BySize(2**20), seed=7)
    assert workload.loss is None
    workload.gradients(0)
    losses = []
    for worker in range(3):
        (images,), labels = task.samples(0, worker)
        losses.append(task.loss(workload.model(images), labels).item())

    assert workload.loss == pytest.approx(np.mean(losses))


def test_same_seed_same_bits_and_global_generator_untouched() -> None:
    def run(seed: int) -> bytes:
        workload = training_workload(MLP, workers=2, seed=seed)
        for step in range(2):
            workload.apply(step, sums(workload, step))
        return np.concatenate(sums(workload, 2)).tobytes()

    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = run(seed=1)

    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(4)
    assert first == run(seed=1)
    assert first != run(seed=2)


def test_sums_may_be_read_only() -> None:
    workload = training_workload(MLP, workers=2, seed=1)
    total = sums(workload, 0)
    total[0].flags.writeable = False
    workload.apply(0, total)


def test_cost_of_the_perceptron() -> None:
    cost = training_workload(MLP, workers=1, seed=1).cost
    layers = 64 * 128, 128 * 10
    activations = 16 * (64 + 128 + 10)  # images, hidden (saved once for two uses), log-probabilities

    assert 2 * 16 * sum(layers) == cost.forward_flops
    # both weight gradients, and the hidden layer's; images need none
    assert 2 * 16 * (sum(layers) + layers[1]) == cost.backward_flops
    parameters = sum(layers) + 128 + 10
    saved_bytes = cost.forward_bytes // 2

    assert cost.backward_bytes == cost.forward_bytes + 4 * parameters
    assert saved_bytes == 4 * (activations + layers[1]) + 8 * 16 + 4  # labels are int64; a scalar weight


def density(gradients: list[list[NDArray[np.float32]]]) -> tuple[float, float]:
    """Share of non-zeros of one worker (mean) and of the union of all."""
    support = np.stack([np.concatenate(parts) for parts in gradients]) != 0
    return float(support.mean()), float(support.any(axis=0).mean())


def test_recommender_gradients_are_as_sparse_as_measured_elsewhere() -> None:
    """18 % per worker and 55 % for the union of 8 at 256 samples: what an independent NeuMF gave."""
    workload = training_workload(TrainingSpec("ncf"), workers=8, seed=1)
    local, union = density(workload.gradients(0))

    assert sum(bucket.elements for bucket in workload.buckets) == 611_073
    assert local == pytest.approx(0.18, abs=0.01)
    assert union == pytest.approx(0.549, abs=0.015)
