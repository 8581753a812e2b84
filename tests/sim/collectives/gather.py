"""A collective of one's own: all words to worker 0, who sends the sums back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np

from netfold import kinds
from netfold.homomorphic.merge import Merge
from netfold.sim.collectives.host_collective import HostCollective
from netfold.sim.collectives.host_messages import scheduled
from netfold.sim.collectives.transfers import Step, Transfers
from netfold.sim.engine.interface import Schedule


class Gather(HostCollective):
    """All words to worker 0, who sends the sums back."""

    merges: ClassVar[frozenset[Merge]] = frozenset({Merge.ADD, Merge.MAX, Merge.OR})
    carries_absence: ClassVar[bool] = False

    kind: Literal["gather"]

    def schedule(self, workers: int, words: int, by_codec: bool = False) -> Transfers:
        """Worker r sends in step r; worker 0 merges by rank, and sends the sums back in step n + r."""

        def steps() -> Iterator[Step]:
            others = np.arange(1, workers)
            zeros, number = np.zeros_like(others), others - 1
            yield Step(others, zeros, 0, merges=True, follows=number - 1, name=others)
            every = np.tile(number[:, None], number.size)  # the sums are those of all
            yield Step(zeros, others, 0, waits=every, name=workers + others)

        return Transfers(workers, 1, steps(), shares_windows=False)


def gather_schedule(workers: int) -> Schedule:
    return Gather(kind="gather").cut(workers).schedule


GATHER = scheduled(Gather)


def register() -> None:
    """Add it to the collectives."""
    kinds.register(GATHER)
