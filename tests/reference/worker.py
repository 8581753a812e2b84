"""The worker's side of aggregation streams in plain Python: window, timer, sending and receiving.

The rules are the section "Aggregation streams (SwitchML)" of sim/engine/README.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.reference.fabric import STREAM_TIMER, Fabric, Label, Packet, Timer
from tests.reference.stream import Contribution, JobNumber, Result, Stream, full_bytes

KEY_CONTRIBUTION, KEY_JITTER = 1, 9


@dataclass
class Outstanding:
    """A unit that was sent and is not complete, in its window slot."""

    unit: int
    deadline_ps: int
    attempt: int = 0
    parts: int = 0  # of its result, received in sequence
    expected: int = -1  # PSN of the next part


class Worker:
    """One worker of one job: window, retransmission timer, and the stream that is open."""

    def __init__(
        self,
        fabric: Fabric,
        job: JobNumber,
        rank: int,
        to_switch: Callable[[Contribution], None],
        finished: Callable[[], None],
    ) -> None:
        self.fabric = fabric
        self.job = job.job
        self.number = job.number
        self.window = job.window
        self.rank = rank
        self.to_switch = to_switch
        self.finished = finished
        self.timer = Timer(STREAM_TIMER, job.owner(rank), self._time_out)
        self.stream: Stream | None = None
        self.stream_number = -1
        self.outstanding: list[Outstanding | None] = [None] * self.window
        self.version = [0] * self.window
        self.next_psn = [0] * self.window
        self.timeout_ps = 0
        self.threshold = 100
        self.counters = {"timeouts": 0, "retransmitted_packets": 0, "stale_results": 0}

    def open(self, stream: Stream) -> None:
        """Start an exchange: everything that need not wait is sent at once."""
        if self.stream is not None:
            raise ValueError(
                f"worker {self.rank} of job {self.number} has stream {self.stream_number} open already"
            )
        if stream.units == 0:
            raise ValueError(f"worker {self.rank} of job {self.number}: a stream needs at least one word")
        self.stream = stream
        self.stream_number += 1
        self.timeout_ps = self.job.timeout_ps
        for unit in range(min(stream.units, stream.window)):
            self._start(stream, unit, self.job.first_timeout_ps)

    def receive(self, result: Result) -> None:
        """Take in one result packet; a complete unit releases what waited for it."""
        stream = self.stream
        if stream is None or result.stream != self.stream_number:
            self.counters["stale_results"] += 1
            return
        slot = result.unit % stream.window
        outstanding = self.outstanding[slot]
        if outstanding is None or outstanding.unit != result.unit:
            self.counters["stale_results"] += 1
            return
        if not in_sequence(outstanding, result):
            return
        stream.store(result)
        if outstanding.parts < self.job.unit_packets:
            return
        self.outstanding[slot] = None
        self.version[slot] = 1 - self.version[slot]
        stream.completed += 1
        if stream.completed == stream.units:
            self._end()
        elif result.unit + stream.window < stream.units:
            self._start(stream, result.unit + stream.window, self.timeout_ps)

    def _start(self, stream: Stream, unit: int, timeout_ps: int) -> None:
        """Send a unit for the first time."""
        slot = unit % stream.window
        assert self.outstanding[slot] is None, "a window slot holds one unit"
        outstanding = Outstanding(unit, self.fabric.now_ps + timeout_ps)
        self.outstanding[slot] = outstanding
        self._send(stream, slot, outstanding)
        if self.timer.armed_ps is None or outstanding.deadline_ps < self.timer.armed_ps:
            self.fabric.arm(self.timer, outstanding.deadline_ps)

    def _send(self, stream: Stream, slot: int, outstanding: Outstanding) -> None:
        """Put all packets of a unit on the way to the switch."""
        unit, attempt = outstanding.unit, outstanding.attempt
        for part in range(self.job.unit_packets):
            contribution = Contribution(
                worker=self.rank,
                stream=self.stream_number,
                unit=unit,
                part=part,
                attempt=attempt,
                psn=self.next_psn[slot],
                window_slot=slot,
                version=self.version[slot],
                merge=stream.merge(unit),
                words=stream.words(unit, part),
                exponent=stream.exponent(unit, part),
            )
            self.next_psn[slot] += 1
            self.counters["retransmitted_packets"] += attempt > 0
            identity = (self.number, self.rank, self.stream_number, unit, part, attempt)
            packet = Packet(
                target=self.job.switch,
                route=self.job.routes[self.rank],
                size_bytes=full_bytes(self.job.frame, part, self.job.unit_packets),
                key=self.fabric.key(KEY_CONTRIBUTION, *identity),
                label=Label(self.timer.owner, unit, part, attempt),
                deliver=partial(self.to_switch, contribution),
            )
            self.fabric.forward(packet, self.job.hosts[self.rank])

    def _time_out(self) -> None:
        """Send every overdue unit again, in the order of window slots."""
        assert self.stream is not None, "the timer of an ended stream is void"
        for slot, outstanding in enumerate(self.outstanding):
            if outstanding is None or outstanding.deadline_ps > self.fabric.now_ps:
                continue
            self.counters["timeouts"] += 1
            outstanding.attempt += 1
            self._send(self.stream, slot, outstanding)
            identity = (self.number, self.rank, self.stream_number, outstanding.unit, outstanding.attempt)
            jitter_ps = self.fabric.key(KEY_JITTER, *identity) % max(self.timeout_ps // 4, 1)
            outstanding.deadline_ps = self.fabric.now_ps + self.timeout_ps + jitter_ps
            if self.counters["timeouts"] >= self.threshold:
                self.timeout_ps = max(self.timeout_ps, min(2 * self.timeout_ps, self.job.timeout_max_ps))
                self.threshold += 100
        self.fabric.arm(self.timer, min(o.deadline_ps for o in self.outstanding if o is not None))

    def _end(self) -> None:
        self.fabric.disarm(self.timer)
        self.stream = None
        self.finished()


def in_sequence(outstanding: Outstanding, result: Result) -> bool:
    """Whether a result packet follows on those before it (part 0 always does); if not, all start over."""
    if result.part == 0:
        outstanding.parts = 0
    elif result.psn != outstanding.expected or result.part != outstanding.parts:
        outstanding.parts = 0
        outstanding.expected = -1
        return False
    outstanding.parts += 1
    outstanding.expected = result.psn + 1
    return True
