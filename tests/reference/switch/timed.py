"""Slots with timers in plain Python: the switch and the worker of TIMED.

The rules are in docs/explanation/engine/aggregation-streams.md. A slot that waited too long
answers with what it has, as in Trio-ML (Yang et al., SIGCOMM 2022) and Canary (De Sensi et al., FGCS 2024).

What one packet of worker w does to its row (bm: bitmap, n: workers; a row is slot and generation mod 2):

    its generation  row      bm      row after                               verdict
    newer           any      any     that one, {w}, overwritten, timer anew  CONSUMED, or COMPLETE if n = 1
    the row's       waiting  with w  as it was                               DROPPED
    the row's       waiting  not w   with w, merged                          CONSUMED, or COMPLETE if last
    the row's       emitted  with w  as it was                               ANSWER
    the row's       emitted  not w   as it was                               LATE
    older           any      any     as it was                               EXPIRED

A packet without words counts as any: its worker is in bm, and not among those whose words the row holds.

COMPLETE, and the row's timer, make it emitted and send its words to all workers; ANSWER and LATE send them to
w alone, EXPIRED sends w nothing but zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from netfold.sim.engine.engine_data import NEVER_PS, Overflow
from tests.reference.engine.fabric import SLOT_TIMER, Fabric, Timer
from tests.reference.engine.link import Label
from tests.reference.engine.point import (
    KEY_RESULT,
    Egress,
    Receiver,
    Site,
    Splitter,
    held_by,
    operand_of,
    split_receivers,
)
from tests.reference.engine.worker import Chunk, Home, JobNumber, Outstanding, Stream, Worker
from tests.reference.switch.merging import Operand, Register
from tests.reference.switch.switchml import Verdict

KEY_TIMED_RESULT, KEY_TIMED_LOOPBACK = 12, 18

COUNTER = {
    Verdict.COMPLETE: "results",
    Verdict.ANSWER: "answers",
    Verdict.LATE: "late",
    Verdict.EXPIRED: "expired",
    Verdict.DROPPED: "duplicates_dropped",
}


@dataclass
class Row:
    """Registers of one slot, for even generations or for odd ones."""

    generation: int = -1
    bitmap: int = 0
    register: Register = field(default_factory=Register)
    is_emitted: bool = False


class TimedReference:
    """`slots` slots of one job with `workers` workers; each slot has two rows."""

    def __init__(self, workers: int, slots: int, overflow: Overflow = Overflow.WRAP) -> None:
        self.workers = workers
        self.overflow = overflow
        self.rows = [[Row(), Row()] for _ in range(slots)]
        self.overflowed_words = 0

    def row(self, slot: int, generation: int) -> Row:
        return self.rows[slot][generation % 2]

    def packet(self, worker: int, slot: int, generation: int, operand: Operand) -> Verdict:
        """Process one packet; its words belong to position 0 of the register and on."""
        row = self.row(slot, generation)
        is_seen = row.bitmap >> worker & 1 == 1
        if generation < row.generation:
            return Verdict.EXPIRED
        if generation > row.generation:
            row.generation, row.bitmap = generation, 0
            row.register.overwrite(operand)
        elif row.is_emitted:
            return Verdict.ANSWER if is_seen else Verdict.LATE
        elif is_seen:
            return Verdict.DROPPED
        else:
            self.overflowed_words += row.register.merge(operand, self.overflow)
        row.bitmap |= 1 << worker
        row.is_emitted = row.bitmap == (1 << self.workers) - 1
        return Verdict.COMPLETE if row.is_emitted else Verdict.CONSUMED

    def register(self, slot: int, generation: int) -> Register:
        return self.row(slot, generation).register

    def time_out(self, slot: int, generation: int) -> None:
        self.row(slot, generation).is_emitted = True

    def clear(self) -> None:
        self.rows = [[Row(), Row()] for _ in self.rows]


class TimedSwitch:
    """The switch of one job: the state machine, a timer for each of its rows, and the way out."""

    def __init__(self, fabric: Fabric, job: JobNumber) -> None:
        self.fabric = fabric
        self.job = job
        self.switch = job.job.switch
        self.workers: list[Worker] = []
        self.receivers: list[Receiver] = []
        self.splitters: list[Splitter] = []
        self.egress = Egress(fabric, job, Site(0, job.job.switch, job.job.loopback_link))
        self.state = TimedReference(len(job.job.hosts), job.job.slots_count, job.job.overflow)
        self.timers: dict[tuple[int, int], Timer] = {}  # by slot and generation mod 2
        self.counters: Counter[str] = Counter()

    def receive(self, child: int, chunk: Chunk) -> None:
        self.counters["packets"] += 1
        chunk = chunk.lifted()
        slot = self.job.slot(chunk)
        is_new = chunk.generation > self.state.row(slot, chunk.generation).generation
        operand = operand_of(self.fabric, self.job, child, chunk)
        verdict = self.state.packet(child, slot, chunk.generation, operand)
        if verdict in COUNTER:
            self.counters[COUNTER[verdict]] += 1
        if is_new:
            self._start_timer(slot, chunk)
        if verdict is Verdict.COMPLETE:
            self.fabric.disarm(self.timers[slot, chunk.generation % 2])
            self.egress.pass_again(self._outgoing(slot, chunk), partial(self._replicate, KEY_RESULT))
        elif verdict is Verdict.EXPIRED:
            self._answer(child, chunk._replace(words=[0] * chunk.length, workers=0, members=0))
        elif verdict in (Verdict.ANSWER, Verdict.LATE):
            self._answer(child, self._outgoing(slot, chunk))

    def clear(self) -> None:
        self.egress.clear()
        for timer in self.timers.values():
            self.fabric.disarm(timer)
        self.state.clear()

    def _start_timer(self, slot: int, chunk: Chunk) -> None:
        """A row was restarted, whether or not its last generation was complete."""
        cause = chunk.cause
        label = Label(self.job.owner(cause.worker), cause.unit, cause.part, cause.attempt)
        timer = Timer(SLOT_TIMER, label, partial(self._time_out, slot, chunk), host=None)
        if former := self.timers.get((slot, chunk.generation % 2)):
            self.fabric.disarm(former)
        self.timers[slot, chunk.generation % 2] = timer
        self.fabric.arm(timer, self.fabric.now_ps + self.job.job.slot_timer_ps)

    def _outgoing(self, slot: int, chunk: Chunk) -> Chunk:
        """A result with the words there are, caused by a packet."""
        return held_by(self.state.row(slot, chunk.generation).register, chunk)

    def _answer(self, child: int, result: Chunk) -> None:
        self.egress.pass_again(result, partial(self.egress.to_worker, self.workers[child]))

    def _time_out(self, slot: int, chunk: Chunk) -> None:
        """A row waited too long since this packet: all workers get what it has."""
        self.counters["timed_out"] += 1
        self.state.time_out(slot, chunk.generation)
        replicate = partial(self._replicate, KEY_TIMED_RESULT)
        cause = chunk._replace(cause=chunk.cause._replace(copy=0))  # a row has one timer
        self.egress.pass_again(self._outgoing(slot, cause), replicate, KEY_TIMED_LOOPBACK)

    def _replicate(self, rng_stream: int, result: Chunk) -> None:
        if not self.receivers:  # all workers are known by now
            self.receivers, self.splitters = split_receivers(0, 1, self.workers, self.job.job.splits)
        self.egress.replicate(self.receivers, result, rng_stream)


class TimedWorker(Worker):
    """A worker that may get the result of a unit before it sends its own share: it keeps it until then."""

    def __init__(
        self, fabric: Fabric, job: JobNumber, rank: int, home: Home, finished: Callable[[], None]
    ) -> None:
        super().__init__(fabric, job, rank, home, finished)
        self.kept: list[Chunk] = []  # in the order of arrival
        self.sent: set[int] = set()  # units of the open stream, those that need not be sent included

    def receive(self, result: Chunk) -> None:
        stream, unit = result.cause.stream, result.cause.unit
        is_ahead = stream == self.stream_number and self.stream is not None and unit not in self.sent
        if is_ahead or stream > self.stream_number:
            self.kept.append(result)
        else:
            super().receive(result)

    def _begin(self, stream: Stream) -> None:
        count = len(self.kept)
        self.kept = [result for result in self.kept if result.cause.stream > self.stream_number]
        self.counters["stale_results"] += count - len(self.kept)
        self.sent = set()
        super()._begin(stream)

    def _start(self, stream: Stream, unit: int, timeout_ps: int) -> None:
        """Send a unit for the first time, or take the first result of it that is kept."""
        self.sent.add(unit)
        for number, result in enumerate(self.kept):
            if result.cause.stream == self.stream_number and result.cause.unit == unit:
                del self.kept[number]
                self.outstanding[unit % stream.window] = Outstanding(unit, NEVER_PS)
                super().receive(result)
                return
        super()._start(stream, unit, timeout_ps)


class TimedJob:
    """A job under TIMED: its workers and their switch."""

    def __init__(self, fabric: Fabric, job: JobNumber, finished: Callable[[int], None]) -> None:
        self.switch = TimedSwitch(fabric, job)
        self.workers: list[Worker] = self.switch.workers
        for rank in range(len(job.job.hosts)):
            home = Home(self.switch, rank)
            self.workers.append(TimedWorker(fabric, job, rank, home, partial(finished, rank)))

    def switch_counters(self) -> dict[str, int]:
        """What the switch did; counters that are missing are 0."""
        return {**self.switch.counters, "overflowed_words": self.switch.state.overflowed_words}

    def clear(self, switch: int) -> None:
        if switch == self.switch.switch:
            self.switch.clear()
