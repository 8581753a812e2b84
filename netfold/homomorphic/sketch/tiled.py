"""Settings `rotated` and `repaired` of lossless: a table for each tile of a bucket.

A tile is a run of whole blocks (of elements that share their numbers). The members of a sparse tile are added
into its table. If a table would be no smaller than the tile, the tile is sent whole: the words of the union's
members if the union is known, else of all elements. A tile without expected members is not sent. Tiles that
fail are sent again, packed.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.index.bits import WORD_ELEMENTS, WideIndex
from netfold.homomorphic.index.members import (
    Members,
    WorkerBucket,
    decode,
    encode,
    exchange_members,
    full_support,
    members_message,
    members_of,
    nonzeros_of,
    report_infinite,
    word_layout,
)
from netfold.homomorphic.index.membership import IndexKind, IndexMemory, exchange_index, own_index
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.message import Gradient, Merged, Message, Work
from netfold.homomorphic.numbers.compact import Compact
from netfold.homomorphic.numbers.formats import Agreed, NumberFormat
from netfold.homomorphic.round import Note, NoteKind, Round
from netfold.homomorphic.sketch.forecast import Seen, with_margin
from netfold.homomorphic.sketch.sketch import Sketch, Tiling
from netfold.homomorphic.sketch.tables import rows_needed

LOAD_MAX = 0.81  # three-hash peeling fails above 0.818 members per counter
USUAL_LOAD = 0.77  # up to it, tables rarely fail and paths through the peeling order are short

_HASHES = 3
_CELL_BYTES = 8  # a cell of the peeling kernel is one 64-bit word

Operations = Generator[tuple[Message, ...], tuple[Merged, ...], tuple[Gradient, Seen]]
Flags = NDArray[np.bool_]
Int64s = NDArray[np.int64]


class Layout(NamedTuple):
    """The tiles of a bucket, and how each is sent; the same at every worker."""

    tiling: Tiling
    load: float  # members per counter
    tile_blocks: int
    block_elements: int
    rows: Int64s  # (tiles,) of each segment of a tile's table; 0: no table
    is_whole: Flags  # (tiles,) sent whole, without a table

    @property
    def has_table(self) -> Flags:
        """The tiles with a table."""
        return self.rows > 0

    @property
    def tile_elements(self) -> int:
        """Elements per tile; the last tile may be short."""
        return self.tile_blocks * self.block_elements

    def within(self, chosen: Flags, index: WideIndex) -> Members:
        """The members in the chosen tiles."""
        if chosen.all():
            return members_of(index, self.block_elements)
        words = np.repeat(chosen, self.tile_elements // WORD_ELEMENTS)[: index.size]
        return members_of(np.where(words, index, np.uint64(0)), self.block_elements)

    def per_tile(self, per_block: Int64s) -> Int64s:
        """Sums over the blocks of each tile."""
        return np.add.reduceat(per_block, np.arange(0, per_block.size, self.tile_blocks), dtype=np.int64)

    def tile_digits(self, agreed: Agreed) -> Int64s:
        """Words per value in the table of each tile."""
        digits = agreed.digits
        return np.asarray(np.maximum.reduceat(digits, np.arange(0, digits.size, self.tile_blocks)))


def layout_of(tiling: Tiling, load: float, elements: int, expected: Seen, block_elements: int) -> Layout:
    """Cut a bucket into tiles, with tables for the expected members."""
    room, digits = expected.members, expected.agreed.digits
    tile_blocks = tiling.tile_blocks(room.size, block_elements, int(room.sum()))
    starts = np.arange(0, room.size, tile_blocks)
    in_tile = np.add.reduceat(room, starts, dtype=np.int64)
    rows = rows_needed(in_tile, load, tiling.lanes)
    sizes = np.minimum(block_elements, elements - np.arange(room.size) * block_elements)
    whole_words = np.add.reduceat(sizes * digits, starts)
    # A table has as many digits as its most demanding block; in a whole tile each block has its digits.
    table_words = _HASHES * tiling.lanes * rows * np.maximum.reduceat(digits, starts)
    rows[table_words >= whole_words] = 0
    return Layout(tiling, load, tile_blocks, block_elements, rows, (rows == 0) & (in_tile > 0))


class SketchSize(NamedTuple):
    """Size of a round's sketch."""

    words: int  # of all tables
    direct_elements: int  # of tiles that are sent whole


def forecast_layout(
    tiling: Tiling, load: float, elements: int, forecast: Seen, block_elements: int
) -> Layout:
    """The layout of a bucket before the union is known."""
    roomy = forecast._replace(members=with_margin(forecast.members))
    return layout_of(tiling, load, elements, roomy, block_elements)


def sketch_size(layout: Layout, elements: int, agreed: Agreed) -> SketchSize:
    """Size of the sketch of a layout, with these numbers."""
    words = _HASHES * layout.tiling.lanes * layout.rows * layout.tile_digits(agreed)
    starts = np.arange(layout.rows.size) * layout.tile_elements
    sizes = np.minimum(layout.tile_elements, elements - starts)
    return SketchSize(int(words.sum()), int(sizes[layout.is_whole].sum()))


def redone_members(layout: Layout, forecast: Seen, seen: Seen) -> int:
    """Members of the tiles that a forecast did not cover, if all tables peel."""
    missed = _missed(layout, seen.members, forecast.agreed.covers(seen.agreed))
    return int(layout.per_tile(seen.members)[missed].sum())


def sketch_work_bytes(elements: int, words: float, own_members: float, digits: float) -> float:
    """Memory traffic of making tables from a worker's members, and of peeling the sums."""
    added_bytes = _HASHES * 4 * digits * own_members
    index_bytes = elements / 8
    encoded_bytes = index_bytes + 4 * own_members + 4 * words + 2 * added_bytes
    return encoded_bytes + index_bytes + 4 * elements + 8 * words + 2 * _peeled_bytes(words, USUAL_LOAD)


def _peeled_bytes(words: float, load: float) -> int:
    """Memory traffic of adding each member to its cells and peeling it."""
    return 2 * _HASHES * _CELL_BYTES * int(load * words)


class _TileMessages:
    """The messages of a layout: tables, and the words of whole tiles."""

    def __init__(
        self, layout: Layout, numbers: NumberFormat[Any], agreed: Agreed, whole: WideIndex, round: Round
    ) -> None:
        """`whole` has the elements that whole tiles send: their members if known, else all."""
        self._layout, self._numbers, self._agreed = layout, numbers, agreed
        digits = layout.tile_digits(agreed)
        key = mix_plain(round.seed, round.step, round.bucket)
        self._sketch = Sketch(layout.tiling, layout.tile_elements, layout.rows, digits, key)
        self._direct = word_layout(layout.within(layout.is_whole, whole), agreed)

    def messages(self, own: Members, nonzeros: Compact) -> tuple[Message, ...]:
        """One worker's messages, without empty ones."""
        messages = []
        if self._sketch.words_count:
            messages.append(self._sketch_message(own, nonzeros))
        if self._direct.offsets[-1]:
            messages.append(members_message(nonzeros.gradient, self._direct, self._numbers, "dense tiles"))
        return tuple(messages)

    def _sketch_message(self, own: Members, nonzeros: Compact) -> Message:
        layout, gradient_bytes, index_bytes = self._layout, nonzeros.gradient.nbytes, own.index.nbytes
        mine = word_layout(layout.within(layout.has_table, own.index), self._agreed, layout.tile_blocks)
        compact = np.empty(int(mine.offsets[-1]), self._numbers.dtype)
        encode(mine, nonzeros, compact)
        words = self._sketch.add(mine, compact)
        added_bytes = _HASHES * compact.nbytes
        peeled_bytes = _peeled_bytes(words.size, layout.load)
        return Message(
            words,
            self._numbers.merge,
            "values",
            Work(index_bytes + 4 * mine.members.count + added_bytes, words.nbytes + added_bytes),
            decode_work=Work(
                index_bytes + words.nbytes + peeled_bytes, gradient_bytes + words.nbytes + peeled_bytes
            ),
        )

    def decode(
        self, merged: tuple[Merged, ...], union: WideIndex, is_skipped: Flags, decoded: Gradient
    ) -> tuple[Flags, int]:
        """Write the sums of merged messages, in their order, into `decoded`.

        Returns the tiles that failed, and the number of infinite sums. Failed and skipped tiles are zero, or
        wrong if they are whole.
        """
        layout, answers = self._layout, iter(merged)
        failed, infinite = np.zeros(layout.rows.size, np.bool_), 0
        if self._sketch.words_count:
            live = layout.has_table & ~is_skipped
            place = word_layout(layout.within(live, union), self._agreed, layout.tile_blocks)
            table = next(answers)
            sums, failed = self._sketch.peel(place, table.words, is_skipped, table.workers)
            for tile in np.flatnonzero(failed):
                sums[place.offsets[tile] : place.offsets[tile + 1]] = 0
            infinite += decode(place, sums, decoded, clear=True)
        if self._direct.offsets[-1]:
            infinite += decode(self._direct, next(answers).words, decoded, clear=False)
        return failed, infinite


@dataclass(frozen=True)
class Tiled:
    """The exchange of a bucket in these settings."""

    tiling: Tiling
    load: float
    numbers: NumberFormat[Any]
    index: IndexKind
    memory: IndexMemory

    def exchange_staged(self, gradient: Gradient, round: Round) -> Operations:
        """Send the index, then tables sized for the union, then tiles that failed."""
        bucket = WorkerBucket(gradient, round)
        own = members_of(own_index(gradient), self.numbers.block_elements)
        nonzeros = nonzeros_of(own, gradient)
        announced = self.numbers.announce(nonzeros, round)
        union, seen, _ = yield from self._agree(bucket, own, announced, ())
        if seen.members.any():
            layout = layout_of(self.tiling, self.load, gradient.size, seen, self.numbers.block_elements)
            sent = _TileMessages(layout, self.numbers, seen.agreed, union, round)
            messages = sent.messages(own, nonzeros)
            if messages:  # zeros have no digits
                merged = yield messages
                failed, infinite = sent.decode(merged, union, np.zeros_like(layout.is_whole), bucket.decoded)
                _report_failed(failed, layout, round)
                infinite += yield from self._redo(bucket, layout.within(failed, union), seen.agreed)
                report_infinite(infinite, bucket.decoded, round)
        return bucket.decoded, seen

    def exchange_concurrent(self, gradient: Gradient, round: Round, forecast: Seen) -> Operations:
        """Send the index and forecast tables at once, then tiles that were not as forecast or failed."""
        bucket = WorkerBucket(gradient, round)
        block_elements = self.numbers.block_elements
        own = members_of(own_index(gradient), block_elements)
        nonzeros = nonzeros_of(own, gradient)
        announced = self.numbers.announce(nonzeros, round)
        layout = forecast_layout(self.tiling, self.load, gradient.size, forecast, block_elements)
        sent = _TileMessages(layout, self.numbers, forecast.agreed, full_support(gradient.size), round)
        messages = sent.messages(own, nonzeros)
        union, seen, merged = yield from self._agree(bucket, own, announced, messages)
        missed = _missed(layout, seen.members, forecast.agreed.covers(seen.agreed))
        failed, infinite = sent.decode(merged, union, missed, bucket.decoded)
        _report_missed(missed, layout.per_tile(seen.members), round)
        _report_failed(failed, layout, round)
        infinite += yield from self._redo(bucket, layout.within(failed | missed, union), seen.agreed)
        report_infinite(infinite, bucket.decoded, round)
        return bucket.decoded, seen

    def _agree(
        self, bucket: WorkerBucket, own: Members, announced: tuple[Message, ...], beside: tuple[Message, ...]
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], tuple[WideIndex, Seen, tuple[Merged, ...]]]:
        """Exchange the index, the announcements of numbers, and the messages `beside`, in one operation."""
        elements = bucket.gradient.size
        membership = yield from exchange_index(
            own.index, elements, bucket.round, self.index, (*announced, *beside), self.memory
        )
        merged = membership.merged
        agreed = self.numbers.agree(elements, announced, merged[: len(announced)], bucket.round)
        members = np.diff(members_of(membership.union, self.numbers.block_elements).starts)
        return membership.union, Seen(members, agreed), merged[len(announced) :]

    def _redo(
        self, bucket: WorkerBucket, again: Members, agreed: Agreed
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], int]:
        """Sum members packed; return the number of infinite sums."""
        if not again.count:
            return 0
        return (
            yield from exchange_members(bucket, word_layout(again, agreed), self.numbers, "redo", clear=False)
        )


def _missed(layout: Layout, members: Int64s, is_covered: Flags) -> Flags:
    """Tiles with too many members for their table, or with numbers that do not cover them, `(tiles,)`."""
    room = np.floor(LOAD_MAX * _HASHES * layout.tiling.lanes * layout.rows)
    is_crowded = ~layout.is_whole & (layout.per_tile(members) > room)
    return np.asarray(is_crowded | (layout.per_tile(np.where(is_covered, 0, members)) > 0))


def _report_failed(failed: Flags, layout: Layout, round: Round) -> None:
    if failed.any():
        count, total = int(failed.sum()), int(layout.has_table.sum())
        text = f"{count} of {total} tables did not peel: their members were sent again, packed"
        round.report(Note(NoteKind.REDO, text, count=count, total=total))


def _report_missed(missed: Flags, members: Int64s, round: Round) -> None:
    if missed.any():
        count, total = int(missed.sum()), int(np.count_nonzero(members))
        text = f"{count} of {total} tiles were not as forecast: their members were sent again, packed"
        round.report(Note(NoteKind.FORECAST, text, count=count, total=total))
