"""Runs a schedule between hosts: sends chunks, receives them, and merges them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
import simpy

from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.kernels.comparison import same_bits
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.merge import combine, merge_all
from netfold.homomorphic.message import Merged, Message, Words, Work
from netfold.sim.collectives.between_hosts import HostPlan, host_route
from netfold.sim.collectives.collective import OperationPlace, RunContext, Wait
from netfold.sim.engine.interface import Flow, Overflow
from netfold.sim.workload.device import charge_ps


class Finished:
    """The finished chunks of one message; equal chunks of several workers share memory.

    Words that are returned are never written again.
    """

    def __init__(self, workers: int) -> None:
        self._workers, self._served = workers, 0
        self._chunks: dict[int, Words] = {}  # the first chunk for each index
        self._joined: Words | None = None  # these chunks, joined

    @property
    def is_over(self) -> bool:
        """Whether all workers have their result."""
        return self._served == self._workers

    def deduplicated(self, index: int, words: Words) -> Words:
        """A worker's finished chunk, or the equal chunk of another worker."""
        first = self._chunks.setdefault(index, words)
        return first if same_bits(first, words) else words

    def joined(self, chunks: Sequence[Words]) -> Words:
        """A worker's chunks joined; the same array for workers with the same chunks."""
        self._served += 1
        if any(words is not self._chunks[index] for index, words in enumerate(chunks)):
            return np.concatenate(chunks)
        if self._joined is None:
            self._joined = np.concatenate(chunks)
        return self._joined


class MessageExchange(NamedTuple):
    """One worker's side of the exchange of one message."""

    number: int  # messages that the job began to carry before
    message: Message
    finished: Finished  # shared by its workers


class HostCollective(ABC):
    """One job's messages between hosts. A collective adds its schedule, `carry`.

    Messages of one operation are carried one after the other; several operations may be under way. Within
    one, a step is a number that identifies a worker's sends, and its receipts.
    """

    is_serial = False
    takes_floats = False
    overflow = Overflow.WRAP

    def __init__(self, plan: HostPlan, context: RunContext) -> None:
        self.workers = len(context.nodes)
        self._plan, self._context = plan, context
        self._arrivals: dict[tuple[int, int, int], simpy.Event] = {}  # by worker, operation, step
        self._numbers: dict[tuple[OperationPlace, int], int] = {}  # of the messages in flight
        self._numbers_count = 0
        self._received = 0  # chunks of the operations in flight
        self._finished: dict[int, Finished] = {}  # by operation

    @property
    @abstractmethod
    def chunks_count(self) -> int:
        """Chunks that workers receive in one operation, all together."""

    @abstractmethod
    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Words]:
        """Run one worker's schedule, for at least two workers and one word; return the merged words."""

    @abstractmethod
    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """Where a word of a worker's message was merged."""

    def exchange(self, worker: int, messages: tuple[Message, ...], place: OperationPlace) -> Wait:
        """Carry one worker's messages, one after the other."""
        merged: tuple[Merged, ...] = ()
        for part, message in enumerate(messages):
            merged += ((yield from self._exchange(worker, (place, part), message)),)
        return merged

    def _exchange(
        self, worker: int, key: tuple[OperationPlace, int], message: Message
    ) -> Generator[simpy.Event, Any, Merged]:
        if self.workers == 1 or message.words.size == 0:
            alone = merge_all(message.merge, [message.words], table=message.table)
            return Merged(alone, self.workers)
        if key not in self._numbers:
            self._numbers[key] = self._numbers_count
            self._numbers_count += 1
        number = self._numbers[key]
        finished = self._finished.setdefault(number, Finished(self.workers))
        words = yield from self.carry(worker, MessageExchange(number, message, finished))
        if finished.is_over:
            del self._finished[number], self._numbers[key]
            self._received -= self.chunks_count
        return Merged(words, self.workers)

    def send(self, worker: int, to: int, operation: MessageExchange, step: int, words: Words) -> None:
        """Start sending one chunk to another worker."""
        plan, context = self._plan, self._context
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
        context.environment.process(_pass_on(delivered, arrival, received))

    def receive(
        self, worker: int, operation: MessageExchange, step: int
    ) -> Generator[simpy.Event, Any, Words]:
        """Wait for the chunk that was sent to a worker in a step, and return it."""
        received: Words = yield self._arrival(worker, operation.number, step)
        del self._arrivals[worker, operation.number, step]
        self._received += 1
        return received

    def merge(
        self, worker: int, operation: MessageExchange, step: int, arriving: Merged, own: Merged
    ) -> Generator[simpy.Event, Any, Merged]:
        """Merge an arriving chunk with the worker's own, in the time that its device takes.

        The arriving words may be overwritten.
        """
        context, message = self._context, operation.message
        key = mix_plain(context.seed, purposes.RING_MERGE, context.job, operation.number, worker, step)
        size = arriving.words.nbytes
        work = Work(2 * size, size, flops=arriving.words.size)
        yield context.hosts.work(worker, charge_ps(context.device, work))
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


def _pass_on(
    delivered: simpy.Event, arrival: simpy.Event, received: Words
) -> Generator[simpy.Event, Any, None]:
    """Succeed `arrival` with the chunk when it is delivered."""
    yield delivered
    arrival.succeed(received)
