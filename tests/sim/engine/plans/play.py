"""One engine taken through a plan, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.homomorphic.message import Merge
from netfold.homomorphic.numbers.exponents import block_exponents
from netfold.sim.engine.interface import Completion, Flow, Job, Scaled, Segment, all_members
from netfold.switch.programs.timed import TIMED
from tests.reference.switch.merging import words_per_word
from tests.sim.engine.plans.plans import Exchange, Plan, Words
from tests.sim.engine.plans.schedules import Scheduled


@dataclass
class Opened:
    """A stream that was opened."""

    job: int
    worker: int
    exchange: Exchange
    segments: list[Segment]
    scaled: Scaled | None
    is_done: bool = False


class Due(NamedTuple):
    """Something to be done to the engine."""

    time_ps: int
    number: int
    action: Callable[[], object]


class Play:
    """Goes through a plan up to a time; everything the engine did is kept."""

    def __init__(self, engine: Any, plan: Plan, horizon_ps: int) -> None:
        self.engine, self.plan, self.horizon_ps = engine, plan, horizon_ps
        self.completions: list[Completion] = []
        self.streams: list[Opened] = []
        self.received: list[NDArray[np.int32]] = []  # of flows
        self._due: list[Due] = []
        self._scheduled = 0
        self._rounds: dict[tuple[int, int], int] = {}
        for number, (job, _) in enumerate(plan.jobs):
            engine.add_job(job)
            for worker in range(len(job.hosts)):
                self._schedule_stream(0, number, worker, 0)
        for start_ps, flow in plan.flows:
            self._schedule(start_ps, partial(self._open_flow, flow))
        self.results: list[NDArray[Any] | None] = []  # of operations
        for one in plan.operations:
            self._open_operation(one)
        for change in plan.changes:
            act = getattr(engine, change.name)
            self._schedule(change.time_ps, partial(act, *change.arguments))
        self._run()

    def _run(self) -> None:
        while True:
            self._due.sort(key=lambda due: due[:2])
            if self._run_to(self._due[0].time_ps if self._due else self.horizon_ps):
                continue  # a completion may have scheduled something earlier
            if not self._due:
                return
            self._due.pop(0).action()

    def _run_to(self, time_ps: int) -> bool:
        new = self.engine.run(time_ps)
        self.completions += new
        for completion in new:
            if completion.kind == "stream":
                key = completion.job, completion.worker
                self._rounds[key] = self._rounds.get(key, 0) + 1
                next(each for each in reversed(self.streams) if (each.job, each.worker) == key).is_done = True
                self._schedule_stream(self.engine.now_ps, *key, self._rounds[key])
            elif completion.kind == "merge":
                self._answer(completion.job, completion.worker)
        return bool(new)

    def _schedule(self, time_ps: int, action: Callable[[], object]) -> None:
        self._scheduled += 1
        self._due.append(Due(time_ps, self._scheduled, action))

    def _schedule_stream(self, now_ps: int, number: int, worker: int, index: int) -> None:
        exchanges = self.plan.jobs[number][1]
        if index < len(exchanges):
            start_ps = now_ps + exchanges[index].waits_ps[worker]
            self._schedule(start_ps, partial(self._open_stream, number, worker, exchanges[index]))

    def _open_stream(self, number: int, worker: int, exchange: Exchange) -> None:
        job = self.plan.jobs[number][0]
        segments = [segment_of(job, each, worker, exchange.is_scaled) for each in exchange.segments]
        scaled = None
        if exchange.is_scaled:
            exponents = exponents_of(job, exchange.segments[0], worker)
            scaled = Scaled(exponents, np.full_like(exponents, -128))
        self.streams.append(Opened(number, worker, exchange, segments, scaled))
        self.engine.open_stream(number, worker, segments, scaled)

    def _open_operation(self, scheduled: Scheduled) -> None:
        operation = scheduled.fresh()
        self.results.append(operation.result)
        number = self.engine.open_schedule(operation)
        for worker, begins_ps in enumerate(scheduled.begins_ps):
            is_absent = worker in scheduled.absent
            given = None if is_absent else scheduled.words[worker], scheduled.sizes[worker], is_absent
            if begins_ps is not None:
                self._schedule(begins_ps, partial(self.engine.begin, number, worker, *given))

    def _answer(self, number: int, transfer: int) -> None:
        """Some merges end at once, some later, and some never; all runs agree."""
        draw = mix_plain(self.plan.seed, number, transfer)
        if draw % 20 == 0:
            return
        operation = self.plan.operations[number].operation
        sizes = None
        if operation.merge is Merge.HOST:
            count = int(operation.schedule.count[transfer])
            sizes = np.array([mix_plain(draw, chunk) % 25 for chunk in range(count)], np.int64)
        end_ps = self.engine.now_ps + (0, 0, 1, 400_000)[draw % 4]
        self.engine.end_merge(number, transfer, end_ps, sizes)

    def _open_flow(self, flow: Flow) -> None:
        received = np.zeros(flow.words_count, np.int32)
        self.received.append(received)
        self.engine.open_flow(replace(flow, received=received))


def segment_of(job: Job, words: Words, worker: int, is_scaled: bool) -> Segment:
    """A worker's segment with room for what it gets."""
    own, size = words.by_worker[worker], words.size
    lanes = words_per_word(words.merge, words.lane_bits)
    is_int = is_scaled or words.merge is Merge.TABLE_ADD
    holders = None
    if job.program is TIMED:
        holders = np.zeros(-(-size // job.frame.elements), np.uint32)
    result = np.zeros(lanes * size, np.int32 if is_int else own.dtype)
    if words.has_floats:
        units = -(-own.size // job.frame.elements)
        return Segment(own, result, words.merge, floats=floats_of(own), is_float=np.zeros(units, np.uint8))
    members = None
    if job.program.carries_absence:
        packets = -(-size // (job.unit_packets * job.frame.elements)) * job.unit_packets
        members = all_members(packets, len(job.hosts))
    absent_words = 0 if own.size else size
    return Segment(
        own,
        result,
        words.merge,
        words.table,
        holders,
        lane_bits=words.lane_bits,
        absent_words=absent_words,
        members=members,
    )


def exponents_of(job: Job, words: Words, worker: int) -> NDArray[np.int8]:
    """A worker's block exponents; the smallest int8 if it is absent."""
    own, block = words.by_worker[worker], job.unit_packets * job.frame.elements
    if not own.size:
        return np.full(-(-words.size // block), -128, np.int8)
    return block_exponents(own, block, len(job.hosts))


def floats_of(words: NDArray[np.int32]) -> NDArray[np.float32]:
    """What is sent in place of integers whose sum overflowed."""
    return np.float32(1e-6) * words.astype(np.float32)


def same_words(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Equal bit for bit."""
    return a.dtype == b.dtype and np.array_equal(a.view(np.int32), b.view(np.int32))
