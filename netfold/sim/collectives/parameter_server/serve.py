"""One parameter server: a process for each message that it merges, answers or passes on."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from netfold.homomorphic.codec import Server
from netfold.homomorphic.merge import HostHop, combine
from netfold.homomorphic.message import Merged, Words
from netfold.kernels import purposes
from netfold.kernels.keyed import mix_plain
from netfold.sim.collectives.channels import Parcel
from netfold.sim.collectives.collective import RunContext
from netfold.sim.collectives.host_messages import Finished, MessageExchange, merge_ps
from netfold.sim.workload.device_model import charge_ps

if TYPE_CHECKING:
    import simpy

    from netfold.sim.collectives.parameter_server.run import ParameterServer

Serving: TypeAlias = "Generator[simpy.Event, Any, None]"


class ServerHost:
    """One server of a job. Its device, like those of the workers, does one thing at a time."""

    def __init__(
        self,
        job: ParameterServer,
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
            parcel = yield from self._next(operation)
            is_absent = parcel.number < 0
            if not is_absent:
                sums[parcel.number] = yield from self._added(operation, parcel, sums.get(parcel.number))
            for index in range(chunks) if is_absent else [parcel.number]:
                arrived[index] += 1
                if arrived[index] == self._job.workers:
                    self._send_sum(operation, sums.pop(index, None), index, chunks)
        self._close(operation)

    def _added(
        self, operation: MessageExchange, parcel: Parcel, held: Merged | None
    ) -> Generator[simpy.Event, Any, Merged]:
        """A chunk merged into those that arrived before; the first one is only stored."""
        message, present = operation.message, np.zeros(self._job.workers, np.bool_)
        present[parcel.owner] = True
        arriving = Merged(parcel.words, 1, present=present)
        if held is None:
            return arriving
        key = self._key(operation, parcel.number, held.workers)
        yield from self._work(merge_ps(self._context.device, message, held.words, parcel.words))
        is_own = held.workers > 1  # the first worker's words are that worker's
        return combine(message.merge, held, arriving, key, message.table, is_own, message.lane_bits)

    def _send_sum(self, operation: MessageExchange, held: Merged | None, index: int, chunks: int) -> None:
        """Send a merged chunk to all workers; one without words if no worker contributed."""
        if held is None:
            nobody = np.zeros(self._job.workers, np.bool_)
            self._send_all(operation, Parcel(self.index, index, chunks, operation.message.words[:0], nobody))
            return
        whole = operation.whole(held, held.words.size)
        operation.finished.stored((self.index, index), whole)
        self._send_all(operation, Parcel(self.index, index, chunks, whole.words, whole.present))

    def merge_parts(self, operation: MessageExchange) -> Serving:
        """Merge the workers' parts by the codec's function in the order of arrival; send the result."""
        finished, message = operation.finished, operation.message
        hops = finished.hops[self.index]
        held: Merged | None = None
        first = -1
        for _ in range(self._job.workers):
            parcel = yield from self._next(operation)
            if held is None:
                first, held = parcel.owner, Merged(parcel.words, 1)
                continue
            key = self._key(operation, self.index, held.workers)
            yield from self._work(merge_ps(self._context.device, message, held.words, parcel.words))
            held = combine(message.merged_by, held, Merged(parcel.words, 1), key)
            hops.append(HostHop(first, parcel.owner, key))
        assert held is not None
        finished.deduplicated(self.index, held.words)
        self._send_all(operation, Parcel(self.index, 0, 1, held.words))
        self._close(operation)

    def gather(self, operation: MessageExchange) -> Serving:
        """Send every worker the chunks of the others as they arrive."""
        complete: dict[int, int] = {}  # chunks that have arrived, by worker
        counts: dict[int, int] = {}
        while len(counts) < self._job.workers or complete != counts:
            parcel = yield from self._next(operation)
            counts[parcel.owner] = parcel.total
            complete[parcel.owner] = complete.get(parcel.owner, 0) + 1
            for worker in self._workers():
                if worker != parcel.owner:
                    self._job.pull(self.index, worker, operation, parcel)
        self._close(operation)

    def answer(self, operation: MessageExchange) -> Serving:
        """Let the codec's server part merge the messages of all workers; send its answer."""
        assert self.part is not None
        held, parts = Finished(1), dict[int, Words]()
        arrived: dict[int, dict[Any, Words]] = {}
        while len(parts) < self._job.workers:
            parcel = yield from self._next(operation)
            if (part := held.assembled(parcel.owner, parcel, arrived)) is not None:
                parts[parcel.owner] = part
        words = [parts[rank] for rank in range(self._job.workers)]
        answer = self.part.merge(words, operation.request)
        yield from self._work(charge_ps(self._context.device, self.part.work(words, answer)))
        operation.finished.deduplicated("answer", answer)
        self._send_all(operation, Parcel(self.index, 0, 1, answer))
        self._close(operation)

    def _next(self, operation: MessageExchange) -> Generator[simpy.Event, Any, Parcel]:
        """The next chunk that arrives of a message."""
        parcel: Parcel = yield self._job.inbox(self._job.workers + self.index, operation).get()
        return parcel

    def _close(self, operation: MessageExchange) -> None:
        self._job.close(self._job.workers + self.index, operation)

    def _send_all(self, operation: MessageExchange, parcel: Parcel) -> None:
        """Send a chunk to every worker."""
        for worker in self._workers():
            self._job.pull(self.index, worker, operation, parcel)

    def _workers(self) -> list[int]:
        """The workers in the order in which it sends to them: servers begin with different ones."""
        count = self._job.workers
        return [(self.index + 1 + turn) % count for turn in range(count)]

    def _key(self, operation: MessageExchange, chunk: int, workers: int) -> int:
        """The key of the random draws of a merge into what `workers` workers have sent."""
        context = self._context
        place = context.job, operation.number, self.index, chunk, workers
        return mix_plain(context.seed, purposes.SERVER_MERGE, *place)

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
