"""Parameter servers (Li et al., OSDI 2014): the servers, the workers, their keys and schedule."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from pydantic import BeforeValidator

from netfold.errors import shown
from netfold.homomorphic.codec import Server
from netfold.homomorphic.merge import HostHop, Merge, Merged, Words, combine, gather, join_host, split_host
from netfold.homomorphic.message import Message
from netfold.kernels import rng_streams
from netfold.kernels.keyed_random import mix_plain
from netfold.sim.collectives.collective import JobContext, OperationId, Resolved, RunContext
from netfold.sim.collectives.gathering import Gathering
from netfold.sim.collectives.host_collective import ChunkedCollective, HostCollective, HostPlan, resolve_as
from netfold.sim.collectives.host_messages import (
    ChannelRun,
    Chunk,
    Finished,
    MessageExchange,
    chunks_of,
    merge_ps,
    scheduled,
)
from netfold.sim.collectives.schedule_costs import Estimate, estimate_of
from netfold.sim.collectives.transfers import Step, Transfers, outline_of
from netfold.sim.keys import Count
from netfold.sim.plan.plan import Placed
from netfold.sim.workload.device_rooflines import charge_ps
from netfold.topologies.network import Network

if TYPE_CHECKING:
    import simpy


@dataclass(frozen=True, kw_only=True)
class ServerPlan(HostPlan):
    """Workers push to servers and pull from them."""

    servers: tuple[int, ...]  # nodes
    owners: tuple[int, ...] = ()  # the worker that each server runs beside; empty: on hosts of their own


# One parameter server: a process for each message that it merges, answers or passes on.


Serving: TypeAlias = "Generator[simpy.Event, Any, None]"


class ServerHost:
    """One server of a job. Its device, like those of the workers, does one thing at a time."""

    def __init__(
        self,
        job: ParameterServerRun,
        context: RunContext,
        index: int,
        owner: int | None,
        part: Server | None,
    ) -> None:
        """Run server `index`, beside worker `owner` or on a host of its own, with a codec's server part."""
        self.index, self.part = index, part
        self._job, self._context, self._owner = job, context, owner
        self._device = context.fabric.turns()

    def merge_chunks(self, operation: MessageExchange, chunks: int) -> Serving:
        """Merge the workers' chunks of a range in the order of arrival; send each when it is complete."""
        sums: dict[int, Merged] = {}
        arrived = [0] * chunks
        while min(arrived) < self._job.workers:
            chunk = yield from self._next(operation)
            is_absent = chunk.number < 0
            if not is_absent:
                sums[chunk.number] = yield from self._add(operation, chunk, sums.get(chunk.number))
            for index in range(chunks) if is_absent else [chunk.number]:
                arrived[index] += 1
                if arrived[index] == self._job.workers:
                    self._send_sum(operation, sums.pop(index, None), index, chunks)
        self._close(operation)

    def _add(
        self, operation: MessageExchange, chunk: Chunk, held: Merged | None
    ) -> Generator[simpy.Event, Any, Merged]:
        """A chunk merged into those that arrived before; the first one is only stored."""
        message, present = operation.message, np.zeros(self._job.workers, np.bool_)
        present[chunk.owner] = True
        arriving = Merged(chunk.words, 1, present=present)
        if held is None:
            return arriving
        key = self._key(operation, chunk.number, held.workers)
        yield from self._work(merge_ps(self._context.device, message, held.words, chunk.words))
        is_own = held.workers > 1  # the first worker's words are that worker's
        return combine(message.merge, held, arriving, key, message.table, is_own, message.lane_bits)

    def _send_sum(self, operation: MessageExchange, held: Merged | None, index: int, chunks: int) -> None:
        """Send a merged chunk to all workers; one without words if no worker contributed."""
        if held is None:
            nobody = np.zeros(self._job.workers, np.bool_)
            self._send_all(operation, Chunk(self.index, index, chunks, operation.message.words[:0], nobody))
            return
        whole = operation.whole(held, held.words.size)
        operation.finished.stored((self.index, index), whole)
        self._send_all(operation, Chunk(self.index, index, chunks, whole.words, whole.present))

    def merge_parts(self, operation: MessageExchange) -> Serving:
        """Merge the workers' parts by the codec's function in the order of arrival; send the result."""
        finished, message = operation.finished, operation.message
        hops = finished.hops[self.index]
        held: Merged | None = None
        first = -1
        for _ in range(self._job.workers):
            chunk = yield from self._next(operation)
            if held is None:
                first, held = chunk.owner, Merged(chunk.words, 1)
                continue
            key = self._key(operation, self.index, held.workers)
            yield from self._work(merge_ps(self._context.device, message, held.words, chunk.words))
            held = combine(message.merged_by, held, Merged(chunk.words, 1), key)
            hops.append(HostHop(first, chunk.owner, key))
        assert held is not None
        finished.deduplicate(self.index, held.words)
        self._send_all(operation, Chunk(self.index, 0, 1, held.words))
        self._close(operation)

    def answer(self, operation: MessageExchange) -> Serving:
        """Let the codec's server part merge the messages of all workers; send its answer."""
        assert self.part is not None
        chunks, parts = Finished(1), dict[int, Words]()
        arrived: dict[int, dict[Any, Words]] = {}
        while len(parts) < self._job.workers:
            chunk = yield from self._next(operation)
            if (part := chunks.assemble(chunk.owner, chunk, arrived)) is not None:
                parts[chunk.owner] = part
        words = [parts[rank] for rank in range(self._job.workers)]
        answer = self.part.merge(words, operation.request)
        yield from self._work(charge_ps(self._context.device, self.part.work(words, answer)))
        operation.finished.deduplicate("answer", answer)
        self._send_all(operation, Chunk(self.index, 0, 1, answer))
        self._close(operation)

    def _next(self, operation: MessageExchange) -> Generator[simpy.Event, Any, Chunk]:
        chunk: Chunk = yield self._job.inbox(self._job.workers + self.index, operation).get()
        return chunk

    def _close(self, operation: MessageExchange) -> None:
        self._job.close(self._job.workers + self.index, operation)

    def _send_all(self, operation: MessageExchange, chunk: Chunk) -> None:
        """Send a chunk to every worker."""
        for worker in self.workers():
            self._job.pull(self.index, worker, operation, chunk)

    def workers(self) -> list[int]:
        """The workers in the order in which it sends to them: servers begin with different ones."""
        count = self._job.workers
        return [(self.index + 1 + turn) % count for turn in range(count)]

    def _key(self, operation: MessageExchange, chunk: int, workers: int) -> int:
        """The key of the random draws of a merge into what `workers` workers have sent."""
        context = self._context
        key_parts = context.job, operation.number, self.index, chunk, workers
        return mix_plain(context.seed, rng_streams.SERVER_MERGE, *key_parts)

    def _work(self, time_ps: int) -> Serving:
        """Occupy the device of the server's host."""
        if time_ps == 0:
            return
        with self._device.request() as turn:
            yield turn
            if self._owner is None:
                yield self._context.environment.timeout(time_ps)
            else:
                yield self._context.hosts.work(self._owner, time_ps)


# How they run, over reliable messages: workers push, servers merge, workers pull.
#
# Words that can be merged are divided into a range for each server, and ranges into chunks. A server merges a
# chunk of each worker when it arrives, and sends the merged chunk to all workers once it has those of all. So
# the result of the first chunks is on its way down while the last are on their way up. Worker r begins with
# server r (modulo their number), so that workers do not all send to the same server first.
#
# A message with a codec's own merge (HOST) is divided by the codec into a part for each server. A message
# that cannot be merged (GATHER) goes to one server as a whole, bucket b to server b modulo their number,
# because a codec's server part keeps its state by bucket. Without a server part the server sends every
# worker the messages of the others, chunk by chunk (`gathering.py`); with one it sends only the answer.


ABSENT = -1  # index of the chunk of a worker that contributes nothing


class ParameterServerRun(ChannelRun):
    """One job's workers and servers."""

    needs_network_alone = True

    def __init__(self, plan: ServerPlan, context: RunContext) -> None:
        super().__init__(plan, context, plan.servers)
        assert isinstance(plan.collective, ParameterServer)
        self.chunk_words = plan.collective.chunk_words
        self._inboxes: dict[tuple[int, int], simpy.Store] = {}  # keys: worker or server, and message
        self._gathering = Gathering(
            plan,
            context,
            (*context.nodes, *plan.servers),
            chunk_words=self.chunk_words,
            spread=self._spread,
            lanes=2 * self.workers * len(plan.servers),
        )
        parts = [context.make_server() for _ in plan.servers]
        self.servers = [server for server in parts if server is not None]
        owners = plan.owners or (None,) * len(plan.servers)
        self._hosts = [
            ServerHost(self, context, index, owner, part)
            for index, (owner, part) in enumerate(zip(owners, parts, strict=True))
        ]

    @property
    def chunks_count(self) -> int:
        """Results that all workers receive together."""
        return self.workers

    def begin(self, operation: MessageExchange) -> None:
        """Start a process at every server that the message needs."""
        environment, message = self._context.environment, operation.message
        if message.merge is Merge.GATHER:
            host = self._hosts[self._server_of(operation)]
            if host.part is not None:
                environment.process(host.answer(operation))
            return
        for host in self._hosts:
            if message.merge is Merge.HOST:
                environment.process(host.merge_parts(operation))
            elif chunks := self._chunks_count(message, host.index):
                environment.process(host.merge_chunks(operation, chunks))

    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Push, then pull."""
        match operation.message.merge:
            case Merge.GATHER:
                merged = yield from self._gather(worker, operation)
            case Merge.HOST:
                merged = yield from self._merge_parts(worker, operation)
            case _:
                merged = yield from self._sum(worker, operation)
        operation.finished.received += 1
        self.close(worker, operation)
        return merged

    def _sum(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Push and pull a message that can be merged, in chunks of ranges."""
        message, finished, count = operation.message, operation.finished, len(self._hosts)
        counts = [self._chunks_count(message, server) for server in range(count)]
        shards = [chunks_of(self._range(message, server), self.chunk_words) for server in range(count)]
        for index in range(max(counts)):
            for turn in range(count):
                server = (worker + turn) % count
                if message.is_absent and index == 0 and counts[server]:
                    self.push(worker, server, operation, Chunk(worker, ABSENT, 1, message.words))
                elif index < counts[server] and not message.is_absent:
                    self.push(
                        worker,
                        server,
                        operation,
                        Chunk(worker, index, counts[server], shards[server][index]),
                    )
        chunks: dict[tuple[int, int], Merged] = {}
        while len(chunks) < sum(counts):
            arrived: Chunk = yield self.inbox(worker, operation).get()
            chunk_key, present = (arrived.owner, arrived.number), arrived.present
            assert present is not None, "servers say who contributed"
            chunk = Merged(arrived.words, int(present.sum()), present=present)
            size = self._chunk_words(message, *chunk_key)
            chunks[chunk_key] = finished.stored(chunk_key, operation.whole(chunk, size))
        return finished.joined({key: chunks[key] for key in sorted(chunks)})

    def _merge_parts(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Push and pull a message with a merge of the codec, a part for each server."""
        message, finished, count = operation.message, operation.finished, len(self._hosts)
        assert message.host_merge is not None
        merge = message.host_merge
        shards = split_host(merge, message.words, count)
        for turn in range(count):
            server = (worker + turn) % count
            self.push(worker, server, operation, Chunk(worker, 0, 1, shards[server]))
        parts: dict[int, Words] = {}
        while len(parts) < count:
            chunk: Chunk = yield self.inbox(worker, operation).get()
            parts[chunk.owner] = finished.deduplicate(chunk.owner, chunk.words)
        ordered = [parts[server] for server in range(count)]
        return Merged(finished.made("joined", parts, lambda: join_host(merge, ordered)), self.workers)

    def _gather(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Push a message that cannot be merged; pull the messages of the others, or the server's answer."""
        message, finished, server = operation.message, operation.finished, self._server_of(operation)
        if self._hosts[server].part is None:
            others = [rank for rank in self._hosts[server].workers() if rank != worker]
            ranks = [worker, self.workers + server, *others]
            parts = yield from self._gathering.carry(worker, operation, ranks)
            return finished.made("gathered", {}, lambda: gather(parts))
        chunks = chunks_of(message.words, self.chunk_words)
        for index, chunk in enumerate(chunks):
            self.push(worker, server, operation, Chunk(worker, index, len(chunks), chunk))
        answer: Chunk = yield self.inbox(worker, operation).get()
        return Merged(finished.deduplicate("answer", answer.words), self.workers)

    def _spread(self, chunks: int) -> Transfers:
        """One message to a server, and chunk by chunk from there to the other workers."""
        chunk, other = np.indices((chunks, self.workers - 1)).reshape(2, -1)
        first, server = np.zeros(chunks, np.int64), np.ones(chunk.size, np.int64)
        pushed = Step(first, first + 1, np.arange(chunks))
        pulled = Step(server, 2 + other, chunk, waits=chunk)
        return Transfers(self.workers + 1, chunks, (pushed, pulled))

    def push(self, worker: int, server: int, operation: MessageExchange, chunk: Chunk) -> None:
        """Send a chunk from a worker to a server."""
        self._send(worker, self.workers + server, operation, chunk)

    def pull(self, server: int, worker: int, operation: MessageExchange, chunk: Chunk) -> None:
        """Send a chunk from a server to a worker."""
        self._send(self.workers + server, worker, operation, chunk)

    def _send(self, source: int, target: int, operation: MessageExchange, chunk: Chunk) -> None:
        key_parts = operation.number, chunk.owner, chunk.number, source, target
        key = mix_plain(rng_streams.RING_FLOW_SEED, self._context.job, *key_parts)
        self.connections.send(source, target, chunk, self.inbox(target, operation), key)

    def inbox(self, party: int, operation: MessageExchange) -> simpy.Store:
        """Where the chunks of a message wait for a worker, or after the workers for a server."""
        key = party, operation.number
        if key not in self._inboxes:
            self._inboxes[key] = self._context.fabric.mailbox()
        return self._inboxes[key]

    def close(self, party: int, operation: MessageExchange) -> None:
        """Forget the inbox of a worker or server that has received all of a message."""
        self._inboxes.pop((party, operation.number), None)

    def _server_of(self, operation: MessageExchange) -> int:
        # That server gets the whole message.
        return operation.request.bucket % len(self._hosts)

    def _range(self, message: Message, server: int) -> Words:
        size, count = message.words.size, len(self._hosts)
        return message.words[size * server // count : size * (server + 1) // count]

    def _range_words(self, message: Message, server: int) -> int:
        """Words of a server's range, also of a worker that contributes nothing."""
        size, count = message.size, len(self._hosts)
        return size * (server + 1) // count - size * server // count

    def _chunks_count(self, message: Message, server: int) -> int:
        return -(-self._range_words(message, server) // self.chunk_words)

    def _chunk_words(self, message: Message, server: int, number: int) -> int:
        return min(self.chunk_words, self._range_words(message, server) - number * self.chunk_words)

    def locate(self, worker: int, operation_id: OperationId, part: int, word: int) -> str:
        """The message, and the worker that pulled it."""
        return f"message {part} of {operation_id.in_words} at the servers, as worker {worker} pulled it"


# Their keys, where they run, and the numbers of their schedule.
#
# With n workers and N servers, a server's link receives 1/N of the words of all workers (push) and sends each
# of them 1/N of the result (pull). Both directions are busy at the same time, chunk by chunk. So on an idle
# network with one switch and equal links, messages of P packets in chunks of K need about
#
#     max(n, N) / N · P + n · K / min(n, N) packets on the busiest link, and the way of a packet up and down
#
# if servers have hosts of their own. With N = n servers beside the workers a link carries both, 2 (n − 1) / n
# of a message in each direction: the bound of ring all-reduce (Patarasuk and Yuan, JPDC 2009).


_POLICIES = ("pack", "spread", "beside_workers")
_SERVERS = Placed(
    "server", "collective.servers", "collective.placement", "collective.placement: beside_workers"
)


def _check_placement(value: object) -> object:
    is_list = isinstance(value, tuple) and len(value) > 0 and all(isinstance(host, str) for host in value)
    if not is_list and value not in _POLICIES:
        listed = ", ".join(map(repr, _POLICIES))
        raise ValueError(f"must be one of {listed}, or a list of host names, found {shown(value)}")
    return value


class ParameterServer(ChunkedCollective):
    """Workers push their messages to servers, which merge them and send every worker the result."""

    recorded_always: ClassVar[tuple[str, ...]] = (*HostCollective.recorded_always, "servers", "placement")
    merges: ClassVar[frozenset[Merge]] = frozenset(Merge)

    kind: Literal["parameter_server"]
    servers: Count = 1
    """Number of servers; each merges an equal range of the words."""
    placement: Annotated[
        Literal["pack", "spread", "beside_workers"] | tuple[str, ...], BeforeValidator(_check_placement)
    ] = "pack"
    """Where servers run. pack, spread, or names: on hosts of their own, chosen as those of workers are;
    beside_workers: on hosts of workers, whose links they share."""

    def schedule(self, workers: int, words: int, by_codec: bool = False) -> Transfers:
        """Workers push and servers send what they have merged; servers come after the workers."""
        return self._with(workers, self.servers)

    def _with(self, workers: int, servers: int) -> Transfers:
        server, worker = np.indices((servers, workers)).reshape(2, -1)
        pushed = Step(worker, workers + server, server, merges=worker > 0)
        # A server sends when the last worker's words are in.
        last = server * workers + workers - 1
        pulled = Step(workers + server, worker, server, waits=last)
        return Transfers(workers + servers, servers, (pushed, pulled), is_pipelined=True)

    def estimate(self, network: Network, nodes: Sequence[int], words: int, seed: int) -> Estimate:
        """With its servers beside workers, evenly spread, wherever the keys place them."""
        workers, servers = len(nodes), min(self.servers, len(nodes))
        beside = [nodes[server * workers // servers] for server in range(servers)]
        return estimate_of(outline_of(self._with(workers, servers)), network, [*nodes, *beside], words, seed)

    def resolve(self, job: JobContext) -> Resolved:
        """The plan of a job, with the places of its servers.

        Raises
        ------
        ScenarioError
            The servers have no place; or as for any collective between hosts.
        """
        owners, nodes = self._places(job)
        make_plan = partial(ServerPlan, servers=nodes, owners=owners)
        outline = self.outline(len(job.hosts))
        resolved = resolve_as(self, job, outline, (*job.nodes, *nodes), 0, make_plan)
        return resolved._replace(warnings=(*self.warnings, *resolved.warnings))

    def _places(self, job: JobContext) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The workers that servers run beside, if they do, and the nodes of servers."""
        workers, count = len(job.hosts), self.servers
        if self.placement == "beside_workers":
            if count > workers:
                raise job.location.job_error(
                    "collective.servers",
                    f"cannot place {count} servers beside {workers} workers, one a host",
                    f"use at most {workers} servers, or collective.placement: pack",
                )
            owners = tuple(server * workers // count for server in range(count))
            return owners, tuple(job.nodes[owner] for owner in owners)
        names = job.site.occupied.place(count, self.placement, job.location, _SERVERS)
        return (), tuple(job.site.network.nodes.index(name) for name in names)


PARAMETER_SERVER = scheduled(ParameterServer, ParameterServerRun, listed=7)
