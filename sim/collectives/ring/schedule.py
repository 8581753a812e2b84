"""The schedule of a ring all-reduce: who sends which segment to whom."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from netfold.sim.engine.schedule import NONE, Schedule


@lru_cache(maxsize=4)
def ring_schedule(workers: int) -> Schedule:
    """n segments go round n workers in 2 (n − 1) steps, the first half of which merge; step s, worker w.

    In step s, worker w sends segment w − s (modulo n), which it received in the step before.
    """
    steps = 2 * (workers - 1)
    step, source = np.divmod(np.arange(steps * workers), workers)
    target, segment = (source + 1) % workers, (source - step) % workers
    waits = (step - 1) * workers + (source - 1) % workers  # the transfer to the source in the step before
    follows = np.where(step > 0, (step - 1) * workers + source, NONE)  # and that to the target
    waits_first = np.maximum(np.arange(steps * workers + 1) - workers, 0)
    return Schedule(
        workers,
        workers,
        source.astype(np.int32),
        target.astype(np.int32),
        segment.astype(np.int32),
        np.ones(source.size, np.int32),
        step < workers - 1,
        step.astype(np.int64),
        follows.astype(np.int32),
        np.full(source.size, NONE, np.int32),
        waits_first.astype(np.int64),
        waits[workers:].astype(np.int32),
    )
