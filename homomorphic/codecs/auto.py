"""The encoding that should be fastest for each bucket, from what was measured in the rounds before.

How many elements are non-zero anywhere, in how many words and blocks, is read off the index that a round's
workers agreed on, and how many words a value takes off what they agreed on about numbers. A round of blocks
tells which of them are live, and a dense one nothing: there the decoded sum says the rest, and what it may
hide is known from rounds before (see `union`). All workers have heard the same: so they choose alike,
and nothing is sent for it. A bucket's first round is packed: little more than dense where nothing is zero,
and far less where most is. So is the first one of another length.

Which is the fastest depends on the network (see `costs`), and for a sketch that goes with its index on how
much rounds differ (see `experience`). That sketch's history is of all rounds whose numbers were told, however
they were encoded, so it needs no round of its own to begin with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from netfold.homomorphic.bounds import ErrorBound, LargestBound
from netfold.homomorphic.codec import (
    Carrier,
    Codec,
    Encoder,
    Exchange,
    Gradient,
    Merge,
    Merged,
    Message,
    Note,
    NoteKind,
    Round,
    advance,
    register,
)
from netfold.homomorphic.codecs.auto_choice.experience import Choice, Experience
from netfold.homomorphic.codecs.auto_choice.union import BLOCKS, INDEX, RUNS
from netfold.homomorphic.codecs.block_sparse import BlockSparse
from netfold.homomorphic.codecs.dense.kinds import Dense
from netfold.homomorphic.codecs.lossless import Lossless, LosslessEncoder
from netfold.homomorphic.codecs.packed import Packed
from netfold.homomorphic.numbers.formats import Format, Values, number_format

_PS_PER_US, _BPS_PER_GBPS = 10**6, 10**9


@register
@dataclass(frozen=True)
class Auto:
    """For every bucket the fastest of dense, packed, lossless and block_sparse, by its last union's density.

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
    wrap_reason: ClassVar[str] = Lossless.wrap_reason

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
        Dense("block_exponent", self.unit_elements)

    @property
    def exact(self) -> bool:
        """Integers do not care about the order."""
        return self.values != "float32"

    @property
    def merges(self) -> frozenset[Merge]:
        """Those of all it may choose."""
        none: frozenset[Merge] = frozenset()
        return none.union(*(codec.merges for codec in self.choices.values()))

    @property
    def choices(self) -> dict[Choice, Codec]:
        """What it may choose."""
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
        """With the network's figures for those left out."""
        own = replace(
            carrier,
            latency_ps=_in_units(self.latency_us, _PS_PER_US) or carrier.latency_ps,
            rate_bps=_in_units(self.rate_gbps, _BPS_PER_GBPS) or carrier.rate_bps,
            memory_bps=_in_units(self.memory_gbps, _BPS_PER_GBPS) or carrier.memory_bps,
        )
        unit_elements = self.unit_elements or carrier.unit_elements
        return CarriedAuto(self.values, unit_elements=unit_elements, carrier=own)

    def worker(self, rank: int, workers: int, seed: int) -> AutoEncoder:
        """Encoder of one worker; it remembers of every bucket what its last rounds were like."""
        return self.carried_by(Carrier()).worker(rank, workers, seed)

    def error_bound(self, gradients: Sequence[Gradient]) -> ErrorBound:
        """The largest of what it may choose.

        Sparse encodings but the sketch have the sketch's numbers, without the bits that a forecast spares.
        """
        choices = self.choices[Choice.DENSE], self.choices[Choice.CONCURRENT]
        return LargestBound(tuple(codec.error_bound(gradients) for codec in choices))


@dataclass(frozen=True)
class CarriedAuto(Auto):
    """The same on a network."""

    carrier: Carrier = field(default_factory=Carrier)

    def worker(self, rank: int, workers: int, seed: int) -> AutoEncoder:
        """See `Auto`."""
        sketch = LosslessEncoder(Lossless(values=self.values, schedule="concurrent"))
        encoders = {choice: codec.worker(rank, workers, seed) for choice, codec in self.choices.items()}
        numbers = number_format(self.values, sketch.codec.block_elements)
        return AutoEncoder(self, {**encoders, Choice.CONCURRENT: sketch}, sketch, numbers)


@dataclass
class AutoEncoder:
    """One worker's side."""

    codec: CarriedAuto
    encoders: dict[Choice, Encoder]
    sketch: LosslessEncoder  # one of them; its history is that of all rounds
    numbers: Format[Any]
    _known: dict[int, Experience] = field(default_factory=dict)  # by bucket

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Choose, say so, do it, and learn from what was heard."""
        known = self._known.get(round.bucket)
        if known is not None and known.counts is not None and known.counts.elements != gradient.size:
            known = None
        note = self._choice(known, round)
        round.tell(note)
        encoder = self.encoders[Choice(note.name)]
        heard: dict[str, tuple[Message, Merged]] = {}
        labels = {INDEX, RUNS, BLOCKS, self.numbers.label}
        decoded = yield from _overheard(encoder.exchange(gradient, round), labels, heard)
        if decoded.size:
            if known is None:
                unit_elements = self.codec.unit_elements or self.codec.carrier.unit_elements
                history = self.sketch.history
                known = Experience(self.codec.values, self.numbers, unit_elements, history)
                self._known[round.bucket] = known
            seen = known.learn(decoded, heard, round)
            if seen is not None and encoder is not self.sketch:  # which remembers by itself
                self.sketch.history.add(round, decoded.size, seen)
        return decoded

    def _choice(self, known: Experience | None, round: Round) -> Note:
        if known is None or known.counts is None:
            return Note(NoteKind.CHOICE, f"{Choice.PACKED}: nothing has been measured yet")
        times_ps = known.times_ps(self.codec.carrier, round)
        first, *others = sorted(times_ps, key=times_ps.__getitem__)
        rivals = ", ".join(f"{name} {_told(times_ps[name])}" for name in others)
        text = (
            f"{first}: {_told(times_ps[first])} us expected, {rivals}; the last round had "
            f"{known.counts.members} of {known.counts.elements} elements"
        )
        return Note(NoteKind.CHOICE, text)


def _in_units(figure: float | None, unit: int) -> int | None:
    """A figure in smaller units, at least one of them."""
    return None if figure is None else max(1, round(figure * unit))


def _told(time_ps: int) -> str:
    """In microseconds: three digits at least, and all before the point."""
    time_us = time_ps / _PS_PER_US
    return f"{time_us:.0f}" if time_us >= 100 else f"{time_us:.3g}"


def _overheard(exchange: Exchange, labels: Set[str], heard: dict[str, tuple[Message, Merged]]) -> Exchange:
    """Do an exchange, and keep its messages with these labels, and their answers."""
    answers: tuple[Merged, ...] | None = None
    while True:
        messages = advance(exchange, answers)
        if not isinstance(messages, tuple):
            return messages
        answers = yield messages
        for message, answer in zip(messages, answers, strict=True):
            if message.label in labels:
                heard[message.label] = message, answer
