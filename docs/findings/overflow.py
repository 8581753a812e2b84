"""Effects of counters that overflow: adders that wrap lose nothing, others do."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from docs.findings.patterns import index_of
from docs.findings.table import Cells, Line, Table, percent
from netfold.homomorphic import peeling as hypergraph
from netfold.homomorphic.hashing import REPAIRED, Hashing
from netfold.switch import registers as arithmetic

WORKERS = 8
MEMBERS = 64 * 2000
LOAD = 0.7
SCALE = 1e6  # ATP's factor: integers per unit of value
SIGMAS = (50, 100, 150, 200)
ADDERS = {
    "wrap": arithmetic.add_wrapping,
    "saturate": arithmetic.add_saturating,
    "sticky": arithmetic.add_sticky,
}


class Summed(NamedTuple):
    """Results of one round with one kind of adders."""

    wrong: float  # share of members whose sum is not the true one
    dense_wrong: float  # share of elements that the same adders get wrong without a table
    is_noticed: bool  # something is left in the table


def summed(adder: str, sigma: float, members: int = MEMBERS, seed: int = 0) -> Summed:
    """Sums of all workers' normal values, through a table and without one."""
    random = np.random.default_rng([seed, round(sigma)])
    rows = math.ceil(members / LOAD / 3)
    graph = hypergraph.hypergraph(
        Hashing(REPAIRED, 1, rows, np.uint64(seed)), index_of(np.ones(members, np.bool_))
    )
    table, dense = np.zeros(graph.size, np.int32), np.zeros(members, np.int32)
    true = np.zeros(members, np.int64)
    for _ in range(WORKERS):
        words = np.rint(SCALE * sigma * random.standard_normal(members)).astype(np.int64)
        words = np.clip(words, -(2**31), 2**31 - 1).astype(np.int32)
        own = np.zeros_like(table)
        hypergraph.add_general(graph, words, own)  # hosts wrap
        ADDERS[adder](table, own)
        ADDERS[adder](dense, words)
        true += words
    sums = np.zeros(members, np.int32)
    is_sound = hypergraph.replay(graph, hypergraph.peeling_order(graph), table, sums)
    return Summed(float((sums != true).mean()), float((dense != true).mean()), not is_sound)


def figures(sigma: float, adder: str) -> Cells:
    """Cells for a few seeds."""
    rounds = [summed(adder, sigma, seed=seed) for seed in range(3)]
    return (
        percent([one.wrong for one in rounds]),
        percent([one.dense_wrong for one in rounds]),
        f"{sum(one.is_noticed for one in rounds)} of {len(rounds)}",
    )


TABLE = Table(
    "overflow",
    ("σ of a value", "adders", "wrong in the sketch, %", "wrong where dense, %", "noticed"),
    tuple(
        Line((str(sigma), adder), functools.partial(figures, sigma, adder), sigma == SIGMAS[0])
        for sigma in SIGMAS
        for adder in ADDERS
    ),
)
