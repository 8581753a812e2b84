"""Perceptrons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def perceptron(sizes: Sequence[int]) -> nn.Sequential:
    """Images `(batch, inputs)` to logits `(batch, outputs)`, with ReLUs between the layers."""
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        modules += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*modules[:-1])
