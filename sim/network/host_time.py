"""The hosts of a job's workers: how long what they do there takes, whatever befalls them."""

from __future__ import annotations

from collections.abc import Sequence

import simpy

from netfold.sim.plan.faults import Condition


class Hosts:
    """Lets time pass for a job's workers, in step with the conditions of their hosts."""

    def __init__(self, environment: simpy.Environment, conditions: Sequence[Condition]) -> None:
        self._environment, self._conditions = environment, tuple(conditions)

    def end_ps(self, worker: int, start_ps: int, work_ps: int) -> int:
        """When a worker is done with work that begins at a time, or would be had it not crashed."""
        return self._conditions[worker].end_ps(start_ps, work_ps)

    def crash_ps(self, worker: int) -> int:
        """When a worker crashes."""
        return self._conditions[worker].crash_ps

    def work(self, worker: int, work_ps: int) -> simpy.Event:
        """Begin work that takes `work_ps` on a sound host; the event fires at its end, or never."""
        return self.until(worker, self.end_ps(worker, int(self._environment.now), work_ps))

    def until(self, worker: int, time_ps: int) -> simpy.Event:
        """Fires at a time, at once if it is past; never if the worker crashes before or at that instant."""
        now_ps = int(self._environment.now)
        if max(time_ps, now_ps) >= self._conditions[worker].crash_ps:
            return self._environment.event()
        return self._environment.timeout(max(0, time_ps - now_ps))
