"""Slots with timers in plain Python: the switch and the worker of TIMED.

The rules are the section "Slots with timers (TIMED)" of sim/engine/README.md. A slot that waited too long
answers with what it has, as in Trio-ML (Yang et al., SIGCOMM 2022) and Canary (De Sensi et al., FGCS 2024).

What one packet of worker w does to its row (bm: bitmap, n: workers; a row is slot and turn mod 2):

    its turn   row      bm      row after                                     verdict
    newer      any      any     its turn, {w}, overwritten, timer armed anew  CONSUMED, or COMPLETE if n = 1
    the row's  waiting  with w  as it was                                     DROPPED
    the row's  waiting  not w   with w, merged                                CONSUMED, or COMPLETE if last
    the row's  emitted  with w  as it was                                     ANSWER
    the row's  emitted  not w   as it was                                     LATE
    older      any      any     as it was                                     EXPIRED

COMPLETE, and the row's timer, make it emitted and send its words to all workers; ANSWER and LATE send them to
w alone, EXPIRED sends w nothing but zeros.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from netfold.sim.engine.interface import NEVER_PS
from tests.reference.engine.chunk import Chunk, JobNumber
from tests.reference.engine.egress import KEY_RESULT, Egress, Site
from tests.reference.engine.fabric import SLOT_TIMER, Fabric, Timer
from tests.reference.engine.link import Label
from tests.reference.engine.point import operand_of
from tests.reference.engine.stream import Stream
from tests.reference.engine.worker import Home, Outstanding, Worker
from tests.reference.switch.merging import Register

KEY_TIMED_RESULT, KEY_TIMED_LOOPBACK = 12, 18


class Row:
    """Registers of one slot, for even turns or for odd ones."""

    def __init__(self, time_out: Callable[[Row], None]) -> None:
        self.turn = -1
        self.bitmap = 0
        self.register = Register()
        self.is_emitted = False
        self.cause: Chunk | None = None  # the packet that started this turn
        self.timer = Timer(SLOT_TIMER, Label(0), partial(time_out, self), host=None)

    def outgoing(self, chunk: Chunk) -> Chunk:
        """A result with the words there are, caused by a packet."""
        words = self.register.read(len(chunk.words))
        return chunk._replace(words=words, workers=self.register.workers, holders=self.bitmap)


class TimedSwitch:
    """The switch of one job."""

    def __init__(self, fabric: Fabric, job: JobNumber) -> None:
        self.fabric = fabric
        self.job = job
        self.switch = job.job.switch
        self.workers: list[Worker] = []
        self.egress = Egress(fabric, job, Site(0, job.job.switch, job.job.loopback_link))
        self.rows = [[Row(self._time_out), Row(self._time_out)] for _ in range(job.job.slots_count)]
        self.counters: Counter[str] = Counter()

    def receive(self, child: int, chunk: Chunk) -> None:
        """Process one packet of a worker."""
        self.counters["packets"] += 1
        chunk = chunk.lifted()
        row = self.rows[self.job.slot(chunk)][chunk.turn % 2]
        is_seen = row.bitmap >> child & 1 == 1
        if chunk.turn > row.turn:
            self._start(row, child, chunk)
        elif chunk.turn < row.turn:
            self.counters["expired"] += 1
            self._answer(child, chunk._replace(words=[0] * len(chunk.words), holders=0))
        elif row.is_emitted:
            self.counters["answers" if is_seen else "late"] += 1
            self._answer(child, row.outgoing(chunk))
        elif is_seen:
            self.counters["duplicates_dropped"] += 1
        else:
            self._merge(row, child, chunk)

    def clear(self) -> None:
        """Lose what all registers hold."""
        self.egress.clear()
        for pair in self.rows:
            for row in pair:
                self.fabric.disarm(row.timer)
            pair[:] = [Row(self._time_out), Row(self._time_out)]

    def _start(self, row: Row, child: int, chunk: Chunk) -> None:
        """Restart a row for a new turn, whether or not its last turn was complete."""
        row.turn, row.bitmap, row.is_emitted, row.cause = chunk.turn, 1 << child, False, chunk
        row.register.overwrite(operand_of(self.fabric, self.job, child, chunk))
        cause = chunk.cause
        row.timer.label = Label(self.job.owner(cause.worker), cause.unit, cause.part, cause.attempt)
        self.fabric.arm(row.timer, self.fabric.now_ps + self.job.job.slot_timer_ps)
        self._complete(row, chunk)

    def _merge(self, row: Row, child: int, chunk: Chunk) -> None:
        operand = operand_of(self.fabric, self.job, child, chunk)
        self.counters["overflowed_words"] += row.register.merge(operand, self.job.job.overflow)
        row.bitmap |= 1 << child
        self._complete(row, chunk)

    def _complete(self, row: Row, chunk: Chunk) -> None:
        """Send the result if no worker is missing."""
        if row.bitmap != (1 << len(self.workers)) - 1:
            return
        self.counters["results"] += 1
        row.is_emitted = True
        self.fabric.disarm(row.timer)
        self.egress.pass_again(row.outgoing(chunk), partial(self._replicate, KEY_RESULT))

    def _answer(self, child: int, result: Chunk) -> None:
        """Send a result to one worker."""
        self.egress.pass_again(result, partial(self.egress.to_worker, self.workers[child]))

    def _time_out(self, row: Row) -> None:
        """A row waited too long: all workers get what it has."""
        assert row.cause is not None, "a packet armed the timer"
        self.counters["timed_out"] += 1
        row.is_emitted = True
        replicate = partial(self._replicate, KEY_TIMED_RESULT)
        cause = row.cause._replace(cause=row.cause.cause._replace(copy=0))  # a row has one timer
        self.egress.pass_again(row.outgoing(cause), replicate, KEY_TIMED_LOOPBACK)

    def _replicate(self, purpose: int, result: Chunk) -> None:
        for worker in self.workers:
            self.egress.to_worker(worker, result, purpose)


class TimedWorker(Worker):
    """A worker that may get the result of a unit before it sends its own share: it keeps it until then."""

    def __init__(
        self, fabric: Fabric, job: JobNumber, rank: int, home: Home, finished: Callable[[], None]
    ) -> None:
        super().__init__(fabric, job, rank, home, finished)
        self.kept: list[Chunk] = []  # in the order of arrival
        self.sent: set[int] = set()  # units of the open stream, those that need not be sent included

    def receive(self, result: Chunk) -> None:
        """Take in one result packet, or keep it."""
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
        return dict(self.switch.counters)

    def clear(self, switch: int) -> None:
        """Lose what the registers of a switch hold."""
        if switch == self.switch.switch:
            self.switch.clear()
