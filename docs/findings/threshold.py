"""Success rate and number of rounds of peeling by load, beside the closed forms."""

from __future__ import annotations

import functools
import math

import numpy as np

from docs.findings.evolution import rounds_needed, success
from docs.findings.table import Cells, Line, Table, digits
from netfold.homomorphic import peeling as hypergraph
from netfold.homomorphic.hashing import REPAIRED, Hashing
from netfold.homomorphic.union_index import WORD_ELEMENTS
from netfold.kernels.keyed_random import mix_plain

TRIALS = {1000: 2000, 10_000: 400, 100_000: 60}
SUCCESS_LOADS = (0.6, 0.7, 0.74, 0.77, 0.79, 0.8, 0.81, 0.82, 0.83, 0.85)
ROUNDS_LOADS = (0.3, 0.5, 0.6, 0.7, 0.75, 0.78, 0.8)
ROUNDS_MEMBERS = 2**20
PUBLISHED_MEMBERS = 1e8  # of the figures usually quoted


def peeled(members: int, load: float, seed: int) -> tuple[bool, int]:
    """Whether a table of any number of members peels completely, and in how many rounds."""
    index = np.full(-(-members // WORD_ELEMENTS), ~np.uint64(0))
    index[-1] >>= np.uint64(-members % WORD_ELEMENTS)
    key = np.uint64(mix_plain(seed, members))
    hashing = Hashing(REPAIRED, 1, math.ceil(members / load / 3), key)
    order = hypergraph.peeling_order(hypergraph.hypergraph(hashing, index))
    return order.members.size == members, order.rounds


def succeeded(members: int, load: float, trials: int) -> float:
    """Share of tables that peel completely."""
    return sum(peeled(members, load, seed)[0] for seed in range(trials)) / trials


def success_figures(load: float) -> Cells:
    """Measured beside expected, for each size, in %."""
    return tuple(
        f"{100 * succeeded(members, load, trials):.4g} ({100 * success(load, members):.4g})"
        for members, trials in TRIALS.items()
    )


def rounds_figures(load: float) -> Cells:
    """Measured in three tables, beside density evolution for as many members and for more."""
    measured = sorted({peeled(ROUNDS_MEMBERS, load, seed)[1] for seed in range(3)})
    return (
        "–".join(map(str, dict.fromkeys([measured[0], measured[-1]]))),
        str(rounds_needed(load, ROUNDS_MEMBERS)),
        str(rounds_needed(load, PUBLISHED_MEMBERS)),
    )


SUCCESS = Table(
    "success",
    ("load", *(f"{members} members" for members in TRIALS)),
    tuple(Line((digits(load),), functools.partial(success_figures, load), False) for load in SUCCESS_LOADS),
)
ROUNDS = Table(
    "rounds",
    ("load", f"measured, {ROUNDS_MEMBERS} members", "expected", "expected, 10⁸ members"),
    tuple(
        Line((digits(load),), functools.partial(rounds_figures, load), load in (0.3, 0.8))
        for load in ROUNDS_LOADS
    ),
)
