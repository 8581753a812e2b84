"""What bounds the aggregation time of a step: the messages that workers sent, on their network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import MERGEABLE, Merge
from netfold.homomorphic.message import Message
from netfold.sim.checks.round_findings import RecordedOperation
from netfold.sim.collectives.schedule_bound import BoundOf, ScheduleBound
from netfold.sim.plan.problem_bound import problem_bound
from netfold.topologies.network import Network


class StepBound(NamedTuple):
    """The least aggregation time of a step."""

    problem_ps: float
    """Of any algorithm."""
    schedule_ps: float  # of this job's own schedule; never less than that of any


class StepBounds:
    """Adds up what the rounds of a step send, and what that takes at least.

    Rounds of a step may be under way at the same time, so links add up over all of them; delays add up over
    the operations of a round, and over rounds that follow one another.
    """

    def __init__(
        self,
        network: Network,
        nodes: Sequence[int],
        schedule: BoundOf | None,
        *,
        is_serial: bool,
    ) -> None:
        """`is_serial`: rounds follow one another. `schedule`: the bound of the job's own; None: unknown."""
        self._network, self._nodes = network, tuple(nodes)
        self._schedule, self._is_serial = schedule, is_serial
        self._clear()

    def _clear(self) -> None:
        self._bytes: tuple[NDArray[np.float64], ...] | None = None
        self._trips = self._most_trips = 0
        self._links: NDArray[np.float64] | None = None  # (3, L) as those of a ScheduleBound
        self._ends_ps = np.zeros(len(self._nodes))

    def add(self, operations: Sequence[RecordedOperation]) -> None:
        """Add a round of the step."""
        if len(self._nodes) < 2:
            return
        ends_ps, trips = np.zeros(len(self._nodes)), 0
        for operation in operations:
            trips += self._add_operation(operation)
            for message in operation.sent[0]:
                ends_ps = self._add_schedule(message, operation, ends_ps)
        self._trips, self._most_trips = self._trips + trips, max(self._most_trips, trips)
        both = (self._ends_ps, ends_ps)
        self._ends_ps = _follow(*both) if self._is_serial else np.maximum(*both)

    def _add_operation(self, operation: RecordedOperation) -> int:
        """Add what its messages must send; returns 1 if all workers must hear of each other, else 0."""
        bound, needs_all = problem_bound(self._network, self._nodes), 0
        for part, message in enumerate(operation.sent[0]):
            messages = [operation.sent[worker][part] for worker in range(len(self._nodes))]
            if message.merge is Merge.HOST:
                continue  # the codec may make less of it on its way
            sent_bytes = np.array([0 if each.is_absent else each.size_bytes for each in messages], np.float64)
            needs_all |= bool(sent_bytes.all())
            is_merged = message.merge in MERGEABLE
            received, crossing = bound.crossing_bytes(sent_bytes, is_merged)
            if not (is_merged or operation.received[0][part].parts):
                received, crossing = np.zeros_like(received), np.zeros_like(crossing)  # a server answers less
            sums = sent_bytes, received, crossing
            self._bytes = sums if self._bytes is None else tuple(map(np.add, self._bytes, sums))
        return int(needs_all)

    def _add_schedule(
        self, message: Message, operation: RecordedOperation, ends_ps: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Add what the schedule takes for a message; returns when workers have its result."""
        bound = self._bound_of(message, operation)
        if bound is None:
            return ends_ps
        links = np.stack([bound.busy_ps, bound.before_ps, bound.after_ps])
        if self._links is not None:
            links[0] += self._links[0]
            links[1:] = np.minimum(links[1:], self._links[1:])
        self._links = links
        return _follow(ends_ps, bound.ends_ps)

    def _bound_of(self, message: Message, operation: RecordedOperation) -> ScheduleBound | None:
        if self._schedule is None or message.merge not in MERGEABLE:
            return None
        if any(each.is_absent for sent in operation.sent.values() for each in sent):
            return None
        return self._schedule(message.size)

    def take(self) -> StepBound:
        """The bound of the rounds that were added, which are forgotten."""
        problem_ps = schedule_ps = 0.0
        if self._bytes is not None:
            bound = problem_bound(self._network, self._nodes)
            sent_bytes, received_bytes, crossing_bytes = self._bytes
            trips = self._trips if self._is_serial else self._most_trips
            problem_ps = max(bound.time_ps(sent_bytes, received_bytes, crossing_bytes), trips * bound.trip_ps)
        if self._links is not None:
            busy_ps, before_ps, after_ps = self._links[:, self._links[0] > 0]
            schedule_ps = float((busy_ps + before_ps + after_ps).max(initial=0.0))
        result = StepBound(problem_ps, max(problem_ps, schedule_ps, float(self._ends_ps.max())))
        self._clear()
        return result


def _follow(ends_ps: NDArray[np.float64], then_ps: NDArray[np.float64]) -> NDArray[np.float64]:
    """When workers are done that begin what takes so long when they have ended; all begin at the earliest."""
    follows_ps: NDArray[np.float64] = np.maximum(ends_ps, ends_ps.min() + then_ps)
    return follows_ps
