"""BIRD's message, beside the prototype's steps in PyTorch, sorting, and reading the gradient once."""

from __future__ import annotations

import numpy as np
import torch

from netfold.homomorphic.codecs.bird.published import Bird
from netfold.homomorphic.round import Round, Tensor
from tests.bench.rates import Bar, Load

ROW_ELEMENTS = 2500  # of a layer, as long as the rows of a ResNet-18 are on average
SHARE = 0.1
_SORTING = "top-k by sorting all"


def loads(elements: int) -> list[Load]:
    """One layer, whole."""
    rows = max(1, elements // ROW_ELEMENTS)
    gradient = np.random.default_rng(3).standard_normal(rows * ROW_ELEMENTS, np.float32)
    tensors = torch.from_numpy(gradient).view(rows, ROW_ELEMENTS)
    one_layer = (Tensor("weight", (rows, ROW_ELEMENTS), "layer"),)
    encoder = Bird(SHARE).worker(0, 1, 0)
    round = Round(0, 0, 1, 1, tensors=one_layer)

    def encode(begin: int, end: int) -> int:
        (message,) = next(encoder.exchange(gradient, round))
        return message.size_bytes

    def sort(begin: int, end: int) -> object:
        return torch.sort(tensors.abs().view(-1), descending=True).indices[: int(SHARE * elements)]

    return [
        Load("read once", lambda a, b: gradient.max(), False),
        Load(_SORTING, sort, False, 8 * int(SHARE * elements)),
        Load("bird in PyTorch", lambda a, b: in_torch(tensors), False),
        Load("bird: encode", encode, False, encode(0, elements), bar=Bar(_SORTING, 10)),
    ]


def in_torch(tensors: torch.Tensor) -> tuple[torch.Tensor, np.ndarray, torch.Tensor]:
    """Scale, sign bits and indices: norms, two samplings, signs of the rows that are left."""
    norms = tensors.abs().sum(dim=1)
    kept = torch.bernoulli(norms / norms.max()).nonzero().view(-1)
    count = -(-len(norms) // round(1 / SHARE))
    factor = max(1.0, len(kept) / count)
    kept = kept[torch.randperm(len(kept))[:count]].sort().values
    signs = np.packbits((tensors[kept] < 0).numpy())
    return norms.max() / tensors.shape[1] * factor, signs, kept
