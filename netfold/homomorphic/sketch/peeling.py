"""Tables of int32 counters, one per tile: adding members, and peeling their sums.

Every member of a tile adds its integer to one counter in each of three segments (`hashing`). A counter with a
single member holds its value. Subtracting it from its other two counters exposes other members. This is an
invertible Bloom lookup table (Goodrich and Mitzenmacher, Allerton 2011) whose keys all workers know from the
index. Integers are modulo 2**32, so counters may overflow and the sums are still exact.

All three segments have the same total. A fault in a single counter (a lost contribution, a flipped bit) makes
them differ. Then a remainder is left after peeling, and the tile is known to have failed. By chance a tile of
m members fails with a probability of about 6 / m: two members share all three counters.

This is the fast path: one word per member, no signs. `hypergraph` handles the other cases.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.index import WORD_ELEMENTS, WideIndex
from netfold.homomorphic.sketch.hashing import (
    POSITIONS_SPARE,
    Counters,
    Hashing,
    Positions,
    empty_counters,
    find_positions,
    place,
)
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed import splitmix64, splitmix64_plain

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

# A hash per element. Sharing one between lanes saves no time, as several hashes are computed at once (0.4 ns
# each, with 16 lanes 0.5), and tables whose members cluster fail more often: with 1000 members in runs of 64,
# 0.5 % fail with 1 lane, 6 % with 4, 33 % with 16.
LANES = 1
EXTRA_COUNTERS = 32  # for small tables, in addition to the load
MEMBERS_MAX = 1 << 21  # of a tile: the numbers of 31 members, added up, fit a cell

_HASHES = 3

# A cell is a counter and its members: value (32 bits) | number of members (6) | sum of their numbers
# (26). Peeling a member is a single subtraction, and a cell with one member holds its number.
_VALUE_SHIFT = np.uint64(32)
_SINGLE = np.uint64(1 << 26)
_DEGREE = np.uint64(63 << 26)
_CROWDED = np.uint64(32 << 26)
_NUMBER = np.uint64((1 << 26) - 1)
_ONE = np.uint64(1)


class Tables(NamedTuple):
    """How a bucket is cut into tiles and where their counters are; the same at every worker."""

    setting: int  # of `hashing`: REPAIRED or ROTATED
    lanes: int  # of `hashing`
    tile_elements: int  # a multiple of 64 and of lanes; the last tile may be short
    rows: Int64s  # (tiles,) of each of the three segments; 0: the tile has no table
    word_starts: (
        Int64s  # (tiles + 1,) start of each tile's words in the message; 3 · rows · lanes are a table
    )
    key: np.uint64  # of the round


class TileWords(NamedTuple):
    """Members of a bucket, tile by tile in ascending order, with a word for each."""

    elements: WideIndex  # bit j of word w: element 64·w + j is a member
    starts: Int64s  # (tiles + 1,) number of each tile's first member
    words: Int32s


class Scratch(NamedTuple):
    """One thread's buffers, for one tile at a time."""

    positions: Positions
    counters: Counters
    cells: NDArray[np.uint64]
    queue: NDArray[np.uint32]


def rows_needed(members: Int64s, load: float, lanes: int = LANES) -> Int64s:
    """Rows per segment of tables for these members, at `load` members per counter; 0 for none."""
    counters = np.ceil(members / load) + EXTRA_COUNTERS
    rows = np.ceil(counters / (_HASHES * lanes)).astype(np.int64)
    return np.where(members > 0, rows, 0)


def scratch_for(tables: Tables, starts: Int64s) -> Scratch:
    """Buffers for any tile of these tables, whose members begin at `starts`.

    Buffers for the union fit every worker's members too.

    Raises
    ------
    ValueError
        A tile has more members than a table can number.
    """
    has_table = tables.rows > 0
    members = int(np.diff(starts).max(initial=0, where=has_table))
    if members > MEMBERS_MAX:
        raise ValueError(
            f"a tile of {tables.tile_elements} elements has {members} members: a table holds at most "
            f"{MEMBERS_MAX}; make tiles smaller"
        )
    words = int(np.diff(tables.word_starts).max(initial=0, where=has_table))
    return Scratch(
        np.empty(members + POSITIONS_SPARE, np.uint32),
        empty_counters(members),
        np.empty(words, np.uint64),
        np.empty(words + 1, np.uint32),
    )


def hashing_of(tables: Tables, tile: int) -> Hashing:
    """Hashing of a tile, for `hypergraph`."""
    key = splitmix64_plain(int(tables.key) + tile)
    return Hashing(tables.setting, tables.lanes, int(tables.rows[tile]), np.uint64(key))


@inlined
def _hashing_of(tables: Tables, tile: int) -> Hashing:
    """Twin of `hashing_of` for kernels."""
    key = splitmix64(tables.key + np.uint64(tile))
    return Hashing(tables.setting, tables.lanes, tables.rows[tile], key)


@kernel
def add(tables: Tables, tiles: Int64s, own: TileWords, message: Int32s, scratch: Scratch) -> None:
    """Write the tables of some tiles into `message`: the words of this worker's members, added up.

    Other tiles of the message are not changed, so threads may share it.
    """
    for tile in tiles:
        if tables.rows[tile] == 0:
            continue
        words = own.words[own.starts[tile] : own.starts[tile + 1]]
        chosen = _choose(tables, tile, own.elements, words.size, scratch)
        table = message[tables.word_starts[tile] : tables.word_starts[tile + 1]]
        for i in range(table.size):
            table[i] = 0
        for m in range(words.size):
            table[np.uint64(chosen.first[m])] += words[m]
            table[np.uint64(chosen.second[m])] += words[m]
            table[np.uint64(chosen.third[m])] += words[m]


@kernel
def peel(
    tables: Tables,
    tiles: Int64s,
    union: TileWords,
    merged: Int32s,
    is_failed: NDArray[np.bool_],
    scratch: Scratch,
) -> None:
    """Recover the sums of some tiles from the merged message into `union.words`; mark the tiles that failed.

    A tile fails if a member does not peel or a remainder is left; then its sums are meaningless. Tiles
    without a table are skipped and have not failed.
    """
    for tile in tiles:
        is_failed[tile] = False
        if tables.rows[tile] == 0:
            continue
        sums = union.words[union.starts[tile] : union.starts[tile + 1]]
        chosen = _choose(tables, tile, union.elements, sums.size, scratch)
        table = merged[tables.word_starts[tile] : tables.word_starts[tile + 1]]
        cells = scratch.cells[: table.size]
        is_failed[tile] = not _enter(chosen, table, cells) or not _take_out(
            chosen, cells, scratch.queue, sums
        )


@kernel
def _choose(tables: Tables, tile: int, index: WideIndex, members: int, scratch: Scratch) -> Counters:
    """Compute the counters of a tile's members in the scratch buffers."""
    words = tables.tile_elements // WORD_ELEMENTS
    find_positions(index[tile * words : (tile + 1) * words], scratch.positions)
    chosen = Counters(
        scratch.counters.first[:members],
        scratch.counters.second[:members],
        scratch.counters.third[:members],
    )
    place(_hashing_of(tables, tile), scratch.positions[:members], chosen)
    return chosen


@kernel
def _enter(chosen: Counters, table: Int32s, cells: NDArray[np.uint64]) -> bool:
    """Write a cell for every counter of a table; return whether none holds more than 31 members.

    Degrees grow one by one, so a cell sets the bit of 32 before a degree overflows into its value.
    """
    for i in range(table.size):
        cells[i] = np.uint64(table[i]) << _VALUE_SHIFT
    seen = np.uint64(0)
    for m in range(chosen.first.size):
        member = _SINGLE | np.uint64(m)
        a, b, c = np.uint64(chosen.first[m]), np.uint64(chosen.second[m]), np.uint64(chosen.third[m])
        cells[a] += member
        cells[b] += member
        cells[c] += member
        seen |= cells[a] | cells[b] | cells[c]
    return bool((seen & _CROWDED) == 0)


@kernel
def _take_out(chosen: Counters, cells: NDArray[np.uint64], queue: NDArray[np.uint32], sums: Int32s) -> bool:
    """Peel members until no cell has a single one; return whether nothing is left.

    The queue is FIFO: a stack peels at half the speed, as each step waits for the one before. Whether a cell
    joins the queue cannot be predicted, so all are written and the tail decides which remain (a third faster
    than branches).
    """
    tail = np.uint64(0)
    for i in range(cells.size):
        queue[tail] = i
        tail += np.uint64((cells[i] & _DEGREE) == _SINGLE)
    head = np.uint64(0)
    while head < tail:
        single = cells[np.uint64(queue[head])]
        head += _ONE
        if (single & _DEGREE) == _SINGLE:  # else its member was peeled from another cell
            m = single & _NUMBER
            sums[m] = np.int32(single >> _VALUE_SHIFT)
            a, b, c = np.uint64(chosen.first[m]), np.uint64(chosen.second[m]), np.uint64(chosen.third[m])
            cells[a] -= single
            queue[tail] = a
            tail += np.uint64((cells[a] & _DEGREE) == _SINGLE)
            cells[b] -= single
            queue[tail] = b
            tail += np.uint64((cells[b] & _DEGREE) == _SINGLE)
            cells[c] -= single
            queue[tail] = c
            tail += np.uint64((cells[c] & _DEGREE) == _SINGLE)
    left = np.uint64(0)
    for i in range(cells.size):
        left |= cells[i]
    return bool(left == 0)
