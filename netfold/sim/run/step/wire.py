"""The rounds that the bytes on workers' links belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from netfold.sim.checks.checks import RoundLog


class WireBytes:
    """Counts the bytes out of and into each worker's host for its rounds.

    Bytes that pass while a worker has one operation on the network are that operation's. While it has
    several, each gets a share in proportion to the payload that it announced. Bytes that pass while it has
    none, such as late acknowledgements and what it still passes on, go to the worker's next round that ends,
    or after the last one to that. So nothing is lost, and the figures are exact wherever the operations of a
    worker do not overlap.

    Hosts may have had other jobs before, and get others afterwards: bytes are counted from when this object
    is made until `hand_over`.
    """

    def __init__(self, sent_bytes: Callable[[int], int], host_links: Sequence[tuple[int, int]]) -> None:
        self._sent_bytes, self._host_links = sent_bytes, host_links
        self._counted = np.array([self._now(one) for one in range(len(host_links))], np.int64)  # up, down
        self._unclaimed = np.zeros((len(host_links), 2), np.int64)
        self._open: list[list[tuple[RoundLog, int]]] = [[] for _ in host_links]
        self._is_gone = np.zeros(len(host_links), np.bool_)  # whether another job has the worker's host

    def begin(self, worker: int, log: RoundLog, payload_bytes: int) -> None:
        """A worker's operation of a round enters the network."""
        self._count(worker)
        self._open[worker].append((log, max(1, payload_bytes)))

    def end(self, worker: int, log: RoundLog) -> None:
        """That operation is complete."""
        self._count(worker)
        self._open[worker] = [one for one in self._open[worker] if one[0] is not log]

    def end_round(self, worker: int, log: RoundLog) -> None:
        """A round has ended at a worker."""
        self._count(worker)
        log.wire_bytes += self._unclaimed[worker]
        self._unclaimed[worker] = 0

    def take_rest(self) -> NDArray[np.int64]:
        """(2,) bytes up and down that belong to no round yet, of all workers."""
        for worker in range(len(self._host_links)):
            self._count(worker)
        rest: NDArray[np.int64] = self._unclaimed.sum(axis=0)
        self._unclaimed[:] = 0
        return rest

    def hand_over(self, worker: int) -> None:
        """Another job gets the worker's host: what passes from now on is not counted."""
        self._count(worker)
        self._is_gone[worker] = True

    def _now(self, worker: int) -> list[int]:
        """Bytes that have passed the worker's links, up and down."""
        return [self._sent_bytes(link) for link in self._host_links[worker]]

    def _count(self, worker: int) -> None:
        """Assign the bytes since the last count."""
        if self._is_gone[worker]:
            return
        now = np.array(self._now(worker), np.int64)
        left: NDArray[np.int64] = now - self._counted[worker]
        self._counted[worker] = now
        weight_left = sum(weight for _, weight in self._open[worker])
        for log, weight in self._open[worker]:
            share = left * weight // weight_left
            log.wire_bytes += share
            left, weight_left = left - share, weight_left - weight
        self._unclaimed[worker] += left
