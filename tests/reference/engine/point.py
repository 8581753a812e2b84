"""A switch of a job's tree around its state machine in plain Python: front end, partials, results, copies.

The rules are the section "Aggregation streams (SwitchML)" of sim/engine/README.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from netfold.switch.programs.tree import TREE
from tests.reference.engine.chunk import Chunk, JobNumber, Way
from tests.reference.engine.egress import Connection, Egress, Receiver, Site, Splitter, split_receivers
from tests.reference.engine.fabric import Fabric
from tests.reference.engine.worker import Home, Worker
from tests.reference.switch.merging import Operand, Register
from tests.reference.switch.switchml import SwitchmlReference, Verdict
from tests.reference.switch.tree import TreeReference

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


class State(Protocol):
    """A state machine with its slots' registers, as `switchml.py` and `tree.py` define it."""

    overflowed_words: int

    def packet(self, child: int, slot: int, version: int, operand: Operand) -> Verdict:
        """Process one packet."""

    def register(self, slot: int, version: int) -> Register:
        """What a slot holds."""

    def keep(self, slot: int, version: int, result: Operand) -> bool:
        """Take in a result of the parent: whether it is news."""

    def is_answered(self, slot: int, version: int) -> bool:
        """Whether a slot holds a result of the parent."""

    def clear(self) -> None:
        """Lose what all registers hold."""


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
        self.state: State = program(children_count, job.job.slots_count, job.job.overflow)

    def receive(self, child: int, chunk: Chunk) -> None:
        """Process one packet of a child."""
        self.counters["packets"] += 1
        if isinstance(self.children[child], Worker) and not self.front_end.accepts(chunk):
            self.counters["discarded"] += 1
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
        """Lose what all registers hold."""
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
        """Send a partial to the parent."""
        parent = self.parent
        assert parent is not None, "the root sends results"
        self.counters["partials"] += 1
        way = Way(
            target=parent.switch,
            route=self.site.route,
            purpose=KEY_PARTIAL,
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
        """Lose what the registers of a switch hold."""
        for point in self.points:
            if point.switch == switch:
                point.clear()
