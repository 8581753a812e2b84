"""Closed forms of peeling with three hashes: the average over large tables.

With L members per counter, the number of members in a counter is Poisson with mean 3 · L. A member remains
after round t if none of its counters was free of others: with λ the mean number of others left in a
counter, the chance is (1 − e^−λ)³, and λ ← 3 · L · (1 − e^−λ)² in each round (Luby, Mitzenmacher, Shokrollahi
and Spielman, "Efficient erasure correcting codes", 2001; Molloy, "Cores in random hypergraphs and Boolean
formulas", 2005).
"""

from __future__ import annotations

import math

import numpy as np


def threshold() -> float:
    """Members per counter above which some are never recovered: the least x / (3 · (1 − e^−x)²)."""
    x = np.linspace(1, 3, 200_001)
    return float((x / (3 * (1 - np.exp(-x)) ** 2)).min())


def left_after(load: float, rounds: int) -> float:
    """Share of members left after this number of rounds."""
    others = 3 * load
    for _ in range(rounds - 1):
        others = 3 * load * (1 - math.exp(-others)) ** 2
    return (1 - math.exp(-others)) ** 3 if rounds else 1.0


def left_at_last(load: float) -> float:
    """Share of members that are never recovered."""
    return left_after(load, 5000) if load > threshold() else 0.0


def rounds_needed(load: float, members: float) -> int:
    """Rounds until less than one of the members is left; the load must be below the threshold."""
    return next(rounds for rounds in range(10_000) if members * left_after(load, rounds) < 1)


def success(load: float, members: int) -> float:
    """Chance that a large table peels.

    Below the threshold it fails almost only if two of its m members share all three counters, one in each of
    three segments, which happens 13.5 · L³ / m times on average.
    """
    if load > threshold():
        return 0.0
    segment = members / load / 3
    return math.exp(-members * (members - 1) / 2 / segment**3)


def left_in_columns(columns: int, density: float, load: float) -> tuple[float, float]:
    """Share of members left if each lane is a separate table of this many columns, and its spread.

    k of a lane's columns are live, k is binomial, and the lane's load k / (columns · density) of the mean.
    The second figure is the standard deviation that one lane contributes, as part of the mean lane.
    """
    chances = [
        math.comb(columns, k) * density**k * (1 - density) ** (columns - k) for k in range(columns + 1)
    ]
    shares = [k / (columns * density) for k in range(columns + 1)]
    left = [share * left_at_last(share * load) for share in shares]
    mean = math.fsum(chance * one for chance, one in zip(chances, left, strict=True))
    # Of a ratio of two sums over lanes, to first order.
    deviations = [one - mean * share for one, share in zip(left, shares, strict=True)]
    return mean, math.sqrt(math.fsum(c * d * d for c, d in zip(chances, deviations, strict=True)))
