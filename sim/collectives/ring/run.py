"""Ring all-reduce over reliable messages.

The words are divided into n segments. In n − 1 reduce-scatter steps every worker sends one segment to the
next worker and merges the one it receives into its own; in n − 1 all-gather steps the finished segments go
round. On an idle network that takes 2(n − 1) times the time of one segment.

A codec's own merge (HOST) divides the words, merges two parts at each hop, and joins the finished parts. The
length of a part may change at every hop.

A worker that is absent passes on what arrives; a segment to which nobody has contributed yet is a header that
keeps its place in the schedule.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from itertools import pairwise
from typing import Any

import simpy

from netfold.homomorphic.host_merge import HostHop, join_host, split_host
from netfold.homomorphic.message import Merged, Message, Words
from netfold.sim.collectives.collective import OperationPlace
from netfold.sim.collectives.host_messages import HostCollective, MessageExchange


class Ring(HostCollective):
    """One job's ring, in rank order."""

    @property
    def chunks_count(self) -> int:
        """Every worker receives 2 (n − 1) chunks."""
        return self.workers * 2 * (self.workers - 1)

    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Run reduce-scatter, then all-gather."""
        n, finished, message = self.workers, operation.finished, operation.message
        following = (worker + 1) % n
        own = [operation.own(worker, n, words) for words in _segments(message, n)]
        sizes = [message.size * (index + 1) // n - message.size * index // n for index in range(n)]
        sending = own[worker]
        for step in range(n - 1):  # reduce-scatter
            self.send(worker, following, operation, step, sending)
            arriving = yield from self.receive(worker, operation, step)
            index = (worker - step - 1) % n
            sending = yield from self.merge(worker, operation, step, arriving, own[index])
            if message.host_merge is not None:
                key = self.merge_key(worker, operation, step)
                finished.hops[index].append(HostHop(index, worker, key))
        sending = operation.whole(sending, sizes[following])
        parts = {following: finished.stored(following, sending)}
        for step in range(n - 1, 2 * (n - 1)):  # all-gather
            self.send(worker, following, operation, step, sending)
            index = (worker - step - 1) % n
            received = yield from self.receive(worker, operation, step)
            sending = finished.stored(index, operation.whole(received, sizes[index]))
            parts[index] = sending
        ordered = {index: parts[index] for index in range(n)}
        if message.host_merge is None:
            return finished.joined(ordered)
        return finished.joined(ordered, partial(join_host, message.host_merge))

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
