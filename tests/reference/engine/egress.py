"""How packets leave a point of the tree, in plain Python: over the loopback link, then a copy per child."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from tests.reference.engine.chunk import Chunk, JobNumber, Way, packet_of
from tests.reference.engine.fabric import Fabric
from tests.reference.engine.worker import Worker

KEY_RESULT, KEY_LOOPBACK = 2, 5

Connection = tuple[int, int]  # worker and window slot


class Site(NamedTuple):
    """Where a point is, and how its packets leave it."""

    number: int  # 0: the root
    switch: int  # node
    loopback_link: int  # or -1
    route: int = 0  # to and from the parent


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

    def to_worker(self, worker: Worker, result: Chunk, purpose: int = KEY_RESULT) -> None:
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
        self.send(way, copy)

    def send(self, way: Way, chunk: Chunk) -> None:
        """Put a chunk on the way to a node."""
        self.fabric.forward(packet_of(self.fabric, self.job, chunk, way), self.site.switch)

    def clear(self) -> None:
        """Lose what the switch knows of its results."""
        self.next_psn.clear()
