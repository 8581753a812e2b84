"""Codec `count_sketch`: sketches that any network adds; all workers find the heavy hitters in their sum.

The sketch half of Sketch-Fusion (Dai et al., Journal of Parallel and Distributed Computing 185, 2024), of
which only the abstract was available: it is reconstructed here from what it builds on. Count-Sketch:
Charikar et al., ICALP 2002. One and two rounds, error feedback and momentum factor masking: Ivkin et al.,
"Communication-efficient distributed SGD with sketching" (Sketched-SGD), NeurIPS 2019, and its code
nikitaivkin/csh.

All workers hash alike, so the sum of their sketches is the sketch of their sum. It has an estimate of
every element. With one round, the largest estimates are the total. With two rounds, they only name
candidates; the workers add up the exact values of these, and the largest sums are the total.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.block_floating_point import (
    block_exponents,
    block_starts,
    dequantize,
    not_finite,
    quantize,
    scales_of,
)
from netfold.homomorphic.codec import (
    BitsPerElement,
    Carrier,
    Codec,
    DecodeError,
    EncodeError,
    Encoder,
    Exchange,
    Origin,
)
from netfold.homomorphic.codecs.topk import check_share, count_of
from netfold.homomorphic.error_bounds import TINY, Doubles, ErrorBound, FloatAddBound, Sums
from netfold.homomorphic.feedback import STATE_BYTES, Selected, check_momentum, with_feedback
from netfold.homomorphic.hashing import scale_to
from netfold.homomorphic.merge import WORD_BITS, Merge, Merged, Work
from netfold.homomorphic.message import Gradient, Message, Note, NoteKind, Round, Scaling
from netfold.kernels import rng_streams
from netfold.kernels.bits import largest
from netfold.kernels.compiled import in_parallel, inlined, kernel
from netfold.kernels.keyed_random import mix_plain, splitmix64
from netfold.kinds import register

# Count-Sketch: every element adds its signed value to one counter in each of several rows.
#
# Charikar, Chen, Farach-Colton, "Finding frequent items in data streams", ICALP 2002. Row j has its own
# hashes:
#
#     counter_j(i) = (start_j(i // lanes) + i mod lanes) mod columns,     sign_j(i) = ±1
#
# An estimate of element i is the median over rows of sign_j(i) times its counter. With an odd number of
# rows it is right on average. In each row its variance is at most (‖v‖² − v_i²) / columns.
#
# What is ours: `lanes` neighbours share a start, so they have neighbouring counters. One hash serves them
# all, and memory is read by lines. Two elements of different blocks share a counter with a probability of 1 /
# columns, as with independent hashes, because a start may be any counter; two of the same block never do.
# Every element has its own sign in every row. So means and variances are those of independent hashes. What
# differs: where two blocks meet, many of their elements do.
#
# A start and the signs are the two halves of one SplitMix64, a bijection that mixes all bits.


LANES = 32
"""Neighbours that share a hash: as many as half of it has signs."""
_TASK_BLOCKS = 1 << 13
"""Blocks of a thread's task."""
_AT_A_TIME = 1 << 11  # elements

_ONE, _HALF = np.uint64(1), np.uint64(32)


class SketchRows(NamedTuple):
    """The rows of a sketch; the same at all workers."""

    columns: int
    lanes: int  # LANES, or 1 where rows are shorter than that
    keys: NDArray[np.uint64]  # (rows,)

    @property
    def counters(self) -> int:
        """Counters of the whole sketch."""
        return self.columns * self.keys.size


def make_rows(rows: int, columns: int, key: int) -> SketchRows:
    """Rows whose hashes depend on a key and on the number of the row."""
    keys = np.array([mix_plain(key, row) for row in range(rows)], np.uint64)
    return SketchRows(columns, LANES if columns >= LANES else 1, keys)


def count(rows: SketchRows, values: Gradient) -> Gradient:
    """The sketch of some values, `(rows · columns,)`, row by row."""
    sketch = np.zeros((rows.keys.size, rows.columns + rows.lanes - 1), np.float32)

    def add(first: int, last: int) -> None:
        for row in range(first, last):
            add_row(rows.keys[row], rows.columns, rows.lanes, values, sketch[row])

    in_parallel(add, rows.keys.size)
    # Blocks that begin in the last counters have run over the end: those lanes belong to the first counters.
    beyond = sketch[:, rows.columns :]
    # The kernel does not warn either; callers look at the counters.
    with np.errstate(over="ignore", invalid="ignore"):
        sketch[:, : rows.lanes - 1] += beyond
    return np.ascontiguousarray(sketch[:, : rows.columns]).reshape(-1)


def estimate(rows: SketchRows, sketch: Gradient, elements: int) -> Gradient:
    """The medians of all elements, `(elements,)`, from a sketch of finite counters."""
    table = sketch.reshape(rows.keys.size, rows.columns)
    table = np.concatenate([table, table[:, : rows.lanes - 1]], axis=1)
    estimates = np.empty(elements, np.float32)
    task = _TASK_BLOCKS * rows.lanes

    def write(first: int, last: int) -> None:
        scratch = np.empty((rows.keys.size, _AT_A_TIME), np.float32)
        write_medians(rows, table, first * task // rows.lanes, estimates[first * task : last * task], scratch)

    in_parallel(write, -(-elements // task))
    return estimates


@inlined
def _start_of(bits: np.uint64, columns: int) -> np.uint64:
    """The counter of a block's first lane."""
    start: np.uint64 = scale_to(bits >> _HALF, np.uint64(columns))
    return start


@inlined
def _sign_of(bits: np.uint64, lane: int) -> np.float32:
    """The sign of one lane, from the low half of a hash."""
    bit = (np.uint32(bits) >> np.uint32(lane)) & np.uint32(1)
    return np.float32(1) - np.float32(bit << np.uint32(1))


@kernel
def add_row(key: np.uint64, columns: int, lanes: int, values: Gradient, row: Gradient) -> None:
    """Add signed values to one row, which has `lanes` − 1 counters more than columns."""
    whole = values.size // LANES if lanes == LANES else 0
    first = np.uint64(0)
    for block in range(whole):
        bits = splitmix64(key + np.uint64(block))
        start = _start_of(bits, columns)
        for lane in range(LANES):
            counter = start + np.uint64(lane)
            row[counter] += values[first + np.uint64(lane)] * _sign_of(bits, lane)
        first += np.uint64(LANES)
    for i in range(LANES * whole, values.size):
        bits = splitmix64(key + np.uint64(i // lanes))
        lane = i % lanes
        row[_start_of(bits, columns) + np.uint64(lane)] += values[i] * _sign_of(bits, lane)


@kernel
def write_medians(
    rows: SketchRows,
    table: NDArray[np.float32],
    first_block: int,
    estimates: Gradient,
    scratch: NDArray[np.float32],
) -> None:
    """Write the medians of the elements from a block on.

    `table` has `lanes` − 1 counters more than columns in each row: its first ones again. `scratch` is
    `(rows, any number of whole blocks)`: so much is written at a time, and stays in the cache.
    """
    size = scratch.shape[1]
    for begin in range(0, estimates.size, size):
        part = estimates[begin : begin + size]
        block = first_block + begin // rows.lanes
        for row in range(scratch.shape[0]):
            _read_row(rows.keys[row], rows.columns, rows.lanes, table[row], block, scratch[row])
        for turn in range(scratch.shape[0]):  # odd-even transposition: sorts all columns at once
            for row in range(turn % 2, scratch.shape[0] - 1, 2):
                _exchange(scratch[row], scratch[row + 1])
        median = scratch[scratch.shape[0] // 2]
        for i in range(part.size):
            part[i] = median[i]


@kernel
def _read_row(
    key: np.uint64, columns: int, lanes: int, row: Gradient, first_block: int, signed: Gradient
) -> None:
    """Write one row's estimates of whole blocks."""
    if lanes == 1:
        for i in range(signed.size):
            bits = splitmix64(key + np.uint64(first_block + i))
            signed[i] = row[_start_of(bits, columns)] * _sign_of(bits, 0)
        return
    first = np.uint64(0)
    for block in range(signed.size // LANES):
        bits = splitmix64(key + np.uint64(first_block + block))
        start = _start_of(bits, columns)
        for lane in range(LANES):
            signed[first + np.uint64(lane)] = row[start + np.uint64(lane)] * _sign_of(bits, lane)
        first += np.uint64(LANES)


@kernel
def _exchange(low: Gradient, high: Gradient) -> None:
    """Exchange the elements that are in descending order."""
    for i in range(low.size):
        a, b = low[i], high[i]
        low[i] = a if a < b else b
        high[i] = b if a < b else a


# What a worker of `count_sketch` sends: a sketch, then the values of the candidates found in the sum.


Places = NDArray[np.int64]


class SketchLayout(NamedTuple):
    """What is sent of a bucket."""

    rows: int
    """Rows of the sketch; 0: there is no sketch, and all elements are candidates."""
    columns: int
    candidates: int
    """Elements whose values are added up in the second round; 0: there is no second round."""
    chosen: int


class Added(NamedTuple):
    """Values that were added up, of some elements."""

    sums: Gradient
    own: Gradient  # this worker's, as they were added: rounded, where words are integers


@dataclass(frozen=True)
class CountSketchEncoder(Encoder):
    """One worker's side; it keeps nothing."""

    layout: Callable[[int], SketchLayout]
    exponent_elements: int | None  # words that share an exponent; None: words are floats

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Add up sketches, then the values of the candidates.

        Raises
        ------
        EncodeError
            An element, or a counter, is NaN or infinite, or too large for the sum of so many workers.
        DecodeError
            Counters of the sum are not finite.
        """
        if not gradient.size:
            return Selected(np.zeros(0, np.float32), gradient, elements=np.empty(0, np.int64))
        layout = self.layout(gradient.size)
        candidates = np.arange(gradient.size)
        if layout.rows:
            estimates = yield from self._estimates(gradient, layout, round)
            if not layout.candidates:
                return _estimate(gradient, estimates, layout, round)
            candidates = largest(estimates, layout.candidates)
        return (yield from self._exact(gradient, candidates, layout, round))

    def _estimates(
        self, gradient: Gradient, layout: SketchLayout, round: Round
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], Gradient]:
        """Estimates of the sums of all elements."""
        key = mix_plain(round.seed, rng_streams.COUNT_SKETCH, round.bucket)
        rows = make_rows(layout.rows, layout.columns, key)
        sketch = count(rows, gradient)
        _require_finite(sketch, gradient)
        message = Message(
            sketch,
            Merge.FLOAT_ADD,
            "sketch",
            _counting(rows, gradient),
            decode_work=_estimating(rows, gradient),
        )
        added = yield from self._sum(message, round)
        if not np.isfinite(added.sums).all():
            counter = int(np.argmin(np.isfinite(added.sums)))
            raise DecodeError(
                f"counter {counter} of the added sketches is {added.sums[counter]}: sums of the workers' "
                "counters leave float32; scale the gradients down"
            )
        return estimate(rows, added.sums, gradient.size)

    def _exact(
        self, gradient: Gradient, candidates: Places, layout: SketchLayout, round: Round
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], Selected]:
        """The largest sums of the candidates' values."""
        values = gradient[candidates]
        if not layout.rows:
            _require_finite(values, gradient)
        places_bytes = candidates.nbytes if layout.rows else 0
        message = Message(
            values,
            Merge.FLOAT_ADD,
            "values",
            Work(values.nbytes + places_bytes, values.nbytes),
            # The sums are read twice to select the largest; the total is written, zeros included.
            decode_work=Work(2 * values.nbytes + places_bytes, gradient.nbytes),
            digest=zlib.crc32(candidates.tobytes()) if layout.rows else 0,
        )
        added = yield from self._sum(message, round)
        positions = largest(added.sums, layout.chosen)
        elements = candidates[positions]
        total, contribution = (
            _at(elements, added.sums[positions], gradient),
            _at(elements, added.own[positions], gradient),
        )
        return Selected(total, contribution, elements=elements)

    def _sum(
        self, message: Message, round: Round
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], Added]:
        """Add up the workers' float32 words, as they are or as integers."""
        values, block = message.words, self.exponent_elements
        if block is None:
            (merged,) = yield (message,)
            return Added(merged.words, values)
        try:
            exponents = block_exponents(values, block, round.workers)
        except EncodeError as error:
            raise EncodeError(
                f"the words of {message.label!r}, as if they were a gradient: {error}"
            ) from error
        work, decode_work = message.work, message.decode_work
        (merged,) = yield (
            Message(
                values,
                Merge.ADD,
                message.label,
                # Read once more for the exponents and once to quantise.
                Work(
                    work.read_bytes + 2 * values.nbytes,
                    work.written_bytes + values.nbytes + exponents.nbytes,
                    work.flops + 2 * values.size,
                    work.launches,
                ),
                Scaling(exponents, block, round.workers),
                decode_work=Work(
                    decode_work.read_bytes + values.nbytes + exponents.nbytes,
                    decode_work.written_bytes + values.nbytes,
                    decode_work.flops + values.size,
                    decode_work.launches,
                ),
                digest=message.digest,
            ),
        )
        assert merged.exponents is not None, "the driver must return the agreed exponents of a scaled message"
        scales, starts = scales_of(merged.exponents, round.workers), block_starts(values.size, block)
        words = np.empty(values.size, np.int32)
        quantize(values, starts, scales, words)
        added = Added(*np.empty((2, values.size), np.float32))
        dequantize(merged.words, starts, scales, added.sums)
        dequantize(words, starts, scales, added.own)
        return added


def _estimate(gradient: Gradient, estimates: Gradient, layout: SketchLayout, round: Round) -> Selected:
    """The largest estimates as the total. Each worker has contributed its values of these elements.

    An estimate of zero changes no weight, so nothing is contributed there.
    """
    elements = largest(estimates, layout.chosen)
    elements = elements[estimates[elements] != 0]
    if elements.size:
        text = f"{elements.size} sums are estimates, medians of {layout.rows} counters"
        round.report(Note(NoteKind.ESTIMATE, text, elements.size, gradient.size, elements))
    total, contribution = _at(elements, estimates[elements], gradient), gradient[elements]
    return Selected(total, _at(elements, contribution, gradient), elements=elements)


def _at(elements: Places, values: Gradient, gradient: Gradient) -> Gradient:
    """An array like the gradient with values at some elements, and zeros elsewhere."""
    whole = np.zeros(gradient.size, np.float32)
    whole[elements] = values
    return whole


def _require_finite(words: Gradient, gradient: Gradient) -> None:
    """Reject words that are not finite: the gradient is not, or sums of its elements leave float32."""
    if np.isfinite(words).all():
        return
    if not np.isfinite(gradient).all():
        raise EncodeError(not_finite(gradient))
    counter = int(np.argmin(np.isfinite(words)))
    raise EncodeError(
        f"counter {counter} of the sketch is {words[counter]}: sums of this worker's elements leave float32; "
        "clip or scale the gradient"
    )


def _counting(rows: SketchRows, gradient: Gradient) -> Work:
    """Work of a sketch: each row reads and writes a counter for every element, the elements are read once."""
    updates = rows.keys.size * gradient.nbytes
    return Work(gradient.nbytes + updates, updates, 2 * rows.keys.size * gradient.size)


def _estimating(rows: SketchRows, gradient: Gradient) -> Work:
    """Work of the estimates: a counter of each row is read, their median written, and read to select."""
    reads = rows.keys.size * gradient.nbytes
    flops = rows.keys.size * (rows.keys.size + 1) * gradient.size
    return Work(reads + gradient.nbytes, gradient.nbytes, flops, launches=2)


EXPONENT_ELEMENTS = 256  # without a network
EXPONENT_BITS = 8
_U = 2.0**-24  # unit roundoff of float32


@register
@dataclass(frozen=True)
class CountSketch(Codec):
    """The largest elements of the sum, which all workers find in the sum of their sketches.

    rows: independent rows of counters; odd, since an estimate is their median.
    ratio: counters of the sketch, of the bucket's elements. A bucket that is no larger than what it would
        send is sent whole.
    share: elements of the total that are not zero, of all; at least one.
    candidates: elements whose values are added up in a second round, for each of these; 0: no second round,
        the total has estimates.
    feedback: whether a worker adds what it did not contribute to its next gradient.
    momentum: what remains of a worker's momentum after a step, from 0 (none) to below 1. The optimizer should
        have none then.
    masking: whether an element that was chosen loses its momentum (momentum factor masking).
    values: how a value becomes words: block_exponent (one integer, as fixed_point), float32.
    block_elements: block_exponent: words that share an exponent; left out, the network's unit, or 256 without
        a network.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "count_sketch"
    origin: ClassVar[Origin] = Origin(
        "reconstructed",
        "Sketch-Fusion: Dai et al., JPDC 2024; after Sketched-SGD: Ivkin et al., NeurIPS 2019",
    )

    rows: int = 5
    ratio: float = 0.1
    share: float = 0.01
    candidates: int = 4
    feedback: bool = True
    momentum: float = 0.0
    masking: bool = True
    values: Literal["block_exponent", "float32"] = "block_exponent"
    block_elements: int | None = None

    def __post_init__(self) -> None:
        if self.rows < 1 or self.rows % 2 == 0:
            raise ValueError(
                f"rows is {self.rows}: must be an odd number; an even number has two middle values, "
                "and the lower one is too small on average; 3 and 5 are usual"
            )
        if not 0 < self.ratio <= 1:
            raise ValueError(f"ratio is {self.ratio}: must be above 0 and at most 1, 0.1 is usual")
        check_share(self.share)
        if self.candidates < 0:
            raise ValueError(
                f"candidates is {self.candidates}: must be at least 1, 4 is usual, or 0 for one round"
            )
        check_momentum(self.momentum)
        self._check_block_elements()

    def _check_block_elements(self) -> None:
        if self.block_elements is None:
            return
        if self.values != "block_exponent":
            raise ValueError(
                f"block_elements belongs to values block_exponent, found values {self.values}; remove it"
            )
        if self.block_elements < 1:
            raise ValueError(
                f"block_elements is {self.block_elements}: a block needs at least 1 word; "
                "leave it out for the network's unit"
            )

    @property
    def merges(self) -> frozenset[Merge]:
        """ADD of integers, or FLOAT_ADD."""
        return frozenset({Merge.FLOAT_ADD if self.exponent_elements is None else Merge.ADD})

    @property
    def exponent_elements(self) -> int | None:
        """Words that share an exponent; None if they are floats."""
        return None if self.values == "float32" else self.block_elements or EXPONENT_ELEMENTS

    def layout(self, elements: int) -> SketchLayout:
        """What is sent of a bucket of some elements."""
        columns = max(1, math.ceil(self.ratio * elements / self.rows))
        chosen = count_of(self.share, elements)
        candidates = min(elements, self.candidates * chosen)
        if self.rows * columns + candidates >= elements:
            return SketchLayout(0, 0, elements, chosen)
        return SketchLayout(self.rows, columns, candidates, chosen)

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        encoder = CountSketchEncoder(self.layout, self.exponent_elements)
        return with_feedback(encoder, self.feedback, self.momentum, self.masking)

    def carried_by(self, carrier: Carrier) -> CountSketch:
        """Fill in the network's unit as the block of exponents if that is left out."""
        if self.values != "block_exponent":
            return self
        return replace(self, block_elements=self.block_elements or carrier.unit_elements)

    def error_bound(self, contributions: Sequence[Gradient]) -> ErrorBound:
        """The bound of adding up what was contributed. Estimates are noted and exempt.

        A worker contributes values as they were added, already rounded to integers.
        """
        workers = len(contributions)
        return FloatAddBound(workers) if self.exponent_elements is None else AddedBound(workers)

    def bits_per_element(self, workers: int) -> BitsPerElement:
        """The counters and the candidates, with their exponents."""
        blocks = self.exponent_elements
        bits = WORD_BITS + (EXPONENT_BITS / blocks if blocks else 0)
        sent_bits = bits * min(1.0, self.ratio + self.candidates * self.share)
        return BitsPerElement(sent_bits, sent_bits)

    @property
    def state_bytes(self) -> int:
        return STATE_BYTES * (self.feedback + (self.momentum > 0))


@dataclass(frozen=True)
class AddedBound:
    """Bound of sums of integers, which are exact, against the sums of their values.

    A value is an integer divided by its block's scale in float32, off by u. So is the sum, which is rounded
    to float32 before: u · Σ|x| + 2u · |Σ|. Denormal quotients are off by half of the smallest.
    """

    workers: int

    def of(self, sums: Sums) -> Doubles:
        """Add the errors of the values and of their sum."""
        off_by = _U * sums.magnitude + 2 * _U * np.abs(sums.total)
        return np.asarray(off_by * (1 + 2.0**-20) + (self.workers + 1) * TINY)
