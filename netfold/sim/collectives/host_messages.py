"""Messages between hosts: chunks over connections, and schedules that the engine carries out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Request, Server
from netfold.homomorphic.merge import (
    MERGEABLE,
    HostHop,
    Merge,
    Merged,
    Words,
    Work,
    combine,
    join_host,
    split_host,
    unchanged_by,
)
from netfold.homomorphic.message import Message, merged_message
from netfold.kernels import rng_streams
from netfold.kernels.bits import same_bits
from netfold.kernels.keyed_random import mix_plain
from netfold.sim.collectives.collective import (
    CollectiveSpec,
    JobContext,
    MergeOrders,
    OperationId,
    Resolved,
    RunContext,
    Wait,
)
from netfold.sim.collectives.host_collective import HostCollective, HostPlan
from netfold.sim.collectives.schedule_bound import BoundOf, host_bound_of
from netfold.sim.collectives.schedule_costs import Estimate, Routed, prediction_of
from netfold.sim.collectives.transfers import Cut
from netfold.sim.engine.engine_data import Flow, Operation, Overflow, Schedule
from netfold.sim.plan.idle_network import PredictedTime
from netfold.sim.workload.device_rooflines import Device, charge_ps
from netfold.topologies.ecmp import flow_key_plain
from netfold.topologies.network import Network

if TYPE_CHECKING:
    import simpy


# Connections between hosts: chunks in order, as many at once as a window holds.


class Chunk(NamedTuple):
    """A chunk of a message; all but the words is in the header of its first packet."""

    owner: int  # worker or part of a message that the words belong to
    number: int
    total: int  # chunks of the message
    words: Words  # none: the packet is a header
    present: NDArray[np.bool_] | None = None  # (workers,) of a merged chunk: who contributed


class _Waiting(NamedTuple):
    chunk: Chunk
    inbox: simpy.Store
    key: int


@dataclass
class _Connection:
    """What one host sends to another."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    outstanding: int = 0  # packets


class Connections:
    """Reliable connections between the hosts of one job, `nodes` of them.

    A connection sends its chunks in order. It begins one if the packets outstanding leave room for it in the
    window, or if there are none; the delivery of a chunk frees its packets. Within a host words take no time.
    """

    def __init__(self, plan: HostPlan, context: RunContext, nodes: tuple[int, ...]) -> None:
        self._plan, self._context, self._nodes = plan, context, nodes
        self._connections: dict[tuple[int, int], _Connection] = {}

    def send(self, source: int, target: int, chunk: Chunk, inbox: simpy.Store, key: int) -> None:
        """Send a chunk as soon as the connection has room; it is put into `inbox` when it has arrived.

        `key` identifies the chunk for keyed draws.
        """
        if self._nodes[source] == self._nodes[target]:
            inbox.put(chunk)
            return
        connection = self._connections.setdefault((source, target), _Connection())
        connection.waiting.append(_Waiting(chunk, inbox, key))
        self._pump(source, target)

    def open(self, source: int, target: int, words: Words, key: int) -> tuple[simpy.Event, Words]:
        """Start a message now; returns the event of its delivery, and the array that it arrives in."""
        sender, context = self._plan.sender, self._context
        received = np.empty_like(words)
        packets = self._packets(words)
        flow = Flow(
            source=self._nodes[source],
            target=self._nodes[target],
            words_count=words.size,
            words=np.ascontiguousarray(words),
            received=received,
            sender=replace(sender, window=min(sender.window, max(sender.ack_every, packets))),
            route=flow_key_plain(context.seed, context.job, source, target),
            ack_route=flow_key_plain(context.seed, context.job, target, source),
            key=key,
            job=context.job,
        )
        return context.fabric.flow(flow), received

    def _packets(self, words: Words) -> int:
        # A chunk without words takes one, too.
        return max(1, -(-words.size // self._plan.sender.frame.elements))

    def _pump(self, source: int, target: int) -> None:
        connection = self._connections[source, target]
        while connection.waiting:
            chunk, inbox, key = connection.waiting[0]
            packets = self._packets(chunk.words)
            if connection.outstanding and connection.outstanding + packets > self._plan.sender.window:
                return
            connection.waiting.popleft()
            connection.outstanding += packets
            delivered, received = self.open(source, target, chunk.words, key)
            arrived = chunk._replace(words=received)
            assert delivered.callbacks is not None
            delivered.callbacks.append(partial(self._deliver, (source, target), packets, arrived, inbox))

    def _deliver(
        self, pair: tuple[int, int], packets: int, chunk: Chunk, inbox: simpy.Store, _: simpy.Event
    ) -> None:
        self._connections[pair].outstanding -= packets
        inbox.put(chunk)
        self._pump(*pair)


def chunks_of(words: Words, chunk_words: int) -> list[Words]:
    """The words in chunks; an empty message is one empty chunk."""
    return [words[first : first + chunk_words] for first in range(0, max(1, words.size), chunk_words)]


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
        self._made: dict[str, Any] = {}  # what workers make of these chunks, by name

    @property
    def is_over(self) -> bool:
        """Whether all workers have their result."""
        return self.served == self.workers

    def deduplicate(self, index: Hashable, words: Words) -> Words:
        """A worker's finished words, or the equal ones of another worker."""
        first = self._first.setdefault(index, words)
        return first if same_bits(first, words) else words

    def stored(self, index: Hashable, chunk: Merged) -> Merged:
        """A worker's finished chunk, with the words of another worker's if they are equal."""
        return replace(chunk, words=self.deduplicate(index, chunk.words))

    def assemble(self, index: Hashable, chunk: Chunk, arrived: dict[int, dict[Any, Words]]) -> Words | None:
        """A message with one more of its chunks, once all have arrived.

        `arrived` holds the chunks of incomplete messages by owner. The message is what is stored at `index`
        if all its chunks are those stored.
        """
        chunks = arrived.setdefault(chunk.owner, {})
        chunk_key = chunk.owner, chunk.number
        chunks[chunk_key] = self.deduplicate(chunk_key, chunk.words)
        if len(chunks) < chunk.total:
            return None
        del arrived[chunk.owner]
        if index in self._first and all(words is self._first[key] for key, words in chunks.items()):
            return self._first[index]
        in_order = [chunks[chunk.owner, number] for number in range(chunk.total)]
        return in_order[0] if chunk.total == 1 else np.concatenate(in_order)

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
            chunk.is_mixed or chunk.workers != first.workers or not _are_same(chunk.present, first.present)
            for chunk in others
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


class HostRun(ABC):
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
        self._open: dict[tuple[OperationId, int], _Open] = {}
        self._orders: dict[tuple[int, int], MergeOrders] = {}  # keys: step and bucket

    @abstractmethod
    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Carry one worker's side of a message; return the merged message.

        A message that can be merged has words, and several workers unless `needs_network_alone`.
        """

    @abstractmethod
    def locate(self, worker: int, operation_id: OperationId, part: int, word: int) -> str:
        """Where a word of a worker's message was merged."""

    def begin(self, operation: MessageExchange) -> None:
        """Prepare for a message whose first worker has begun; does nothing by default."""
        return

    def exchange(self, worker: int, messages: tuple[Message, ...], operation: OperationId) -> Wait:
        """Carry one worker's messages, one after the other."""
        merged: tuple[Merged, ...] = ()
        for part, message in enumerate(messages):
            merged += ((yield from self._exchange(worker, message, operation, part)),)
        return merged

    def _exchange(
        self, worker: int, message: Message, operation: OperationId, part: int
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
        exchange = MessageExchange(number, message, finished, request)
        if is_first:
            self.begin(exchange)
        merged = yield from self.carry(worker, exchange)
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


class ChannelRun(HostRun):
    """Messages between hosts in chunks, over connections that send them in order (`Connections`)."""

    def __init__(self, plan: HostPlan, context: RunContext, servers: tuple[int, ...] = ()) -> None:
        """Run on the nodes of the context, and on those of servers."""
        super().__init__(context)
        self.connections = Connections(plan, context, (*context.nodes, *servers))

    @property
    @abstractmethod
    def chunks_count(self) -> int:
        """Chunks that workers receive of one message, all together."""

    def share(self) -> float:
        """Share of the chunks of the messages in flight that have arrived."""
        expected = sum(message.finished.expected or self.chunks_count for message in self._open.values())
        return (
            sum(message.finished.received for message in self._open.values()) / expected if expected else 0.0
        )


def merge_ps(device: Device, message: Message, accumulated: Words, arriving: Words) -> int:
    """Time of one merge of a message's words on a host."""
    if message.host_merge is not None:
        return charge_ps(device, message.host_merge.work(accumulated, arriving))
    return merge_words_ps(device, accumulated.size)


def merge_words_ps(device: Device, words: int) -> int:
    """Time of one merge of so many words into others, which no codec does."""
    return charge_ps(device, Work(2 * 4 * words, 4 * words, flops=words))


def _are_same(present: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None) -> bool:
    return present is other or (present is not None and other is not None and np.array_equal(present, other))


# Collectives whose messages follow a schedule that the engine carries out.


def operation_of(plan: HostPlan, context: RunContext, schedule: Schedule, **fields: Any) -> Operation:
    """An operation of a job, sent as its plan says; `fields` are the other ones of an `Operation`."""
    return Operation(
        schedule=schedule,
        sender=plan.sender,
        seed=context.seed,
        job=context.job,
        **fields,
    )


@dataclass
class _Cell:
    """A worker's part of a message of HOST: its words, how many workers it holds, and with whom it began."""

    words: Words
    workers: int
    first: int


@dataclass
class _UnderWay:
    """A message that the engine carries."""

    number: int
    """Number of the engine's schedule."""
    schedule: Schedule
    message: Message
    """The message of the first worker that has begun."""
    result: Words | None
    exchange: MessageExchange
    present: NDArray[np.bool_]  # (workers,)
    cells: dict[tuple[int, int], _Cell] = field(default_factory=dict)  # HOST: by worker and part
    final: dict[int, Words] = field(default_factory=dict)  # HOST: by part


class ScheduledRun(HostRun):
    """One job's messages between hosts, by the schedules of its collective.

    All keys, merges and counts of contributors are here and in the engine. Workers merge one transfer after
    the other if the schedule says so (`Schedule.follows`).
    """

    def __init__(self, plan: HostPlan, context: RunContext) -> None:
        super().__init__(context)
        self._plan = plan
        workers = range(self.workers)
        self._ranks = tuple(workers)  # its workers' ranks in the job
        self._delayed = tuple(worker for worker in workers if context.hosts.is_delayed(worker))
        self._under_way: dict[int, _UnderWay] = {}  # keys: messages

    def cut(self, words: int, by_codec: bool) -> Cut:
        """The schedule of a message of so many words, the same object for those that are cut alike.

        Of HOST, which the codec cuts into cells, the number of words is 0: it is not known.
        """
        return self._plan.collective.cut(self.workers, words, by_codec, self._plan.orders)

    def locate(self, worker: int, operation_id: OperationId, part: int, word: int) -> str:
        """The message, operation and worker of a word; all workers merge it."""
        collective = self._plan.collective
        where = f"worker {worker}{collective.where(worker, self.workers)}"
        return f"message {part} of {operation_id.in_words} {collective.path_in_words}, as {where} got it"

    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Let a worker begin, and return the merged message when it has all of it."""
        under_way = self._under_way.get(operation.number) or self._prepare(operation)
        fabric, message = self._context.fabric, operation.message
        under_way.present[worker] = not message.is_absent
        if message.host_merge is not None:
            parts = split_host(message.host_merge, message.words, under_way.schedule.chunks)
            for part, words in enumerate(parts):
                under_way.cells[worker, part] = _Cell(words, 1, worker)
            sizes = np.array([part.size for part in parts], np.int64)
            yield fabric.begin(under_way.number, worker, None, sizes)
        else:
            words = np.ascontiguousarray(message.words)
            yield fabric.begin(under_way.number, worker, words, None, message.is_absent)
        return self._finish_message(worker, under_way)

    def _prepare(self, exchange: MessageExchange) -> _UnderWay:
        """Let the engine prepare for a message."""
        message, context, plan = exchange.message, self._context, self._plan
        is_host, has_codes = message.merge is Merge.HOST, message.has_codes
        cut = self.cut(0 if is_host else message.size, is_host)
        schedule = cut.schedule
        ends = np.zeros(schedule.chunks + 1, np.int64) if is_host else cut.ends(message.size)
        result = None if is_host else np.empty(message.merged_size, message.merge.dtypes[-1])
        operation = operation_of(
            plan,
            context,
            schedule,
            hosts=context.nodes,
            number=exchange.number,
            ends=ends,
            merge=message.merge,
            result=result,
            table=message.table if has_codes else None,
            lane_bits=message.lane_bits,
            lifted_words=message.merged_words,
            merge_ps=None if is_host else self._merge_ps(schedule, ends, message),
            ranks=self._ranks,
            asks=self._delayed,
        )
        request = exchange.request
        location = OperationId(request.step, request.bucket, request.operation)
        number = context.fabric.open_schedule(
            operation, f"{request.label} of {location.in_words}", partial(self._answer, exchange.number)
        )
        under_way = _UnderWay(number, schedule, message, result, exchange, np.zeros(self.workers, np.bool_))
        self._under_way[exchange.number] = under_way
        return under_way

    def _merge_ps(
        self, schedule: Schedule, ends: NDArray[np.int64], message: Message
    ) -> NDArray[np.int64] | None:
        """(T, 2) time of each merge of words or codes, and of lanes; None if merges take no time."""
        words = ends[schedule.first + schedule.count] - ends[schedule.first]
        sizes, size_indices = np.unique(words, return_inverse=True)
        lifted, device = message.merged_words, self._context.device
        times_ps = [
            [merge_words_ps(device, size), merge_words_ps(device, lifted * size)] for size in sizes.tolist()
        ]
        merges_ps = np.array(times_ps, np.int64).reshape(-1, 2)
        return np.ascontiguousarray(merges_ps[size_indices]) if merges_ps.any() else None

    def _answer(self, operation: int, transfer: int) -> None:
        """Tell the engine when a merge ends, at a worker whose host has faults or of a codec that merges."""
        under_way, context = self._under_way[operation], self._context
        schedule, sizes = under_way.schedule, None
        worker, now_ps = int(schedule.target[transfer]), int(context.environment.now)
        if under_way.message.host_merge is None:
            work_ps = context.fabric.engine.merge_time_ps(under_way.number, transfer)
        else:
            work_ps, sizes = self._merge_parts(under_way, transfer)
        end_ps = max(now_ps, context.hosts.end_ps(worker, now_ps, work_ps))
        if end_ps < context.hosts.crash_ps(worker):
            context.fabric.engine.end_merge(under_way.number, transfer, end_ps, sizes)

    def _merge_parts(self, under_way: _UnderWay, transfer: int) -> tuple[int, NDArray[np.int64]]:
        """Merge the parts of HOST that a transfer carries; returns the time that takes, and their words."""
        schedule, message, exchange = under_way.schedule, under_way.message, under_way.exchange
        source, worker = int(schedule.source[transfer]), int(schedule.target[transfer])
        first, count = int(schedule.first[transfer]), int(schedule.count[transfer])
        key = self._merge_key(exchange, worker, int(schedule.step[transfer]))
        work_ps, sizes = 0, []
        for part in range(first, first + count):
            arriving, local = under_way.cells.pop((source, part)), under_way.cells[worker, part]
            work_ps += merge_ps(self._context.device, message, arriving.words, local.words)
            operands = Merged(arriving.words, arriving.workers), Merged(local.words, local.workers)
            merged = combine(message.merged_by, *operands, key)
            exchange.finished.hops[part].append(HostHop(arriving.first, local.first, key))
            under_way.cells[worker, part] = _Cell(merged.words, merged.workers, arriving.first)
            if merged.workers == self.workers:
                under_way.final[part] = merged.words
            sizes.append(merged.words.size)
            key = mix_plain(key, part)  # the next part's key
        return work_ps, np.array(sizes, np.int64)

    def _merge_key(self, exchange: MessageExchange, worker: int, step: int) -> int:
        """The key of a merge's random draws, as the engine has it."""
        context = self._context
        return mix_plain(context.seed, rng_streams.RING_MERGE, context.job, exchange.number, worker, step)

    def _finish_message(self, worker: int, under_way: _UnderWay) -> Merged:
        """The merged message; all workers share its words."""
        exchange, message, engine = under_way.exchange, under_way.message, self._context.fabric.engine
        if message.host_merge is not None:
            merge, final = message.host_merge, under_way.final
            parts = [final[part] for part in range(len(final))]
            words = exchange.finished.made("joined", {}, lambda: join_host(merge, parts))
            merged = Merged(words, self.workers)
        else:
            assert under_way.result is not None
            present = under_way.present
            workers = int(present.sum())
            is_mixed = bool((engine.contributors(under_way.number, worker) != workers).any())
            contributors = None if workers == self.workers and not is_mixed else present
            merged = Merged(under_way.result, workers, present=contributors, is_mixed=is_mixed)
        if exchange.finished.served == self.workers - 1:  # the last worker
            del self._under_way[exchange.number]
            self._context.fabric.close_schedule(under_way.number)
        return merged

    def share(self) -> float:
        """Share of the transfers of the messages in flight that are processed."""
        return self._context.fabric.engine.schedules_share(self._context.job)


# What all other code sees of a collective that is one class.


def scheduled(
    collective: type[HostCollective],
    start: Callable[[Any, RunContext], HostRun] = ScheduledRun,
    *,
    listed: int = 100,
) -> CollectiveSpec:
    """The specification of a collective between hosts; by default the engine carries out its schedule."""
    (kind,) = get_args(collective.model_fields["kind"].annotation)

    def resolve(section: HostCollective, job: JobContext) -> Resolved:
        return section.resolve(job)

    def estimate(
        section: HostCollective, network: Network, nodes: Sequence[int], words: int, seed: int
    ) -> Estimate:
        return section.estimate(network, nodes, words, seed)

    def routed(plan: HostPlan, network: Network, nodes: Sequence[int], seed: int, job: int) -> Routed:
        outline = plan.collective.outline(len(nodes), orders=plan.orders)
        return Routed.by_seed(outline, network, nodes, seed, job)

    def bound(plan: HostPlan, network: Network, nodes: Sequence[int], seed: int, job: int) -> BoundOf:
        schedule = partial(plan.collective.placed, len(nodes), orders=plan.orders)
        return host_bound_of(schedule, routed(plan, network, nodes, seed, job), plan.sender)

    def predict(plan: HostPlan, network: Network, nodes: Sequence[int], seed: int, job: int) -> PredictedTime:
        return prediction_of(routed(plan, network, nodes, seed, job), plan.sender)

    return CollectiveSpec(
        kind,
        collective.merges,
        collective,
        resolve,
        start,
        carries_absence=collective.carries_absence,
        is_between_hosts=start is ScheduledRun,
        estimate=estimate,
        bound=bound if start is ScheduledRun else None,
        predict=predict if start is ScheduledRun else None,
        listed=listed,
    )


def __getattr__(name: str) -> Any:
    if name == "ScheduledCollective":
        raise ImportError(f"{__name__}.{name} is gone; a HostCollective needs no class that runs it")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
