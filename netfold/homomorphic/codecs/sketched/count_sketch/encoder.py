"""What a worker of `count_sketch` sends: a sketch, then the values of the candidates found in the sum."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Decoded, DecodeError, EncodeError, Encoder, Exchange
from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.kernels.largest import largest
from netfold.homomorphic.message import Gradient, Merge, Merged, Message, Scaling, Work
from netfold.homomorphic.numbers.compact import block_starts
from netfold.homomorphic.numbers.exponents import block_exponents, dequantize, quantize, scales_of
from netfold.homomorphic.numbers.refusals import not_finite
from netfold.homomorphic.round import Note, NoteKind, Round
from netfold.homomorphic.sketch.counts import Rows, count, estimate, make_rows

Places = NDArray[np.int64]


class Layout(NamedTuple):
    """What is sent of a bucket."""

    rows: int  # of the sketch; 0: there is none, all elements are candidates
    columns: int
    candidates: int  # whose values are added up in the second round; 0: there is none
    chosen: int


@dataclass(frozen=True)
class Selected(Decoded):
    """A result, and the elements that all workers chose."""

    elements: Places = field(kw_only=True)  # ascending


class Added(NamedTuple):
    """Values that were added up, of some elements."""

    sums: Gradient
    own: Gradient  # this worker's, as they were added: rounded, where words are integers


@dataclass(frozen=True)
class CountSketchEncoder(Encoder):
    """One worker's side; it keeps nothing."""

    layout: Callable[[int], Layout]
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
                return _estimated(gradient, estimates, layout, round)
            candidates = largest(estimates, layout.candidates)
        return (yield from self._exact(gradient, candidates, layout, round))

    def _estimates(
        self, gradient: Gradient, layout: Layout, round: Round
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], Gradient]:
        """Estimates of the sums of all elements."""
        key = mix_plain(round.seed, purposes.COUNT_SKETCH, round.bucket)
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
        added = yield from self._added(message, round)
        if not np.isfinite(added.sums).all():
            counter = int(np.argmin(np.isfinite(added.sums)))
            raise DecodeError(
                f"counter {counter} of the added sketches is {added.sums[counter]}: sums of the workers' "
                "counters leave float32; scale the gradients down"
            )
        return estimate(rows, added.sums, gradient.size)

    def _exact(
        self, gradient: Gradient, candidates: Places, layout: Layout, round: Round
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
        added = yield from self._added(message, round)
        own = largest(added.sums, layout.chosen)
        elements = candidates[own]
        total, contribution = (
            _at(elements, added.sums[own], gradient),
            _at(elements, added.own[own], gradient),
        )
        return Selected(total, contribution, elements=elements)

    def _added(
        self, message: Message, round: Round
    ) -> Generator[tuple[Message, ...], tuple[Merged, ...], Added]:
        """Add up the workers' float32 words, as they are or as integers."""
        values, block = message.words, self.exponent_elements
        if block is None:
            (merged,) = yield (message,)
            return Added(merged.words, values)
        try:
            own = block_exponents(values, block, round.workers)
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
                    work.written_bytes + values.nbytes + own.nbytes,
                    work.flops + 2 * values.size,
                    work.launches,
                ),
                Scaling(own, block, round.workers),
                decode_work=Work(
                    decode_work.read_bytes + values.nbytes + own.nbytes,
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


def _estimated(gradient: Gradient, estimates: Gradient, layout: Layout, round: Round) -> Selected:
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


def _counting(rows: Rows, gradient: Gradient) -> Work:
    """Work of a sketch: each row reads and writes a counter for every element, the elements are read once."""
    updates = rows.keys.size * gradient.nbytes
    return Work(gradient.nbytes + updates, updates, 2 * rows.keys.size * gradient.size)


def _estimating(rows: Rows, gradient: Gradient) -> Work:
    """Work of the estimates: a counter of each row is read, their median written, and read to select."""
    reads = rows.keys.size * gradient.nbytes
    flops = rows.keys.size * (rows.keys.size + 1) * gradient.size
    return Work(reads + gradient.nbytes, gradient.nbytes, flops, launches=2)
