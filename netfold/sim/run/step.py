"""A step of a job, part by part: what each worker computes and sends, and how its buckets take turns."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray

from netfold.homomorphic.codec import Decoded
from netfold.homomorphic.codec_driver import CodecError, Sent
from netfold.homomorphic.fold import describe
from netfold.homomorphic.merge import Merged
from netfold.kernels.bits import identity
from netfold.sim.checks.checks import RoundLog
from netfold.sim.checks.round_findings import Findings, RecordedOperation
from netfold.sim.collectives.collective import OperationId
from netfold.sim.network.fabric import EndOfInstant, HostTimes, InstantPhase
from netfold.sim.network.stall import HAS_CRASHED
from netfold.sim.workload.device_rooflines import Passes, scaled_ps
from netfold.sim.workload.fusion import Bucket

# Check that the workers of a job send matching messages; a codec or damaged words can make them diverge.


class _First(NamedTuple):
    """What the first worker to begin an operation sends."""

    worker: int
    sent: Sent
    workers: list[int]
    """Workers that have begun the operation."""


class MessageAgreement:
    """Compares what the workers of a job send in each operation, at the time when they begin it.

    A worker that ends its round while another sends, or the reverse, is found when the second of them gets
    there, so no worker waits for messages that never come. Rounds of several buckets may be in progress.
    """

    def __init__(self, workers: int, findings: Sequence[Findings] = ()) -> None:
        """`findings` are those on the job's rounds so far; the caller may append to them."""
        self._workers, self._findings = workers, findings
        self._begun: dict[OperationId, _First] = {}

    def require(
        self, operation_id: OperationId, worker: int, sent: Sent, operations: Sequence[RecordedOperation] = ()
    ) -> None:
        """Require that a worker's messages have the same kinds and lengths as those of the others.

        `operations` are those of the round so far.

        Raises
        ------
        CodecError
            What both workers send, and whether damaged words are the reason.
        """
        first = self._begun.setdefault(operation_id, _First(worker, sent, []))
        if _kinds(sent) != _kinds(first.sent):
            workers = first.worker, worker
            differed = _differing_label(operations, workers)
            decoded_alike = all(findings.replicas_agree for findings in self._findings)
            if differed is not None:
                why = f"they read different words of {differed!r}, so some were damaged on the way"
            elif not decoded_alike:
                why = "they decoded different sums in an earlier round, so words were damaged on the way"
            else:
                why = "all workers must send the same messages, and these read the same words before"
            raise CodecError(
                f"worker {worker} sends {describe(sent)} where worker {first.worker} sends "
                f"{describe(first.sent)} ({operation_id}): {why}",
                is_undecoded=differed is not None or not decoded_alike,
            )
        first.workers.append(worker)
        if len(first.workers) == self._workers:
            del self._begun[operation_id]


def _kinds(sent: Sent) -> list[tuple[object, ...]] | None:
    return None if isinstance(sent, Decoded) else [message.kind for message in sent]


def _differing_label(operations: Sequence[RecordedOperation], workers: tuple[int, int]) -> str | None:
    """The first message of which two workers received different words; None if there is none."""
    for operation in operations:
        if all(worker in operation.received for worker in workers):
            reference, other = (operation.received[worker] for worker in workers)
            for message, first, second in zip(operation.sent[workers[0]], reference, other, strict=True):
                if not _are_equal(first, second):
                    return message.label
    return None


def _are_equal(one: Merged, other: Merged) -> bool:
    """Whether two workers received the same bits."""
    arrays = [(merged.words, merged.exponents, *merged.parts) for merged in (one, other)]
    return len(arrays[0]) == len(arrays[1]) and all(
        identity(first) == identity(second) or _content(first) == _content(second)
        for first, second in zip(*arrays, strict=True)
    )


def _content(array: NDArray[Any] | None) -> bytes | None:
    return None if array is None else array.tobytes()


# Turns in one order at all workers, without which workers that wait for each other might wait for ever.
#
# The first worker with room for the next turn chooses it, of what waits there, by rank. The others follow:
# each gives its turns in the chosen order, and waits for the next one even if something else could go. The
# choice takes no time and no packet. Real systems have a coordinator that sends it.
#
# In a step, buckets come into flight by turns and, where the network is serial, their operations enter it
# by turns. Why some worker can always go on: take the first operation in the common order that is not
# complete at all workers, number k of bucket b. All operations before it are complete everywhere, so every
# worker has room for it and can give the turn to no other. The worker that chose it had b in flight and
# operation k − 1 of b complete. That one is before it in the order, so it is complete everywhere. Therefore
# a worker that does not send operation k yet either computes, which ends, or has not got b in flight. Then
# its places are taken by buckets that are before b in the order of buckets. The worker that chose had one
# of these, c, finished when b came into flight. All operations of c are before operation k, so they are
# complete here too, and c is only decoded, which ends and frees a place. That repeats until b is in flight.
# If no such operation exists, take the first bucket in the order that is not finished at all workers: each
# has a place for it or has it in flight, so each will send its next operation. A network that is not serial
# carries that operation at once.


@dataclass
class _Turn:
    """One turn of the common order."""

    operation_id: OperationId
    workers_left: int
    """Workers that have not had this turn."""


class Coordinator:
    """Gives every worker `at_once` turns at a time, in the same order at all workers."""

    def __init__(self, environment: simpy.Environment, workers: int, at_once: int) -> None:
        self._environment, self._workers = environment, workers
        self._order: dict[int, _Turn] = {}  # turns by position, without those that all workers have had
        self._chosen = 0  # length of the order so far
        self._given = [0] * workers
        self._room = [at_once] * workers
        self._waiting: list[dict[OperationId, tuple[int, simpy.Event]]] = [{} for _ in range(workers)]
        self._is_deciding = [False] * workers

    def take(self, worker: int, operation_id: OperationId, rank: int) -> simpy.Event:
        """Event at which a worker's turn begins; it ends with `release`."""
        begins = self._environment.event()
        self._waiting[worker][operation_id] = rank, begins
        self._decide_later(worker)
        return begins

    def release(self, worker: int) -> None:
        """End a turn of a worker."""
        self._room[worker] += 1
        self._decide_later(worker)

    def _decide_later(self, worker: int) -> None:
        if self._is_deciding[worker] or not self._waiting[worker] or not self._room[worker]:
            return
        self._is_deciding[worker] = True
        decision = EndOfInstant(self._environment, InstantPhase.TURN)
        decision.callbacks.append(lambda _: self._decide(worker))

    def _decide(self, worker: int) -> None:
        """Give a worker its next turns, as far as it has room and the next of the order waits there."""
        self._is_deciding[worker] = False
        waiting = self._waiting[worker]
        while waiting and self._room[worker]:
            position = self._given[worker]
            if position == self._chosen:
                first = min(waiting, key=lambda operation_id: (waiting[operation_id][0], operation_id))
                self._order[position] = _Turn(first, self._workers)
                self._chosen += 1
            turn = self._order[position]
            if turn.operation_id not in waiting:
                return
            turn.workers_left -= 1
            if not turn.workers_left:
                del self._order[position]
            _, begins = waiting.pop(turn.operation_id)
            self._room[worker] -= 1
            self._given[worker] += 1
            begins.succeed()


# A unit that does one piece of work at a time, such as a worker's device.


LAST = 2**31  # rank after those of all buckets


class SerialDevice:
    """Does one piece of work at a time, without interruption.

    When it is free it takes, of the work that waits at the end of that instant, that with the lowest rank,
    and of equal ranks what asked first.
    """

    def __init__(self, environment: simpy.Environment) -> None:
        self._environment = environment
        self._waiting: list[tuple[int, int, simpy.Event]] = []  # rank, number of the request
        self._requests_count = 0
        self._is_busy = self._is_deciding = False

    def take(self, rank: int) -> simpy.Event:
        """Event at which the unit begins this work, which ends with `release`."""
        begins = self._environment.event()
        heapq.heappush(self._waiting, (rank, self._requests_count, begins))
        self._requests_count += 1
        self._decide_later()
        return begins

    def release(self) -> None:
        """End the present work."""
        self._is_busy = False
        self._decide_later()

    def _decide_later(self) -> None:
        if self._is_busy or self._is_deciding or not self._waiting:
            return
        self._is_deciding = True
        EndOfInstant(self._environment, InstantPhase.DEVICE).callbacks.append(self._decide)

    def _decide(self, _: simpy.Event) -> None:
        self._is_deciding, self._is_busy = False, True
        heapq.heappop(self._waiting)[-1].succeed()


# What every worker does now, for the diagnosis of a stall.


class WorkerActivities:
    """The activities of a job's workers: of each bucket in flight or, if there is none, of the device."""

    def __init__(self, hosts: HostTimes, workers: int, show: Callable[[int, str, int], None]) -> None:
        self._hosts, self._show = hosts, show  # `show` takes worker, text, and when that ends
        self._buckets: list[dict[int, str]] = [{} for _ in range(workers)]
        self._computing = [("", 0)] * workers  # the latest text, and when that ends
        self._step, self._left = 0, [0] * workers  # buckets that have not landed in this step

    def begin(self, step: int, buckets_count: int) -> None:
        # `buckets_count` is that of each worker.
        self._step, self._left = step, [buckets_count] * len(self._left)

    def compute(self, worker: int, what: str, now_ps: int, end_ps: int) -> None:
        """The device's passes are at a point, up to a time."""
        self._computing[worker] = what, end_ps
        if not self._buckets[worker]:
            self._report(worker, now_ps)

    def set(self, worker: int, bucket: int, what: str, until_ps: int) -> None:
        """A bucket in flight is at a point, up to a time as far as that is known."""
        self._buckets[worker][bucket] = what
        texts = self._buckets[worker]
        self._tell(worker, "; ".join(texts[bucket_index] for bucket_index in sorted(texts)), until_ps)

    def land(self, worker: int, bucket: int, now_ps: int) -> None:
        """A bucket is no longer in flight."""
        self._buckets[worker].pop(bucket, None)  # a round may have no operation
        self._left[worker] -= 1
        if not self._left[worker]:
            self._computing[worker] = f"is done with step {self._step}", now_ps
        self._report(worker, now_ps)

    def _report(self, worker: int, now_ps: int) -> None:
        texts = self._buckets[worker]
        what, end_ps = self._computing[worker]
        if texts:
            what, end_ps = "; ".join(texts[bucket_index] for bucket_index in sorted(texts)), now_ps
        self._tell(worker, what, max(now_ps, end_ps))

    def _tell(self, worker: int, what: str, until_ps: int) -> None:
        crash_ps = self._hosts.crash_ps(worker)
        if until_ps >= crash_ps:
            what, until_ps = HAS_CRASHED, crash_ps
        self._show(worker, what, until_ps)


# The rounds that the bytes on workers' links belong to.


class WireBytes:
    """Counts the bytes out of and into each worker's host for its rounds.

    Bytes that pass while a worker has one operation on the network are that operation's. While it has
    several, each gets a share in proportion to the payload that it announced. Bytes that pass while it has
    none, such as late acknowledgements and what it still passes on, go to the worker's next round that ends,
    or after the last one to that. So nothing is lost, and the figures are exact wherever the operations of a
    worker do not overlap.

    Hosts may have had other jobs before, and get others afterwards: bytes are counted from when this object
    is made until `hand_over`.
    """

    def __init__(self, sent_bytes: Callable[[int], int], host_links: Sequence[tuple[int, int]]) -> None:
        self._sent_bytes, self._host_links = sent_bytes, host_links
        self._counted = [self._now(worker) for worker in range(len(host_links))]  # up, down
        self._unclaimed = np.zeros((len(host_links), 2), np.int64)
        self._open: list[list[tuple[RoundLog, int]]] = [[] for _ in host_links]
        self._is_gone = np.zeros(len(host_links), np.bool_)  # whether another job has the worker's host

    def begin(self, worker: int, log: RoundLog, payload_bytes: int) -> None:
        """A worker's operation of a round enters the network."""
        self._count(worker)
        self._open[worker].append((log, max(1, payload_bytes)))

    def end(self, worker: int, log: RoundLog) -> None:
        """That operation is complete."""
        self._count(worker)
        self._open[worker] = [operation for operation in self._open[worker] if operation[0] is not log]

    def end_round(self, worker: int, log: RoundLog) -> None:
        self._count(worker)
        log.wire_bytes += self._unclaimed[worker]
        self._unclaimed[worker] = 0

    def take_rest(self) -> NDArray[np.int64]:
        """(2,) bytes up and down that belong to no round yet, of all workers."""
        for worker in range(len(self._host_links)):
            self._count(worker)
        unclaimed_bytes: NDArray[np.int64] = self._unclaimed.sum(axis=0)
        self._unclaimed[:] = 0
        return unclaimed_bytes

    def hand_over(self, worker: int) -> None:
        """Another job gets the worker's host: what passes from now on is not counted."""
        self._count(worker)
        self._is_gone[worker] = True

    def _now(self, worker: int) -> tuple[int, int]:
        up, down = self._host_links[worker]
        return self._sent_bytes(up), self._sent_bytes(down)

    def _count(self, worker: int) -> None:
        """Assign the bytes since the last count."""
        if self._is_gone[worker]:
            return
        now, before = self._now(worker), self._counted[worker]
        if now == before:
            return
        self._counted[worker] = now
        new_bytes = np.array([now[0] - before[0], now[1] - before[1]], np.int64)
        weight_left = sum(weight for _, weight in self._open[worker])
        for log, weight in self._open[worker]:
            share = new_bytes * weight // weight_left
            log.wire_bytes += share
            new_bytes, weight_left = new_bytes - share, weight_left - weight
        self._unclaimed[worker] += new_bytes


# A worker's passes over its model in a step, on its device, also those that its encoder asks for.


MORE_PASSES = "more passes"
UPDATE = "update"
_USUAL = Fraction(1)


class Stretch(NamedTuple):
    """A part of the passes that the device does without a stop."""

    phase: str  # "forward" or "backward"
    work_ps: int
    """Work of the passes up to its end, on a host without faults."""
    buckets: tuple[int, ...] = ()
    """Buckets whose gradients are ready at its end."""


class Span(NamedTuple):
    """Time of one phase."""

    phase: str
    start_ps: int
    end_ps: int


def stretches(
    passes: Passes, buckets: Sequence[Bucket], factor: Fraction = _USUAL, times: int = 1
) -> list[Stretch]:
    """The passes of one step: forward, then backward up to each bucket, as it is ready on the device.

    With local steps, `times` whole passes: what is exchanged is ready by its share of the last one. All times
    are multiplied by `factor`.
    """
    both_ps = passes.forward_ps + passes.backward_ps
    timeline: list[Stretch] = []
    for end_ps in range(both_ps, times * both_ps, both_ps) if both_ps else ():
        timeline.append(Stretch("forward", scaled_ps(end_ps - passes.backward_ps, factor)))
        timeline.append(Stretch("backward", scaled_ps(end_ps, factor)))
    end_ps = times * both_ps
    start_ps = end_ps - passes.backward_ps
    usable = passes if times == 1 else replace(passes, ready_ps={})
    ready = [(usable.bucket_ps(bucket.tensors, bucket.ready_share), bucket.index) for bucket in buckets]
    timeline.append(Stretch("forward", scaled_ps(start_ps, factor)))
    timeline += [
        Stretch("backward", scaled_ps(start_ps + ready_ps, factor), (index,))
        for ready_ps, index in sorted(ready)
    ]
    if timeline[-1].work_ps < scaled_ps(end_ps, factor):
        timeline.append(Stretch("backward", scaled_ps(end_ps, factor)))
    return timeline


class Computing:
    """One worker's passes of one step, which begin now.

    Encodings and decodings on the same device go first where they wait, and the passes go on after them. With
    `begin`, an encoder looks at all gradients when backward has ended, and buckets are ready after that.
    `begin` returns the time of the passes at other weights that the encoder asked for.
    """

    def __init__(
        self,
        environment: simpy.Environment,
        hosts: HostTimes,
        device: SerialDevice,
        activities: WorkerActivities,
        stretches: Sequence[Stretch],
        begin: Callable[[], int] | None = None,
    ) -> None:
        self.spans: list[Span] = []  # so far; up to the crash of a worker that crashes
        self.ready_ps: dict[int, int] = {}  # the time of each bucket that is ready
        self._environment, self._hosts, self._device = environment, hosts, device
        self._activities, self._stretches, self._begin = activities, stretches, begin
        self._ready = {bucket: environment.event() for stretch in stretches for bucket in stretch.buckets}

    def ready(self, bucket: int) -> simpy.Event:
        return self._ready[bucket]

    def end_ps(self, phase: str) -> int:
        return max(span.end_ps for span in self.spans if span.phase == phase)

    def run(self, step: int, worker: int) -> Generator[simpy.Event, Any, None]:
        """The SimPy process. Work that follows without a gap is rounded up to picoseconds once.

        Raises
        ------
        CodecError
            The encoder cannot begin the step.
        """
        began_ps = reached_ps = int(self._environment.now)
        began_work_ps = done_ps = 0
        for number, stretch in enumerate(self._stretches):
            yield self._device.take(LAST)
            now_ps = int(self._environment.now)
            if now_ps > reached_ps:  # the device did something else
                began_ps, began_work_ps, reached_ps = now_ps, done_ps, now_ps
            start_ps = reached_ps if number else self._hosts.end_ps(worker, began_ps, 0)
            reached_ps = self._hosts.end_ps(worker, began_ps, stretch.work_ps - began_work_ps)
            done_ps = stretch.work_ps
            self._record(stretch.phase, start_ps, min(reached_ps, self._hosts.crash_ps(worker)))
            self._activities.compute(worker, self._activity(step, number), now_ps, reached_ps)
            yield self._hosts.until(worker, reached_ps)
            self._device.release()
            if self._begin is None:
                self._set_ready(stretch.buckets)
        if self._begin is not None:
            yield from self._pass_again(step, worker, self._begin())
            self._set_ready(list(self._ready))

    def _pass_again(self, step: int, worker: int, work_ps: int) -> Generator[simpy.Event, Any, None]:
        """The passes at other weights."""
        if not work_ps:
            return
        yield self._device.take(LAST)
        start_ps = int(self._environment.now)
        end_ps = self._hosts.end_ps(worker, start_ps, work_ps)
        self._record(MORE_PASSES, start_ps, min(end_ps, self._hosts.crash_ps(worker)))
        self._activities.compute(worker, f"computes step {step} at the weights it kept", start_ps, end_ps)
        yield self._hosts.until(worker, end_ps)
        self._device.release()

    def update(self, step: int, worker: int, work_ps: int) -> Generator[simpy.Event, Any, None]:
        """The optimizer's update, after all else of the step."""
        yield self._device.take(LAST)
        start_ps = int(self._environment.now)
        end_ps = self._hosts.end_ps(worker, start_ps, work_ps)
        self._record(UPDATE, start_ps, min(end_ps, self._hosts.crash_ps(worker)))
        self._activities.compute(worker, f"updates the weights of step {step}", start_ps, end_ps)
        yield self._hosts.until(worker, end_ps)
        self._device.release()

    def _set_ready(self, buckets: Sequence[int]) -> None:
        for bucket in buckets:
            self.ready_ps[bucket] = int(self._environment.now)
            self._ready[bucket].succeed()

    def _activity(self, step: int, number: int) -> str:
        following = (bucket for stretch in self._stretches[number:] for bucket in stretch.buckets)
        bucket = next(following, None)
        return f"computes step {step}" if bucket is None else f"computes bucket {bucket} of step {step}"

    def _record(self, phase: str, start_ps: int, end_ps: int) -> None:
        """Record a span, or a longer last one."""
        start_ps = min(start_ps, end_ps)
        if self.spans and (self.spans[-1].phase, self.spans[-1].end_ps) == (phase, start_ps):
            start_ps = self.spans.pop().start_ps
        self.spans.append(Span(phase, start_ps, end_ps))
