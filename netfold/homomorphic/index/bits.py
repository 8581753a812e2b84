"""Compiled kernels over indexes: writing them, counting them, and words at their set bits.

An index is read 64 bits at a time. Counting trailing zeros finds the next member and `word & (word − 1)`
clears it, so the work is proportional to the members. Writing an index is limited by memory speed.

Kernels work on slices, so threads may share an array by ranges of whole words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.bits import popcount, trailing_zeros
from netfold.homomorphic.kernels.compiled import kernel

WORD_ELEMENTS = 64

Index = NDArray[np.uint32]  # bit j of word w is element 32·w + j
WideIndex = NDArray[np.uint64]  # bit j of word w is element 64·w + j


@kernel
def write_index(values: NDArray[Any], index: Index) -> None:
    """Set a bit for every value that is not zero (−0.0 counts as zero); `index` is `(⌈values.size / 32⌉,)`.

    For a gradient, these are its members; for the words of an index, the words that are not zero.
    """
    for w in range(index.size):
        some = values[32 * w : 32 * w + 32]
        word = 0
        for j in range(some.size):
            word |= int(some[j] != 0) << j
        index[w] = word


@kernel
def count_members(index: WideIndex) -> int:
    """Count the set bits."""
    members = 0
    for w in range(index.size):
        members += int(popcount(index[w]))
    return members


@kernel
def first_missing(part: Index, whole: Index) -> int:
    """Number of the first word of `part` with a bit that `whole` lacks; the size if there is none."""
    for w in range(part.size):
        if part[w] & ~whole[w]:
            return w
    return part.size


@kernel
def gather_words(chosen: WideIndex, words: WideIndex, gathered: WideIndex) -> None:
    """Write the words whose bits are set in `chosen`, in ascending order, into `gathered`, one for each."""
    position = np.uint64(0)
    for w in range(chosen.size):
        first = np.uint64(WORD_ELEMENTS * w)
        word = chosen[w]
        while word:
            gathered[position] = words[first + trailing_zeros(word)]
            position += np.uint64(1)
            word &= word - np.uint64(1)


@kernel
def scatter_words(chosen: WideIndex, gathered: WideIndex, words: WideIndex) -> None:
    """Put gathered words back; the other words stay unchanged."""
    position = np.uint64(0)
    for w in range(chosen.size):
        first = np.uint64(WORD_ELEMENTS * w)
        word = chosen[w]
        while word:
            words[first + trailing_zeros(word)] = gathered[position]
            position += np.uint64(1)
            word &= word - np.uint64(1)
