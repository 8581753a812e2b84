"""Signs in plain Python: Marsit's, and those that every hop decompresses, adds and compresses again.

Marsit after Wu et al., DAC 2022 (arXiv 2204.06787): its merge, and its schedules as trees of merges. A tree
is a rank, or a pair (received, local) of trees; its weight is its number of workers. A part that is
compressed again is a scale and a list of signs: Karimireddy et al., ICML 2019, scaled sign; in float64.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


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


Doubles = NDArray[np.float64]
Tree = "int | tuple[Tree, Tree]"
Weights = Callable[[int, int], Fraction]  # how often the received bit of a, not the local one of b, survives


def by_weight(received: int, local: int) -> Fraction:
    """a / (a + b)."""
    return Fraction(received, received + local)


def probability(tree: object, bits: Sequence[int], keep: Weights = by_weight) -> tuple[Fraction, int]:
    """The exact probability that the merged bit is 1, and the workers in it."""
    if isinstance(tree, int):
        return Fraction(bits[tree]), 1
    received, local = tree  # type: ignore[misc]
    p, a = probability(received, bits, keep)
    q, b = probability(local, bits, keep)
    kept = keep(a, b)
    return p * q + p * (1 - q) * kept + (1 - p) * q * (1 - kept), a + b


def chain(trees: Sequence[object]) -> object:
    """Each is merged into what was received from those before it."""
    tree = trees[0]
    for following in trees[1:]:
        tree = (tree, following)
    return tree


def ring_tree(trees: Sequence[object], segment: int) -> object:
    """Reduce-scatter of a segment: it starts at the worker of its number and goes once round."""
    return chain([*trees[segment:], *trees[:segment]])


def torus_tree(rows: Sequence[int], row_segment: int, column_segment: int) -> object:
    """Rows of workers, which may be uneven: a ring in every row, then a ring of the rows' aggregates."""
    ranks = iter(range(sum(rows)))
    reduced = [ring_tree([next(ranks) for _ in range(size)], row_segment % size) for size in rows]
    return ring_tree(reduced, column_segment % len(rows))


def random_tree(ranks: Sequence[int], shape: random.Random) -> object:
    """Any tree over some workers."""
    if len(ranks) == 1:
        return ranks[0]
    cut = shape.randrange(1, len(ranks))
    return random_tree(ranks[:cut], shape), random_tree(ranks[cut:], shape)
