"""Recursive halving and doubling (Thakur, Rabenseifner and Gropp, IJHPCA 2005, section 4.4)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np

from netfold.homomorphic.message import MERGEABLE, Merge
from netfold.sim.collectives.between_hosts import ClosedForm, HostSection, Ints, Transfers
from netfold.sim.collectives.collective import (
    CollectiveSpec,
    Composable,
    Cut,
    OperationPlace,
    ScheduleSize,
    Steps,
    equal_cells,
    estimate_by,
)
from netfold.sim.collectives.host_messages import ScheduledCollective
from netfold.sim.engine.interface import NONE, Schedule

# Its schedule.
#
# Reduce-scatter by vector halving and distance doubling: in step k every worker exchanges half of the words
# that it still holds with the worker at distance 2^k, so the most words go to the nearest one. Then all-
# gather by the same steps backwards.
#
# Of n workers, the largest power of two n' takes part. As in MPICH, each of the first n − n' workers of even
# rank gives all its words to the next one before, and gets the result from it after. (The paper lets the two
# exchange halves and merge them at the same time, which takes as long on the wire and halves the merging.)


def core_of(workers: int) -> Ints:
    """(n',) the workers that take part: of the first 2 (n − n') those of odd rank, and all others."""
    extra = workers - (1 << (workers.bit_length() - 1))
    return np.concatenate([np.arange(1, 2 * extra, 2), np.arange(2 * extra, workers)])


@lru_cache(maxsize=16)
def halving_schedule(workers: int) -> Schedule:
    """Halving and doubling among so many workers; there are n' cells."""
    core = core_of(workers)
    size, extra = core.size, workers - core.size
    transfers, places = Transfers(workers, size), np.arange(size)
    arrived = np.full(size, NONE, np.int64)  # the latest transfer to each that takes part
    arrived[:extra] = transfers.add((core[:extra] - 1, core[:extra]), (0, size), merges=True)
    lows = [np.zeros(size, np.int64)]  # the first cell that each holds before each step
    for step in range(size.bit_length() - 1):
        lows.append(lows[-1] + (places >> step & 1) * (size >> (step + 1)))
    for step in range(size.bit_length() - 1):
        others = places ^ 1 << step
        first, count = lows[step + 1][others], size >> (step + 1)
        arrived = _exchange(transfers, core, others, first=first, count=count, arrived=arrived, merges=True)
    for step in reversed(range(size.bit_length() - 1)):
        others = places ^ 1 << step
        first, count = lows[step + 1], size >> (step + 1)
        arrived = _exchange(transfers, core, others, first=first, count=count, arrived=arrived, merges=False)
    last = transfers.add((core[:extra], core[:extra] - 1), (0, size), merges=False)
    transfers.wait(last, arrived[:extra])
    return transfers.schedule()


def _exchange(
    transfers: Transfers, core: Ints, others: Ints, *, first: Ints, count: int, arrived: Ints, merges: bool
) -> Ints:
    """One step of all; each waits for what it got in the step before."""
    sent = transfers.add((core, core[others]), (first, count), merges=merges, follows=arrived[others])
    transfers.wait(sent, arrived)
    return sent[others]


# How it runs, over reliable messages: the engine carries out the schedule.


class HalvingDoubling(ScheduledCollective):
    """One job's halving and doubling, in rank order."""

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """The same for all messages."""
        return halving_schedule(self.workers)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word."""
        return f"message {part} of {place.in_words} by halving and doubling, as worker {worker} got it"


# Its keys and closed form.
#
# With n = 2^k workers a message of M words takes k exchanges of M / 2, M / 4, … M / n words to reduce, and
# the same backwards to gather. On an idle network with equal links that is
#
#     2 (1 − 1 / n) · M words at the rate of a link, and 2 log2 n ways from host to host:
#
# as many words as a ring, over fewer ways. With n' < n < 2 n' workers, n − n' of them give away all their
# words before and get the result after: 2 M words and 2 ways more.


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


SCHEDULE = ClosedForm(KIND, steps_of, _size)
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
