"""Schedules: who sends which chunks of a message to whom, once what has arrived.

A collective between hosts is a schedule over the chunks of a message. It is plain data: no times, no words,
no hosts. `Engine` carries it out packet by packet and merges words at each hop; nothing above it acts until
a worker has all of its result.

Each worker holds one cell per chunk. In an all-reduce, every cell of a worker begins with the worker's own
words. A transfer carries a run of adjacent cells from its source to its target, as one reliable message:

1. It is sent when its source has begun, and all transfers that it waits for (`waits_for`) are processed at
   the source. Transfers of one `lane` share a window of packets: a transfer that is ready begins when the
   lane's packets that are not delivered yet leave room for it, or if there are none; in the order in which
   they became ready. A transfer without a lane (-1) begins at once.
2. When its last packet has arrived, it is processed at its target, as soon as the target has begun and the
   transfer named by `follows` is processed. It is merged into the target's cells (`merges`: the arriving
   words are the first operand, the target's own cell the second), which takes time on the target's device;
   or it replaces them: then it is final, and holds what all workers contributed.
3. A worker is finished when all transfers to it are processed.

A source gives away the cells of a transfer that merges: they are not sent, and nothing is merged into them,
before a final transfer replaces them. So at any time every contribution to a chunk is in one cell, and the
final words of a chunk are made by one merge, at one worker.

At one instant: what a delivery, the beginning of a worker, or the end of a merge makes possible happens
before anything else, in the order in which it became possible. A delivery first lets its lane go on, then is
processed. A transfer that is processed first lets others be sent, in the order of their numbers, and then
lets those be processed that follow it and have arrived. A worker that begins first sends, and then processes
what has arrived, in the order of arrival. A merge that takes time ends after all else of its instant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NONE = -1


@dataclass(frozen=True, eq=False)
class Schedule:
    """T transfers of one message between workers, in an order in which each is after what it waits for.

    Cells may be uneven, even empty: the words of chunk i end where those of chunk i + 1 begin, and a message
    of any size is cut the same way (`ends`).
    """

    workers: int
    chunks: int
    source: NDArray[np.int32]  # (T,) worker
    target: NDArray[np.int32]  # (T,) worker
    first: NDArray[np.int32]  # (T,) the first chunk that it carries
    count: NDArray[np.int32]  # (T,) chunks that it carries, 1 or more
    merges: NDArray[np.bool_]  # (T,)
    step: NDArray[
        np.int64
    ]  # (T,) with the source, and with the target, identifies the transfer in keyed draws
    follows: NDArray[np.int32]  # (T,) a transfer to the same target that is processed before; NONE
    lane: NDArray[np.int32]  # (T,) numbered from 0, of one source and target each; NONE
    waits_first: NDArray[np.int64]  # (T + 1,)
    waits_for: NDArray[np.int32]  # those of transfer t are [waits_first[t], waits_first[t + 1])
    channel: NDArray[np.int32] | None = None  # (T,) connection of its source and target; None: 0

    @property
    def transfers(self) -> int:
        """T."""
        return int(self.source.size)

    def ends(self, words: int) -> NDArray[np.int64]:
        """(chunks + 1,) where the chunks of a message begin, and where the last one ends."""
        return words * np.arange(self.chunks + 1, dtype=np.int64) // self.chunks


def check_schedule(schedule: Schedule) -> None:
    """Check that a schedule is an all-reduce whose cells are used as the module says.

    Plain Python, for tests: it takes some microseconds per transfer.

    Raises
    ------
    ValueError
        Says which transfer breaks which rule: an index outside, a transfer that waits for a later one or for
        one that does not end at its source, one that may leave before its source has received what it sends,
        a cell that is sent or merged into after it was merged away, contributions that are merged twice, a
        final transfer of a cell that lacks a worker's contribution, two transfers from one worker or to one
        worker with the same step, a lane of several pairs, or a worker that lacks a final cell at the end.
    """
    checked = _Checked(schedule)
    for number in range(schedule.transfers):
        checked.transfer(number)
    for worker in range(schedule.workers):
        for chunk in range(schedule.chunks):
            if checked.held[worker, chunk] != checked.everyone:
                holds = checked.held[worker, chunk] or "nobody"
                raise ValueError(f"worker {worker} ends with chunk {chunk} of {holds}")


class _Checked:
    """What the transfers so far have done."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule, workers = schedule, range(schedule.workers)
        self.everyone = set(workers)
        self.held = {(worker, chunk): {worker} for worker in workers for chunk in range(schedule.chunks)}
        self._keys: set[tuple[str, int, int]] = set()
        self._lanes: dict[int, tuple[int, int]] = {}
        self._received: dict[tuple[int, int], int] = {}  # by worker and chunk: transfers, as bits
        self._known: list[int] = []  # transfers that are processed once a transfer is, as bits

    def transfer(self, number: int) -> None:
        """Check the next transfer."""
        schedule = self._schedule
        source, target = int(schedule.source[number]), int(schedule.target[number])
        at = f"transfer {number} from {source} to {target}"
        if source == target or not {source, target} <= self.everyone:
            raise ValueError(f"{at}: there are workers 0 to {schedule.workers - 1}, and the two must differ")
        before = self._processed_before(number, at)
        self._check_names(number, (source, target), at)
        chunks = range(int(schedule.first[number]), int(schedule.first[number] + schedule.count[number]))
        if not chunks or chunks.start < 0 or chunks.stop > schedule.chunks:
            raise ValueError(f"{at}: carries chunks {chunks}, there are {schedule.chunks}")
        for chunk in chunks:
            if missed := self._received.get((source, chunk), 0) & ~before:
                late = missed.bit_length() - 1
                raise ValueError(f"{at}: may leave before transfer {late} has brought chunk {chunk}")
            received = self._received.get((target, chunk), 0)
            self._received[target, chunk] = received | 1 << number
            self._move((source, chunk), (target, chunk), bool(schedule.merges[number]), at)

    def _move(self, source: tuple[int, int], target: tuple[int, int], merges: bool, at: str) -> None:
        """Carry what one cell holds to another."""
        held, chunk = self.held, source[1]
        if not held[source]:
            raise ValueError(f"{at}: worker {source[0]} has merged chunk {chunk} away")
        if not merges:
            if held[source] != self.everyone:
                raise ValueError(f"{at}: chunk {chunk} is not final: it holds {held[source]}")
            held[target] = self.everyone
            return
        if not held[target]:
            raise ValueError(f"{at}: worker {target[0]} has merged chunk {chunk} away")
        if held[source] & held[target]:
            raise ValueError(f"{at}: chunk {chunk} would hold a contribution twice")
        held[target] = held[source] | held[target]
        held[source] = set()

    def _check_names(self, number: int, pair: tuple[int, int], at: str) -> None:
        """Check the step and the lane of a transfer."""
        step, lane = int(self._schedule.step[number]), int(self._schedule.lane[number])
        for way, worker in zip(("from", "to"), pair, strict=True):
            if (way, worker, step) in self._keys:
                raise ValueError(f"{at}: there are two transfers {way} worker {worker} with step {step}")
            self._keys.add((way, worker, step))
        if lane != NONE and self._lanes.setdefault(lane, pair) != pair:
            raise ValueError(f"{at}: lane {lane} is that of {self._lanes[lane]}")

    def _processed_before(self, number: int, at: str) -> int:
        """Check what a transfer waits for and follows; those processed when it is sent, as bits."""
        schedule, known, before = self._schedule, self._known, 0
        begin, end = int(schedule.waits_first[number]), int(schedule.waits_first[number + 1])
        for other in schedule.waits_for[begin:end].tolist():
            if not 0 <= other < number or schedule.target[other] != schedule.source[number]:
                raise ValueError(f"{at}: waits for transfer {other}, which is no earlier one to its source")
            before |= known[other]
        other = int(schedule.follows[number])
        if other != NONE and (not 0 <= other < number or schedule.target[other] != schedule.target[number]):
            raise ValueError(f"{at}: follows transfer {other}, which is no earlier one to its target")
        known.append(before | 1 << number | (known[other] if other != NONE else 0))
        return before
