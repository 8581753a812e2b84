"""Ring all-reduce over reliable messages.

The words are divided into n segments. In n − 1 reduce-scatter steps every worker sends one segment to the
next worker and merges the one it receives into its own; in n − 1 all-gather steps the finished segments go
round. On an idle network that takes 2(n − 1) times the time of one segment.

A codec's own merge (HOST) divides the words, merges two parts at each hop, and joins the finished parts. The
length of a part may change at every hop.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise
from typing import Any

import simpy

from netfold.homomorphic.merge import HostHop, join_host, merge_all, split_host
from netfold.homomorphic.message import Merged, Message, Words
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.host_messages import HostCollective, MessageExchange, of_no_worker


class Ring(HostCollective):
    """One job's ring, in rank order."""

    @property
    def chunks_count(self) -> int:
        """Every worker receives 2 (n − 1) chunks."""
        return self.workers * 2 * (self.workers - 1)

    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Run reduce-scatter, then all-gather."""
        n, finished = self.workers, operation.finished
        following = (worker + 1) % n
        own = _segments(operation.message, n)
        sending = own[worker]
        for step in range(n - 1):  # reduce-scatter
            self.send(worker, following, operation, step, sending)
            received = yield from self.receive(worker, operation, step)
            index = (worker - step - 1) % n
            sending = yield from self._merged(worker, operation, step, received, own[index])
        if n - len(finished.absent) == 1:  # codes become lanes even if there is nothing to add
            sending = merge_all(operation.message.merge, [sending], table=operation.message.table)
        parts = {following: finished.deduplicated(following, sending)}
        for step in range(n - 1, 2 * (n - 1)):  # all-gather
            self.send(worker, following, operation, step, sending)
            index = (worker - step - 1) % n
            sending = parts[index] = finished.deduplicated(
                index, (yield from self.receive(worker, operation, step))
            )
        present = finished.present
        if present is not None and not present.any():
            return of_no_worker(operation.message, present)
        ordered = [parts[index] for index in range(n)]
        if operation.message.host_merge is None:
            return Merged(finished.joined(ordered), n - len(finished.absent), present=present)
        merge = operation.message.host_merge
        return Merged(finished.made("joined", parts, lambda: join_host(merge, ordered)), n)

    def _merged(
        self, worker: int, operation: MessageExchange, step: int, received: Words, own: Words
    ) -> Generator[simpy.Event, Any, Words]:
        """What a hop of reduce-scatter sends on; a worker that contributes nothing only forwards."""
        n, absent = self.workers, operation.finished.absent
        first = (worker - step - 1) % n  # the segment, and the worker that sent it first
        before = sum((first + hop) % n not in absent for hop in range(step + 1))
        if worker in absent:
            return received
        if before == 0:
            return own
        merged = yield from self.merge(worker, operation, step, Merged(received, before), Merged(own, 1))
        if operation.message.host_merge is not None:
            key = self.merge_key(worker, operation, step)
            operation.finished.hops[first].append(HostHop(first, worker, key))
        return merged.words

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word; all workers merge it."""
        return f"message {part} of {place.in_words} around the ring, as worker {worker} got it"


def _segments(message: Message, count: int) -> list[Words]:
    """A worker's words in as many segments; all are empty if it contributes nothing."""
    words = message.words
    if message.host_merge is not None:
        return split_host(message.host_merge, words, count)
    bounds = [words.size * index // count for index in range(count + 1)]
    return [words[first:last] for first, last in pairwise(bounds)]
