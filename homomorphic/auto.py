"""The encoding that should be fastest for each bucket, from what was measured in the round before.

How many elements are non-zero anywhere, in how many words and blocks, is read off the decoded sum, which all
workers have: so they choose alike, and nothing is sent for it. A bucket's first round is packed: about 3 %
more than dense where nothing is zero, and the least otherwise.

The expected time of an encoding is that of its operations, of its words at the rate the network sums them,
and of passing over memory where the workers' device is charged for that. Its formulas are in `candidates`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from homomorphic.bits import WORD_ELEMENTS
from homomorphic.block_sparse import BLOCK_ELEMENTS, BlockSparse
from homomorphic.codec import (
    Carrier,
    Codec,
    Encoder,
    Exchange,
    Gradient,
    Merge,
    Note,
    NoteKind,
    Round,
    register,
)
from homomorphic.dense import DenseExact
from homomorphic.fixed_point import FixedPoint
from homomorphic.lossless import Lossless
from homomorphic.membership import own_index
from homomorphic.none import Uncompressed
from homomorphic.numbers import Values
from homomorphic.packed import Packed

Words = Callable[["Measured"], float]

_WORDS_OF_VALUE: dict[Values, int] = {"block_exponent": 1, "float32": 1, "exact": 3}  # exact: usually
_SKETCH_WORDS = 1.45  # of lossless, per member: counters at its load, and what a forecast is larger


class Measured(NamedTuple):
    """What a decoded sum says about the next round."""

    elements: int
    members: int  # elements that are not zero
    live_words: int  # runs of 64 elements with a member
    live_blocks: int  # runs of 256 elements with a member


class Candidate(NamedTuple):
    """An encoding that may be chosen, and what it costs."""

    name: str
    codec: Codec
    operations: int  # that wait for each other
    words: Callable[[Measured], float]  # of 32 bits that the network sums
    passed_bytes: Callable[[Measured], float]  # that a worker passes over to encode and to decode


@register
@dataclass(frozen=True)
class Auto:
    """For every bucket the fastest of dense, packed, lossless and block_sparse, by its last round's density.

    values: how a value becomes words: block_exponent (one integer, as fixed_point), float32, exact (several
        integers, whose sum is the true one).
    latency_us: time of a network operation that carries next to nothing; left out, the network's, or 10.
    rate_gbps: rate of its words through the network, headers left out; left out, the network's, or 100.
    memory_gbps: rate at which a worker passes over memory; left out, its device's, or beyond measure.
    unit_elements: dense block_exponent: elements that share an exponent; left out, the network's, or 256.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "auto"
    is_linear: ClassVar[bool] = False  # each of what it may choose is not, or would have to be all the time

    values: Values = "block_exponent"
    latency_us: float | None = None
    rate_gbps: float | None = None
    memory_gbps: float | None = None
    unit_elements: int | None = None

    def __post_init__(self) -> None:
        for name in ("latency_us", "rate_gbps", "memory_gbps"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(
                    f"{name} is {value}: it must be finite and more than 0; leave it out otherwise"
                )
        FixedPoint(self.unit_elements)

    @property
    def exact(self) -> bool:
        """Integers do not care about the order."""
        return self.values != "float32"

    @property
    def merges(self) -> frozenset[Merge]:
        """Those of all it may choose."""
        none: frozenset[Merge] = frozenset()
        return none.union(*(one.codec.merges for one in self.candidates))

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """What it may choose; of equals the first."""
        return candidates(self.values, self.unit_elements)

    def carried_by(self, carrier: Carrier) -> Auto:
        """With the network's figures for those left out."""
        return replace(
            self,
            latency_us=self.latency_us or carrier.latency_us,
            rate_gbps=self.rate_gbps or carrier.rate_gbps,
            memory_gbps=self.memory_gbps or carrier.memory_gbps,
            unit_elements=self.unit_elements or carrier.unit_elements,
        )

    def worker(self, rank: int, workers: int, seed: int) -> AutoEncoder:
        """Encoder of one worker; it remembers every bucket's last sum by four counts."""
        encoders = {one.name: one.codec.worker(rank, workers, seed) for one in self.candidates}
        return AutoEncoder(self.carried_by(Carrier()), encoders)

    def error_bound(self, gradients: Sequence[Gradient]) -> NDArray[np.float64]:
        """The largest of what it may choose."""
        bounds = [one.codec.error_bound(gradients) for one in self.candidates]
        return np.asarray(np.maximum.reduce(bounds))

    def expected_us(self, candidate: Candidate, measured: Measured) -> float:
        """Time of a round, in microseconds."""
        assert self.latency_us is not None
        assert self.rate_gbps is not None
        words_us = 32 * candidate.words(measured) / (1e3 * self.rate_gbps)
        memory_us = 8 * candidate.passed_bytes(measured) / (1e3 * (self.memory_gbps or math.inf))
        return candidate.operations * self.latency_us + words_us + memory_us


def candidates(values: Values, unit_elements: int | None) -> tuple[Candidate, ...]:
    """What may be chosen for values of a kind.

    Words: of the index, of exponents (one per 4096 elements) and of values. Bytes: of the gradient, once for
    each time it is read or written, and of words and sketches.
    """
    per_value, per_block = _WORDS_OF_VALUE[values], 0 if values == "float32" else 1 / 4096
    all_dense: dict[Values, Codec] = {
        "block_exponent": FixedPoint(unit_elements),
        "float32": Uncompressed(),
        "exact": DenseExact(),
    }
    dense = all_dense[values]

    def sparse(name: str, codec: Codec, operations: int, of_index: Words, of_values: Words) -> Candidate:
        def words(seen: Measured) -> float:
            return of_index(seen) + per_value * of_values(seen) + per_block * seen.elements

        def passed_bytes(seen: Measured) -> float:
            scanned = 8 if values == "float32" else 12  # by the index, the exponents and the decoder
            return scanned * seen.elements + 16 * per_value * of_values(seen)

        return Candidate(name, codec, operations, words, passed_bytes)

    return (
        Candidate(
            "dense",
            dense,
            1,
            lambda seen: per_value * seen.elements,
            lambda seen: (0 if values == "float32" else 16 * per_value) * seen.elements,
        ),
        sparse("packed", Packed(values), 2, lambda seen: seen.elements / 32, lambda seen: seen.members),
        sparse(
            "packed, two_level",
            Packed(values, "two_level"),
            3,
            lambda seen: seen.elements / 2048 + 2 * seen.live_words,
            lambda seen: seen.members,
        ),
        sparse(
            "lossless, concurrent",
            Lossless(values=values, schedule="concurrent"),
            1,
            lambda seen: seen.elements / 32,
            lambda seen: min(_SKETCH_WORDS * seen.members, seen.elements),
        ),
        sparse(
            "block_sparse, bitmap",
            BlockSparse(values, "bitmap"),
            2,
            lambda seen: seen.elements / (32 * BLOCK_ELEMENTS),
            lambda seen: BLOCK_ELEMENTS * seen.live_blocks,
        ),
    )


@dataclass
class AutoEncoder:
    """One worker's side."""

    codec: Auto
    encoders: dict[str, Encoder]
    _measured: dict[int, Measured] = field(default_factory=dict)  # by bucket

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Choose, say so, do it, and measure the sum."""
        note = self._choice(round.bucket)
        round.tell(note)
        decoded = yield from self.encoders[note.name].exchange(gradient, round)
        self._measured[round.bucket] = measure(decoded)
        return decoded

    def _choice(self, bucket: int) -> Note:
        seen = self._measured.get(bucket)
        if seen is None:
            return Note(NoteKind.CHOICE, "packed: nothing has been measured yet")
        times = {one.name: self.codec.expected_us(one, seen) for one in self.codec.candidates}
        name = min(times, key=times.__getitem__)
        rivals = ", ".join(
            f"{other} {times[other]:.3g}" for other in sorted(times, key=times.__getitem__)[1:]
        )
        text = (
            f"{name}: {times[name]:.3g} us expected, {rivals}; the last sum had {seen.members} of "
            f"{seen.elements} elements"
        )
        return Note(NoteKind.CHOICE, text)


def measure(decoded: Gradient) -> Measured:
    """Count elements, words and blocks that are not zero."""
    index = own_index(decoded)
    words = index != 0
    blocks = np.add.reduceat(words, np.arange(0, words.size, BLOCK_ELEMENTS // WORD_ELEMENTS)) > 0
    return Measured(
        decoded.size,
        int(np.bitwise_count(index).sum(dtype=np.int64)),
        int(np.count_nonzero(words)),
        int(np.count_nonzero(blocks)),
    )
