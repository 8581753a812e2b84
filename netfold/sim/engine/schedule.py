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
