"""The packet engine in plain Python: the oracle that the compiled engine must equal event for event.

`docs/explanation/engine` specifies it, and this is the same in code: `fabric.py` (links, order, chance),
`faults.py` (what goes wrong on them), `worker.py`, `point.py`, `switchml.py` and `tree.py` (aggregation
streams), `timed.py` (slots with timers), `flow.py` (reliable unicast), `schedule.py` (schedules of hosts).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from netfold.sim.engine.engine_data import Completion, Flow, Job, Operation, Rule, Scaled, Segment
from netfold.switch.program import Machine
from netfold.topologies.network import Network
from tests.reference.atp.atp_job import AtpJob
from tests.reference.atp.switch import AtpReference
from tests.reference.engine.fabric import Fabric, LogRow
from tests.reference.engine.flow import Sender
from tests.reference.engine.link import Link
from tests.reference.engine.point import PointTree
from tests.reference.engine.schedule import Lane, Queue, ScheduleRun
from tests.reference.engine.worker import JobNumber, Stream
from tests.reference.switch.timed import TimedJob

SWITCH_COUNTERS = (
    *("packets", "discarded", "results", "partials", "answers", "duplicates_dropped", "stale_results"),
    *("timed_out", "late", "expired", "overflowed_words", "collisions", "evictions", "server_packets"),
    *("requests", "installed", "forwarded", "acknowledged"),
)
PROGRAMS = {Machine.SWITCHML: PointTree, Machine.TREE: PointTree, Machine.TIMED: TimedJob}
Aggregation = PointTree | TimedJob


class ReferenceEngine:
    """Streams and flows over one network, where `rules` say what faults strike."""

    def __init__(self, network: Network, seed: int, rules: Sequence[Rule] = ()) -> None:
        self.fabric = Fabric(network, rules, seed)
        self.numbered: list[JobNumber] = []
        self.jobs: list[Aggregation | AtpJob] = []
        self.entries: dict[int, AtpReference] = {}  # by switch: ATP's jobs share them
        self.flows: list[Sender] = []
        self.schedules: dict[int, ScheduleRun] = {}
        self._schedules_count = 0
        self._shared_lanes: dict[tuple[int, int], Lane] = {}
        self._queue: Queue = deque()  # what transfers of schedules may do now
        self._completions: list[Completion] = []  # not yet returned by `run`
        fabric = self.fabric
        self.set_rate, self.cut, self.flush = fabric.set_rate, fabric.cut, fabric.flush
        self.restore, self.crash, self.pause = fabric.restore, fabric.crash, fabric.pause
        self.kill, self.reroute = fabric.kill, fabric.reroute

    @property
    def now_ps(self) -> int:
        """Time of the last event, or the end time of the last `run`."""
        return self.fabric.now_ps

    @property
    def log(self) -> list[LogRow]:
        return self.fabric.log

    def next_event_ps(self) -> int | None:
        """When the next event happens, None if nothing will ever happen; void timers are no events."""
        return self.fabric.next_event_ps()

    def add_job(self, job: Job) -> int:
        """Add a job and return its number: 0, 1, 2 …"""
        numbered = JobNumber(job, len(self.jobs))
        finished = partial(self._finish, "stream", numbered.number)
        self.numbered.append(numbered)
        self.jobs.append(self._aggregation(numbered, finished))
        return numbered.number

    def _aggregation(self, numbered: JobNumber, finished: Callable[[int], None]) -> Aggregation | AtpJob:
        job = numbered.job
        self._mark(job.sender.ecn_bytes)
        if job.server is None:
            return PROGRAMS[job.program.machine](self.fabric, numbered, finished)
        return AtpJob(self.fabric, numbered, finished, self.entries.setdefault(job.switch, AtpReference()))

    def _mark(self, ecn_bytes: int) -> None:
        """Switches mark from the smallest backlog on that a sender asks for; −1: it asks for none."""
        if ecn_bytes >= 0:
            smallest = self.fabric.mark_bytes
            self.fabric.mark_bytes = ecn_bytes if smallest is None else min(smallest, ecn_bytes)

    def open_stream(
        self, job: int, worker: int, segments: Sequence[Segment], scaled: Scaled | None = None
    ) -> None:
        """Start a worker's next exchange at the current time; on a crashed host nothing happens.

        Raises
        ------
        ValueError
            The worker's last stream has not ended, or this one has no words.
        """
        numbered = self.numbered[job]
        if numbered.job.hosts[worker] in self.fabric.crashed:
            return
        aggregation = self.jobs[job]
        if isinstance(aggregation, AtpJob):
            aggregation.open(worker, segments)
        else:
            aggregation.workers[worker].open(Stream(numbered, segments, scaled))

    def open_flow(self, flow: Flow) -> int:
        """Start a flow at the current time and return its number: 0, 1, 2 …"""
        number = len(self.flows)
        self._mark(flow.sender.ecn_bytes)
        self._start_flow(flow, partial(self._finish, "flow", -1, number))
        return number

    def open_schedule(self, operation: Operation) -> int:
        """Prepare to carry out a schedule and return its number: 0, 1, 2 …"""
        number = self.open_joint()
        self._mark(operation.sender.ecn_bytes)
        run = ScheduleRun(
            self.fabric, operation, number, self._queue, self._start_flow, self._finish, self._shared_lanes
        )
        self.schedules[number] = run
        return number

    def open_joint(self) -> int:
        """Return a number for the completions of joint operations, of the same count as schedules."""
        self._schedules_count += 1
        return self._schedules_count - 1

    def join(self, number: int, worker: int) -> None:
        """Let a worker begin that has no words of its own."""
        self.schedules[number].join(worker)
        self._go_on()

    def _start_flow(self, flow: Flow, delivered: Callable[[], None]) -> None:
        sender = Sender(self.fabric, flow, len(self.flows), delivered)
        self.flows.append(sender)
        sender.open()

    def begin(
        self, number: int, worker: int, words: Any = None, sizes: Any = None, is_absent: bool = False
    ) -> None:
        self.schedules[number].begin(worker, words, sizes, is_absent)
        self._go_on()

    def end_merge(self, number: int, transfer: int, end_ps: int, sizes: Any = None) -> None:
        """Answer a completion of kind "merge"."""
        self.schedules[number].answer(transfer, end_ps, sizes)
        self._go_on()

    def _go_on(self) -> None:
        while self._queue:
            self._queue.popleft()()

    def run(self, until_ps: int) -> list[Completion]:
        """Process events up to and including a time, or up to the first that completes something.

        What an opening completed is returned before any event.
        """
        while not self._completions:
            time_ps = self.next_event_ps()
            if time_ps is None or time_ps > until_ps:
                self.fabric.now_ps = until_ps
                return []
            self.fabric.step()
            self._go_on()
        completions, self._completions = self._completions, []
        return completions

    def abandon(self, job: int) -> None:
        """Close all streams of a job."""
        aggregation = self.jobs[job]
        assert not isinstance(aggregation, AtpJob)
        for worker in aggregation.workers:
            worker.close()

    def clear(self, switch: int) -> None:
        """Set all registers of a switch as they were at the start."""
        self.fabric.lost_ps = self.fabric.now_ps
        for job in self.jobs:
            job.clear(switch)

    def rule_counters(self) -> list[int]:
        return list(self.fabric.faults.struck_packets)

    def link_counters(self) -> list[dict[str, int]]:
        return [asdict(link.counters) | self._backlog(link) for link in self.fabric.links]

    def _backlog(self, link: Link) -> dict[str, int]:
        """Inside a host, the largest backlog in bytes at the link's mean rate."""
        if not (link.packet_ps or link.message_ps):
            return {}
        counters = link.counters
        mean = link.backlog_ps_max * counters.sent_bytes // max(1, counters.busy_ps)
        return {"backlog_bytes_max": mean}

    def worker_counters(self, job: int, worker: int) -> dict[str, int]:
        return dict(self.jobs[job].workers[worker].counters)

    def switch_counters(self, job: int) -> dict[str, int]:
        """What a job's switches did, all together: docs/explanation/engine/counters.md."""
        return dict.fromkeys(SWITCH_COUNTERS, 0) | self.jobs[job].switch_counters()

    def flow_counters(self, number: int) -> dict[str, int]:
        return dict(self.flows[number].counters)

    def _finish(self, kind: str, job: int, worker: int) -> None:
        self._completions.append(Completion(self.now_ps, kind, job, worker))
