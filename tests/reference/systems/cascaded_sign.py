"""Signs that every hop decompresses, adds, and compresses again, in plain Python and float64.

A compressed part is a scale and a list of signs: Karimireddy et al., ICML 2019, scaled sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Compressed(NamedTuple):
    """±scale for each element."""

    scale: float
    signs: list[int]

    @property
    def values(self) -> list[float]:
        """What it stands for."""
        return [self.scale * sign for sign in self.signs]


def compressed(values: Sequence[float], scale: float | None = None) -> Compressed:
    """The mean magnitude, as float32 carries it, or a given scale; and signs, of which that of 0 is +1."""
    mean = sum(map(abs, values)) / len(values) if values else 0.0
    signs = [1 if value >= 0 else -1 for value in values]
    return Compressed(float(np.float32(mean)) if scale is None else scale, signs)


def hop(held: Compressed, own: Compressed) -> Compressed:
    """Decompress, add, compress again."""
    return compressed([a + b for a, b in zip(held.values, own.values, strict=True)])


def ring(gradients: Sequence[Sequence[float]]) -> list[float]:
    """All parts of a ring of as many segments as workers, cut at whole words of 32 elements.

    Segment s begins at worker s and goes once round; a worker's segments have the scale of its whole vector.
    """
    workers, elements = len(gradients), len(gradients[0])
    words = -(-elements // 32)
    whole = [compressed(gradient) for gradient in gradients]
    total: list[float] = []
    for segment in range(workers):
        cut = slice(*(min(32 * (words * (segment + more) // workers), elements) for more in (0, 1)))
        parts = [Compressed(one.scale, one.signs[cut]) for one in whole]
        held = parts[segment]
        for step in range(1, workers):
            if held.signs:
                held = hop(held, parts[(segment + step) % workers])
        total += held.values
    return total
