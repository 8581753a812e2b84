"""Tensors of common layers as PyTorch names them, in the order in which their gradients become ready."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from netfold.homomorphic.round import Tensor
from netfold.sim.workload.layers import placed, tensor_of


def linear(name: str, inputs: int, outputs: int) -> tuple[Tensor, ...]:
    """Bias and weight of a linear layer: the bias is ready first."""
    return tensor_of(f"{name}.bias", (outputs,)), tensor_of(f"{name}.weight", (outputs, inputs))


def embedding(name: str, rows: int, columns: int) -> tuple[Tensor, ...]:
    """The table of an embedding."""
    return (tensor_of(f"{name}.weight", (rows, columns)),)


def convolution(name: str, inputs: int, outputs: int, kernel: int, bias: bool = True) -> tuple[Tensor, ...]:
    """Weight and bias of a convolution with a square kernel: the weight is ready first."""
    weight = tensor_of(f"{name}.weight", (outputs, inputs, kernel, kernel))
    return (weight, tensor_of(f"{name}.bias", (outputs,))) if bias else (weight,)


def norm(name: str, channels: int, layer: str) -> tuple[Tensor, ...]:
    """Weight and bias of a norm, which belongs to a layer: the weight is ready first."""
    weight, bias = (tensor_of(f"{name}.{part}", (channels,)) for part in ("weight", "bias"))
    return weight._replace(layer=layer), bias._replace(layer=layer)


def lstm(name: str, inputs: int, hidden: int, layers: int) -> tuple[Tensor, ...]:
    """Weights and biases of an LSTM's layers, from the last on: PyTorch gives those of a layer at once."""
    shapes = [
        (f"{part}_l{layer}", shape)
        for layer in reversed(range(layers))
        for part, shape in (
            ("weight_ih", (4 * hidden, hidden if layer else inputs)),
            ("weight_hh", (4 * hidden, hidden)),
            ("bias_hh", (4 * hidden,)),
            ("bias_ih", (4 * hidden,)),
        )
    ]
    return tuple(tensor_of(f"{name}.{part}", shape) for part, shape in shapes)


def in_ready_order(layers: Iterable[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """All tensors, those of the last layer first; each layer's as they are given."""
    return placed(tensor for layer in reversed(list(layers)) for tensor in layer)


_EXPANSION = 4  # of a bottleneck


class ResidualStage(NamedTuple):
    """Blocks of a residual network with the same number of channels."""

    width: int  # channels of the convolutions 3 x 3
    blocks: int
    stride: int  # of the first block
    is_bottleneck: bool = False
    pads: bool = False  # shortcuts have no parameters (option A)

    @property
    def outputs(self) -> int:
        """Channels of its result."""
        return self.width * _EXPANSION if self.is_bottleneck else self.width
