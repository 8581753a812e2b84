"""Run codecs on gradients, all workers in one process, and hold what they decode against exact sums."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.bounds import whole_bound
from netfold.homomorphic.codec import DecodeError, EncodeError, Gradient, Note, NoteKind, Round
from netfold.homomorphic.fold import fold
from netfold.sim.checks.rounds.sums import error_over_bound
from netfold.sim.errors import RunError
from netfold.sim.study.exact import ExactSums, exact_sums
from netfold.sim.study.options import NamedCodec
from netfold.sim.study.probe import Probe
from netfold.sim.study.record import CodecRecord, MessageRecord, SpeedRecord
from netfold.sim.study.source import Cell, Source

Progress = Callable[[str, int, int], None]  # what, done, total

_WARM_UP_ELEMENTS = 1 << 16
_COPY_BYTES, _COPIES = 100_000_000, 5
_TELLING_S = 1e-5  # CPU time that says something about a codec, and not about calling it
_GIGA = 1e9


@dataclass(frozen=True)
class Study:
    """All that a study found."""

    source: Source
    rounds: int
    seed: int
    records: tuple[CodecRecord, ...]
    messages: tuple[MessageRecord, ...]
    speeds: tuple[SpeedRecord, ...]
    copy_gb_per_s: float  # of this machine, with one thread

    def bytes_of(self, record: CodecRecord) -> dict[str, float]:
        """Mean bytes of a round by message, of one codec on gradients of one kind."""
        place = record.codec, record.pattern, record.density
        return {
            message.label: message.bytes
            for message in self.messages
            if (message.codec, message.pattern, message.density) == place
        }

    @property
    def faults(self) -> tuple[str, ...]:
        """What no codec may do: errors beyond the codec's own bound, workers that decode different bits."""
        return tuple(
            f"{name_of(record)}: {fault}"
            for record in self.records
            for is_so, fault in (
                (record.max_error_over_bound is None, "an error where the codec's bound allows none"),
                ((record.max_error_over_bound or 0) > 1, "an error beyond the codec's bound"),
                (not record.replicas_agree, "workers decoded different bits"),
            )
            if is_so
        )


def name_of(record: CodecRecord | MessageRecord | SpeedRecord) -> str:
    """What a row of a study is about, for people: "packed, rows, 1 %"."""
    return f"{record.codec}, {record.pattern}, {share(record.density)}"


def share(density: float) -> str:
    """A density for people, as short as they write it: "0.1 %", "12.3 %"."""
    return f"{100 * density:.3g} %"


def run_study(
    codecs: Sequence[NamedCodec], source: Source, rounds: int, seed: int, progress: Progress
) -> Study:
    """Every codec on all gradients of the source; codecs of a round meet the same gradients.

    Raises
    ------
    RunError
        A codec cannot carry the gradients or cannot decode, or memory does not suffice.
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
    return Study(
        source,
        rounds,
        seed,
        tuple(case.record() for case in cases),
        tuple(message for case in cases for message in case.messages()),
        tuple(case.speed() for case in cases),
        _copy_gb_per_s(),
    )


class _Case:
    """One codec on one kind of gradients; its encoders live as long as it does."""

    def __init__(self, named: NamedCodec, cell: Cell, source: Source, rounds: int, seed: int) -> None:
        self._named, self._cell, self._rounds, self._seed = named, cell, rounds, seed
        self._dense_bytes = 4 * source.elements
        self._elements, self._workers = source.elements, source.workers
        self._probes = self._encoders()
        self._bytes: Counter[str] = Counter()
        self._operations = self._members = 0
        self._counts: Counter[NoteKind] = Counter()
        self._totals: Counter[NoteKind] = Counter()
        self._choices: Counter[str] = Counter()
        self._estimated = self._inexact = 0
        self._error = self._error_over_bound = 0.0
        self._replicas_agree = True

    def _encoders(self) -> list[Probe]:
        codec, workers = self._named.codec, self._workers
        return [Probe(codec.worker(rank, workers, self._seed)) for rank in range(workers)]

    def add(self, step: int, gradients: Sequence[Gradient], sums: ExactSums) -> None:
        """One more round."""
        if step == 0:  # what is compiled or read on first use is none of the codec's time
            self._fold(self._encoders(), [gradient[:_WARM_UP_ELEMENTS] for gradient in gradients], step)
        decoded = self._fold(self._probes, gradients, step)
        first = self._probes[0]
        self._operations += len(first.operations)
        for operation in first.operations:
            for sent in operation:
                self._bytes[sent.label] += sent.size_bytes
        self._replicas_agree &= all(
            np.array_equal(decoded[0].view(np.int32), other.view(np.int32)) for other in decoded[1:]
        )
        estimates = self._hear(first.notes, sums)
        self._compare(decoded[0], gradients, sums, estimates)

    def _fold(self, encoders: Sequence[Probe], gradients: Sequence[Gradient], step: int) -> list[Gradient]:
        try:
            return fold(encoders, gradients, Round(step, 0, self._workers, self._seed)).decoded
        except (EncodeError, DecodeError) as error:
            place = f"{self._named.name}, {self._cell.pattern}, {share(self._cell.density)}"
            raise RunError(f"{place}: {error}", "leave this codec out, or give it other gradients") from None

    def _hear(self, notes: Sequence[Note], sums: ExactSums) -> NDArray[np.bool_]:
        """Take down a round's notes; return which elements are estimates, `(elements,)` bool."""
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
        decoded: Gradient,
        gradients: Sequence[Gradient],
        sums: ExactSums,
        is_estimate: NDArray[np.bool_],
    ) -> None:
        self._inexact += int(np.count_nonzero(decoded != sums.rounded))
        with np.errstate(invalid="ignore"):
            error = np.abs(decoded - sums.totals)
        error[np.isnan(error)] = np.inf
        error[np.isinf(decoded) & (decoded == sums.rounded)] = 0.0  # as right as float32 can be
        self._error = max(self._error, float(error.max(initial=0.0)))
        bound = whole_bound(self._named.codec.error_bound(gradients), gradients)
        error[is_estimate] = 0.0
        relative = error_over_bound(error, bound)
        self._error_over_bound = max(self._error_over_bound, float(relative.max(initial=0.0)))

    def record(self) -> CodecRecord:
        """What all rounds came to."""
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
            max_error_over_bound=_finite(self._error_over_bound),
            exact_sums=self._inexact == 0,
            inexact_elements=self._inexact,
            replicas_agree=self._replicas_agree,
            choices="; ".join(
                f"{text} ({count} of {rounds} rounds)" for text, count in sorted(self._choices.items())
            ),
        )

    def messages(self) -> list[MessageRecord]:
        """Bytes by label, in the order in which labels were first seen."""
        place = self._named.name, self._cell.pattern, self._cell.density
        return [MessageRecord(*place, label, count / self._rounds) for label, count in self._bytes.items()]

    def speed(self) -> SpeedRecord:
        """The fastest worker's times in its fastest round, so that both are of one encoding."""
        times = min((probe.fastest for probe in self._probes), key=lambda times: times.sum_s)
        place = self._named.name, self._cell.pattern, self._cell.density
        rates = [self._dense_bytes / time_s / _GIGA if time_s >= _TELLING_S else None for time_s in times]
        return SpeedRecord(*place, *times, *rates)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _copy_gb_per_s() -> float:
    """How fast one thread copies 100 MB into memory that is already there: a yardstick for speeds."""
    source = np.ones(_COPY_BYTES // 4, np.float32)
    target = np.zeros_like(source)
    times_s = []
    for _ in range(_COPIES):
        started_s = time.process_time()
        np.copyto(target, source)
        times_s.append(time.process_time() - started_s)
    return _COPY_BYTES / min(times_s) / _GIGA
