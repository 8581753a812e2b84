"""Tensors of common layers as PyTorch names them, in the order in which their gradients become ready."""

from __future__ import annotations

from netfold.homomorphic.round import Tensor
from netfold.sim.workload.layers import tensor_of


def linear(name: str, inputs: int, outputs: int) -> tuple[Tensor, ...]:
    """Bias and weight of a linear layer: the bias is ready first."""
    return tensor_of(f"{name}.bias", (outputs,)), tensor_of(f"{name}.weight", (outputs, inputs))


def embedding(name: str, rows: int, columns: int) -> tuple[Tensor, ...]:
    """The table of an embedding."""
    return (tensor_of(f"{name}.weight", (rows, columns)),)
