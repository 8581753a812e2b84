"""Sketches of the settings `rotated` and `repaired` of lossless: a table for each tile of a bucket.

A tile is a run of whole blocks (of elements that share their numbers). Where it has few members, they are
added into its table; where a table would be no smaller than the tile, words are sent as they are, and where
nothing is expected, nothing is. Tiles that fail are sent again, packed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from homomorphic.bits import WORD_ELEMENTS, WideIndex
from homomorphic.codec import Gradient, Merged, Message, Note, NoteKind, Round, Work
from homomorphic.forecast import Seen, with_margin
from homomorphic.keyed import mix_plain
from homomorphic.members import (
    Members,
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
from homomorphic.sketch import Shape, Sketch

TILE_MEMBERS = 32_768  # tables fit a core's cache, and few tiles fail (about 6 / members)
TILE_ELEMENTS_MAX = 1 << 18
EXTRA_COUNTERS = 32  # what small tables need on top of the load
LOAD_MAX = 0.81  # three-hash peeling fails above 0.818 members per counter

_HASHES = 3
_CELL_BYTES = 8  # of the peeling kernel: value, degree and members of a counter in one word

Operations = Generator[tuple[Message, ...], tuple[Merged, ...], tuple[Gradient, Seen]]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]


class Layout(NamedTuple):
    """How a bucket is cut into tiles, and how each is sent; the same at every worker."""

    tile_blocks: int
    block_elements: int
    shape: Shape
    rows: Counts  # (tiles,) of each segment of its table; 0: it has none
    is_whole: Flags  # (tiles,) its words are sent as they are

    @property
    def has_table(self) -> Flags:
        """Which tiles have a table."""
        return self.rows > 0

    def within(self, chosen: Flags, index: WideIndex) -> Members:
        """The members that lie in some tiles."""
        tile_words = self.tile_blocks * self.block_elements // WORD_ELEMENTS
        words = np.repeat(chosen, tile_words)[: index.size]
        return members_of(np.where(words, index, np.uint64(0)), self.block_elements)

    def per_tile(self, per_block: Counts) -> Counts:
        """Sums over the blocks of each tile."""
        return np.add.reduceat(per_block, np.arange(0, per_block.size, self.tile_blocks), dtype=np.int64)


def layout_of(shape: Shape, load: float, elements: int, room: Counts, block_elements: int) -> Layout:
    """Cut a bucket into tiles with tables for as many members as its blocks have, `(blocks,)`."""
    tile_blocks = shape.tile_blocks(elements, int(room.sum()), block_elements)
    starts = np.arange(0, room.size, tile_blocks)
    in_tile = np.add.reduceat(room, starts, dtype=np.int64)
    counters = np.ceil(in_tile / load) + EXTRA_COUNTERS
    rows = np.ceil(counters / (_HASHES * shape.lanes)).astype(np.int64)
    sizes = np.minimum(tile_blocks, room.size - starts) * block_elements
    rows[(_HASHES * shape.lanes * rows >= sizes) | (in_tile == 0)] = 0
    return Layout(tile_blocks, block_elements, shape, rows, (rows == 0) & (in_tile > 0))


class _Sent:
    """What is sent for a layout: the tables, and the words of whole tiles."""

    def __init__(self, layout: Layout, numbers: Format, agreed: Agreed, whole: WideIndex, round: Round) -> None:
        """`whole` are the elements that a whole tile sends: its members, or all if they are not known."""
        self._layout, self._numbers, self._agreed, self._round = layout, numbers, agreed, round
        starts = np.arange(0, agreed.digits.size, layout.tile_blocks)
        digits = np.maximum.reduceat(agreed.digits, starts)
        key = np.uint64(mix_plain(round.seed, round.step, round.bucket))
        self._sketch = Sketch(layout.shape, layout.rows, digits, numbers.dtype, key)
        self._direct = placed(layout.within(layout.is_whole, whole), agreed)

    def messages(self, gradient: Gradient, own: WideIndex) -> tuple[Message, ...]:
        """One worker's words, where there are any."""
        messages = []
        if self._sketch.words_count:
            messages.append(self._sketch_message(gradient, own))
        if self._direct.offsets[-1]:
            messages.append(members_message(gradient, self._direct, self._numbers, "dense tiles"))
        return tuple(messages)

    def _sketch_message(self, gradient: Gradient, own: WideIndex) -> Message:
        layout = self._layout
        mine = placed(layout.within(layout.has_table, own), self._agreed, layout.tile_blocks)
        compact = np.empty(int(mine.offsets[-1]), self._numbers.dtype)
        encode(mine, gradient, compact)
        words = self._sketch.add(mine, compact)
        added_bytes = _HASHES * compact.nbytes
        return Message(
            words,
            self._numbers.merge,
            "values",
            Work(own.nbytes + 4 * mine.members.count + added_bytes, words.nbytes + added_bytes),
            # Every member enters its counters and leaves them again.
            decode_work=Work(
                own.nbytes + words.nbytes + 2 * _HASHES * _CELL_BYTES * self._expected_members,
                gradient.nbytes + words.nbytes + 2 * _HASHES * _CELL_BYTES * self._expected_members,
            ),
        )

    @property
    def _expected_members(self) -> int:
        """Members that the tables have room for at the usual load."""
        return int(0.77 * self._sketch.words_count)

    def decode(
        self, merged: tuple[Merged, ...], union: WideIndex, skipped: Flags, decoded: Gradient
    ) -> Flags:
        """Write the sums of merged messages, in their order, into `decoded`; return the tiles that failed.

        Tiles to be skipped are left as they are: zero, or wrong if they are whole.
        """
        layout, answers = self._layout, iter(merged)
        failed, infinite, members = np.zeros(layout.rows.size, np.bool_), 0, 0
        if self._sketch.words_count:
            place = placed(layout.within(layout.has_table & ~skipped, union), self._agreed, layout.tile_blocks)
            sums = np.empty(int(place.offsets[-1]), self._numbers.dtype)
            self._sketch.peel(place, next(answers).words, sums, failed)
            for tile in np.flatnonzero(failed):
                sums[place.offsets[tile] : place.offsets[tile + 1]] = 0
            infinite += decode(place, sums, decoded, clear=True)
            members += place.members.count
        if self._direct.offsets[-1]:
            infinite += decode(self._direct, next(answers).words, decoded, clear=False)
            members += self._direct.members.count
        tell_infinite(infinite, members, self._round)
        return failed


@dataclass(frozen=True)
class Tiled:
    """How encoders of these settings exchange a bucket."""

    shape: Shape
    load: float
    numbers: Format
    index: IndexKind
    memory: IndexMemory

    def exchange_staged(self, gradient: Gradient, round: Round) -> Operations:
        """Index first, then sketches sized for the union, then what failed."""
        own = own_index(gradient)
        announced = self.numbers.announce(gradient, round)
        membership = yield from exchange_index(gradient, round, self.index, announced, self.memory, own)
        agreed, union = self.numbers.agree(announced, membership.merged, round), membership.union
        decoded = np.zeros(gradient.size, np.float32)
        seen = Seen(np.diff(members_of(union, self.numbers.block_elements).starts), agreed)
        if not membership.members:
            return decoded, seen
        layout = self._layout(gradient.size, seen.members)
        sent = _Sent(layout, self.numbers, agreed, union, round)
        messages = sent.messages(gradient, own)
        if messages:  # digits of zeros are none at all
            failed = sent.decode((yield messages), union, np.zeros(layout.rows.size, np.bool_), decoded)
            yield from self._redo(gradient, layout, failed, union, agreed, round, decoded)
        return decoded, seen

    def exchange_concurrent(self, gradient: Gradient, round: Round, forecast: Seen) -> Operations:
        """Index and sketches at once, these by a forecast; then what that was wrong for, and what failed."""
        own = own_index(gradient)
        announced = self.numbers.announce(gradient, round)
        layout = self._layout(gradient.size, with_margin(forecast.members))
        sent = _Sent(layout, self.numbers, forecast.agreed, everyone(gradient.size), round)
        beside = (*announced, *sent.messages(gradient, own))
        membership = yield from exchange_index(gradient, round, self.index, beside, self.memory, own)
        first = len(announced)
        agreed, union = self.numbers.agree(announced, membership.merged[:first], round), membership.union
        seen = Seen(np.diff(members_of(union, self.numbers.block_elements).starts), agreed)
        missed = _missed(layout, seen.members, forecast.agreed.covers(agreed))
        decoded = np.zeros(gradient.size, np.float32)
        failed = sent.decode(membership.merged[first:], union, missed, decoded)
        if missed.any():
            lost, live = int(missed.sum()), int((layout.per_tile(seen.members) > 0).sum())
            text = f"{lost} of {live} tiles had outgrown the forecast: they were sent again, packed"
            round.tell(Note(NoteKind.FORECAST, text, count=lost, total=live))
        yield from self._redo(gradient, layout, failed, union, agreed, round, decoded, missed)
        return decoded, seen

    def _layout(self, elements: int, room: Counts) -> Layout:
        return layout_of(self.shape, self.load, elements, room, self.numbers.block_elements)

    def _redo(
        self, gradient: Gradient, layout: Layout, failed: Flags, union: WideIndex, agreed: Agreed, round: Round,
        decoded: Gradient, missed: Flags | None = None,
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], None]:
        """Sum the members of failed and missed tiles one by one into `decoded`."""
        if failed.any():
            lost, tables = int(failed.sum()), int(layout.has_table.sum())
            text = f"{lost} of {tables} tables did not peel: their members were sent again, packed"
            round.tell(Note(NoteKind.REDO, text, count=lost, total=tables))
        again = layout.within(failed if missed is None else failed | missed, union)
        if again.count:
            yield from exchange_members(gradient, placed(again, agreed), self.numbers, "redo", round, decoded)


def _missed(layout: Layout, members: Counts, is_covered: Flags) -> Flags:
    """Tiles whose members are more than there is room for, or whose numbers do not suit them, `(tiles,)`."""
    room = np.floor(LOAD_MAX * _HASHES * layout.shape.lanes * layout.rows)
    in_tile = layout.per_tile(members)
    unsuited = layout.per_tile(np.where(is_covered, 0, members)) > 0
    return np.asarray(np.where(layout.is_whole, False, in_tile > room) | unsuited)
