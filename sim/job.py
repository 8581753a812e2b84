"""A training job in simulated time: workers compute, send buckets as they get ready, decode, and update.

Each worker is one SimPy process per step that takes its buckets in gradient-ready order, one at a time; all
workers of a bucket run the same exchange, each at its own time. Values are computed when simulated time
reaches them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from homomorphic.codec import Codec, Encoder, Gradient, Merged, Message, Round
from homomorphic.fold import stage
from sim.collectives.collective import Collective
from sim.engine.engine import Engine
from sim.record import PhaseRecord, RoundRecord, StepRecord
from sim.verify import Findings, Operation, examine
from sim.workload import Bucket, Workload
from sim.workload.device import Device, step_times

REDO_LABEL = "redo"


@dataclass(frozen=True)
class JobParts:
    """What a job is made of."""

    variant: str
    seed: int
    workload: Workload
    codec: Codec
    collective: Collective
    device: Device
    host_links: list[tuple[int, int]]  # of each worker: link rows out of and into its host
    step_begins: Callable[[], None]  # told of every step
    tell: Callable[[int, str, int], None] = lambda worker, what, until_ps: None  # what a worker is at


@dataclass
class RoundLog:
    """What has been seen of one round so far."""

    gradients: list[Gradient]  # every worker's
    operations: list[Operation] = field(default_factory=list)
    decoded: dict[int, Gradient] = field(default_factory=dict)
    start_ps: int | None = None
    end_ps: int = 0
    wire_bytes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))  # up and down


@dataclass
class Journal:
    """Everything a job wrote down."""

    buckets_count: int
    steps: list[StepRecord] = field(default_factory=list)
    rounds: list[RoundRecord] = field(default_factory=list)
    phases: list[PhaseRecord] = field(default_factory=list)
    findings: list[Findings] = field(default_factory=list)  # one per round


class TrainingJob:
    """Runs steps of a workload over a collective and keeps the journal."""

    def __init__(self, environment: simpy.Environment, engine: Engine, parts: JobParts) -> None:
        self.journal = Journal(len(parts.workload.buckets))
        self._environment, self._engine, self._parts = environment, engine, parts
        workers = parts.workload.workers
        self._encoders: list[Encoder] = [
            parts.codec.worker(rank, workers, parts.seed) for rank in range(workers)
        ]
        self._operations = [0] * workers  # begun so far
        self._wire_bytes = np.zeros(
            (workers, 2), np.int64
        )  # of each worker's links when its last round ended

    def steps(self, count: int) -> Generator[simpy.Event, Any, None]:
        """The job's SimPy process."""
        for step in range(count):
            self._parts.step_begins()
            yield from self._step(step)

    def _step(self, step: int) -> Generator[simpy.Event, Any, None]:
        parts, start_ps = self._parts, int(self._environment.now)
        workload = parts.workload
        gradients = workload.gradients(step)
        forward_ps, backward_ps = step_times(parts.device, workload.cost)
        for worker in range(workload.workers):
            self._phase(step, -1, worker, ("forward", "", 0), (start_ps, start_ps + forward_ps))
            backward_end_ps = start_ps + forward_ps + backward_ps
            self._phase(step, -1, worker, ("backward", "", 0), (start_ps + forward_ps, backward_end_ps))
        rounds = [RoundLog([own[bucket.index] for own in gradients]) for bucket in workload.buckets]
        ready_ps = [
            start_ps + forward_ps + int(bucket.ready_share * backward_ps) for bucket in workload.buckets
        ]
        yield self._environment.all_of(
            [
                self._environment.process(self._worker(step, worker, ready_ps, rounds))
                for worker in range(workload.workers)
            ]
        )
        end_ps = int(self._environment.now)
        workload.apply(step, [log.decoded[0] for log in rounds])
        self.journal.steps.append(
            StepRecord(
                variant=parts.variant,
                step=step,
                start_ps=start_ps,
                forward_end_ps=start_ps + forward_ps,
                backward_end_ps=start_ps + forward_ps + backward_ps,
                aggregation_start_ps=ready_ps[0],
                aggregation_end_ps=end_ps,
                aggregation_ps=_covered_ps([(log.start_ps or 0, log.end_ps) for log in rounds]),
                end_ps=max(end_ps, start_ps + forward_ps + backward_ps),
                elements=sum(bucket.elements for bucket in workload.buckets),
                loss=workload.loss,
            )
        )

    def _worker(
        self, step: int, worker: int, ready_ps: list[int], rounds: list[RoundLog]
    ) -> Generator[simpy.Event, Any, None]:
        """One worker's step: bucket after bucket."""
        parts = self._parts
        for bucket, log in zip(parts.workload.buckets, rounds, strict=True):
            wait_ps = ready_ps[bucket.index] - int(self._environment.now)
            if wait_ps > 0:
                parts.tell(worker, f"computes bucket {bucket.index} of step {step}", ready_ps[bucket.index])
                yield self._environment.timeout(wait_ps)
            if log.start_ps is None:
                log.start_ps = int(self._environment.now)
            yield from self._round(step, bucket.index, worker, log)
            log.wire_bytes += self._wire_bytes_since(worker)
            if len(log.decoded) == parts.workload.workers:
                self._close(step, bucket, log)
        parts.tell(worker, f"is done with step {step}", int(self._environment.now))

    def _round(self, step: int, bucket: int, worker: int, log: RoundLog) -> Generator[simpy.Event, Any, None]:
        """One worker's side of one round: drive its encoder, charge its work, wait for the network."""
        parts = self._parts
        key = Round(step, bucket, parts.workload.workers, parts.seed)
        exchange = stage(
            self._encoders[worker].exchange(log.gradients[worker], key), parts.collective.pipelines
        )
        answers: tuple[Merged, ...] | None = None
        index = 0
        while True:
            try:
                messages = next(exchange) if answers is None else exchange.send(answers)
            except StopIteration as stop:
                log.decoded[worker] = stop.value
                return
            while len(log.operations) <= index:
                log.operations.append(Operation(number=self._operations[worker]))
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
        self._parts.tell(worker, f"encodes {place}", times[0] + encode_ps)
        yield self._environment.timeout(encode_ps)
        times.append(int(self._environment.now))
        self._parts.tell(worker, f"waits for {place}", times[1])
        merged = yield from self._parts.collective.exchange(worker, messages)
        times.append(int(self._environment.now))
        self._parts.tell(worker, f"decodes {place}", times[2] + decode_ps)
        yield self._environment.timeout(decode_ps)
        times.append(int(self._environment.now))
        for phase, start_ps, end_ps in zip(("encode", "network", "decode"), times, times[1:], strict=False):
            carried = size_bytes if phase == "network" else 0
            self._phase(step, bucket, worker, (phase, label, carried), (start_ps, end_ps))
        return merged

    def _phase(
        self, step: int, bucket: int, worker: int, what: tuple[str, str, int], when: tuple[int, int]
    ) -> None:
        if when[1] > when[0] or what[0] == "network":
            phase, label, size_bytes = what
            self.journal.phases.append(
                PhaseRecord(self._parts.variant, step, bucket, worker, phase, label, *when, size_bytes)
            )

    def _close(self, step: int, bucket: Bucket, log: RoundLog) -> None:
        """The last worker has decoded: examine the round and write it down."""
        parts = self._parts
        workers = range(parts.workload.workers)
        decoded = [log.decoded[worker] for worker in workers]
        findings = examine(parts.codec, log.gradients, decoded, log.operations)
        assert log.start_ps is not None
        log.end_ps = int(self._environment.now)
        self.journal.findings.append(self._located(findings))
        self.journal.rounds.append(
            RoundRecord(
                variant=parts.variant,
                step=step,
                bucket=bucket.index,
                elements=bucket.elements,
                start_ps=log.start_ps,
                end_ps=log.end_ps,
                messages=sum(len(operation.sent[0]) for operation in log.operations),
                redo_messages=sum(
                    message.label == REDO_LABEL
                    for operation in log.operations
                    for message in operation.sent[0]
                ),
                payload_bytes_up=sum(
                    message.size_bytes for operation in log.operations for message in operation.sent[0]
                ),
                wire_bytes_up=int(log.wire_bytes[0]),
                wire_bytes_down=int(log.wire_bytes[1]),
                nonzeros=findings.nonzeros,
                union_nonzeros=findings.union_nonzeros,
                exact=findings.is_exact,
                replicas_agree=findings.replicas_agree,
                max_abs_error=findings.max_abs_error,
                max_error_over_bound=findings.max_error_over_bound,
            )
        )
        log.operations.clear()
        log.decoded = {0: decoded[0]}  # the others are the same; give their memory back

    def _located(self, findings: Findings) -> Findings:
        """With the place where the first wrong word was merged."""
        wrong = findings.first_wrong
        if wrong is None:
            return findings
        place = self._parts.collective.locate(wrong.worker, wrong.operation, wrong.part, wrong.word)
        return replace(findings, first_wrong=replace(wrong, place=place))

    def _wire_bytes_since(self, worker: int) -> NDArray[np.int64]:
        """Bytes out of and into a worker's host since its last round ended; its buckets follow each other."""
        sent = self._engine.world.links["sent_bytes"]
        now = np.array([sent[row] for row in self._parts.host_links[worker]])
        since: NDArray[np.int64] = now - self._wire_bytes[worker]
        self._wire_bytes[worker] = now
        return since


def _covered_ps(spans: list[tuple[int, int]]) -> int:
    """How much time some spans cover together; overlaps count once."""
    covered, reached = 0, 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered
