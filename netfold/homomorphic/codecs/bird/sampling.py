"""Which rows are kept: BIRD's two samplings, and BIRD+'s Gamma correction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codecs.bird.rows import Norms, Rows
from netfold.homomorphic.kernels.compiled import kernel
from netfold.homomorphic.kernels.functions import exps, logs
from netfold.homomorphic.kernels.keyed import Integer, splitmix64

GAMMA_MAX = 2.0**20  # above, only rows of the largest norm are kept
_BISECTIONS = 40


@kernel
def _write_uniforms(key: Integer, draws: Norms) -> None:
    for i in range(draws.size):
        draws[i] = np.float64(splitmix64(np.uint64(key) + np.uint64(i)) >> np.uint64(11)) * 2.0**-53


@kernel
def _write_hashes(key: Integer, draws: NDArray[np.uint64]) -> None:
    for i in range(draws.size):
        draws[i] = splitmix64(np.uint64(key) + np.uint64(i))


def uniforms(key: int, count: int) -> Norms:
    """Independent draws from [0, 1), `(count,)`; the same for the same key."""
    draws = np.empty(count, np.float64)
    _write_uniforms(np.uint64(key), draws)
    return draws


def relative(norms: Norms) -> Norms:
    """Norms over the largest one, BIRD's probabilities; zeros if all are zero."""
    largest = norms.max(initial=0.0)
    return norms / largest if largest > 0 else np.zeros_like(norms)


def sampled(probabilities: Norms, key: int) -> Rows:
    """The first sampling: each row by itself, with its probability."""
    return np.flatnonzero(uniforms(key, probabilities.size) < probabilities)


def thinned(rows: Rows, count: int, key: int) -> tuple[Rows, float]:
    """The second sampling: `count` of the rows, all subsets alike; and the factor |rows| / count.

    All rows and a factor of 1 if there are no more.
    """
    if rows.size <= count:
        return rows, 1.0
    draws = np.empty(rows.size, np.uint64)
    _write_hashes(np.uint64(key), draws)  # they differ: splitmix64 is a bijection
    return rows[np.sort(np.argpartition(draws, count - 1)[:count])], rows.size / count


def corrected(ratios: Norms, gamma: float) -> Norms:
    """Gamma correction, as of images: ratio^gamma; rows of zeros have a probability of 0 for any gamma."""
    return np.where(ratios > 0, exps(logs(ratios), gamma), 0.0)


def gamma_for(ratios: Norms, wanted: float) -> float:
    """The gamma whose probabilities add up to `wanted` rows, by bisection: their sum falls as gamma grows.

    0 if there are no more rows than that; `GAMMA_MAX` if more rows than that have the largest norm.
    """
    positive = ratios[ratios > 0]
    if positive.size <= wanted:
        return 0.0
    exponents = logs(positive)

    def expected(gamma: float) -> float:
        return float(exps(exponents, gamma).sum())

    low, high = 0.0, 1.0
    while expected(high) > wanted:
        if high >= GAMMA_MAX:
            return GAMMA_MAX
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) > wanted else (low, middle)
    return (low + high) / 2
