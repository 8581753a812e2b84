"""Parameter servers over reliable messages: workers push, servers merge, workers pull.

Words that can be merged are divided into a range for each server, and ranges into chunks. A server merges a
chunk of each worker when it arrives, and sends the merged chunk to all workers once it has those of all. So
the result of the first chunks is on its way down while the last are on their way up. Worker r begins with
server r (modulo their number), so that workers do not all send to the same server first.

A message with a codec's own merge (HOST) is divided by the codec into a part for each server. A message that
cannot be merged (GATHER) goes to one server as a whole, bucket b to server b modulo their number, because a
codec's server part keeps its state by bucket. Without a server part the server sends every worker the
messages of the others, chunk by chunk; with one it sends only the answer.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from netfold.homomorphic.merge import gathered, join_host, split_host
from netfold.homomorphic.message import Merge, Merged, Message, Words
from netfold.kernels import purposes
from netfold.kernels.keyed import mix_plain
from netfold.sim.collectives.channels import Parcel, chunks_of
from netfold.sim.collectives.collective import OperationPlace, RunContext
from netfold.sim.collectives.host_messages import ChannelCollective, MessageExchange
from netfold.sim.collectives.parameter_server.plan import ServerPlan
from netfold.sim.collectives.parameter_server.serve import ServerHost

if TYPE_CHECKING:
    import simpy

ABSENT = -1  # index of the parcel of a worker that contributes nothing


class ParameterServer(ChannelCollective):
    """One job's workers and servers."""

    needs_network_alone = True

    def __init__(self, plan: ServerPlan, context: RunContext) -> None:
        super().__init__(plan, context, plan.servers)
        self.chunk_words = plan.chunk_words
        self._inboxes: dict[tuple[int, int], simpy.Store] = {}  # by worker or server, and message
        parts = [context.make_server() for _ in plan.servers]
        self.servers = [one for one in parts if one is not None]
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
            serve = host.gather if host.part is None else host.answer
            environment.process(serve(operation))
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
        own = [chunks_of(self._range(message, server), self.chunk_words) for server in range(count)]
        for index in range(max(counts)):
            for turn in range(count):
                server = (worker + turn) % count
                if message.is_absent and index == 0 and counts[server]:
                    self.push(worker, server, operation, Parcel(worker, ABSENT, 1, message.words))
                elif index < counts[server] and not message.is_absent:
                    self.push(
                        worker, server, operation, Parcel(worker, index, counts[server], own[server][index])
                    )
        chunks: dict[tuple[int, int], Merged] = {}
        while len(chunks) < sum(counts):
            parcel: Parcel = yield self.inbox(worker, operation).get()
            place, present = (parcel.owner, parcel.number), parcel.present
            assert present is not None, "servers say who contributed"
            chunk = Merged(parcel.words, int(present.sum()), present=present)
            size = self._chunk_words(message, *place)
            chunks[place] = finished.stored(place, operation.whole(chunk, size))
        return finished.joined({place: chunks[place] for place in sorted(chunks)})

    def _merge_parts(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Push and pull a message with a merge of the codec, a part for each server."""
        message, finished, count = operation.message, operation.finished, len(self._hosts)
        assert message.host_merge is not None
        merge = message.host_merge
        own = split_host(merge, message.words, count)
        for turn in range(count):
            server = (worker + turn) % count
            self.push(worker, server, operation, Parcel(worker, 0, 1, own[server]))
        parts: dict[int, Words] = {}
        while len(parts) < count:
            parcel: Parcel = yield self.inbox(worker, operation).get()
            parts[parcel.owner] = finished.deduplicated(parcel.owner, parcel.words)
        ordered = [parts[server] for server in range(count)]
        return Merged(finished.made("joined", parts, lambda: join_host(merge, ordered)), self.workers)

    def _gather(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Push a message that cannot be merged; pull the messages of the others, or the server's answer."""
        message, finished, server = operation.message, operation.finished, self._server_of(operation)
        own = chunks_of(message.words, self.chunk_words)
        finished.deduplicated(worker, message.words)
        for index, chunk in enumerate(own):
            finished.deduplicated((worker, index), chunk)
            self.push(worker, server, operation, Parcel(worker, index, len(own), chunk))
        if self._hosts[server].part is not None:
            answer: Parcel = yield self.inbox(worker, operation).get()
            return Merged(finished.deduplicated("answer", answer.words), self.workers)
        parts = {worker: message.words}
        arrived: dict[int, dict[Any, Words]] = {}
        while len(parts) < self.workers:
            parcel: Parcel = yield self.inbox(worker, operation).get()
            if (part := finished.assembled(parcel.owner, parcel, arrived)) is not None:
                parts[parcel.owner] = part
        ordered = [parts[rank] for rank in range(self.workers)]
        return finished.made("gathered", parts, lambda: gathered(ordered))

    def push(self, worker: int, server: int, operation: MessageExchange, parcel: Parcel) -> None:
        """Send a chunk from a worker to a server."""
        self._send(worker, self.workers + server, operation, parcel)

    def pull(self, server: int, worker: int, operation: MessageExchange, parcel: Parcel) -> None:
        """Send a chunk from a server to a worker."""
        self._send(self.workers + server, worker, operation, parcel)

    def _send(self, source: int, target: int, operation: MessageExchange, parcel: Parcel) -> None:
        place = operation.number, parcel.owner, parcel.number, source, target
        key = mix_plain(purposes.RING_FLOW_SEED, self._context.job, *place)
        self.channels.send(source, target, parcel, self.inbox(target, operation), key)

    def inbox(self, party: int, operation: MessageExchange) -> simpy.Store:
        """Where the chunks of a message wait for a worker, or after the workers for a server."""
        place = party, operation.number
        if place not in self._inboxes:
            self._inboxes[place] = self._context.fabric.mailbox()
        return self._inboxes[place]

    def close(self, party: int, operation: MessageExchange) -> None:
        """Forget the inbox of a worker or server that has received all of a message."""
        self._inboxes.pop((party, operation.number), None)

    def _server_of(self, operation: MessageExchange) -> int:
        """The server that a whole message goes to."""
        return operation.request.bucket % len(self._hosts)

    def _range(self, message: Message, server: int) -> Words:
        """The words of a message that a server merges."""
        size, count = message.words.size, len(self._hosts)
        return message.words[size * server // count : size * (server + 1) // count]

    def _range_words(self, message: Message, server: int) -> int:
        """Words of a server's range, also of a worker that contributes nothing."""
        size, count = message.size, len(self._hosts)
        return size * (server + 1) // count - size * server // count

    def _chunks_count(self, message: Message, server: int) -> int:
        """Chunks of a server's range."""
        return -(-self._range_words(message, server) // self.chunk_words)

    def _chunk_words(self, message: Message, server: int, number: int) -> int:
        """Words of one of them."""
        return min(self.chunk_words, self._range_words(message, server) - number * self.chunk_words)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, and the worker that pulled it."""
        return f"message {part} of {place.in_words} at the servers, as worker {worker} pulled it"
