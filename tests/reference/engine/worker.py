"""The worker's side of aggregation streams in plain Python: window, timer, sending and receiving.

The rules are the section "Aggregation streams (SwitchML)" of sim/engine/README.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from netfold.sim.engine.interface import MEMBERS_MAX, Job
from netfold.switch.programs.tree import TREE
from tests.reference.engine.chunk import Cause, Chunk, JobNumber, Way, packet_of
from tests.reference.engine.fabric import STREAM_TIMER, Fabric, Timer
from tests.reference.engine.link import Label
from tests.reference.engine.stream import Stream

KEY_WORKER, KEY_JITTER = 1, 9


class Point(Protocol):
    """A switch of the job's tree, as its workers know it."""

    switch: int  # node

    def receive(self, child: int, chunk: Chunk) -> None:
        """Process one packet of its child number `child`."""


class Home(NamedTuple):
    """Where a worker hangs in the tree."""

    point: Point
    child: int


@dataclass
class Outstanding:
    """A unit that is not complete, in its window slot."""

    unit: int
    deadline_ps: int
    sent_ps: int = 0  # last
    attempt: int = 0
    parts: int = 0  # of its result, received in sequence
    expected: int = -1  # PSN of the next part


class Worker:
    """One worker of one job: window, retransmission timer, and the stream that is open."""

    def __init__(
        self, fabric: Fabric, job: JobNumber, rank: int, home: Home, finished: Callable[[], None]
    ) -> None:
        self.fabric = fabric
        self.job = job.job
        self.numbered = job
        self.rank = rank
        self.home = home
        self.finished = finished
        self.timer = Timer(STREAM_TIMER, Label(job.owner(rank)), self._time_out, job.job.hosts[rank])
        self.stream: Stream | None = None
        self.stream_number = -1
        self.outstanding: list[Outstanding | None] = [None] * job.window
        self.turns = [0] * job.window  # units completed, by window slot
        self.next_psn = [0] * job.window
        self.timeout_ps = 0
        self.threshold = 100
        self.counters = {"timeouts": 0, "retransmitted_packets": 0, "stale_results": 0}

    def open(self, stream: Stream) -> None:
        """Start an exchange: everything that need not wait is sent at once."""
        number = self.numbered.number
        if self.stream is not None:
            raise ValueError(
                f"worker {self.rank} of job {number} has stream {self.stream_number} open already"
            )
        if stream.units == 0:
            raise ValueError(f"worker {self.rank} of job {number}: a stream needs at least one word")
        self._begin(stream)

    def _begin(self, stream: Stream) -> None:
        self.stream = stream
        self.stream_number += 1
        self.timeout_ps = self.job.timeout_ps
        for unit in range(min(stream.units, stream.window)):
            self._start(stream, unit, self.job.first_timeout_ps)

    def receive(self, result: Chunk) -> None:
        """Take in one result packet; a complete unit releases what waited for it."""
        stream, unit = self.stream, result.cause.unit
        if stream is None or result.cause.stream != self.stream_number:
            self.counters["stale_results"] += 1
            return
        slot = unit % stream.window
        outstanding = self.outstanding[slot]
        if outstanding is None or outstanding.unit != unit:
            self.counters["stale_results"] += 1
            return
        if not in_sequence(outstanding, result):
            return
        stream.store(result)
        if outstanding.parts < self.job.unit_packets:
            return
        self.outstanding[slot] = None
        self.turns[slot] += 1
        stream.completed += 1
        if stream.completed == stream.units:
            self._end()
        elif unit + stream.window < stream.units:
            self._start(stream, unit + stream.window, self.timeout_ps)

    def _start(self, stream: Stream, unit: int, timeout_ps: int) -> None:
        """Send a unit for the first time."""
        slot = unit % stream.window
        assert self.outstanding[slot] is None, "a window slot holds one unit"
        outstanding = Outstanding(unit, self.fabric.now_ps + timeout_ps)
        self.outstanding[slot] = outstanding
        self._send(stream, slot, outstanding)
        if self.job.program is TREE:  # its network loses nothing: no timer
            return
        if self.timer.armed_ps is None or outstanding.deadline_ps < self.timer.armed_ps:
            self.fabric.arm(self.timer, outstanding.deadline_ps)

    def _send(self, stream: Stream, slot: int, outstanding: Outstanding) -> None:
        """Put all packets of a unit on the way to the switch."""
        unit, attempt = outstanding.unit, outstanding.attempt
        outstanding.sent_ps = self.fabric.now_ps
        is_absent = stream.is_absent(unit)
        for part in range(self.job.unit_packets):
            cause = Cause(self.rank, self.stream_number, unit, part, attempt)
            chunk = Chunk(
                cause=cause,
                window_slot=slot,
                turn=self.turns[slot],
                merge=stream.merge(unit),
                words=stream.words(unit, part),
                exponent=stream.exponent(unit, part),
                psn=self.next_psn[slot],
                workers=0 if is_absent else 1,
                members=0 if is_absent or len(self.job.hosts) > MEMBERS_MAX else 1 << self.rank,
                table=stream.table(unit),
                lane_bits=stream.lane_bits(unit),
                absent_words=stream.absent_words(unit, part),
            )
            self.next_psn[slot] += 1
            self.counters["retransmitted_packets"] += attempt > 0
            way = Way(
                target=self.home.point.switch,
                route=self.job.routes[self.rank],
                purpose=KEY_WORKER,
                party=self.rank,
                owner=self.rank,
                deliver=partial(self.home.point.receive, self.home.child),
            )
            packet = packet_of(self.fabric, self.numbered, chunk, way)
            self.fabric.forward(packet, self.job.hosts[self.rank])

    def _time_out(self) -> None:
        """Send every overdue unit again, in the order of window slots."""
        assert self.stream is not None, "the timer of an ended stream is void"
        for slot, outstanding in enumerate(self.outstanding):
            if outstanding is None or outstanding.deadline_ps > self.fabric.now_ps:
                continue
            is_first = outstanding.attempt == 0
            if self.job.waits_for_loss and is_first and self.fabric.lost_ps < outstanding.sent_ps:
                outstanding.deadline_ps = self.fabric.now_ps + self.timeout_ps
                continue
            self.counters["timeouts"] += 1
            outstanding.attempt += 1
            self._send(self.stream, slot, outstanding)
            cause = Cause(self.rank, self.stream_number, outstanding.unit, 0, outstanding.attempt)
            timeout_ps = backed_off_ps(self.job, self.timeout_ps, outstanding.attempt)
            outstanding.deadline_ps = self.fabric.now_ps + timeout_ps + self._jitter_ps(cause)
            if not self.job.waits_for_loss and self.counters["timeouts"] >= self.threshold:
                self.timeout_ps = max(self.timeout_ps, min(2 * self.timeout_ps, self.job.timeout_max_ps))
                self.threshold += 100
        self.fabric.arm(self.timer, min(o.deadline_ps for o in self.outstanding if o is not None))

    def _jitter_ps(self, cause: Cause) -> int:
        """Extra timeout, so that bursts that collided do not keep colliding."""
        identity = (self.numbered.number, self.rank, cause.stream, cause.unit, cause.attempt)
        return self.fabric.key(KEY_JITTER, *identity) % max(self.timeout_ps // 4, 1)

    def _end(self) -> None:
        self.fabric.disarm(self.timer)
        self.stream = None
        self.finished()


def backed_off_ps(job: Job, timeout_ps: int, attempt: int) -> int:
    """The timeout after the `attempt`-th copy: twice as long each time, if the job waits for losses."""
    return min(timeout_ps * 2 ** min(attempt, 6), job.timeout_max_ps) if job.waits_for_loss else timeout_ps


def in_sequence(outstanding: Outstanding, result: Chunk) -> bool:
    """Whether a result packet follows on those before it (part 0 always does); if not, all start over."""
    if result.cause.part == 0:
        outstanding.parts = 0
    elif result.psn != outstanding.expected or result.cause.part != outstanding.parts:
        outstanding.parts = 0
        outstanding.expected = -1
        return False
    outstanding.parts += 1
    outstanding.expected = result.psn + 1
    return True
