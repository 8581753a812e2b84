"""ATP's worker in plain Python: window, entries, timer, and what it sends as floats.

The rules are the section "ATP" of sim/engine/README.md. Source: in-ATP/ATP, client/p4ml_manager.cc,
common/CC_manager.h and common/window_manager.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.message import Merge
from netfold.sim.engine.interface import Segment
from tests.reference.atp.atp_packet import KEY_DATA, KEY_JITTER, NO_PROPOSAL, Contribution, Reply, full_bytes
from tests.reference.engine.chunk import JobNumber
from tests.reference.engine.fabric import STREAM_TIMER, Fabric, Timer
from tests.reference.engine.link import Label, Packet
from tests.reference.engine.worker import backed_off_ps

WINDOW_STEP_BYTES = 1500  # that a window grows by


class Unit(NamedTuple):
    """Where a unit is in its segment."""

    segment: Segment
    index: int
    words: slice


class AtpStream:
    """One exchange of one worker, and how far it is."""

    def __init__(self, segments: Sequence[Segment], elements: int) -> None:
        assert all(segment.merge is Merge.ADD for segment in segments), "ATP adds and does nothing else"
        self.units = [
            Unit(segment, index, slice(start, min(start + elements, segment.words.size)))
            for segment in segments
            for index, start in enumerate(range(0, segment.words.size, elements))
        ]
        self.attempts = [0] * len(self.units)  # sent so often
        self.sent_ps = [0] * len(self.units)  # last
        self.acknowledged = [False] * len(self.units)
        self.base = 0  # all units before it are acknowledged
        self.next = 0  # all units before it were sent
        self.resent = 0  # gaps before it were filled once

    def is_float(self, number: int) -> bool:
        """Whether a unit's floats are sent in place of its words."""
        unit = self.units[number]
        return unit.segment.is_float is not None and bool(unit.segment.is_float[unit.index])

    def set_float(self, number: int, is_float: bool) -> None:
        """Note whether a unit is sent as floats, or was received so."""
        unit = self.units[number]
        if unit.segment.is_float is not None:
            unit.segment.is_float[unit.index] = is_float

    def words(self, number: int) -> list[int]:
        """What a unit's packet carries: int32 values, or the bits of its floats."""
        unit = self.units[number]
        words = unit.segment.floats if self.is_float(number) else unit.segment.words
        assert words is not None, "only a segment with floats has units that are floats"
        return list(map(int, words[unit.words].view(np.int32)))

    def store(self, number: int, words: list[int]) -> None:
        """Write a sum where it belongs; the stream's start moves on over what is complete."""
        unit = self.units[number]
        unit.segment.result.view(np.int32)[unit.words] = words
        self.acknowledged[number] = True
        while self.base < len(self.units) and self.acknowledged[self.base]:
            self.base += 1

    def gap_end(self) -> int | None:
        """The first acknowledged unit above the oldest that is not."""
        above = range(self.base + 1, self.next)
        return next((number for number in above if self.acknowledged[number]), None)


class AtpWorker:
    """One worker of one job: its window, its entries, and the stream that is open."""

    def __init__(
        self,
        fabric: Fabric,
        job: JobNumber,
        rank: int,
        entries: list[int],
        to_switch: Callable[[Contribution, Packet], None],
        finished: Callable[[], None],
    ) -> None:
        assert job.job.server is not None
        self.fabric = fabric
        self.numbered = job
        self.job = job.job
        self.number = job.number
        self.is_adaptive = job.job.server.is_adaptive
        self.rank = rank
        self.entries = list(entries)
        self.to_switch = to_switch
        self.finished = finished
        self.timer = Timer(STREAM_TIMER, Label(job.owner(rank)), self._fire, job.job.hosts[rank])
        self.deadline_ps = 0
        self.frame_bytes = job.job.frame.overhead_bytes + 4 * job.job.frame.elements
        self.window_bytes = job.job.slots_count * self.frame_bytes
        self.window_end = 0  # the unit whose result decides about the window
        self.stream: AtpStream | None = None
        self.stream_number = -1
        self.counters = {"timeouts": 0, "retransmitted_packets": 0, "stale_results": 0}

    @property
    def window(self) -> int:
        """Packets that may be on their way."""
        return self.window_bytes // self.frame_bytes

    def open(self, segments: Sequence[Segment]) -> None:
        """Start an exchange: everything that need not wait is sent at once."""
        if self.stream is not None:
            raise ValueError(
                f"worker {self.rank} of job {self.number} has stream {self.stream_number} open already"
            )
        stream = AtpStream(segments, self.job.frame.elements)
        if not stream.units:
            raise ValueError(f"worker {self.rank} of job {self.number}: a stream needs at least one word")
        self.stream = stream
        self.stream_number += 1
        self.window_end = self.window - 1
        self._pump(stream)
        self.deadline_ps = self.fabric.now_ps + self.job.first_timeout_ps
        self.fabric.arm(self.timer, self.deadline_ps)

    def receive(self, reply: Reply, packet: Packet) -> None:
        """Take in a result or a request for floats."""
        stream = self.stream
        if stream is None or reply.stream != self.stream_number:
            self.counters["stale_results"] += 1
            return
        self.deadline_ps = self.fabric.now_ps + self.job.timeout_ps
        if stream.acknowledged[reply.unit]:
            self.counters["stale_results"] += 1
        elif reply.is_request:
            self._make_float(stream, reply.unit)
        else:
            if reply.proposal != NO_PROPOSAL:
                self.entries[reply.unit % len(self.entries)] = reply.proposal
            stream.set_float(reply.unit, reply.is_float)
            stream.store(reply.unit, packet.words)
            self._go_on(stream, reply.unit, packet.is_marked)

    def _make_float(self, stream: AtpStream, unit: int) -> None:
        """Send floats from now on; a unit whose turn has not come is sent when it does."""
        if stream.is_float(unit):
            return
        stream.set_float(unit, True)
        if unit < stream.next:
            self._send(stream, unit, is_resend=False)

    def _go_on(self, stream: AtpStream, unit: int, is_marked: bool) -> None:
        """What follows from a result: the end, a new window, a gap filled, units that may go now."""
        if stream.base == len(stream.units):
            self.fabric.disarm(self.timer)
            self.stream = None
            self.finished()
            return
        ends_window = self.is_adaptive and unit == self.window_end
        if ends_window:
            self._adapt(is_marked)
        gap_end = stream.gap_end()
        if gap_end is not None and stream.base >= stream.resent:
            self._resend(stream, gap_end)
            stream.resent = gap_end
        self._pump(stream)
        if ends_window:
            self.window_end = max(stream.next - 1, unit + 1)

    def _adapt(self, is_marked: bool) -> None:
        """Halve the window after a mark, else widen it: once per window, by the mark of its last packet."""
        if is_marked:
            self.window_bytes = max(self.frame_bytes, self.window_bytes // 2)
        else:
            bytes_max = len(self.entries) * self.frame_bytes
            self.window_bytes = min(bytes_max, self.window_bytes + WINDOW_STEP_BYTES)

    def _pump(self, stream: AtpStream) -> None:
        while stream.next < min(len(stream.units), stream.base + self.window):
            self._send(stream, stream.next, is_resend=False)
            stream.next += 1

    def _resend(self, stream: AtpStream, end: int) -> None:
        for unit in range(stream.base, end):
            self._send(stream, unit, is_resend=True)

    def _send(self, stream: AtpStream, unit: int, is_resend: bool) -> None:
        """Put a unit's packet on the way to the switch."""
        attempt = stream.attempts[unit]
        stream.attempts[unit] += 1
        stream.sent_ps[unit] = self.fabric.now_ps
        self.counters["retransmitted_packets"] += attempt > 0
        contribution = Contribution(
            stream=self.stream_number,
            unit=unit,
            bits=1 << self.rank,
            entry=self.entries[unit % len(self.entries)],
            is_resend=is_resend,
            is_float=stream.is_float(unit),
            can_be_float=stream.units[unit].segment.floats is not None,
        )
        identity = (self.number, self.rank, self.stream_number, unit, 0, attempt)
        packet = Packet(
            target=self.job.switch,
            route=self.job.routes[self.rank],
            size_bytes=full_bytes(self.numbered),
            key=self.fabric.key(KEY_DATA, *identity),
            label=Label(self.timer.label.owner, unit, 0, attempt),
            deliver=partial(self.to_switch, contribution),
            words=stream.words(unit),
            starts_message=True,
        )
        self.fabric.forward(packet, self.job.hosts[self.rank])

    def _fire(self) -> None:
        """The timer: armed once, it looks whether the deadline has moved since."""
        stream = self.stream
        assert stream is not None, "the timer of an ended stream is void"
        is_first = stream.attempts[stream.base] == 1
        if self.deadline_ps <= self.fabric.now_ps:
            if self.job.waits_for_loss and is_first and self.fabric.lost_ps < stream.sent_ps[stream.base]:
                self.deadline_ps = self.fabric.now_ps + self.job.timeout_ps
            else:
                self._time_out(stream)
        self.fabric.arm(self.timer, self.deadline_ps)

    def _time_out(self, stream: AtpStream) -> None:
        """Send the oldest gap again, or if there is none the oldest unit."""
        self.counters["timeouts"] += 1
        gap_end = stream.gap_end()
        self._resend(stream, stream.base + 1 if gap_end is None else gap_end)
        identity = (self.number, self.rank, self.stream_number, stream.base, self.counters["timeouts"])
        jitter_ps = self.fabric.key(KEY_JITTER, *identity) % max(self.job.timeout_ps // 4, 1)
        timeout_ps = backed_off_ps(self.job, self.job.timeout_ps, stream.attempts[stream.base] - 1)
        self.deadline_ps = self.fabric.now_ps + timeout_ps + jitter_ps
