"""A hierarchy with switches: three phases over groups of workers, one after the other for each operation."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from netfold.homomorphic.codec import Server
from netfold.homomorphic.merge import merged_message
from netfold.homomorphic.message import Merged, Message, Words
from netfold.kernels.words import same_bits
from netfold.sim.collectives.collective import (
    Collective,
    CollectiveSpec,
    MergeOrders,
    OperationPlace,
    RunContext,
    Wait,
)
from netfold.sim.collectives.hierarchical.switched.halves import half
from netfold.sim.collectives.hierarchical.switched.plan import SwitchedPlan
from netfold.sim.collectives.hierarchical.switched.stage import Stage, blocks_of
from netfold.sim.engine.interface import Overflow
from netfold.sim.plan.plan import CollectivePlan

if TYPE_CHECKING:
    import simpy


@dataclass
class _Operation:
    """An operation that some worker has begun and not all have finished."""

    totals: dict[int, list[Words]] = field(default_factory=dict)  # by group, of each message
    finished: list[int] = field(default_factory=list)  # groups, whose totals are those of the first if equal
    served: int = 0  # workers


class Switched:
    """One job's hierarchy, a part of which is done by switches.

    A worker reduces inside its group; then those who own the same words in all groups carry out an all-reduce
    of these, all lanes at the same time; then every owner distributes its words inside its group.
    """

    servers: tuple[Server, ...] = ()
    is_serial = True  # the streams of switches open in the same order at all workers
    takes_floats = False

    def __init__(self, plan: SwitchedPlan, context: RunContext, parts: Mapping[str, CollectiveSpec]) -> None:
        self._plan, self._context = plan, context
        self._group_of = {rank: at for at, group in enumerate(plan.groups) for rank in group}
        self._place_of = {rank: at for group in plan.groups for at, rank in enumerate(group)}
        self._lanes_of = {
            rank: [at for at, lane in enumerate(plan.lanes) if rank in lane.members]
            for rank in self._group_of
        }
        self._open: dict[OperationPlace, _Operation] = {}
        self._switches: list[Collective] = []
        start, numbers = partial(self._start, parts), count(1)
        self._first: list[Collective] = []
        self._last: list[Collective] = []
        for group, own in zip(plan.groups, plan.inside, strict=True):
            cut = plan.inner(len(group))
            reduce_ = partial(Stage, cut=half(cut, merges=True), ranks=group, number=next(numbers))
            self._first.append(start(own, group) if own else reduce_(plan, self._of(group)))
            self._last.append(Stage(plan, self._of(group), half(cut, merges=False), group, next(numbers)))
        self._across: list[Collective] = []
        for lane, own in zip(plan.lanes, plan.across, strict=True):
            if own is not None:
                self._across.append(start(own, lane.members))
                continue
            assert plan.outer is not None
            self._across.append(Stage(plan, self._of(lane.members), plan.outer, lane.members, next(numbers)))

    def _of(self, workers: Sequence[int]) -> RunContext:
        """The environment of some of the workers."""
        context = self._context
        return replace(
            context,
            hosts=context.hosts.of(workers),
            nodes=tuple(context.nodes[worker] for worker in workers),
            ranks=tuple(workers),
        )

    def _start(
        self, parts: Mapping[str, CollectiveSpec], plan: CollectivePlan, workers: Sequence[int]
    ) -> Collective:
        """Start what switches do for some of the workers."""
        found = parts[plan.kind].start(plan, self._of(workers))
        self._switches.append(found)
        return found

    @property
    def overflow(self) -> Overflow:
        """The overflow policy of its switches, and of hosts if they add."""
        return self._plan.overflow

    def pipelines(self, message: Message) -> bool:
        """Return False: exponents are agreed on before the words."""
        return False

    def merge_orders(self, step: int, bucket: int) -> MergeOrders:
        """Return none: switches cannot run a codec's function."""
        return {}

    def exchange(self, worker: int, messages: tuple[Message, ...], place: OperationPlace) -> Wait:
        """Carry one worker's messages through the three phases."""
        group, at = self._group_of[worker], self._place_of[worker]
        operation = self._open.setdefault(place, _Operation())
        if len(self._plan.groups[group]) == 1:
            sums = tuple(merged_message([message]) for message in messages)
        else:
            sums = yield from self._first[group].exchange(at, messages, place)
        if group not in operation.totals:
            operation.totals[group] = [np.empty_like(one.words) for one in sums]
        environment = self._context.environment
        yield environment.all_of(
            [
                environment.process(self._carry_across(lane, group, messages, sums, place))
                for lane in self._lanes_of[worker]
            ]
        )
        if len(self._plan.groups[group]) > 1:
            totals = operation.totals[group]
            finals = tuple(replace(one, words=all_) for one, all_ in zip(messages, totals, strict=True))
            yield from self._last[group].exchange(at, finals, place)
        return self._finished(group, place)

    def _carry_across(
        self,
        lane: int,
        group: int,
        messages: Sequence[Message],
        sums: Sequence[Merged],
        place: OperationPlace,
    ) -> Generator[simpy.Event, Any, None]:
        """One owner's side of the all-reduce of its words across groups."""
        chunk_words = self._plan.chunk_words
        parts = [
            self._plan.lanes[lane].slices(one.words.size, blocks_of(one.words.size, chunk_words))
            for one in sums
        ]
        own = tuple(
            replace(message, words=np.concatenate([one.words[at] for at in part]))
            for message, one, part in zip(messages, sums, parts, strict=True)
        )
        merged: Sequence[Merged]
        if len(self._plan.groups) == 1:
            merged = [merged_message([one]) for one in own]
        else:
            merged = yield from self._across[lane].exchange(group, own, place)
        for total, one, part in zip(self._open[place].totals[group], merged, parts, strict=True):
            first = 0
            for at in part:
                size = at.stop - at.start
                total[at] = one.words[first : first + size]
                first += size

    def _finished(self, group: int, place: OperationPlace) -> tuple[Merged, ...]:
        """The totals of a group; groups with equal ones share memory."""
        operation, workers = self._open[place], len(self._group_of)
        totals = operation.totals[group]
        if group not in operation.finished:
            if operation.finished:
                first = operation.totals[operation.finished[0]]
                totals[:] = [
                    one if same_bits(one, other) else other for one, other in zip(first, totals, strict=True)
                ]
            operation.finished.append(group)
        operation.served += 1
        if operation.served == workers:
            del self._open[place]
        return tuple(Merged(words, workers) for words in totals)

    def switch_counters(self) -> list[dict[str, int]]:
        """Counters of its switches, group by group, then lane by lane, each with the root first."""
        return [counters for one in self._switches for counters in one.switch_counters()]

    def leaks(self) -> list[str]:
        """Slots and entries of switches that still hold words at the end of a run."""
        return [leak for one in self._switches for leak in one.leaks()]

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word, and the worker's group."""
        group = f"group {self._group_of[worker]} of {len(self._plan.groups)}"
        return f"message {part} of {place.in_words} in a hierarchy, as worker {worker} ({group}) got it"

    def share(self) -> float:
        """Progress of what switches do, or of the messages between hosts, if that is under way."""
        shares = [one.share() for one in self._switches]
        streams = sum(shares) / len(shares) if shares else 0.0
        return max(streams, self._context.fabric.engine.schedules_share(self._context.job))

    def retransmitted_packets(self) -> int:
        """Packets retransmitted so far, by all workers, to switches and to each other."""
        flows = self._context.fabric.engine.flow_retransmissions(self._context.job)
        return flows + sum(one.retransmitted_packets() for one in self._switches)
