"""Collectives whose messages follow a schedule that the engine carries out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import HostHop, combine, join_host, split_host
from netfold.homomorphic.message import Merge, Merged, Message, Words
from netfold.kernels import purposes
from netfold.kernels.keyed import mix_plain
from netfold.sim.collectives.between_hosts import HostPlan
from netfold.sim.collectives.collective import OperationPlace, RunContext
from netfold.sim.collectives.host_messages import HostCollective, MessageExchange, merge_ps, merge_words_ps
from netfold.sim.engine.schedule import Schedule
from netfold.sim.engine.schedules.operation import Operation

if TYPE_CHECKING:
    import simpy


@dataclass
class _Cell:
    """A worker's part of a message of HOST: its words, how many workers it holds, and with whom it began."""

    words: Words
    workers: int
    first: int


@dataclass
class _UnderWay:
    """A message that the engine carries."""

    number: int  # of the engine's schedule
    schedule: Schedule
    message: Message  # of the first worker that has begun
    result: Words | None
    exchange: MessageExchange
    present: NDArray[np.bool_]  # (workers,)
    cells: dict[tuple[int, int], _Cell] = field(default_factory=dict)  # HOST: by worker and part
    final: dict[int, Words] = field(default_factory=dict)  # HOST: by part


class ScheduledCollective(HostCollective):
    """One job's messages between hosts, by schedules. A collective adds how it cuts and schedules a message.

    All keys, merges and counts of contributors are here and in the engine. Workers merge one transfer after
    the other if the schedule says so (`Schedule.follows`).
    """

    def __init__(self, plan: HostPlan, context: RunContext) -> None:
        super().__init__(context)
        self._plan = plan
        workers = range(self.workers)
        self._ranks = tuple(workers)  # of its workers in the job
        self._delayed = tuple(worker for worker in workers if context.hosts.is_delayed(worker))
        self._under_way: dict[int, _UnderWay] = {}  # by message

    @abstractmethod
    def schedule(self, words: int, is_host: bool) -> Schedule:
        """The schedule of a message of so many words, the same object for the same arguments.

        Of HOST, which the codec cuts into `chunks` parts, the number of words is 0: it is not known.
        """

    def ends(self, schedule: Schedule, words: int) -> NDArray[np.int64]:
        """(chunks + 1,) where the chunks of a message begin, and where the last one ends."""
        return schedule.ends(words)

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
        return self._received(worker, under_way)

    def _prepare(self, exchange: MessageExchange) -> _UnderWay:
        """Let the engine prepare for a message."""
        message, context, plan = exchange.message, self._context, self._plan
        is_host, has_codes = message.merge is Merge.HOST, message.has_codes
        schedule = self.schedule(0 if is_host else message.size, is_host)
        ends = np.zeros(schedule.chunks + 1, np.int64) if is_host else self.ends(schedule, message.size)
        result = None if is_host else np.empty(message.merged_size, message.merge.dtypes[-1])
        operation = Operation(
            schedule=schedule,
            hosts=context.nodes,
            frame=plan.frame,
            window=plan.window,
            timeout_ps=plan.timeout_ps,
            ack_every=plan.ack_every,
            number=exchange.number,
            seed=context.seed,
            ends=ends,
            job=context.job,
            merge=message.merge,
            result=result,
            table=message.table if has_codes else None,
            lane_bits=message.lane_bits,
            lifted_words=message.merged_words,
            merge_ps=None if is_host else self._merge_ps(schedule, ends, message),
            ranks=self._ranks,
            asks=self._delayed,
            waits_for_loss=plan.waits_for_loss,
        )
        request = exchange.request
        place = OperationPlace(request.step, request.bucket, request.operation)
        number = context.fabric.open_schedule(
            operation, f"{request.label} of {place.in_words}", partial(self._answer, exchange.number)
        )
        found = _UnderWay(number, schedule, message, result, exchange, np.zeros(self.workers, np.bool_))
        self._under_way[exchange.number] = found
        return found

    def _merge_ps(
        self, schedule: Schedule, ends: NDArray[np.int64], message: Message
    ) -> NDArray[np.int64] | None:
        """(T, 2) time of each merge of words or codes, and of lanes; None if merges take no time."""
        words = ends[schedule.first + schedule.count] - ends[schedule.first]
        sizes, place = np.unique(words, return_inverse=True)
        lifted, device = message.merged_words, self._context.device
        times_ps = [
            [merge_words_ps(device, size), merge_words_ps(device, lifted * size)] for size in sizes.tolist()
        ]
        found = np.array(times_ps, np.int64).reshape(-1, 2)
        return np.ascontiguousarray(found[place]) if found.any() else None

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
            arriving, own = under_way.cells.pop((source, part)), under_way.cells[worker, part]
            work_ps += merge_ps(self._context.device, message, arriving.words, own.words)
            operands = Merged(arriving.words, arriving.workers), Merged(own.words, own.workers)
            merged = combine(message.merged_by, *operands, key)
            exchange.finished.hops[part].append(HostHop(arriving.first, own.first, key))
            under_way.cells[worker, part] = _Cell(merged.words, merged.workers, arriving.first)
            if merged.workers == self.workers:
                under_way.final[part] = merged.words
            sizes.append(merged.words.size)
            key = mix_plain(key, part)  # of the next part
        return work_ps, np.array(sizes, np.int64)

    def _merge_key(self, exchange: MessageExchange, worker: int, step: int) -> int:
        """The key of a merge's random draws, as the engine has it."""
        context = self._context
        return mix_plain(context.seed, purposes.RING_MERGE, context.job, exchange.number, worker, step)

    def _received(self, worker: int, under_way: _UnderWay) -> Merged:
        """The merged message; all workers share its words."""
        exchange, message, engine = under_way.exchange, under_way.message, self._context.fabric.engine
        if message.host_merge is not None:
            merge, final = message.host_merge, under_way.final
            parts = [final[part] for part in range(len(final))]
            words = exchange.finished.made("joined", {}, lambda: join_host(merge, parts))
            found = Merged(words, self.workers)
        else:
            assert under_way.result is not None
            present = under_way.present
            workers = int(present.sum())
            is_mixed = bool((engine.contributors(under_way.number, worker) != workers).any())
            named = None if workers == self.workers and not is_mixed else present
            found = Merged(under_way.result, workers, present=named, is_mixed=is_mixed)
        if exchange.finished.served == self.workers - 1:  # the last worker
            del self._under_way[exchange.number]
            self._context.fabric.close_schedule(under_way.number)
        return found

    def share(self) -> float:
        """Share of the transfers of the messages in flight that are processed."""
        return self._context.fabric.engine.schedules_share(self._context.job)
