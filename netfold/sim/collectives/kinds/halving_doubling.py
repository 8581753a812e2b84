"""Recursive halving and doubling (Thakur, Rabenseifner and Gropp, IJHPCA 2005, section 4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from netfold.sim.collectives.host_collective import HostCollective
from netfold.sim.collectives.host_messages import scheduled
from netfold.sim.collectives.transfers import Ints, Step, Transfers
from netfold.sim.engine.engine_data import NONE

# Reduce-scatter by vector halving and distance doubling: in step k every worker exchanges half of the words
# that it still holds with the worker at distance 2^k, so the most words go to the nearest one. Then all-
# gather by the same steps backwards.
#
# With n = 2^k workers a message of M words takes k exchanges of M / 2, M / 4, … M / n words to reduce, and
# the same backwards to gather. On an idle network with equal links that is
#
#     2 (1 − 1 / n) · M words at the rate of a link, and 2 log2 n ways from host to host:
#
# as many words as a ring, over fewer ways.
#
# Of n workers, the largest power of two n' takes part. As in MPICH, each of the first n − n' workers of even
# rank gives all its words to the next one before, and gets the result from it after: 2 M words and 2 ways
# more. (The paper lets the two exchange halves and merge them at the same time, which takes as long on the
# wire and halves the merging.)


def core_of(workers: int) -> Ints:
    """(n',) the workers that take part: of the first 2 (n − n') those of odd rank, and all others."""
    extra = workers - (1 << (workers.bit_length() - 1))
    return np.concatenate([np.arange(1, 2 * extra, 2), np.arange(2 * extra, workers)])


class HalvingDoubling(HostCollective):
    """All-reduce between the hosts by recursive halving and doubling (Rabenseifner)."""

    kind: Literal["halving_doubling"]

    @property
    def path_in_words(self) -> str:
        """Where words are."""
        return "by halving and doubling"

    def schedule(self, workers: int, words: int, by_codec: bool = False) -> Transfers:
        """There are n' cells, whatever the words."""
        return Transfers(workers, core_of(workers).size, _steps(workers), shares_windows=False)


def _steps(workers: int) -> Iterator[Step]:
    core = core_of(workers)
    size, extra = core.size, workers - core.size
    places, exchanges = np.arange(size), range(size.bit_length() - 1)
    arrived = np.full(size, NONE, np.int64)  # the latest transfer to each that takes part
    arrived[:extra] = np.arange(extra)
    yield Step(core[:extra] - 1, core[:extra], 0, size, merges=True)
    count = extra
    lows = [np.zeros(size, np.int64)]  # the first cell that each holds before each step
    for step in exchanges:
        lows.append(lows[-1] + (places >> step & 1) * (size >> (step + 1)))
    for step, merges in [*((step, True) for step in exchanges), *((step, False) for step in exchanges[::-1])]:
        partners = places ^ 1 << step
        first, cells = lows[step + 1][partners] if merges else lows[step + 1], size >> (step + 1)
        yield Step(core, core[partners], first, cells, merges, waits=arrived, follows=arrived[partners])
        arrived = (count + places)[partners]
        count += size
    yield Step(core[:extra], core[:extra] - 1, 0, size, waits=arrived[:extra])


HALVING_DOUBLING = scheduled(HalvingDoubling, listed=2)
