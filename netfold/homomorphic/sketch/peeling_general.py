"""Sketches of any kind, peeled in two steps: the order from the structure, then the values in that order.

Members are edges between their three counters. Which members become the only one of a counter, and in what
order, depends on the index and the hashes only. So one `peeling_order` serves every plane of words: digits of
wide integers, or floats. `replay` then reads each member's word from a counter where it is the only one, and
subtracts it from its other counters.

The results equal those of `tables`, more slowly. In addition there are signs, coinciding hashes of one
member, float32 words, several planes, and tables of any size. The released code of Li et al.
(lihy0529/lossless_homomorphic_compression) estimates members that do not peel by the median of their three
counters, as a count sketch does (Charikar, Chen and Farach-Colton, 2002); `estimate` does that.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.index import WideIndex
from netfold.homomorphic.sketch.hashing import (
    POSITIONS_SPARE,
    Counters,
    Hashing,
    counters_count,
    empty_counters,
    find_positions,
    find_signs,
    place,
)
from netfold.kernels.compiled import kernel

Uint8s = NDArray[np.uint8]
Uint32s = NDArray[np.uint32]
Words = NDArray[np.int32] | NDArray[np.float32]

_ONE = np.uint64(1)


class Hypergraph(NamedTuple):
    """The m members of a table of counters, in ascending order."""

    counters: Counters  # (m,) each
    negative: Uint8s  # (m,) bit j: the counter of hash j takes the negated word
    size: int  # counters of the table


class PeelingOrder(NamedTuple):
    """The members that peel, in order; those of a round are the only ones of a counter when it begins."""

    members: Uint32s  # (recovered,)
    hashes: Uint8s  # (recovered,) the hash whose counter has no other member
    rounds: int  # in which members peel


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


def add(graph: Hypergraph, words: Words, table: Words) -> None:
    """Add every member's words to its counters, in ascending order of members.

    `words` is `(planes · m,)`, plane after plane, and `table` `(planes · size,)`, of the same type: int32,
    which wraps, or float32.
    """
    for word_plane, table_plane in zip(*_planes(graph, words, table), strict=True):
        _add(graph, word_plane, table_plane)


def peeling_order(graph: Hypergraph) -> PeelingOrder:
    """Find the peeling order, in rounds: a round peels all members that are the only one of a counter.

    A member with two hashes on one counter is never peeled from that counter.
    """
    members, hashes = np.empty(graph.negative.size, np.uint32), np.empty(graph.negative.size, np.uint8)
    degrees, numbers = np.zeros(graph.size, np.uint32), np.zeros(graph.size, np.uint32)
    queue = np.empty(graph.size + 1, np.uint32)
    _enter(graph.counters, degrees, numbers)
    recovered, rounds = _take_out(graph.counters, Cells(degrees, numbers, queue), members, hashes)
    return PeelingOrder(members[:recovered], hashes[:recovered], rounds)


def float_error(workers: int) -> float:
    """Allowed remainder of float32 counters, as a share of the largest sum: about twice the largest observed.

    Every worker's addition to a counter may round the same way: 64 workers with equal values leave ten times
    as much as two, 128 twenty times, values of both signs hardly more (`released.FloatSketchBound`).
    """
    return 2.0**-12 * (1 + max(0, workers - 2) / 8)


def replay(
    graph: Hypergraph,
    order: PeelingOrder,
    table: Words,
    sums: Words,
    is_flagged: bool = False,
    workers: int = 2,
) -> bool:
    """Peel members from a merged table, and write their words into `sums`; both as for `add`.

    The remainder stays in `table`. Words of members that do not peel are not changed. With `is_flagged`,
    which is for float32, the lowest bit of every mantissa is a flag: it is cleared before a word is stored or
    subtracted.

    Returns whether all members peeled and nothing remains; for floats, nothing beyond rounding at this number
    of workers (`float_error`). In an unsigned table with three segments, a fault in a single counter always
    leaves a remainder.
    """
    kept = np.uint32(0xFFFFFFFE if is_flagged else 0xFFFFFFFF)
    for sum_plane, table_plane in zip(*_planes(graph, sums, table), strict=True):
        _replay(graph, order, table_plane, sum_plane, sum_plane.view(np.uint32), kept)
    is_complete = order.members.size == graph.negative.size
    if table.dtype == np.int32:
        return is_complete and not table.any()
    left, largest = (np.abs(some).max(initial=0) for some in (table, sums))  # NaN compares as false
    return is_complete and bool(left <= float_error(workers) * largest)


def estimate(graph: Hypergraph, order: PeelingOrder, left: Words, sums: Words) -> NDArray[np.int64]:
    """Write the median of its counters for every member that did not peel; return these members.

    `left` is one plane of a replayed table, `sums` its `(m,)` words.
    """
    is_missing = np.ones(graph.negative.size, np.bool_)
    is_missing[order.members] = False
    missing = np.flatnonzero(is_missing)
    _estimate(graph, missing, left, sums)
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
def _enter(counters: Counters, degrees: Uint32s, numbers: Uint32s) -> None:
    for chosen in counters:
        for m in range(chosen.size):
            degrees[chosen[m]] += 1
            numbers[chosen[m]] ^= np.uint32(m)


@kernel
def _take_out(counters: Counters, cells: Cells, members: Uint32s, hashes: Uint8s) -> tuple[int, int]:
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
    graph: Hypergraph, order: PeelingOrder, table: Words, sums: Words, sum_bits: Uint32s, kept: np.uint32
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
        sum_bits[m] &= kept
        word = sums[m]
        table[counters.first[m]] -= -word if negative & 1 else word
        table[counters.second[m]] -= -word if negative & 2 else word
        table[counters.third[m]] -= -word if negative & 4 else word


@kernel
def _estimate(graph: Hypergraph, missing: NDArray[np.int64], left: Words, sums: Words) -> None:
    counters = graph.counters
    for m in missing:
        negative = graph.negative[m]
        a, b, c = left[counters.first[m]], left[counters.second[m]], left[counters.third[m]]
        a = -a if negative & 1 else a
        b = -b if negative & 2 else b
        c = -c if negative & 4 else c
        sums[m] = max(min(a, b), min(max(a, b), c))
