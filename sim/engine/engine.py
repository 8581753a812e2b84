"""The engine's face: opens streams and flows, runs the compiled loop, enlarges its tables, hands out what is done."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine import state
from sim.engine.flow import open_flow
from sim.engine.kernel import run_until
from sim.engine.memory import address_of
from sim.engine.model import Completion, Flow, Job, Scaled, Segment
from sim.engine.state import NEVER, Table, World, records
from sim.engine.stream import TIMEOUTS_THRESHOLD, open_stream
from switch.programs.switchml import new_registers
from topologies.routing import Network

_LINK_COUNTERS = [name for name in state.LINK.names or () if name.endswith(("_packets", "_bytes"))]
_LINK_COUNTERS += ["busy_ps", "backlog_ps_max"]


class Engine:
    """One network with its traffic, in simulated time.

    Parameters
    ----------
    network
        Compiled graph. Delays into switches include their pass latency; loopback links may have been appended.
    loss
        (links,) float64, probability that a packet put on the link is lost.
    seed
        Root of every keyed draw.
    """

    def __init__(self, network: Network, loss: NDArray[np.float64], seed: int) -> None:
        self.network = network
        self._open: dict[tuple[bool, int], tuple[Any, ...]] = {}  # arrays that the tables refer to by address
        self._flow_rows: dict[int, int] = {}  # of flows in the tables, by number
        self._flows_opened = 0
        self._reserve = 8
        nodes = len(network.nodes)
        self.world = World(
            clock=records(1, state.CLOCK),
            heap=records(2 * len(network.link_names) + 64, state.HEAP),
            links=_links(network, loss),
            packets=records(0, state.PACKET),
            payloads=np.zeros((0, 1), np.int32),
            payload_uses=np.zeros(0, np.int32),
            payload_free=np.zeros(0, np.int32),
            next_link=np.ascontiguousarray(network.next_link, np.int32),
            next_count=np.ascontiguousarray(network.next_count, np.int32).reshape(nodes, nodes),
            jobs=records(0, state.JOB),
            streams=records(0, state.STREAM),
            windows=records((0, 1), state.WINDOW),
            segments=records((0, state.SEGMENTS_MAX), state.SEGMENT),
            registers=new_registers(0, 1),
            flows=records(0, state.FLOW),
            flights=records((0, 1), state.FLIGHT),
            done=records(8, state.DONE),
            log=records(0, state.LOG),
        )
        clock = self.world.clock[0]
        clock.seed = seed % 2**64
        clock.is_lossy = int(np.any(loss > 0))
        clock.packet_free = -1
        clock.flow_base = len(network.link_names)
        self._make_room(64)

    @property
    def now_ps(self) -> int:
        """Simulated time."""
        return int(self.world.clock[0].now_ps)

    @property
    def packet_hops(self) -> int:
        """Packets delivered across a link so far."""
        return int(self.world.clock[0].packet_hops)

    @property
    def events(self) -> int:
        """Events processed so far."""
        return int(self.world.clock[0].events)

    @property
    def progress(self) -> int:
        """Units completed and flow packets received in order so far."""
        return int(self.world.clock[0].progress)

    def next_event_ps(self) -> int | None:
        """Time of the next event; None if nothing is going on."""
        return int(self.world.heap[0].time_ps) if self.world.clock[0].heap_count else None

    def advance(self, time_ps: int) -> None:
        """Let time pass up to an instant before which nothing happens; events at that instant are still to come."""
        following = self.next_event_ps()
        if time_ps < self.now_ps or (following is not None and following < time_ps):
            raise RuntimeError(f"cannot advance from {self.now_ps} ps past {following} ps to {time_ps} ps")
        self.world.clock[0].now_ps = time_ps

    def start_log(self) -> None:
        """Keep one row per event from now on (`log`)."""
        self.world.clock[0].is_logging = 1

    @property
    def log(self) -> list[tuple[int, ...]]:
        """Events so far: (time_ps, order, what, where, owner, unit, part, attempt)."""
        rows = self.world.log[: self.world.clock[0].log_count]
        return [tuple(int(value) for value in row) for row in rows.tolist()]

    def add_job(self, job: Job) -> int:
        """Give a job its slots and one stream per worker; only before anything is sent."""
        if self.next_event_ps() is not None:
            raise RuntimeError("a job cannot be added while packets are in flight")
        world, index = self.world, self.world.jobs.size
        workers, window = len(job.hosts), job.slots_count // job.unit_packets
        jobs, streams = (
            _enlarged(world.jobs, index + 1),
            _enlarged(world.streams, world.streams.size + workers),
        )
        row = jobs[index]
        for name in (
            "switch",
            "slot_base",
            "unit_packets",
            "loopback_link",
            "timeout_ps",
            "first_timeout_ps",
        ):
            row[name] = getattr(job, name)
        for name in ("elements", "overhead_bytes", "first_bytes", "last_bytes"):
            row[name] = getattr(job.frame, name)
        row.workers_count, row.first_stream, row.window = workers, world.streams.size, window
        for worker, (host, route) in enumerate(zip(job.hosts, job.routes, strict=True)):
            stream = streams[world.streams.size + worker]
            stream.job, stream.worker, stream.host, stream.route = index, worker, host, route
            stream.serial, stream.armed_ps, stream.armed_order = -1, NEVER, -1
            stream.timeouts_threshold = TIMEOUTS_THRESHOLD
        windows = records((streams.size, max(window, world.windows.shape[1])), state.WINDOW)
        windows["unit"] = -1
        windows["expected_psn"] = -1
        windows["switch_expected_psn"] = -1
        segments = records((streams.size, state.SEGMENTS_MAX), state.SEGMENT)
        slots = max(
            int(jobs["slot_base"][i] + jobs["window"][i] * jobs["unit_packets"][i]) for i in range(index + 1)
        )
        elements = int(jobs["elements"].max())
        self.world = world._replace(
            jobs=jobs,
            streams=streams,
            windows=windows,
            segments=segments,
            registers=new_registers(slots, elements),
        )
        self.world.clock[0].flow_base = self.world.links.size + streams.size
        self.world = self.world._replace(
            payloads=np.zeros((0, elements), np.int32), payload_uses=np.zeros(0, np.int32)
        )
        self.world.clock[0].payload_free_count = 0
        self._make_room(2 * max(job.slots_count, workers) + 8)
        return index

    def open_stream(
        self, job: int, worker: int, segments: list[Segment], scaled: Scaled | None = None
    ) -> None:
        """Start a worker's next stream now; it completes with the `Completion` of that worker."""
        world = self.world
        row = int(world.jobs[job].first_stream) + worker
        stream = world.streams[row]
        if stream.is_open:
            raise RuntimeError(f"worker {worker} of job {job} has a stream open")
        unit_words = int(world.jobs[job].unit_packets * world.jobs[job].elements)
        units = 0
        for index, segment in enumerate(segments):
            _check_words(segment.words, np.float32 if scaled else None)
            _check_words(segment.result, None, segment.words.size)
            entry = world.segments[row, index]
            entry.words, entry.result = address_of(segment.words), address_of(segment.result)
            entry.words_count, entry.first_unit, entry.merge = segment.words.size, units, int(segment.merge)
            units += -(-segment.words.size // unit_words)
        if units == 0:
            raise ValueError("a stream carries at least one word")
        stream.segments_count, stream.blocks_count, stream.lead = len(segments), 0, 0
        stream.window = world.jobs[job].window
        if scaled is not None:
            if len(segments) != 1 or scaled.exponents.size != units or scaled.agreed.size != units:
                raise ValueError(
                    f"a scaled stream has one segment and one exponent per unit of {unit_words} words"
                )
            stream.blocks_count, stream.lead = units, min(int(world.jobs[job].window), units)
            stream.window = stream.lead  # no block's data leaves before its exponent is agreed
            stream.exponents, stream.agreed = address_of(scaled.exponents), address_of(scaled.agreed)
        stream.units_count = units + int(stream.lead)
        stream.serial += 1
        self._open[False, row] = (segments, scaled)
        self._make_room(self._reserve)
        open_stream(self.world, row)

    def open_flow(self, flow: Flow) -> int:
        """Start a flow now; returns its number, which its `Completion` carries."""
        row = next(
            (i for i, open_ in enumerate(self.world.flows["is_open"]) if not open_), self.world.flows.size
        )
        if row == self.world.flows.size or flow.window > self.world.flights.shape[1]:
            self._enlarge_flows(max(8, 2 * row), flow.window)
        number = self._flows_opened
        self._flows_opened += 1
        self.world.flows[row] = np.zeros((), state.FLOW)
        entry = self.world.flows[row]
        for name in ("key", "words_count", "timeout_ps", "source", "target", "route", "window", "ack_every"):
            entry[name] = getattr(flow, name)
        for name in ("elements", "overhead_bytes", "first_bytes", "last_bytes", "ack_bytes"):
            entry[name] = getattr(flow.frame, name)
        entry.packets_count = max(1, -(-flow.words_count // flow.frame.elements))
        entry.serial = number
        if flow.words is not None and flow.received is not None:
            _check_words(flow.words, None, flow.words_count)
            _check_words(flow.received, None, flow.words_count)
            entry.words, entry.received = address_of(flow.words), address_of(flow.received)
        self.world.flights["received"][row] = 0
        self._flow_rows[number] = row
        self._open[True, row] = (flow,)
        self._make_room(2 * flow.window + 8)
        open_flow(self.world, row)
        return number

    def run(self, until_ps: int) -> list[Completion]:
        """Process events up to `until_ps`, but no further than the first that completes something."""
        while True:
            reason = run_until(self.world, until_ps, self._reserve)
            if reason != state.GROW:
                break
            self._make_room(self._reserve, grow=True)
        clock = self.world.clock[0]
        completions = [self._completion(self.world.done[i]) for i in range(clock.done_count)]
        clock.done_count = 0
        return completions

    def _completion(self, done: Any) -> Completion:
        row = int(done.row)
        self._open.pop((bool(done.is_flow), row), None)
        if done.is_flow:
            return Completion(self.now_ps, "flow", -1, int(done.serial))
        stream = self.world.streams[row]
        return Completion(self.now_ps, "stream", int(stream.job), int(stream.worker))

    def link_counters(self) -> list[dict[str, int]]:
        """Counters of every link, by name."""
        return [{name: int(link[name]) for name in _LINK_COUNTERS} for link in self.world.links]

    def worker_counters(self, job: int, worker: int) -> dict[str, int]:
        """Counters of one worker's streams."""
        stream = self.world.streams[int(self.world.jobs[job].first_stream) + worker]
        return {name: int(stream[name]) for name in ("timeouts", "retransmitted_packets", "stale_results")}

    def switch_counters(self, job: int) -> dict[str, int]:
        """Counters of the switch program for one job."""
        names = ("packets", "results", "answers", "duplicates_dropped", "discarded")
        return {name: int(self.world.jobs[job][name]) for name in names}

    @property
    def flow_retransmissions(self) -> int:
        """Packets that all flows together have sent again."""
        return int(self.world.clock[0].flow_retransmissions)

    def flow_counters(self, number: int) -> dict[str, int]:
        """Counters of a flow; only while its row is not used by a later one."""
        flow = self.world.flows[self._flow_rows[number]]
        if flow.serial != number:
            raise KeyError(f"flow {number} has been closed and forgotten")
        return {name: int(flow[name]) for name in ("timeouts", "retransmitted_packets")}

    def _enlarge_flows(self, rows: int, window: int) -> None:
        """More flow rows, or wider windows (positions are modulo the flow's own window, so columns keep)."""
        rows = max(rows, self.world.flows.size)
        flights = records((rows, max(window, self.world.flights.shape[1])), state.FLIGHT)
        old = self.world.flights
        flights[: old.shape[0], : old.shape[1]] = old
        self.world = self.world._replace(flows=_enlarged(self.world.flows, rows), flights=flights)

    def _make_room(self, reserve: int, *, grow: bool = False) -> None:
        """See to it that one event finds room in every table; `grow` doubles the short ones."""
        self._reserve = reserve = max(reserve, self._reserve)
        clock = self.world.clock[0]
        if clock.packet_free_count < reserve:
            self._add_packets(max(reserve, self.world.packets.size))
        if clock.payload_free_count < reserve:
            self._add_payloads(max(reserve, self.world.payloads.shape[0]))
        if clock.heap_count + self.world.links.size + 8 > self.world.heap.size or (
            grow and clock.heap_count * 2 > self.world.heap.size
        ):
            self.world = self.world._replace(heap=_enlarged(self.world.heap, 2 * self.world.heap.size + 64))
        if clock.is_logging and clock.log_count >= self.world.log.size:
            self.world = self.world._replace(log=_enlarged(self.world.log, 2 * self.world.log.size + 4096))

    def _add_packets(self, count: int) -> None:
        old, clock = self.world.packets.size, self.world.clock[0]
        packets = _enlarged(self.world.packets, old + count)
        packets["next"][old:] = np.arange(old + 1, old + count + 1)
        packets["next"][-1] = clock.packet_free
        clock.packet_free = old
        clock.packet_free_count += count
        self.world = self.world._replace(packets=packets)

    def _add_payloads(self, count: int) -> None:
        old, clock = self.world.payloads.shape[0], self.world.clock[0]
        payloads = np.zeros((old + count, self.world.payloads.shape[1]), np.int32)
        payloads[:old] = self.world.payloads
        uses = np.zeros(old + count, np.int32)
        uses[:old] = self.world.payload_uses
        free = np.zeros(old + count, np.int32)
        held = int(clock.payload_free_count)
        free[:held] = self.world.payload_free[:held]
        free[held : held + count] = np.arange(old + count - 1, old - 1, -1)
        clock.payload_free_count += count
        self.world = self.world._replace(payloads=payloads, payload_uses=uses, payload_free=free)


def _links(network: Network, loss: NDArray[np.float64]) -> Table:
    links = records(len(network.link_names), state.LINK)
    for index, link in enumerate(links):
        rate, buffer_bytes = int(network.rate_bps[index]), int(network.buffer_bytes[index])
        is_limited = not network.is_host[network.link_source[index]]
        link.rate_bps, link.delay_ps = rate, int(network.delay_ps[index])
        link.buffer_ps = min(NEVER, buffer_bytes * 8 * 10**12 // rate) if is_limited else NEVER
        link.loss = min(2**64 - 1, int(float(loss[index]) * 2**64))
        link.target, link.head, link.tail = int(network.link_target[index]), -1, -1
    return links


def _enlarged(table: Table, rows: int) -> Table:
    larger = records(rows, table.dtype)
    larger[: table.size] = table
    return larger


def _check_words(array: NDArray[Any], dtype: Any, size: int | None = None) -> None:
    """Addresses are handed to compiled code: refuse what it would misread."""
    if array.ndim != 1 or array.itemsize != 4 or not array.flags.c_contiguous:
        raise ValueError(
            f"words are a contiguous 1-D array of 4-byte items, found {array.dtype} {array.shape}"
        )
    if dtype is not None and array.dtype != dtype:
        raise ValueError(f"words are {np.dtype(dtype).name}, found {array.dtype}")
    if size is not None and array.size != size:
        raise ValueError(f"expected {size} words, found {array.size}")
