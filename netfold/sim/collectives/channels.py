"""Connections between hosts: chunks in order, as many at once as a window holds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import Words
from netfold.sim.collectives.between_hosts import HostPlan
from netfold.sim.collectives.collective import RunContext
from netfold.sim.engine.interface import Flow
from netfold.topologies.network import flow_key_plain

if TYPE_CHECKING:
    import simpy


class Parcel(NamedTuple):
    """A chunk of a message; all but the words is in the header of its first packet."""

    owner: int  # worker or part of a message that the words belong to
    number: int  # of the chunk
    total: int  # chunks of the message
    words: Words  # none: the packet is a header
    present: NDArray[np.bool_] | None = None  # (workers,) of a merged chunk: who contributed


class _Waiting(NamedTuple):
    parcel: Parcel
    inbox: simpy.Store
    key: int


@dataclass
class _Connection:
    """What one host sends to another."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    outstanding: int = 0  # packets


class Channels:
    """Reliable connections between the hosts of one job, `nodes` of them.

    A connection sends its chunks in order. It begins one if the packets outstanding leave room for it in the
    window, or if there are none; the delivery of a chunk frees its packets. Within a host words take no time.
    """

    def __init__(self, plan: HostPlan, context: RunContext, nodes: tuple[int, ...]) -> None:
        self._plan, self._context, self._nodes = plan, context, nodes
        self._connections: dict[tuple[int, int], _Connection] = {}

    def send(self, source: int, target: int, parcel: Parcel, inbox: simpy.Store, key: int) -> None:
        """Send a chunk as soon as the connection has room; it is put into `inbox` when it has arrived.

        `key` identifies the chunk for keyed draws.
        """
        if self._nodes[source] == self._nodes[target]:
            inbox.put(parcel)
            return
        connection = self._connections.setdefault((source, target), _Connection())
        connection.waiting.append(_Waiting(parcel, inbox, key))
        self._pump(source, target)

    def open(self, source: int, target: int, words: Words, key: int) -> tuple[simpy.Event, Words]:
        """Start a message now; returns the event of its delivery, and the array that it arrives in."""
        plan, context = self._plan, self._context
        received = np.empty_like(words)
        packets = self._packets(words)
        flow = Flow(
            source=self._nodes[source],
            target=self._nodes[target],
            words_count=words.size,
            words=np.ascontiguousarray(words),
            received=received,
            frame=plan.frame,
            window=min(plan.window, max(plan.ack_every, packets)),  # the engine allocates it
            timeout_ps=plan.timeout_ps,
            ack_every=plan.ack_every,
            route=flow_key_plain(context.seed, context.job, source, target),
            ack_route=flow_key_plain(context.seed, context.job, target, source),
            key=key,
            job=context.job,
            waits_for_loss=plan.waits_for_loss,
        )
        return context.fabric.flow(flow), received

    def _packets(self, words: Words) -> int:
        """Packets of a chunk: one even without words."""
        return max(1, -(-words.size // self._plan.frame.elements))

    def _pump(self, source: int, target: int) -> None:
        connection = self._connections[source, target]
        while connection.waiting:
            parcel, inbox, key = connection.waiting[0]
            packets = self._packets(parcel.words)
            if connection.outstanding and connection.outstanding + packets > self._plan.window:
                return
            connection.waiting.popleft()
            connection.outstanding += packets
            delivered, received = self.open(source, target, parcel.words, key)
            arrived = parcel._replace(words=received)
            assert delivered.callbacks is not None
            delivered.callbacks.append(partial(self._deliver, (source, target), packets, arrived, inbox))

    def _deliver(
        self, pair: tuple[int, int], packets: int, parcel: Parcel, inbox: simpy.Store, _: simpy.Event
    ) -> None:
        self._connections[pair].outstanding -= packets
        inbox.put(parcel)
        self._pump(*pair)


def chunks_of(words: Words, chunk_words: int) -> list[Words]:
    """The words in chunks; an empty message is one empty chunk."""
    return [words[first : first + chunk_words] for first in range(0, max(1, words.size), chunk_words)]
