"""Virtual workers against backward passes written out by hand."""

import copy

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from netfold.sim.workload import TrainingSpec, training_workload
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
from tests.sim.workload.training.loop.given import totals, train

MLP = TrainingSpec("mlp", batch=16, learning_rate=0.1)
ORDER = ["2.bias", "2.weight", "0.bias", "0.weight"]  # back to front, bias before weight


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
    assert workload.loss is None
    gradients = workload.gradients(4)
    by_hand, losses = [], []
    for worker in range(3):
        (images,), labels = task.samples(4, worker)
        losses.append(task.loss(workload.model(images), labels).item())
        by_hand.append(mlp_gradient(before, images.numpy().astype(np.float64), labels.numpy()))
        expected = np.concatenate([by_hand[worker][name].ravel() for name in ORDER])

        np.testing.assert_allclose(np.concatenate(gradients[worker]), expected, rtol=1e-4, atol=1e-7)

    assert workload.loss == pytest.approx(np.mean(losses))
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


def test_same_seed_same_bits_and_global_generator_untouched() -> None:
    def run(seed: int) -> bytes:
        workload = training_workload(MLP, workers=2, seed=seed)
        train(workload, range(2))
        return np.concatenate(totals(workload, 2)).tobytes()

    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = run(seed=1)

    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(4)
    assert first == run(seed=1)
    assert first != run(seed=2)


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
