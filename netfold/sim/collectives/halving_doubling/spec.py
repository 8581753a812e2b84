"""Recursive halving and doubling (Thakur, Rabenseifner and Gropp, IJHPCA 2005): its keys and closed form.

With n = 2^k workers a message of M words takes k exchanges of M / 2, M / 4, … M / n words to reduce, and the
same backwards to gather. On an idle network with equal links that is

    2 (1 − 1 / n) · M words at the rate of a link, and 2 log2 n ways from host to host:

as many words as a ring, over fewer ways. With n' < n < 2 n' workers, n − n' of them give away all their words
before and get the result after: 2 M words and 2 ways more.
"""

from __future__ import annotations

from typing import Any, Literal

from netfold.homomorphic.message import MERGEABLE, Merge
from netfold.sim.collectives.between_hosts import HostSection, Schedule
from netfold.sim.collectives.closed_form import Cut, ScheduleSize, Steps, equal_cells, estimate_by
from netfold.sim.collectives.collective import CollectiveSpec, Composable
from netfold.sim.collectives.halving_doubling.run import HalvingDoubling
from netfold.sim.collectives.halving_doubling.schedule import core_of, halving_schedule

KIND = "halving_doubling"


class HalvingDoublingSection(HostSection):
    """All-reduce between the hosts by recursive halving and doubling (Rabenseifner)."""

    kind: Literal["halving_doubling"]


def steps_of(workers: int) -> Steps:
    """The exchanges at each distance, to reduce and to gather; around them, what those left out need."""
    core = core_of(workers).tolist()
    extra, size = workers - len(core), len(core)
    stages = [
        Steps(
            [(core[at], core[at ^ 1 << k]) for at in range(size)], hops=2, chunks=2 << k, merges=1, windows=2
        )
        for k in range(size.bit_length() - 1)
    ]
    if extra:
        given = [(one - 1, one) for one in core[:extra]]
        stages.insert(0, Steps(given, hops=1, chunks=1, merges=1))
        stages.append(Steps([(target, source) for source, target in given], hops=1, chunks=1, merges=0))
    return Steps.chain(stages or [Steps([(0, 0)], hops=0, chunks=1, merges=0)])


def cut_of(section: Any, workers: int) -> Cut:
    """Its schedule."""
    schedule = halving_schedule(workers)
    return Cut(schedule, equal_cells(schedule.chunks))


def _steps(section: Any, workers: int) -> Steps:
    return steps_of(workers)


def _size(workers: int) -> ScheduleSize:
    """Each that takes part sends once at each distance and back; those left out send and receive once."""
    size = 1 << (workers.bit_length() - 1)
    return ScheduleSize(2 * size * (size.bit_length() - 1) + 2 * (workers - size), size)


SCHEDULE = Schedule(KIND, steps_of, _size)
HALVING_DOUBLING = CollectiveSpec(
    KIND,
    MERGEABLE | {Merge.HOST},
    HalvingDoublingSection,
    SCHEDULE.resolve,
    HalvingDoubling,
    carries_absence=True,
    composable=Composable(cut_of, _steps),
    estimate=estimate_by(_steps),
)
