"""PyTorch's own counter is the oracle for FLOPs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from netfold.sim.workload.training.probe import probe


class Attention(nn.Module):
    """Scaled dot products between learned rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(16, 48)

    def forward(self, inputs: Tensor) -> Tensor:
        query, key, value = self.rows(inputs).reshape(2, 4, 8, 3, 16).unbind(3)
        return nn.functional.scaled_dot_product_attention(query, key, value)


def convolution() -> tuple[nn.Module, Tensor]:
    layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3, stride=2), nn.Flatten())
    return layers, torch.ones(2, 3, 12, 12)


def embedding() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 5)), torch.arange(20)


def attention() -> tuple[nn.Module, Tensor]:
    return Attention(), torch.ones(2, 4, 8, 16)


class Batched(nn.Module):
    """A batch of matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices = nn.Parameter(torch.ones(5, 6, 7))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.baddbmm(torch.ones(5, 4, 7), inputs, self.matrices)


def batched() -> tuple[nn.Module, Tensor]:
    return Batched(), torch.ones(5, 4, 6)


@pytest.mark.parametrize("made", [convolution, embedding, attention, batched])
def test_flops_are_those_that_pytorch_counts(made: Callable[[], tuple[nn.Module, Tensor]]) -> None:
    model, inputs = made()

    def loss() -> Tensor:
        output: Tensor = model(inputs)
        return output.square().sum()

    found = probe(model, loss).cost
    with FlopCounterMode(display=False) as forward:
        value = loss()
    with FlopCounterMode(display=False) as backward:
        value.backward()  # type: ignore[no-untyped-call]

    assert found.forward_flops == forward.get_total_flops() > 0
    assert found.backward_flops == backward.get_total_flops() > 0
