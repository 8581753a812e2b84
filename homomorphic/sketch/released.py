"""Setting `published` of lossless: what the authors' released CUDA code does, weaknesses and all.

As lihy0529/lossless_homomorphic_compression (with arXiv 2402.07529) has it:

* The index is united first: 4-bit cells that are counted by ADD, since NCCL has no bitwise OR, or 1-bit
  cells.
* Elements are hashed in blocks of 1024, by MurmurHash3 of the block's number with three fixed seeds. Each
  keeps its lane, so a column of counters is a table of its own, and structure in the gradient overloads some.
* There is one counter for every `ratio` elements, whatever the density.
* In float32, the lowest bit of every member's mantissa becomes a flag, at every worker and again when it is
  decoded, and counters lose what is small beside what is large.
* A member that does not come out is estimated by the median of its three counters, and nobody is told.

Two things differ. The estimates are told as a note, and elements after the last whole block, which the
release drops, are sent as they are (as TAGC does, which reuses the code). Its fixed point for switches is
unpublished: with `values` block_exponent, counters hold integers with an agreed exponent per block, and no
flag.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import TINY, FloatAddBound, Sums, sums_of_parts
from netfold.homomorphic.codec import (
    CodecRefusal,
    EncodeError,
    Exchange,
    Gradient,
    Merge,
    Merged,
    Message,
    Note,
    NoteKind,
    Round,
    Work,
)
from netfold.homomorphic.index.bits import WORD_ELEMENTS, WideIndex
from netfold.homomorphic.index.members import (
    WordLayout,
    decode,
    encode,
    full_support,
    members_message,
    members_of,
    word_layout,
)
from netfold.homomorphic.index.membership import IndexMemory, exchange_index, own_index
from netfold.homomorphic.numbers.compact import all_of
from netfold.homomorphic.numbers.formats import Agreed, NumberFormat
from netfold.homomorphic.sketch import hypergraph
from netfold.homomorphic.sketch.hashing import (
    POSITIONS_SPARE,
    PUBLISHED,
    PUBLISHED_LANES,
    Hashing,
    find_positions,
)
from netfold.homomorphic.sketch.tiled import USUAL_LOAD

IndexBits = Literal[1, 4]

CELLS_PER_WORD = 8  # of 4-bit cells
WORKERS_MAX = 15  # that a 4-bit cell can count
INT32_WORKERS_MAX = 7  # eight times the highest cell of a word, 8 · 2^28, is beyond int32

_BLOCK_WORDS = PUBLISHED_LANES // WORD_ELEMENTS
_HASHES = 3


class Options(NamedTuple):
    """What this setting may be told."""

    ratio: float  # elements per counter
    index_bits: IndexBits


def cells_refusal(workers: int, overflow: str) -> CodecRefusal | None:
    """Cells of 4 bits that overflow; `overflow` is what becomes of sums that leave int32.

    A word is eight cells, counted by ADD. Where sums wrap, the highest cell may well use the sign.
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


def exchange(gradient: Gradient, numbers: NumberFormat[Any], options: Options, round: Round) -> Exchange:
    """Unite the index, sum the sketch, peel it, estimate what is left."""
    announced = numbers.announce(all_of(gradient, numbers.block_elements), round)
    union, merged = yield from _unite(gradient, announced, options.index_bits, round)
    agreed = numbers.agree(gradient.size, announced, merged, round)
    blocks = gradient.size // PUBLISHED_LANES
    head = blocks * _BLOCK_WORDS
    members = union.copy()
    members[head:] = 0
    tail = full_support(gradient.size)
    tail[:head] = 0
    table = _Table(numbers, members, agreed, rows=math.ceil(blocks / options.ratio))
    rest = word_layout(members_of(tail, numbers.block_elements), agreed)
    messages = []
    if table.graph.size:
        messages.append(table.message(gradient))
    if rest.offsets[-1]:
        messages.append(members_message(gradient, rest, numbers, "tail"))
    answers = iter((yield tuple(messages)) if messages else ())
    decoded = np.zeros(gradient.size, np.float32)
    if table.graph.size:
        table.decode(next(answers), decoded, round)
    if rest.offsets[-1]:
        decode(rest, next(answers).words, decoded, clear=False)
    return decoded


@dataclass(frozen=True)
class FloatSketchBound:
    """Of float32 sketches: what additions may be off by, and what peeling adds to it.

    What is small beside others in its counters loses all of its bits, so this goes by L, the largest Σ|x| of
    an element in the bucket. Sums that leave float32 spoil what they share a counter with: that is no error
    which a bound allows.

    There is no proof as tight as this: a member takes the errors of all that were peeled before it along, so
    a bound from the worst signs grows with the number of paths through the peeling order, to far more than L.
    It is measured instead, on positive values of one size, which round alike at all workers. What peeling
    adds grows with the additions in its counters. With u = 2^-24, in u · L, largest of some seeds:

        workers                        2     8    64   128   allowed
        load 0.77, 10**5 elements    142   247  1433  2723*  410 · (1 + (n - 2) / 8)
        load 0.77, 10**6 elements    192   280  2320
        load 0.81, 3 · 10**5        2177                     4096 · (1 + (n - 2) / 8)
        load 0.81, 10**5 elements    462   633  3622

    * of 5 · 10**4 elements. Normal values of both signs stay at 31 at most at a load of 0.77, and at 126 at
    0.81, whatever the number of workers. At 0.81 a tile with more than `float_error`
    left in its counters is sent again. The release takes what load there is, and near the one that just peels
    ways are longest: 707 u · L with 8 · 10**6 elements of two workers, a sixth of what is allowed. What the
    network did is held to the words sent, whatever this bound allows.
    """

    workers: int
    largest: float  # Σ|x| of any element where that is finite
    peeling: float  # share of it that peeling may be off by

    def of(self, sums: Sums) -> NDArray[np.float64]:
        """See the class."""
        peeled = self.peeling * self.largest + 2 * self.workers * TINY
        return FloatAddBound(self.workers).of(sums) + peeled


def float_error_bound(gradients: Sequence[Gradient], load: float) -> FloatSketchBound:
    """See `FloatSketchBound`; `load` is the highest there may be."""
    peeling = hypergraph.float_error(len(gradients)) / (1 if load > USUAL_LOAD else 10)
    parts = (sums.magnitude for sums in sums_of_parts(gradients))
    largest = max((float(part[np.isfinite(part)].max(initial=0.0)) for part in parts), default=0.0)
    return FloatSketchBound(len(gradients), largest, peeling)


def _unite(
    gradient: Gradient, announced: tuple[Message, ...], index_bits: IndexBits, round: Round
) -> Generator[tuple[Message, ...], tuple[Merged, ...], tuple[WideIndex, tuple[Merged, ...]]]:
    """Exchange the index in cells of so many bits."""
    own = own_index(gradient)
    if index_bits == 1:
        membership = yield from exchange_index(own, gradient.size, round, "flat", announced, IndexMemory())
        return membership.union, membership.merged
    if round.workers > WORKERS_MAX:
        raise EncodeError(
            f"{round.workers} workers would overflow the index's 4-bit cells, which count to {WORKERS_MAX}: "
            "use index_bits 1"
        )
    words = _cells(own, gradient.size)
    work = Work(gradient.nbytes, words.nbytes)
    counted, *merged = yield (
        Message(words, Merge.ADD, "index", work, decode_work=Work(words.nbytes, own.nbytes)),
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


class _Table:
    """The bucket's one table."""

    def __init__(self, numbers: NumberFormat[Any], members: WideIndex, agreed: Agreed, rows: int) -> None:
        self._numbers = numbers
        hashing = Hashing(PUBLISHED, PUBLISHED_LANES, rows, np.uint64(0))
        self.graph = hypergraph.hypergraph(hashing, members)
        everything = members_of(members, numbers.block_elements)
        self._place: WordLayout = word_layout(everything, agreed, max(1, agreed.digits.size))

    def message(self, gradient: Gradient) -> Message:
        """One worker's table: zeros of members are added too, as the release adds everything."""
        compact = np.empty(int(self._place.offsets[-1]), self._numbers.dtype)
        encode(self._place, all_of(gradient, self._numbers.block_elements), compact)
        if self._is_float:
            bits = compact.view(np.uint32)
            bits |= np.uint32(1)  # the flag: it is a member
        words: NDArray[Any] = np.zeros(self.graph.size, compact.dtype)
        hypergraph.add(self.graph, compact, words)
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
        """Peel, estimate what is left, and say which that is."""
        order = hypergraph.peeling_order(self.graph)
        left = merged.words.copy()
        sums = np.zeros(int(self._place.offsets[-1]), merged.words.dtype)
        hypergraph.replay(self.graph, order, left, sums, is_flagged=self._is_float)
        missing = hypergraph.estimate(self.graph, order, left, sums)
        decode(self._place, sums, decoded, clear=True)
        if missing.size:
            total = self._place.members.count
            positions = np.empty(total + POSITIONS_SPARE, np.uint32)
            find_positions(self._place.members.index, positions)
            text = f"{missing.size} of {total} members did not come out and are estimates"
            elements = positions[missing].astype(np.int64)
            round.report(Note(NoteKind.ESTIMATE, text, count=missing.size, total=total, elements=elements))

    @property
    def _is_float(self) -> bool:
        return self._numbers.merge is Merge.FLOAT_ADD
