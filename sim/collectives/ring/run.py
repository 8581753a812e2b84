"""Ring all-reduce over reliable messages.

The words are divided into n segments. In n − 1 reduce-scatter steps every worker sends one segment to the
next worker and merges the one it receives into its own; in n − 1 all-gather steps the finished segments go
round. On an idle network that takes 2(n − 1) times the time of one segment.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from netfold.homomorphic.message import Merged, Words
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.host_messages import HostCollective, MessageExchange


class Ring(HostCollective):
    """One job's ring, in rank order."""

    @property
    def chunks_count(self) -> int:
        """Every worker receives 2 (n − 1) chunks."""
        return self.workers * 2 * (self.workers - 1)

    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Words]:
        """Run reduce-scatter, then all-gather."""
        n, finished, words = self.workers, operation.finished, operation.message.words
        following = (worker + 1) % n
        bounds = [words.size * index // n for index in range(n + 1)]
        sending = words[bounds[worker] : bounds[worker + 1]]
        for step in range(n - 1):  # reduce-scatter
            self.send(worker, following, operation, step, sending)
            received = yield from self.receive(worker, operation, step)
            index = (worker - step - 1) % n
            own = Merged(words[bounds[index] : bounds[index + 1]], 1)
            arriving = Merged(received, step + 1)
            sending = (yield from self.merge(worker, operation, step, arriving, own)).words
        parts = {following: finished.deduplicated(following, sending)}
        for step in range(n - 1, 2 * (n - 1)):  # all-gather
            self.send(worker, following, operation, step, sending)
            index = (worker - step - 1) % n
            sending = parts[index] = finished.deduplicated(
                index, (yield from self.receive(worker, operation, step))
            )
        return finished.joined([parts[index] for index in range(n)])

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word; all workers merge it."""
        step, bucket, operation = place
        where = f"operation {operation} of bucket {bucket} of step {step}"
        return f"message {part} of {where} around the ring, as worker {worker} got it"
