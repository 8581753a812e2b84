"""Attention of several heads."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional


def attend(
    parts: tuple[Tensor, Tensor, Tensor], heads: int, dropout: float, is_causal: bool = False
) -> Tensor:
    """Scaled dot-product attention of queries, keys and values, each `(batch, time, width)`, as one of them.

    A. Vaswani et al., Attention Is All You Need, NIPS 2017, §3.2; `dropout` is that of the weights. With
    `is_causal` a query attends to its own place and those before it. It is written out as matrix products,
    because PyTorch counts no FLOPs of its fused operator on CPUs.
    """
    queries, keys, values = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in parts)
    scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[-1])
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    weights = functional.dropout(scores.softmax(3), dropout)
    mixed: Tensor = (weights @ values).transpose(1, 2).flatten(2)
    return mixed
