"""Kernels of a pass, counted by hand."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from torch import Tensor, nn

from netfold.sim.workload import TrainingSpec, training_workload
from netfold.sim.workload.devices.cost import (
    CONVOLUTION,
    CONVOLUTION_BACKWARD,
    MATMUL,
    OTHER,
    Kernel,
    StepCost,
)
from netfold.sim.workload.training.kernels import KernelCounter
from netfold.sim.workload.training.probe import probe
from netfold.sim.workload.training.timing import timed_passes

FLOAT = 4


def counted(call: object) -> list[Kernel]:
    with KernelCounter() as counter:
        call()  # type: ignore[operator]
    return list(counter.taken())


def cost_of(model: nn.Module, inputs: Tensor) -> StepCost:
    return probe(model, lambda: model(inputs).square().sum()).cost


ONE, TABLE, CHOSEN, ROW = torch.ones(10), torch.ones(1000, 16), torch.arange(5), torch.ones(8).expand(100, 8)
ROWS = [Kernel(OTHER, 0, 2 * 5 * 16 * FLOAT + 40)]


@pytest.mark.parametrize(
    ("call", "kernels"),
    [
        # `ones` writes 24 floats; to reshape the transposed matrix takes a copy: 24 read and written
        (lambda: torch.ones(6, 4).t().reshape(3, 8)[1:], [Kernel(OTHER, 0, 96), Kernel(OTHER, 0, 192)]),
        (lambda: torch.empty(1000), []),
        (lambda: torch.empty(10).fill_(2), [Kernel(OTHER, 0, 40)]),  # written, not read
        (lambda: ONE.add_(ONE.clone()), [Kernel(OTHER, 0, 80), Kernel(OTHER, 0, 120)]),  # read and written
        (lambda: ONE.copy_(torch.empty(10)), [Kernel(OTHER, 0, 80)]),
        (lambda: ONE + ONE, [Kernel(OTHER, 0, 80)]),  # the same tensor twice
        (lambda: ROW + 1, [Kernel(OTHER, 0, 32 + 3200)]),  # an expanded tensor has the bytes that hold it
        (lambda: nn.functional.embedding(CHOSEN, TABLE), ROWS),  # of a table the rows that are taken
        (lambda: TABLE[CHOSEN], ROWS),
        (lambda: TABLE.index_select(0, CHOSEN), ROWS),
        (lambda: TABLE[:3, :5] @ TABLE[:5, :7], [Kernel(MATMUL, 2 * 3 * 5 * 7, FLOAT * (15 + 35 + 21))]),
    ],
)
def test_kernels_read_their_operands_and_write_their_results(call: object, kernels: list[Kernel]) -> None:
    assert counted(call) == kernels


def test_gradients_of_a_table_are_written_whole() -> None:
    cost = cost_of(nn.Embedding(1000, 16), torch.arange(5))
    (stage,) = cost.backward

    assert max(one.size_bytes for one in stage.kernels) >= 1000 * 16 * FLOAT
    assert cost.update_bytes == 3 * 1000 * 16 * FLOAT


def test_stages_are_in_the_order_of_gradients_and_add_up() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    cost = cost_of(model, torch.ones(2, 3, 8, 8))
    named = [stage.tensor for stage in cost.backward if stage.tensor]
    kernels = list(chain.from_iterable(stage.kernels for stage in cost.backward))

    assert sorted(named) == sorted(name for name, _ in model.named_parameters())
    assert {named.index(f"3.{one}") for one in ("weight", "bias")} == {0, 1}
    assert sum(one.flops for one in cost.forward) == cost.forward_flops
    assert sum(one.flops for one in kernels) == cost.backward_flops
    assert [one.kind for one in cost.forward if one.flops] == [CONVOLUTION, MATMUL]
    assert [one.kind for one in kernels if one.flops] == [MATMUL, MATMUL, CONVOLUTION_BACKWARD]
    (convolution,) = [one for one in cost.forward if one.kind == CONVOLUTION]
    assert convolution.size_bytes == FLOAT * (2 * 3 * 64 + 8 * 27 + 8 + 2 * 8 * 36)


def test_a_fused_lstm_has_the_operations_of_its_matrices() -> None:
    """PyTorch counts them where oneDNN does not fuse: all but what that leaves out.

    The inputs and the first hidden state need no gradient: two products of each layer's first step, and that
    of the first layer's inputs, are not done there.
    """
    steps, batch, inputs, hidden = 7, 3, 16, 32
    model, sequence = nn.LSTM(inputs, hidden, 2), torch.ones(steps, batch, inputs)

    def loss() -> Tensor:
        found: Tensor = model(sequence)[0]
        return found.square().sum()

    cost = probe(model, loss).cost
    forward = 2 * steps * batch * 4 * hidden * (inputs + 3 * hidden)

    assert cost.forward_flops == forward
    assert cost.backward_flops == 2 * forward


def test_data_are_drawn_before_the_passes_are_counted() -> None:
    """Of the perceptron on digits: two products and biases, a ReLU, the loss."""
    cost = training_workload(TrainingSpec("mlp", batch=16), workers=1, seed=1).cost

    assert [one.kind for one in cost.forward].count(MATMUL) == 2
    assert len(cost.forward) == 5
    assert cost.update_bytes == 3 * FLOAT * (64 * 128 + 128 + 128 * 10 + 10)


def test_timed_passes_leave_the_model_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs, state = torch.rand(32, 16), torch.get_rng_state()

    passes, update_ps = timed_passes(model, lambda one: one(inputs).square().sum())

    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())
    names = [name for name, _ in model.named_parameters()]
    assert set(passes.ready_ps) == set(names)
    assert 0 < passes.ready_ps["3.weight"] < passes.ready_ps["0.weight"] <= passes.backward_ps
    assert passes.forward_ps > 0
    assert update_ps > 0
