"""One engine taken through a plan, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.block_floating_point import block_exponents
from netfold.homomorphic.merge import Merge
from netfold.kernels.keyed_random import mix_plain
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import (
    Completion,
    Fate,
    Flow,
    Job,
    Overflow,
    Rule,
    Scaled,
    Segment,
    all_members,
)
from netfold.switch.programs.timed import TIMED
from netfold.switch.programs.tree import TREE
from netfold.topologies.network import Network, rerouted
from tests.reference.atp.atp_job import AtpJob
from tests.reference.atp.switch import FREE
from tests.reference.codecs.codecs import quantise
from tests.reference.engine.engine import ReferenceEngine
from tests.reference.engine.point import PointTree
from tests.reference.switch.merging import Register, lanes_of, lifted, unchanged_by, words_per_word
from tests.reference.switch.switchml import SwitchmlReference
from tests.reference.switch.timed import TimedJob
from tests.reference.switch.tree import TreeReference
from tests.sim.engine.plans.plans import Exchange, Plan, Scheduled, Words
from tests.sim.engine.small import check_conservation


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
            arguments: tuple[Any, ...] = change.arguments
            if change.name == "reroute":
                arguments = (rerouted(plan.network, switches_of(plan.network), arguments),)
            self._schedule(change.time_ps, partial(getattr(engine, change.name), *arguments))
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


def switches_of(network: Network) -> nx.Graph:
    """A graph of a network's switches alone, in no groups."""
    graph = nx.Graph()
    graph.add_nodes_from(
        name for name, is_host in zip(network.nodes, network.is_host, strict=True) if not is_host
    )
    nx.set_node_attributes(graph, "switch", "kind")
    return graph


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
    return a.dtype == b.dtype and np.array_equal(a.view(np.int32), b.view(np.int32))


def assert_same_registers(ours: Engine, theirs: ReferenceEngine, number: int) -> None:
    """All that the switches of a job hold is equal."""
    twin = theirs.jobs[number]
    job = theirs.numbered[number].job
    if isinstance(twin, AtpJob):
        assert_same_entries(ours, theirs, number, job)
        return
    bases = ours.world.points["register_base"][ours.world.points["job"] == number]
    for point, base in enumerate(bases.tolist()):
        for slot in range(job.slots_count):
            row = 2 * (base + job.slot_base + slot)
            if isinstance(twin, TimedJob):
                assert_same_generations(ours, twin, slot, row)
                continue
            assert isinstance(twin, PointTree)
            state = twin.points[point].state
            if isinstance(state, TreeReference):
                held = state.rows[slot]
                assert ours.world.registers.slots[row].bitmap == held.bitmap
                assert_same_register(ours, row, held.register)
                continue
            assert isinstance(state, SwitchmlReference)
            pair = state.slots[slot]
            for version in range(2):
                mine = ours.world.registers.slots[row + version]
                assert (mine.bitmap, bool(mine.is_answered)) == (pair.bitmap[version], pair.answered[version])
                if state.workers > 1:  # one worker needs no counter
                    assert mine.counter == pair.counter[version]
                assert_same_register(ours, row + version, pair.registers[version])


def split_counters(theirs: ReferenceEngine, number: int) -> list[int]:
    """Results that each split of a job has split, by split."""
    job, splits = theirs.jobs[number], theirs.numbered[number].job.splits
    if not splits:
        return []
    assert isinstance(job, PointTree | TimedJob)
    points = [job.switch] if isinstance(job, TimedJob) else job.points
    found = {one.number: one.packets for point in points for one in point.splitters}
    return [found.get(len(points) + index, 0) for index in range(len(splits))]


def assert_same_generations(ours: Engine, twin: TimedJob, slot: int, row: int) -> None:
    """A slot with timers: its generation, its workers, and whether it has answered."""
    for version, held in enumerate(twin.switch.state.rows[slot]):
        mine = ours.world.registers.slots[row + version]
        assert (mine.generation, mine.bitmap, bool(mine.is_emitted)) == (
            held.generation,
            held.bitmap,
            held.is_emitted,
        )
        assert_same_register(ours, row + version, held.register, has_exponents=False)


def assert_same_register(ours: Engine, row: int, held: Register, *, has_exponents: bool = True) -> None:
    """Words, how many workers are in them, and their exponent if there ever were words."""
    mine = ours.world.registers.slots[row]
    assert (mine.workers, mine.members) == (held.workers, held.members)
    if has_exponents and held.workers:
        assert mine.exponent == held.exponent
    words = ours.world.registers.values[row]
    assert np.array_equal(words, np.array(held.read(words.size), np.int64).astype(np.int32))


def assert_same_entries(ours: Engine, theirs: ReferenceEngine, number: int, job: Job) -> None:
    """ATP: the identity that claims an entry, its workers, its mark and its words."""
    server = ours.world.servers[ours.world.jobs[number].server]
    for entry in range(int(server.entries)):
        mine = ours.world.entries.rows[int(server.entry_base) + entry]
        held = theirs.entries[job.switch].entries.get(entry)
        if held is None:
            assert (mine.identity, mine.bitmap, mine["count"], mine.is_marked) == (FREE, 0, 0, 0)
            continue
        found = (mine.identity != FREE, mine.bitmap, mine["count"], bool(mine.is_marked))
        assert found == (held.identity != FREE, held.bitmap, held.count, held.mark)
        words = ours.world.entries.values[int(server.entry_base) + entry]
        values = held.values + [0] * (words.size - len(held.values))
        assert np.array_equal(words, np.array(values, np.int64).astype(np.int32))


def check_whatever_goes_wrong(play: Play) -> None:
    """No packet gets lost without being counted, and completed streams are right where they must be."""
    check_conservation(play.engine)
    for stream in play.streams:
        job = play.plan.jobs[stream.job][0]
        if stream.is_done and is_exact(job, play.plan):
            check_results(job, stream)


def check_everything_arrived(play: Play) -> None:
    plan = play.plan
    streams = sum(len(job.hosts) * len(exchanges) for job, exchanges in plan.jobs)
    assert len(play.completions) == streams + len(plan.flows)
    for stream in play.streams:
        check_results(plan.jobs[stream.job][0], stream)
    for received, (_, flow) in zip(play.received, sorted(plan.flows, key=lambda each: each[0]), strict=True):
        assert np.array_equal(received, np.asarray(flow.words))
    check_conservation(play.engine)


def is_exact(job: Job, plan: Plan) -> bool:
    """Whether completed streams of a job must be right: no word is changed, no packet comes out of line."""
    fates = {rule.fate for rule in plan.rules if rule.probability > 0}
    is_cleared = any(change.name == "clear" for change in plan.changes)
    if Fate.FLIP in fates or is_cleared:
        return False
    if job.program is TIMED:  # generations tell old packets from new ones
        return True
    if any(change.name == "reroute" for change in plan.changes):  # packets may overtake each other
        return False
    if job.program is TREE:  # takes a copy of the last packet for a new round's first
        return not fates & {Fate.DUPLICATE, Fate.REORDER}
    return not any(is_late(rule) for rule in plan.rules)


def is_late(rule: Rule) -> bool:
    return rule.fate in (Fate.DUPLICATE, Fate.REORDER) and rule.probability > 0 and rule.delay_ps > 0


def check_results(job: Job, stream: Opened) -> None:
    """The results are what the workers sent, merged; under TIMED what those sent who are in it."""
    if stream.scaled is not None:
        check_scaled(job, stream)
        return
    elements = job.frame.elements
    for segment, words in zip(stream.segments, stream.exchange.segments, strict=True):
        lanes = segment.result.size // segment.size
        for start in range(0, segment.size, elements):
            holders = [rank for rank, own in enumerate(words.by_worker) if own.size]
            if segment.holders is not None:
                bitmap = int(segment.holders[start // elements])
                assert not bitmap & ~sum(1 << rank for rank in holders)
                holders = [rank for rank in holders if bitmap >> rank & 1]
            if segment.members is not None:
                bitmap = sum(1 << rank for rank in holders)
                assert segment.members[start // elements].tolist() == [len(holders), bitmap]
            sent = [words.by_worker[rank][start : start + elements] for rank in holders]
            end = min(start + elements, segment.size)
            if segment.is_float is not None and segment.is_float[start // elements]:
                floats = [floats_of(one) for one in sent]
                check_float_sum(floats, segment.result[start:end].view(np.float32))
                continue
            check_packet(job, words, sent, segment.result[lanes * start : lanes * end])


def check_packet(job: Job, words: Words, sent: list[NDArray[Any]], result: NDArray[Any]) -> None:
    if not sent:  # those who would have sent are absent; or a slot with a timer has gone on
        unchanged = {unchanged_by(words.merge)} | ({0} if job.program is TIMED else set())
        assert set(result.view(np.int32).tolist()) in [{word} for word in unchanged]
        return
    if words.merge is Merge.TABLE_ADD:
        assert words.table is not None
        table, bits = words.table.tolist(), words.lane_bits
        check_sum(job, [np.array(lifted(one.tolist(), table, bits), np.int32) for one in sent], result, bits)
    elif words.merge is Merge.ADD:
        check_sum(job, sent, result, words.lane_bits)
    elif words.merge is Merge.OR:
        assert np.array_equal(np.bitwise_or.reduce(sent), result)
    elif words.merge is Merge.MAX:
        assert np.array_equal(np.maximum.reduce(sent), result)
    elif words.merge is Merge.SIGN:  # where all agree there is nothing to draw
        assert not (np.bitwise_and.reduce(sent) & ~result).any()
        assert not (result & ~np.bitwise_or.reduce(sent)).any()
    else:
        check_float_sum(sent, result)


def check_sum(job: Job, sent: list[NDArray[Any]], result: NDArray[Any], lane_bits: int) -> None:
    """Exact modulo a lane's width if sums wrap, and where no order of addition leaves the lane."""
    bits = 32 if lane_bits == 4 else lane_bits  # counters are added as words
    wide = np.array([[lane for word in one.tolist() for lane in lanes_of(word, bits)] for one in sent])
    found = np.array([lane for word in result.tolist() for lane in lanes_of(word, bits)])
    half = 2 ** (bits - 1)
    total = (wide.sum(axis=0) + half) % (2 * half) - half
    is_safe = np.abs(wide).sum(axis=0) < half - 1
    if job.overflow is Overflow.WRAP:
        is_safe[:] = True
    assert np.array_equal(total[is_safe], found[is_safe])


def check_float_sum(sent: list[NDArray[Any]], result: NDArray[Any]) -> None:
    """As near as float32 sums in any order are, where they stay finite."""
    wide = np.array(sent, np.float64)
    magnitude = np.abs(wide).sum(axis=0)
    is_finite = magnitude < 3e38
    error = np.abs(wide.sum(axis=0) - result.astype(np.float64))[is_finite]
    assert (error <= len(sent) * 2.0**-24 * magnitude[is_finite] + 1e-44).all()


def check_scaled(job: Job, stream: Opened) -> None:
    """Agreed exponents are the largest, words the sums of what they quantise to."""
    assert stream.scaled is not None
    block = job.unit_packets * job.frame.elements
    members = {rank for rank, own in enumerate(stream.exchange.segments[0].by_worker) if own.size}
    (segment,), (words,) = stream.segments, stream.exchange.segments
    total = np.zeros(segment.result.size, np.int64)
    for own in words.by_worker:
        for number, start in enumerate(range(0, own.size, block)):
            exponent = int(stream.scaled.agreed[number])
            total[start : start + block] += quantise(own[start : start + block], exponent, len(job.hosts))
    assert np.array_equal(total, segment.result)
    assert segment.members is not None
    carried = segment.members[: -(-segment.size // job.frame.elements)]
    assert (carried == [len(members), sum(1 << rank for rank in members)]).all()
