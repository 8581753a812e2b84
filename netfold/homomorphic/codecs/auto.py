"""Codec `auto`: for each bucket the encoding that should be fastest, from measurements of earlier rounds.

The index that a round's workers agreed on says how many elements are in the union, and in how many words
and blocks. The agreed numbers say how many words a value takes. A round of blocks reveals which blocks
are live, a dense round nothing: there `auto` reads the decoded sum, and earlier rounds say what that may
hide. All workers observe the same messages, so they choose alike, and nothing is sent for
the choice. A bucket's first round is packed: little more than dense where nothing is zero, and far less
where most elements are. So is the first round of another length.

The fastest encoding depends on the network. For a sketch that travels with its index it also
depends on how much rounds differ. The sketch's history records all rounds whose numbers
were agreed on, in any encoding, so it needs no round to begin with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic import union_index as bits
from netfold.homomorphic.codec import (
    Carrier,
    Codec,
    Decoded,
    Encoder,
    Exchange,
    MessageSize,
    Origin,
    Promise,
    State,
    part_of,
    prefixed,
    prefixes,
)
from netfold.homomorphic.codec_driver import advance
from netfold.homomorphic.codecs.block_sparse import BLOCK_ELEMENTS, BlockSparse
from netfold.homomorphic.codecs.dense import Dense
from netfold.homomorphic.codecs.lossless import WRAP_REASON, Lossless, LosslessEncoder
from netfold.homomorphic.codecs.packed import Packed
from netfold.homomorphic.error_bounds import ErrorBound, LargestBound
from netfold.homomorphic.merge import Merge, Merged
from netfold.homomorphic.message import Gradient, Message, Note, NoteKind, Round
from netfold.homomorphic.number_formats import NumberFormat, Values, number_format, number_promise
from netfold.homomorphic.sketch import (
    REPAIRED_TILING,
    History,
    Seen,
    SketchSize,
    TileLayout,
    fallback_members,
    forecast_layout,
    forecast_of,
    sketch_size,
    sketch_work_bytes,
    with_margin,
)
from netfold.homomorphic.union_index import (
    DENSE_SHARE,
    WORD_ELEMENTS,
    WideIndex,
    own_index,
    support_of,
    widen,
)
from netfold.kinds import register

# Expected costs of a round in each encoding, from counts alone: nothing is encoded for them.
#
# A round is a sequence of network operations, each of one or more messages, and a worker's memory traffic
# before and after them. The numbers of words and bytes follow from a bucket's last union (`UnionCounts`) and
# from its next sketch (`SketchSize`), the times from the network (`Carrier`). The bytes are those that the
# codecs announce as `Work`.


_INDEX_BYTES = 1 / 8
"""Bytes of an index, per element."""
_AGREED_WORDS: dict[Values, int] = {"block_exponent": 1, "float32": 0, "exact": 2}
"""Words by which workers agree on the numbers of one block."""


class UnionCounts(NamedTuple):
    """Counts of a bucket's last union, expected for its next round."""

    values: Values
    elements: int
    members: int
    """Elements that are non-zero at some worker."""
    own_members: float
    """Members of one worker, expected: between an equal share and all."""
    live_runs: int
    """Runs of 64 elements with a member."""
    live_elements: int
    """Elements in runs of 256 with a member."""
    block_elements: int
    """Elements of a block that agrees on its numbers."""
    dense_words: int
    """Words for the values of all elements."""
    member_words: int
    """Words for the values of members."""
    live_words: int
    """Words for the values of live elements."""

    @property
    def agreed_words(self) -> int:
        """Words that the workers exchange to agree on numbers."""
        return _AGREED_WORDS[self.values] * -(-self.elements // self.block_elements)

    @property
    def digits(self) -> float:
        """Words per value of a member."""
        return self.member_words / self.members if self.members else 1.0

    def words_of(self, members: int) -> int:
        """Expected words for the values of some members."""
        return -(-members * self.member_words // self.members) if self.members else members

    @property
    def scanned_bytes(self) -> float:
        """Bytes read to find a worker's members and their numbers (see `index.nonzeros_of`)."""
        is_gathered = DENSE_SHARE * self.own_members <= self.elements
        elements_read = self.own_members if is_gathered else self.elements
        return 4 * self.elements + (0 if self.values == "float32" else 4 * elements_read)

    def summed_bytes(self, count: float, words: float) -> float:
        """Traffic of gathering and encoding values, and of decoding and putting back the sums."""
        return (3 * _INDEX_BYTES + 4) * self.elements + 4 * count + 8 * words


class RoundCost(NamedTuple):
    """A round's network operations, and a worker's memory traffic."""

    operations: tuple[tuple[MessageSize, ...], ...]
    passed_bytes: float


def _plain(*messages: int) -> tuple[MessageSize, ...]:
    # One operation, with a message of each of these numbers of words.
    return tuple(MessageSize(words) for words in messages)


def dense_cost(counts: UnionCounts, unit_elements: int) -> RoundCost:
    """Cost of all elements; exponents are shared by `unit_elements`."""
    elements = counts.elements
    if counts.values == "float32":
        return RoundCost((_plain(elements),), 8 * elements)
    if counts.values == "exact":
        summed_bytes = counts.summed_bytes(elements, counts.dense_words)
        return RoundCost(
            (_plain(counts.agreed_words), _plain(counts.dense_words)), 4 * elements + summed_bytes
        )
    # Read for the exponents; read and written as integers; the same for the sum.
    return RoundCost(((MessageSize(elements, unit_elements),),), 20 * elements)


def packed_cost(counts: UnionCounts) -> RoundCost:
    """Cost of a bit per element, then the values."""
    return RoundCost(
        (_plain(-(-counts.elements // 32), counts.agreed_words), _plain(counts.member_words)),
        counts.scanned_bytes + 6 * _INDEX_BYTES * counts.elements + _member_bytes(counts),
    )


def two_level_cost(counts: UnionCounts) -> RoundCost:
    """Cost of a bit per 64 elements, the bits of live runs, then the values."""
    run_words = 2 * counts.live_runs
    return RoundCost(
        (
            _plain(-(-counts.elements // 2048), counts.agreed_words),
            _plain(run_words),
            _plain(counts.member_words),
        ),
        # Eight passes over the bits of live runs, and four over all bits.
        counts.scanned_bytes + 4 * _INDEX_BYTES * counts.elements + 8 * 4 * run_words + _member_bytes(counts),
    )


def bitmap_cost(counts: UnionCounts) -> RoundCost:
    """Cost of a bit per 256 elements, then all elements of live blocks."""
    live = counts.live_elements
    summed_bytes = counts.summed_bytes(live, counts.live_words) if live else 0
    return RoundCost(
        (
            _plain(-(-counts.elements // (32 * BLOCK_ELEMENTS)), counts.agreed_words),
            _plain(counts.live_words),
        ),
        (4 if counts.values == "float32" else 8) * counts.elements + summed_bytes,
    )


def concurrent_cost(counts: UnionCounts, size: SketchSize, fallback_members: int) -> RoundCost:
    """Cost of index and sketch at once, then the members of tiles that differ from the forecast, packed."""
    direct_words = counts.words_of(size.direct_elements)
    fallback_words = counts.words_of(fallback_members)
    first = _plain(-(-counts.elements // 32), counts.agreed_words, size.words, direct_words)
    passed_bytes = counts.scanned_bytes + 6 * _INDEX_BYTES * counts.elements
    if size.words:
        passed_bytes += sketch_work_bytes(counts.elements, size.words, counts.own_members, counts.digits)
    for count, words in ((size.direct_elements, direct_words), (fallback_members, fallback_words)):
        passed_bytes += counts.summed_bytes(count, words) if count else 0
    return RoundCost((first, _plain(fallback_words)), passed_bytes)


def _member_bytes(counts: UnionCounts) -> float:
    return counts.summed_bytes(counts.members, counts.member_words) if counts.members else 0.0


def round_ps(cost: RoundCost, carrier: Carrier) -> int:
    """Expected time of a round."""
    operations_ps = sum(carrier.time_ps(operation) for operation in cost.operations)
    return carrier.memory_ps(math.ceil(cost.passed_bytes)) + operations_ps


# The union support of a round, from the messages that were observed.
#
# A round with an index has sent its union. A round of blocks has sent its live blocks only, a dense round
# nothing. For these rounds there is only the decoded sum. It lacks members that cancelled each other, or that
# were less than half a step of their block.


INDEX, RUNS, BLOCKS = "index", "index blocks", "block index"  # labels of messages

Observed = Mapping[str, tuple[Message, Merged]]  # messages of a round and their answers, by label

_RUN_WORDS = BLOCK_ELEMENTS // WORD_ELEMENTS


@dataclass
class UnionMemory:
    """One worker's knowledge of one bucket's unions; the same at all workers.

    Take a round that did not send its union. If its sum looks like that of the last round that did, and that
    sum hid members, the round is assumed to have the same union. Otherwise gradients that cancel would be
    taken for sparse again after every dense round.
    """

    _union: WideIndex | None = None
    """The union of the last round that sent it."""
    _shown: WideIndex | None = None
    """The support of that round's sum."""

    def state(self) -> State:
        """The last union that was sent, and the support of its sum."""
        if self._union is None or self._shown is None:
            return {}
        return {"union": self._union.copy(), "shown": self._shown.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        self._union, self._shown = state.get("union"), state.get("shown")

    def learn(self, decoded: Gradient, observed: Observed) -> WideIndex:
        """Learn a round; return its union, or the best estimate of it."""
        nonzero_index = own_index(decoded)
        union = _sent_union(nonzero_index.size, observed)
        if union is not None:
            self._union, self._shown = union, nonzero_index
            return union
        live = _sent_blocks(decoded.size, observed)
        if live is not None:
            nonzero_index = _with_one_in_each(live, nonzero_index)
        if self._union is None or self._shown is None:
            return nonzero_index
        earlier_index = self._shown
        if live is not None:
            earlier_index = _with_one_in_each(_live_blocks(self._union), earlier_index)
        is_hidden = not _are_alike(earlier_index, self._union)
        return self._union if is_hidden and _are_alike(earlier_index, nonzero_index) else nonzero_index


class _Extent(NamedTuple):
    """Sizes of an index."""

    members: int
    runs: int
    """Runs of 64 elements with a member."""
    blocks: int
    """Blocks of 256 elements with a member."""


def _sent_union(index_words: int, observed: Observed) -> WideIndex | None:
    """The union that a round sent; None if it sent no index."""
    words = None if INDEX not in observed else widen(observed[INDEX][1].words)
    if RUNS not in observed:
        return words
    union = np.zeros(index_words, np.uint64)
    if words is not None:  # without words, no run has a member
        bits.scatter_words(widen(observed[RUNS][1].words), words, union)
    return union


def _sent_blocks(elements: int, observed: Observed) -> NDArray[np.bool_] | None:
    """The live blocks that a round sent; None if it sent no block index."""
    if BLOCKS not in observed:
        return None
    words = observed[BLOCKS][1].words.view(np.uint8)
    count = -(-elements // BLOCK_ELEMENTS)
    return np.unpackbits(words, bitorder="little", count=count).astype(np.bool_)


def _live_blocks(index: WideIndex) -> NDArray[np.bool_]:
    return np.asarray(np.logical_or.reduceat(index != 0, np.arange(0, index.size, _RUN_WORDS)))


def _with_one_in_each(live: NDArray[np.bool_], nonzero_index: WideIndex) -> WideIndex:
    """Add the first element of every live block without a member."""
    index = nonzero_index.copy()
    index[_RUN_WORDS * np.flatnonzero(live & ~_live_blocks(nonzero_index))] = 1
    return index


def _are_alike(first: WideIndex, other: WideIndex) -> bool:
    """Whether the sizes of two indexes differ by chance only."""
    extents = np.array([_extent(first), _extent(other)])
    return bool((extents.max(axis=0) <= with_margin(extents.min(axis=0))).all())


def _extent(index: WideIndex) -> _Extent:
    blocks = int(np.count_nonzero(_live_blocks(index)))
    return _Extent(bits.count_members(index), int(np.count_nonzero(index)), blocks)


# A record of one bucket's rounds, and the expected time of its next round in every encoding.


class Choice(StrEnum):
    """The encodings to choose from; the first wins a tie."""

    DENSE = "dense"
    PACKED = "packed"
    TWO_LEVEL = "packed, two_level"
    BITMAP = "block_sparse, bitmap"
    CONCURRENT = "lossless, concurrent"


@dataclass
class Experience:
    """One worker's record of one bucket; the same at all workers.

    A sketch that travels with its index fails where rounds differ. The last rounds say how often: for each,
    in any encoding, what a forecast from the others would have missed. The next round is assumed to be like
    one of these. Jumps do not count: later forecasts include them.
    """

    values: Values
    numbers: NumberFormat[Any]
    unit_elements: int
    """Elements that share an exponent in dense block_exponent."""
    history: History  # the record of all rounds, from which the sketch forecasts
    _union: UnionMemory = field(default_factory=UnionMemory)
    _counts: UnionCounts | None = None

    @property
    def counts(self) -> UnionCounts | None:
        """Counts of the last round's union; None before the first."""
        return self._counts

    def learn(self, decoded: Gradient, observed: Observed, round: Round) -> Seen | None:
        """Learn a round; return its record for the history, None if its numbers were not agreed on."""
        index = self._union.learn(decoded, observed)
        seen = None
        if self.numbers.label in observed or not self.numbers.label:
            pairs = [observed[self.numbers.label]] if self.numbers.label else []
            sent, merged = [message for message, _ in pairs], [message for _, message in pairs]
            members = np.diff(support_of(index, self.numbers.block_elements).starts)
            seen = Seen(members, self.numbers.agree(decoded.size, sent, merged, round))
        digits = None if seen is None else seen.agreed.digits
        counts = count(decoded.size, index, self.values, self.numbers.block_elements, digits)
        # Between an equal share and all members.
        self._counts = counts._replace(own_members=(1 + 1 / round.workers) / 2 * counts.members)
        return seen

    def state(self) -> State:
        """The counts of the last union, and the unions themselves."""
        state = prefixed("union", self._union.state())
        return state if self._counts is None else state | {"counts": np.array(self._counts[1:], np.float64)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state."""
        self._union.restore(part_of(state, "union"))
        if "counts" in state:
            figures = state["counts"].tolist()
            elements, members, own_members, *others = figures
            whole = [int(figure) for figure in others]
            self._counts = UnionCounts(self.values, int(elements), int(members), own_members, *whole)

    def times_ps(self, carrier: Carrier, round: Round) -> dict[Choice, int]:
        """Expected time of a round, in each encoding that can be estimated."""
        return {
            choice: sum(round_ps(cost, carrier) for cost in costs) // len(costs)
            for choice, costs in self.costs(round).items()
        }

    def costs(self, round: Round) -> dict[Choice, list[RoundCost]]:
        """Possible costs of a round; several costs are equally likely."""
        counts = self._counts
        assert counts is not None, "a bucket's first round has no record"
        costs = {
            Choice.DENSE: [dense_cost(counts, self.unit_elements)],
            Choice.PACKED: [packed_cost(counts)],
            Choice.TWO_LEVEL: [two_level_cost(counts)],
            Choice.BITMAP: [bitmap_cost(counts)],
        }
        rounds = self.history.recent(round, counts.elements)
        if rounds:
            forecast = forecast_of(rounds, self.numbers)
            size = sketch_size(self._layout(forecast), counts.elements, forecast.agreed)
            costs[Choice.CONCURRENT] = [
                concurrent_cost(counts, size, fallback) for fallback in self._fallbacks(rounds) or [0]
            ]
        return costs

    def _fallbacks(self, rounds: list[Seen]) -> list[int]:
        """For each round except jumps: the members that a forecast from all others would have missed."""
        totals = np.array([int(seen.members.sum()) for seen in rounds])
        missed = []
        for index, seen in enumerate(rounds if totals.size > 1 else ()):
            if totals[index] <= with_margin(np.delete(totals, index)).max():
                others = rounds[:index] + rounds[index + 1 :]
                forecast = forecast_of(others, self.numbers)
                missed.append(fallback_members(self._layout(forecast), forecast, seen))
        return missed

    def _layout(self, forecast: Seen) -> TileLayout:
        assert self._counts is not None
        sketch, block_elements = Lossless(), self.numbers.block_elements
        return forecast_layout(REPAIRED_TILING, sketch.load, self._counts.elements, forecast, block_elements)


def count(
    elements: int, index: WideIndex, values: Values, block_elements: int, digits: NDArray[np.int64] | None
) -> UnionCounts:
    """Count a union as if one worker had it all; `digits`: words per value, `(blocks,)`, default 1."""
    starts = np.arange(0, index.size, block_elements // WORD_ELEMENTS)
    members = np.add.reduceat(np.bitwise_count(index), starts, dtype=np.int64)
    is_live = index != 0
    run_words = BLOCK_ELEMENTS // WORD_ELEMENTS
    live_runs = np.add.reduceat(is_live, np.arange(0, index.size, run_words), dtype=np.int64) > 0
    sizes = np.minimum(BLOCK_ELEMENTS, elements - BLOCK_ELEMENTS * np.arange(live_runs.size))
    live = np.add.reduceat(
        live_runs * sizes, np.arange(0, sizes.size, block_elements // BLOCK_ELEMENTS), dtype=np.int64
    )
    in_block = np.minimum(block_elements, elements - block_elements * np.arange(starts.size))
    digits_per_member = np.ones_like(members) if digits is None else digits
    return UnionCounts(
        values=values,
        elements=elements,
        members=int(members.sum()),
        own_members=float(members.sum()),
        live_runs=int(np.count_nonzero(is_live)),
        live_elements=int(live.sum()),
        block_elements=block_elements,
        dense_words=int(in_block @ digits_per_member),
        member_words=int(members @ digits_per_member),
        live_words=int(live @ digits_per_member),
    )


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
    wrap_reason: ClassVar[str] = WRAP_REASON
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
        return number_promise(self.values)

    @property
    def merges(self) -> frozenset[Merge]:
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
        figures = replace(
            carrier,
            latency_ps=_in_units(self.latency_us, _PS_PER_US) or carrier.latency_ps,
            rate_bps=_in_units(self.rate_gbps, _BPS_PER_GBPS) or carrier.rate_bps,
            memory_bps=_in_units(self.memory_gbps, _BPS_PER_GBPS) or carrier.memory_bps,
        )
        unit_elements = self.unit_elements or carrier.unit_elements
        return CarriedAuto(self.values, unit_elements=unit_elements, carrier=figures)

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
    _known: dict[int, Experience] = field(default_factory=dict)
    """What is known of each bucket, by its number."""

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """Choose an encoding, report the choice, exchange with it, and learn from the round's messages."""
        experience = self._known.get(round.bucket)
        if (
            experience is not None
            and experience.counts is not None
            and experience.counts.elements != gradient.size
        ):
            experience = None
        note = self._choice(experience, round)
        round.report(note)
        encoder = self.encoders[Choice(note.name)]
        observed: dict[str, tuple[Message, Merged]] = {}
        labels = {INDEX, RUNS, BLOCKS, self.numbers.label}
        decoded = yield from _record(encoder.exchange(gradient, round), labels, observed)
        total = decoded.total
        if total.size:
            if experience is None:
                experience = self._known[round.bucket] = self._new_experience()
            seen = experience.learn(total, observed, round)
            if seen is not None and encoder is not self.sketch:  # the sketch records its rounds itself
                self.sketch.history.add(round, total.size, seen)
        return decoded

    def state(self) -> State:
        """Those of its encoders, and what it knows of each bucket."""
        state: State = {}
        for number, encoder in enumerate(self.encoders.values()):
            state |= prefixed(f"encoders/{number}", encoder.state())
        for bucket, experience in self._known.items():
            state |= prefixed(f"known/{bucket}", experience.state())
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        encoders, buckets = part_of(state, "encoders"), part_of(state, "known")
        for number, encoder in enumerate(self.encoders.values()):
            encoder.restore(part_of(encoders, str(number)))
        self._known = {int(bucket): self._new_experience() for bucket in prefixes(buckets)}
        for bucket, experience in self._known.items():
            experience.restore(part_of(buckets, str(bucket)))

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
    return None if figure is None else max(1, round(figure * unit))


def _format_us(time_ps: int) -> str:
    """Format a time in microseconds, with at least three significant digits."""
    time_us = time_ps / _PS_PER_US
    return f"{time_us:.0f}" if time_us >= 100 else f"{time_us:.3g}"


def _record(exchange: Exchange, labels: Set[str], observed: dict[str, tuple[Message, Merged]]) -> Exchange:
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
