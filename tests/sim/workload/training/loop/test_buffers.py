"""Batch norms and dropout: whose statistics, in which mode, and drawn from what."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from netfold.sim.errors import DataError
from netfold.sim.workload.training.loop.passes import one_thread
from tests.sim.workload.training.loop.given import (
    Given,
    bytes_of,
    dropping,
    linear,
    made,
    normed,
    totals,
    train,
)

STATISTICS = {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def buffers_of(model: nn.Module) -> dict[str, bytes]:
    return {name: one.numpy().tobytes() for name, one in model.named_buffers()}


def test_statistics_are_those_of_worker_0() -> None:
    """A model that sees the batches of worker 0 alone, at the same weights."""
    task = Given(normed)
    workload = made(task, 3)
    assert set(dict(workload.model.named_buffers())) == STATISTICS
    alone = copy.deepcopy(workload.model)
    for step in range(4):
        alone.load_state_dict(dict(workload.model.named_parameters()), strict=False)
        (inputs,), _ = task.samples(step, 0)
        with one_thread():
            alone(inputs)
        workload.apply(step, totals(workload, step))

        assert buffers_of(workload.model) == buffers_of(alone)
    assert workload.model.get_buffer("1.num_batches_tracked").item() == 4  # the probe does not count


def test_a_test_uses_running_statistics_and_changes_nothing() -> None:
    task = Given(normed)
    workload = made(task, 2)
    workload.model[3].eval()  # type: ignore[index]  # a part that its owner has frozen stays so
    train(workload, range(3))
    before = buffers_of(workload.model)
    score = workload.score(2, is_last=True)
    model = copy.deepcopy(workload.model).eval()
    inputs, targets = task.samples(10**6, 0)

    assert score is not None
    assert score.value == pytest.approx(task.loss(model(*inputs), targets).item(), rel=1e-6)
    assert buffers_of(workload.model) == before
    workload.keep_weights(1)  # nor does a pass at kept weights
    workload.kept_gradients(3, 1)
    assert buffers_of(workload.model) == before
    assert [module.training for module in workload.model] == [True, True, True, False]  # type: ignore[attr-defined]
    assert workload.model.training


def test_statistics_restart_and_resume() -> None:
    workload, other = made(Given(normed), 2), made(Given(normed), 2)
    start = buffers_of(workload.model)
    train(workload, range(3))
    once, state = buffers_of(workload.model), workload.state()
    assert {name for name in state if name.startswith("buffers.")} == {f"buffers.{one}" for one in STATISTICS}
    workload.restart()
    assert buffers_of(workload.model) == start
    train(workload, range(3))
    assert buffers_of(workload.model) == once
    other.restore(state)
    assert buffers_of(other.model) == once
    with pytest.raises(ValueError, match=r"buffers\.1\.running_mean has shape None, must be \(7,\)"):
        other.restore({name: one for name, one in state.items() if name != "buffers.1.running_mean"})
    plain = made(Given(linear), 2)
    with pytest.raises(ValueError, match=r"buffers\.1\.running_mean has shape \(7,\), must be None"):
        plain.restore({**plain.state(), "buffers.1.running_mean": np.zeros(7, np.float32)})


def test_a_model_that_is_built_otherwise_each_time_is_refused_at_the_restart() -> None:
    count = iter(range(10))

    def other() -> nn.Module:
        model = linear()
        nn.init.constant_(model[0].weight, next(count))  # type: ignore[index]
        return model

    workload = made(Given(other), 2)
    workload.restart()  # nothing has moved
    train(workload, range(1))
    with pytest.raises(DataError, match="the model has other weights each time it is built"):
        workload.restart()


def test_dropout_is_keyed_by_step_and_worker() -> None:
    """The same bits whatever was drawn before; other elements at another step or worker."""
    state = torch.get_rng_state()
    task = Given(dropping)
    workload, other = made(task, 3), made(task, 3)
    train(workload, range(2))
    assert torch.equal(torch.get_rng_state(), state)  # PyTorch's own is left alone
    torch.manual_seed(5)
    other.gradients(1)  # out of order
    other.restart()
    train(other, range(2))
    assert bytes_of(workload) == bytes_of(other)

    def dropped(step: int, worker: int) -> frozenset[int]:
        """Units of the hidden layer without a gradient at any sample: 1 in 16, drawn."""
        parts = other.gradients(step)[worker]
        bias = parts[1][:40]
        assert other.buckets[1].tensors[0].name == "0.bias"
        return frozenset(np.flatnonzero(bias == 0).tolist())

    assert len({dropped(5, worker) for worker in range(3)}) > 1
    assert len({dropped(step, 0) for step in range(5, 9)}) > 1
    torch.set_rng_state(state)
