"""Ring all-reduce over reliable messages (Patarasuk and Yuan, JPDC 2009).

The words are cut into n segments. In n − 1 reduce-scatter steps every worker sends one segment to the next
and merges the one it receives into its own; in n − 1 all-gather steps the finished segments go round. On an
idle network that takes 2(n − 1) times the time of one segment.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from netfold.homomorphic.codec import MERGEABLE, Merged, Message, Words
from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.merge import combine, merge_all
from netfold.sim.collectives.collective import Wait
from netfold.sim.collectives.results import Finished
from netfold.sim.collectives.ring_rules import ring_route
from netfold.sim.engine.interface import Flow, Frame, Overflow
from netfold.sim.network.fabric import Fabric
from netfold.sim.network.host_time import Hosts
from netfold.sim.workload.device import Device


@dataclass(frozen=True)
class RingOptions:
    """How the ring's messages are carried, and who is in it."""

    hosts: tuple[int, ...]  # node of each worker
    frame: Frame
    window: int
    timeout_ps: int
    ack_every: int
    seed: int
    job: int = 0


class Ring:
    """One job's ring, in rank order."""

    merges = MERGEABLE
    takes_floats = False
    overflow = Overflow.WRAP

    def __init__(
        self,
        environment: simpy.Environment,
        fabric: Fabric,
        options: RingOptions,
        device: Device,
        hosts: Hosts,
    ) -> None:
        self._environment, self._fabric, self._options = environment, fabric, options
        self._device, self._hosts = device, hosts
        self._workers = len(options.hosts)
        self._arrivals: dict[tuple[int, int, int], simpy.Event] = {}  # by worker, operation, step
        self._operations = [0] * self._workers
        self._received = 0  # segments of the operations under way
        self._finished: dict[int, Finished] = {}  # by operation

    def pipelines(self, message: Message) -> bool:
        """No: exponents go round before the words."""
        return False

    def exchange(self, worker: int, messages: tuple[Message, ...]) -> Wait:
        """See `Collective`. Messages of one operation go round one after the other."""
        merged: tuple[Merged, ...] = ()
        for message in messages:
            merged += ((yield from self._all_reduce(worker, message)),)
        return merged

    def _all_reduce(self, worker: int, message: Message) -> Generator[simpy.Event, Any, Merged]:
        n = self._workers
        if n == 1 or message.words.size == 0:
            return Merged(merge_all(message.merge, [message.words], table=message.table), n)
        operation = self._operations[worker]
        self._operations[worker] += 1
        options, finished = self._options, self._finished.setdefault(operation, Finished(n))
        bounds = [message.words.size * index // n for index in range(n + 1)]
        sending = message.words[bounds[worker] : bounds[worker + 1]]
        for step in range(n - 1):  # reduce-scatter
            self._send(worker, operation, step, sending)
            received = yield from self._receive(worker, operation, step)
            index = (worker - step - 1) % n
            key = mix_plain(options.seed, purposes.RING_MERGE, options.job, operation, worker, step)
            size = received.nbytes
            yield self._hosts.work(worker, self._device.work_ps(2 * size, size))
            arriving = Merged(received, step + 1)
            own = Merged(message.words[bounds[index] : bounds[index + 1]], 1)
            sending = combine(message.merge, arriving, own, key, message.table, in_place=True).words
        parts = {(worker + 1) % n: finished.kept((worker + 1) % n, sending)}
        for step in range(n - 1, 2 * (n - 1)):  # all-gather
            self._send(worker, operation, step, sending)
            index = (worker - step - 1) % n
            sending = parts[index] = finished.kept(index, (yield from self._receive(worker, operation, step)))
        words = finished.whole([parts[index] for index in range(n)])
        if finished.is_over:
            del self._finished[operation]
            self._received -= n * 2 * (n - 1)
        return Merged(words, n)

    def _receive(self, worker: int, operation: int, step: int) -> Generator[simpy.Event, Any, Words]:
        """A step's segment, when it has arrived."""
        received: Words = yield self._arrival(worker, operation, step)
        del self._arrivals[worker, operation, step]
        self._received += 1
        return received

    def _send(self, worker: int, operation: int, step: int, words: Words) -> None:
        """Start one segment on its way to the next worker."""
        options = self._options
        following = (worker + 1) % self._workers
        received = np.empty_like(words)
        key = mix_plain(purposes.RING_FLOW_SEED, options.job, operation, step, worker)
        flow = Flow(
            source=options.hosts[worker],
            target=options.hosts[following],
            words_count=words.size,
            words=np.ascontiguousarray(words),
            received=received,
            frame=options.frame,
            window=options.window,
            timeout_ps=options.timeout_ps,
            ack_every=options.ack_every,
            route=ring_route(options.seed, options.job, worker),
            key=key,
            job=options.job,
        )
        delivered = self._fabric.flow(flow)
        arrival = self._arrival(following, operation, step)
        self._environment.process(_pass_on(delivered, arrival, received))

    def _arrival(self, worker: int, operation: int, step: int) -> simpy.Event:
        """The event that a worker has a step's segment; with loss, later steps may arrive first."""
        return self._arrivals.setdefault((worker, operation, step), self._environment.event())

    def switch_counters(self) -> list[dict[str, int]]:
        """See `Collective`."""
        return []

    def leaks(self) -> list[str]:
        """See `Collective`: switches only forward."""
        return []

    def locate(self, worker: int, operation: int, part: int, word: int) -> str:
        """See `Collective`."""
        return f"message {part} of operation {operation} around the ring, as worker {worker} got it"

    def share(self) -> float:
        """See `Collective`: segments of the operations under way."""
        wanted = len(self._finished) * self._workers * 2 * (self._workers - 1)
        return self._received / wanted if wanted else 0.0

    def retransmitted_packets(self) -> int:
        """See `Collective`."""
        return self._fabric.engine.flow_retransmissions(self._options.job)


def _pass_on(
    delivered: simpy.Event, arrival: simpy.Event, received: Words
) -> Generator[simpy.Event, Any, None]:
    """Hand a segment over when it is delivered."""
    yield delivered
    arrival.succeed(received)
