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
before a final transfer replaces them. So at any time every contribution to a chunk is in one cell, and the final
words of a chunk are made by one merge, at one worker.

At one instant: what a delivery, the beginning of a worker, or the end of a merge makes possible happens before
anything else, in the order in which it became possible. A delivery first lets its lane go on, then is processed.
A transfer that is processed first lets others be sent, in the order of their numbers, and then lets those be
processed that follow it and have arrived. A worker that begins first sends, and then processes what has arrived,
in the order of arrival.
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
        one that does not end at its source, one that may leave before its source has what it received earlier of its
        chunks, a cell that is sent or merged into after it was merged away,
        contributions that are merged twice, a final transfer of a cell that lacks a worker's contribution, two transfers of one
        or to one worker with the same step, a lane of several pairs, or a worker that lacks a final cell at the
        end.
    """
    held = [[{worker} for _ in range(schedule.chunks)] for worker in range(schedule.workers)]
    keys: set[tuple[str, int, int]] = set()
    lanes: dict[int, tuple[int, int]] = {}
    everyone = set(range(schedule.workers))
    received: dict[tuple[int, int], int] = {}  # by worker and chunk: transfers, as bits
    known: list[int] = []  # transfers that are processed once a transfer is
    for number in range(schedule.transfers):
        source, target = int(schedule.source[number]), int(schedule.target[number])
        at = f"transfer {number} from {source} to {target}"
        if source == target or not {source, target} <= everyone:
            raise ValueError(f"{at}: there are workers 0 to {schedule.workers - 1}, and the two must differ")
        before = _known_before(schedule, number, known, at)
        step = int(schedule.step[number])
        for key in (("from", source, step), ("to", target, step)):
            if key in keys:
                raise ValueError(f"{at}: there are two transfers {key[0]} worker {key[1]} with step {step}")
            keys.add(key)
        lane = int(schedule.lane[number])
        if lane != NONE and lanes.setdefault(lane, (source, target)) != (source, target):
            raise ValueError(f"{at}: lane {lane} is that of {lanes[lane]}")
        chunks = range(int(schedule.first[number]), int(schedule.first[number] + schedule.count[number]))
        if not chunks or chunks.start < 0 or chunks.stop > schedule.chunks:
            raise ValueError(f"{at}: carries chunks {chunks}, there are {schedule.chunks}")
        for chunk in chunks:
            if missed := received.get((source, chunk), 0) & ~before:
                late = missed.bit_length() - 1
                raise ValueError(f"{at}: may leave before transfer {late} has brought chunk {chunk}")
            received[target, chunk] = received.get((target, chunk), 0) | 1 << number
            if not held[source][chunk]:
                raise ValueError(f"{at}: worker {source} has merged chunk {chunk} away")
            if not schedule.merges[number]:
                if held[source][chunk] != everyone:
                    raise ValueError(f"{at}: chunk {chunk} is not final: it holds {held[source][chunk]}")
                held[target][chunk] = everyone
                continue
            if held[source][chunk] & held[target][chunk]:
                raise ValueError(f"{at}: chunk {chunk} would hold a contribution twice")
            if not held[target][chunk]:
                raise ValueError(f"{at}: worker {target} has merged chunk {chunk} away")
            held[target][chunk] = held[source][chunk] | held[target][chunk]
            held[source][chunk] = set()
    for worker in everyone:
        for chunk, holds in enumerate(held[worker]):
            if holds != everyone:
                raise ValueError(f"worker {worker} ends with chunk {chunk} of {holds or 'nobody'}")


def _known_before(schedule: Schedule, number: int, known: list[int], at: str) -> int:
    """Check what a transfer waits for and follows; the transfers that are processed when it is sent, as bits."""
    begin, end = int(schedule.waits_first[number]), int(schedule.waits_first[number + 1])
    before = 0
    for other in schedule.waits_for[begin:end].tolist():
        if not 0 <= other < number or schedule.target[other] != schedule.source[number]:
            raise ValueError(f"{at}: waits for transfer {other}, which is no earlier one to its source")
        before |= known[other]
    other = int(schedule.follows[number])
    if other != NONE and (not 0 <= other < number or schedule.target[other] != schedule.target[number]):
        raise ValueError(f"{at}: follows transfer {other}, which is no earlier one to its target")
    known.append(before | 1 << number | (known[other] if other != NONE else 0))
    return before
