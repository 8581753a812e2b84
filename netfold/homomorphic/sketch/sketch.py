"""A bucket's sketch: the tables of its tiles, by the fastest kernels that apply.

`tables` handles one integer per member. `hypergraph` handles several words per member, floats, and tiles with
more members than `tables` can number. Both make the same messages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.index.bits import WORD_ELEMENTS
from netfold.homomorphic.index.members import WordLayout
from netfold.homomorphic.kernels.keyed import splitmix64_plain
from netfold.homomorphic.kernels.threads import in_parallel
from netfold.homomorphic.sketch import hypergraph, tables
from netfold.homomorphic.sketch.hashing import PUBLISHED_LANES, REPAIRED, ROTATED, Hashing
from netfold.homomorphic.sketch.tables import LANES, MEMBERS_MAX, Tables

TILE_MEMBERS = 32_768  # tables fit a core's cache, and few tiles fail (about 6 / members)
TILE_ELEMENTS_MAX = 1 << 22  # so that sparse buckets have tiles for all threads

Words = NDArray[Any]
Flags = NDArray[np.bool_]


class Tiling(NamedTuple):
    """How a setting cuts a bucket into tiles and hashes them."""

    setting: int  # of `hashing`
    lanes: int
    is_cut: bool  # into tiles that fit the cache; else the bucket is one tile

    def tile_blocks(self, blocks: int, block_elements: int, members: int) -> int:
        """Blocks per tile, for a bucket with these blocks and members."""
        least = max(1, self.lanes // block_elements)  # a tile has whole rows of lanes
        if not self.is_cut:
            return max(least, -(-blocks // least) * least)
        by_members = blocks // (1 + members // TILE_MEMBERS)
        return max(least, min(by_members, TILE_ELEMENTS_MAX // block_elements))


REPAIRED_TILING = Tiling(REPAIRED, LANES, is_cut=True)
ROTATED_TILING = Tiling(ROTATED, PUBLISHED_LANES, is_cut=False)


class Sketch:
    """The tables of one round, the same at every worker."""

    def __init__(
        self, tiling: Tiling, tile_elements: int, rows: NDArray[np.int64], digits: NDArray[np.int64], key: int
    ) -> None:
        """Tile t has `rows[t]` rows in each of three segments, for `digits[t]` words per member."""
        words = 3 * tiling.lanes * rows * digits
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(words)])
        self._tables = Tables(tiling.setting, tiling.lanes, tile_elements, rows, starts, np.uint64(key))
        self._is_single = bool((digits[rows > 0] == 1).all())

    @property
    def words_count(self) -> int:
        """Words of the message."""
        return int(self._tables.word_starts[-1])

    def add(self, own: WordLayout, compact: Words) -> Words:
        """Add a worker's words into its message, tile by tile."""
        if not self._is_fast(own, compact):
            message = np.zeros(self.words_count, compact.dtype)
            for tile in np.flatnonzero(self._tables.rows).tolist():
                graph = self._graph(own, tile)
                hypergraph.add(graph, compact[_span(own.offsets, tile)], message[self._span(tile)])
            return message
        message = np.empty(self.words_count, np.int32)
        members = tables.TileWords(own.members.index, own.offsets, compact)

        def write(first: int, last: int) -> None:
            scratch = tables.scratch_for(self._tables, own.offsets)
            tables.add(self._tables, np.arange(first, last), members, message, scratch)

        in_parallel(write, self._tables.rows.size)
        return message

    def peel(
        self, union: WordLayout, merged: Words, is_skipped: Flags, workers: int = 2
    ) -> tuple[Words, Flags]:
        """Return the sums of all members, tile by tile, and the tiles that failed.

        Sums of failed tiles are meaningless. Skipped tiles must have no members.
        """
        chosen = self._tables._replace(rows=np.where(is_skipped, 0, self._tables.rows))
        sums = np.zeros(int(union.offsets[-1]), merged.dtype)
        is_failed = np.zeros(chosen.rows.size, np.bool_)
        if not self._is_fast(union, merged):
            for tile in np.flatnonzero(chosen.rows).tolist():
                graph = self._graph(union, tile)
                order = hypergraph.peeling_order(graph)
                table = merged[self._span(tile)].copy()
                own = sums[_span(union.offsets, tile)]
                is_failed[tile] = not hypergraph.replay(graph, order, table, own, workers=workers)
            return sums, is_failed
        members = tables.TileWords(union.members.index, union.offsets, sums)

        def read(first: int, last: int) -> None:
            scratch = tables.scratch_for(chosen, union.offsets)
            tables.peel(chosen, np.arange(first, last), members, merged, is_failed, scratch)

        in_parallel(read, chosen.rows.size)
        return sums, is_failed

    def _is_fast(self, place: WordLayout, words: Words) -> bool:
        """Whether there is one integer per member, and no tile has too many members."""
        is_small = bool(np.diff(place.offsets).max(initial=0) <= MEMBERS_MAX)
        return words.dtype == np.int32 and self._is_single and is_small

    def _graph(self, place: WordLayout, tile: int) -> hypergraph.Hypergraph:
        mine = self._tables
        key = np.uint64(splitmix64_plain(int(mine.key) + tile))
        words = mine.tile_elements // WORD_ELEMENTS
        index = place.members.index[tile * words : (tile + 1) * words]
        return hypergraph.hypergraph(Hashing(mine.setting, mine.lanes, int(mine.rows[tile]), key), index)

    def _span(self, tile: int) -> slice:
        """A tile's words in the message."""
        return _span(self._tables.word_starts, tile)


def _span(starts: NDArray[np.int64], number: int) -> slice:
    return slice(int(starts[number]), int(starts[number + 1]))
