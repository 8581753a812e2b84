"""A unit that does one piece of work at a time, such as a worker's device."""

from __future__ import annotations

import heapq

import simpy

from netfold.sim.network.fabric import EndOfInstant, Stage

LAST = 2**31  # rank after those of all buckets


class SerialUnit:
    """Does one piece of work at a time, without interruption.

    When it is free it takes, of the work that waits at the end of that instant, that with the lowest rank,
    and of equal ranks what asked first.
    """

    def __init__(self, environment: simpy.Environment) -> None:
        self._environment = environment
        self._waiting: list[tuple[int, int, simpy.Event]] = []  # rank, number of the request
        self._requests_count = 0
        self._is_busy = self._is_deciding = False

    def take(self, rank: int) -> simpy.Event:
        """Event at which the unit begins this work, which ends with `release`."""
        begins = self._environment.event()
        heapq.heappush(self._waiting, (rank, self._requests_count, begins))
        self._requests_count += 1
        self._decide_later()
        return begins

    def release(self) -> None:
        """End the present work."""
        self._is_busy = False
        self._decide_later()

    def _decide_later(self) -> None:
        if self._is_busy or self._is_deciding or not self._waiting:
            return
        self._is_deciding = True
        EndOfInstant(self._environment, Stage.DEVICE).callbacks.append(self._decide)

    def _decide(self, _: simpy.Event) -> None:
        self._is_deciding, self._is_busy = False, True
        heapq.heappop(self._waiting)[-1].succeed()
