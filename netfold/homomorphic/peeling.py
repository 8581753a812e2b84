"""Tables of int32 counters, one per tile: adding members, and peeling their sums.

Every member of a tile adds its integer to one counter in each of three segments (`hashing`). A counter with a
single member holds its value. Subtracting it from its other two counters exposes other members. This is an
invertible Bloom lookup table (Goodrich and Mitzenmacher, Allerton 2011) whose keys all workers know from the
index. Integers are modulo 2**32, so counters may overflow and the sums are still exact.

All three segments have the same total. A fault in a single counter (a lost contribution, a flipped bit) makes
them differ. Then a remainder is left after peeling, and the tile is known to have failed. By chance a tile of
m members fails with a probability of about 6 / m: two members share all three counters.

This is the fast path: one word per member, no signs. The general path below handles the other cases.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.hashing import (
    POSITIONS_SPARE,
    Counters,
    Hashing,
    Positions,
    counters_count,
    empty_counters,
    find_positions,
    find_signs,
    place,
)
from netfold.homomorphic.union_index import WORD_ELEMENTS, WideIndex
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed_random import splitmix64, splitmix64_plain

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

# A hash per element. Sharing one between lanes saves no time, as several hashes are computed at once (0.4 ns
# each, with 16 lanes 0.5), and tables whose members cluster fail more often: with 1000 members in runs of 64,
# 0.5 % fail with 1 lane, 6 % with 4, 33 % with 16.
LANES = 1
EXTRA_COUNTERS = 32
"""Counters in addition to those of the load, for small tables."""
MEMBERS_MAX = 1 << 21
"""Most members of a tile: the numbers of 31 of them, added up, fit a cell."""

_HASHES = 3

# A cell is a counter and its members: value (32 bits) | number of members (6) | sum of their numbers
# (26). Peeling a member is a single subtraction, and a cell with one member holds its number.
_VALUE_SHIFT = np.uint64(32)
_SINGLE = np.uint64(1 << 26)
_DEGREE = np.uint64(63 << 26)
_CROWDED = np.uint64(32 << 26)
_NUMBER = np.uint64((1 << 26) - 1)
_ONE = np.uint64(1)


class TileTables(NamedTuple):
    """How a bucket is cut into tiles and where their counters are; the same at every worker."""

    setting: int
    """Setting of `hashing`: REPAIRED or ROTATED."""
    lanes: int
    """Lanes of `hashing`."""
    tile_elements: int  # a multiple of 64 and of lanes; the last tile may be short
    rows: Int64s
    """Rows of each of the three segments, `(tiles,)`; 0: the tile has no table."""
    word_starts: Int64s
    """Start of each tile's words in the message, `(tiles + 1,)`; 3 · rows · lanes are one table."""
    key: np.uint64


class TileWords(NamedTuple):
    """Members of a bucket, tile by tile in ascending order, with a word for each."""

    elements: WideIndex  # bit j of word w: element 64·w + j is a member
    starts: Int64s  # (tiles + 1,) number of each tile's first member
    words: Int32s


class PeelingScratch(NamedTuple):
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


def scratch_for(tables: TileTables, starts: Int64s) -> PeelingScratch:
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
    return PeelingScratch(
        np.empty(members + POSITIONS_SPARE, np.uint32),
        empty_counters(members),
        np.empty(words, np.uint64),
        np.empty(words + 1, np.uint32),
    )


def hashing_of(tables: TileTables, tile: int) -> Hashing:
    """Hashing of a tile, for the general path."""
    key = splitmix64_plain(int(tables.key) + tile)
    return Hashing(tables.setting, tables.lanes, int(tables.rows[tile]), np.uint64(key))


@inlined
def _hashing_of(tables: TileTables, tile: int) -> Hashing:
    """Twin of `hashing_of` for kernels."""
    key = splitmix64(tables.key + np.uint64(tile))
    return Hashing(tables.setting, tables.lanes, tables.rows[tile], key)


@kernel
def add(
    tables: TileTables, tiles: Int64s, own_words: TileWords, message: Int32s, scratch: PeelingScratch
) -> None:
    """Write the tables of some tiles into `message`: the words of this worker's members, added up.

    Other tiles of the message are not changed, so threads may share it.
    """
    for tile in tiles:
        if tables.rows[tile] == 0:
            continue
        words = own_words.words[own_words.starts[tile] : own_words.starts[tile + 1]]
        chosen = _choose(tables, tile, own_words.elements, words.size, scratch)
        table = message[tables.word_starts[tile] : tables.word_starts[tile + 1]]
        for i in range(table.size):
            table[i] = 0
        for m in range(words.size):
            table[np.uint64(chosen.first[m])] += words[m]
            table[np.uint64(chosen.second[m])] += words[m]
            table[np.uint64(chosen.third[m])] += words[m]


@kernel
def peel(
    tables: TileTables,
    tiles: Int64s,
    union: TileWords,
    merged: Int32s,
    is_failed: NDArray[np.bool_],
    scratch: PeelingScratch,
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
def _choose(
    tables: TileTables, tile: int, index: WideIndex, members: int, scratch: PeelingScratch
) -> Counters:
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


# Sketches of any kind, peeled in two steps: the order from the structure, then the values in that order.
#
# Members are edges between their three counters. Which members become the only one of a counter, and in
# what order, depends on the index and the hashes only. So one `peeling_order` serves every plane of words:
# digits of wide integers, or floats. `replay` then reads each member's word from a counter where it is the
# only one, and subtracts it from its other counters.
#
# The results equal those of the fast path, more slowly. In addition there are signs, coinciding hashes of one
# member, float32 words, several planes, and tables of any size. The released code of Li et al.
# (lihy0529/lossless_homomorphic_compression) estimates members that do not peel by the median of their three
# counters, as a count sketch does (Charikar, Chen and Farach-Colton, 2002); `estimate` does that.


Uint8s = NDArray[np.uint8]
Uint32s = NDArray[np.uint32]
Words = NDArray[np.int32] | NDArray[np.float32]


class Hypergraph(NamedTuple):
    """The m members of a table of counters, in ascending order."""

    counters: Counters  # (m,) each
    negative: Uint8s  # (m,) bit j: the counter of hash j takes the negated word
    size: int  # counters of the table


class PeelingOrder(NamedTuple):
    """The members that peel, in order; those of a round are the only ones of a counter when it begins."""

    members: Uint32s  # (recovered,)
    hashes: Uint8s  # (recovered,) the hash whose counter has no other member
    rounds: int


class Cells(NamedTuple):
    """The remaining members of every counter, and a queue of counters with one member."""

    degrees: Uint32s  # (size,)
    numbers: Uint32s  # (size,) exclusive-or of the members; with one member, its number
    queue: Uint32s  # (size + 1,)


def hypergraph(hashing: Hashing, index: WideIndex) -> Hypergraph:
    """Members and counters of a tile; bit j of `index[w]` says that element 64·w + j is a member."""
    members = int(np.bitwise_count(index).sum(dtype=np.int64))
    positions = np.empty(members + POSITIONS_SPARE, np.uint32)
    find_positions(index, positions)
    graph = Hypergraph(empty_counters(members), np.empty(members, np.uint8), counters_count(hashing))
    place(hashing, positions[:members], graph.counters)
    find_signs(hashing, positions[:members], graph.negative)
    return graph


def add_general(graph: Hypergraph, words: Words, table: Words) -> None:
    # `words` is `(planes · m,)`, plane after plane, and `table` `(planes · size,)`; both are int32, which
    # wraps, or float32.
    for word_plane, table_plane in zip(*_planes(graph, words, table), strict=True):
        _add(graph, word_plane, table_plane)


def peeling_order(graph: Hypergraph) -> PeelingOrder:
    """Find the peeling order, in rounds: a round peels all members that are the only one of a counter.

    A member with two hashes on one counter is never peeled from that counter.
    """
    members, hashes = np.empty(graph.negative.size, np.uint32), np.empty(graph.negative.size, np.uint8)
    degrees, numbers = np.zeros(graph.size, np.uint32), np.zeros(graph.size, np.uint32)
    queue = np.empty(graph.size + 1, np.uint32)
    _enter_general(graph.counters, degrees, numbers)
    recovered, rounds = _take_out_general(graph.counters, Cells(degrees, numbers, queue), members, hashes)
    return PeelingOrder(members[:recovered], hashes[:recovered], rounds)


def float_error(workers: int) -> float:
    # The allowed remainder as a share of the largest sum, about twice the largest observed. Every worker's
    # addition to a counter may round the same way: 64 workers with equal values leave ten times as much as
    # two, 128 twenty times, values of both signs hardly more (`released.FloatSketchBound`).
    return 2.0**-12 * (1 + max(0, workers - 2) / 8)


def replay(
    graph: Hypergraph,
    order: PeelingOrder,
    table: Words,
    sums: Words,
    is_flagged: bool = False,
    workers: int = 2,
) -> bool:
    # Shapes are as for `add_general`; words of members that do not peel are not changed. With `is_flagged`,
    # for float32, the lowest bit of a mantissa is a flag, cleared before a word is stored or subtracted.
    mask = np.uint32(0xFFFFFFFE if is_flagged else 0xFFFFFFFF)
    for sum_plane, table_plane in zip(*_planes(graph, sums, table), strict=True):
        _replay(graph, order, table_plane, sum_plane, sum_plane.view(np.uint32), mask)
    # The remainder stays in `table`. Without signs, and with three segments, a fault in a single counter
    # always leaves one. For floats, one within `float_error` is rounding.
    is_complete = order.members.size == graph.negative.size
    if table.dtype == np.int32:
        return is_complete and not table.any()
    left, largest = (np.abs(some).max(initial=0) for some in (table, sums))  # NaN compares as false
    return is_complete and bool(left <= float_error(workers) * largest)


def estimate(graph: Hypergraph, order: PeelingOrder, remainder: Words, sums: Words) -> NDArray[np.int64]:
    """Write the median of its counters for every member that did not peel; return these members.

    `left` is one plane of a replayed table, `sums` its `(m,)` words.
    """
    is_missing = np.ones(graph.negative.size, np.bool_)
    is_missing[order.members] = False
    missing = np.flatnonzero(is_missing)
    _estimate(graph, missing, remainder, sums)
    return missing


def _planes(graph: Hypergraph, words: Words, table: Words) -> tuple[Words, Words]:
    """Words and tables by plane: `(planes, m)` and `(planes, size)`."""
    planes = table.size // max(1, graph.size)
    return words.reshape(planes, graph.negative.size), table.reshape(planes, graph.size)


@kernel
def _add(graph: Hypergraph, words: Words, table: Words) -> None:
    for m in range(words.size):
        word = words[m]
        negative = graph.negative[m]
        table[graph.counters.first[m]] += -word if negative & 1 else word
        table[graph.counters.second[m]] += -word if negative & 2 else word
        table[graph.counters.third[m]] += -word if negative & 4 else word


@kernel
def _enter_general(counters: Counters, degrees: Uint32s, numbers: Uint32s) -> None:
    for chosen in counters:
        for m in range(chosen.size):
            degrees[chosen[m]] += 1
            numbers[chosen[m]] ^= np.uint32(m)


@kernel
def _take_out_general(counters: Counters, cells: Cells, members: Uint32s, hashes: Uint8s) -> tuple[int, int]:
    """Write the peeling order; return the number of members in it, and of rounds."""
    tail = np.uint64(0)
    for i in range(cells.degrees.size):
        cells.queue[tail] = i
        tail += np.uint64(cells.degrees[i] == 1)
    head = np.uint64(0)
    recovered = rounds = 0
    while head < tail:
        round_end = tail  # members exposed in this round are peeled in the next
        recovered_before = recovered
        while head < round_end:
            single = cells.queue[head]
            head += _ONE
            if cells.degrees[single] == 1:  # else its member was peeled from another counter
                m = cells.numbers[single]
                members[recovered] = m
                hashes[recovered] = _hash_of(counters, m, single)
                recovered += 1
                for chosen in counters:
                    counter = chosen[m]
                    cells.degrees[counter] -= 1
                    cells.numbers[counter] ^= m
                    cells.queue[tail] = counter
                    tail += np.uint64(cells.degrees[counter] == 1)
        rounds += int(recovered > recovered_before)
    return recovered, rounds


@kernel
def _hash_of(counters: Counters, m: np.uint32, counter: np.uint32) -> int:
    """The hash of a member that gives this counter."""
    if counters.first[m] == counter:
        return 0
    return 1 if counters.second[m] == counter else 2


@kernel
def _replay(
    graph: Hypergraph, order: PeelingOrder, table: Words, sums: Words, sum_bits: Uint32s, mask: np.uint32
) -> None:
    """Peel one plane; `sum_bits` is a view of `sums`, whose bits outside `kept` are cleared."""
    counters = graph.counters
    for i in range(order.members.size):
        m = order.members[i]
        negative = graph.negative[m]
        if order.hashes[i] == 0:
            alone = table[counters.first[m]]
        elif order.hashes[i] == 1:
            alone = table[counters.second[m]]
        else:
            alone = table[counters.third[m]]
        sums[m] = -alone if (negative >> order.hashes[i]) & 1 else alone
        sum_bits[m] &= mask
        word = sums[m]
        table[counters.first[m]] -= -word if negative & 1 else word
        table[counters.second[m]] -= -word if negative & 2 else word
        table[counters.third[m]] -= -word if negative & 4 else word


@kernel
def _estimate(graph: Hypergraph, missing: NDArray[np.int64], remainder: Words, sums: Words) -> None:
    counters = graph.counters
    for m in missing:
        negative = graph.negative[m]
        a, b, c = remainder[counters.first[m]], remainder[counters.second[m]], remainder[counters.third[m]]
        a = -a if negative & 1 else a
        b = -b if negative & 2 else b
        c = -c if negative & 4 else c
        sums[m] = max(min(a, b), min(max(a, b), c))
