"""A training job in simulated time: workers compute, send buckets that are ready, decode, and update.

In every step each worker has a SimPy process for its passes over the model and one for each bucket. A bucket
waits until its gradient is ready and one of the worker's places for buckets in flight is free; all workers of
a bucket run the same exchange, each at its own time. Values are computed when simulated time reaches them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import simpy

from netfold.homomorphic.codec import Decoded, Encoder
from netfold.homomorphic.message import Gradient, StepFact
from netfold.sim.checks.checks import Journal, RoundLog, covered_ps
from netfold.sim.checks.finding import Findings, WrongWord, count_notes
from netfold.sim.checks.merged_words import HostReplay
from netfold.sim.checks.rounds import examine
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.engine.engine import Engine
from netfold.sim.results.records import NO_BUCKET, PhaseRecord, StepRecord
from netfold.sim.run.context import AFTER_BACKWARD, Activities, CodecError, JobParts, blaming
from netfold.sim.run.step import Computing, Rounds, Turns, stretches
from netfold.sim.workload import Bucket, Workload
from netfold.sim.workload.hardware import scaled_ps


class TrainingJob:
    """Runs the steps of a workload over a collective, and records them in a journal."""

    def __init__(self, environment: simpy.Environment, engine: Engine, parts: JobParts) -> None:
        self.journal = Journal(len(parts.workload.buckets))
        self.failure: CodecError | None = None  # the error that ended it early
        self.steps_done = 0
        self._environment, self._parts = environment, parts
        self._activities = Activities(parts.hosts, parts.workers, parts.set_activity)
        self._rounds = Rounds(environment, parts, engine.sent_bytes, self._activities, self.journal)
        server = parts.codec.server(parts.workers, parts.seed)
        self._replay = HostReplay(server, [bucket.tensors for bucket in parts.workload.buckets])
        self._places = Turns(environment, parts.workers, parts.overlap.buckets_in_flight)
        self._open: dict[tuple[int, int], RoundLog] = {}  # rounds begun and not closed, by step and bucket
        self._closed = 0  # rounds
        self._failed = environment.event()
        self._computing: list[Computing] = []  # each worker's passes in the open step
        self._phases_count = 0  # phases recorded before the open step

    def steps(self, count: int, start_ps: int = 0) -> Generator[simpy.Event, Any, None]:
        """The job's SimPy process; it ends early where `failure` is set.

        A job with steps that are done goes on at once with the next one (`make_ready`).
        """
        try:
            if not self.steps_done:
                yield self._environment.timeout(start_ps - int(self._environment.now))
                self._rounds.make_encoders()
            for step in range(self.steps_done, count):
                self._parts.reporter.begin_step()
                yield from self._step(step, is_last=step + 1 == count)
                if self.failure is not None:
                    return
                self.steps_done = step + 1
                self._parts.after_step()
        except CodecError as error:
            self.failure = error

    def make_ready(self, steps_done: int) -> None:
        """Make what a job has that goes on after these steps, before its state is put into it."""
        for _ in range(steps_done):
            self._parts.reporter.begin_step()
        if steps_done:
            self._rounds.make_encoders()

    @property
    def workload(self) -> Workload:
        return self._parts.workload

    @property
    def encoders(self) -> list[Encoder]:
        return self._rounds.encoders

    def settle(self) -> None:
        """Count what hosts still carried after the last round for it, once no packet is left."""
        up, down = self._rounds.late_wire_bytes().tolist()
        if rounds := self.journal.rounds:
            last = rounds[-1]
            rounds[-1] = replace(
                last, wire_bytes_up=last.wire_bytes_up + up, wire_bytes_down=last.wire_bytes_down + down
            )

    def take_hosts(self, earlier: TrainingJob) -> None:
        """What the hosts of this job carry from now on is its own, and no more that of an earlier one."""
        own = set(self._parts.host_links)
        for worker, links in enumerate(earlier._parts.host_links):
            if links in own:
                earlier._rounds.hand_over(worker)

    def _step(self, step: int, is_last: bool) -> Generator[simpy.Event, Any, None]:
        parts, start_ps = self._parts, int(self._environment.now)
        workload = parts.workload
        parts.reporter.report(f"gradients of step {step}")
        gradients = workload.gradients(step)
        rounds = [RoundLog([]) for _ in workload.buckets]
        passes, buckets = self._begin(step, rounds, gradients)
        yield self._environment.all_of(buckets) | self._failed
        end_ps = int(self._environment.now)
        yield self._environment.all_of(passes) | self._failed
        if self.failure is not None:
            return
        backward_end_ps = max(own.end_ps("backward") for own in self._computing)
        yield from self._update(step)
        decoded = [self._applied(log.decoded[0]) for log in rounds]
        workload.apply(step, [one.total for one in decoded], [one.is_update for one in decoded])
        score = workload.score(step, is_last)
        self.journal.steps.append(
            StepRecord(
                variant=parts.label,
                step=step,
                start_ps=start_ps,
                forward_end_ps=max(own.end_ps("forward") for own in self._computing),
                backward_end_ps=backward_end_ps,
                aggregation_start_ps=min(min(own.ready_ps.values()) for own in self._computing),
                aggregation_end_ps=end_ps,
                aggregation_ps=covered_ps([(log.start_ps or 0, log.end_ps) for log in rounds]),
                end_ps=max(end_ps, backward_end_ps, int(self._environment.now)),
                elements=sum(bucket.elements for bucket in workload.buckets),
                loss=workload.loss,
                test_metric=score.metric if score else None,
                test_score=score.value if score else None,
            )
        )
        self._record_passes(step)

    def _applied(self, decoded: Decoded) -> Decoded:
        """What the weights are moved by. A codec that makes updates has its sums applied as updates, too.

        So it is in a real training: the optimizer subtracts what `netfold.torch` gives it.
        """
        parts = self._parts
        if decoded.is_update or StepFact.LEARNING_RATE not in parts.codec.needs:
            return decoded
        scale = np.float32((parts.workload.learning_rate or 0) / parts.workers)
        return replace(decoded, total=scale * decoded.total, is_update=True)

    def _begin(
        self, step: int, rounds: list[RoundLog], gradients: Sequence[Sequence[Gradient]]
    ) -> tuple[list[simpy.Process], list[simpy.Process]]:
        """Begin the processes of a step: each worker's passes, and its side of each bucket's round."""
        parts, environment = self._parts, self._environment
        workload = parts.workload
        self._phases_count = len(self.journal.phases)
        self._activities.begin(step, len(rounds))
        begin = [partial(self._rounds.begin, step, worker, own) for worker, own in enumerate(gradients)]
        is_after = bool(parts.codec.needs & AFTER_BACKWARD)
        if not is_after:
            for worker in range(parts.workers):
                self._rounds.begin(step, worker, ())
        factors = [parts.variation.factor(parts.seed, worker, step) for worker in range(parts.workers)]
        self._computing = [
            Computing(
                environment,
                parts.hosts,
                units.passes,
                self._activities,
                stretches(
                    workload.recorded(step, worker) or parts.passes,
                    workload.buckets,
                    factors[worker],
                    workload.cost.passes,
                ),
                begin[worker] if is_after else None,
            )
            for worker, units in enumerate(self._rounds.units)
        ]
        running = [environment.process(self._passes(step, worker)) for worker in range(parts.workers)]
        buckets = [
            environment.process(self._bucket(step, worker, bucket, log, gradients))
            for bucket, log in zip(parts.workload.buckets, rounds, strict=True)
            for worker in range(parts.workers)
        ]
        return running, buckets

    def _passes(self, step: int, worker: int) -> Generator[simpy.Event, Any, None]:
        """One worker's passes. They never end if its codec cannot begin the step."""
        try:
            yield from self._computing[worker].run(step, worker)
        except CodecError as error:
            yield self._fail(error)

    def _update(self, step: int) -> Generator[simpy.Event, Any, None]:
        """Every worker's update of its weights; the next step begins when the last has ended."""
        parts, update_ps = self._parts, self.update_ps
        if update_ps:
            factors = [parts.variation.factor(parts.seed, worker, step) for worker in range(parts.workers)]
            yield self._environment.all_of(
                [
                    self._environment.process(own.update(step, worker, scaled_ps(update_ps, factor)))
                    for worker, (own, factor) in enumerate(zip(self._computing, factors, strict=True))
                ]
            )

    def _fail(self, error: CodecError) -> simpy.Event:
        """End the job; returns an event that never fires."""
        if self.failure is None:
            self.failure = error
            self._failed.succeed()
        return self._environment.event()

    def _bucket(
        self,
        step: int,
        worker: int,
        bucket: Bucket,
        log: RoundLog,
        gradients: Sequence[Sequence[Gradient]],
    ) -> Generator[simpy.Event, Any, None]:
        """One worker's side of a bucket. It never ends if its codec cannot go on."""
        yield self._computing[worker].ready(bucket.index)
        place = OperationPlace(step, bucket.index, 0)
        yield self._places.take(worker, place, self._parts.overlap.rank(bucket.index))
        if log.start_ps is None:
            log.start_ps = int(self._environment.now)
            log.gradients += [own[bucket.index] for own in gradients]
            self._open[step, bucket.index] = log
        try:
            yield from self._rounds.run(step, bucket.index, worker, log)
        except CodecError as error:
            yield self._fail(error)
        self._places.release(worker)
        if len(log.decoded) == self._parts.workers:
            self._close(step, bucket, log)

    def _close(self, step: int, bucket: Bucket, log: RoundLog) -> None:
        """Examine and record a round that the last worker has decoded."""
        parts = self._parts
        parts.reporter.report(f"bucket {bucket.index} of step {step} is being checked", self._closed_share(1))
        workers = range(parts.workers)
        decoded = [log.decoded[worker] for worker in workers]
        counts = count_notes([log.notes[worker] for worker in workers], bucket.elements)
        overflow = parts.collective.overflow
        with blaming(parts.codec, f"step {step}, bucket {bucket.index}"):
            findings = examine(parts.codec, log.gradients, decoded, log.operations, counts.exempt, overflow)
            orders = parts.collective.merge_orders(step, bucket.index)
            at_hosts = self._replay.examine((step, bucket.index), log.operations, orders)
        findings = replace(findings, at_hosts=at_hosts)
        self.journal.signs.examine(step, bucket.index, log.operations, self._locate)
        log.end_ps = int(self._environment.now)
        self.journal.add_findings(bucket.index, self._located(findings, step, bucket.index, log))
        self.journal.rounds.append(log.record(parts.label, step, bucket, findings, counts))
        self.journal.notes += log.note_records(parts.label, step, bucket.index)
        self.journal.has_work = self.journal.has_work or log.has_work
        del self._open[step, bucket.index]
        self._closed += 1
        log.operations.clear()
        log.notes.clear()
        log.gradients.clear()
        # Only worker 0's total is applied: free the memory of all else.
        log.keep_first()

    @property
    def layer_shares(self) -> tuple[tuple[str, float], ...]:
        """Share of backward after which each layer is ready, as far as the device knows of tensors."""
        parts = self._parts
        tensors = (tensor for bucket in parts.workload.buckets for tensor in bucket.tensors)
        return parts.passes.layer_shares(tensors)

    @property
    def update_ps(self) -> int:
        # The time of one worker, if nothing varies.
        return self._parts.device.update_ps(self._parts.workload.cost)

    def share(self) -> float:
        """Share of the current step that is done: closed rounds, and the network's share of open ones."""
        in_flight = min(len(self._open), self._parts.overlap.buckets_in_flight)
        return self._closed_share(in_flight * self._parts.collective.share())

    def _closed_share(self, of_next: float) -> float:
        count = len(self._parts.workload.buckets)
        return (self._closed % count + of_next) / count

    def record_open_step(self) -> None:
        """Record what is known of a step that was still open when the job ended: notes and passes."""
        for (step, bucket), log in self._open.items():
            self.journal.notes += log.note_records(self._parts.label, step, bucket)
        self._record_passes(len(self.journal.steps))

    def _record_passes(self, step: int) -> None:
        """Record the spans of workers' passes, before the phases of the step's buckets."""
        label = self._parts.label
        self.journal.phases[self._phases_count : self._phases_count] = [
            PhaseRecord(label, step, NO_BUCKET, worker, span.phase, "", span.start_ps, span.end_ps, 0)
            for worker, own in enumerate(self._computing)
            for span in own.spans
            if span.end_ps > span.start_ps
        ]
        self._computing = []

    def _locate(self, worker: int, place: tuple[int, int, int], part: int, word: int) -> str:
        return self._parts.collective.locate(worker, OperationPlace(*place), part, word)

    def _located(self, findings: Findings, step: int, bucket: int, log: RoundLog) -> Findings:
        """Findings with the places where the first wrong words were merged."""

        def with_place(wrong: WrongWord | None) -> WrongWord | None:
            if wrong is None:
                return None
            numbers = [operation.number for operation in log.operations]
            place = OperationPlace(step, bucket, numbers.index(wrong.operation))
            where = self._parts.collective.locate(wrong.worker, place, wrong.part, wrong.word)
            return replace(wrong, place=where)

        return replace(
            findings,
            first_wrong=with_place(findings.first_wrong),
            first_clipped=with_place(findings.first_clipped),
            first_wrong_float=with_place(findings.first_wrong_float),
        )
