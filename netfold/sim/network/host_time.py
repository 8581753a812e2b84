"""Compute time of workers under host faults: late starts, slow hosts, pauses, crashes."""

from __future__ import annotations

from collections.abc import Sequence

import simpy

from netfold.sim.plan.faults import Condition


class HostTimes:
    """End times of work on each worker's host, as SimPy events, given the faults of the host."""

    def __init__(self, environment: simpy.Environment, conditions: Sequence[Condition]) -> None:
        self._environment, self._conditions = environment, tuple(conditions)

    def of(self, workers: Sequence[int]) -> HostTimes:
        """The same of some workers, numbered in this order."""
        return HostTimes(self._environment, [self._conditions[worker] for worker in workers])

    def end_ps(self, worker: int, start_ps: int, work_ps: int) -> int:
        """Time at which work ends that a worker begins at `start_ps`; ignores crashes."""
        return self._conditions[worker].end_ps(start_ps, work_ps)

    def is_delayed(self, worker: int) -> bool:
        """Whether a fault ever delays or ends a worker's work."""
        return self._conditions[worker] != Condition()

    def crash_ps(self, worker: int) -> int:
        """Time at which a worker crashes."""
        return self._conditions[worker].crash_ps

    def work(self, worker: int, work_ps: int) -> simpy.Event:
        """Event at the end of work that begins now and takes `work_ps` without faults; none after a crash."""
        return self.until(worker, self.end_ps(worker, int(self._environment.now), work_ps))

    def until(self, worker: int, time_ps: int) -> simpy.Event:
        """Event at a time, or now if it has passed; it never fires if the worker has crashed by then."""
        now_ps = int(self._environment.now)
        if max(time_ps, now_ps) >= self._conditions[worker].crash_ps:
            return self._environment.event()
        return self._environment.timeout(max(0, time_ps - now_ps))
