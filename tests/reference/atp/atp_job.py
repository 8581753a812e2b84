"""One ATP job in plain Python: packets, parameter server, workers, and the switch between them.

The rules are docs/explanation/engine/atp.md; what the switch keeps is in `switch.py`. Source:
in-ATP/ATP, server/ParameterServer.cc, client/p4ml_manager.cc, common/CC_manager.h, common/window_manager.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np

from netfold.homomorphic.merge import Merge
from netfold.sim.engine.engine_data import Overflow, Segment
from tests.reference.atp.switch import AtpReference, Verdict
from tests.reference.engine.congestion_policies import POLICIES
from tests.reference.engine.fabric import STREAM_TIMER, Fabric, Timer
from tests.reference.engine.link import Label, Packet
from tests.reference.engine.worker import JobNumber, backed_off_ps
from tests.reference.switch.merging import INT32_MAX, added, merged_word

KEY_DATA, KEY_JITTER, KEY_FIRST_ENTRY, KEY_PROPOSAL, KEY_REPLY, KEY_COPY = 1, 9, 14, 15, 16, 17

NO_PROPOSAL = -1


class Contribution(NamedTuple):
    """What a data packet says besides its words: from a worker, or from the switch for several workers."""

    stream: int
    unit: int
    bits: int  # of the workers whose words it holds
    entry: int
    is_resend: bool
    is_float: bool  # the overflow flag
    can_be_float: bool  # its segment has floats to send instead
    has_collided: bool = False


class Reply(NamedTuple):
    """What an acknowledgement says besides the sum: from the server to the switch, and to every worker."""

    worker: int  # lowest one in the packet that caused it
    stream: int
    unit: int
    number: int  # 0, 1, … of the unit
    entry: int
    is_float: bool
    is_request: bool  # for floats, instead of a sum
    proposal: int  # entry to use from now on, or NO_PROPOSAL


def first_entries(fabric: Fabric, job: JobNumber) -> list[int]:
    """Entry of each place in the window, all different; other jobs on the switch may have the same ones.

    Source: in-ATP/ATP, common/HashTable.cc (there CRC32 of application, index and salt).
    """
    server = job.job.server
    assert server is not None
    entries: list[int] = []
    for place in range(server.window_max):
        tries = (fabric.key(KEY_FIRST_ENTRY, job.number, place, salt) % server.entries for salt in count())
        entries.append(next(entry for entry in tries if entry not in entries))
    return entries


def full_bytes(job: JobNumber) -> int:
    """Wire size of every packet."""
    frame = job.job.frame
    return frame.wire_bytes(frame.elements, first=True, last=True)


# The server: completes what the switch could not, and acknowledges.

PROPOSAL_TRIES = 64


@dataclass
class Gathering:
    """What the server knows of one unit."""

    words: list[int]  # the sum of the workers in `bits`
    bits: int = 0
    is_marked: bool = False
    has_collided: bool = False
    has_asked_for_entry: bool = False  # a proposal was made, or none was found
    is_float: bool = False
    is_done: bool = False
    proposal: int = NO_PROPOSAL
    replies: int = 0


class AtpServer:
    """The server of one job."""

    def __init__(
        self,
        fabric: Fabric,
        job: JobNumber,
        first_entries: Sequence[int],
        to_switch: Callable[[Reply, Packet], None],
    ) -> None:
        assert job.job.server is not None
        self.fabric = fabric
        self.job = job
        self.server = job.job.server
        self.to_switch = to_switch
        self.all_bits = (1 << len(job.job.hosts)) - 1
        self.used_entries = set(first_entries)
        self.tries = 0  # at a proposal
        self.gatherings: dict[tuple[int, int], Gathering] = {}  # by stream and unit
        self.newest_stream = 0
        self.counters = {"server_packets": 0, "requests": 0}

    def receive(self, data: Contribution, packet: Packet) -> None:
        self.counters["server_packets"] += 1
        if data.stream < self.newest_stream - 1:
            return
        self._forget_before(data.stream - 1)
        unit = self.gatherings.setdefault((data.stream, data.unit), Gathering([0] * len(packet.words)))
        unit.is_marked |= packet.is_marked
        unit.has_collided |= data.has_collided
        if unit.is_done:
            self._reply(unit, data)
            return
        if data.is_float != unit.is_float:
            self._request(unit, data)
            if not data.is_float:
                return
        if data.is_float:
            self._add_floats(unit, data, packet.words)
        else:
            self._add(unit, data, packet.words)
        if unit.bits == self.all_bits:
            self._complete(unit, data)

    def _forget_before(self, stream: int) -> None:
        if stream + 1 > self.newest_stream:
            self.newest_stream = stream + 1
            self.gatherings = {key: unit for key, unit in self.gatherings.items() if key[0] >= stream}

    def _add(self, unit: Gathering, data: Contribution, words: list[int]) -> None:
        """Take all of a packet's words, or none: those of single workers cannot be separated."""
        if data.bits != self.all_bits and data.bits & unit.bits:
            return
        if data.bits == self.all_bits or unit.bits == 0:
            unit.words = words
        else:
            pairs = zip(unit.words, words, strict=True)
            unit.words = [added(old, new, Overflow.STICKY)[0] for old, new in pairs]
        unit.bits |= data.bits

    def _add_floats(self, unit: Gathering, data: Contribution, words: list[int]) -> None:
        if data.bits & unit.bits:
            return
        unit.words = add_floats(unit.words, words) if unit.bits else words
        unit.bits |= data.bits

    def _complete(self, unit: Gathering, data: Contribution) -> None:
        """Answer with the sum, or ask for floats if it may be wrong."""
        if not data.is_float and data.can_be_float and any(abs(word) >= INT32_MAX for word in unit.words):
            self._request(unit, data)
            return
        unit.is_done = True
        self._reply(unit, data)

    def _request(self, unit: Gathering, data: Contribution) -> None:
        """Ask every worker for floats; from the first time on, ints do not count."""
        if not unit.is_float:
            unit.is_float = True
            unit.bits = 0
        self.counters["requests"] += 1
        self._reply(unit, data)

    def propose(self) -> int:
        """An entry that the job has not used yet, if one is found soon."""
        for _ in range(PROPOSAL_TRIES):
            entry = self.fabric.key(KEY_PROPOSAL, self.job.number, self.tries) % self.server.entries
            self.tries += 1
            if entry not in self.used_entries:
                self.used_entries.add(entry)
                return entry
        return NO_PROPOSAL

    def _reply(self, unit: Gathering, data: Contribution) -> None:
        """Put an acknowledgement on the way to the switch: a request until the unit is done."""
        if unit.is_done and unit.has_collided and not unit.has_asked_for_entry:
            unit.has_asked_for_entry = True
            unit.proposal = self.propose()
        worker = (data.bits & -data.bits).bit_length() - 1
        reply = Reply(
            worker=worker,
            stream=data.stream,
            unit=data.unit,
            number=unit.replies,
            entry=data.entry,
            is_float=unit.is_float,
            is_request=not unit.is_done,
            proposal=unit.proposal,
        )
        unit.replies += 1
        identity = (self.job.number, worker, data.stream, data.unit, 0, reply.number)
        packet = Packet(
            target=self.job.job.switch,
            route=self.server.route,
            size_bytes=full_bytes(self.job),
            key=self.fabric.key(KEY_REPLY, *identity),
            label=Label(self.job.owner(worker), data.unit, 0, reply.number),
            deliver=partial(self.to_switch, reply),
            words=unit.words,
            starts_message=True,
            is_marked=unit.is_marked,
        )
        self.fabric.forward(packet, self.server.host)


def add_floats(old: list[int], new: list[int]) -> list[int]:
    return [merged_word(Merge.FLOAT_ADD, a, b) for a, b in zip(old, new, strict=True)]


# The worker: window, entries, timer, and what it sends as floats.


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
        self.rank = rank
        self.entries = list(entries)
        self.to_switch = to_switch
        self.finished = finished
        self.timer = Timer(STREAM_TIMER, Label(job.owner(rank)), self._fire, job.job.hosts[rank])
        self.deadline_ps = 0
        self.policy = POLICIES[job.job.sender.policy](job.job.sender, len(entries))
        self.stream: AtpStream | None = None
        self.stream_number = -1
        self.counters = {"timeouts": 0, "retransmitted_packets": 0, "stale_results": 0}

    @property
    def window(self) -> int:
        """Packets that may be on their way."""
        return self.policy.window

    def open(self, segments: Sequence[Segment]) -> None:
        if self.stream is not None:
            raise ValueError(
                f"worker {self.rank} of job {self.number} has stream {self.stream_number} open already"
            )
        stream = AtpStream(segments, self.job.frame.elements)
        if not stream.units:
            raise ValueError(f"worker {self.rank} of job {self.number}: a stream needs at least one word")
        self.stream = stream
        self.stream_number += 1
        self.policy.opened()
        self._pump(stream)
        self.deadline_ps = self.fabric.now_ps + self.job.sender.first_timeout_ps
        self.fabric.arm(self.timer, self.deadline_ps)

    def receive(self, reply: Reply, packet: Packet) -> None:
        stream = self.stream
        if stream is None or reply.stream != self.stream_number:
            self.counters["stale_results"] += 1
            return
        self.deadline_ps = self.fabric.now_ps + self.job.sender.timeout_ps
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
        self.policy.acknowledged(unit, unit, is_marked)
        gap_end = stream.gap_end()
        if gap_end is not None and stream.base >= stream.resent:
            self._resend(stream, gap_end)
            stream.resent = gap_end
        self._pump(stream)

    def _pump(self, stream: AtpStream) -> None:
        while stream.next < min(len(stream.units), stream.base + self.window):
            self._send(stream, stream.next, is_resend=False)
            stream.next += 1
        self.policy.sent_up_to(stream.next)

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
            if (
                self.job.sender.waits_for_loss
                and is_first
                and self.fabric.lost_ps < stream.sent_ps[stream.base]
            ):
                self.deadline_ps = self.fabric.now_ps + self.job.sender.timeout_ps
            else:
                self._time_out(stream)
        self.fabric.arm(self.timer, self.deadline_ps)

    def _time_out(self, stream: AtpStream) -> None:
        """Send the oldest gap again, or if there is none the oldest unit."""
        self.counters["timeouts"] += 1
        gap_end = stream.gap_end()
        self._resend(stream, stream.base + 1 if gap_end is None else gap_end)
        identity = (self.number, self.rank, self.stream_number, stream.base, self.counters["timeouts"])
        jitter_ps = self.fabric.key(KEY_JITTER, *identity) % max(self.job.sender.timeout_ps // 4, 1)
        timeout_ps = backed_off_ps(self.job, self.job.sender.timeout_ps, stream.attempts[stream.base] - 1)
        self.deadline_ps = self.fabric.now_ps + timeout_ps + jitter_ps


# The job.

COUNTER = {
    Verdict.FORWARD_COMPLETE: "results",
    Verdict.FORWARD_EVICT: "evictions",
    Verdict.FORWARD_ANSWER: "answers",
    Verdict.DROPPED: "duplicates_dropped",
}


class AtpJob:
    """A job of ATP.

    `finished` is called with a worker's rank when its stream is done; `switch` holds the entries that all
    such jobs on the switch share.
    """

    def __init__(
        self, fabric: Fabric, job: JobNumber, finished: Callable[[int], None], switch: AtpReference
    ) -> None:
        assert job.job.server is not None, "a job of ATP has a server"
        self.fabric = fabric
        self.job = job
        self.switch = switch
        entries = first_entries(fabric, job)
        self.server = AtpServer(fabric, job, entries, self._acknowledge)
        self.workers = [
            AtpWorker(fabric, job, rank, entries, self._aggregate, partial(finished, rank))
            for rank in range(len(job.job.hosts))
        ]
        names = ["packets", *COUNTER.values(), "collisions", "overflowed_words", "forwarded", "acknowledged"]
        self._counters = dict.fromkeys(names, 0)

    def switch_counters(self) -> dict[str, int]:
        """What the switch and the server did; counters that are missing are 0."""
        return {**self._counters, **self.server.counters}

    def clear(self, switch: int) -> None:
        """Lose what the registers of a switch hold, if it is the job's: of all jobs on it."""
        if switch == self.job.job.switch:
            self.switch.clear()

    def open(self, worker: int, segments: Sequence[Segment]) -> None:
        self.workers[worker].open(segments)

    def identity(self, stream: int, unit: int) -> int:
        """What an entry calls a unit: different for all units of all jobs, and never 0."""
        return (self.job.number << 128) + (stream << 64) + unit + 1

    def _aggregate(self, data: Contribution, packet: Packet) -> None:
        self._counters["packets"] += 1
        if data.is_float:
            self._counters["forwarded"] += 1
            self._to_server(data, packet)
            return
        outcome = self.switch.data(
            data.entry,
            self.identity(data.stream, data.unit),
            data.bits,
            len(self.workers),
            data.is_resend,
            packet.is_marked,
            packet.words,
        )
        self._counters["overflowed_words"] += outcome.overflowed_words
        if outcome.verdict is Verdict.COLLIDED:
            if not data.is_resend:
                self.fabric.lost_ps = self.fabric.now_ps
            self._counters["collisions"] += not data.is_resend
            self._counters["forwarded"] += 1
            self._to_server(data._replace(has_collided=not data.is_resend), packet)
            return
        if outcome.verdict in COUNTER:
            self._counters[COUNTER[outcome.verdict]] += 1
        if outcome.verdict in (Verdict.CONSUMED, Verdict.DROPPED):
            return
        self._counters["forwarded"] += 1
        merged = data._replace(bits=outcome.bits)
        packet = replace(packet, words=outcome.words, is_marked=outcome.is_marked)
        if self.job.job.loopback_link < 0:
            self._to_server(merged, packet)
        else:
            pass_again = replace(packet, deliver=partial(self._to_server, merged))
            self.fabric.put(pass_again, self.job.job.loopback_link)

    def _to_server(self, data: Contribution, packet: Packet) -> None:
        """Send a packet on: the same one, so its key and hops go on."""
        server = self.server.server
        onward = replace(
            packet, target=server.host, route=server.route, deliver=partial(self.server.receive, data)
        )
        self.fabric.forward(onward, self.job.job.switch)

    def _acknowledge(self, reply: Reply, packet: Packet) -> None:
        """The switch takes in the server's packet: a result frees the entry, and every worker gets a copy."""
        self._counters["acknowledged"] += 1
        if not reply.is_request:
            self.switch.acknowledge(reply.entry, self.identity(reply.stream, reply.unit))
        for worker in self.workers:
            sender = 65536 * worker.rank + reply.worker
            identity = (self.job.number, sender, reply.stream, reply.unit, 0, reply.number)
            copy = Packet(
                target=self.job.job.hosts[worker.rank],
                route=self.job.job.routes[worker.rank],
                size_bytes=packet.size_bytes,
                key=self.fabric.key(KEY_COPY, *identity, copy=packet.copy),
                copy=packet.copy,
                label=Label(worker.timer.label.owner, reply.unit, 0, reply.number),
                deliver=partial(worker.receive, reply),
                words=packet.words,
                is_marked=packet.is_marked,
            )
            self.fabric.forward(copy, self.job.job.switch)
