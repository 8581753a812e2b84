"""The schedule of recursive halving and doubling (Thakur, Rabenseifner and Gropp, IJHPCA 2005, section 4.4).

Reduce-scatter by vector halving and distance doubling: in step k every worker exchanges half of the words
that it still holds with the worker at distance 2^k, so the most words go to the nearest one. Then all-gather
by the same steps backwards.

Of n workers, the largest power of two n' takes part. As in MPICH, each of the first n − n' workers of even
rank gives all its words to the next one before, and gets the result from it after. (The paper lets the two
exchange halves and merge them at the same time, which takes as long on the wire and halves the merging.)
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from netfold.sim.collectives.building.transfers import Ints, Transfers
from netfold.sim.engine.schedule import NONE, Schedule


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
        cells = lows[step + 1][others], size >> (step + 1)
        arrived = _exchange(transfers, core, others, cells, arrived, merges=True)
    for step in reversed(range(size.bit_length() - 1)):
        others = places ^ 1 << step
        cells = lows[step + 1], size >> (step + 1)
        arrived = _exchange(transfers, core, others, cells, arrived, merges=False)
    last = transfers.add((core[:extra], core[:extra] - 1), (0, size), merges=False)
    transfers.wait(last, arrived[:extra])
    return transfers.schedule()


def _exchange(
    transfers: Transfers, core: Ints, others: Ints, cells: tuple[Ints, int], arrived: Ints, *, merges: bool
) -> Ints:
    """One step of all; each waits for what it got in the step before."""
    sent = transfers.add((core, core[others]), cells, merges=merges, follows=arrived[others])
    transfers.wait(sent, arrived)
    return sent[others]
