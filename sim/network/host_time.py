"""Compute time of workers under host faults: late starts, slow hosts, pauses, crashes."""

from __future__ import annotations

from collections.abc import Sequence

import simpy

from netfold.sim.plan.faults import Condition


class Hosts:
    """Events at the end of each worker's work, given the faults of its host."""

    def __init__(self, environment: simpy.Environment, conditions: Sequence[Condition]) -> None:
        self._environment, self._conditions = environment, tuple(conditions)

    def end_ps(self, worker: int, start_ps: int, work_ps: int) -> int:
        """End of work that a worker begins at a time; a crash is ignored."""
        return self._conditions[worker].end_ps(start_ps, work_ps)

    def crash_ps(self, worker: int) -> int:
        """Time at which a worker crashes."""
        return self._conditions[worker].crash_ps

    def work(self, worker: int, work_ps: int) -> simpy.Event:
        """Begin work that takes `work_ps` on a host without faults; fires at its end, never after a crash."""
        return self.until(worker, self.end_ps(worker, int(self._environment.now), work_ps))

    def until(self, worker: int, time_ps: int) -> simpy.Event:
        """Fires at a time, at once if it has passed; never if the worker has crashed by then."""
        now_ps = int(self._environment.now)
        if max(time_ps, now_ps) >= self._conditions[worker].crash_ps:
            return self._environment.event()
        return self._environment.timeout(max(0, time_ps - now_ps))
