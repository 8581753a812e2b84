"""A training job in simulated time: workers compute, send buckets that are ready, decode, and update.

Each worker is one SimPy process per step that takes its buckets in gradient-ready order, one at a time; all
workers of a bucket run the same exchange, each at its own time. Values are computed when simulated time
reaches them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec, Decoded, DecodeError, EncodeError, Encoder, advance
from netfold.homomorphic.message import Merged, Message
from netfold.homomorphic.round import Round
from netfold.homomorphic.stage import stage
from netfold.sim.checks.codec_notes import count_notes
from netfold.sim.checks.journal import Journal, RoundLog, covered_ps
from netfold.sim.checks.rounds import Findings, Operation, WrongWord, examine
from netfold.sim.collectives.collective import Collective
from netfold.sim.diagnosis.snapshot import HAS_CRASHED
from netfold.sim.engine.engine import Engine
from netfold.sim.network.host_time import HostTimes
from netfold.sim.results.records import PhaseRecord, StepRecord
from netfold.sim.run.lock_step import MessageAgreement, require_declared
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.workload import Bucket, Workload
from netfold.sim.workload.device import Device, step_times


@dataclass(frozen=True)
class JobParts:
    """The parts of a job."""

    label: str  # in its records: the variant's name, and the job's where there are several
    seed: int
    workload: Workload
    codec: Codec
    collective: Collective
    device: Device
    hosts: HostTimes
    host_links: list[tuple[int, int]]  # of each worker: link rows out of and into its host
    reporter: ProgressReporter
    set_activity: Callable[[int, str, int], None] = lambda worker, what, until_ps: None  # of a worker


class Computed(NamedTuple):
    """When one worker finishes each computation of a step."""

    forward_end_ps: int
    backward_end_ps: int
    ready_ps: list[int]  # of each bucket: when its gradient is ready


class TrainingJob:
    """Runs the steps of a workload over a collective, and records them in a journal."""

    def __init__(self, environment: simpy.Environment, engine: Engine, parts: JobParts) -> None:
        self.journal = Journal(len(parts.workload.buckets))
        self.failure: EncodeError | DecodeError | None = None  # the error that ended it early
        self._environment, self._engine, self._parts = environment, engine, parts
        workers = parts.workload.workers
        self._encoders: list[Encoder] = [
            parts.codec.worker(rank, workers, parts.seed) for rank in range(workers)
        ]
        self._operations = [0] * workers  # begun so far
        self._agreement = MessageAgreement(workers)
        self._open: dict[tuple[int, int], RoundLog] = {}  # rounds begun and not closed, by step and bucket
        self._closed = 0  # rounds
        self._failed = environment.event()
        # Bytes that each worker's links had sent when its last round ended.
        self._wire_bytes = np.zeros((workers, 2), np.int64)

    def steps(self, count: int, start_ps: int = 0) -> Generator[simpy.Event, Any, None]:
        """The job's SimPy process; it ends early where `failure` is set."""
        yield self._environment.timeout(start_ps)
        for step in range(count):
            self._parts.reporter.begin_step()
            yield from self._step(step)
            if self.failure is not None:
                return

    def _step(self, step: int) -> Generator[simpy.Event, Any, None]:
        parts, start_ps = self._parts, int(self._environment.now)
        workload = parts.workload
        parts.reporter.report(f"gradients of step {step}")
        gradients = workload.gradients(step)
        computed = [self._compute(step, worker) for worker in range(workload.workers)]
        rounds = [RoundLog([own[bucket.index] for own in gradients]) for bucket in workload.buckets]
        ends = [
            self._environment.process(self._worker(step, worker, computed[worker].ready_ps, rounds))
            for worker in range(workload.workers)
        ]
        yield self._environment.all_of(ends) | self._failed
        if self.failure is not None:
            return
        end_ps = int(self._environment.now)
        backward_end_ps = max(own.backward_end_ps for own in computed)
        workload.apply(step, [log.decoded[0].total for log in rounds])
        self.journal.steps.append(
            StepRecord(
                variant=parts.label,
                step=step,
                start_ps=start_ps,
                forward_end_ps=max(own.forward_end_ps for own in computed),
                backward_end_ps=backward_end_ps,
                aggregation_start_ps=min(own.ready_ps[0] for own in computed),
                aggregation_end_ps=end_ps,
                aggregation_ps=covered_ps([(log.start_ps or 0, log.end_ps) for log in rounds]),
                end_ps=max(end_ps, backward_end_ps),
                elements=sum(bucket.elements for bucket in workload.buckets),
                loss=workload.loss,
            )
        )

    def _compute(self, step: int, worker: int) -> Computed:
        """When one worker computes in a step that begins now, at the speed of its host."""
        parts, now_ps = self._parts, int(self._environment.now)
        forward_ps, backward_ps = step_times(parts.device, parts.workload.cost)
        work_ps = [forward_ps + int(bucket.ready_share * backward_ps) for bucket in parts.workload.buckets]
        begin_ps, forward_end_ps, backward_end_ps, *ready_ps = (
            parts.hosts.end_ps(worker, now_ps, some_ps)
            for some_ps in (0, forward_ps, forward_ps + backward_ps, *work_ps)
        )
        crash_ps = parts.hosts.crash_ps(worker)
        forward_span = min(begin_ps, crash_ps), min(forward_end_ps, crash_ps)
        self._phase(step, -1, worker, ("forward", "", 0), forward_span)
        self._phase(step, -1, worker, ("backward", "", 0), (forward_span[1], min(backward_end_ps, crash_ps)))
        return Computed(forward_end_ps, backward_end_ps, ready_ps)

    def _worker(
        self, step: int, worker: int, ready_ps: list[int], rounds: list[RoundLog]
    ) -> Generator[simpy.Event, Any, None]:
        """One worker's step. It never ends if its codec cannot encode or decode a gradient."""
        try:
            yield from self._buckets(step, worker, ready_ps, rounds)
        except (EncodeError, DecodeError) as error:
            if self.failure is None:
                self.failure = error
                self._failed.succeed()
            yield self._environment.event()

    def _buckets(
        self, step: int, worker: int, ready_ps: list[int], rounds: list[RoundLog]
    ) -> Generator[simpy.Event, Any, None]:
        """Aggregate the buckets one after another."""
        parts = self._parts
        for bucket, log in zip(parts.workload.buckets, rounds, strict=True):
            if ready_ps[bucket.index] > self._environment.now:
                what = f"computes bucket {bucket.index} of step {step}"
                yield self._busy(worker, what, ready_ps[bucket.index])
            if log.start_ps is None:
                log.start_ps = int(self._environment.now)
                self._open[step, bucket.index] = log
            yield from self._round(step, bucket.index, worker, log)
            log.wire_bytes += self._wire_bytes_since(worker)
            if len(log.decoded) == parts.workload.workers:
                self._close(step, bucket, log)
        parts.set_activity(worker, f"is done with step {step}", int(self._environment.now))

    def _round(self, step: int, bucket: int, worker: int, log: RoundLog) -> Generator[simpy.Event, Any, None]:
        """One worker's side of one round: drive its encoder, charge its work, wait for the network."""
        parts = self._parts
        notes = log.notes[worker] = []
        key = Round(
            step, bucket, parts.workload.workers, parts.seed, parts.collective.takes_floats, notes.append
        )
        exchange = stage(
            self._encoders[worker].exchange(log.gradients[worker], key), parts.collective.pipelines
        )
        answers: tuple[Merged, ...] | None = None
        index = 0
        while True:
            messages = advance(exchange, answers)
            if isinstance(messages, Decoded):
                log.store(worker, messages)
                return
            require_declared(parts.codec, worker, messages)
            while len(log.operations) <= index:
                log.operations.append(Operation(number=self._operations[worker]))
            self._agreement.require(self._operations[worker], worker, (step, bucket, index), messages)
            self._operations[worker] += 1
            log.operations[index].sent[worker] = messages
            answers = yield from self._operation(step, bucket, worker, messages)
            log.operations[index].received[worker] = answers
            index += 1

    def _operation(
        self, step: int, bucket: int, worker: int, messages: tuple[Message, ...]
    ) -> Generator[simpy.Event, Any, tuple[Merged, ...]]:
        """Encode, exchange and decode one operation, in simulated time."""
        label = " + ".join(message.label for message in messages)
        size_bytes = sum(message.size_bytes for message in messages)
        encode_ps = sum(self._parts.device.work_ps(m.work.read_bytes, m.work.written_bytes) for m in messages)
        decode_ps = sum(
            self._parts.device.work_ps(m.decode_work.read_bytes, m.decode_work.written_bytes)
            for m in messages
        )
        place = f"'{label}' of bucket {bucket} of step {step}"
        times = [int(self._environment.now)]
        yield self._busy(worker, f"encodes {place}", self._parts.hosts.end_ps(worker, times[0], encode_ps))
        times.append(int(self._environment.now))
        self._parts.set_activity(worker, f"waits for {place}", times[1])
        merged = yield from self._parts.collective.exchange(worker, messages)
        times.append(int(self._environment.now))
        yield self._busy(worker, f"decodes {place}", self._parts.hosts.end_ps(worker, times[2], decode_ps))
        times.append(int(self._environment.now))
        for phase, start_ps, end_ps in zip(("encode", "network", "decode"), times, times[1:], strict=False):
            carried = size_bytes if phase == "network" else 0
            self._phase(step, bucket, worker, (phase, label, carried), (start_ps, end_ps))
        return merged

    def _busy(self, worker: int, what: str, end_ps: int) -> simpy.Event:
        """An event that fires when a worker ends an activity; never if the worker crashes before."""
        crash_ps = self._parts.hosts.crash_ps(worker)
        if max(end_ps, int(self._environment.now)) >= crash_ps:
            self._parts.set_activity(worker, HAS_CRASHED, crash_ps)
        else:
            self._parts.set_activity(worker, what, end_ps)
        return self._parts.hosts.until(worker, end_ps)

    def _phase(
        self, step: int, bucket: int, worker: int, what: tuple[str, str, int], when: tuple[int, int]
    ) -> None:
        if when[1] > when[0] or what[0] == "network":
            phase, label, size_bytes = what
            self.journal.phases.append(
                PhaseRecord(self._parts.label, step, bucket, worker, phase, label, *when, size_bytes)
            )

    def _close(self, step: int, bucket: Bucket, log: RoundLog) -> None:
        """Examine and record a round that the last worker has decoded."""
        parts = self._parts
        parts.reporter.report(f"bucket {bucket.index} of step {step} is being checked", self._closed_share(1))
        workers = range(parts.workload.workers)
        decoded = [log.decoded[worker] for worker in workers]
        counts = count_notes([log.notes[worker] for worker in workers], bucket.elements)
        overflow = parts.collective.overflow
        findings = examine(parts.codec, log.gradients, decoded, log.operations, counts.exempt, overflow)
        log.end_ps = int(self._environment.now)
        self.journal.findings.append(self._located(findings))
        self.journal.rounds.append(log.record(parts.label, step, bucket, findings, counts))
        self.journal.notes += log.note_records(parts.label, step, bucket.index)
        del self._open[step, bucket.index]
        self._closed += 1
        log.operations.clear()
        log.notes.clear()
        log.decoded = {0: decoded[0]}  # only worker 0's is applied: free the memory of the others

    def share(self) -> float:
        """Share of the current step that is done: closed rounds and the current round's network share."""
        return self._closed_share(self._parts.collective.share())

    def _closed_share(self, of_next: float) -> float:
        count = len(self._parts.workload.buckets)
        return (self._closed % count + of_next) / count

    def record_open_notes(self) -> None:
        """Record the notes on rounds that were still open when the job ended."""
        for (step, bucket), log in self._open.items():
            self.journal.notes += log.note_records(self._parts.label, step, bucket)

    def _located(self, findings: Findings) -> Findings:
        """Findings with the places where the first wrong words were merged."""
        return replace(
            findings,
            first_wrong=self._with_place(findings.first_wrong),
            first_clipped=self._with_place(findings.first_clipped),
            first_wrong_float=self._with_place(findings.first_wrong_float),
        )

    def _with_place(self, wrong: WrongWord | None) -> WrongWord | None:
        if wrong is None:
            return None
        place = self._parts.collective.locate(wrong.worker, wrong.operation, wrong.part, wrong.word)
        return replace(wrong, place=place)

    def _wire_bytes_since(self, worker: int) -> NDArray[np.int64]:
        """Bytes out of and into a worker's host since its last round ended; its rounds do not overlap."""
        now = np.array([self._engine.sent_bytes(link) for link in self._parts.host_links[worker]])
        since: NDArray[np.int64] = now - self._wire_bytes[worker]
        self._wire_bytes[worker] = now
        return since
