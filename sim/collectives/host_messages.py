"""Runs a schedule between hosts: sends chunks, receives them, and merges them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray

from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.kernels.comparison import same_bits
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.merge import combine, merged_message, unchanged_by
from netfold.homomorphic.message import Merged, Message, Words
from netfold.sim.collectives.between_hosts import HostPlan, host_route
from netfold.sim.collectives.collective import RunContext, Wait
from netfold.sim.engine.interface import Flow, Overflow


class Finished:
    """The finished chunks of one message; equal chunks of several workers share memory.

    Words that are returned are never written again.
    """

    def __init__(self, workers: int) -> None:
        self._workers, self._served = workers, 0
        self._chunks: dict[int, Words] = {}  # the first chunk's words for each index
        self._joined: Words | None = None  # these chunks, joined

    @property
    def is_over(self) -> bool:
        """Whether all workers have their result."""
        return self._served == self._workers

    def deduplicated(self, index: int, chunk: Merged) -> Merged:
        """A worker's finished chunk, with the words of another worker's if they are equal."""
        first = self._chunks.setdefault(index, chunk.words)
        return replace(chunk, words=first) if same_bits(first, chunk.words) else chunk

    def joined(self, chunks: Sequence[Merged]) -> Merged:
        """A worker's chunks joined; their words are the same array for workers with the same chunks.

        All have the same contributors; `is_mixed` if not.
        """
        self._served += 1
        first, words = chunks[0], [chunk.words for chunk in chunks]
        is_own = any(own is not self._chunks[index] for index, own in enumerate(words))
        if is_own or self._joined is None:
            joined = np.concatenate(words)
            self._joined = self._joined if is_own else joined
        else:
            joined = self._joined
        is_mixed = any(
            chunk.workers != first.workers or not _are_same(chunk.present, first.present)
            for chunk in chunks[1:]
        )
        is_all = first.workers == self._workers and not is_mixed
        return Merged(joined, first.workers, present=None if is_all else first.present, is_mixed=is_mixed)


class MessageExchange(NamedTuple):
    """One worker's side of the exchange of one message."""

    number: int  # messages carried before
    message: Message
    finished: Finished  # shared by its workers

    def own(self, worker: int, workers: int, words: slice) -> Merged:
        """A worker's own part of its message; the words of an absent worker's part are empty."""
        present = np.zeros(workers, np.bool_)
        present[worker] = not self.message.is_absent
        return Merged(self.message.words[words], int(present.sum()), present=present)

    def whole(self, part: Merged, words: slice) -> Merged:
        """A part that is merged to the end: codes of its only contributor lifted, the words of nobody's part
        filled in."""
        merge, nobody = self.message.merge, Merged(part.words[:0], 0)
        if part.workers == 0:
            return replace(part, words=unchanged_by(merge, words.stop - words.start))
        lifted = combine(merge, part, nobody, table=self.message.table, in_place=True)
        return replace(part, words=lifted.words)


class HostCollective(ABC):
    """One job's messages between hosts. A collective adds its schedule, `carry`.

    Messages of one operation are carried one after the other. Within one, a step is a number that identifies
    a worker's sends, and its receipts. A chunk is a `Merged`: its header says whose words it holds; a chunk
    of nobody is a header alone.
    """

    takes_floats = False
    overflow = Overflow.WRAP

    def __init__(self, plan: HostPlan, context: RunContext) -> None:
        self.workers = len(context.nodes)
        self._plan, self._context = plan, context
        self._arrivals: dict[tuple[int, int, int], simpy.Event] = {}  # by worker, operation, step
        self._operations = [0] * self.workers
        self._received = 0  # chunks of the operations in flight
        self._finished: dict[int, Finished] = {}  # by operation

    @property
    @abstractmethod
    def chunks_count(self) -> int:
        """Chunks that workers receive in one operation, all together."""

    @abstractmethod
    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Run one worker's schedule, for at least two workers and one word; return the merged message."""

    @abstractmethod
    def locate(self, worker: int, operation: int, part: int, word: int) -> str:
        """Where a word of a worker's message was merged."""

    def exchange(self, worker: int, messages: tuple[Message, ...]) -> Wait:
        """Carry one worker's messages, one after the other."""
        merged: tuple[Merged, ...] = ()
        for message in messages:
            merged += ((yield from self._exchange(worker, message)),)
        return merged

    def _exchange(self, worker: int, message: Message) -> Generator[simpy.Event, Any, Merged]:
        if self.workers == 1 or message.size == 0:
            return replace(merged_message([message]), workers=0 if message.is_absent else self.workers)
        number = self._operations[worker]
        self._operations[worker] += 1
        finished = self._finished.setdefault(number, Finished(self.workers))
        merged = yield from self.carry(worker, MessageExchange(number, message, finished))
        if finished.is_over:
            del self._finished[number]
            self._received -= self.chunks_count
        return merged

    def send(self, worker: int, to: int, operation: MessageExchange, step: int, chunk: Merged) -> None:
        """Start sending one chunk to another worker; a chunk of nobody travels without words."""
        plan, context = self._plan, self._context
        words = chunk.words if chunk.workers else chunk.words[:0]
        received = np.empty_like(words)
        flow = Flow(
            source=context.nodes[worker],
            target=context.nodes[to],
            words_count=words.size,
            words=np.ascontiguousarray(words),
            received=received,
            frame=plan.frame,
            window=plan.window,
            timeout_ps=plan.timeout_ps,
            ack_every=plan.ack_every,
            route=host_route(context.seed, context.job, worker),
            key=mix_plain(purposes.RING_FLOW_SEED, context.job, operation.number, step, worker),
            job=context.job,
        )
        delivered = context.fabric.flow(flow)
        arrival = self._arrival(to, operation.number, step)
        context.environment.process(_pass_on(delivered, arrival, replace(chunk, words=received)))

    def receive(
        self, worker: int, operation: MessageExchange, step: int
    ) -> Generator[simpy.Event, Any, Merged]:
        """Wait for the chunk that was sent to a worker in a step, and return it."""
        received: Merged = yield self._arrival(worker, operation.number, step)
        del self._arrivals[worker, operation.number, step]
        self._received += 1
        return received

    def merge(
        self, worker: int, operation: MessageExchange, step: int, arriving: Merged, own: Merged
    ) -> Generator[simpy.Event, Any, Merged]:
        """Merge an arriving chunk with the worker's own, in the time that its device takes.

        The arriving words may be overwritten. Where one of the two is nobody's, the other passes unchanged,
        in no time.
        """
        if arriving.workers == 0 or own.workers == 0:
            return arriving if own.workers == 0 else own
        context, message = self._context, operation.message
        key = mix_plain(context.seed, purposes.RING_MERGE, context.job, operation.number, worker, step)
        size = arriving.words.nbytes
        yield context.hosts.work(worker, context.device.work_ps(2 * size, size))
        return combine(message.merge, arriving, own, key, message.table, in_place=True)

    def _arrival(self, worker: int, operation: int, step: int) -> simpy.Event:
        """The event that a step's chunk has arrived at a worker; with loss, later steps may arrive first."""
        return self._arrivals.setdefault((worker, operation, step), self._context.environment.event())

    def pipelines(self, message: Message) -> bool:
        """Return False: exponents are exchanged before the words."""
        return False

    def switch_counters(self) -> list[dict[str, int]]:
        """Return no counters: switches only forward."""
        return []

    def leaks(self) -> list[str]:
        """Return no leaks: switches only forward."""
        return []

    def share(self) -> float:
        """Share of the chunks of the operations in flight that have arrived."""
        wanted = len(self._finished) * self.chunks_count
        return self._received / wanted if wanted else 0.0

    def retransmitted_packets(self) -> int:
        """Packets retransmitted by the job's flows."""
        return self._context.fabric.engine.flow_retransmissions(self._context.job)


def _are_same(present: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> bool:
    """Whether two chunks name the same contributors."""
    return present is other or (present is not None and other is not None and np.array_equal(present, other))


def _pass_on(
    delivered: simpy.Event, arrival: simpy.Event, received: Merged
) -> Generator[simpy.Event, Any, None]:
    """Succeed `arrival` with the chunk when it is delivered."""
    yield delivered
    arrival.succeed(received)
