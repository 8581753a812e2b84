"""A training job in simulated time: workers compute, send buckets that are ready, decode, and update.

In every step each worker has a SimPy process for its passes over the model and one for each bucket. A bucket
waits until its gradient is ready and one of the worker's places for buckets in flight is free; all workers of
a bucket run the same exchange, each at its own time. Values are computed when simulated time reaches them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import simpy
from numpy.typing import ArrayLike

from netfold.homomorphic.codec import Decoded
from netfold.homomorphic.codec_driver import CodecError, Driven, Sent, WorkerEncoder, blaming
from netfold.homomorphic.merge import Merged
from netfold.homomorphic.message import Gradient, Message, Round, Step, StepFact
from netfold.sim.checks.checks import Journal, RoundLog, covered_ps
from netfold.sim.checks.merged_words import HostReplay
from netfold.sim.checks.round_checks import count_held, examine
from netfold.sim.checks.round_findings import Findings, RecordedOperation, WrongWord, count_notes
from netfold.sim.collectives.collective import Collective, OperationId
from netfold.sim.network.fabric import HostTimes
from netfold.sim.plan.plan import JobPlan
from netfold.sim.results.records import NO_BUCKET, PhaseRecord, StepRecord
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.step import (
    LAST,
    Computing,
    Coordinator,
    MessageAgreement,
    SerialDevice,
    WireBytes,
    WorkerActivities,
    stretches,
)
from netfold.sim.run.step_bounds import StepBounds
from netfold.sim.workload.device_rooflines import Device, charge_ps, scaled_ps
from netfold.sim.workload.fusion import Bucket
from netfold.sim.workload.synthetic import buckets_with_words, words_every
from netfold.sim.workload.workload import Workload

COPY_BACK = "copy of the sum"
"""Label of the copy to the device, where the codec runs on the host."""
# With one of these, an encoder begins a step when all of the worker's gradients are ready.
AFTER_BACKWARD = frozenset({StepFact.ALL_BUCKETS, StepFact.KEPT_WEIGHTS})


class _Side(NamedTuple):
    """One worker's side of one operation."""

    operation_id: OperationId
    worker: int
    label: str
    """Labels of its messages."""
    phases: list[PhaseRecord]


def _follow(exchange: Driven, sent: list[Sent]) -> Driven:
    """One worker's side of an exchange that all workers share; the first to get to an operation begins it."""
    answers: tuple[Merged, ...] | None = None
    for operation in count():
        if operation == len(sent):
            sent.append(exchange.send(answers))
        answers = yield sent[operation]


@dataclass(eq=False, kw_only=True)
class RunningJob:
    """A job that runs: the steps of a workload over a collective, recorded in a journal.

    An operation is identified by step, bucket and its number in the round. A worker encodes and decodes one
    message after the other. If its collective carries one operation at a time, or its overlap says so, its
    operations take turns.
    """

    plan: JobPlan
    index: int
    """Its number in the variant."""
    seed: int
    environment: simpy.Environment
    workload: Workload
    collective: Collective
    device: Device
    hosts: HostTimes
    host_links: list[tuple[int, int]]
    """Each worker's link rows out of and into its host."""
    sent_bytes: Callable[[int], int]
    """Bytes that a link has carried so far."""
    reporter: ProgressReporter
    set_activity: Callable[[int, str, int], None] = lambda worker, what, until_ps: None
    """Notes what a worker does, and until when."""
    after_step: Callable[[], None] = lambda: None  # called between two steps
    bounds: StepBounds | None = None

    def __post_init__(self) -> None:
        environment, buckets = self.environment, self.workload.buckets
        self.label, self.codec, self.overlap = self.plan.label, self.plan.codec, self.plan.overlap
        self.variation = replace(self.plan.variation, job=self.index)
        self.workers = self.workload.workers
        self.passes = self.device.passes(self.workload.cost)  # of a worker, if nothing varies
        self.journal = Journal(len(buckets))
        self.failure: CodecError | None = None  # the error that ended it early
        self.steps_done = 0
        self.encoders: list[WorkerEncoder] = []
        self._activities = WorkerActivities(self.hosts, self.workers, self.set_activity)
        self._wire = WireBytes(self.sent_bytes, self.host_links)
        # What does each worker's passes, and its encoding and decoding; the two may be one.
        self._devices = [SerialDevice(environment) for _ in range(self.workers)]
        self._coders = self._devices
        if self.overlap.encode == "beside":
            self._coders = [SerialDevice(environment) for _ in range(self.workers)]
        self._coordinator = Coordinator(environment, self.workers, at_once=1)
        self._in_flight = Coordinator(environment, self.workers, self.overlap.buckets_in_flight)
        self._agreement = MessageAgreement(self.workers, self.journal.findings)
        server = self.codec.server(self.workers, self.seed)
        self._replay = HostReplay(server, [bucket.tensors for bucket in buckets])
        self._operations_count = 0
        self._open: dict[tuple[int, int], RoundLog] = {}  # rounds begun and not closed, by step and bucket
        self._closed = 0  # rounds
        self._failed = environment.event()
        self._computing: list[Computing] = []  # each worker's passes in the open step
        self._phases_count = 0  # phases recorded before the open step

    def start(self, steps: int, start_ps: int = 0) -> None:
        # Its SimPy process ends early where `failure` is set.
        self.process = self.environment.process(self._steps(steps, start_ps))

    def _steps(self, steps: int, start_ps: int) -> Generator[simpy.Event, Any, None]:
        """The process. A job with steps that are done goes on at once with the next one (`make_ready`)."""
        try:
            if not self.steps_done:
                yield self.environment.timeout(start_ps - self._now_ps)
                self._make_encoders()
                self._keep_weights()
            for step in range(self.steps_done, steps):
                self.reporter.begin_step()
                yield from self._step(step, is_last=step + 1 == steps)
                if self.failure is not None:
                    return
                self.steps_done = step + 1
                self.after_step()
        except CodecError as error:
            self.failure = error

    def make_ready(self, steps_done: int) -> None:
        """Make what a job has that goes on after these steps, before its state is put into it."""
        for _ in range(steps_done):
            self.reporter.begin_step()
        if steps_done:
            self._make_encoders()

    def _make_encoders(self) -> None:
        ranks = range(self.workers)
        # The last one encodes for all workers what carries no words, and leaves their states as they are.
        spares = [0] if words_every(self.plan.workload) != 1 else []
        self.encoders = [
            WorkerEncoder(self.codec, rank, self.workers, self.seed) for rank in (*ranks, *spares)
        ]

    def settle(self) -> None:
        """Count what hosts still carried after the last round for it, once no packet is left."""
        up, down = self._wire.take_rest().tolist()
        if rounds := self.journal.rounds:
            last = rounds[-1]
            rounds[-1] = replace(
                last, wire_bytes_up=last.wire_bytes_up + up, wire_bytes_down=last.wire_bytes_down + down
            )

    def take_hosts(self, earlier: RunningJob) -> None:
        """What the hosts of this job carry from now on is its own, and no more that of an earlier one."""
        host_links = set(self.host_links)
        for worker, links in enumerate(earlier.host_links):
            if links in host_links:
                earlier._wire.hand_over(worker)

    def _step(self, step: int, is_last: bool) -> Generator[simpy.Event, Any, None]:
        workload, start_ps = self.workload, self._now_ps
        self.reporter.report(f"gradients of step {step}")
        gradients = workload.gradients(step)
        with_words = buckets_with_words(self.plan.workload, len(workload.buckets), self.seed, step)
        rounds = [RoundLog([], has_words=bucket.index in with_words) for bucket in workload.buckets]
        passes, buckets = self._begin(step, rounds, gradients)
        yield self.environment.all_of(buckets) | self._failed
        end_ps = self._now_ps
        yield self.environment.all_of(passes) | self._failed
        if self.failure is not None:
            return
        backward_end_ps = max(computing.end_ps("backward") for computing in self._computing)
        yield from self._update(step)
        decoded = [self._apply(log.decoded[0]) for log in rounds]
        workload.apply(
            step, [decoding.total for decoding in decoded], [decoding.is_update for decoding in decoded]
        )
        self._keep_weights()
        score = workload.score(step, is_last)
        self.journal.steps.append(
            StepRecord(
                variant=self.label,
                step=step,
                start_ps=start_ps,
                forward_end_ps=max(computing.end_ps("forward") for computing in self._computing),
                backward_end_ps=backward_end_ps,
                aggregation_start_ps=min(min(computing.ready_ps.values()) for computing in self._computing),
                aggregation_end_ps=end_ps,
                aggregation_ps=covered_ps([(log.start_ps or 0, log.end_ps) for log in rounds]),
                end_ps=max(end_ps, backward_end_ps, self._now_ps),
                elements=sum(bucket.elements for bucket in workload.buckets),
                loss=workload.loss,
                test_metric=score.metric if score else None,
                test_score=score.value if score else None,
            )
        )
        if self.bounds is not None:
            self.journal.bounds_ps.append(self.bounds.take())
        self._record_passes(step)

    def _apply(self, decoded: Decoded) -> Decoded:
        """What the weights are moved by: a codec that makes updates has its sums applied as updates, too."""
        if decoded.is_update or StepFact.LEARNING_RATE not in self.codec.needs:
            return decoded
        scale = np.float32((self.workload.learning_rate or 0) / self.workers)
        return replace(decoded, total=scale * decoded.total, is_update=True)

    def _begin(
        self, step: int, rounds: list[RoundLog], gradients: Sequence[Sequence[Gradient]]
    ) -> tuple[list[simpy.Process], list[simpy.Process]]:
        """Begin the processes of a step: each worker's passes, and its side of each bucket's round."""
        environment, workload, workers = self.environment, self.workload, range(self.workers)
        self._phases_count = len(self.journal.phases)
        self._activities.begin(step, len(rounds))
        begin = [
            partial(self._begin_encoder, step, worker, gradient) for worker, gradient in enumerate(gradients)
        ]
        is_after = bool(self.codec.needs & AFTER_BACKWARD)
        if not is_after:
            for worker in workers:
                self._begin_encoder(step, worker, ())
        for spare in self.encoders[self.workers :]:
            spare.begin(Step(step, gradients=gradients[0] if is_after else ()))
        self._computing = [
            Computing(
                environment,
                self.hosts,
                self._devices[worker],
                self._activities,
                stretches(
                    workload.recorded(step, worker) or self.passes,
                    workload.buckets,
                    self._factor(step, worker),
                    workload.cost.passes,
                ),
                begin[worker] if is_after else None,
            )
            for worker in workers
        ]
        running = [environment.process(self._passes(step, worker)) for worker in workers]
        buckets = [
            environment.process(self._bucket(step, worker, bucket, log, gradients))
            for bucket, log in zip(workload.buckets, rounds, strict=True)
            for worker in workers
        ]
        return running, buckets

    def _begin_encoder(self, step: int, worker: int, gradients: Sequence[Gradient]) -> int:
        """Let a worker's encoder look at a step; `gradients` are those of every bucket, if they are ready.

        Returns the time of the passes at kept weights that it asked for.
        """
        workload, times = self.workload, count()

        def kept_gradients() -> Sequence[Gradient]:
            next(times)
            return workload.kept_gradients(step, worker)

        keep_weights = partial(workload.keep_weights, worker)
        facts = workload.learning_rate, workload.update_norm, gradients, kept_gradients, keep_weights
        self.encoders[worker].begin(Step(step, *facts))
        passes_ps = workload.cost.passes * (self.passes.forward_ps + self.passes.backward_ps)
        return scaled_ps(next(times) * passes_ps, self._factor(step, worker))

    def _factor(self, step: int, worker: int) -> Fraction:
        # How many times as long as usual a worker's work takes in a step.
        return self.variation.factor(self.seed, worker, step)

    def _passes(self, step: int, worker: int) -> Generator[simpy.Event, Any, None]:
        """One worker's passes. They never end if its codec cannot begin the step."""
        try:
            yield from self._computing[worker].run(step, worker)
        except CodecError as error:
            yield self._fail(error)

    def _update(self, step: int) -> Generator[simpy.Event, Any, None]:
        """Every worker's update of its weights; the next step begins when the last has ended."""
        update_ps = self.update_ps
        if update_ps:
            yield self.environment.all_of(
                [
                    self.environment.process(
                        computing.update(step, worker, scaled_ps(update_ps, self._factor(step, worker)))
                    )
                    for worker, computing in enumerate(self._computing)
                ]
            )

    def _fail(self, error: CodecError) -> simpy.Event:
        """End the job; returns an event that never fires."""
        if self.failure is None:
            self.failure = error
            self._failed.succeed()
        return self.environment.event()

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
        operation_id = OperationId(step, bucket.index, 0)
        yield self._in_flight.take(worker, operation_id, self.overlap.rank(bucket.index))
        if log.start_ps is None:
            log.start_ps = self._now_ps
            log.gradients += [gradient[bucket.index] for gradient in gradients]
            self._open[step, bucket.index] = log
        exchange = self._driven(operation_id, worker, bucket, log)
        try:
            messages = exchange.send(None)
            while not isinstance(messages, Decoded):
                self._agreement.require(operation_id, worker, messages, log.operations)
                messages = yield from self._operation(operation_id, worker, messages, exchange, log)
                operation_id = operation_id._replace(operation=operation_id.operation + 1)
            self._agreement.require(operation_id, worker, messages, log.operations)
        except CodecError as error:
            yield self._fail(error)
        else:
            yield from self._copy_back(operation_id, worker, log)
            log.store(worker, messages)
            self._wire.end_round(worker, log)
            self._activities.land(worker, bucket.index, self._now_ps)
            del exchange, messages  # equal totals share one array, which the log has
        self._in_flight.release(worker)
        if len(log.decoded) == self.workers:
            self._close(step, bucket, log)

    def _driven(self, operation_id: OperationId, worker: int, bucket: Bucket, log: RoundLog) -> Driven:
        """The exchange of a worker's encoder in a round."""
        notes = log.notes[worker] = next(iter(log.notes.values()), []) if log.shared else []
        round = Round(
            operation_id.step,
            operation_id.bucket,
            self.workers,
            self.seed,
            self.collective.takes_floats,
            notes.append,
            bucket.tensors,
            log.decodings,
        )
        encoder = self.encoders[worker if log.has_words else -1]
        exchange = encoder.exchange(log.gradients[worker], round, self.collective.pipelines)
        if log.has_words:
            return exchange
        log.shared = log.shared or (exchange, [])
        return _follow(*log.shared)

    def _operation(
        self,
        operation_id: OperationId,
        worker: int,
        messages: tuple[Message, ...],
        exchange: Driven,
        log: RoundLog,
    ) -> Generator[simpy.Event, Any, Sent]:
        """Encode, send and decode one operation, in simulated time; returns what the worker sends next."""
        if len(log.operations) == operation_id.operation:
            log.operations.append(RecordedOperation(number=self._operations_count))
            self._operations_count += 1
        operation = log.operations[operation_id.operation]
        operation.sent[worker] = messages
        side = _Side(operation_id, worker, " + ".join(message.label for message in messages), [])
        with blaming(self.codec, f"worker {worker}, {operation_id}"):  # a codec may bring merges along
            copy_ps = 0 if operation_id.operation else self.device.copy_ps(log.gradients[worker].nbytes)
            encode_ps = copy_ps + sum(charge_ps(self.device, message.work) for message in messages)
            yield from self._compute(side, "encode", encode_ps, self.overlap.rank(operation_id.bucket))
            operation.received[worker] = yield from self._exchange(side, messages, log)
        following = exchange.send(operation.received[worker])
        decode_ps = sum(charge_ps(self.device, message.decode_work) for message in messages)
        # Only the last one of a bucket can wait for other work.
        is_last = isinstance(following, Decoded)
        rank = (
            self.overlap.decode_rank(operation_id.bucket, LAST)
            if is_last
            else self.overlap.rank(operation_id.bucket)
        )
        yield from self._compute(side, "decode", decode_ps, rank)
        self.journal.phases += side.phases
        return following

    def _copy_back(
        self, operation_id: OperationId, worker: int, log: RoundLog
    ) -> Generator[simpy.Event, Any, None]:
        """Copy the decoded sum to where the weights are."""
        copy_ps = self.device.copy_ps(log.gradients[worker].nbytes)
        if copy_ps:
            side = _Side(operation_id, worker, COPY_BACK, [])
            rank = self.overlap.decode_rank(operation_id.bucket, LAST)
            yield from self._compute(side, "decode", copy_ps, rank)
            self.journal.phases += side.phases

    def _compute(
        self, side: _Side, phase: str, usual_ps: int, rank: int
    ) -> Generator[simpy.Event, Any, None]:
        """Encode or decode messages, when it is their turn; it takes `usual_ps` if nothing varies.

        What takes no time does not need the device, and does not wait for it.
        """
        unit = self._coders[side.worker]
        work_ps = scaled_ps(usual_ps, self._factor(side.operation_id.step, side.worker))
        if work_ps:
            yield from self._wait_for(unit, side, phase, rank)
        start_ps = self._now_ps
        end_ps = self.hosts.end_ps(side.worker, start_ps, work_ps)
        self._show(side, f"{phase}s", end_ps)
        yield self.hosts.until(side.worker, end_ps)
        if work_ps:
            unit.release()
        self._record(side, start_ps, phase=phase, label=side.label)

    def _wait_for(
        self, unit: SerialDevice, side: _Side, phase: str, rank: int
    ) -> Generator[simpy.Event, Any, None]:
        """Take the device, when it is this work's turn."""
        asked_ps = self._now_ps
        self._show(side, f"waits to {phase}", asked_ps)
        yield unit.take(rank)
        self._wait(side, "device", asked_ps)

    def _exchange(
        self, side: _Side, messages: tuple[Message, ...], log: RoundLog
    ) -> Generator[simpy.Event, Any, tuple[Merged, ...]]:
        """Send messages and receive them merged, when the collective is free for them."""
        collective, asked_ps = self.collective, self._now_ps
        is_serial = collective.is_serial or self.overlap.network == "in_turn"
        if is_serial:
            self._show(side, "waits to send", asked_ps)
            yield self._coordinator.take(
                side.worker, side.operation_id, self.overlap.rank(side.operation_id.bucket)
            )
            self._wait(side, "network", asked_ps)
        start_ps, size_bytes = self._now_ps, sum(message.size_bytes for message in messages)
        self._wire.begin(side.worker, log, size_bytes)
        self._show(side, "waits for", start_ps)
        merged = yield from collective.exchange(side.worker, messages, side.operation_id)
        self._wire.end(side.worker, log)
        if is_serial:
            self._coordinator.release(side.worker)
        self._record(side, start_ps, phase="network", label=side.label, size_bytes=size_bytes)
        return merged

    @property
    def _now_ps(self) -> int:
        return int(self.environment.now)

    def _show(self, side: _Side, what: str, until_ps: int) -> None:
        operation_id = side.operation_id
        text = f"{what} '{side.label}' of bucket {operation_id.bucket} of step {operation_id.step}"
        self._activities.set(side.worker, operation_id.bucket, text, until_ps)

    def _wait(self, side: _Side, what: str, start_ps: int) -> None:
        if self._now_ps > start_ps:
            self._record(side, start_ps, phase="wait", label=what)

    def _record(self, side: _Side, start_ps: int, *, phase: str, label: str, size_bytes: int = 0) -> None:
        """Record a phase that ends now."""
        if self._now_ps > start_ps or phase == "network":
            step, bucket, _ = side.operation_id
            span_ps = start_ps, self._now_ps
            side.phases.append(
                PhaseRecord(self.label, step, bucket, side.worker, phase, label, *span_ps, size_bytes)
            )

    def _close(self, step: int, bucket: Bucket, log: RoundLog) -> None:
        """Examine and record a round that the last worker has decoded."""
        self.reporter.report(f"bucket {bucket.index} of step {step} is being checked", self._closed_share(1))
        workers = range(self.workers)
        decoded = [log.decoded[worker] for worker in workers]
        counts = count_notes([log.notes[worker] for worker in workers], bucket.elements)
        overflow = self.collective.overflow
        orders = self.collective.merge_orders(step, bucket.index)
        findings = Findings.unchecked(count_held(log.operations, self.workers))
        with blaming(self.codec, f"step {step}, bucket {bucket.index}"):
            if log.has_words:
                findings = examine(
                    self.codec, log.gradients, decoded, log.operations, counts.exempt, overflow
                )
            if log.has_words or self._replay.server is not None:  # every round may change its state
                at_hosts = self._replay.examine((step, bucket.index), log.operations, orders)
                findings = replace(findings, at_hosts=at_hosts)
        if log.has_words:
            self.journal.signs.examine(step, bucket.index, log.operations, self._locate)
        log.end_ps = self._now_ps
        if self.bounds is not None:
            self.bounds.add(log.operations)
        self.journal.add_findings(bucket.index, self._with_places(findings, step, bucket.index, log))
        self.journal.rounds.append(log.record(self.label, step, bucket, findings, counts))
        self.journal.notes += log.note_records(self.label, step, bucket.index)
        self.journal.has_work = self.journal.has_work or log.has_work
        del self._open[step, bucket.index]
        self._closed += 1
        self._keep(f"gradients/{bucket.index}", log.gradients)
        self._keep(f"contributions/{bucket.index}", [decoding.contribution for decoding in decoded])
        self._keep(f"totals/{bucket.index}", decoded[0].total)
        log.operations.clear()
        log.notes.clear()
        log.gradients.clear()
        # Only worker 0's total is applied: free the memory of all else.
        log.keep_first()

    def _keep_weights(self) -> None:
        for name, weights in self.workload.weights.items() if "weights" in self.plan.keep else ():
            self._keep(f"weights/{name}", weights)

    def _keep(self, name: str, array: ArrayLike) -> None:
        """Keep a copy of an array of this step, if the scenario asks for it."""
        if name.partition("/")[0] in self.plan.keep:
            self.journal.arrays.setdefault(name, []).append(np.array(array, np.float32))

    @property
    def layer_shares(self) -> tuple[tuple[str, float], ...]:
        """Share of backward after which each layer is ready, as far as the device knows of tensors."""
        tensors = (tensor for bucket in self.workload.buckets for tensor in bucket.tensors)
        return self.passes.layer_shares(tensors)

    @property
    def update_ps(self) -> int:
        # The time of one worker, if nothing varies.
        return self.device.update_ps(self.workload.cost)

    def share(self) -> float:
        """Share of the current step that is done: closed rounds, and the network's share of open ones."""
        in_flight = min(len(self._open), self.overlap.buckets_in_flight)
        return self._closed_share(in_flight * self.collective.share())

    def _closed_share(self, of_next: float) -> float:
        count = len(self.workload.buckets)
        return (self._closed % count + of_next) / count

    def record_open_step(self) -> None:
        """Record what is known of a step that was still open when the job ended: notes and passes.

        Its arrays are let go, as some of its buckets have none.
        """
        for name, rows in list(self.journal.arrays.items()):
            del rows[self.steps_done + name.startswith("weights/") :]
            if not rows:
                del self.journal.arrays[name]
        for (step, bucket), log in self._open.items():
            self.journal.notes += log.note_records(self.label, step, bucket)
        self._record_passes(len(self.journal.steps))

    def _record_passes(self, step: int) -> None:
        """Record the spans of workers' passes, before the phases of the step's buckets."""
        label = self.label
        self.journal.phases[self._phases_count : self._phases_count] = [
            PhaseRecord(label, step, NO_BUCKET, worker, span.phase, "", span.start_ps, span.end_ps, 0)
            for worker, computing in enumerate(self._computing)
            for span in computing.spans
            if span.end_ps > span.start_ps
        ]
        self._computing = []

    def _locate(self, worker: int, place: tuple[int, int, int], part: int, word: int) -> str:
        return self.collective.locate(worker, OperationId(*place), part, word)

    def _with_places(self, findings: Findings, step: int, bucket: int, log: RoundLog) -> Findings:
        """Findings with the places where the first wrong words were merged."""

        def with_place(wrong: WrongWord | None) -> WrongWord | None:
            if wrong is None:
                return None
            numbers = [operation.number for operation in log.operations]
            operation_id = OperationId(step, bucket, numbers.index(wrong.operation))
            where = self.collective.locate(wrong.worker, operation_id, wrong.part, wrong.word)
            return replace(wrong, place=where)

        return replace(
            findings,
            first_wrong=with_place(findings.first_wrong),
            first_clipped=with_place(findings.first_clipped),
            first_wrong_float=with_place(findings.first_wrong_float),
        )
