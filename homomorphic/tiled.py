"""Sketches of the settings `rotated` and `repaired` of lossless: a table for each tile of a bucket.

A tile is a run of whole blocks (of elements that share their numbers). Where it has few members, they are
added into its table; where a table would be no smaller than the tile, its members' words are sent as they
are, and where nothing is expected, nothing is. Tiles that fail are sent again, packed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from homomorphic.bits import WORD_ELEMENTS, WideIndex
from homomorphic.codec import Gradient, Merged, Message, Note, NoteKind, Round, Work
from homomorphic.forecast import Seen, with_margin
from homomorphic.keyed import mix_plain
from homomorphic.members import (
    Members,
    Placed,
    decode,
    encode,
    everyone,
    exchange_members,
    members_message,
    members_of,
    placed,
    tell_infinite,
)
from homomorphic.membership import IndexKind, IndexMemory, exchange_index, own_index
from homomorphic.numbers import Agreed, Format
from homomorphic.sketch import Sketch

TILE_MEMBERS = 32_768  # tables fit a core's cache, and few tiles fail (about 6 / members)
TILE_ELEMENTS_MAX = 1 << 18  # what the fast kernels can name
EXTRA_COUNTERS = 32  # what small tables need on top of the load

_HASHES = 3
_COUNTER_BYTES = 8  # of the peeling kernel: value, degree and members in one word
_NOTHING = np.zeros(0, np.int64)

Operations = Generator[tuple[Message, ...], tuple[Merged, ...], tuple[Gradient, Seen]]
Flags = NDArray[np.bool_]


class Layout(NamedTuple):
    """How a bucket is cut into tiles, and how each is sent; the same at every worker."""

    elements: int
    tile_elements: int
    rows: NDArray[np.int64]  # (tiles,) of each segment of its table; 0: it has none
    is_whole: Flags  # (tiles,) sent as it is

    @property
    def tiles(self) -> int:
        """How many tiles there are."""
        return self.rows.size

    def within(self, chosen: Flags, index: WideIndex) -> WideIndex:
        """The part of an index that lies in some tiles."""
        words = np.repeat(chosen, self.tile_elements // WORD_ELEMENTS)[: index.size]
        return np.where(words, index, np.uint64(0))

    def counts(self, members: Members) -> NDArray[np.int64]:
        """Members of each tile, `(tiles,)`."""
        ends = np.append(np.arange(self.tiles) * self.group_blocks(members.block_elements), -1)
        counts: NDArray[np.int64] = np.diff(members.starts[ends])
        return counts

    def group_blocks(self, block_elements: int) -> int:
        """Blocks of a tile."""
        return self.tile_elements // block_elements
'''
'''


@dataclass(frozen=True)
class Tiled:
    """What encoders of these settings have in common."""

    setting: Literal["repaired", "rotated"]
    load: float
    numbers: Format
    index: IndexKind
    memory: IndexMemory

    def exchange_staged(self, gradient: Gradient, round: Round) -> Operations:
        """Index first, then sketches sized for the union, then what failed."""
        announced = self.numbers.announce(gradient, round)
        own = own_index(gradient)
        membership = yield from exchange_index(own, gradient.size, round, self.index, announced, self.memory)
        agreed = self.numbers.agree(announced, membership.merged, round)
        union = members_of(membership.union, self.numbers.block_elements)
        members = np.diff(union.starts)
        layout = self._layout(gradient.size, members, members)
        sent = _Sent(self, layout, agreed, self._tables(layout, agreed, round), union.index)
        decoded = np.zeros(gradient.size, np.float32)
        if sent.is_empty:
            return decoded, Seen(members, agreed)
        merged = yield sent.messages(gradient, own)
        failed = sent.decode(merged, union, np.zeros(layout.tiles, np.bool_), decoded, round)
        if failed.any():
            _tell_failed(NoteKind.REDO, "did not peel", failed, layout.rows > 0, round)
            yield from self._redo(gradient, layout.within(failed, union.index), agreed, round, decoded)
        return decoded, Seen(members, agreed)

    def exchange_concurrent(self, gradient: Gradient, round: Round, forecast: Seen) -> Operations:
        """Index and sketches at once, these by a forecast; then what that was wrong for, and what failed."""
        announced = self.numbers.announce(gradient, round)
        own = own_index(gradient)
        layout = self._layout(gradient.size, forecast.members, with_margin(forecast.members))
        everything = everyone(gradient.size)
        tables = self._tables(layout, forecast.agreed, round)
        sent = _Sent(self, layout, forecast.agreed, tables, everything)
        beside = (*announced, *sent.messages(gradient, own))
        membership = yield from exchange_index(own, gradient.size, round, self.index, beside, self.memory)
        agreed = self.numbers.agree(announced, membership.merged[: len(announced)], round)
        union = members_of(membership.union, self.numbers.block_elements)
        decoded = np.zeros(gradient.size, np.float32)
        missed = self._missed(layout, union, forecast.agreed.covers(agreed))
        failed = sent.decode(membership.merged[len(announced) :], union, missed, decoded, round)
        if missed.any():
            _tell_failed(NoteKind.FORECAST, "outgrew the forecast", missed, layout.counts(union) > 0, round)
        if failed.any():
            _tell_failed(NoteKind.REDO, "did not peel", failed, layout.rows > 0, round)
        again = layout.within(missed | failed, union.index)
        if again.any():
            yield from self._redo(gradient, again, agreed, round, decoded)
        return decoded, Seen(np.diff(union.starts), agreed)
'''
'''
