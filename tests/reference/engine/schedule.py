"""Schedules between hosts in plain Python: rules of `sim/engine/engine_data.py`, one object per transfer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from netfold.homomorphic.merge import Merge
from netfold.kernels.keyed_random import mix_plain
from netfold.sim.engine.engine_data import NONE, Flow, Operation, Overflow
from tests.reference.engine.fabric import MERGE_END, Fabric, Timer
from tests.reference.engine.link import Label
from tests.reference.switch.merging import Operand, Register, lifted, unchanged_by

KEY_MERGE, FLOW_SEED, KEY_FLOW = 6, 5, 7

Queue = deque[Callable[[], None]]
OpenFlow = Callable[[Flow, Callable[[], None]], None]
Report = Callable[[str, int, int], None]


@dataclass
class Cell:
    """What a worker holds of a chunk: words, or only how many; those of nobody are none."""

    count: int = 0
    words: list[int] | None = None
    workers: int = 0  # that contributed
    stands_for: int = 1  # workers, absent ones included
    is_lifted: bool = False


@dataclass
class Lane:
    """Transfers of one source and target that share a window, with their schedules."""

    outstanding: int = 0  # packets
    waiting: deque[tuple[ScheduleRun, int]] = field(default_factory=deque)


class ScheduleRun:
    """One schedule under way."""

    def __init__(
        self,
        fabric: Fabric,
        operation: Operation,
        number: int,
        queue: Queue,
        open_flow: OpenFlow,
        report: Report,
        shared: dict[tuple[int, int], Lane],
    ) -> None:
        self.fabric, self.operation, self.number = fabric, operation, number
        self.queue, self._open_flow, self._report = queue, open_flow, report
        schedule = operation.schedule
        self.schedule, transfers = schedule, range(schedule.transfers)
        self.cells = [[Cell() for _ in range(schedule.chunks)] for _ in range(schedule.workers)]
        self.waits_for = [
            set(schedule.waits_for[schedule.waits_first[one] : schedule.waits_first[one + 1]].tolist())
            for one in transfers
        ]
        self.lanes = {int(lane): Lane() for lane in schedule.lane if lane != NONE}
        self.begun = [False] * schedule.workers
        joint = operation.joint
        if joint is not None:
            assert operation.lane_names is not None
            names = operation.lane_names.tolist()
            self.lanes = {
                lane: shared.setdefault((id(joint.lanes), names[lane]), Lane()) for lane in self.lanes
            }
            self.begun = [bool(joint.has_begun[rank]) for rank in operation.ranks]
        self.held_back: list[int] = []  # have arrived, in this order, and cannot be processed yet
        self.processed: set[int] = set()
        self.left = [int((schedule.target == worker).sum()) for worker in range(schedule.workers)]
        self.timers = [
            Timer(MERGE_END, Label(one), partial(self._due, one), self._target_host(one), is_late=True)
            for one in transfers
        ]

    def begin(self, worker: int, words: Any, sizes: Any, is_absent: bool) -> None:
        """A worker has begun: it sends what waits for nothing, then takes in what has arrived."""
        operation = self.operation
        if not is_absent:
            lengths = (np.diff(operation.ends) if sizes is None else sizes).tolist()
            own = None if words is None else words.view(np.int32).tolist()
            for chunk, length in enumerate(lengths):
                first = sum(lengths[:chunk])
                kept = None if own is None else own[first : first + length]
                self.cells[worker][chunk] = Cell(length, kept, 1)
                if operation.joint is not None:  # the first worker's words are all that there are
                    self.cells[worker][chunk].stands_for = self.schedule.workers
        self.join(worker)

    def join(self, worker: int) -> None:
        """A worker has begun, and has all the words that it begins with."""
        self.begun[worker] = True
        for transfer in self._of(self.schedule.source, worker):
            if not self.waits_for[transfer]:
                self.queue.append(partial(self._send_or_wait, transfer))
        for transfer in [one for one in self.held_back if self.schedule.target[one] == worker]:
            self._let_in(transfer)
        if self.left[worker] == 0:
            self._end(worker)

    def answer(self, transfer: int, end_ps: int, sizes: Any) -> None:
        """The merge that was asked for ends at a time; of HOST, the cells then have these sizes."""
        if sizes is not None:
            for chunk, count in zip(self._chunks(transfer), sizes.tolist(), strict=True):
                self.cells[self.schedule.source[transfer]][chunk].count = count
        if end_ps > self.fabric.now_ps:
            self._end_at(transfer, end_ps)
        else:
            self.queue.append(partial(self._merge, transfer))

    def _of(self, workers: Any, worker: int) -> list[int]:
        return [int(one) for one in np.flatnonzero(workers == worker)]

    def _chunks(self, transfer: int) -> range:
        first = int(self.schedule.first[transfer])
        return range(first, first + int(self.schedule.count[transfer]))

    def _target_host(self, transfer: int) -> int:
        return self.operation.hosts[self.schedule.target[transfer]]

    def _ends(self, transfer: int) -> list[tuple[Cell, Cell]]:
        """The cells of the source and of the target."""
        source, target = self.schedule.source[transfer], self.schedule.target[transfer]
        return [(self.cells[source][chunk], self.cells[target][chunk]) for chunk in self._chunks(transfer)]

    # Sending

    def _words(self, transfer: int) -> int:
        return sum(cell.count for cell, _ in self._ends(transfer) if cell.workers)

    def _packets(self, transfer: int) -> int:
        return max(1, -(-self._words(transfer) // self.operation.sender.frame.elements))

    def _send_or_wait(self, transfer: int) -> None:
        lane = self.lanes.get(int(self.schedule.lane[transfer]))
        if self.operation.hosts[self.schedule.source[transfer]] == self._target_host(transfer):
            self.queue.append(partial(self._take_in, transfer))
        elif lane is None:
            self._send(transfer)
        elif lane.waiting or not self._has_room(lane, transfer):
            lane.waiting.append((self, transfer))
        else:
            lane.outstanding += self._packets(transfer)
            self._send(transfer)

    def _has_room(self, lane: Lane, transfer: int) -> bool:
        packets = self._packets(transfer)
        return not lane.outstanding or lane.outstanding + packets <= self.operation.sender.window

    def _go_on(self, lane: Lane) -> None:
        """Send the first transfer that waits in a lane, if there is room for it."""
        if lane.waiting and lane.waiting[0][0]._has_room(lane, lane.waiting[0][1]):
            run, transfer = lane.waiting.popleft()
            lane.outstanding += run._packets(transfer)
            if lane.waiting:
                self.queue.append(partial(self._go_on, lane))
            run._send(transfer)

    def _send(self, transfer: int) -> None:
        operation, schedule = self.operation, self.schedule
        source, step = int(schedule.source[transfer]), int(schedule.step[transfer])
        packets, sender = self._packets(transfer), operation.sender
        flow = Flow(
            source=operation.hosts[source],
            target=self._target_host(transfer),
            words_count=self._words(transfer),
            words=None,
            received=None,
            sender=replace(sender, window=min(sender.window, max(sender.ack_every, packets))),
            route=self._key(transfer),
            ack_route=self._key(transfer, is_back=True),
            key=mix_plain(FLOW_SEED, operation.job, operation.number, step, source),
            job=operation.job,
        )
        self._open_flow(flow, partial(self._delivered, transfer, packets))

    def _key(self, transfer: int, *, is_back: bool = False) -> int:
        """The key by which a transfer's packets, or its acknowledgements, take one of equal paths."""
        operation, schedule = self.operation, self.schedule
        ends = int(schedule.source[transfer]), int(schedule.target[transfer])
        channel = 0 if schedule.channel is None else int(schedule.channel[transfer])
        ranks = [operation.ranks[end] if operation.ranks else end for end in ends]
        ranks = ranks[::-1] if is_back else ranks
        draw = mix_plain(operation.seed, KEY_FLOW, operation.job, *ranks, channel) >> 34
        return draw - draw % 840 + (sum(ranks) + channel) % 840

    # Receiving

    def _delivered(self, transfer: int, packets: int) -> None:
        lane = self.lanes.get(int(self.schedule.lane[transfer]))
        if lane is not None:
            lane.outstanding -= packets
            if lane.waiting:
                self.queue.append(partial(self._go_on, lane))
        self.queue.append(partial(self._take_in, transfer))

    def _take_in(self, transfer: int) -> None:
        """Process a transfer, if its target has begun and has processed the one that it follows."""
        schedule, worker = self.schedule, int(self.schedule.target[transfer])
        follows = int(schedule.follows[transfer])
        if not self.begun[worker] or (follows != NONE and follows not in self.processed):
            self.held_back.append(transfer)
            return
        if not schedule.merges[transfer]:
            for source, _ in self._ends(transfer):
                assert source.stands_for == schedule.workers
            for chunk in self._chunks(transfer):
                self.cells[worker][chunk] = self.cells[schedule.source[transfer]][chunk]
            self._finish(transfer)
        elif not any(arriving.workers and own.workers for arriving, own in self._ends(transfer)):
            self._merge(transfer)
        elif worker in self.operation.asks or self.operation.merge is Merge.HOST:
            self._report("merge", self.number, transfer)
        elif time_ps := self._time_ps(transfer):
            self._end_at(transfer, self.fabric.now_ps + time_ps)
        else:
            self._merge(transfer)

    def _let_in(self, transfer: int) -> None:
        self.held_back.remove(transfer)
        self.queue.append(partial(self._take_in, transfer))

    def _time_ps(self, transfer: int) -> int:
        if self.operation.merge_ps is None:
            return 0
        is_lifted = any(arriving.is_lifted for arriving, _ in self._ends(transfer))
        return int(self.operation.merge_ps[transfer, int(is_lifted)])

    def _end_at(self, transfer: int, time_ps: int) -> None:
        self.fabric.arm(self.timers[transfer], time_ps)
        if self._target_host(transfer) in self.fabric.crashed:
            self.fabric.disarm(self.timers[transfer])

    def _due(self, transfer: int) -> None:
        self.queue.append(partial(self._merge, transfer))

    def _merge(self, transfer: int) -> None:
        """Merge the arriving cells, the first operand, with the target's."""
        operation, schedule = self.operation, self.schedule
        worker, step = int(schedule.target[transfer]), int(schedule.step[transfer])
        key = mix_plain(operation.seed, KEY_MERGE, operation.job, operation.number, worker, step)
        before = 0
        for chunk, (arriving, own) in zip(self._chunks(transfer), self._ends(transfer), strict=True):
            merged = self._merged(arriving, own, key + 32 * before)
            merged.stands_for = arriving.stands_for + own.stands_for
            before += arriving.count
            if merged.stands_for == schedule.workers:
                self._complete(merged, chunk)
            self.cells[worker][chunk] = merged
        self._finish(transfer)

    def _merged(self, arriving: Cell, own: Cell, key: int) -> Cell:
        if not arriving.workers or not own.workers:
            one = arriving if arriving.workers else own
            return Cell(one.count, one.words, one.workers, is_lifted=one.is_lifted)
        workers, merge = arriving.workers + own.workers, self.operation.merge
        if arriving.words is None or own.words is None or merge is None:
            return Cell(arriving.count, None, workers)
        register = Register()
        register.overwrite(Operand(self._lanes(arriving), merge, workers=arriving.workers))
        bits = self.operation.lane_bits
        operand = Operand(self._lanes(own), merge, workers=own.workers, key=key, lane_bits=bits)
        register.merge(operand, Overflow.WRAP)
        is_lifted = self.operation.table is not None
        return Cell(len(register.values), register.values, workers, is_lifted=is_lifted)

    def _lanes(self, cell: Cell) -> list[int]:
        """A cell's words; codes of TABLE_ADD as lanes."""
        table = self.operation.table
        assert cell.words is not None
        if table is None or cell.is_lifted:
            return cell.words
        return lifted(cell.words, table.tolist(), self.operation.lane_bits)

    def _complete(self, cell: Cell, chunk: int) -> None:
        """A chunk stands for all workers: its words are those of the result."""
        operation = self.operation
        if operation.result is None or operation.merge is None:
            return
        first, end = (operation.lifted_words * int(operation.ends[chunk + one]) for one in (0, 1))
        words = self._lanes(cell) if cell.workers else [unchanged_by(operation.merge)] * (end - first)
        operation.result.view(np.int32)[first:end] = words
        cell.count, cell.words, cell.is_lifted = end - first, words, True

    def _finish(self, transfer: int) -> None:
        """A transfer is processed: what waits for it is sent, what follows it is processed."""
        schedule, worker = self.schedule, int(self.schedule.target[transfer])
        self.processed.add(transfer)
        for waiting in range(transfer + 1, schedule.transfers):
            if transfer in self.waits_for[waiting]:
                self.waits_for[waiting].discard(transfer)
                if not self.waits_for[waiting]:
                    self.queue.append(partial(self._send_or_wait, waiting))
        for follower in self._of(schedule.follows, transfer):
            if follower in self.held_back:
                self._let_in(follower)
        self.left[worker] -= 1
        if self.left[worker] == 0:
            self._end(worker)

    def _end(self, worker: int) -> None:
        """All transfers to a worker are processed; of joint operations, the last of its operations counts."""
        joint = self.operation.joint
        if joint is None:
            self._report("worker", self.number, worker)
            return
        rank = self.operation.ranks[worker]
        joint.left[rank] -= 1
        if joint.left[rank] == 0:
            self._report("worker", joint.number, rank)
