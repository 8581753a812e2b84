"""ATP jobs on one switch, taken through their streams by the plain-Python reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Merge
from netfold.sim.engine.interface import Job, Segment, Server, losses
from netfold.switch.programs.atp import ATP
from netfold.topologies.routing import Network, compile_network
from netfold.topologies.star import star
from tests.reference.atp.atp_job import AtpJob
from tests.reference.atp.switch import AtpReference
from tests.reference.engine.chunk import JobNumber
from tests.reference.engine.fabric import Fabric
from tests.sim.engine.reference.small import FRAME, LINK

Words = NDArray[np.int32]

ELEMENTS = FRAME.elements
MEAN_WORD = 2**27  # words of up to four workers never saturate


def network(workers: int) -> Network:
    """Workers on hosts 0, 1, …, the server on the last host, one switch behind it."""
    return compile_network(star(workers + 1, LINK))


def atp_job(workers: int, window: int, **changes: object) -> Job:
    """All workers of `network`; entries for all that is ever on its way; but for the changes."""
    server = Server(host=workers, entries=1000, window_max=window, ecn_bytes=1 << 20, is_adaptive=False)
    plain = Job(
        hosts=tuple(range(workers)),
        switch=workers + 1,
        slot_base=0,
        slots_count=window,
        unit_packets=1,
        frame=FRAME,
        timeout_ps=60_000_000,
        first_timeout_ps=100_000_000,
        timeout_max_ps=10**9,
        routes=(0,) * workers,
        program=ATP,
        server=server,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def with_server(job: Job, **changes: object) -> Job:
    """The same job with another server."""
    assert job.server is not None
    return replace(job, server=replace(job.server, **changes))  # type: ignore[arg-type]


class Cluster:
    """Jobs on one switch, taken through their streams."""

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        loss: float = 0.0,
        seed: int = 1,
        make: Callable[..., Fabric] = Fabric,
        wires: Network | None = None,
    ) -> None:
        wires = wires or network(len(jobs[0].hosts))
        self.fabric = make(wires, losses([loss] * len(wires.link_source)), seed)
        self.switch = AtpReference()
        self.done: list[tuple[int, int, int]] = []  # time, job, worker
        self.jobs = [
            AtpJob(self.fabric, JobNumber(job, number), partial(self._finish, number), self.switch)
            for number, job in enumerate(jobs)
        ]

    def open(self, segments: Sequence[Sequence[Segment]], number: int = 0) -> None:
        """Open a stream of every worker of a job."""
        for worker, own in enumerate(segments):
            self.jobs[number].open(worker, own)

    def run(self, until_ps: int = 10**15) -> None:
        """Run until nothing is left to happen, or to a time."""
        while (time_ps := self.fabric.next_event_ps()) is not None and time_ps <= until_ps:
            self.fabric.step()

    def check_ended(self, streams: int) -> None:
        """All streams are done, no entry is claimed, and no packet got lost without being counted."""
        assert len(self.done) == streams
        assert self.switch.claimed() == []
        for link in self.fabric.links:
            counters = link.counters
            assert counters.in_flight_packets == 0
            assert counters.sent_packets == counters.delivered_packets + counters.lost_packets

    def _finish(self, number: int, worker: int) -> None:
        self.done.append((self.fabric.now_ps, number, worker))


def gradients(workers: int, size: int, seed: int = 0) -> list[Words]:
    """Words whose sums stay in int32, one array per worker."""
    random = np.random.default_rng(seed)
    return [random.integers(-MEAN_WORD, MEAN_WORD, size, dtype=np.int32) for _ in range(workers)]


def segment(words: Words) -> Segment:
    """A segment with room for its result."""
    return Segment(words, np.zeros_like(words), Merge.ADD)


def float_segment(words: Words, floats: Sequence[float], are_floats: Sequence[int] = ()) -> Segment:
    """A segment whose units can be sent as floats; `are_floats` are so from the start."""
    is_float = np.zeros(-(-words.size // ELEMENTS), np.uint8)
    is_float[list(are_floats)] = 1
    result = np.zeros_like(words)
    return Segment(words, result, Merge.ADD, floats=np.array(floats, np.float32), is_float=is_float)


def aggregate(cluster: Cluster, words: Sequence[Words]) -> None:
    """One stream of one segment per worker of the only job, run to its end and checked word by word."""
    own = [[segment(each)] for each in words]
    before = len(cluster.done)
    cluster.open(own)
    cluster.run()
    check_sums(own, words)
    cluster.check_ended(before + len(words))


def check_sums(own: Sequence[Sequence[Segment]], words: Sequence[Words]) -> None:
    """Every worker has the sum of all."""
    total = np.sum(np.stack(words), axis=0, dtype=np.int64)
    for segments in own:
        assert np.array_equal(np.concatenate([each.result for each in segments]), total)
