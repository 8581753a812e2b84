"""The network as one SimPy process.

It runs the compiled engine up to the next SimPy event, and turns completions of the engine into SimPy events.
It hides packets from the layers above. It detects stalls and raises them with a diagnosis.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import simpy
from numpy.typing import NDArray

from netfold.homomorphic.message import Words
from netfold.sim.diagnosis.links import link_outcomes
from netfold.sim.diagnosis.report import Diagnosis, StuckError
from netfold.sim.diagnosis.slots import diagnose
from netfold.sim.diagnosis.snapshot import JobOnSwitch, NodeEvent, Opened, Snapshot, WaitingFlow
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import TIME_MAX_PS, Completion, Fate, Flow, Job, Scaled, Segment
from netfold.sim.engine.schedule import Schedule
from netfold.sim.engine.schedules.operation import Operation
from netfold.sim.network.instants import EndOfInstant, Stage
from netfold.sim.network.sampler import Sampler
from netfold.sim.network.under_way import packets_of_streams

PATIENCE_TIMEOUTS = 100
PATIENCE_MIN_PS = 10**12
WATCHED_SHARE = 10  # a diagnosis looks at packet outcomes in the last tenth of the patience


class _Schedule(NamedTuple):
    """A schedule that the engine carries out."""

    schedule: Schedule
    name: str
    answer: Callable[[int], None]


class Fabric:
    """Opens streams and flows at the current time; each returns an event that fires when it completes.

    Traffic is stalled when no unit or packet has made progress for `PATIENCE_TIMEOUTS` times
    `timeout_max_ps`, the longest timeout of its traffic, and at least `PATIENCE_MIN_PS`. The patience
    restarts when a unit or packet makes progress, when a stream or flow opens, and at each announced change
    (`expect_change`, `set_activity`).
    """

    def __init__(
        self,
        environment: simpy.Environment,
        engine: Engine,
        timeout_max_ps: int = 0,
        names: Sequence[str] = ("",),
        sampler: Sampler | None = None,
    ) -> None:
        self.engine = engine
        self._sampler = sampler
        self._names = names  # of jobs, for a diagnosis
        self.wall_s = 0.0  # spent in the engine
        self._patience_ps = max(PATIENCE_MIN_PS, PATIENCE_TIMEOUTS * timeout_max_ps)
        self._alive_ps = 0  # last progress, or the last announced change
        self._progress, self._progress_ps = 0, 0  # of the engine, and when it last changed
        self._watched: list[dict[str, int]] | None = None  # link counters when the last tenth began
        self._jobs: list[JobOnSwitch] = []
        self._opened: dict[tuple[int, int], Opened] = {}
        self._flows: dict[int, WaitingFlow] = {}
        self._schedules: dict[int, _Schedule] = {}
        self._node_events: list[NodeEvent] = []
        self._activities: dict[tuple[int, int], str] = {}
        self._environment = environment
        self._waiting: dict[tuple[str, int, int], simpy.Event] = {}
        self._wake = environment.event()
        self.process = environment.process(self._run())

    def on_packets(self, report: Callable[[int, int], None]) -> None:
        """Set a callback for progress: between runs of events it gets the time in ps and the packet hops."""
        engine = self.engine
        engine.on_pause = lambda: report(engine.now_ps, engine.packet_hops)

    def add_job(self, job: Job, owner: int = 0, ranks: tuple[int, ...] = ()) -> int:
        """Add a job to the engine and return its number. `owner` is the job's index in the variant.

        `ranks` are those of its workers in the variant's job, if they are only some of these.
        """
        self._jobs.append(JobOnSwitch(owner, job, ranks))
        if self._sampler is not None:
            self._sampler.add_job(owner)
        return self.engine.add_job(job)

    def release(self, owner: int) -> None:
        """Reset the slots of a job of the variant that has ended."""
        for number, one in enumerate(self._jobs):
            if one.owner == owner:
                self.engine.release_job(number)

    def has_packets(self, owner: int) -> bool:
        """Whether packets between workers and switches of a job of the variant are on their way."""
        world = self.engine.world
        numbers = [number for number, one in enumerate(self._jobs) if one.owner == owner]
        senders = world.packets["owner"][packets_of_streams(world)]
        return bool(np.isin(world.streams["job"][senders], numbers).any())

    def stream(
        self, job: int, worker: int, segments: list[Segment], scaled: Scaled | None = None
    ) -> simpy.Event:
        """Start a worker's next aggregation stream; the event fires when its results are complete."""
        now_ps = int(self._environment.now)
        self.engine.advance(now_ps)
        self.engine.open_stream(job, worker, segments, scaled)
        previous = self._opened.get((job, worker), Opened(0, 0))
        self._opened[job, worker] = Opened(previous.streams_count + 1, now_ps)
        return self._expect("stream", job, worker)

    def flow(self, flow: Flow) -> simpy.Event:
        """Start a reliable message; the event fires when it is delivered."""
        now_ps = int(self._environment.now)
        self.engine.advance(now_ps)
        number = self.engine.open_flow(flow)
        size_bytes = flow.frame.wire_bytes(min(flow.words_count, flow.frame.elements), first=True, last=True)
        self._flows[number] = WaitingFlow(
            flow.source, flow.target, flow.route, flow.route_back, now_ps, size_bytes, flow.job
        )
        return self._expect("flow", -1, number)

    def open_schedule(self, operation: Operation, name: str, answer: Callable[[int], None]) -> int:
        """Prepare to carry out a schedule; returns the engine's number of it.

        `name` is for a diagnosis; `answer` is called with the number of each transfer whose merge the engine
        asks for.
        """
        self.engine.advance(int(self._environment.now))
        number = self.engine.open_schedule(operation)
        self._schedules[number] = _Schedule(operation.schedule, name, answer)
        return number

    def begin(
        self,
        number: int,
        worker: int,
        words: Words | None,
        sizes: NDArray[np.int64] | None = None,
        is_absent: bool = False,
    ) -> simpy.Event:
        """Let a worker of a schedule begin; the event fires when all transfers to it are processed."""
        self.engine.advance(int(self._environment.now))
        self.engine.begin(number, worker, words, sizes, is_absent)
        return self._expect("worker", number, worker)

    def close_schedule(self, number: int) -> None:
        """Forget a schedule, all of whose workers have finished."""
        self.engine.close_schedule(number)
        del self._schedules[number]

    def expect_change(self, until_ps: int) -> None:
        """Announce a change of the network at a time: the patience restarts then."""
        self._restart_patience(until_ps)

    def set_activity(self, owner: int, worker: int, what: str, until_ps: int) -> None:
        """Set a worker's activity ("computes bucket 1 of step 3"), and its end if that is known."""
        self._activities[owner, worker] = what
        self._restart_patience(until_ps)

    def record_node_event(self, node: int, what: str) -> None:
        """Record a fault that strikes a node now ("crashed", "registers cleared"), for a diagnosis."""
        self._node_events.append(NodeEvent(int(self._environment.now), node, what))

    def run_until(self, event: simpy.Event) -> None:
        """Advance time until an event has happened.

        Raises
        ------
        StuckError
            A stall: the event will not happen.
        """
        while not event.processed:
            if self._environment.peek() > TIME_MAX_PS:  # infinite if no event is left
                raise StuckError(self._diagnosis())
            self._environment.step()

    def drain(self) -> None:
        """Run until packets in flight have arrived and void timers have expired, after all awaited events.

        Traffic that never ends, such as messages to a crashed host, is abandoned after the same patience.
        """
        progress = -1
        while self.engine.next_event_ps() is not None and progress != self.engine.progress:
            progress = self.engine.progress
            self._run_engine(min(self.engine.now_ps + self._patience_ps, TIME_MAX_PS))

    def _expect(self, kind: str, job: int, worker: int) -> simpy.Event:
        self._restart_patience(int(self._environment.now))
        event = self._waiting[kind, job, worker] = self._environment.event()
        if self._sampler is not None:
            self._sampler.open()
        if not self._wake.triggered:
            self._wake.succeed()
        return event

    def _restart_patience(self, time_ps: int) -> None:
        self._alive_ps = max(self._alive_ps, time_ps)
        self._watched = None

    def _run(self) -> Generator[simpy.Event, Any, None]:
        environment, engine = self._environment, self.engine
        while True:
            if not self._waiting and engine.next_event_ps() is None:
                self._wake = environment.event()
                yield self._wake
            if environment.peek() <= environment.now:  # other processes act first at this time
                yield EndOfInstant(environment, Stage.NETWORK)
                continue
            completions = self._advance(environment.peek())
            yield environment.timeout(engine.now_ps - environment.now)
            for completion in completions:
                if completion.kind == "merge":
                    self._schedules[completion.job].answer(completion.worker)
                    continue
                if completion.kind == "flow":
                    del self._flows[completion.worker]
                self._waiting.pop((completion.kind, completion.job, completion.worker)).succeed()
            if not self._waiting and self._sampler is not None:
                self._sampler.close()

    def _advance(self, outside_ps: float) -> list[Completion]:
        """Run the engine to its next completion, to the next SimPy event, or to the end of the patience."""
        engine, is_alone = self.engine, outside_ps == math.inf
        if is_alone and engine.next_event_ps() is None:
            raise StuckError(self._diagnosis())  # a process waits, and no event is left
        horizon_ps = min(outside_ps, TIME_MAX_PS)
        has_patience_end = is_alone or bool(self._waiting)  # else no process waits for packets
        if has_patience_end:
            horizon_ps = min(horizon_ps, self._next_check_ps())
        completions = self._run_engine(int(horizon_ps))
        if engine.progress != self._progress:
            self._progress, self._progress_ps = engine.progress, engine.now_ps
            self._restart_patience(engine.now_ps)
        elif has_patience_end and engine.now_ps >= self._next_check_ps():
            self._watch_or_give_up()
        if not completions and engine.now_ps >= TIME_MAX_PS and engine.next_event_ps() is not None:
            raise StuckError(self._diagnosis())
        return completions

    def _next_check_ps(self) -> int:
        """Next time to check for a stall: when watching the links begins, and when the patience ends."""
        watched_ps = self._patience_ps // WATCHED_SHARE if self._watched is None else 0
        return max(self._alive_ps, self.engine.busy_until_ps) + self._patience_ps - watched_ps

    def _watch_or_give_up(self) -> None:
        """Begin to watch the links; raise `StuckError` if they are watched already."""
        if self._watched is not None:
            raise StuckError(self._diagnosis())
        self._watched = self.engine.link_counters()

    def _run_engine(self, until_ps: int) -> list[Completion]:
        started = time.perf_counter()
        completions = (
            self._run_in_samples(until_ps, self._sampler) if self._sampler else self.engine.run(until_ps)
        )
        self.wall_s += time.perf_counter() - started
        return completions

    def _run_in_samples(self, until_ps: int, sampler: Sampler) -> list[Completion]:
        """Run the engine as in one piece, with stops at which samples are taken."""
        while True:
            completions = self.engine.run(sampler.stop_ps(until_ps))
            if sampler.is_due():
                sampler.take()
            if completions or self.engine.now_ps >= until_ps:
                return completions

    def _diagnosis(self) -> Diagnosis:
        engine = self.engine
        opened_ps = max((opened.last_ps for opened in self._opened.values()), default=0)
        counters, down, corrupting = engine.link_counters(), engine.down_links(), self._corrupting()
        snapshot = Snapshot(
            network=engine.network,
            names=self._names,
            jobs=self._jobs,
            time_ps=engine.now_ps,
            quiet_ps=engine.now_ps - max(self._progress_ps, opened_ps),
            outcomes=link_outcomes(self._watched, counters, down, corrupting),
            total_outcomes=link_outcomes(None, counters, down, corrupting),
            disturbances=engine.disturbances(),
            opened=self._opened,
            flows=[*self._flows.values(), *self._transfers()],
            node_events=self._node_events,
            activities=self._activities,
        )
        return diagnose(engine, snapshot)

    def _corrupting(self) -> frozenset[int]:
        """Links on which corruption struck packets, and no loss did."""
        world, corrupting, losing = self.engine.world, 0, 0
        for number, rule in enumerate(world.rules):
            if rule.struck and rule.fate in (Fate.CORRUPTION, Fate.FLIP):
                corrupting |= 1 << number
            elif rule.struck and rule.fate in (Fate.LOSS, Fate.BURST_LOSS):
                losing |= 1 << number
        rules = enumerate(map(int, world.links["rules"]))
        return frozenset(link for link, bits in rules if bits & corrupting and not bits & losing)

    def _transfers(self) -> Iterator[WaitingFlow]:
        """The messages of schedules that are not delivered."""
        for one in self.engine.waiting_transfers():
            name, schedule = self._schedules[one.schedule].name, self._schedules[one.schedule].schedule
            number, steps = one.transfer, schedule.step
            what = (
                f"transfer {number} from worker {schedule.source[number]} to worker "
                f"{schedule.target[number]} (step {steps[number]}) of {name}, flow {one.flow}"
            )
            yield WaitingFlow(*one[3:7], one.opened_ps, one.packet_bytes, one.job, what)
