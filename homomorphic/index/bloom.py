"""Compiled kernels of the Bloom index: a set of elements in fewer bits than one per element.

A Bloom filter (Bloom, CACM 1970) sets a few hashed bits for every member; an element all of whose bits are
set counts as one. Members are never missed; other elements are taken for members with a small probability,
and then have a sum of zero. Filters unite by OR, wherever they meet.

Here 64 consecutive elements are hashed together: hash j of a word of the index gives a word of the filter and
a turn, and the word is OR-ed into it, turned. One load then answers 64 elements, where a hash of its own for
every element costs 64 of them. Members of one word never meet in the filter, and words meet at random turns,
so that a bit is set as often as with hashes of single elements: the expected share of false positives is the
same, though where members come in whole rows so do they.

A bucket has one filter, not one per tile. Sparsity differs along a gradient; many tiles would each need a
size of their own, which all workers must know beforehand, and the tiles that turn out fuller than expected
would answer yes to everything. And tiles would gain little: a filter is at most a 32nd of the gradient, and
its loads do not wait for each other.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.index.bits import WORD_ELEMENTS, WideIndex
from netfold.homomorphic.kernels.compiled import inlined, kernel
from netfold.homomorphic.kernels.keyed import splitmix64

FALSE_POSITIVE_BITS = 39.2  # what a false positive costs further on: a counter and a quarter, of 32 bits each
BITS_PER_HASH = 1 / math.log(2)  # of the filter for each member: half of its bits are then set
HASHES_MAX = 24

_MULTIPLIER = 0xD1342543DE82EF95


class Filter(NamedTuple):
    """Size of a filter; the same at every worker."""

    words: int  # of 64 bits; below 2**32
    hashes: int


def design_filter(elements: int, members: int) -> Filter | None:
    """Filter for so many members, one at least, of a bucket; None where a bit per element costs no more.

    With a share f of false positives a filter takes log2(1/f) / ln 2 bits per member. Their sum with
    `FALSE_POSITIVE_BITS` for each false positive is least at f = 0.053 · ρ / (1 − ρ), where ρ is the density:
    these then cost members / (ln 2)² bits, which the bits of the filter are compared with.
    """
    members = max(members, 1)
    if members >= elements:
        return None
    false_positives = members / (elements - members) * BITS_PER_HASH**2 / FALSE_POSITIVE_BITS
    hashes = min(max(round(-math.log2(false_positives)), 1), HASHES_MAX)
    words = math.ceil(members * hashes * BITS_PER_HASH / WORD_ELEMENTS)
    if WORD_ELEMENTS * words + members * BITS_PER_HASH**2 >= elements:
        return None
    return Filter(words, hashes)


@inlined
def _place(state: np.uint64, words: np.uint64) -> tuple[np.uint64, np.uint64]:
    """A word of the filter and a turn of 0 to 63 bits, from the upper 38 bits of a hash."""
    row = ((state >> np.uint64(32)) * words) >> np.uint64(32)
    return row, (state >> np.uint64(26)) & np.uint64(63)


@inlined
def _next(state: np.uint64) -> np.uint64:
    """The next hash of a word: a congruential generator, whose multiplier is Steele and Vigna's (2021).

    An arithmetic progression (Kirsch and Mitzenmacher, ESA 2006) would not do: words that agree in a step and
    meet once meet all the way, and for members in whole rows errors were a third more frequent.
    """
    return state * np.uint64(_MULTIPLIER) + np.uint64(1)


@inlined
def _turned_left(word: np.uint64, turn: np.uint64) -> np.uint64:
    """A word rotated by 0 to 63 bits."""
    return (word << turn) | (word >> (-turn & np.uint64(63)))


@kernel
def insert(index: WideIndex, first_word: int, hashes: int, key: np.uint64, words: WideIndex) -> int:
    """Add the members of an index, or of a slice of it that begins at `first_word`, to a filter.

    Threads need a filter each. Returns how many words of the index have members.
    """
    size = np.uint64(words.size)
    inserted = 0
    for w in range(index.size):
        members = index[w]
        if members:
            inserted += 1
            state = splitmix64(key + np.uint64(first_word + w))
            for _ in range(hashes):
                row, turn = _place(state, size)
                words[row] |= _turned_left(members, turn)
                state = _next(state)
    return inserted


@kernel
def query(words: WideIndex, hashes: int, key: np.uint64, first_word: int, index: WideIndex) -> None:
    """Write which elements a filter names into an index, or a slice of it that begins at `first_word`.

    Bits beyond the last element may be set. All hashes of a word are looked up: stopping once no member is
    left saves a few loads, and costs more in mispredicted branches.
    """
    size = np.uint64(words.size)
    for w in range(index.size):
        state = splitmix64(key + np.uint64(first_word + w))
        members = ~np.uint64(0)
        for _ in range(hashes):
            row, turn = _place(state, size)
            members &= _turned_left(words[row], -turn & np.uint64(63))
            state = _next(state)
        index[w] = members
