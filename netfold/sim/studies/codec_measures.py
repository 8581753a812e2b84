"""Measures codecs on gradients, round by round: CPU time, bytes, errors, memory."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.errors import RunError
from netfold.homomorphic.codec import (
    ContractError,
    Decoded,
    DecodeError,
    EncodeError,
    Encoder,
    Exchange,
    LockStepError,
    Server,
    make_encoders,
)
from netfold.homomorphic.codec_driver import drive
from netfold.homomorphic.error_bounds import ExactSums, sums_of_parts, whole_bound
from netfold.homomorphic.fold import AllReduceResult, fold
from netfold.homomorphic.merge import Merged, Work
from netfold.homomorphic.message import Gradient, Message, Note, NoteKind, Round
from netfold.sim.checks import error_metrics
from netfold.sim.checks.checks import FALLBACK_LABEL
from netfold.sim.checks.error_metrics import Likeness
from netfold.sim.checks.round_checks import error_over_bound
from netfold.sim.studies.codec_study_inputs import GradientsCell, NamedCodec, Source


class Sent(NamedTuple):
    """Label and announced size of a message."""

    label: str
    size_bytes: int


class Times(NamedTuple):
    """CPU time of one round, and the work that the codec counts for it."""

    encode_s: float
    decode_s: float
    encode_work: Work = Work(launches=0)
    decode_work: Work = Work(launches=0)

    @property
    def sum_s(self) -> float:
        # One encoding may take longer to encode and another to decode.
        return self.encode_s + self.decode_s


def together(works: Sequence[Work]) -> Work:
    """All work, one piece after the other."""
    done = [work for work in works if not work.is_free]
    return Work(
        sum(work.read_bytes for work in done),
        sum(work.written_bytes for work in done),
        sum(work.flops for work in done),
        sum(work.launches for work in done),
    )


class MeasuredEncoder(Encoder):
    """An encoder that behaves as the wrapped one and records its costs.

    Encoding is everything up to the last operation that is not a fallback, and the time between operations.
    Decoding is everything after it. Blocks that a network would scale count as encoding.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.fastest = Times(math.inf, math.inf)  # the fastest round's
        self.operations: list[list[Sent]] = []  # the last round's
        self.notes: list[Note] = []
        self._encoder = encoder

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """The wrapped encoder's exchange, with scaled messages staged."""
        self.operations, self.notes = [], []
        noted = replace(round, report=self.notes.append)
        exchange = drive(self._encoder, gradient, noted, watch=self._record)
        encode_s = decode_s = 0.0
        encode_work: list[Work] = []
        decode_work: list[Work] = []
        answers: tuple[Merged, ...] | None = None
        while True:
            started_s = time.process_time()
            sent = exchange.send(answers)
            decode_s += time.process_time() - started_s
            if isinstance(sent, Decoded):
                break
            decode_work += [message.work for message in sent]
            if any(message.label != FALLBACK_LABEL for message in sent):
                encode_s, decode_s = encode_s + decode_s, 0.0
                encode_work, decode_work = encode_work + decode_work, []
            decode_work += [message.decode_work for message in sent]
            answers = yield sent
        round_times = Times(encode_s, decode_s, together(encode_work), together(decode_work))
        self.fastest = min(self.fastest, round_times, key=lambda times: times.sum_s)
        return sent

    def _record(self, messages: tuple[Message, ...]) -> None:
        self.operations.append([Sent(message.label, message.size_bytes) for message in messages])


# Records of a study: one flat record type per table, all with the same first three columns.


@dataclass(frozen=True, slots=True)
class CodecRecord:
    """One codec on gradients of one pattern and density, over all rounds."""

    codec: str
    """The codec as given: a kind, or a kind with options."""
    pattern: str
    density: float
    """The density as requested; of a file: as found."""
    union_density: float  # share of elements that are non-zero at some worker, mean over rounds
    wire_ratio: float | None  # dense float32 bytes over those that worker 0 sends up; None if it sends none
    up_bytes: float
    """Bytes that worker 0 sends up, mean per round."""
    operations: float  # network operations, mean per round
    recovery: float  # share of the union's elements whose decoded sum is not an estimate
    fallback_parts: int
    """Parts that did not decode and were sent again, sum over rounds."""
    fallback_of: int
    """The number of parts that `fallback_parts` is out of."""
    forecast_misses: int  # sum over rounds
    infinite_elements: int
    """Elements whose sum is beyond float32, sum over rounds."""
    max_abs_error: float | None
    """The largest difference from the sum of all gradients; None: not finite."""
    nmse: float | None  # squared error over the squared norm of the sum of all gradients, over all rounds
    cosine: float | None
    """The cosine of the angle between totals and the sums of all gradients, over all rounds."""
    holds_back: bool  # workers contribute something else than their gradients
    max_error_over_bound: float | None
    """The largest difference from the sum of contributions, estimates left out; 1 is the codec's bound."""
    exact_sums: bool  # every decoded element is the exact sum, rounded once to float32
    inexact_elements: int
    """Decoded elements that are not the exact sum, sum over rounds."""
    replicas_agree: bool  # all workers decoded the same bits
    choices: str  # the codec's choices, each with its number of rounds


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """Bytes that worker 0 sends under one label."""

    codec: str
    pattern: str
    density: float
    label: str
    bytes: float  # mean per round


@dataclass(frozen=True, slots=True)
class SpeedRecord:
    """Speed of this machine: times of the round with the least CPU time, over all workers."""

    codec: str
    pattern: str
    density: float
    encode_s: float
    decode_s: float
    encode_gb_per_s: float | None  # dense float32 bytes over the time; None: too short to measure
    decode_gb_per_s: float | None
    encode_bytes: int
    """Bytes that the codec counts as read and written to encode."""
    decode_bytes: int
    encode_charge: float | None  # time that is charged for the counted work, over the measured time
    decode_charge: float | None


# Run codecs on gradients, all workers in one process, and compare the decoded sums with exact ones.


_WARM_UP_ELEMENTS = 1 << 16
_COPY_BYTES, _COPIES = 100_000_000, 5
_MEASURABLE_S = 1e-5  # CPU time from which on the overhead of a call does not matter
_GIGA = 1e9


def name_of(record: CodecRecord | MessageRecord | SpeedRecord) -> str:
    return f"{record.codec}, {record.pattern}, {share(record.density)}"


def share(density: float) -> str:
    return f"{100 * density:.3g} %"


class Case:
    """One codec on one kind of gradients, with the same encoders in all rounds."""

    def __init__(
        self, named: NamedCodec, cell: GradientsCell, source: Source, rounds: int, seed: int
    ) -> None:
        self._named, self._cell, self._rounds, self._seed = named, cell, rounds, seed
        self._dense_bytes = 4 * source.elements
        self._elements, self._workers, self._tensors = source.elements, source.workers, source.tensors
        self._measured = self._encoders()
        self._server = named.codec.server(self._workers, seed)
        self._bytes: Counter[str] = Counter()
        self._operations = self._members = 0
        self._counts: Counter[NoteKind] = Counter()
        self._totals: Counter[NoteKind] = Counter()
        self._choices: Counter[str] = Counter()
        self._estimated = self._inexact = 0
        self._error = self._error_over_bound = 0.0
        self._replicas_agree, self._holds_back = True, False
        self._likeness = Likeness()

    def _encoders(self) -> list[MeasuredEncoder]:
        codec, workers = self._named.codec, self._workers
        return list(map(MeasuredEncoder, make_encoders(codec, workers, self._seed)))

    def add(self, step: int, gradients: Sequence[Gradient], sums: ExactSums) -> None:
        """Run one more round."""
        if step == 0:  # a warm-up: compilation on first use is not the codec's time
            warm_up = slice(None if self._tensors else _WARM_UP_ELEMENTS)
            server = self._named.codec.server(self._workers, self._seed)
            self._fold(self._encoders(), server, [gradient[warm_up] for gradient in gradients], step)
        folded = self._fold(self._measured, self._server, gradients, step)
        decoded = folded.decoded
        first = self._measured[0]
        self._operations += len(first.operations)
        for operation in first.operations:
            for sent in operation:
                self._bytes[sent.label] += sent.size_bytes
        self._replicas_agree &= all(
            np.array_equal(decoded[0].view(np.int32), other.view(np.int32)) for other in decoded[1:]
        )
        estimates = self._take_notes(first.notes, sums)
        self._compare(folded, gradients, sums, estimates)

    def _fold(
        self,
        encoders: Sequence[MeasuredEncoder],
        server: Server | None,
        gradients: Sequence[Gradient],
        step: int,
    ) -> AllReduceResult:
        round = Round(step, 0, self._workers, self._seed, tensors=self._tensors)
        try:
            return fold(encoders, gradients, round, server=server)
        except (EncodeError, DecodeError, LockStepError, ContractError) as error:
            where = f"{self._named.name}, {self._cell.pattern}, {share(self._cell.density)}"
            raise RunError(f"{where}: {error}", "leave out this codec, or use other gradients") from None

    def _take_notes(self, notes: Sequence[Note], sums: ExactSums) -> NDArray[np.bool_]:
        """Count a round's notes; returns which elements are estimates, `(elements,)` bool."""
        is_estimate = np.zeros(self._elements, np.bool_)
        for note in notes:
            self._counts[note.kind] += note.count
            self._totals[note.kind] += note.total
            if note.kind is NoteKind.CHOICE:
                self._choices[note.name] += 1
            if note.kind is NoteKind.ESTIMATE and note.elements is not None:
                is_estimate[note.elements] = True
            elif note.kind is NoteKind.ESTIMATE:
                self._estimated += note.count
        self._estimated += int(np.count_nonzero(is_estimate & sums.is_member))
        self._members += int(np.count_nonzero(sums.is_member))
        return is_estimate

    def _compare(
        self,
        folded: AllReduceResult,
        gradients: Sequence[Gradient],
        sums: ExactSums,
        is_estimate: NDArray[np.bool_],
    ) -> None:
        """Compare worker 0's total with the sum of all gradients, and with the ideal of the contributions."""
        decoded, contributions = folded.decoded[0], folded.contributions
        codec = self._named.codec.judged_by(folded.results[0].is_update)
        self._holds_back |= any(a is not b for a, b in zip(contributions, gradients, strict=True))
        error_metrics.add_likeness(decoded, sums.totals, self._likeness.sums)
        self._inexact += int(np.count_nonzero(decoded != sums.rounded))
        with np.errstate(invalid="ignore"):
            error = np.abs(decoded - sums.totals)
        error[np.isnan(error)] = np.inf
        error[np.isinf(decoded) & (decoded == sums.rounded)] = 0.0  # the right result in float32
        self._error = max(self._error, float(error.max(initial=0.0)))
        if self._holds_back:
            parts = [np.array(codec.ideal(part)) for part in sums_of_parts(contributions)]
            error = np.abs(decoded - np.concatenate(parts)) if parts else np.empty(0)
        bound = whole_bound(codec.error_bound(contributions), contributions)
        error[is_estimate] = 0.0
        relative = error_over_bound(error, bound)
        self._error_over_bound = max(self._error_over_bound, float(relative.max(initial=0.0)))

    def record(self) -> CodecRecord:
        """Results of all rounds."""
        sent_bytes, rounds = self._bytes.total(), self._rounds
        return CodecRecord(
            codec=self._named.name,
            pattern=self._cell.pattern,
            density=self._cell.density,
            union_density=self._members / (rounds * self._elements),
            wire_ratio=rounds * self._dense_bytes / sent_bytes if sent_bytes else None,
            up_bytes=sent_bytes / rounds,
            operations=self._operations / rounds,
            recovery=1 - self._estimated / self._members if self._members else 1.0,
            fallback_parts=self._counts[NoteKind.FALLBACK],
            fallback_of=self._totals[NoteKind.FALLBACK],
            forecast_misses=self._counts[NoteKind.FORECAST],
            infinite_elements=self._counts[NoteKind.INFINITE],
            max_abs_error=_finite(self._error),
            nmse=self._likeness.nmse,
            cosine=self._likeness.cosine,
            holds_back=self._holds_back,
            max_error_over_bound=_finite(self._error_over_bound),
            exact_sums=self._inexact == 0,
            inexact_elements=self._inexact,
            replicas_agree=self._replicas_agree,
            choices="; ".join(
                f"{text} ({count} of {rounds} rounds)" for text, count in sorted(self._choices.items())
            ),
        )

    def messages(self) -> list[MessageRecord]:
        """Bytes by label, in order of first appearance."""
        case_key = self._named.name, self._cell.pattern, self._cell.density
        return [MessageRecord(*case_key, label, count / self._rounds) for label, count in self._bytes.items()]

    def speed(self, copy_gb_per_s: float) -> SpeedRecord:
        """Times of the fastest worker in its fastest round, so that both belong to the same encoding.

        Charges are for a device whose memory has the rate of a copy on this machine.
        """
        times = min((encoder.fastest for encoder in self._measured), key=lambda times: times.sum_s)
        case_key = self._named.name, self._cell.pattern, self._cell.density
        encode, decode = (
            _Leg(time_s, work.read_bytes + work.written_bytes)
            for time_s, work in (
                (times.encode_s, times.encode_work),
                (times.decode_s, times.decode_work),
            )
        )
        return SpeedRecord(
            *case_key,
            encode_s=encode.time_s,
            decode_s=decode.time_s,
            encode_gb_per_s=encode.share_of(self._dense_bytes / _GIGA),
            decode_gb_per_s=decode.share_of(self._dense_bytes / _GIGA),
            encode_bytes=encode.counted_bytes,
            decode_bytes=decode.counted_bytes,
            encode_charge=encode.share_of(encode.charged_s(copy_gb_per_s)),
            decode_charge=decode.share_of(decode.charged_s(copy_gb_per_s)),
        )


class _Leg(NamedTuple):
    """Encoding or decoding: its time, and the bytes that the codec counts for it."""

    time_s: float
    counted_bytes: int

    def charged_s(self, copy_gb_per_s: float) -> float:
        # A copy reads and writes each byte.
        return self.counted_bytes / (2 * copy_gb_per_s * _GIGA)

    def share_of(self, value: float) -> float | None:
        # None: too short to measure.
        return value / self.time_s if self.time_s >= _MEASURABLE_S else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def copy_rate_gb_per_s() -> float:
    """Rate at which one thread copies 100 MB into allocated memory, a yardstick for speeds."""
    source = np.ones(_COPY_BYTES // 4, np.float32)
    target = np.zeros_like(source)
    times_s = []
    for _ in range(_COPIES):
        started_s = time.process_time()
        np.copyto(target, source)
        times_s.append(time.process_time() - started_s)
    return _COPY_BYTES / min(times_s) / _GIGA
