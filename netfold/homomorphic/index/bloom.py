"""Kernels of the Bloom index: a set of elements in fewer bits than one per element.

A Bloom filter (Bloom, CACM 1970) sets a few hashed bits for every member; an element all of whose bits are
set counts as a member. Members are never missed. Other elements are false positives with a small probability;
their sums are zero. Filters unite by OR.

Here 64 consecutive elements are hashed together: hash j of a word of the index gives a word of the filter and
a rotation, and the index word is rotated and OR-ed into it. One load then answers 64 elements; a hash per
element would need 64 loads. Members of one word never collide in the filter, and words collide at random
rotations. So a bit is set as often as with hashes of single elements, and the expected share of false
positives is the same. If members come in whole rows, false positives do too.

A bucket has one filter, not one per tile. Sparsity differs along a gradient: each tile would need another
size, which all workers must know in advance, and in tiles that are fuller than expected all elements would
look like members. Tiles would also gain little: a filter is at most a 32nd of the gradient, and its loads are
independent.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.index.bits import WORD_ELEMENTS, WideIndex
from netfold.homomorphic.kernels.compiled import inlined, kernel
from netfold.homomorphic.kernels.keyed import splitmix64

FALSE_POSITIVE_BITS = 39.2  # later cost of a false positive: 1.25 counters of 32 bits
BITS_PER_HASH = 1 / math.log(2)  # per member: half of the filter's bits are then set
HASHES_MAX = 24

_MULTIPLIER = 0xD1342543DE82EF95


class Filter(NamedTuple):
    """Size of a filter; the same at every worker."""

    words: int  # of 64 bits; below 2**32
    hashes: int


def design_filter(elements: int, members: int) -> Filter | None:
    """Size a filter for a bucket's members (at least one); None if a bit per element costs no more.

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
    """A word of the filter and a rotation of 0 to 63 bits, from the upper 38 bits of a hash."""
    row = ((state >> np.uint64(32)) * words) >> np.uint64(32)
    return row, (state >> np.uint64(26)) & np.uint64(63)


@inlined
def _next(state: np.uint64) -> np.uint64:
    """The next hash of a word: a congruential generator, whose multiplier is Steele and Vigna's (2021).

    An arithmetic progression (Kirsch and Mitzenmacher, ESA 2006) is worse: two words with the same step that
    collide once collide in all hashes. For members in whole rows, errors were a third more frequent.
    """
    return state * np.uint64(_MULTIPLIER) + np.uint64(1)


@inlined
def _turned_left(word: np.uint64, turn: np.uint64) -> np.uint64:
    """A word rotated by 0 to 63 bits."""
    return (word << turn) | (word >> (-turn & np.uint64(63)))


@kernel
def insert(index: WideIndex, first_word: int, hashes: int, key: np.uint64, words: WideIndex) -> int:
    """Add the members of an index, or of a slice of it that begins at `first_word`, to a filter.

    Each thread needs its own filter. Returns the number of index words with members.
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
    """Write the elements of a filter into an index, or a slice of it that begins at `first_word`.

    Bits beyond the last element may be set. All hashes of a word are looked up: an early stop saves a few
    loads, but mispredicted branches cost more.
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
