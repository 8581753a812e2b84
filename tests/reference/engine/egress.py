"""How packets leave a point of the tree, in plain Python: over a loopback link, then a copy per receiver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from netfold.sim.engine.interface import Split
from tests.reference.engine.chunk import Chunk, JobNumber, Way, packet_of
from tests.reference.engine.fabric import Fabric
from tests.reference.engine.worker import Worker

KEY_RESULT, KEY_LOOPBACK, KEY_DOWN = 2, 5, 11

Connection = tuple[int, int]  # worker and window slot


class Site(NamedTuple):
    """Where a point is, and how its packets leave it."""

    number: int  # 0: the root
    switch: int  # node
    loopback_link: int  # or -1
    route: int = 0  # to and from the parent


class Below(Protocol):
    """A point that hangs on another one."""

    switch: int
    site: Site

    def receive_result(self, result: Chunk) -> None:
        """Process a result of the parent."""


class Splitter:
    """A switch that gets one copy of a result and sends a copy to each of its receivers."""

    def __init__(self, number: int, split: Split) -> None:
        self.number = number  # counted on from the job's points
        self.split = split
        self.receivers: list[Worker | Below | Splitter] = []
        self.packets = 0


Receiver = Worker | Below | Splitter


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

    def pass_again(self, chunk: Chunk, then: Callable[[Chunk], None], purpose: int = KEY_LOOPBACK) -> None:
        """Go on with a chunk after the loopback link, at once where there is none."""
        if self.site.loopback_link < 0:
            then(chunk)
            return
        worker = chunk.cause.worker
        way = Way(self.site.switch, 0, purpose, 65536 * self.site.number + worker, worker, then)
        self.fabric.put(packet_of(self.fabric, self.job, chunk, way), self.site.loopback_link)

    def replicate(
        self, receivers: Sequence[Receiver], result: Chunk, purpose: int = KEY_RESULT, node: int | None = None
    ) -> None:
        """Send one copy of a result to each receiver, in order, from a node or from the point's switch."""
        for receiver in receivers:
            if isinstance(receiver, Worker):
                self.to_worker(receiver, result, purpose, node)
                continue
            is_split = isinstance(receiver, Splitter)
            number = receiver.number if is_split else receiver.site.number
            way = Way(
                target=receiver.split.switch if is_split else receiver.switch,
                route=receiver.split.route if is_split else receiver.site.route,
                purpose=KEY_DOWN,
                party=65536 * number + result.cause.worker,
                owner=result.cause.worker,
                deliver=partial(self._split, receiver, purpose) if is_split else receiver.receive_result,
            )
            self.send(way, result, node)

    def _split(self, splitter: Splitter, purpose: int, result: Chunk) -> None:
        """A result has arrived at a splitter."""
        splitter.packets += 1
        self.replicate(splitter.receivers, result, purpose, splitter.split.switch)

    def to_worker(
        self, worker: Worker, result: Chunk, purpose: int = KEY_RESULT, node: int | None = None
    ) -> None:
        """Put a copy of a result on the way to a worker."""
        connection = worker.rank, result.window_slot
        copy = result._replace(psn=self.next_psn[connection])
        self.next_psn[connection] += 1
        way = Way(
            target=self.job.job.hosts[worker.rank],
            route=self.job.job.routes[worker.rank],
            purpose=purpose,
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
        """Lose what the switch knows of its results."""
        self.next_psn.clear()
