"""Signs that every hop decompresses, adds, and compresses again, in plain Python and float64.

A compressed part is a scale and a list of signs: Karimireddy et al., ICML 2019, scaled sign.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Compressed(NamedTuple):
    """±scale for each element."""

    scale: float
    signs: list[int]

    @property
    def values(self) -> list[float]:
        return [self.scale * sign for sign in self.signs]


def compressed(values: Sequence[float]) -> Compressed:
    """The mean magnitude, as float32 carries it, and signs, of which that of 0 is +1."""
    mean = sum(map(abs, values)) / len(values) if values else 0.0
    signs = [1 if value >= 0 else -1 for value in values]
    return Compressed(float(np.float32(mean)), signs)


def hop(held: Compressed, own: Compressed) -> Compressed:
    return compressed([a + b for a, b in zip(held.values, own.values, strict=True)])


def cuts(elements: int, workers: int) -> list[slice]:
    """A part for each worker, cut at whole words of 32 elements; some may be empty."""
    words = -(-elements // 32)
    ends = [min(32 * (words * index // workers), elements) for index in range(workers + 1)]
    return [slice(first, last) for first, last in itertools.pairwise(ends)]


def chains(gradients: Sequence[Sequence[float]]) -> list[float]:
    """Each part merged worker by worker."""
    total: list[float] = []
    for cut in cuts(len(gradients[0]), len(gradients)):
        held, *others = [compressed(own[cut]) for own in gradients]
        for one in others:
            held = hop(held, one)
        total += held.values
    return total
