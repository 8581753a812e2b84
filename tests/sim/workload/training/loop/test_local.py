"""Local steps against loops written out: what is exchanged, what weights become, what workers keep."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from netfold.homomorphic.round import StepFact
from netfold.sim.workload.training.loop.passes import one_thread
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.optimizers.adam import Adam
from netfold.sim.workload.training.optimizers.sgd import Sgd
from netfold.sim.workload.training.schedules.constant import Constant
from netfold.sim.workload.training.schedules.step import Step
from tests.sim.workload.training.loop.given import (
    Given,
    bytes_of,
    linear,
    made,
    normed,
    train,
    weights_of,
)

RATE, LOCAL = 0.2, 3
PLAIN = Recipe(local_steps=LOCAL)


def one_pass(model: nn.Module, task: Given, step: int, worker: int) -> float:
    """The loss; the model then has its gradients."""
    model.zero_grad()
    inputs, targets = task.samples(step, worker)
    with one_thread():
        loss = task.loss(model(*inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def test_what_is_sent_is_how_far_each_workers_own_steps_go() -> None:
    task = Given(linear)
    workload = made(task, 3, RATE, PLAIN)
    before = weights_of(workload)
    sent = workload.gradients(2)
    losses = []
    for worker in range(3):
        model = copy.deepcopy(workload.model)
        for local in range(LOCAL):
            losses.append(one_pass(model, task, 2 * LOCAL + local, worker))
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.data.add_(parameter.grad, alpha=-RATE)
        for bucket, part in zip(workload.buckets, sent[worker], strict=True):
            for tensor in bucket.tensors:
                moved = before[tensor.name] - model.get_parameter(tensor.name).detach().numpy()
                assert part[tensor.place].tobytes() == moved.tobytes()
    assert workload.loss == pytest.approx(np.mean(losses), rel=1e-12)
    assert bytes_of(workload) == {name: one.tobytes() for name, one in before.items()}  # until the exchange


@pytest.mark.parametrize("name", ["plain", "momentum", "adam"])
def test_each_worker_keeps_an_optimizer_of_its_own_from_one_exchange_to_the_next(name: str) -> None:
    """Loops of PyTorch, an optimizer for each worker, whose weights are replaced by the mean."""
    task, workers = Given(linear), 2
    share = 0.9 if name == "momentum" else 0.0
    optimizer = Adam() if name == "adam" else Sgd(share)
    workload = made(task, workers, RATE, Recipe(optimizer, Step(4, 0.5), 3, LOCAL))
    models = [copy.deepcopy(workload.model) for _ in range(workers)]
    theirs = [
        torch.optim.Adam(one.parameters(), RATE)
        if name == "adam"
        else torch.optim.SGD(one.parameters(), RATE, share)
        for one in models
    ]
    for step in range(3):
        for worker, (model, own) in enumerate(zip(models, theirs, strict=True)):
            for local in range(LOCAL):
                number = step * LOCAL + local
                one_pass(model, task, number, worker)
                own.param_groups[0]["lr"] = RATE * 0.5 ** (number // 4)
                with one_thread():
                    own.step()
        train(workload, range(step, step + 1))
        for key, mean in weights_of(workload).items():
            owns = [one.get_parameter(key).detach().numpy() for one in models]
            np.testing.assert_allclose(mean, np.mean(owns, axis=0, dtype=float), rtol=1e-4, atol=1e-6)
            for one in models:
                one.get_parameter(key).data.copy_(torch.from_numpy(mean))


@pytest.mark.parametrize("optimizer", [Sgd(), Sgd(0.9), Adam()])
def test_a_stop_changes_nothing(optimizer: Sgd | Adam) -> None:
    recipe = Recipe(optimizer, Constant(warmup=4), 6, 2)
    whole, first, resumed = (made(Given(normed), 3, RATE, recipe) for _ in range(3))
    train(whole, range(6))
    train(first, range(3))
    state = {name: one.copy() for name, one in first.state().items()}
    train(first, range(3, 4))
    train(resumed, range(1))
    resumed.restore(state)
    train(resumed, range(3, 6))

    assert bytes_of(whole) == bytes_of(resumed)
    assert {name: one.tobytes() for name, one in whole.state().items()} == {
        name: one.tobytes() for name, one in resumed.state().items()
    }
    whole.restart()
    train(whole, range(6))
    assert bytes_of(whole) == bytes_of(resumed)


def test_differences_from_kept_weights_are_those_of_the_steps_from_there() -> None:
    task = Given(linear)
    workload, other = made(task, 2, RATE, PLAIN), made(task, 2, RATE, PLAIN)
    workload.keep_weights(1)
    train(workload, range(2))
    here = [part.copy() for part in workload.gradients(2)[1]]
    kept = workload.kept_gradients(2, 1)
    at_start = other.gradients(2)[1]  # a workload that has not moved

    assert [part.tobytes() for part in kept] == [part.tobytes() for part in at_start]
    assert [part.tobytes() for part in here] == [part.tobytes() for part in workload.gradients(2)[1]]
    assert not np.array_equal(kept[0], here[0])
    workload.keep_weights(0)
    assert [part.tobytes() for part in workload.kept_gradients(2, 0)] == [
        part.tobytes() for part in workload.gradients(2)[0]
    ]


def test_the_rate_of_an_exchange_is_one_and_its_passes_are_counted() -> None:
    """So weights −= rate · sum / workers holds, and codecs that make updates can be used."""
    local, plain = made(Given(linear), 2, RATE, PLAIN), made(Given(linear), 2, RATE)

    assert (local.learning_rate, plain.learning_rate) == (1.0, RATE)
    assert (local.cost.passes, plain.cost.passes) == (LOCAL, 1)
    assert local.cost.forward_flops == plain.cost.forward_flops
    assert [bucket.ready_share for bucket in local.buckets] == [1.0, 1.0]
    assert plain.buckets[0].ready_share < 1
    everything, rate = frozenset(StepFact), StepFact.LEARNING_RATE
    assert local.facts == Recipe().facts == Recipe(Sgd(), local_steps=2).facts == everything
    assert Recipe(Adam()).facts == Recipe(Sgd(weight_decay=0.1)).facts == everything - {rate}
    assert Recipe(Adam(), local_steps=2).facts == everything - {StepFact.KEPT_WEIGHTS}
    assert Recipe(Sgd(weight_decay=0.1), local_steps=2).facts == everything
