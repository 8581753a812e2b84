"""The packet engine in plain Python: the oracle that the compiled engine must equal event for event.

`sim/engine/README.md` is the specification, and this is the same in code: `fabric.py` (links, order, chance),
`worker.py`, `aggregator.py` and `switchml.py` (aggregation streams), `flow.py` (reliable unicast).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

from sim.engine.model import Completion, Flow, Job, Scaled, Segment
from tests.reference.aggregator import Aggregator
from tests.reference.fabric import Fabric, LogRow
from tests.reference.flow import Sender
from tests.reference.stream import JobNumber, Stream
from tests.reference.worker import Worker
from topologies.routing import Network


class ReferenceEngine:
    """Streams and flows over one network; `loss` is each link's loss probability."""

    def __init__(self, network: Network, loss: Sequence[float], seed: int) -> None:
        self.fabric = Fabric(network, loss, seed)
        self.jobs: list[JobNumber] = []
        self.aggregators: list[Aggregator] = []  # by job
        self.flows: list[Sender] = []
        self._completions: list[Completion] = []  # of the event being processed

    @property
    def now_ps(self) -> int:
        """Time of the last event, or what `run` was told to run until."""
        return self.fabric.now_ps

    @property
    def log(self) -> list[LogRow]:
        """One row per event."""
        return self.fabric.log

    def next_event_ps(self) -> int | None:
        """When the next event happens, None if nothing will ever happen; void timers are no events."""
        return self.fabric.next_event_ps()

    def add_job(self, job: Job) -> int:
        """Add a job and return its number: 0, 1, 2 …"""
        numbered = JobNumber(job, len(self.jobs))
        aggregator = Aggregator(self.fabric, numbered)
        for rank in range(len(job.hosts)):
            finished = partial(self._finish, "stream", numbered.number, rank)
            aggregator.workers.append(Worker(self.fabric, numbered, rank, aggregator.receive, finished))
        self.jobs.append(numbered)
        self.aggregators.append(aggregator)
        return numbered.number

    def open_stream(
        self, job: int, worker: int, segments: Sequence[Segment], scaled: Scaled | None = None
    ) -> None:
        """Start a worker's next exchange at the current time.

        Raises
        ------
        ValueError
            The worker's last stream has not ended, or this one has no words.
        """
        numbered = self.jobs[job]
        self.aggregators[job].workers[worker].open(Stream(numbered.job, numbered.window, segments, scaled))

    def open_flow(self, flow: Flow) -> int:
        """Start a flow at the current time and return its number: 0, 1, 2 …"""
        number = len(self.flows)
        sender = Sender(self.fabric, flow, number, partial(self._finish, "flow", -1, number))
        self.flows.append(sender)
        sender.open()
        return number

    def run(self, until_ps: int) -> list[Completion]:
        """Process events up to and including a time, or up to the first that completes something."""
        while (time_ps := self.next_event_ps()) is not None and time_ps <= until_ps:
            self.fabric.step()
            if self._completions:
                completions, self._completions = self._completions, []
                return completions
        self.fabric.now_ps = until_ps
        return []

    def link_counters(self) -> list[dict[str, int]]:
        """Counters of every link (see `tests.reference.fabric.Counters`)."""
        return [asdict(link.counters) for link in self.fabric.links]

    def worker_counters(self, job: int, worker: int) -> dict[str, int]:
        """timeouts, retransmitted_packets and stale_results (packets) of a worker."""
        return dict(self.aggregators[job].workers[worker].counters)

    def switch_counters(self, job: int) -> dict[str, int]:
        """Packets that arrived from workers, and what became of them.

        `results` counts completions, each once whatever the number of workers; `answers` the unicast ones.
        """
        return dict(self.aggregators[job].counters)

    def flow_counters(self, number: int) -> dict[str, int]:
        """Timeouts and retransmitted_packets of a flow."""
        return dict(self.flows[number].counters)

    def _finish(self, kind: str, job: int, worker: int) -> None:
        self._completions.append(Completion(self.now_ps, kind, job, worker))
