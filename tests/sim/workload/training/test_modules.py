"""Layers of small models against tables written by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from netfold.sim.workload import TrainingSpec
from netfold.sim.workload.layers import layers_of, placed, tensor_of
from netfold.sim.workload.training.probe import probe


class Residual(nn.Module):
    """Modules are registered in another order than they run, and run with operations between them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm2 = nn.BatchNorm2d(4)
        self.norm1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm1(self.conv1(inputs).relu()).relu()
        return inputs + torch.as_tensor(self.norm2(self.conv2(hidden)))


class Tied(nn.Module):
    """The table of words is also the last layer's matrix, as in language models."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.middle = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)
        self.decoder = nn.Linear(6, 11)
        self.decoder.weight = self.words.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.as_tensor(self.decoder(self.norm(self.middle(self.words(inputs)))))


class Again(nn.Module):
    """A layer that runs twice, with the same norm behind it each time; and a norm before all layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LayerNorm(5)
        self.shared = nn.Linear(5, 5, bias=False)
        self.norm = nn.LayerNorm(5)
        self.last = nn.Linear(5, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.norm(self.shared(self.first(inputs)))
        return torch.as_tensor(self.last(self.norm(self.shared(hidden))))


class OwnParameters(nn.Module):
    """A model with a parameter that is no module's, and attention, whose last matrix runs as no module."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(3, 4))
        self.attention = nn.MultiheadAttention(4, 2)
        self.scale = nn.PReLU()

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs + self.places
        return torch.as_tensor(self.scale(self.attention(inputs, inputs, inputs)[0]))


class Attention(nn.Module):
    """Scaled dot products between learned rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Linear(16, 48)

    def forward(self, inputs: Tensor) -> Tensor:
        query, key, value = self.rows(inputs).reshape(2, 4, 8, 3, 16).unbind(3)
        return nn.functional.scaled_dot_product_attention(query, key, value)


def nested() -> nn.Module:
    block = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU())
    return nn.Sequential(block, nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten()), nn.Linear(64, 2))


@pytest.mark.parametrize(
    ("build", "inputs", "table"),
    [
        (
            nested,
            torch.ones(2, 3, 6, 6),
            {
                "0.0": ["0.0.weight", "0.1.weight", "0.1.bias", "1.0.weight", "1.0.bias"],
                "2": ["2.weight", "2.bias"],
            },
        ),
        (
            Residual,
            torch.ones(2, 4, 5, 5),
            {
                "conv1": ["norm1.weight", "norm1.bias", "conv1.weight", "conv1.bias"],
                "conv2": ["norm2.weight", "norm2.bias", "conv2.weight"],
            },
        ),
        (
            Tied,
            torch.arange(8),
            {
                "words": ["words.weight", "decoder.bias"],
                "middle": ["middle.weight", "middle.bias", "norm.weight", "norm.bias"],
            },
        ),
        (
            Again,
            torch.ones(2, 5),
            {
                "first": ["first.weight", "first.bias"],
                "shared": ["shared.weight", "norm.weight", "norm.bias"],
                "last": ["last.weight", "last.bias"],
            },
        ),
        (
            OwnParameters,
            torch.ones(3, 2, 4).transpose(0, 1),
            {
                "OwnParameters": ["places"],
                "attention": ["attention.in_proj_weight", "attention.in_proj_bias", "scale.weight"],
                "attention.out_proj": ["attention.out_proj.weight", "attention.out_proj.bias"],
            },
        ),
        (Attention, torch.ones(2, 4, 8, 16), {"rows": ["rows.weight", "rows.bias"]}),
        (lambda: nn.Linear(3, 2), torch.ones(1, 3), {"Linear": ["weight", "bias"]}),
    ],
)
def test_layers_are_those_of_the_table_and_flops_those_that_pytorch_counts(
    build: Callable[[], nn.Module], inputs: Tensor, table: dict[str, list[str]]
) -> None:
    model = build()

    def loss() -> Tensor:
        output: Tensor = model(inputs)
        return output.square().sum()

    found = probe(model, loss)
    with FlopCounterMode(display=False) as forward:
        value = loss()
    with FlopCounterMode(display=False) as backward:
        value.backward()  # type: ignore[no-untyped-call]

    assert found.layers == {name: layer for layer, names in table.items() for name in names}
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())  # none is left
    assert found.cost.forward_flops == forward.get_total_flops() > 0
    assert found.cost.backward_flops == backward.get_total_flops() > 0


def test_a_tied_layer_is_ready_with_its_last_use() -> None:
    """The decoder's bias is ready first; the table last, when the embedding's gradient is in it."""
    model = Tied()
    found = probe(model, lambda: model(torch.arange(8)).square().sum())
    tensors = [tensor_of(name, tuple(model.get_parameter(name).shape)) for name in found.order]
    tensors = [one._replace(layer=found.layers[one.name]) for one in tensors]

    assert found.order[0] == "decoder.bias"
    assert found.order[-1] == "words.weight"
    assert [layer.name for layer in layers_of(placed(tensors))] == ["middle", "words"]


def test_layers_of_the_models_by_hand() -> None:
    ncf = {tensor.name: tensor.layer for tensor in TrainingSpec("ncf").tensors}

    assert [layer.name for layer in layers_of(TrainingSpec("mlp").tensors)] == ["2", "0"]
    assert ncf == {
        "output.bias": "output",
        "output.weight": "output",
        "mlp.2.0.bias": "mlp.2.0",
        "mlp.2.0.weight": "mlp.2.0",
        "mlp.1.0.bias": "mlp.1.0",
        "mlp.1.0.weight": "mlp.1.0",
        "mlp.0.0.bias": "mlp.0.0",
        "mlp.0.0.weight": "mlp.0.0",
        "mlp_item.weight": "mlp_item",
        "mlp_user.weight": "mlp_user",
        "factors_item.weight": "factors_item",
        "factors_user.weight": "factors_user",
    }
