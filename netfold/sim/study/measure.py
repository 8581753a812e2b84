"""Run codecs on gradients, all workers in one process, and compare the decoded sums with exact ones."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.errors import RunError
from netfold.homomorphic.bounds import sums_of_parts, whole_bound
from netfold.homomorphic.codec import DecodeError, EncodeError, Server
from netfold.homomorphic.contract import ContractError, make_encoders
from netfold.homomorphic.fold import Folded, LockStepError, fold
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.promises import ExactSums, exact_sums
from netfold.homomorphic.round import Note, NoteKind, Round
from netfold.sim.checks import error_metrics as kernels
from netfold.sim.checks.error_metrics import Likeness
from netfold.sim.checks.rounds import error_over_bound
from netfold.sim.study.measured_encoder import MeasuredEncoder
from netfold.sim.study.options import NamedCodec
from netfold.sim.study.record import CodecRecord, MessageRecord, SpeedRecord
from netfold.sim.study.source import Cell, Source

Progress = Callable[[str, int, int], None]  # what, done, total

_WARM_UP_ELEMENTS = 1 << 16
_COPY_BYTES, _COPIES = 100_000_000, 5
_MEASURABLE_S = 1e-5  # CPU time from which on the overhead of a call does not matter
_GIGA = 1e9


@dataclass(frozen=True)
class Study:
    """Results of a study."""

    source: Source
    rounds: int
    seed: int
    records: tuple[CodecRecord, ...]
    messages: tuple[MessageRecord, ...]
    speeds: tuple[SpeedRecord, ...]
    copy_gb_per_s: float  # of this machine, with one thread

    def bytes_of(self, record: CodecRecord) -> dict[str, float]:
        """Mean bytes of a round by message label, of one codec on one kind of gradients."""
        place = record.codec, record.pattern, record.density
        return {
            message.label: message.bytes
            for message in self.messages
            if (message.codec, message.pattern, message.density) == place
        }

    @property
    def free_codecs(self) -> list[str]:
        """Codecs that count no work for anything: a device would encode and decode them in no time."""
        counted = {speed.codec for speed in self.speeds if speed.encode_bytes or speed.decode_bytes}
        return [name for name in dict.fromkeys(speed.codec for speed in self.speeds) if name not in counted]

    @property
    def faults(self) -> tuple[str, ...]:
        """Faults of codecs: errors beyond the codec's bound, workers that decode different bits."""
        return tuple(
            f"{name_of(record)}: {fault}"
            for record in self.records
            for is_present, fault in (
                (record.max_error_over_bound is None, "an error where the codec's bound allows none"),
                ((record.max_error_over_bound or 0) > 1, "an error beyond the codec's bound"),
                (not record.replicas_agree, "workers decoded different bits"),
            )
            if is_present
        )


def name_of(record: CodecRecord | MessageRecord | SpeedRecord) -> str:
    """Name of a row of a study: "packed, rows, 1 %"."""
    return f"{record.codec}, {record.pattern}, {share(record.density)}"


def share(density: float) -> str:
    """A density as text: "0.1 %", "12.3 %"."""
    return f"{100 * density:.3g} %"


def run_study(
    codecs: Sequence[NamedCodec], source: Source, rounds: int, seed: int, progress: Progress
) -> Study:
    """Run every codec on all gradients of the source; in a round, all codecs get the same gradients.

    Raises
    ------
    RunError
        A codec cannot encode the gradients or cannot decode, or there is not enough memory.
    """
    cases: list[_Case] = []
    done, total = 0, len(source.cells) * rounds
    try:
        for cell in source.cells:
            own = [_Case(named, cell, source, rounds, seed) for named in codecs]
            cases += own
            for step, gradients in enumerate(cell.rounds(rounds)):
                progress(f"{cell.pattern}, {share(cell.density)}", done, total)
                sums = exact_sums(gradients)
                for case in own:
                    case.add(step, gradients, sums)
                done += 1
    except MemoryError as error:
        raise RunError(f"not enough memory: {error}", "use fewer elements or workers") from None
    copy_gb_per_s = _copy_gb_per_s()
    return Study(
        source,
        rounds,
        seed,
        tuple(case.record() for case in cases),
        tuple(message for case in cases for message in case.messages()),
        tuple(case.speed(copy_gb_per_s) for case in cases),
        copy_gb_per_s,
    )


class _Case:
    """One codec on one kind of gradients, with the same encoders in all rounds."""

    def __init__(self, named: NamedCodec, cell: Cell, source: Source, rounds: int, seed: int) -> None:
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
            some = slice(None if self._tensors else _WARM_UP_ELEMENTS)
            server = self._named.codec.server(self._workers, self._seed)
            self._fold(self._encoders(), server, [gradient[some] for gradient in gradients], step)
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
    ) -> Folded:
        round = Round(step, 0, self._workers, self._seed, tensors=self._tensors)
        try:
            return fold(encoders, gradients, round, server=server)
        except (EncodeError, DecodeError, LockStepError, ContractError) as error:
            place = f"{self._named.name}, {self._cell.pattern}, {share(self._cell.density)}"
            raise RunError(f"{place}: {error}", "leave out this codec, or use other gradients") from None

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
        folded: Folded,
        gradients: Sequence[Gradient],
        sums: ExactSums,
        is_estimate: NDArray[np.bool_],
    ) -> None:
        """Compare worker 0's total with the sum of all gradients, and with the ideal of the contributions."""
        decoded, contributions = folded.decoded[0], folded.contributions
        codec = self._named.codec.judged_by(folded.results[0].is_update)
        self._holds_back |= any(a is not b for a, b in zip(contributions, gradients, strict=True))
        kernels.add_likeness(decoded, sums.totals, self._likeness.sums)
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
            redone_parts=self._counts[NoteKind.REDO],
            redone_of=self._totals[NoteKind.REDO],
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
        place = self._named.name, self._cell.pattern, self._cell.density
        return [MessageRecord(*place, label, count / self._rounds) for label, count in self._bytes.items()]

    def speed(self, copy_gb_per_s: float) -> SpeedRecord:
        """Times of the fastest worker in its fastest round, so that both belong to the same encoding.

        Charges are for a device whose memory has the rate of a copy on this machine.
        """
        times = min((one.fastest for one in self._measured), key=lambda times: times.sum_s)
        place = self._named.name, self._cell.pattern, self._cell.density
        encode, decode = (
            _Leg(time_s, work.read_bytes + work.written_bytes)
            for time_s, work in (
                (times.encode_s, times.encode_work),
                (times.decode_s, times.decode_work),
            )
        )
        return SpeedRecord(
            *place,
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
        """Time of so many bytes at the rate of a copy, which reads and writes each."""
        return self.counted_bytes / (2 * copy_gb_per_s * _GIGA)

    def share_of(self, value: float) -> float | None:
        """A value over the time; None: too short to measure."""
        return value / self.time_s if self.time_s >= _MEASURABLE_S else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _copy_gb_per_s() -> float:
    """Rate at which one thread copies 100 MB into allocated memory, a yardstick for speeds."""
    source = np.ones(_COPY_BYTES // 4, np.float32)
    target = np.zeros_like(source)
    times_s = []
    for _ in range(_COPIES):
        started_s = time.process_time()
        np.copyto(target, source)
        times_s.append(time.process_time() - started_s)
    return _COPY_BYTES / min(times_s) / _GIGA
