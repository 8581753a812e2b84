"""What carries out a schedule: hosts, sizes of chunks, words, and how they are merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import WORD_BITS, Merge
from netfold.sim.engine.interface import Frame
from netfold.sim.engine.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Operation:
    """One message of every worker, carried by a schedule.

    Without a `merge`, words are counted and not carried. The words of HOST are merged by whoever opened the
    schedule: the engine asks for each merge, and knows only how many words each cell has.
    """

    schedule: Schedule
    hosts: tuple[int, ...]  # node of each worker
    frame: Frame
    window: int  # packets: of a lane, and the most of a flow
    timeout_ps: int
    ack_every: int
    number: int  # with the job, identifies the operation in keyed draws
    seed: int  # of keyed draws
    ends: NDArray[np.int64]  # (chunks + 1,) where the chunks begin; HOST: not used
    job: int = 0
    merge: Merge | None = None
    result: NDArray[Any] | None = None  # written: the merged words, once for all workers
    table: NDArray[np.int32] | None = None  # (16,) TABLE_ADD of codes
    lane_bits: int = WORD_BITS
    lifted_words: int = 1  # TABLE_ADD of codes: merged words for each word of a worker
    merge_ps: NDArray[np.int64] | None = None  # (T, 2) time of each merge, of codes or words and of lanes
    ranks: tuple[int, ...] = ()  # of its workers in the job; empty: it has all of these
    asks: tuple[int, ...] = ()  # workers whose merges end when whoever opened the schedule says
    waits_for_loss: bool = False  # of its flows
