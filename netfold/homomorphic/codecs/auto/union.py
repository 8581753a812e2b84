"""The union support of a round, from the messages that were observed.

A round with an index has sent its union. A round of blocks has sent its live blocks only, a dense round
nothing. For these rounds there is only the decoded sum. It lacks members that cancelled each other, or that
were less than half a step of their block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import State
from netfold.homomorphic.codecs.sparse.block_sparse import BLOCK_ELEMENTS
from netfold.homomorphic.index import bits
from netfold.homomorphic.index.bits import WORD_ELEMENTS, WideIndex
from netfold.homomorphic.index.membership import own_index, widened
from netfold.homomorphic.message import Gradient, Merged, Message
from netfold.homomorphic.sketch.forecast import with_margin

INDEX, RUNS, BLOCKS = "index", "index blocks", "block index"  # labels of messages

Observed = Mapping[str, tuple[Message, Merged]]  # messages of a round and their answers, by label

_RUN_WORDS = BLOCK_ELEMENTS // WORD_ELEMENTS


@dataclass
class UnionMemory:
    """One worker's knowledge of one bucket's unions; the same at all workers.

    Take a round that did not send its union. If its sum looks like that of the last round that did, and that
    sum hid members, the round is assumed to have the same union. Otherwise gradients that cancel would be
    taken for sparse again after every dense round.
    """

    _union: WideIndex | None = None  # of the last round that sent its union
    _shown: WideIndex | None = None  # the support of that round's sum

    def state(self) -> State:
        """The last union that was sent, and the support of its sum."""
        if self._union is None or self._shown is None:
            return {}
        return {"union": self._union.copy(), "shown": self._shown.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        self._union, self._shown = state.get("union"), state.get("shown")

    def learn(self, decoded: Gradient, observed: Observed) -> WideIndex:
        """Learn a round; return its union, or the best estimate of it."""
        shown = own_index(decoded)
        union = _sent_union(shown.size, observed)
        if union is not None:
            self._union, self._shown = union, shown
            return union
        live = _sent_blocks(decoded.size, observed)
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
    """Sizes of an index."""

    members: int
    runs: int  # of 64 elements
    blocks: int  # of 256


def _sent_union(index_words: int, observed: Observed) -> WideIndex | None:
    """The union that a round sent; None if it sent no index."""
    words = None if INDEX not in observed else widened(observed[INDEX][1].words)
    if RUNS not in observed:
        return words
    union = np.zeros(index_words, np.uint64)
    if words is not None:  # without words, no run has a member
        bits.scatter_words(widened(observed[RUNS][1].words), words, union)
    return union


def _sent_blocks(elements: int, observed: Observed) -> NDArray[np.bool_] | None:
    """The live blocks that a round sent; None if it sent no block index."""
    if BLOCKS not in observed:
        return None
    words = observed[BLOCKS][1].words.view(np.uint8)
    count = -(-elements // BLOCK_ELEMENTS)
    return np.unpackbits(words, bitorder="little", count=count).astype(np.bool_)


def _live_blocks(index: WideIndex) -> NDArray[np.bool_]:
    return np.asarray(np.logical_or.reduceat(index != 0, np.arange(0, index.size, _RUN_WORDS)))


def _with_one_in_each(live: NDArray[np.bool_], shown: WideIndex) -> WideIndex:
    """Add the first element of every live block without a member."""
    index = shown.copy()
    index[_RUN_WORDS * np.flatnonzero(live & ~_live_blocks(shown))] = 1
    return index


def _are_alike(one: WideIndex, other: WideIndex) -> bool:
    """Whether the sizes of two indexes differ by chance only."""
    extents = np.array([_extent(one), _extent(other)])
    return bool((extents.max(axis=0) <= with_margin(extents.min(axis=0))).all())


def _extent(index: WideIndex) -> _Extent:
    blocks = int(np.count_nonzero(_live_blocks(index)))
    return _Extent(bits.count_members(index), int(np.count_nonzero(index)), blocks)
