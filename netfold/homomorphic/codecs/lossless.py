"""Codec `lossless`: an index, and a peelable sketch of the values by ADD.

After Li et al., "Accelerating distributed deep learning using lossless homomorphic compression" (arXiv
2402.07529). The workers agree on the union support, its members. Each worker adds its values into tables of
counters, each value into three counters. The merged tables are peeled: a counter with a single member holds
that member's sum, which is then subtracted from its two other counters (see `peeling`).

The codec has three settings. They differ in the places of counters, in their contents, and in what they do
with members that do not peel:

* `published`: the authors' released CUDA code (lihy0529/lossless_homomorphic_compression), with its
  weaknesses, as below.
* `rotated`: its hashing with the smallest repair. Blocks of 1024 elements still share their rows, but a
  second hash rotates each block in its row, so that no column of counters is overloaded. The bucket has one
  table with three segments, sized for the union.
* `repaired`: the same in blocks of a few elements, with a table for each tile of the bucket that fits a
  core's cache.

Both repairs key their hashes by the round, and their numbers are integers (or as `values` says). A tile that
does not peel, by chance or because merged words are damaged, is known to have failed: its members are sent
again, packed. Nothing is estimated. Integers are modulo 2**32, so partial sums may overflow. Adders that wrap
lose nothing. An adder that saturates damages its tile, which then fails.

`staged` sends the index first and sizes the tables for the union. `concurrent` sends both at once: sizes and
numbers come from the bucket's last rounds (see `sketch`), and tiles that differ from the forecast are sent
again, packed. A bucket's first round is staged.

All workers must receive the same merged words, as from any all-reduce: each decides alone on a fallback.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic import peeling
from netfold.homomorphic.block_floating_point import all_of
from netfold.homomorphic.codec import (
    Codec,
    CodecRefusal,
    Decoded,
    EncodeError,
    Encoder,
    Exchange,
    Origin,
    Promise,
    State,
    part_of,
    prefixed,
)
from netfold.homomorphic.error_bounds import TINY, ErrorBound, FloatAddBound, Sums, sums_of_parts
from netfold.homomorphic.hashing import POSITIONS_SPARE, PUBLISHED, PUBLISHED_LANES, Hashing, find_positions
from netfold.homomorphic.merge import Merge, Merged, Work
from netfold.homomorphic.message import Gradient, Message, Note, NoteKind, Round
from netfold.homomorphic.number_formats import (
    Agreed,
    NumberFormat,
    Values,
    number_format,
    number_merges,
    number_promise,
)
from netfold.homomorphic.sketch import LOAD_MAX, REPAIRED_TILING, ROTATED_TILING, USUAL_LOAD, History, Tiled
from netfold.homomorphic.union_index import (
    WORD_ELEMENTS,
    IndexKind,
    IndexMemory,
    WideIndex,
    WordLayout,
    check_block_elements,
    decode,
    encode,
    exchange_index,
    full_support,
    index_merges,
    members_message,
    own_index,
    support_of,
    word_layout,
)
from netfold.kinds import register

# Setting `published`: lihy0529/lossless_homomorphic_compression (with arXiv 2402.07529) works as follows.
#
# * The index is united first: 4-bit cells that are counted by ADD, since NCCL has no bitwise OR, or 1-bit
#   cells.
# * Elements are hashed in blocks of 1024, by MurmurHash3 of the block's number with three fixed seeds. Each
#   keeps its lane, so each column of counters is a separate table, and structure in the gradient overloads
#   some.
# * There is one counter for every `ratio` elements, at any density.
# * In float32, the lowest bit of every member's mantissa becomes a flag, at every worker and again when it is
#   decoded, and counters lose what is small beside what is large.
# * A member that does not peel is silently estimated by the median of its three counters.
#
# Two things differ here. Estimates are reported as a note. Elements after the last whole block, which the
# release drops, are sent unencoded (as in TAGC, which reuses the code). The release's fixed point for
# switches is unpublished: with `values` block_exponent, counters hold integers with an agreed exponent per
# block, and no flag.


IndexBits = Literal[1, 4]
Summing = Generator[tuple[Message, ...], tuple[Merged, ...], Gradient]

CELLS_PER_WORD = 8
"""Cells of 4 bits in a word."""
WORKERS_MAX = 15  # a 4-bit cell counts to this
INT32_WORKERS_MAX = 7  # eight times the highest cell of a word, 8 · 2^28, is beyond int32

_BLOCK_WORDS = PUBLISHED_LANES // WORD_ELEMENTS
_HASHES = 3


class PublishedOptions(NamedTuple):
    """Options of setting `published` alone."""

    ratio: float  # elements per counter
    index_bits: IndexBits


def cells_refusal(workers: int, overflow: str) -> CodecRefusal | None:
    """Why 4-bit cells cannot serve these workers, or None; `overflow` says how int32 sums overflow.

    A word is eight cells, counted by ADD. If sums wrap, the highest cell may use the sign bit.
    """
    if workers > WORKERS_MAX:
        reason = f"{workers} workers overflow the index's cells of 4 bits, which count to {WORKERS_MAX}"
        return CodecRefusal("index_bits", reason, f"index_bits: 1, or {WORKERS_MAX} workers at most")
    if overflow != "wrap" and workers > INT32_WORKERS_MAX:
        reason = (
            f"{workers} workers in the index's cells of 4 bits leave int32, and with overflow {overflow} "
            f"the index would be wrong; up to {INT32_WORKERS_MAX} fit"
        )
        return CodecRefusal("index_bits", reason, "index_bits: 1")
    return None


def _exchange_published(
    gradient: Gradient, numbers: NumberFormat[Any], options: PublishedOptions, round: Round
) -> Summing:
    """Unite the index, sum the sketch, peel it, estimate the remaining members."""
    announced = numbers.announce(all_of(gradient, numbers.block_elements), round)
    union, merged = yield from _unite(gradient, announced, options.index_bits, round)
    agreed = numbers.agree(gradient.size, announced, merged, round)
    blocks = gradient.size // PUBLISHED_LANES
    head = blocks * _BLOCK_WORDS
    members = union.copy()
    members[head:] = 0
    tail = full_support(gradient.size)
    tail[:head] = 0
    table = _PublishedTable(numbers, members, agreed, rows=math.ceil(blocks / options.ratio))
    tail_layout = word_layout(support_of(tail, numbers.block_elements), agreed)
    messages = []
    if table.graph.size:
        messages.append(table.message(gradient))
    if tail_layout.offsets[-1]:
        messages.append(members_message(gradient, tail_layout, numbers, "tail"))
    answers = iter((yield tuple(messages)) if messages else ())
    decoded = np.zeros(gradient.size, np.float32)
    if table.graph.size:
        table.decode(next(answers), decoded, round)
    if tail_layout.offsets[-1]:
        decode(tail_layout, next(answers).words, decoded, clear=False)
    return decoded


@dataclass(frozen=True)
class FloatSketchBound:
    """Bound of float32 sketches: the error of additions plus the error of peeling.

    A value that is small beside others in its counters loses all of its bits, so the bound depends on L, the
    largest Σ|x| of an element in the bucket. Sums that leave float32 destroy the members that share their
    counters; no bound allows that.

    No proof is as tight as this bound: a member inherits the errors of all members peeled before it, so a
    bound from the worst signs grows with the number of paths through the peeling order, to far more than L.
    The bound is measured instead, on positive values of one size, which round alike at all workers. The error
    of peeling grows with the additions in a counter. With u = 2^-24, in u · L, largest of some seeds:

        workers                        2     8    64   128   allowed
        load 0.77, 10**5 elements    142   247  1433  2723*  410 · (1 + (n - 2) / 8)
        load 0.77, 10**6 elements    192   280  2320
        load 0.81, 3 · 10**5        2177                     4096 · (1 + (n - 2) / 8)
        load 0.81, 10**5 elements    462   633  3622

    * of 5 · 10**4 elements. Normal values of both signs have at most 31 at a load of 0.77, and 126 at 0.81,
      for any number of workers. At 0.81 a tile whose counters keep more than `float_error` is sent again. The
      release accepts any load; paths are longest near the highest load that peels: 707 u · L with 8 · 10**6
      elements of two workers, a sixth of the bound. The network's sums are checked against the words sent,
      independently of this bound.
    """

    workers: int
    largest: float  # largest finite Σ|x| of an element
    peeling: float  # allowed error of peeling, as a share of `largest`

    def of(self, sums: Sums) -> NDArray[np.float64]:
        """The bound of additions, plus a constant for peeling."""
        peeled = self.peeling * self.largest + 2 * self.workers * TINY
        return FloatAddBound(self.workers).of(sums) + peeled


def float_error_bound(gradients: Sequence[Gradient], load: float) -> FloatSketchBound:
    """Make the bound of these gradients; `load` is the highest possible load."""
    error = peeling.float_error(len(gradients)) / (1 if load > USUAL_LOAD else 10)
    parts = (sums.magnitude for sums in sums_of_parts(gradients))
    largest = max((float(part[np.isfinite(part)].max(initial=0.0)) for part in parts), default=0.0)
    return FloatSketchBound(len(gradients), largest, error)


def _unite(
    gradient: Gradient, announced: tuple[Message, ...], index_bits: IndexBits, round: Round
) -> Generator[tuple[Message, ...], tuple[Merged, ...], tuple[WideIndex, tuple[Merged, ...]]]:
    """Exchange the index in cells of `index_bits`."""
    support = own_index(gradient)
    if index_bits == 1:
        agreed_union = yield from exchange_index(
            support, gradient.size, round, "flat", announced, IndexMemory()
        )
        return agreed_union.union, agreed_union.merged
    if round.workers > WORKERS_MAX:
        raise EncodeError(
            f"{round.workers} workers would overflow the index's 4-bit cells, which count to {WORKERS_MAX}: "
            "use index_bits 1"
        )
    words = _cells(support, gradient.size)
    work = Work(gradient.nbytes, words.nbytes)
    counted, *merged = yield (
        Message(words, Merge.ADD, "index", work, decode_work=Work(words.nbytes, support.nbytes)),
        *announced,
    )
    return _counted(counted.words, gradient.size), tuple(merged)


def _cells(index: WideIndex, elements: int) -> NDArray[np.int32]:
    """Cells of 4 bits, each 0 or 1, eight to a word, lowest bits first."""
    bits = np.unpackbits(index.view(np.uint8), bitorder="little", count=elements)
    bits = np.append(bits, np.zeros(-bits.size % CELLS_PER_WORD, np.uint8))
    return (bits[0::2] | (bits[1::2] << 4)).view(np.int32)


def _counted(words: NDArray[np.int32], elements: int) -> WideIndex:
    """The elements whose cell is not zero."""
    pairs = words.view(np.uint8)
    bits = np.empty(2 * pairs.size, np.uint8)
    bits[0::2], bits[1::2] = pairs & 15, pairs >> 4
    index = np.zeros(-(-elements // WORD_ELEMENTS), np.uint64)
    packed = np.packbits(bits[:elements] != 0, bitorder="little")
    index.view(np.uint8)[: packed.size] = packed
    return index


class _PublishedTable:
    """The bucket's table."""

    def __init__(self, numbers: NumberFormat[Any], members: WideIndex, agreed: Agreed, rows: int) -> None:
        self._numbers = numbers
        hashing = Hashing(PUBLISHED, PUBLISHED_LANES, rows, np.uint64(0))
        self.graph = peeling.hypergraph(hashing, members)
        everything = support_of(members, numbers.block_elements)
        self._place: WordLayout = word_layout(everything, agreed, max(1, agreed.digits.size))

    def message(self, gradient: Gradient) -> Message:
        """One worker's table; like the release, it adds zeros of members too."""
        compact = np.empty(int(self._place.offsets[-1]), self._numbers.dtype)
        encode(self._place, all_of(gradient, self._numbers.block_elements), compact)
        if self._is_float:
            bits = compact.view(np.uint32)
            bits |= np.uint32(1)  # the flag of a member
        words: NDArray[Any] = np.zeros(self.graph.size, compact.dtype)
        peeling.add_general(self.graph, compact, words)
        added_bytes = _HASHES * gradient.nbytes  # every element is added, zero or not
        peeled_bytes = 2 * _HASHES * compact.nbytes
        return Message(
            words,
            self._numbers.merge,
            "values",
            Work(gradient.nbytes + added_bytes, words.nbytes + added_bytes),
            decode_work=Work(gradient.nbytes + peeled_bytes, gradient.nbytes + peeled_bytes),
        )

    def decode(self, merged: Merged, decoded: Gradient, round: Round) -> None:
        """Peel, estimate the remaining members, and report them."""
        order = peeling.peeling_order(self.graph)
        remainder = merged.words.copy()
        sums = np.zeros(int(self._place.offsets[-1]), merged.words.dtype)
        peeling.replay(self.graph, order, remainder, sums, is_flagged=self._is_float)
        missing = peeling.estimate(self.graph, order, remainder, sums)
        decode(self._place, sums, decoded, clear=True)
        if missing.size:
            total = self._place.support.count
            positions = np.empty(total + POSITIONS_SPARE, np.uint32)
            find_positions(self._place.support.index, positions)
            text = f"{missing.size} of {total} members did not peel and are estimates"
            elements = positions[missing].astype(np.int64)
            round.report(Note(NoteKind.ESTIMATE, text, count=missing.size, total=total, elements=elements))

    @property
    def _is_float(self) -> bool:
        return self._numbers.merge is Merge.FLOAT_ADD


# The codec: all three settings.


WRAP_REASON = "saturation is not invertible, so peeling can fail where a counter overflows"
RATIO = 10.0  # elements per counter of the release's benchmark

Setting = Literal["repaired", "rotated", "published"]
Schedule = Literal["staged", "concurrent"]


@register
@dataclass(frozen=True)
class Lossless(Codec):
    """Sparse gradients as an index and an exactly decodable sketch.

    setting: repaired, rotated (the released hashing with the least repair), or published (the released code,
        which estimates what it cannot decode).
    schedule: staged (index first, tables sized from it) or concurrent (both at once, by a forecast).
    values: how a value becomes words: block_exponent (one integer, as fixed_point), float32, exact (several
        integers, which give the true sum); left out, block_exponent, and float32 if published.
    index: how workers send which elements are non-zero: flat (a bit each), two_level (a bit for each 64, then
        the bits of those), bloom (a filter; smaller below a density of 7 %).
    load: members per counter; less is larger and fails less often. From 0.05 to 0.81.
    ratio: published: elements per counter, at any density; left out, 10.
    index_bits: published: bits of the index per element, 4 (counted by ADD, up to 15 workers) or 1 (united by
        OR); left out, 4.
    block_elements: elements that share an exponent; a power of two from 64 to 65536.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "lossless"
    origin: ClassVar[Origin] = Origin("published", "Li et al., arXiv 2402.07529")
    wrap_reason: ClassVar[str] = WRAP_REASON
    remedy: ClassVar[str] = "setting: repaired, or a lower ratio; for tiny gradients values: exact"

    setting: Setting = "repaired"
    schedule: Schedule = "staged"
    values: Values | None = None
    index: IndexKind = "flat"
    load: float = USUAL_LOAD
    ratio: float | None = None
    index_bits: IndexBits | None = None
    block_elements: int = 4096

    def __post_init__(self) -> None:
        if not 0.05 <= self.load <= LOAD_MAX:
            raise ValueError(
                f"load is {self.load}: members per counter must be between 0.05 and {LOAD_MAX}; "
                "above 0.818 a sketch with three hashes cannot be peeled, 0.77 is a good choice"
            )
        check_block_elements(self.block_elements, WORD_ELEMENTS)
        if self.setting == "published":
            self._check_published()
            return
        for name in ("ratio", "index_bits"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} belongs to setting published, found setting {self.setting}; remove it"
                )

    def _check_published(self) -> None:
        """Reject options that the released code does not have."""
        if self.ratio is not None and not 1 <= self.ratio < float("inf"):
            raise ValueError(f"ratio is {self.ratio}: elements per counter must be 1 or more, 10 is usual")
        for name, only in (("schedule", "staged"), ("index", "flat")):
            if getattr(self, name) != only:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}: setting published can only be {only!r}; "
                    "remove it, or use setting repaired"
                )
        if self.values == "exact":
            raise ValueError(
                "values is 'exact': setting published has counters of one word; "
                "use float32 or block_exponent, or setting repaired"
            )

    @property
    def number_values(self) -> Values:
        """The values, or the setting's default."""
        return self.values or ("float32" if self.setting == "published" else "block_exponent")

    @property
    def promise(self) -> Promise:
        return number_promise(self.number_values)

    @property
    def merges(self) -> frozenset[Merge]:
        numbers = number_merges(self.number_values)
        if self.setting == "published":
            return numbers | {Merge.OR if self.index_bits == 1 else Merge.ADD}
        return index_merges(self.index) | numbers

    def refusal(self, workers: int, overflow: str) -> CodecRefusal | None:
        """Reject workers that the cells of the published index cannot count."""
        counts_cells = self.setting == "published" and self.index_bits != 1
        return cells_refusal(workers, overflow) if counts_cells else None

    def worker(self, rank: int, workers: int, seed: int) -> LosslessEncoder:
        """Encoder of one worker; it records the last rounds."""
        return LosslessEncoder(self)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """The bound of the numbers, if they are integers: a sketch adds no error to them.

        It does to float32: see `FloatSketchBound`.
        """
        if self.number_values == "float32":
            load = 1.0 if self.setting == "published" else self.load
            return float_error_bound(gradients, load)
        numbers = number_format(self.number_values, self.block_elements)
        return numbers.error_bound(gradients, self.schedule == "concurrent")


@dataclass(frozen=True)
class LosslessEncoder(Encoder):
    """One worker's side."""

    codec: Lossless
    memory: IndexMemory = field(default_factory=IndexMemory)
    history: History = field(default_factory=History)

    @property
    def numbers(self) -> NumberFormat[Any]:
        """The number format."""
        return number_format(self.codec.number_values, self.codec.block_elements)

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Agree on the members, sum and peel the sketch; the setting decides on members that do not peel."""
        codec, numbers = self.codec, self.numbers
        if codec.setting == "published":
            options = PublishedOptions(codec.ratio or RATIO, codec.index_bits or 4)
            return Decoded((yield from _exchange_published(gradient, numbers, options, round)), gradient)
        tiling = ROTATED_TILING if codec.setting == "rotated" else REPAIRED_TILING
        tiled = Tiled(tiling, codec.load, numbers, codec.index, self.memory)
        is_concurrent = codec.schedule == "concurrent"
        forecast = self.history.forecast(round, gradient.size, numbers) if is_concurrent else None
        if forecast is None:
            decoded, seen = yield from tiled.exchange_staged(gradient, round)
        else:
            decoded, seen = yield from tiled.exchange_concurrent(gradient, round, forecast)
        if is_concurrent:
            self.history.add(round, gradient.size, seen)
        return Decoded(decoded, gradient)

    def state(self) -> State:
        """The sizes of unions and the last rounds."""
        return prefixed("memory", self.memory.state()) | prefixed("history", self.history.state(self.numbers))

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.memory.restore(part_of(state, "memory"))
        self.history.restore(part_of(state, "history"), self.numbers)
