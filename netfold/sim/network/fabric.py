"""The network as one SimPy process.

It runs the compiled engine up to the next SimPy event, and turns completions of the engine into SimPy events.
It hides packets from the layers above. It detects stalls and raises them with a diagnosis.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from netfold.homomorphic.merge import Words
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import (
    TIME_MAX_PS,
    Completion,
    Condition,
    Fate,
    Flow,
    Job,
    Operation,
    Scaled,
    Segment,
    WaitingFlow,
)
from netfold.sim.engine.engine_views import LINKS_MAX, OUTSTANDING, STATES, LookBuffers, Samples, look
from netfold.sim.engine.tables import FLOW_ACK, FLOW_DATA, World
from netfold.sim.network.stall import (
    Diagnosis,
    JobOnSwitch,
    NodeEvent,
    Opened,
    Snapshot,
    StalledError,
    link_outcomes,
)
from netfold.sim.network.stalled_slots import diagnose
from netfold.topologies.network import Network
from netfold.units import PS_PER_US

# Events at the end of an instant: after everything else that happens at a point of simulated time.
#
# What is asked for at one instant is then decided together, by rank, whatever order SimPy's events came in.


class InstantPhase(IntEnum):
    """The order of these events within an instant. SimPy's own events, of stages 0 and 1, come before."""

    TURN = 2  # workers agree what goes next
    DEVICE = 3  # a device chooses its next work
    NETWORK = 4  # the network goes on


class EndOfInstant(simpy.Event):
    """An event at the present time, after all events of earlier stages, also those that they cause."""

    def __init__(self, environment: simpy.Environment, stage: InstantPhase) -> None:
        super().__init__(environment)
        self._ok, self._value = True, None
        environment.schedule(self, simpy.events.EventPriority(stage))


# Samples of the network while processes wait for it, close together at first and then ever wider apart.


LEAST_PS = PS_PER_US
OF_PERIOD = 16  # a sample is this part of the time for which processes have waited …
OF_EMPTY = 4  # … and of the time for which hosts merged and the network was empty, if that is less …
OF_RUN = 4096  # … and at least this part of all such time, so that their number stays small
HOSTS_EVERY = 8  # samples: hosts on links are looked for
HOSTS_MAX = 2**24  # marks of hosts on links, in bytes; larger networks go without


class Sampler:
    """Takes samples between runs of an engine's loop. It reads the engine and changes nothing.

    A period begins when some process waits for the network and none did before, and ends when none does.
    Nothing happens between two events, so a sample that would end between them ends at the later one. While
    hosts merge and no packet is on its way, samples are apart from those before and after.
    """

    def __init__(self, engine: Engine, jobs_count: int) -> None:
        self._engine, self._jobs_count = engine, jobs_count
        self._owners: list[int] = []  # owner of each of the engine's jobs
        links_count, nodes_count = engine.links_count, len(engine.network.nodes)
        kept = min(links_count, LINKS_MAX)
        self._seen = LookBuffers(
            before_ps=np.zeros(links_count, np.int64),
            busy_ps=np.zeros(links_count, np.int64),
            links=np.full(kept, -1, np.int32),
            links_busy_ps=np.zeros(kept, np.int64),
            waiting=np.zeros((jobs_count, STATES), np.int64),
            owners=np.zeros(0, np.int64),
            live=np.zeros((1, 1), np.uint8),
            hosts=np.zeros((links_count, nodes_count * (links_count * nodes_count <= HOSTS_MAX)), np.uint8),
        )
        self._is_open = False
        self._began_ps = self._last_ps = 0
        # The length of the last sample in which hosts did nothing but merge.
        self._empty_ps: int | None = None
        self._before_ps = 0  # length of all periods before this one
        # Found at the last look: waiting, signature, packets on their way.
        self._state = np.zeros((jobs_count, STATES)), 0, 0
        self._spans: list[tuple[int, int, bool, bool]] = []
        self._links: list[NDArray[np.int32]] = []
        self._busy: list[NDArray[np.int64]] = []
        self._waiting: list[NDArray[np.float64]] = []
        self._queues_ps: list[int] = []

    def add_job(self, owner: int) -> None:
        # `owner` is the job of the variant that the engine's next job is part of.
        self._owners.append(owner)

    def open(self) -> None:
        """A process waits from now on."""
        if not self._is_open:
            self._is_open = True
            self._began_ps = self._last_ps = self._engine.now_ps
            self._look()

    def close(self) -> None:
        """No process waits any more."""
        if self._is_open:
            self.take()
            self._is_open = False
            self._before_ps += self._last_ps - self._began_ps

    def stop_ps(self, until_ps: int) -> int:
        """The time to run the engine to, at most `until_ps`."""
        if not self._is_open:
            return until_ps
        following = self._engine.next_event_ps()
        following_ps = until_ps if following is None else following
        if self._is_merging() and following_ps >= self._last_ps + self._least_ps():
            return min(until_ps, following_ps)
        return min(until_ps, max(self._due_ps(), following_ps))

    def is_due(self) -> bool:
        """Whether to take a sample now."""
        if not self._is_open:
            return False
        least_ps = self._least_ps() if self._is_merging() else self._length_ps()
        return self._engine.now_ps >= self._last_ps + least_ps

    def _due_ps(self) -> int:
        return self._last_ps + self._length_ps()

    def _length_ps(self) -> int:
        """How long the next sample is at least."""
        length_ps = (self._last_ps - self._began_ps) // OF_PERIOD
        if self._empty_ps is not None:
            length_ps = min(length_ps, self._empty_ps // OF_EMPTY)
        return max(self._least_ps(), length_ps)

    def _least_ps(self) -> int:
        return max(LEAST_PS, (self._before_ps + self._last_ps - self._began_ps) // OF_RUN)

    def _is_merging(self) -> bool:
        """Whether no packet was on its way at the last look, and no sender waited for any."""
        waiting, _, in_flight = self._state
        return in_flight == 0 and not waiting[:, OUTSTANDING].any()

    def take(self) -> None:
        """Add the sample that ends now."""
        now_ps = self._engine.now_ps
        if now_ps <= self._last_ps:
            return
        waiting, signature, in_flight = self._state
        was_merging = self._is_merging()
        is_jump = now_ps > self._due_ps()  # nothing happened until now
        self._look()
        after, signature_after, in_flight_after = self._state
        ends = [waiting] if is_jump else [waiting, after]
        weights = np.array([state[:, OUTSTANDING] > 0 for state in ends], np.float64)  # (ends, jobs)
        total = np.maximum(weights.sum(0), 1)
        mean = (
            sum(state * weight[:, None] for state, weight in zip(ends, weights, strict=True)) / total[:, None]
        )
        is_empty = in_flight == 0 and (is_jump or in_flight_after == 0)
        if was_merging and is_empty:
            self._empty_ps = now_ps - self._last_ps
        end_ps = self._left_empty_ps(now_ps) if self._is_merging() and not was_merging else now_ps
        self._add(self._last_ps, end_ps, mean, is_steady=signature == signature_after, is_empty=is_empty)
        if end_ps < now_ps:
            self._seen.links[:], self._seen.links_busy_ps[:] = -1, 0
            self._add(end_ps, now_ps, after, is_steady=True, is_empty=True)
        self._last_ps = now_ps

    def _add(
        self, start_ps: int, end_ps: int, waiting: NDArray[np.float64], *, is_steady: bool, is_empty: bool
    ) -> None:
        self._spans.append((start_ps, end_ps, is_steady, is_empty))
        self._links.append(self._seen.links.copy())
        self._busy.append(self._seen.links_busy_ps.copy())
        self._waiting.append(waiting)
        free_at_ps = self._engine.world.links["free_at_ps"]
        self._queues_ps.append(max(0, int(free_at_ps.max(initial=0)) - end_ps))

    def _left_empty_ps(self, now_ps: int) -> int:
        """When the last packet arrived, if no link has any now."""
        left_ps, delay_ps = self._engine.world.links["free_at_ps"], self._engine.network.delay_ps
        is_used = left_ps > 0
        last_ps = int((left_ps + np.tile(delay_ps, 2))[is_used].max(initial=0))  # acknowledgements' lanes too
        return last_ps if self._last_ps < last_ps < now_ps else now_ps

    def _look(self) -> None:
        world, engine = self._engine.world, self._engine
        units = max(world.windows.shape[1], world.places.shape[1], 64)
        shape = len(self._owners) + 1 + world.flows.size // units, units
        if self._seen.live.shape != shape:
            owners = np.array(self._owners, np.int64)
            self._seen = self._seen._replace(owners=owners, live=np.zeros(shape, np.uint8))
        with_hosts = len(self._spans) % HOSTS_EVERY == 0
        in_flight, signature = look(world, self._seen, engine.now_ps - self._last_ps, with_hosts)
        self._state = self._seen.waiting.astype(np.float64), signature, in_flight

    def samples(self) -> Samples:
        links_count = self._engine.links_count
        if not self._spans:
            return Samples.none(links_count, self._jobs_count)
        spans = np.array(self._spans, np.int64)
        return Samples(
            spans[:, 0],
            spans[:, 1],
            np.stack(self._links),
            np.stack(self._busy),
            np.stack(self._waiting),
            np.array(self._queues_ps, np.int64),
            spans[:, 2].astype(np.bool_),
            spans[:, 3].astype(np.bool_),
            self._seen.hosts.sum(1, dtype=np.int32),
        )


# Which packets are on their way, from the tables of the engine.


def packets_of_streams(world: World) -> NDArray[np.int64]:
    """Rows of the packets that are on their way and belong to streams: no messages between hosts."""
    in_use = np.ones(world.packets.size, np.bool_)
    row = int(world.clock[0].packet_free)
    for _ in range(int(world.clock[0].packet_free_count)):
        in_use[row] = False
        row = int(world.packets[row].next)
    kinds = world.packets["kind"]
    return np.flatnonzero(in_use & (kinds != FLOW_DATA) & (kinds != FLOW_ACK))


PATIENCE_TIMEOUTS = 100
PATIENCE_MIN_PS = 10**12
WATCHED_SHARE = 10  # a diagnosis looks at packet outcomes in the last tenth of the patience


OpenedStream = tuple[list[Segment], Scaled | None]


def unread(segment: Segment) -> Segment:
    """The same words, whose result nobody reads."""
    members = None if segment.members is None else segment.members.copy()
    return replace(segment, result=np.empty_like(segment.result), shared=None, own=None, members=members)


def _never_asked(transfer: int) -> None:
    raise RuntimeError(f"transfer {transfer} merges nothing, and the engine asks for its merge")


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
        self._names = names  # names of jobs, for a diagnosis
        self.wall_s = 0.0  # spent in the engine
        self._patience_ps = max(PATIENCE_MIN_PS, PATIENCE_TIMEOUTS * timeout_max_ps)
        self._alive_ps = 0  # last progress, or the last announced change
        self._progress, self._progress_ps = 0, 0  # the engine's progress, and when it last changed
        self._watched: list[dict[str, int]] | None = None  # link counters when the last tenth began
        self._jobs: list[JobOnSwitch] = []
        self._opened: dict[tuple[int, int], Opened] = {}
        self._flows: dict[int, WaitingFlow] = {}
        self._schedules: dict[int, tuple[Operation, str, Callable[[int], None]]] = {}
        self._node_events: list[NodeEvent] = []
        self._activities: dict[tuple[int, int], str] = {}
        self._environment = environment
        self._waiting: dict[tuple[str, int, int], simpy.Event] = {}
        self._standing_by: dict[int, Mapping[int, int]] = {}
        self._went_on: dict[int, int] = {}
        # Of jobs whose trees may be rebuilt: the last two streams of each worker.
        self._last: dict[tuple[int, int], list[OpenedStream]] = {}
        self._repeats: dict[tuple[int, int], simpy.Process] = {}
        self._wake = environment.event()
        self.process = environment.process(self._run())

    def mailbox(self) -> simpy.Store:
        return simpy.Store(self._environment)

    def turns(self) -> simpy.Resource:
        # One process uses it at a time.
        return simpy.Resource(self._environment)

    def on_packets(self, report: Callable[[int, int], None]) -> None:
        """Set a callback for progress: between runs of events it gets the time in ps and the packet hops."""
        engine = self.engine
        engine.on_pause = lambda: report(engine.now_ps, engine.packet_hops)

    def add_job(self, job: Job, owner: int = 0, ranks: tuple[int, ...] = ()) -> int:
        # `owner`: the job's index in the variant; `ranks`: those of its workers there, if it has only some.
        self._jobs.append(JobOnSwitch(owner, job, ranks))
        if self._sampler is not None:
            self._sampler.add_job(owner)
        return self.engine.add_job(job)

    def release(self, owner: int) -> None:
        """Reset the slots of a job of the variant that has ended."""
        for number, job in enumerate(self._jobs):
            if job.owner == owner:
                self.engine.release_job(number)

    def has_packets(self, owner: int) -> bool:
        """Whether packets between workers and switches of a job of the variant are on their way."""
        world = self.engine.world
        numbers = [number for number, job in enumerate(self._jobs) if job.owner == owner]
        senders = world.packets["owner"][packets_of_streams(world)]
        return bool(np.isin(world.streams["job"][senders], numbers).any())

    def stream(
        self, job: int, worker: int, segments: list[Segment], scaled: Scaled | None = None
    ) -> simpy.Event:
        """Start a worker's next aggregation stream; the event fires when its results are complete."""
        repeat = self._repeats.get((job, worker))
        if repeat is None or not repeat.is_alive:
            return self._open(job, worker, segments, scaled)
        self._repeats[job, worker] = following = self._environment.process(
            self._open_all(job, worker, [(segments, scaled)], after=repeat)
        )
        return following

    def _open(self, job: int, worker: int, segments: list[Segment], scaled: Scaled | None) -> simpy.Event:
        now_ps, number = int(self._environment.now), self.current(job)
        self.engine.advance(now_ps)
        self.engine.open_stream(number, worker, segments, scaled)
        streams_count, _ = self._opened.get((number, worker), (0, 0))
        self._opened[number, worker] = streams_count + 1, now_ps
        if job in self._standing_by:
            self._last[number, worker] = [*self._last.get((number, worker), [])[-1:], (segments, scaled)]
        return self._expect("stream", number, worker)

    # Routes that change, and jobs that then go on as others that stand by (aggregation-streams.md).

    def stand_by(self, job: int, numbers: Mapping[int, int]) -> None:
        self._standing_by[job] = numbers

    def current(self, job: int) -> int:
        # The engine's number of what a job goes on as now.
        return self._went_on.get(job, job)

    def reroute(self, network: Network) -> None:
        """Change routes, and let the jobs go on whose trees are rebuilt now."""
        self.engine.reroute(network)
        for job, numbers in self._standing_by.items():
            if self.engine.now_ps in numbers:
                self._go_on_as(job, numbers[self.engine.now_ps])

    def _go_on_as(self, job: int, number: int) -> None:
        """Open all streams again from the oldest on that any worker lacks."""
        before, waiting, done = self.current(job), [], []
        self.engine.abandon(before)
        self._went_on[job] = number
        for worker in range(len(self._jobs[before].job.hosts)):
            waiting.append(self._waiting.pop(("stream", before, worker), None))
            done.append(self._opened.get((before, worker), (0, 0))[0] - (waiting[-1] is not None))
        for worker, event in enumerate(waiting):
            known = done[worker] - min(done)  # streams whose results it has
            streams = self._last.pop((before, worker), [])
            streams = streams[len(streams) - known - (event is not None) :]
            for index in range(known):
                streams[index] = list(map(unread, streams[index][0])), streams[index][1]
            self._repeats[job, worker] = self._environment.process(
                self._open_all(job, worker, streams, event)
            )

    def _open_all(
        self,
        job: int,
        worker: int,
        streams: Sequence[OpenedStream],
        event: simpy.Event | None = None,
        after: simpy.Process | None = None,
    ) -> Generator[simpy.Event, Any, None]:
        """Open streams one after the other; then an event fires."""
        if after is not None and after.is_alive:
            yield after
        for segments, scaled in streams:
            yield self._open(job, worker, segments, scaled)
        if event is not None:
            event.succeed()

    def flow(self, flow: Flow) -> simpy.Event:
        """Start a reliable message; the event fires when it is delivered."""
        now_ps = int(self._environment.now)
        self.engine.advance(now_ps)
        number = self.engine.open_flow(flow)
        frame = flow.sender.frame
        size_bytes = frame.wire_bytes(min(flow.words_count, frame.elements), first=True, last=True)
        self._flows[number] = WaitingFlow(
            flow.source, flow.target, flow.route, flow.route_back, now_ps, size_bytes, flow.job
        )
        return self._expect("flow", -1, number)

    def open_schedule(
        self, operation: Operation, name: str, answer: Callable[[int], None] = _never_asked
    ) -> int:
        # Returns the engine's number of it; `answer` is called with that of each transfer to be merged.
        self.engine.advance(int(self._environment.now))
        number = self.engine.open_schedule(operation)
        self._schedules[number] = (operation, name, answer)
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

    def begin_joint(
        self, joint: int, rank: int, number: int, *, words: Words, others: Iterable[tuple[int, int]]
    ) -> simpy.Event:
        """Let a worker begin operation `number`, and join others; fires when it has finished all."""
        self.engine.advance(int(self._environment.now))
        self.engine.begin(number, 0, words)
        for opened, worker_index in others:
            self.engine.join(opened, worker_index)
        return self._expect("worker", joint, rank)

    def close_schedule(self, number: int) -> None:
        """Forget a schedule, all of whose workers have finished."""
        self.engine.close_schedule(number)
        del self._schedules[number]

    def expect_change(self, until_ps: int) -> None:
        # The patience restarts at the time of the change.
        self._restart_patience(until_ps)

    def set_activity(self, owner: int, worker: int, what: str, until_ps: int) -> None:
        """Set a worker's activity ("computes bucket 1 of step 3"), and its end if that is known."""
        self._activities[owner, worker] = what
        self._restart_patience(until_ps)

    def record_node_event(self, node: int, what: str) -> None:
        self._node_events.append(NodeEvent(int(self._environment.now), node, what))

    def run_until(self, event: simpy.Event) -> None:
        while not event.processed:
            if self._environment.peek() > TIME_MAX_PS:  # infinite if no event is left
                raise StalledError(self._diagnosis())
            self._environment.step()

    def drain(self) -> None:
        # Packets in flight arrive and void timers expire. Traffic that never ends, such as messages to a
        # crashed host, is abandoned after the same patience as a stall.
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
                yield EndOfInstant(environment, InstantPhase.NETWORK)
                continue
            completions = self._advance(environment.peek())
            yield environment.timeout(engine.now_ps - environment.now)
            for completion in completions:
                if completion.kind == "merge":
                    _, _, answer = self._schedules[completion.job]
                    answer(completion.worker)
                    continue
                if completion.kind == "flow":
                    del self._flows[completion.worker]
                if event := self._waiting.pop((completion.kind, completion.job, completion.worker), None):
                    event.succeed()  # else its tree is rebuilt at this instant, and it is sent again
            if not self._waiting and self._sampler is not None:
                self._sampler.close()

    def _advance(self, outside_ps: float) -> list[Completion]:
        """Run the engine to its next completion, to the next SimPy event, or to the end of the patience."""
        engine, is_alone = self.engine, outside_ps == math.inf
        if is_alone and engine.next_event_ps() is None:
            raise StalledError(self._diagnosis())  # a process waits, and no event is left
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
            raise StalledError(self._diagnosis())
        return completions

    def _next_check_ps(self) -> int:
        """Next time to check for a stall: when watching the links begins, and when the patience ends."""
        watched_ps = self._patience_ps // WATCHED_SHARE if self._watched is None else 0
        return max(self._alive_ps, self.engine.busy_until_ps) + self._patience_ps - watched_ps

    def _watch_or_give_up(self) -> None:
        """Begin to watch the links; raise `StalledError` if they are watched already."""
        if self._watched is not None:
            raise StalledError(self._diagnosis())
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
        opened_ps = max((last_ps for _, last_ps in self._opened.values()), default=0)
        counters = engine.link_counters()
        down = engine.down_links()
        dead = [link for link in down if engine.world.links[link].is_dead]
        states = down, self._corrupting(), dead
        snapshot = Snapshot(
            network=engine.network,
            names=self._names,
            jobs=self._jobs,
            time_ps=engine.now_ps,
            quiet_ps=engine.now_ps - max(self._progress_ps, opened_ps),
            outcomes=link_outcomes(self._watched, counters, *states),
            total_outcomes=link_outcomes(None, counters, *states),
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
        for transfer in self.engine.waiting_transfers():
            operation, name, _ = self._schedules[transfer.schedule]
            number, schedule = transfer.transfer, operation.schedule
            ends = int(schedule.source[number]), int(schedule.target[number])
            if operation.joint is not None:
                ends = operation.ranks[ends[0]], operation.ranks[ends[1]]
            what = (
                f"transfer {number} from worker {ends[0]} to worker {ends[1]} "
                f"(step {schedule.step[number]}) of {name}, flow {transfer.flow}"
            )
            yield transfer.waiting._replace(what=what)


# Compute time of workers under host faults: late starts, slow hosts, pauses, crashes.


class HostTimes:
    """End times of work on each worker's host, as SimPy events, given the faults of the host."""

    def __init__(self, environment: simpy.Environment, conditions: Sequence[Condition]) -> None:
        self._environment, self._conditions = environment, tuple(conditions)

    def of(self, workers: Sequence[int]) -> HostTimes:
        # These workers, numbered anew in this order.
        return HostTimes(self._environment, [self._conditions[worker] for worker in workers])

    def end_ps(self, worker: int, start_ps: int, work_ps: int) -> int:
        return self._conditions[worker].end_ps(start_ps, work_ps)

    def is_delayed(self, worker: int) -> bool:
        return self._conditions[worker] != Condition()

    def crash_ps(self, worker: int) -> int:
        return self._conditions[worker].crash_ps

    def work(self, worker: int, work_ps: int) -> simpy.Event:
        # Takes `work_ps` without faults; it never ends after a crash.
        return self.until(worker, self.end_ps(worker, int(self._environment.now), work_ps))

    def until(self, worker: int, time_ps: int) -> simpy.Event:
        """Event at a time, or now if it has passed; it never fires if the worker has crashed by then."""
        now_ps = int(self._environment.now)
        if max(time_ps, now_ps) >= self._conditions[worker].crash_ps:
            return self._environment.event()
        return self._environment.timeout(max(0, time_ps - now_ps))
