"""A collective of one's own: all words to worker 0, who sends the sums back.

It has to be registered before scenarios are first read, so this module imports nothing that reads them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.between_hosts import ClosedForm, HostSection
from netfold.sim.collectives.collective import CollectiveSpec, OperationPlace, Steps
from netfold.sim.collectives.host_messages import ScheduledCollective
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.engine.interface import NONE, Schedule


class Gather(HostSection):
    """All words to worker 0, who sends the sums back."""

    kind: Literal["gather"]


def steps(workers: int) -> Steps:
    return Steps([(worker, 0) for worker in range(1, workers)], hops=2, chunks=1, merges=workers - 1)


@lru_cache
def gather_schedule(workers: int) -> Schedule:
    """Worker r sends in step r; worker 0 merges by rank, and sends the sums back in step n + r."""
    count = workers - 1
    others, zeros = np.arange(1, workers), np.zeros(count, np.int64)
    follows = np.append(np.arange(count) - 1, np.full(count, NONE))
    waits_first = np.append(zeros, count * np.arange(count + 1))
    waits_for = np.tile(np.arange(count), count)
    return Schedule(
        workers,
        1,
        np.append(others, zeros).astype(np.int32),
        np.append(zeros, others).astype(np.int32),
        np.zeros(2 * count, np.int32),
        np.ones(2 * count, np.int32),
        np.arange(2 * count) < count,
        np.append(others, workers + others).astype(np.int64),
        follows.astype(np.int32),
        np.full(2 * count, NONE, np.int32),
        waits_first.astype(np.int64),
        waits_for.astype(np.int32),
    )


class GatherRun(ScheduledCollective):
    """One job's way to worker 0 and back."""

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """The same for all messages."""
        return gather_schedule(self.workers)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """At worker 0."""
        return f"message {part} of operation {place.operation} at worker 0"


def register() -> None:
    """Add it to the collectives; before scenarios are first read."""
    merges = frozenset({Merge.ADD, Merge.MAX, Merge.OR})
    COLLECTIVES["gather"] = CollectiveSpec(
        "gather", merges, Gather, ClosedForm("gather", steps).resolve, GatherRun
    )
