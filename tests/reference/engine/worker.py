"""Aggregation jobs in plain Python: what their packets say, streams of units, and the worker's side.

The rules are docs/explanation/engine/aggregation-streams.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from netfold.homomorphic.merge import Merge
from netfold.sim.engine.engine_data import MEMBERS_MAX, Job, Scaled, Segment
from netfold.switch.programs.tree import TREE
from tests.reference.codecs.codecs import quantise
from tests.reference.engine.fabric import STREAM_TIMER, Fabric, Timer
from tests.reference.engine.link import Label, Packet
from tests.reference.switch.merging import NO_EXPONENT, lifted, unchanged_by, words_per_word


class Cause(NamedTuple):
    """The worker's packet that a packet is, or that made a switch send it."""

    worker: int
    stream: int
    unit: int
    part: int  # which packet of the unit
    attempt: int
    copy: int = 0  # which copy of that packet, or of one on the way from it; 0: none


class Chunk(NamedTuple):
    """What a packet says: words on their way up to a slot, or from it."""

    cause: Cause
    window_slot: int
    generation: int  # units completed in this window slot before
    merge: Merge
    words: Sequence[int]  # int32 values
    exponent: int = NO_EXPONENT
    psn: int = -1  # between workers and switch
    workers: int = 1  # whose words these are
    members: int = 0  # bitmap of these workers, in jobs of few enough
    table: Sequence[int] | None = None  # of words that are still codes
    lane_bits: int = 32  # of sums
    absent_words: int = 0  # without workers: words of the result that it becomes part of

    @property
    def length(self) -> int:
        """Words of a result that it becomes part of, codes lifted."""
        return len(self.lifted().words) if self.workers else self.absent_words

    @property
    def is_header(self) -> bool:
        """Whether it travels without words, because nobody has contributed any."""
        return not self.workers and not self.words

    @property
    def version(self) -> int:
        """Which of the two versions of its slot it is for."""
        return self.generation % 2

    def lifted(self) -> Chunk:
        if self.table is None:
            return self
        return self._replace(words=lifted(self.words, self.table, self.lane_bits), table=None)


@dataclass
class JobNumber:
    """A job and the number the engine gave it."""

    job: Job
    number: int

    @property
    def window(self) -> int:
        """Units a worker may have outstanding."""
        return self.job.slots_count // self.job.unit_packets

    def owner(self, worker: int) -> int:
        return self.number * 65536 + worker

    def slot(self, chunk: Chunk) -> int:
        """Slot of a chunk, counted from the job's first."""
        return chunk.window_slot * self.job.unit_packets + chunk.cause.part

    def size_bytes(self, chunk: Chunk) -> int:
        """Wire size of a chunk: that of a full one, however few words it carries, or of a header alone."""
        is_wide = chunk.merge is Merge.TABLE_ADD and chunk.table is None
        width = words_per_word(chunk.merge, chunk.lane_bits) if is_wide else 1
        elements = self.job.frame.elements * width * (not chunk.is_header)
        part = chunk.cause.part
        return self.job.frame.wire_bytes(elements, first=part == 0, last=part == self.job.unit_packets - 1)


class Way(NamedTuple):
    """Where a chunk goes next, and what sets its packet apart from others with the same cause."""

    target: int  # node
    route: int
    rng_stream: int  # of its key
    party: int  # in its key
    owner: int  # worker that the log calls its owner
    deliver: Callable[[Chunk], None]


def packet_of(fabric: Fabric, job: JobNumber, chunk: Chunk, way: Way) -> Packet:
    """A packet that carries a chunk; it is delivered with the words that faults left."""
    cause = chunk.cause
    return Packet(
        target=way.target,
        route=way.route,
        size_bytes=job.size_bytes(chunk),
        key=fabric.key(
            way.rng_stream,
            job.number,
            way.party,
            cause.stream,
            cause.unit,
            cause.part,
            cause.attempt,
            copy=cause.copy,
        ),
        label=Label(job.owner(way.owner), cause.unit, cause.part, cause.attempt),
        deliver=lambda packet: way.deliver(
            chunk._replace(words=packet.words, cause=cause._replace(copy=packet.copy))
        ),
        words=chunk.words,
        starts_message=cause.part == 0,
        copy=cause.copy,
    )


# What an aggregation stream consists of: units, and where their words belong.


def width_of(segment: Segment) -> int:
    """Result words per word sent."""
    return words_per_word(segment.merge, segment.lane_bits)


@dataclass
class Place:
    """Where a unit's words come from and its result goes: `words[start:]`, cut at the segment's end."""

    segment: Segment
    start: int

    def part(self, part: int, elements: int) -> slice:
        """The words of one packet of the unit, maybe none."""
        size = self.segment.size
        start = self.start + part * elements
        return slice(min(start, size), min(start + elements, size))


class Stream:
    """One exchange of one worker, cut into units."""

    def __init__(self, numbered: JobNumber, segments: Sequence[Segment], scaled: Scaled | None) -> None:
        job = numbered.job
        unit_elements = job.unit_packets * job.frame.elements
        self.job = job
        self.scaled = scaled
        places = [
            Place(segment, start) for segment in segments for start in range(0, segment.size, unit_elements)
        ]
        self.segments = segments
        # A scaled stream sends the exponents of its first blocks ahead of any words.
        self.lead = min(numbered.window, len(places)) if scaled else 0
        self.places: list[Place | None] = [None] * self.lead + list(places)
        self.units = len(self.places)
        self.completed = 0
        # A scaled stream with fewer blocks than window slots uses as many slots as it has blocks: then the
        # unit before one in its slot is also the one that brings its agreed exponent.
        self.window = self.lead if scaled else numbered.window
        self._quantised: dict[int, list[int]] = {}  # by unit

    def merge(self, unit: int) -> Merge:
        """Merge of a unit; without words it does not matter which."""
        place = self.places[unit]
        return place.segment.merge if place else Merge.ADD

    def lane_bits(self, unit: int) -> int:
        place = self.places[unit]
        return place.segment.lane_bits if place else 32

    def table(self, unit: int) -> list[int] | None:
        """What lifts a unit's words, if they are codes."""
        place = self.places[unit]
        if place is None or place.segment.merge is not Merge.TABLE_ADD or place.segment.is_absent:
            return None
        assert place.segment.table is not None, "TABLE_ADD needs a table"
        return list(map(int, place.segment.table))

    def is_absent(self, unit: int) -> bool:
        """Whether this worker contributes nothing to a unit; a scaled stream has one segment."""
        place = self.places[unit]
        return (place.segment if place else self.segments[0]).is_absent

    def absent_words(self, unit: int, part: int) -> int:
        """Words that a packet's result has, where this worker contributes none."""
        place = self.places[unit]
        if place is None or not place.segment.is_absent:
            return 0
        words = place.part(part, self.job.frame.elements)
        return (words.stop - words.start) * width_of(place.segment)

    def words(self, unit: int, part: int) -> list[int]:
        place = self.places[unit]
        if place is None or place.segment.is_absent:
            return []
        elements = self.job.frame.elements
        if self.scaled is None:
            return list(map(int, place.segment.words.view(np.int32)[place.part(part, elements)]))
        if unit not in self._quantised:  # first sent: a retransmission sends the same words
            block = place.segment.words[place.start : place.start + self.job.unit_packets * elements]
            exponent = int(self.scaled.agreed[unit - self.lead])
            self._quantised[unit] = quantise(block, exponent, len(self.job.hosts))
        return self._quantised[unit][part * elements : (part + 1) * elements]

    def exponent(self, unit: int, part: int) -> int:
        if self.scaled is None or part < self.job.unit_packets - 1 or unit >= self.scaled.exponents.size:
            return NO_EXPONENT
        return int(self.scaled.exponents[unit])

    def store(self, result: Chunk) -> None:
        """Write a result's words, agreed exponent and holders where they belong."""
        unit, part = result.cause.unit, result.cause.part
        place = self.places[unit]
        if place is not None:
            target = place.part(part, self.job.frame.elements)
            segment, lanes = place.segment, width_of(place.segment)
            words = unchanged_by(segment.merge) if result.is_header else result.words
            segment.result.view(np.int32)[lanes * target.start : lanes * target.stop] = words
            packet = place.start // self.job.frame.elements + part
            if segment.holders is not None:
                segment.holders[packet] = result.members
            if segment.members is not None and target.start < target.stop:
                segment.members[packet] = result.workers, result.members
        if self.scaled is not None and part == self.job.unit_packets - 1 and unit < self.scaled.agreed.size:
            self.scaled.agreed[unit] = result.exponent


# The worker's side: window, timer, sending and receiving.

KEY_WORKER, KEY_JITTER = 1, 9


class Home(NamedTuple):
    """Where a worker hangs in the tree."""

    point: Any  # a switch of the job's tree
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
        self.generations = [0] * job.window  # units completed, by window slot
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
        self.timeout_ps = self.job.sender.timeout_ps
        for unit in range(min(stream.units, stream.window)):
            self._start(stream, unit, self.job.sender.first_timeout_ps)

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
        self.generations[slot] += 1
        stream.completed += 1
        if stream.completed == stream.units:
            self._end()
        elif unit + stream.window < stream.units:
            self._start(stream, unit + stream.window, self.timeout_ps)

    def _start(self, stream: Stream, unit: int, timeout_ps: int) -> None:
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
                generation=self.generations[slot],
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
                rng_stream=KEY_WORKER,
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
            if self.job.sender.waits_for_loss and is_first and self.fabric.lost_ps < outstanding.sent_ps:
                outstanding.deadline_ps = self.fabric.now_ps + self.timeout_ps
                continue
            self.counters["timeouts"] += 1
            outstanding.attempt += 1
            self._send(self.stream, slot, outstanding)
            cause = Cause(self.rank, self.stream_number, outstanding.unit, 0, outstanding.attempt)
            timeout_ps = backed_off_ps(self.job, self.timeout_ps, outstanding.attempt)
            outstanding.deadline_ps = self.fabric.now_ps + timeout_ps + self._jitter_ps(cause)
            if not self.job.sender.waits_for_loss and self.counters["timeouts"] >= self.threshold:
                longer_ps = min(2 * self.timeout_ps, self.job.sender.timeout_max_ps)
                self.timeout_ps = max(self.timeout_ps, longer_ps)
                self.threshold += 100
        self.fabric.arm(self.timer, min(o.deadline_ps for o in self.outstanding if o is not None))

    def _jitter_ps(self, cause: Cause) -> int:
        """Extra timeout, so that bursts that collided do not keep colliding."""
        identity = (self.numbered.number, self.rank, cause.stream, cause.unit, cause.attempt)
        return self.fabric.key(KEY_JITTER, *identity) % max(self.timeout_ps // 4, 1)

    def close(self) -> None:
        self.fabric.disarm(self.timer)
        self.stream = None

    def _end(self) -> None:
        self.close()
        self.finished()


def backed_off_ps(job: Job, timeout_ps: int, attempt: int) -> int:
    """The timeout after the `attempt`-th copy: twice as long each time, if the job waits for losses."""
    if not job.sender.waits_for_loss:
        return timeout_ps
    return min(timeout_ps * 2 ** min(attempt, 6), job.sender.timeout_max_ps)


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
