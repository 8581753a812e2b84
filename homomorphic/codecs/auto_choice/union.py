"""Which elements took part in a round, from what was heard of it.

A round that sent an index has told. One that sent blocks has told in which of them somebody had something,
and a dense one nothing: of such rounds there is the sum, in which members are missing that cancelled each
other, or were less than half a step of their block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Gradient, Merged, Message
from netfold.homomorphic.codecs.block_sparse import BLOCK_ELEMENTS
from netfold.homomorphic.index import bits
from netfold.homomorphic.index.bits import WORD_ELEMENTS, WideIndex
from netfold.homomorphic.index.membership import own_index, widened
from netfold.homomorphic.sketch.forecast import with_margin

INDEX, RUNS, BLOCKS = "index", "index blocks", "block index"  # labels of messages

Heard = Mapping[str, tuple[Message, Merged]]  # messages of a round and their answers, by label

_RUN_WORDS = BLOCK_ELEMENTS // WORD_ELEMENTS


@dataclass
class UnionMemory:
    """What one worker knows of the unions of one bucket; the same at all workers.

    A round that has not told its union, but whose sum looks like that of the last round that has, is taken
    to have the same union, if there the sum did not show it. Without that, gradients that cancel would be
    taken for sparse again after every dense round.
    """

    _union: WideIndex | None = None  # of the last round that told
    _shown: WideIndex | None = None  # by its sum

    def learn(self, decoded: Gradient, heard: Heard) -> WideIndex:
        """The members of a round: those that it told, or as many as can be known."""
        shown = own_index(decoded)
        union = _told_union(shown.size, heard)
        if union is not None:
            self._union, self._shown = union, shown
            return union
        live = _told_blocks(decoded.size, heard)
        if live is not None:
            shown = _with_one_in_each(live, shown)
        if self._union is None or self._shown is None:
            return shown
        before = self._shown
        if live is not None:
            before = _with_one_in_each(_live_blocks(self._union), before)
        is_hidden = not _are_alike(before, self._union)
        return self._union if is_hidden and _are_alike(before, shown) else shown


class _Extent(NamedTuple):
    """How much an index names."""

    members: int
    runs: int  # of 64 elements
    blocks: int  # of 256


def _told_union(index_words: int, heard: Heard) -> WideIndex | None:
    """The index of a round that sent one."""
    words = None if INDEX not in heard else widened(heard[INDEX][1].words)
    if RUNS not in heard:
        return words
    union = np.zeros(index_words, np.uint64)
    if words is not None:  # else no run has a member
        bits.scatter_words(widened(heard[RUNS][1].words), words, union)
    return union


def _told_blocks(elements: int, heard: Heard) -> NDArray[np.bool_] | None:
    """Which blocks are live, in a round that sent blocks."""
    if BLOCKS not in heard:
        return None
    words = heard[BLOCKS][1].words.view(np.uint8)
    count = -(-elements // BLOCK_ELEMENTS)
    return np.unpackbits(words, bitorder="little", count=count).astype(np.bool_)


def _live_blocks(index: WideIndex) -> NDArray[np.bool_]:
    return np.asarray(np.logical_or.reduceat(index != 0, np.arange(0, index.size, _RUN_WORDS)))


def _with_one_in_each(live: NDArray[np.bool_], shown: WideIndex) -> WideIndex:
    """These members, and the first element of every live block that has none of them."""
    index = shown.copy()
    index[_RUN_WORDS * np.flatnonzero(live & ~_live_blocks(shown))] = 1
    return index


def _are_alike(one: WideIndex, other: WideIndex) -> bool:
    """Whether two indexes name about as much, as far as chance allows."""
    extents = np.array([_extent(one), _extent(other)])
    return bool((extents.max(axis=0) <= with_margin(extents.min(axis=0))).all())


def _extent(index: WideIndex) -> _Extent:
    blocks = int(np.count_nonzero(_live_blocks(index)))
    return _Extent(bits.count_members(index), int(np.count_nonzero(index)), blocks)
