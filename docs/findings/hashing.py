"""Members that tables do not recover: with the released hashing, its smallest repair, and the full repair."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from docs.findings.evolution import left_in_columns
from docs.findings.patterns import Pattern, index_of, support
from docs.findings.table import Cells, Line, Table, digits, percent
from netfold.homomorphic import peeling as hypergraph
from netfold.homomorphic import peeling as tables
from netfold.homomorphic.hashing import PUBLISHED, PUBLISHED_LANES, Hashing
from netfold.homomorphic.sketch import REPAIRED_TILING, ROTATED_TILING, Tiling
from netfold.homomorphic.union_index import WORD_ELEMENTS, WideIndex
from netfold.kernels.keyed_random import mix_plain

COLUMN_DENSITY = 0.31
RATIO = 10  # elements per counter of the released benchmark
SEEDS, SEEDS_SMALL = 5, 50
_SMALL_ELEMENTS = 500_000
_BLOCK_ELEMENTS = 4096  # tiles are cut between blocks


class Case(NamedTuple):
    """A gradient, and the load of its tables."""

    pattern: Pattern
    elements: int
    row_elements: int
    density: float
    load: float  # members per counter, on average

    def index(self, seed: int) -> WideIndex:
        """The index of its members."""
        random = np.random.default_rng([seed, self.elements, self.row_elements])
        return index_of(support(self.pattern, self.elements, self.density, self.row_elements, random))


def published(case: Case, seed: int) -> float:
    """Share of members that the released code estimates."""
    rows = math.ceil(case.elements // PUBLISHED_LANES * case.density / case.load - 1e-9)
    graph = hypergraph.hypergraph(Hashing(PUBLISHED, PUBLISHED_LANES, rows, np.uint64(0)), case.index(seed))
    return 1 - hypergraph.peeling_order(graph).members.size / graph.negative.size


def sent_again(shape: Tiling, case: Case, seed: int) -> float:
    """Share of members in tables that do not peel, for tables cut and hashed by a setting, at the same load.

    The codec would not build tables that are as large as their tile; here all are built.
    """
    index = case.index(seed)
    total = int(np.bitwise_count(index).sum())
    blocks = -(-case.elements // _BLOCK_ELEMENTS)
    tile_elements = shape.tile_blocks(blocks, _BLOCK_ELEMENTS, total) * _BLOCK_ELEMENTS
    tile_words = tile_elements // WORD_ELEMENTS
    in_tile = np.add.reduceat(np.bitwise_count(index), np.arange(0, index.size, tile_words), dtype=np.int64)
    rows = tables.rows_needed(in_tile, case.load, shape.lanes)
    cut = tables.TileTables(
        shape.setting, shape.lanes, tile_elements, rows, np.zeros(1, np.int64), np.uint64(mix_plain(seed))
    )
    again = 0
    for tile, members in enumerate(in_tile.tolist()):
        graph = hypergraph.hypergraph(
            tables.hashing_of(cut, tile), index[tile * tile_words : (tile + 1) * tile_words]
        )
        again += members if hypergraph.peeling_order(graph).members.size < members else 0
    return again / total


def figures(case: Case) -> Cells:
    """Cells for all seeds, and the expected share for lanes of infinite size."""
    seeds = range(SEEDS_SMALL if case.elements <= _SMALL_ELEMENTS else SEEDS)
    expected = "–"
    if case.pattern == "columns":
        expected = digits(
            100 * left_in_columns(columns_of_lane(case.row_elements), case.density, case.load)[0]
        )
    return (
        percent([published(case, seed) for seed in seeds]),
        expected,
        *(
            percent([sent_again(shape, case, seed) for seed in seeds])
            for shape in (ROTATED_TILING, REPAIRED_TILING)
        ),
    )


def columns_of_lane(row_elements: int) -> int:
    """Number of columns of a matrix that fall into one lane of the released code."""
    return row_elements // math.gcd(row_elements, PUBLISHED_LANES)


def _line(case: Case) -> Line:
    pattern = case.pattern if case.pattern == "iid" else f"{case.pattern}, {case.row_elements} wide"
    label = (pattern, f"{case.elements / 1e6:.2f} M", f"{100 * case.density:.3g} %", f"{case.load:.2f}")
    return Line(label, functools.partial(figures, case), is_quick=case.elements <= _SMALL_ELEMENTS)


LARGE = 2**24
SMALL = (6_553_600, 1_638_400, 409_600, 102_400)  # a bucket of 25 MB, and shards of it

CASES = (
    *(Case("iid", LARGE, 1, 0.05, load) for load in (0.5, 0.75)),
    *(
        Case("columns", LARGE, width, COLUMN_DENSITY, load)
        for width in (4096, 25_088)
        for load in (0.3, 0.5, 0.75)
    ),
    *(
        Case("rows", size, width, load / RATIO, load)
        for size, width in ((SMALL[0], 64), (SMALL[0], 4096), (SMALL[2], 4096))
        for load in (0.5, 0.75)
    ),
    *(Case("iid", size, 1, load / RATIO, load) for size in SMALL for load in (0.3, 0.5, 0.6, 0.7, 0.75)),
)
TABLE = Table(
    "hashing",
    (
        "members",
        "parameters",
        "density",
        "load",
        "published: estimated, %",
        "expected, %",
        "rotated: sent again, %",
        "repaired: sent again, %",
    ),
    tuple(map(_line, CASES)),
)
