"""A bucket's sketch: the tables of its tiles, by the fastest kernels that apply.

`peeling` has a fast path for one integer per member, and a general one for several words per member, floats,
and tiles with more members than the fast one can number. Both make the same messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic import peeling
from netfold.homomorphic.block_floating_point import Compact
from netfold.homomorphic.codec import State, part_of, prefixed, prefixes
from netfold.homomorphic.hashing import PUBLISHED_LANES, REPAIRED, ROTATED, Hashing
from netfold.homomorphic.merge import Merged, Work
from netfold.homomorphic.message import Gradient, Message, Note, NoteKind, Round
from netfold.homomorphic.number_formats import Agreed, NumberFormat
from netfold.homomorphic.peeling import LANES, MEMBERS_MAX, TileTables, rows_needed
from netfold.homomorphic.union_index import (
    WORD_ELEMENTS,
    IndexKind,
    IndexMemory,
    SupportIndex,
    WideIndex,
    WordLayout,
    WorkerBucket,
    decode,
    encode,
    exchange_index,
    exchange_values,
    full_support,
    members_message,
    nonzeros_of,
    own_index,
    report_infinite,
    support_of,
    word_layout,
)
from netfold.kernels.compiled import in_parallel
from netfold.kernels.keyed_random import mix_plain, splitmix64_plain

TILE_MEMBERS = 32_768  # tables fit a core's cache, and few tiles fail (about 6 / members)
TILE_ELEMENTS_MAX = 1 << 22  # so that sparse buckets have tiles for all threads

Words = NDArray[Any]
Flags = NDArray[np.bool_]


class Tiling(NamedTuple):
    """How a setting cuts a bucket into tiles and hashes them."""

    setting: int
    """Setting of `hashing`."""
    lanes: int
    is_cut: bool
    """Whether a bucket is cut into tiles that fit the cache; else it is one tile."""

    def tile_blocks(self, blocks: int, block_elements: int, members: int) -> int:
        """Blocks per tile, for a bucket with these blocks and members."""
        least = max(1, self.lanes // block_elements)  # a tile has whole rows of lanes
        if not self.is_cut:
            return max(least, -(-blocks // least) * least)
        by_members = blocks // (1 + members // TILE_MEMBERS)
        return max(least, min(by_members, TILE_ELEMENTS_MAX // block_elements))


REPAIRED_TILING = Tiling(REPAIRED, LANES, is_cut=True)
ROTATED_TILING = Tiling(ROTATED, PUBLISHED_LANES, is_cut=False)


class Sketch:
    """The tables of one round, the same at every worker."""

    def __init__(
        self, tiling: Tiling, tile_elements: int, rows: NDArray[np.int64], digits: NDArray[np.int64], key: int
    ) -> None:
        """Tile t has `rows[t]` rows in each of three segments, for `digits[t]` words per member."""
        words = 3 * tiling.lanes * rows * digits
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(words)])
        self._tables = TileTables(tiling.setting, tiling.lanes, tile_elements, rows, starts, np.uint64(key))
        self._is_single = bool((digits[rows > 0] == 1).all())

    @property
    def words_count(self) -> int:
        return int(self._tables.word_starts[-1])

    def add(self, layout: WordLayout, compact: Words) -> Words:
        """Add a worker's words into its message, tile by tile."""
        if not self._is_fast(layout, compact):
            message = np.zeros(self.words_count, compact.dtype)
            for tile in np.flatnonzero(self._tables.rows).tolist():
                graph = self._graph(layout, tile)
                peeling.add_general(graph, compact[_span(layout.offsets, tile)], message[self._span(tile)])
            return message
        message = np.empty(self.words_count, np.int32)
        members = peeling.TileWords(layout.support.index, layout.offsets, compact)

        def write(first: int, last: int) -> None:
            scratch = peeling.scratch_for(self._tables, layout.offsets)
            peeling.add(self._tables, np.arange(first, last), members, message, scratch)

        in_parallel(write, self._tables.rows.size)
        return message

    def peel(
        self, union: WordLayout, merged: Words, is_skipped: Flags, workers: int = 2
    ) -> tuple[Words, Flags]:
        """Return the sums of all members, tile by tile, and the tiles that failed.

        Sums of failed tiles are meaningless. Skipped tiles must have no members.
        """
        chosen = self._tables._replace(rows=np.where(is_skipped, 0, self._tables.rows))
        sums = np.zeros(int(union.offsets[-1]), merged.dtype)
        is_failed = np.zeros(chosen.rows.size, np.bool_)
        if not self._is_fast(union, merged):
            for tile in np.flatnonzero(chosen.rows).tolist():
                graph = self._graph(union, tile)
                order = peeling.peeling_order(graph)
                table = merged[self._span(tile)].copy()
                tile_sums = sums[_span(union.offsets, tile)]
                is_failed[tile] = not peeling.replay(graph, order, table, tile_sums, workers=workers)
            return sums, is_failed
        members = peeling.TileWords(union.support.index, union.offsets, sums)

        def read(first: int, last: int) -> None:
            scratch = peeling.scratch_for(chosen, union.offsets)
            peeling.peel(chosen, np.arange(first, last), members, merged, is_failed, scratch)

        in_parallel(read, chosen.rows.size)
        return sums, is_failed

    def _is_fast(self, layout: WordLayout, words: Words) -> bool:
        """Whether there is one integer per member, and no tile has too many members."""
        is_small = bool(np.diff(layout.offsets).max(initial=0) <= MEMBERS_MAX)
        return words.dtype == np.int32 and self._is_single and is_small

    def _graph(self, layout: WordLayout, tile: int) -> peeling.Hypergraph:
        tables = self._tables
        key = np.uint64(splitmix64_plain(int(tables.key) + tile))
        words = tables.tile_elements // WORD_ELEMENTS
        index = layout.support.index[tile * words : (tile + 1) * words]
        return peeling.hypergraph(Hashing(tables.setting, tables.lanes, int(tables.rows[tile]), key), index)

    def _span(self, tile: int) -> slice:
        return _span(self._tables.word_starts, tile)


def _span(starts: NDArray[np.int64], number: int) -> slice:
    return slice(int(starts[number]), int(starts[number + 1]))


# Forecasts of a bucket's next round from its last ones: members and numbers.
#
# A sketch that is sent together with the index needs its size and numbers before any worker knows the union.
# All workers have seen the same unions, so they forecast alike.


ROUNDS = 4
"""Rounds that a forecast uses."""
STEPS = 8  # age from which a round is forgotten, because gradients have changed
GROWTH = 1.05
"""Factor on the largest count, in addition to three standard deviations of a random count."""


class Seen(NamedTuple):
    """Members and numbers of a round, observed or expected."""

    members: NDArray[np.int64]  # (blocks,)
    agreed: Agreed


class _Record(NamedTuple):
    """A recorded round."""

    step: int
    elements: int
    workers: int
    seen: Seen


@dataclass
class History:
    """The last rounds of every bucket."""

    _records: dict[int, deque[_Record]] = field(default_factory=dict)

    def add(self, round: Round, elements: int, seen: Seen) -> None:
        """Record a round of a bucket."""
        records = self._records.setdefault(round.bucket, deque(maxlen=ROUNDS))
        records.append(_Record(round.step, elements, round.workers, seen))

    def recent(self, round: Round, elements: int) -> list[Seen]:
        """Recent rounds of the same bucket and length, oldest first."""
        return [
            record.seen
            for record in self._records.get(round.bucket, ())
            if record.elements == elements and round.step - record.step < STEPS
        ]

    def forecast(self, round: Round, elements: int, numbers: NumberFormat[Any]) -> Seen | None:
        """Forecast a round; None without recent rounds."""
        seen = self.recent(round, elements)
        return forecast_of(seen, numbers) if seen else None

    def state(self, numbers: NumberFormat[Any]) -> State:
        """The recorded rounds: for each its place, members and numbers, under "bucket/index of the round"."""
        state: State = {}
        for bucket, records in self._records.items():
            for index, (step, elements, workers, seen) in enumerate(records):
                round_state = {"place": np.array([step, elements, workers]), "members": seen.members}
                round_state["numbers"] = numbers.record(seen.agreed)
                state |= prefixed(f"{bucket}/{index}", round_state)
        return state

    def restore(self, state: Mapping[str, NDArray[Any]], numbers: NumberFormat[Any]) -> None:
        """Continue from a state with the same number format."""
        self._records.clear()
        for bucket in prefixes(state):
            bucket_state = part_of(state, bucket)
            records = self._records.setdefault(int(bucket), deque(maxlen=ROUNDS))
            for index in prefixes(bucket_state):
                step, elements, workers = bucket_state[f"{index}/place"].tolist()
                agreed = numbers.recall(bucket_state[f"{index}/numbers"], workers)
                records.append(
                    _Record(step, elements, workers, Seen(bucket_state[f"{index}/members"], agreed))
                )


def forecast_of(rounds: Sequence[Seen], numbers: NumberFormat[Any]) -> Seen:
    """A round at least as dense as each of these (at least one), with numbers that cover them."""
    largest = np.maximum.reduce([seen.members for seen in rounds])
    return Seen(largest, numbers.forecast([seen.agreed for seen in rounds]))


def with_margin(members: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.where(members > 0, np.ceil(GROWTH * members + 3 * np.sqrt(members)), 0).astype(np.int64)


# Settings `rotated` and `repaired` of lossless: a table for each tile of a bucket.
#
# A tile is a run of whole blocks (of elements that share their numbers). The members of a sparse tile are
# added into its table. If a table would be no smaller than the tile, the tile is sent whole: the words of
# the union's members if the union is known, else of all elements. A tile without expected members is not
# sent. Tiles that fail are sent again, packed.


LOAD_MAX = 0.81  # three-hash peeling fails above 0.818 members per counter
USUAL_LOAD = 0.77  # up to it, tables rarely fail and paths through the peeling order are short

_HASHES = 3
_CELL_BYTES = 8  # a cell of the peeling kernel is one 64-bit word

Operations = Generator[tuple[Message, ...], tuple[Merged, ...], tuple[Gradient, Seen]]
Int64s = NDArray[np.int64]


class TileLayout(NamedTuple):
    """The tiles of a bucket, and how each is sent; the same at every worker."""

    tiling: Tiling
    load: float  # members per counter
    tile_blocks: int
    block_elements: int
    rows: Int64s  # (tiles,) of each segment of a tile's table; 0: no table
    is_whole: Flags  # (tiles,) sent whole, without a table

    @property
    def has_table(self) -> Flags:
        return self.rows > 0

    @property
    def tile_elements(self) -> int:
        # The last tile may be short.
        return self.tile_blocks * self.block_elements

    def within(self, chosen: Flags, index: WideIndex) -> SupportIndex:
        if chosen.all():
            return support_of(index, self.block_elements)
        words = np.repeat(chosen, self.tile_elements // WORD_ELEMENTS)[: index.size]
        return support_of(np.where(words, index, np.uint64(0)), self.block_elements)

    def per_tile(self, per_block: Int64s) -> Int64s:
        return np.add.reduceat(per_block, np.arange(0, per_block.size, self.tile_blocks), dtype=np.int64)

    def tile_digits(self, agreed: Agreed) -> Int64s:
        """Words per value in the table of each tile."""
        digits = agreed.digits
        return np.asarray(np.maximum.reduceat(digits, np.arange(0, digits.size, self.tile_blocks)))


def layout_of(tiling: Tiling, load: float, elements: int, expected: Seen, block_elements: int) -> TileLayout:
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
    return TileLayout(tiling, load, tile_blocks, block_elements, rows, (rows == 0) & (in_tile > 0))


class SketchSize(NamedTuple):
    """Size of a round's sketch."""

    words: int
    direct_elements: int
    """Elements of tiles that are sent whole."""


def forecast_layout(
    tiling: Tiling, load: float, elements: int, forecast: Seen, block_elements: int
) -> TileLayout:
    """The layout of a bucket before the union is known."""
    roomy = forecast._replace(members=with_margin(forecast.members))
    return layout_of(tiling, load, elements, roomy, block_elements)


def sketch_size(layout: TileLayout, elements: int, agreed: Agreed) -> SketchSize:
    """Size of the sketch of a layout, with these numbers."""
    words = _HASHES * layout.tiling.lanes * layout.rows * layout.tile_digits(agreed)
    starts = np.arange(layout.rows.size) * layout.tile_elements
    sizes = np.minimum(layout.tile_elements, elements - starts)
    return SketchSize(int(words.sum()), int(sizes[layout.is_whole].sum()))


def fallback_members(layout: TileLayout, forecast: Seen, seen: Seen) -> int:
    """Members of the tiles that a forecast did not cover, if all tables peel."""
    missed = _find_missed(layout, seen.members, forecast.agreed.covers(seen.agreed))
    return int(layout.per_tile(seen.members)[missed].sum())


def sketch_work_bytes(elements: int, words: float, own_members: float, digits: float) -> float:
    """Memory traffic of making tables from a worker's members, and of peeling the sums."""
    added_bytes = _HASHES * 4 * digits * own_members
    index_bytes = elements / 8
    encoded_bytes = index_bytes + 4 * own_members + 4 * words + 2 * added_bytes
    return encoded_bytes + index_bytes + 4 * elements + 8 * words + 2 * _peeled_bytes(words, USUAL_LOAD)


def _peeled_bytes(words: float, load: float) -> int:
    # Each member is added to its cells, and later peeled from them.
    return 2 * _HASHES * _CELL_BYTES * int(load * words)


class _TileMessages:
    """The messages of a layout: tables, and the words of whole tiles."""

    def __init__(
        self, layout: TileLayout, numbers: NumberFormat[Any], agreed: Agreed, whole: WideIndex, round: Round
    ) -> None:
        """`whole` has the elements that whole tiles send: their members if known, else all."""
        self._layout, self._numbers, self._agreed = layout, numbers, agreed
        digits = layout.tile_digits(agreed)
        key = mix_plain(round.seed, round.step, round.bucket)
        self._sketch = Sketch(layout.tiling, layout.tile_elements, layout.rows, digits, key)
        self._direct = word_layout(layout.within(layout.is_whole, whole), agreed)

    def messages(self, own_support: SupportIndex, nonzeros: Compact) -> tuple[Message, ...]:
        """One worker's messages, without empty ones."""
        messages = []
        if self._sketch.words_count:
            messages.append(self._sketch_message(own_support, nonzeros))
        if self._direct.offsets[-1]:
            messages.append(members_message(nonzeros.gradient, self._direct, self._numbers, "dense tiles"))
        return tuple(messages)

    def _sketch_message(self, own_support: SupportIndex, nonzeros: Compact) -> Message:
        layout, gradient_bytes, index_bytes = self._layout, nonzeros.gradient.nbytes, own_support.index.nbytes
        own_layout = word_layout(
            layout.within(layout.has_table, own_support.index), self._agreed, layout.tile_blocks
        )
        compact = np.empty(int(own_layout.offsets[-1]), self._numbers.dtype)
        encode(own_layout, nonzeros, compact)
        words = self._sketch.add(own_layout, compact)
        added_bytes = _HASHES * compact.nbytes
        peeled_bytes = _peeled_bytes(words.size, layout.load)
        return Message(
            words,
            self._numbers.merge,
            "values",
            Work(index_bytes + 4 * own_layout.support.count + added_bytes, words.nbytes + added_bytes),
            decode_work=Work(
                index_bytes + words.nbytes + peeled_bytes, gradient_bytes + words.nbytes + peeled_bytes
            ),
        )

    def decode(
        self, merged: tuple[Merged, ...], union: WideIndex, is_skipped: Flags, bucket: WorkerBucket
    ) -> tuple[Flags, int]:
        """Let the sums of merged messages, in their order, be what the bucket has decoded.

        Returns the tiles that failed, and the number of infinite sums. Failed and skipped tiles are zero, or
        wrong if they are whole.
        """

        def decode() -> tuple[Gradient, Flags, int]:
            decoded = np.zeros_like(bucket.gradient)
            return decoded, *self._write(merged, union, is_skipped, decoded)

        layout, received = self._layout, [answer.words for answer in merged]
        known = [union, is_skipped, layout.rows, layout.is_whole, self._numbers.record(self._agreed)]
        known.append(np.array([answer.workers for answer in merged]))
        bucket.decoded, failed, infinite = bucket.round.once("sketch", received, known, decode)
        return failed, infinite

    def _write(
        self, merged: tuple[Merged, ...], union: WideIndex, is_skipped: Flags, decoded: Gradient
    ) -> tuple[Flags, int]:
        layout, answers = self._layout, iter(merged)
        failed, infinite = np.zeros(layout.rows.size, np.bool_), 0
        if self._sketch.words_count:
            live = layout.has_table & ~is_skipped
            table_layout = word_layout(layout.within(live, union), self._agreed, layout.tile_blocks)
            table = next(answers)
            sums, failed = self._sketch.peel(table_layout, table.words, is_skipped, table.workers)
            for tile in np.flatnonzero(failed):
                sums[table_layout.offsets[tile] : table_layout.offsets[tile + 1]] = 0
            infinite += decode(table_layout, sums, decoded, clear=True)
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
        support = support_of(own_index(gradient), self.numbers.block_elements)
        nonzeros = nonzeros_of(support, gradient)
        announced = self.numbers.announce(nonzeros, round)
        union, seen, _ = yield from self._agree(bucket, support, announced, ())
        if seen.members.any():
            layout = layout_of(self.tiling, self.load, gradient.size, seen, self.numbers.block_elements)
            sent = _TileMessages(layout, self.numbers, seen.agreed, union, round)
            messages = sent.messages(support, nonzeros)
            if messages:  # zeros have no digits
                merged = yield messages
                failed, infinite = sent.decode(merged, union, np.zeros_like(layout.is_whole), bucket)
                _report_failed(failed, layout, round)
                infinite += yield from self._fall_back(bucket, layout.within(failed, union), seen.agreed)
                report_infinite(infinite, bucket.decoded, round)
        return bucket.decoded, seen

    def exchange_concurrent(self, gradient: Gradient, round: Round, forecast: Seen) -> Operations:
        """Send the index and forecast tables at once, then tiles that were not as forecast or failed."""
        bucket = WorkerBucket(gradient, round)
        block_elements = self.numbers.block_elements
        support = support_of(own_index(gradient), block_elements)
        nonzeros = nonzeros_of(support, gradient)
        announced = self.numbers.announce(nonzeros, round)
        layout = forecast_layout(self.tiling, self.load, gradient.size, forecast, block_elements)
        sent = _TileMessages(layout, self.numbers, forecast.agreed, full_support(gradient.size), round)
        messages = sent.messages(support, nonzeros)
        union, seen, merged = yield from self._agree(bucket, support, announced, messages)
        missed = _find_missed(layout, seen.members, forecast.agreed.covers(seen.agreed))
        failed, infinite = sent.decode(merged, union, missed, bucket)
        _report_missed(missed, layout.per_tile(seen.members), round)
        _report_failed(failed, layout, round)
        infinite += yield from self._fall_back(bucket, layout.within(failed | missed, union), seen.agreed)
        report_infinite(infinite, bucket.decoded, round)
        return bucket.decoded, seen

    def _agree(
        self,
        bucket: WorkerBucket,
        own_support: SupportIndex,
        announced: tuple[Message, ...],
        beside: tuple[Message, ...],
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], tuple[WideIndex, Seen, tuple[Merged, ...]]]:
        """Exchange the index, the announcements of numbers, and the messages `beside`, in one operation."""
        elements = bucket.gradient.size
        agreed_union = yield from exchange_index(
            own_support.index, elements, bucket.round, self.index, (*announced, *beside), self.memory
        )
        merged = agreed_union.merged
        agreed = self.numbers.agree(elements, announced, merged[: len(announced)], bucket.round)
        members = np.diff(support_of(agreed_union.union, self.numbers.block_elements).starts)
        return agreed_union.union, Seen(members, agreed), merged[len(announced) :]

    def _fall_back(
        self, bucket: WorkerBucket, again: SupportIndex, agreed: Agreed
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], int]:
        """Sum members packed; return the number of infinite sums."""
        if not again.count:
            return 0
        return (
            yield from exchange_values(
                bucket, word_layout(again, agreed), self.numbers, "fallback", clear=False
            )
        )


def _find_missed(layout: TileLayout, members: Int64s, is_covered: Flags) -> Flags:
    """Tiles with too many members for their table, or with numbers that do not cover them, `(tiles,)`."""
    room = np.floor(LOAD_MAX * _HASHES * layout.tiling.lanes * layout.rows)
    is_crowded = ~layout.is_whole & (layout.per_tile(members) > room)
    return np.asarray(is_crowded | (layout.per_tile(np.where(is_covered, 0, members)) > 0))


def _report_failed(failed: Flags, layout: TileLayout, round: Round) -> None:
    if failed.any():
        count, total = int(failed.sum()), int(layout.has_table.sum())
        text = f"{count} of {total} tables did not peel: their members were sent again, packed"
        round.report(Note(NoteKind.FALLBACK, text, count=count, total=total))


def _report_missed(missed: Flags, members: Int64s, round: Round) -> None:
    if missed.any():
        count, total = int(missed.sum()), int(np.count_nonzero(members))
        text = f"{count} of {total} tiles were not as forecast: their members were sent again, packed"
        round.report(Note(NoteKind.FORECAST, text, count=count, total=total))
