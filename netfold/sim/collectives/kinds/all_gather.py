"""All-gather round a ring (Chan et al., 2007): how it runs, its keys and its schedule."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from netfold.homomorphic.merge import (
    HostHop,
    Merge,
    Merged,
    Words,
    combine,
    gather,
    merge_all,
    unchanged_by,
)
from netfold.homomorphic.message import Message
from netfold.kernels import rng_streams
from netfold.kernels.keyed_random import mix_plain
from netfold.sim.collectives.collective import JobContext, OperationId, Resolved, RunContext
from netfold.sim.collectives.gathering import Gathering
from netfold.sim.collectives.host_collective import ChunkedCollective, HostPlan
from netfold.sim.collectives.host_messages import HostRun, MessageExchange, merge_ps, scheduled
from netfold.sim.collectives.transfers import Step, Transfers
from netfold.sim.engine.engine_data import NONE
from netfold.sim.workload.device_rooflines import Device, charge_ps

if TYPE_CHECKING:
    import simpy


# How it runs, over reliable messages, round a ring in rank order.
#
# Every worker sends its message to the next worker, and forwards what it receives until all have it.
# Messages travel in chunks, so a worker forwards the first words of a message while the last are still on
# their way. The header of the first packet has the length, so lengths may differ; an empty message is one
# packet without words.
#
# Then every worker holds the messages of all and merges them in rank order, or lets its replica of the
# codec's server part answer. All workers get the same bits.


class AllGatherRun(HostRun):
    """One job's all-gather."""

    def __init__(self, plan: HostPlan, context: RunContext) -> None:
        super().__init__(context)
        assert isinstance(plan.collective, ChunkedCollective)
        self._gathering = Gathering(
            plan,
            context,
            context.nodes,
            chunk_words=plan.collective.chunk_words,
            spread=self._spread,
            lanes=self.workers,
        )
        replicas = [context.make_server() for _ in context.nodes]
        self.servers = [replica for replica in replicas if replica is not None]

    def carry(self, worker: int, operation: MessageExchange) -> Generator[simpy.Event, Any, Merged]:
        """Send, forward and receive; then merge."""
        message, finished = operation.message, operation.finished
        finished.deduplicate(worker, message.words)
        following = [(worker + offset) % self.workers for offset in range(self.workers)]
        parts = yield from self._gathering.carry(worker, operation, following)
        if message.merge is not Merge.GATHER:
            return (yield from self._merge(worker, operation, parts))
        if not self.servers:
            return finished.made("gathered", {}, lambda: gather(parts))
        server = self.servers[worker]
        answer = server.merge(parts, operation.request)
        yield self._context.hosts.work(worker, charge_ps(self._context.device, server.work(parts, answer)))
        return Merged(finished.deduplicate("answer", answer), self.workers)

    def _spread(self, chunks: int) -> Transfers:
        """One message round the ring: each chunk goes on when it has arrived."""
        chunk, steps = np.arange(chunks), []
        for hop in range(self.workers - 1):
            source = np.full(chunks, hop)
            waits = chunk + (hop - 1) * chunks if hop else NONE
            steps.append(Step(source, source + 1, chunk, waits=waits))
        return Transfers(self.workers, chunks, steps)

    def share(self) -> float:
        """Share of the transfers of the messages in flight that are processed."""
        return self._context.fabric.engine.schedules_share(self._context.job)

    def _merge(
        self, worker: int, operation: MessageExchange, parts: list[Words]
    ) -> Generator[simpy.Event, Any, Merged]:
        """All messages merged in rank order; those of absent workers have no words."""
        context, message, finished = self._context, operation.message, operation.finished
        present = np.array([part.size > 0 or message.merge is Merge.HOST for part in parts])
        if not present.any():
            return Merged(unchanged_by(message.merge, message.merged_size), 0, present=present)
        present_parts = [part for part, is_there in zip(parts, present, strict=True) if is_there]
        key = mix_plain(context.seed, rng_streams.GATHERED_MERGE, context.job, operation.number)
        if message.merge is Merge.HOST:
            finished.hops[0] = [HostHop(0, rank, mix_plain(key, rank)) for rank in range(1, self.workers)]
        words, time_ps = finished.made(
            "merged", {}, lambda: _chain(context.device, message, present_parts, key)
        )
        yield context.hosts.work(worker, time_ps)
        return Merged(words, len(present_parts), present=None if present.all() else present)

    def locate(self, worker: int, operation_id: OperationId, part: int, word: int) -> str:
        """The message and the worker that merged it."""
        return f"message {part} of {operation_id.in_words}, as worker {worker} gathered it"


def _chain(device: Device, message: Message, held: list[Words], key: int) -> tuple[Words, int]:
    """Words merged one after the other, and how long that takes."""
    words, time_ps = held[0], 0
    if len(held) == 1:
        return merge_all(message.merged_by, held, key, message.table, message.lane_bits), time_ps
    for workers, part in enumerate(held[1:], start=1):
        time_ps += merge_ps(device, message, words, part)
        before, arriving = Merged(words, workers), Merged(part, 1)
        hop_key = mix_plain(key, workers)
        words = combine(
            message.merged_by, before, arriving, hop_key, message.table, workers > 1, message.lane_bits
        ).words
    return words, time_ps


# Its keys and the numbers of its schedule.
#
# Every worker receives the messages of the n − 1 others over its own link. On an idle network and with
# messages that are longer than a hop takes, every link is busy all the time: M words each take (n − 1) · M
# · 32 bit / rate, besides headers, acknowledgements and the way of the last packet. Short messages take (n
# − 1) times the way of one from host to host.


class AllGather(ChunkedCollective):
    """Every worker's messages go round a ring of the hosts, and every worker merges them itself."""

    merges: ClassVar[frozenset[Merge]] = frozenset(Merge)

    kind: Literal["all_gather"]

    def schedule(self, workers: int, words: int, by_codec: bool = False) -> Transfers:
        """Cell i is the message of worker i."""
        steps = _steps(workers)
        return Transfers(workers, workers, steps, holds=Fraction(1), last_merges=workers - 1)

    def resolve(self, job: JobContext) -> Resolved:
        """As that of any collective between hosts; its workers keep no tables of a schedule."""
        resolved = super().resolve(job)
        return resolved._replace(plan=replace(resolved.plan, tables_bytes=0))


def _steps(workers: int) -> Iterator[Step]:
    rank = np.arange(workers)
    following = (rank + 1) % workers
    for step in range(workers - 1):
        waits = (rank - 1) % workers + (step - 1) * workers if step else NONE
        yield Step(rank, following, (rank - step) % workers, waits=waits)


ALL_GATHER = scheduled(AllGather, AllGatherRun, listed=6)
