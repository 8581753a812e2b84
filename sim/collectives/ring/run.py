"""Ring all-reduce over reliable messages.

The words are divided into n segments. In n − 1 reduce-scatter steps every worker sends one segment to the
next worker and merges the one it receives into its own; in n − 1 all-gather steps the finished segments go
round. On an idle network that takes 2(n − 1) times the time of one segment.

A worker that is absent passes on what arrives; a segment to which nobody has contributed yet is a header that
keeps its place in the schedule.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from netfold.homomorphic.message import Merged
from netfold.sim.collectives.host_messages import HostCollective, MessageExchange


class Ring(HostCollective):
    """One job's ring, in rank order."""

    @property
    def chunks_count(self) -> int:
        """Every worker receives 2 (n − 1) chunks."""
        return self.workers * 2 * (self.workers - 1)

    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Run reduce-scatter, then all-gather."""
        n, finished, size = self.workers, operation.finished, operation.message.size
        following = (worker + 1) % n
        places = [slice(size * index // n, size * (index + 1) // n) for index in range(n)]
        sending = operation.own(worker, n, places[worker])
        for step in range(n - 1):  # reduce-scatter
            self.send(worker, following, operation, step, sending)
            arriving = yield from self.receive(worker, operation, step)
            own = operation.own(worker, n, places[(worker - step - 1) % n])
            sending = yield from self.merge(worker, operation, step, arriving, own)
        sending = operation.whole(sending, places[following])
        parts = {following: finished.deduplicated(following, sending)}
        for step in range(n - 1, 2 * (n - 1)):  # all-gather
            self.send(worker, following, operation, step, sending)
            index = (worker - step - 1) % n
            received = yield from self.receive(worker, operation, step)
            sending = finished.deduplicated(index, operation.whole(received, places[index]))
            parts[index] = sending
        return finished.joined([parts[index] for index in range(n)])

    def locate(self, worker: int, operation: int, part: int, word: int) -> str:
        """The message, operation and worker of a word; all workers merge it."""
        return f"message {part} of operation {operation} around the ring, as worker {worker} got it"
