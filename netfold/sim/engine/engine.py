"""The engine's Python interface: open streams and flows, run the compiled loop, return completions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine import job_tables, table_setup, tables
from netfold.sim.engine.atp_transport import open_atp_stream, open_sums
from netfold.sim.engine.engine_data import (
    BACKLOG_MAX_PS,
    BacklogError,
    Completion,
    Flow,
    Job,
    Operation,
    Rule,
    Scaled,
    Segment,
)
from netfold.sim.engine.engine_views import EngineViews, in_clock, plain
from netfold.sim.engine.flow import open_flow
from netfold.sim.engine.job_tables import LockStep, OpenSchedule, StreamLayout, write_segments
from netfold.sim.engine.loop import HANDLERS, go_on_now, run_until, tell_schedule
from netfold.sim.engine.memory_access import address_of
from netfold.sim.engine.switchml_stream import open_stream
from netfold.sim.engine.table_setup import KeepAlive
from netfold.sim.engine.tables import DONE_FLOW, DONE_STREAM, DONE_WORKER
from netfold.topologies.network import Network

# The part of an engine that carries out schedules, and enlarges the tables where they are short.


class EngineSchedules(EngineViews):
    """Opens schedules, lets workers begin, and answers what the engine asks."""

    def __init__(self) -> None:
        self._schedules: dict[int, OpenSchedule] = {}  # open schedules by their number
        self._schedules_count = 0
        self._copies = 1  # packets that a fault may make of one
        self._reserve = 8  # packets that one event may take
        self._payload_reserve = 1

    def open_schedule(self, operation: Operation) -> int:
        # The number returned is the job of its completions: `run` gives one of kind "worker" for each worker,
        # when all transfers to it are processed, and one of kind "merge" for each merge that the engine asks
        # for; `end_merge` answers.
        for host in operation.hosts:
            self._check_host("host", host)
        job_tables.check_operation(operation)
        table_setup.mark(self.world, operation.sender)
        self._add_flows(job_tables.flow_window(operation))
        self.world = table_setup.add_job_counter(self.world, operation.job)
        number = self._schedules_count
        self.world, self._schedules[number] = job_tables.open_schedule(self.world, number, operation)
        self._schedules_count += 1
        self._make_room(self._copies * (2 * operation.sender.window + 8))
        return number

    def begin(
        self,
        number: int,
        worker: int,
        words: NDArray[Any] | None = None,
        sizes: NDArray[np.int64] | None = None,
        is_absent: bool = False,
    ) -> None:
        # HOST: `sizes`, (chunks,), are how many words the worker has of each chunk.
        opened = self._schedules[number]
        if opened.parties[worker].has_begun:
            raise RuntimeError(f"worker {worker} of schedule {number} has begun already")
        if is_absent:
            job_tables.write_absent(opened, worker)
        else:
            job_tables.write_worker(opened, worker, words, sizes)
        self._tell(tables.BEGIN, opened.row, worker)

    def open_joint(self) -> int:
        # The job of the completions of joint operations, one for each rank.
        self._schedules_count += 1
        return self._schedules_count - 1

    @staticmethod
    def new_lanes(count: int) -> tables.Table:
        return job_tables.new_lanes(count)

    def join(self, number: int, worker: int) -> None:
        """Let a worker begin that passes on what it gets, and has no words of its own."""
        opened = self._schedules[number]
        if opened.parties[worker]["arrived_head"] < 0:
            opened.parties[worker]["has_begun"] = 1  # nothing waits for it
        else:
            self._tell(tables.BEGIN, opened.row, worker)

    def end_merge(
        self, number: int, transfer: int, end_ps: int, sizes: NDArray[np.int64] | None = None
    ) -> None:
        """Answer a completion of kind "merge": when it ends; HOST: how many words each cell then has."""
        opened = self._schedules[number]
        if sizes is not None:
            planned = opened.derived.planned[transfer]
            first = int(planned["first"])
            opened.cells["words"][int(planned["source"]), first : first + int(planned["count"])] = sizes
        self._tell(tables.ANSWER, opened.row, transfer, end_ps)

    def merge_time_ps(self, number: int, transfer: int) -> int:
        """Time of a transfer's merge on an ordinary host, of what its cells now hold."""
        opened = self._schedules[number]
        times_ps, planned = opened.operation.merge_ps, opened.derived.planned[transfer]
        if times_ps is None:
            return 0
        first = int(planned["first"])
        cells = opened.cells[int(planned["source"]), first : first + int(planned["count"])]
        return int(times_ps[transfer, int(cells["is_lifted"].any())])

    def contributors(self, number: int, worker: int) -> NDArray[np.int32]:
        """(chunks,) how many workers contributed to each chunk, as a worker that has finished was told."""
        counts: NDArray[np.int32] = self._schedules[number].cells["workers"][worker]
        return counts

    def has_finished(self, number: int) -> bool:
        # Whether all workers of a schedule have, so that it can be closed.
        return not self.world.schedules[self._schedules[number].row].unfinished

    def close_schedule(self, number: int) -> None:
        row = self.world.schedules[self._schedules[number].row]
        if row.unfinished:
            raise RuntimeError(f"{row.unfinished} workers of schedule {number} have not finished")
        opened = self._schedules[number]
        if opened.operation.joint is not None and not job_tables.holds_first(opened):
            raise RuntimeError(f"a worker of schedule {number} does not hold the words that were sent")
        row.is_open = 0
        del self._schedules[number]

    def _tell(self, what: int, row: int, first: int, second: int = 0) -> None:
        """Tell a schedule something, and let it go on as far as it can now."""
        self._make_room(self._reserve)
        tell_schedule(self.world, what, row, first, second)
        while go_on_now(self.world, self._reserve, self._payload_reserve) == tables.GROW:
            self._grow()

    def _check_host(self, name: str, node: int) -> None:
        is_host = self.network.is_host
        if not (0 <= node < is_host.size and is_host[node]):
            raise ValueError(f"{name} is node {node}: must be a host, of {np.flatnonzero(is_host).tolist()}")

    def _grow(self) -> None:
        """Enlarge what the compiled loop was short of."""
        clock = self.world.clock[0]
        if clock.short_of < 0:
            self._add_flows(0, self.world.flows.size)
        elif clock.short_of > 0:
            row = int(clock.short_of) - 1
            opened = self._schedules[int(self.world.schedules[row].number)]
            job_tables.add_buffers(self.world, opened, int(opened.operation.schedule.count.max()))
        clock.short_of = 0
        self._make_room(self._reserve)

    def _add_flows(self, window: int, count: int = 0) -> None:
        """Have a free row for a flow with this window; add `count` rows at least if there is none."""
        size = self.world.flows.size
        if self.world.clock[0].flow_free >= 0:
            count = 0
        elif not count:
            count = max(8, size)
        if count or window > self.world.flights.shape[1]:
            self.world = table_setup.add_flows(self.world, size + count, window)

    def _make_room(self, reserve: int) -> None:
        """Enlarge the tables until each has room for one event."""
        self._reserve = max(reserve, self._reserve)
        self.world = table_setup.with_room(self.world, self._reserve, self._payload_reserve)


EVENTS_MAX = 1_000_000  # per call of the loop, some 0.1 s; between calls Python handles signals


class Engine(EngineSchedules):
    """One network with its traffic, in simulated time.

    Parameters
    ----------
    network
        Compiled graph. Delays into switches include their pass latency; loopback links may be appended.
    seed
        Root of every keyed draw.
    rules
        Faults on links, in order of precedence.
    """

    def __init__(self, network: Network, seed: int, rules: Sequence[Rule] = ()) -> None:
        super().__init__()
        self.network = network
        self.world = table_setup.new_world(network, rules, seed)
        # A fault may duplicate every packet that an event sends, or give it a payload row.
        self._copies = 2 if any(rule.fate.copies for rule in rules) else 1
        self.on_pause: Callable[[], None] = lambda: None  # called between batches of events in `run`
        self._keep_alive = KeepAlive()
        self._lock_step = LockStep()
        self._jobs: list[Job] = []
        self._room: dict[int, int] | None = None  # slots by switch, for jobs that come later
        self._make_room(64)

    def start_log(self) -> None:
        self.world.clock[0].is_logging = 1

    def next_event_ps(self) -> int | None:
        """Time of the next event, void timers included; None if no event is left."""
        if in_clock(self.world, "attention"):  # a stream that was complete as soon as it opened
            return self.now_ps
        return int(plain(self.world.heap)["time_ps"][0]) if in_clock(self.world, "heap_count") else None

    def advance(self, time_ps: int) -> None:
        """Set the time, to no later than the next event; events at that time are not processed yet."""
        following = self.next_event_ps()
        if time_ps < self.now_ps or (following is not None and following < time_ps):
            raise RuntimeError(f"cannot advance from {self.now_ps} ps past {following} ps to {time_ps} ps")
        self.world.clock[0].now_ps = time_ps

    def reserve_slots(self, room: Mapping[int, int]) -> None:
        """Give switches slots for all jobs that may come, so that jobs can be added at any time."""
        if self.world.clock[0].order > 0:
            raise RuntimeError("slots cannot be reserved once packets have been sent")
        self._room = dict(room)

    def add_job(self, job: Job) -> int:
        """Add a job with its slots and one stream per worker.

        Raises
        ------
        RuntimeError
            Packets have been sent, and no slots were reserved, or too few.
        """
        if self.world.clock[0].order > 0 and self._room is None:
            raise RuntimeError("a job cannot be added once packets have been sent")
        table_setup.check_size(job.frame, job.lanes)
        self.world = job_tables.add_job(self.world, job, self._room or {})
        self._jobs.append(job)
        window = job.slots_count if job.server is None else max(job.slots_count, 2 * job.server.window_max)
        burst = self._copies * (max(window, len(job.hosts) + len(job.branches)) + 8)
        self._payload_reserve = max(self._payload_reserve, burst)
        self._make_room(burst)
        return self.world.jobs.size - 1

    def open_stream(
        self, job: int, worker: int, segments: list[Segment], scaled: Scaled | None = None
    ) -> None:
        """Start a worker's next stream now; `run` returns a `Completion` at its end.

        Raises
        ------
        ValueError
            No words, arrays of another shape or type, exponents that do not fit the units, or a stream that
            differs from another worker's.
        RuntimeError
            The worker's last stream is still open.
        """
        row = int(self.world.jobs[job].first_stream) + worker
        stream = self.world.streams[row]
        if stream.is_open:
            raise RuntimeError(f"worker {worker} of job {job} already has an open stream")
        units = write_segments(self.world, self._jobs[job].program, row, segments, scaled is not None)
        shape = StreamLayout.of(segments, scaled is not None)
        self._lock_step.open(job, worker, int(stream.serial) + 1, shape, len(self._jobs[job].hosts))
        if self.world.hosts[int(stream.host)].away_until_ps == tables.NEVER:
            return  # it has crashed
        stream.segments_count, stream.blocks_count, stream.lead = len(segments), 0, 0
        stream.window = self.world.jobs[job].window
        if scaled is not None:
            if len(segments) != 1 or scaled.exponents.size != units or scaled.agreed.size != units:
                raise ValueError("a scaled stream has one segment, and one exponent per unit of it")
            stream.blocks_count, stream.lead = units, min(int(stream.window), units)
            stream.window = stream.lead  # no block's words leave before its exponent is agreed
            stream.exponents, stream.agreed = address_of(scaled.exponents), address_of(scaled.agreed)
        stream.units_count = units + int(stream.lead)
        stream.serial += 1
        self._keep_alive.stream(row, segments, scaled)
        self._make_room(self._reserve)
        if self._jobs[job].program.has_server:
            if sums := open_sums(self.world, job, int(stream.serial), units, shape.has_floats):
                self._keep_alive.sums(job, sums)
            open_atp_stream(self.world, row)
        else:
            open_stream(self.world, row)

    def open_flow(self, flow: Flow) -> int:
        """Start a flow now; returns its number, which its `Completion` carries.

        Raises
        ------
        ValueError
            Arrays of another shape or type, `ack_every` outside of the window, or an end that is no host.
        """
        self._check_host("source", flow.source)
        self._check_host("target", flow.target)
        table_setup.check_sender(flow.sender)
        table_setup.mark(self.world, flow.sender)
        self._add_flows(flow.sender.window)
        self.world = table_setup.add_job_counter(self.world, flow.job)
        clock = self.world.clock[0]
        row, number = int(clock.flow_free), int(clock.flows_count)
        clock.flow_free = self.world.flows[row].next_free
        clock.flows_count += 1
        table_setup.write_flow(self.world, row, number, flow)
        if flow.words is not None and flow.received is not None:
            table_setup.check_words(flow.words, None, flow.words_count)
            table_setup.check_words(flow.received, None, flow.words_count)
            self.world.flows[row].words = address_of(flow.words)
            self.world.flows[row].received = address_of(flow.received)
        self._keep_alive.flow(row, flow)
        self._make_room(self._copies * (2 * flow.sender.window + 8))
        if self.world.hosts[flow.source].away_until_ps == tables.NEVER:
            self.world.flows[row].is_open = 1  # it stays open: its source has crashed
        else:
            open_flow(self.world, row)
        return number

    def run(self, until_ps: int) -> list[Completion]:
        """Process events up to `until_ps`, but no further than the first that completes something.

        Raises
        ------
        BacklogError
            The backlog of a link takes longer than the clock can represent.
        RuntimeError
            The engine has failed.
        """
        stopped = tables.GROW
        while stopped in (tables.GROW, tables.PAUSED):
            stopped = run_until(self.world, until_ps, EVENTS_MAX, self._reserve, self._payload_reserve)
            HANDLERS.raise_failure()
            if stopped == tables.GROW:
                self._grow()
            elif stopped == tables.PAUSED:
                self.on_pause()
        clock = plain(self.world.clock)[0]
        if clock["unfinished"]:
            raise RuntimeError("a compiled handler failed; its error is printed above")
        if clock["overflowed_link"]:
            name = self.network.link_names[int(clock["overflowed_link"]) - 1]
            raise BacklogError(
                f"the backlog of link {name} takes longer than {BACKLOG_MAX_PS} ps, the most that fits the "
                "engine's clock"
            )
        completions = [self._completion(done) for done in plain(self.world.done)[: clock["done_count"]]]
        clock["done_count"], clock["attention"] = 0, int(clock["queue_head"] >= 0)
        return completions

    def _completion(self, done: Any) -> Completion:
        what, row, serial = int(done["what"]), int(done["row"]), int(done["serial"])
        if what == DONE_FLOW:
            return Completion(self.now_ps, "flow", -1, serial)
        if what != DONE_STREAM:
            return Completion(self.now_ps, "worker" if what == DONE_WORKER else "merge", row, serial)
        stream = self.world.streams[row]
        return Completion(self.now_ps, "stream", int(stream.job), int(stream.worker))

    def set_rate(self, link: int, rate_bps: int) -> None:
        if self.network.is_inside(link):
            raise ValueError(
                f"link {self.network.link_names[link]} is inside a host: its rate does not change"
            )
        table_setup.change_rate(self.world, link, rate_bps)

    def cut(self, link: int) -> None:
        table_setup.cut(self.world, link)

    def flush(self, link: int) -> None:
        table_setup.flush(self.world, link)

    def kill(self, link: int) -> None:
        table_setup.kill(self.world, link)

    def reroute(self, network: Network) -> None:
        # The network has the same nodes and links.
        self.network, self.world = network, table_setup.with_routes(self.world, network)

    def restore(self, link: int) -> None:
        """Bring a link up again; waiting packets go first."""
        self._make_room(self._reserve)
        table_setup.restore(self.world, link)

    def clear(self, switch: int) -> None:
        table_setup.clear(self.world, switch)

    def abandon(self, job: int) -> None:
        table_setup.abandon(self.world, job)

    def release_job(self, job: int) -> None:
        table_setup.release(self.world, job)

    def crash(self, host: int) -> None:
        self.world.hosts[host].away_until_ps = tables.NEVER

    def pause(self, host: int, until_ps: int) -> None:
        self.world.hosts[host].away_until_ps = max(until_ps, int(self.world.hosts[host].away_until_ps))
