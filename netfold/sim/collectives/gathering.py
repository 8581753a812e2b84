"""Messages that every worker gets whole: the engine carries each worker's along a schedule of its own.

A message's length is known when its worker begins, so that is when its operation opens, cut into chunks of
that length. Words are passed on by reference: nothing is copied, and when a message is over the engine
confirms that what every worker holds are the very words that were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import Words
from netfold.sim.collectives.collective import OperationId, RunContext
from netfold.sim.collectives.host_collective import HostPlan
from netfold.sim.collectives.host_messages import MessageExchange, operation_of
from netfold.sim.collectives.transfers import Ints, Transfers, compile_transfers
from netfold.sim.engine.engine_data import JointOperations, Schedule

if TYPE_CHECKING:
    import simpy

_KEPT_MAX = 16  # schedules by their number of chunks


@dataclass
class _Gathered:
    """A message of every worker that the engine carries."""

    joint: JointOperations
    numbers: dict[int, int] = field(default_factory=dict)
    """The engine's operation of each worker that has begun."""
    places: dict[int, dict[int, int]] = field(default_factory=dict)
    """The place of each rank in that operation's schedule."""
    words: dict[int, Words] = field(default_factory=dict)


class Gathering:
    """Carries messages of one job to all of its workers.

    Parameters
    ----------
    nodes
        Those of all who send: workers by rank, then servers.
    chunk_words
        Words that are received before they are passed on.
    spread
        The schedule of one message in so many chunks: its first worker sends it, each cell is a chunk.
    lanes
        Pairs of a source and a target, at most.
    """

    def __init__(
        self,
        plan: HostPlan,
        context: RunContext,
        nodes: Sequence[int],
        *,
        chunk_words: int,
        spread: Callable[[int], Transfers],
        lanes: int,
    ) -> None:
        self._plan, self._context, self._nodes = plan, context, tuple(nodes)
        self._workers, self._chunk_words, self._spread = len(context.nodes), chunk_words, spread
        self._lanes_count = lanes
        self._lanes: NDArray[Any] | None = None  # of the messages under way
        self._lane_numbers: dict[int, int] = {}  # by source · parties + target
        self._schedules: dict[int, Schedule] = {}  # by chunks
        self._open: dict[int, _Gathered] = {}  # by message
        self._over: list[int] = []  # the engine's operations of messages that all workers have

    def carry(
        self, worker: int, exchange: MessageExchange, ranks: Sequence[int]
    ) -> Generator[simpy.Event, Any, list[Words]]:
        """Send a worker's words, and wait for those of the others; returns all in rank order.

        Parameters
        ----------
        ranks
            Who is at each place of the schedule of this worker's message: itself first.
        """
        fabric = self._context.fabric
        gathered = self._open.get(exchange.number) or self._prepare(exchange)
        words = np.ascontiguousarray(exchange.message.words)
        others = [(number, gathered.places[owner][worker]) for owner, number in gathered.numbers.items()]
        number = self._open_operation(worker, exchange, ranks, gathered, words.size)
        gathered.joint.has_begun[worker] = True
        gathered.words[worker] = words
        yield fabric.begin_joint(gathered.joint.number, worker, number, words=words, others=others)
        parts = [gathered.words[rank] for rank in range(self._workers)]
        if exchange.finished.served == self._workers - 1:  # the last worker
            del self._open[exchange.number]
            self._over += gathered.numbers.values()
            self._close_finished()
        return parts

    def _close_finished(self) -> None:
        # A server may still be getting the message of a worker alone, for which nobody waits.
        fabric, unfinished = self._context.fabric, []
        for number in self._over:
            if fabric.engine.has_finished(number):
                fabric.close_schedule(number)
            else:
                unfinished.append(number)
        self._over = unfinished
        if not self._open and not unfinished:
            self._lanes = None  # empty; a checkpoint between steps stores nothing of it

    def _prepare(self, exchange: MessageExchange) -> _Gathered:
        """What the operations of a message share, when its first worker begins."""
        is_worker = np.arange(len(self._nodes)) < self._workers
        # Servers never finish: nobody waits for them. They have begun, to pass on what arrives.
        left = np.where(is_worker, self._workers, self._workers + 1)
        engine = self._context.fabric.engine
        if self._lanes is None:
            self._lanes = engine.new_lanes(self._lanes_count)
        number = engine.open_joint()
        gathered = _Gathered(JointOperations(number, left, ~is_worker, self._lanes))
        self._open[exchange.number] = gathered
        return gathered

    def _open_operation(
        self, worker: int, exchange: MessageExchange, ranks: Sequence[int], gathered: _Gathered, words: int
    ) -> int:
        """Open the operation that carries a worker's words; returns the engine's number of it."""
        context, request = self._context, exchange.request
        schedule = self._schedule(max(1, -(-words // self._chunk_words)))
        ends = np.minimum(np.arange(schedule.chunks + 1, dtype=np.int64) * self._chunk_words, words)
        operation = operation_of(
            self._plan,
            context,
            schedule,
            ends=ends,
            hosts=tuple(self._nodes[rank] for rank in ranks),
            ranks=tuple(ranks),
            number=exchange.number * self._workers + worker,
            joint=gathered.joint,
            lane_names=self._lane_names(schedule, np.asarray(ranks, np.int64)),
        )
        location = OperationId(request.step, request.bucket, request.operation)
        name = f"{request.label} of {location.in_words}, as worker {worker} sent it"
        number = context.fabric.open_schedule(operation, name)
        gathered.numbers[worker] = number
        gathered.places[worker] = {rank: position for position, rank in enumerate(ranks)}
        return number

    def _schedule(self, chunks: int) -> Schedule:
        if chunks not in self._schedules:
            while len(self._schedules) >= _KEPT_MAX:
                del self._schedules[next(iter(self._schedules))]
            self._schedules[chunks] = compile_transfers(self._spread(chunks)).schedule
        return self._schedules[chunks]

    def _lane_names(self, schedule: Schedule, ranks: Ints) -> Ints:
        """The shared lane of each of a schedule's lanes: that of the same source and target."""
        lanes, first = np.unique(schedule.lane, return_index=True)
        pairs = ranks[schedule.source[first]] * len(self._nodes) + ranks[schedule.target[first]]
        names = [self._lane_numbers.setdefault(pair, len(self._lane_numbers)) for pair in pairs.tolist()]
        assert lanes.size == 0 or lanes[0] == 0
        return np.array(names, np.int64)
