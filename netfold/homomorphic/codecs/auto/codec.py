"""Codec `auto`: for each bucket the encoding that should be fastest, from measurements of earlier rounds.

The index that a round's workers agreed on says how many elements are in the union, and in how many words and
blocks. The agreed numbers say how many words a value takes. A round of blocks reveals which blocks are live,
a dense round nothing: there `auto` reads the decoded sum, and earlier rounds say what that may hide (see
`union`). All workers observe the same messages, so they choose alike, and nothing is sent for the choice. A
bucket's first round is packed: little more than dense where nothing is zero, and far less where most elements
are. So is the first round of another length.

The fastest encoding depends on the network (see `costs`). For a sketch that travels with its index it also
depends on how much rounds differ (see `experience`). The sketch's history records all rounds whose numbers
were agreed on, in any encoding, so it needs no round to begin with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from numpy.typing import NDArray

from netfold.homomorphic.bounds import ErrorBound, LargestBound
from netfold.homomorphic.carrier import Carrier
from netfold.homomorphic.codec import (
    Codec,
    Decoded,
    Encoder,
    Exchange,
    Origin,
    Promise,
    State,
    advance,
    part_of,
    prefixed,
    prefixes,
    register,
)
from netfold.homomorphic.codecs.auto.experience import Choice, Experience
from netfold.homomorphic.codecs.auto.union import BLOCKS, INDEX, RUNS
from netfold.homomorphic.codecs.dense.kinds import Dense
from netfold.homomorphic.codecs.sketched.lossless import WRAP_REASON, Lossless, LosslessEncoder
from netfold.homomorphic.codecs.sparse.block_sparse import BlockSparse
from netfold.homomorphic.codecs.sparse.packed import Packed
from netfold.homomorphic.message import Gradient, Merge, Merged, Message
from netfold.homomorphic.numbers.formats import NumberFormat, Values, number_format, number_promise
from netfold.homomorphic.round import Note, NoteKind, Round

_PS_PER_US, _BPS_PER_GBPS = 10**6, 10**9


@register
@dataclass(frozen=True)
class Auto(Codec):
    """For every bucket the fastest of dense, packed, lossless and block_sparse, by its last union's density.

    values: how a value becomes words: block_exponent (one integer, as fixed_point), float32, exact (several
        integers, which give the true sum).
    latency_us: time of a network operation with very few words; left out, the network's, or 10.
    rate_gbps: rate of words through the network, without headers; left out, the network's, or 100.
    memory_gbps: rate of a worker's memory traffic; left out, its device's, or unlimited.
    unit_elements: dense block_exponent: elements that share an exponent; left out, the network's, or 256.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True}
    kind: ClassVar[str] = "auto"
    origin: ClassVar[Origin] = Origin("ours", "")

    values: Values = "block_exponent"
    latency_us: float | None = None
    rate_gbps: float | None = None
    memory_gbps: float | None = None
    unit_elements: int | None = None

    def __post_init__(self) -> None:
        for name in ("latency_us", "rate_gbps", "memory_gbps"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}: must be finite and more than 0, or left out")
        Dense("block_exponent", self.unit_elements)

    @property
    def promise(self) -> Promise:
        """The promise of the numbers."""
        return number_promise(self.values)

    @property
    def wrap_reason(self) -> str:
        """Why a sketch, one of the choices, wants adders that wrap."""
        return WRAP_REASON

    @property
    def merges(self) -> frozenset[Merge]:
        """The merges of all choices."""
        none: frozenset[Merge] = frozenset()
        return none.union(*(codec.merges for codec in self.choices.values()))

    @property
    def choices(self) -> dict[Choice, Codec]:
        """The codecs to choose from."""
        values = self.values
        unit_elements = self.unit_elements if values == "block_exponent" else None
        return {
            Choice.DENSE: Dense(values, unit_elements),
            Choice.PACKED: Packed(values),
            Choice.TWO_LEVEL: Packed(values, "two_level"),
            Choice.BITMAP: BlockSparse(values, "bitmap"),
            Choice.CONCURRENT: Lossless(values=values, schedule="concurrent"),
        }

    def carried_by(self, carrier: Carrier) -> CarriedAuto:
        """Fill in the network's figures for those left out."""
        own = replace(
            carrier,
            latency_ps=_in_units(self.latency_us, _PS_PER_US) or carrier.latency_ps,
            rate_bps=_in_units(self.rate_gbps, _BPS_PER_GBPS) or carrier.rate_bps,
            memory_bps=_in_units(self.memory_gbps, _BPS_PER_GBPS) or carrier.memory_bps,
        )
        unit_elements = self.unit_elements or carrier.unit_elements
        return CarriedAuto(self.values, unit_elements=unit_elements, carrier=own)

    def worker(self, rank: int, workers: int, seed: int) -> AutoEncoder:
        """Encoder of one worker; it records the last rounds of every bucket."""
        return self.carried_by(Carrier()).worker(rank, workers, seed)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """The largest bound of all choices.

        The other sparse encodings have the sketch's numbers, without the bits that a forecast spares.
        """
        choices = self.choices[Choice.DENSE], self.choices[Choice.CONCURRENT]
        return LargestBound(tuple(codec.error_bound(gradients) for codec in choices))


@dataclass(frozen=True)
class CarriedAuto(Auto):
    """`Auto` on a network."""

    carrier: Carrier = field(default_factory=Carrier)

    def worker(self, rank: int, workers: int, seed: int) -> AutoEncoder:
        """Encoder of one worker, with an encoder for each choice."""
        sketch = LosslessEncoder(Lossless(values=self.values, schedule="concurrent"))
        encoders = {choice: codec.worker(rank, workers, seed) for choice, codec in self.choices.items()}
        numbers = number_format(self.values, sketch.codec.block_elements)
        return AutoEncoder(self, {**encoders, Choice.CONCURRENT: sketch}, sketch, numbers)


@dataclass
class AutoEncoder(Encoder):
    """One worker's side."""

    codec: CarriedAuto
    encoders: dict[Choice, Encoder]
    sketch: LosslessEncoder  # one of the encoders; its history records all rounds
    numbers: NumberFormat[Any]
    _known: dict[int, Experience] = field(default_factory=dict)  # by bucket

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Choose an encoding, report the choice, exchange with it, and learn from the round's messages."""
        known = self._known.get(round.bucket)
        if known is not None and known.counts is not None and known.counts.elements != gradient.size:
            known = None
        note = self._choice(known, round)
        round.report(note)
        encoder = self.encoders[Choice(note.name)]
        observed: dict[str, tuple[Message, Merged]] = {}
        labels = {INDEX, RUNS, BLOCKS, self.numbers.label}
        decoded = yield from _recorded(encoder.exchange(gradient, round), labels, observed)
        total = decoded.total
        if total.size:
            if known is None:
                known = self._known[round.bucket] = self._new_experience()
            seen = known.learn(total, observed, round)
            if seen is not None and encoder is not self.sketch:  # the sketch records its rounds itself
                self.sketch.history.add(round, total.size, seen)
        return decoded

    def state(self) -> State:
        """Those of its encoders, and what it knows of each bucket."""
        state: State = {}
        for number, encoder in enumerate(self.encoders.values()):
            state |= prefixed(f"encoders/{number}", encoder.state())
        for bucket, known in self._known.items():
            state |= prefixed(f"known/{bucket}", known.state())
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        encoders, buckets = part_of(state, "encoders"), part_of(state, "known")
        for number, encoder in enumerate(self.encoders.values()):
            encoder.restore(part_of(encoders, str(number)))
        self._known = {int(bucket): self._new_experience() for bucket in prefixes(buckets)}
        for bucket, known in self._known.items():
            known.restore(part_of(buckets, str(bucket)))

    def _new_experience(self) -> Experience:
        unit_elements = self.codec.unit_elements or self.codec.carrier.unit_elements
        return Experience(self.codec.values, self.numbers, unit_elements, self.sketch.history)

    def _choice(self, known: Experience | None, round: Round) -> Note:
        if known is None or known.counts is None:
            return Note(NoteKind.CHOICE, f"{Choice.PACKED}: nothing has been measured yet")
        times_ps = known.times_ps(self.codec.carrier, round)
        first, *others = sorted(times_ps, key=times_ps.__getitem__)
        rivals = ", ".join(f"{name} {_format_us(times_ps[name])}" for name in others)
        text = (
            f"{first}: {_format_us(times_ps[first])} us expected, {rivals}; the last round had "
            f"{known.counts.members} of {known.counts.elements} elements"
        )
        return Note(NoteKind.CHOICE, text)


def _in_units(figure: float | None, unit: int) -> int | None:
    """Convert a figure to smaller units, at least one."""
    return None if figure is None else max(1, round(figure * unit))


def _format_us(time_ps: int) -> str:
    """Format a time in microseconds, with at least three significant digits."""
    time_us = time_ps / _PS_PER_US
    return f"{time_us:.0f}" if time_us >= 100 else f"{time_us:.3g}"


def _recorded(exchange: Exchange, labels: Set[str], observed: dict[str, tuple[Message, Merged]]) -> Exchange:
    """Run an exchange; record its messages with these labels, and their answers, in `observed`."""
    answers: tuple[Merged, ...] | None = None
    while True:
        messages = advance(exchange, answers)
        if isinstance(messages, Decoded):
            return messages
        answers = yield messages
        for message, answer in zip(messages, answers, strict=True):
            if message.label in labels:
                observed[message.label] = message, answer
