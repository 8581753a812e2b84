"""Marsit in plain Python and float64: its merge, its schedules as trees of merges, its steps.

After Wu et al., DAC 2022 (arXiv 2204.06787). A tree is a rank, or a pair (received, local) of trees; the
weight of a tree is its number of workers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Tree = "int | tuple[Tree, Tree]"
Weights = Callable[[int, int], Fraction]  # how often the received bit of a, not the local one of b, survives


def merged_bit(received: int, local: int, drawn: int) -> int:
    """(r AND l) OR ((r XOR l) AND w)."""
    return (received & local) | ((received ^ local) & drawn)


def drawn_is_one(local: int, worker: int) -> Fraction:
    """The probability of w = 1 at the m-th worker of a chain, by its own bit."""
    return Fraction(1, worker) if local else Fraction(worker - 1, worker)


def by_weight(received: int, local: int) -> Fraction:
    """a / (a + b)."""
    return Fraction(received, received + local)


def one_half(received: int, local: int) -> Fraction:
    """What a merge without counts does: wrong."""
    return Fraction(1, 2)


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


@dataclass
class MarsitTwin:
    """All workers, with the same weights `x` (d,) and what each holds back, `c` (workers, d)."""

    x: Doubles
    workers: int
    eta_l: float
    eta_s: float
    every: int  # 0: never
    seed: int = 0
    compensates: bool = True
    flushes_residuals: bool = True  # False: the control, which forgets them
    c: Doubles = field(init=False)
    t: int = 0

    def __post_init__(self) -> None:
        self.c = np.zeros((self.workers, self.x.size))
        self._random = np.random.default_rng(self.seed)

    def step(self, gradients: Doubles) -> None:
        """One step with the workers' gradients (workers, d)."""
        g = self.eta_l * gradients + self.c
        if self.every and self.t % self.every == 0:
            u = (g if self.flushes_residuals else self.eta_l * gradients).mean(axis=0)
            self.c = np.zeros_like(self.c)
        else:
            # The merged bit is that of a uniformly random worker (reservoir sampling).
            owner = self._random.integers(self.workers, size=self.x.size)
            u = self.eta_s * np.where(g[owner, np.arange(self.x.size)] >= 0, 1.0, -1.0)
            if self.compensates:
                self.c = g - u
        self.x = self.x - u
        self.t += 1

    @property
    def virtual(self) -> Doubles:
        """x − mean c, which is uncompressed SGD whatever the random bits are."""
        return np.asarray(self.x - self.c.mean(axis=0))
