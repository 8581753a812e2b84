"""Runs a schedule between hosts: sends chunks, receives them, and merges them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Request, Server
from netfold.homomorphic.merge import HostHop, combine, merged_message, unchanged_by
from netfold.homomorphic.message import MERGEABLE, Merge, Merged, Message, Words, Work
from netfold.kernels.words import same_bits
from netfold.sim.collectives.between_hosts import HostPlan
from netfold.sim.collectives.channels import Channels, Parcel
from netfold.sim.collectives.collective import MergeOrders, OperationPlace, RunContext, Wait
from netfold.sim.engine.interface import Overflow
from netfold.sim.workload.device_model import Device, charge_ps

if TYPE_CHECKING:
    import simpy

T = TypeVar("T")


class Finished:
    """The finished chunks of one message; equal chunks of several workers share memory.

    Words that are returned are never written again.
    """

    def __init__(self, workers: int) -> None:
        self.workers, self.served = workers, 0  # workers that have their result
        self.received, self.expected = 0, 0  # chunks; 0 expected: as many as of every message
        self.hops: defaultdict[int, list[HostHop]] = defaultdict(list)  # HOST, of each part
        self._first: dict[Hashable, Words] = {}  # the first chunk's words for each index
        self._made: dict[str, Any] = {}  # of these chunks

    @property
    def is_over(self) -> bool:
        """Whether all workers have their result."""
        return self.served == self.workers

    def deduplicated(self, index: Hashable, words: Words) -> Words:
        """A worker's finished words, or the equal ones of another worker."""
        first = self._first.setdefault(index, words)
        return first if same_bits(first, words) else words

    def stored(self, index: Hashable, chunk: Merged) -> Merged:
        """A worker's finished chunk, with the words of another worker's if they are equal."""
        return replace(chunk, words=self.deduplicated(index, chunk.words))

    def assembled(
        self, index: Hashable, parcel: Parcel, arrived: dict[int, dict[Any, Words]]
    ) -> Words | None:
        """A message with one more of its chunks, once all have arrived.

        `arrived` holds the chunks of incomplete messages by owner. The message is what is stored at `index`
        if all its chunks are those stored.
        """
        chunks = arrived.setdefault(parcel.owner, {})
        place = parcel.owner, parcel.number
        chunks[place] = self.deduplicated(place, parcel.words)
        if len(chunks) < parcel.total:
            return None
        del arrived[parcel.owner]
        if index in self._first and all(words is self._first[chunk] for chunk, words in chunks.items()):
            return self._first[index]
        in_order = [chunks[parcel.owner, number] for number in range(parcel.total)]
        return in_order[0] if parcel.total == 1 else np.concatenate(in_order)

    def made(self, name: str, chunks: Mapping[Any, Words], make: Callable[[], T]) -> T:
        """What a worker makes of its chunks; made once for all workers with the same chunks."""
        if any(words is not self._first[index] for index, words in chunks.items()):
            return make()
        if name not in self._made:
            self._made[name] = make()
        made: T = self._made[name]
        return made

    def joined(
        self,
        chunks: Mapping[Any, Merged],
        join: Callable[[list[Words]], Words] = np.concatenate,
        name: str = "joined",
    ) -> Merged:
        """A worker's chunks joined, in their order; the same words for workers with the same chunks.

        `name` tells apart what is joined of different chunks.

        All have the same contributors; `is_mixed` if not.
        """
        words = {index: chunk.words for index, chunk in chunks.items()}
        joined = self.made(name, words, lambda: join(list(words.values())))
        first, *others = chunks.values()
        is_mixed = first.is_mixed or any(
            one.is_mixed or one.workers != first.workers or not _are_same(one.present, first.present)
            for one in others
        )
        is_all = first.workers == self.workers and not is_mixed
        return Merged(joined, first.workers, present=None if is_all else first.present, is_mixed=is_mixed)


class MessageExchange(NamedTuple):
    """One worker's side of the exchange of one message."""

    number: int  # messages that the job began to carry before
    message: Message
    finished: Finished  # shared by its workers
    request: Request

    def whole(self, part: Merged, size: int) -> Merged:
        """A part of `size` words that is merged to the end.

        Codes of its only contributor are lifted, and the words of nobody's part are filled in.
        """
        message = self.message
        if message.merge not in MERGEABLE:
            return part
        if part.workers == 0:
            return replace(part, words=unchanged_by(message.merge, size * message.merged_words))
        nobody = Merged(part.words[:0], 0)
        lifted = combine(message.merge, part, nobody, 0, message.table, True, message.lane_bits)
        return replace(part, words=lifted.words)


class _Open(NamedTuple):
    """A message that some worker has begun and not all have received."""

    number: int
    finished: Finished


class HostCollective(ABC):
    """One job's messages between hosts. A collective adds how it carries one of them.

    Messages of one operation are carried one after the other; several operations may be under way.
    """

    is_serial = False
    takes_floats = False
    overflow = Overflow.WRAP
    needs_network_alone: ClassVar[bool] = False  # one worker alone sends messages that can be merged

    def __init__(self, context: RunContext) -> None:
        self.workers = len(context.nodes)
        self.servers: list[Server] = []
        self._context = context
        self._begun = 0  # messages
        self._open: dict[tuple[OperationPlace, int], _Open] = {}
        self._orders: dict[tuple[int, int], MergeOrders] = {}  # by step and bucket

    @abstractmethod
    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Carry one worker's side of a message; return the merged message.

        A message that can be merged has words, and several workers unless `needs_network_alone`.
        """

    @abstractmethod
    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """Where a word of a worker's message was merged."""

    def begin(self, operation: MessageExchange) -> None:
        """Prepare for a message whose first worker has begun; does nothing by default."""
        return

    def exchange(self, worker: int, messages: tuple[Message, ...], operation: OperationPlace) -> Wait:
        """Carry one worker's messages, one after the other."""
        merged: tuple[Merged, ...] = ()
        for part, message in enumerate(messages):
            merged += ((yield from self._exchange(worker, message, operation, part)),)
        return merged

    def _exchange(
        self, worker: int, message: Message, operation: OperationPlace, part: int
    ) -> Generator[simpy.Event, Any, Merged]:
        is_alone = self.workers == 1 and not self.needs_network_alone and message.merge is not Merge.GATHER
        if is_alone or (message.merge in MERGEABLE and message.size == 0):
            if message.merge is Merge.HOST:
                self._orders.setdefault(operation[:2], {})[operation.operation, part] = ((),)
            return replace(merged_message([message]), workers=0 if message.is_absent else self.workers)
        key, is_first = (operation, part), (operation, part) not in self._open
        if is_first:
            self._open[key] = _Open(self._begun, Finished(self.workers))
            self._begun += 1
        number, finished = self._open[key]
        tensors = self._context.tensors
        request = Request(*operation, message.label, tensors[operation.bucket] if tensors else ())
        own = MessageExchange(number, message, finished, request)
        if is_first:
            self.begin(own)
        merged = yield from self.carry(worker, own)
        finished.served += 1
        if finished.is_over:
            del self._open[key]
            if message.merge is Merge.HOST:
                order = [finished.hops[index] for index in range(max(finished.hops, default=0) + 1)]
                self._orders.setdefault(operation[:2], {})[operation.operation, part] = order
        return merged

    def merge_orders(self, step: int, bucket: int) -> MergeOrders:
        """The hops at which HOST messages of a finished round merged, by operation and message."""
        return self._orders.pop((step, bucket), {})

    def pipelines(self, message: Message) -> bool:
        """Return False: exponents are exchanged before the words."""
        return False

    def switch_counters(self) -> list[dict[str, int]]:
        """Return no counters: switches only forward."""
        return []

    def leaks(self) -> list[str]:
        """Return no leaks: switches only forward."""
        return []

    @abstractmethod
    def share(self) -> float:
        """Progress of the messages in flight, from 0 to 1."""

    def retransmitted_packets(self) -> int:
        """Packets retransmitted by the job's flows."""
        return self._context.fabric.engine.flow_retransmissions(self._context.job)


class ChannelCollective(HostCollective):
    """Messages between hosts in chunks, over connections that send them in order (`channels.py`)."""

    def __init__(self, plan: HostPlan, context: RunContext, servers: tuple[int, ...] = ()) -> None:
        """Run on the nodes of the context, and on those of servers."""
        super().__init__(context)
        self.channels = Channels(plan, context, (*context.nodes, *servers))

    @property
    @abstractmethod
    def chunks_count(self) -> int:
        """Chunks that workers receive of one message, all together."""

    def share(self) -> float:
        """Share of the chunks of the messages in flight that have arrived."""
        wanted = sum(one.finished.expected or self.chunks_count for one in self._open.values())
        return sum(one.finished.received for one in self._open.values()) / wanted if wanted else 0.0


def merge_ps(device: Device, message: Message, accumulated: Words, arriving: Words) -> int:
    """Time of one merge of a message's words on a host."""
    if message.host_merge is not None:
        return charge_ps(device, message.host_merge.work(accumulated, arriving))
    return merge_words_ps(device, accumulated.size)


def merge_words_ps(device: Device, words: int) -> int:
    """Time of one merge of so many words into others, which no codec does."""
    return charge_ps(device, Work(2 * 4 * words, 4 * words, flops=words))


def _are_same(present: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> bool:
    """Whether two chunks name the same contributors."""
    return present is other or (present is not None and other is not None and np.array_equal(present, other))
