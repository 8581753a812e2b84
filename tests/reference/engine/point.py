"""A switch of a job's tree around its state machine in plain Python: front end, partials, results, copies.

The rules are docs/explanation/engine/aggregation-streams.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from netfold.sim.engine.engine_data import Split
from netfold.switch.programs.tree import TREE
from tests.reference.engine.fabric import Fabric
from tests.reference.engine.worker import Chunk, Home, JobNumber, Way, Worker, packet_of
from tests.reference.switch.merging import Operand, Register
from tests.reference.switch.switchml import SwitchmlReference, Verdict
from tests.reference.switch.tree import TreeReference

KEY_RESULT, KEY_LOOPBACK, KEY_DOWN = 2, 5, 11

Connection = tuple[int, int]  # worker and window slot


class Site(NamedTuple):
    """Where a point is, and how its packets leave it."""

    number: int  # 0: the root
    switch: int  # node
    loopback_link: int  # or -1
    route: int = 0  # to and from the parent


class Splitter:
    """A switch that gets one copy of a result and sends a copy to each of its receivers."""

    def __init__(self, number: int, split: Split) -> None:
        self.number = number  # counted on from the job's points
        self.split = split
        self.receivers: list[Receiver] = []
        self.packets = 0


Receiver = "Worker | Point | Splitter"


def split_receivers(
    point: int, points_count: int, children: Sequence[Receiver], splits: Sequence[Split]
) -> tuple[list[Receiver], list[Splitter]]:
    """Who gets the copies that a point itself sends of a result for all, and the point's splitters."""
    splitters = {
        index: Splitter(points_count + index, one) for index, one in enumerate(splits) if one.point == point
    }
    elsewhere = {child for one in splitters.values() for child in one.split.children}
    first: list[Receiver] = [child for index, child in enumerate(children) if index not in elsewhere]
    for one in splitters.values():
        one.receivers += [children[child] for child in one.split.children]
    for one in splitters.values():
        (splitters[one.split.parent].receivers if one.split.parent >= 0 else first).append(one)
    return first, list(splitters.values())


class Egress:
    """The way out of one point's switch."""

    def __init__(self, fabric: Fabric, job: JobNumber, site: Site) -> None:
        self.fabric = fabric
        self.job = job
        self.site = site
        self.next_psn: Counter[Connection] = Counter()  # of results

    def pass_again(self, chunk: Chunk, then: Callable[[Chunk], None], rng_stream: int = KEY_LOOPBACK) -> None:
        """Go on with a chunk after the loopback link, at once where there is none."""
        if self.site.loopback_link < 0:
            then(chunk)
            return
        worker = chunk.cause.worker
        way = Way(self.site.switch, 0, rng_stream, 65536 * self.site.number + worker, worker, then)
        self.fabric.put(packet_of(self.fabric, self.job, chunk, way), self.site.loopback_link)

    def replicate(
        self,
        receivers: Sequence[Receiver],
        result: Chunk,
        rng_stream: int = KEY_RESULT,
        node: int | None = None,
    ) -> None:
        """Send one copy of a result to each receiver, in order, from a node or from the point's switch."""
        for receiver in receivers:
            if isinstance(receiver, Worker):
                self.to_worker(receiver, result, rng_stream, node)
                continue
            is_split = isinstance(receiver, Splitter)
            number = receiver.number if is_split else receiver.site.number
            way = Way(
                target=receiver.split.switch if is_split else receiver.switch,
                route=receiver.split.route if is_split else receiver.site.route,
                rng_stream=KEY_DOWN,
                party=65536 * number + result.cause.worker,
                owner=result.cause.worker,
                deliver=partial(self._split, receiver, rng_stream) if is_split else receiver.receive_result,
            )
            self.send(way, result, node)

    def _split(self, splitter: Splitter, rng_stream: int, result: Chunk) -> None:
        splitter.packets += 1
        self.replicate(splitter.receivers, result, rng_stream, splitter.split.switch)

    def to_worker(
        self, worker: Worker, result: Chunk, rng_stream: int = KEY_RESULT, node: int | None = None
    ) -> None:
        """Put a copy of a result on the way to a worker."""
        connection = worker.rank, result.window_slot
        copy = result._replace(psn=self.next_psn[connection])
        self.next_psn[connection] += 1
        way = Way(
            target=self.job.job.hosts[worker.rank],
            route=self.job.job.routes[worker.rank],
            rng_stream=rng_stream,
            party=65536 * worker.rank + result.cause.worker,
            owner=worker.rank,
            deliver=worker.receive,
        )
        self.send(way, copy, node)

    def send(self, way: Way, chunk: Chunk, node: int | None = None) -> None:
        """Put a chunk on the way from a node to another; from the point's switch without one."""
        source = self.site.switch if node is None else node
        self.fabric.forward(packet_of(self.fabric, self.job, chunk, way), source)

    def clear(self) -> None:
        self.next_psn.clear()


KEY_PARTIAL, KEY_SIGN = 10, 13


class FrontEnd:
    """What a switch lets through of units of several packets: what comes without a gap."""

    def __init__(self) -> None:
        self.expected_psn: dict[Connection, int] = {}  # none after a gap

    def accepts(self, chunk: Chunk) -> bool:
        """Whether a packet passes; after a gap none does until the next part 0, which always does."""
        connection = chunk.cause.worker, chunk.window_slot
        if chunk.cause.part == 0 or chunk.psn == self.expected_psn.get(connection):
            self.expected_psn[connection] = chunk.psn + 1
            return True
        self.expected_psn.pop(connection, None)
        return False


def operand_of(fabric: Fabric, job: JobNumber, party: int, chunk: Chunk) -> Operand:
    """What a packet, already lifted, brings to a register; `party` is 65536 · point + child."""
    cause = chunk.cause
    key = fabric.key(KEY_SIGN, job.number, party, cause.stream, cause.unit, cause.part)
    return Operand(
        chunk.words, chunk.merge, chunk.exponent, chunk.workers, key, chunk.lane_bits, chunk.members
    )


def held_by(register: Register, chunk: Chunk) -> Chunk:
    """What a register holds, as the result or partial that a packet causes; a header if nobody is in it."""
    return chunk._replace(
        words=register.read(chunk.length) if register.workers else [],
        exponent=register.exponent,
        workers=register.workers,
        members=register.members,
        absent_words=chunk.length,
    )


class Point:
    """One switch of a job's tree; `state` is the state machine of SWITCHML or of TREE."""

    def __init__(
        self, fabric: Fabric, job: JobNumber, site: Site, children_count: int, counters: Counter[str]
    ) -> None:
        self.fabric = fabric
        self.job = job
        self.site = site
        self.switch = site.switch
        self.counters = counters  # of the job, all its points together
        self.egress = Egress(fabric, job, site)
        self.front_end = FrontEnd()
        self.children: list[Worker | Point] = []  # its workers by rank, then the points below it
        self.receivers: Sequence[Receiver] = ()  # of the copies that it sends of a result for all children
        self.splitters: list[Splitter] = []
        self.parent: Point | None = None  # None: the root
        program = TreeReference if job.job.program is TREE else SwitchmlReference
        self.state = program(children_count, job.job.slots_count, job.job.overflow)

    def receive(self, child: int, chunk: Chunk) -> None:
        self.counters["packets"] += 1
        if isinstance(self.children[child], Worker) and not self.front_end.accepts(chunk):
            self.counters["discarded"] += 1
            self.fabric.lost_ps = self.fabric.now_ps
            return
        chunk = chunk.lifted()
        slot, version = self.job.slot(chunk), chunk.version
        operand = operand_of(self.fabric, self.job, 65536 * self.site.number + child, chunk)
        verdict = self.state.packet(child, slot, version, operand)
        outgoing = held_by(self.state.register(slot, version), chunk)
        if verdict is Verdict.COMPLETE:
            self._complete(outgoing)
        elif verdict is Verdict.ANSWER:
            self._answer(child, outgoing)
        elif verdict is Verdict.DROPPED:
            self.counters["duplicates_dropped"] += 1

    def receive_result(self, result: Chunk) -> None:
        """Process a result of the parent: all children get it, and SWITCHML keeps it to answer from."""
        operand = operand_of(self.fabric, self.job, 0, result)
        if not self.state.keep(self.job.slot(result), result.version, operand):
            self.counters["stale_results"] += 1
            return
        self.counters["installed"] += 1
        self.egress.replicate(self.receivers, result)

    def clear(self) -> None:
        self.front_end = FrontEnd()
        self.egress.clear()
        self.state.clear()

    def _complete(self, chunk: Chunk) -> None:
        """All children are in: a result for all of them at the root, a partial for the parent elsewhere."""
        if self.parent is not None:
            self._send_up(chunk)
            return
        self.counters["results"] += 1
        self.egress.pass_again(chunk, partial(self.egress.replicate, self.receivers))

    def _answer(self, child: int, chunk: Chunk) -> None:
        """A child sends again what is complete: its result, or the partial once more if none is known."""
        if self.parent is not None and not self.state.is_answered(self.job.slot(chunk), chunk.version):
            self._send_up(chunk)
            return
        self.counters["answers"] += 1
        self.egress.pass_again(chunk, partial(self.egress.replicate, [self.children[child]]))

    def _send_up(self, chunk: Chunk) -> None:
        parent = self.parent
        assert parent is not None, "the root sends results"
        self.counters["partials"] += 1
        way = Way(
            target=parent.switch,
            route=self.site.route,
            rng_stream=KEY_PARTIAL,
            party=65536 * self.site.number + chunk.cause.worker,
            owner=chunk.cause.worker,
            deliver=partial(parent.receive, parent.children.index(self)),
        )
        self.egress.pass_again(chunk, partial(self.egress.send, way))


class PointTree:
    """A job under SWITCHML or TREE: its workers, and the points that they and the points below hang on."""

    def __init__(self, fabric: Fabric, job: JobNumber, finished: Callable[[int], None]) -> None:
        branches = job.job.branches
        homes = job.job.homes or (0,) * len(job.job.hosts)
        parents = [branch.parent for branch in branches]
        sites = [Site(0, job.job.switch, job.job.loopback_link)]
        sites += [Site(i, b.switch, b.loopback_link, b.route) for i, b in enumerate(branches, start=1)]
        self.counters: Counter[str] = Counter()
        self.points = [
            Point(fabric, job, site, homes.count(site.number) + parents.count(site.number), self.counters)
            for site in sites
        ]
        self.workers = []
        for rank, home in enumerate(homes):
            point = self.points[home]
            at = Home(point, len(point.children))
            self.workers.append(Worker(fabric, job, rank, at, partial(finished, rank)))
            point.children.append(self.workers[rank])
        for point, parent in zip(self.points[1:], parents, strict=True):
            point.parent = self.points[parent]
            point.parent.children.append(point)
        for point in self.points:
            point.receivers, point.splitters = split_receivers(
                point.site.number, len(self.points), point.children, job.job.splits
            )

    def switch_counters(self) -> dict[str, int]:
        """What the switches of all points did; counters that are missing are 0."""
        overflowed = sum(point.state.overflowed_words for point in self.points)
        return {**self.counters, "overflowed_words": overflowed}

    def clear(self, switch: int) -> None:
        for point in self.points:
            if point.switch == switch:
                point.clear()
