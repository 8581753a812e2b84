"""Making and enlarging the engine's tables; compiled code never does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine import state
from sim.engine.link import PS_BYTES
from sim.engine.model import Flow, Job
from sim.engine.state import NEVER, Table, World, records
from sim.engine.stream import TIMEOUTS_THRESHOLD
from switch.programs.switchml import new_registers
from topologies.routing import Network


def new_world(network: Network, loss: NDArray[np.float64], seed: int) -> World:
    """Tables of a network without traffic."""
    nodes = len(network.nodes)
    world = World(
        clock=records(1, state.CLOCK),
        heap=records(4 * len(network.link_names) + 64, state.HEAP),
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
    clock = world.clock[0]
    clock.seed = seed % 2**64
    clock.is_lossy = int(np.any(loss > 0))
    clock.packet_free = -1
    clock.links_count = len(network.link_names)
    clock.stream_base = clock.flow_base = world.links.size
    return world


def _links(network: Network, loss: NDArray[np.float64]) -> Table:
    count = len(network.link_names)
    links = records(2 * count, state.LINK)  # the links, then their priority lanes
    for row, link in enumerate(links):
        index = row % count
        rate, buffer_bytes = int(network.rate_bps[index]), int(network.buffer_bytes[index])
        is_limited = not network.is_host[network.link_source[index]]
        link.rate_bps, link.delay_ps = rate, int(network.delay_ps[index])
        link.byte_ps = PS_BYTES // rate if PS_BYTES % rate == 0 else 0
        link.buffer_ps = min(NEVER, buffer_bytes * PS_BYTES // rate) if is_limited else NEVER
        link.loss = min(2**64 - 1, int(float(loss[index]) * 2**64))
        link.target, link.head, link.tail = int(network.link_target[index]), -1, -1
    return links


def add_job(world: World, job: Job) -> World:
    """World with one more job: its row, a stream per worker, and registers for its slots."""
    first, workers = world.streams.size, len(job.hosts)
    jobs, streams = enlarged(world.jobs, world.jobs.size + 1), enlarged(world.streams, first + workers)
    row = jobs[-1]
    for name in ("switch", "slot_base", "unit_packets", "loopback_link"):
        row[name] = getattr(job, name)
    for name in ("timeout_ps", "first_timeout_ps", "timeout_max_ps"):
        row[name] = getattr(job, name)
    for name in ("elements", "overhead_bytes", "first_bytes", "last_bytes"):
        row[name] = getattr(job.frame, name)
    row.workers_count, row.first_stream, row.window = workers, first, job.slots_count // job.unit_packets
    for worker, (host, route) in enumerate(zip(job.hosts, job.routes, strict=True)):
        stream = streams[first + worker]
        stream.job, stream.worker, stream.host, stream.route = jobs.size - 1, worker, host, route
        stream.serial, stream.armed_ps, stream.armed_order = -1, NEVER, -1
        stream.timeouts_threshold = TIMEOUTS_THRESHOLD
    slots, elements = _place_registers(jobs), int(jobs["elements"].max())
    windows = records((streams.size, int(jobs["window"].max())), state.WINDOW)
    for name in ("unit", "expected_psn", "switch_expected_psn"):
        windows[name] = -1
    world.clock[0].flow_base = world.links.size + streams.size
    world.clock[0].payload_free_count = 0
    return world._replace(
        jobs=jobs,
        streams=streams,
        windows=windows,
        segments=records((streams.size, state.SEGMENTS_MAX), state.SEGMENT),
        registers=new_registers(slots, elements),
        payloads=np.zeros((0, elements), np.int32),
        payload_uses=np.zeros(0, np.int32),
    )


def _place_registers(jobs: Table) -> int:
    """Give each switch its own range of slots, as long as its jobs need; returns all slots together."""
    sizes: dict[int, int] = {}
    for job in jobs:
        slots = int(job.slot_base) + int(job.window) * int(job.unit_packets)
        sizes[int(job.switch)] = max(slots, sizes.get(int(job.switch), 0))
    bases, total = {}, 0
    for switch, size in sizes.items():
        bases[switch] = total
        total += size
    for job in jobs:
        job.register_base = bases[int(job.switch)]
    return total


def write_flow(world: World, row: int, number: int, flow: Flow) -> None:
    """Fill a flow's row, but for its addresses."""
    world.flows[row] = np.zeros((), state.FLOW)
    world.flights["received"][row] = 0
    entry = world.flows[row]
    for name in ("key", "words_count", "timeout_ps", "source", "target", "route", "window", "ack_every"):
        entry[name] = getattr(flow, name)
    for name in ("elements", "overhead_bytes", "first_bytes", "last_bytes", "ack_bytes"):
        entry[name] = getattr(flow.frame, name)
    entry.packets_count = max(1, -(-flow.words_count // flow.frame.elements))
    entry.serial = number


def add_flows(world: World, rows: int, window: int) -> World:
    """At least `rows` flows and windows of `window`; positions are modulo a flow's window and keep."""
    rows, columns = max(rows, world.flows.size), max(window, world.flights.shape[1])
    flights = records((rows, columns), state.FLIGHT)
    flights[: world.flights.shape[0], : world.flights.shape[1]] = world.flights
    return world._replace(flows=enlarged(world.flows, rows), flights=flights)


def add_packets(world: World, count: int) -> World:
    """`count` more free packets."""
    old, clock = world.packets.size, world.clock[0]
    packets = enlarged(world.packets, old + count)
    packets["next"][old:] = np.arange(old + 1, old + count + 1)
    packets["next"][-1] = clock.packet_free
    clock.packet_free = old
    clock.packet_free_count += count
    return world._replace(packets=packets)


def add_payloads(world: World, count: int) -> World:
    """`count` more free payloads."""
    old, clock = world.payloads.shape[0], world.clock[0]
    held = int(clock.payload_free_count)
    payloads = np.zeros((old + count, world.payloads.shape[1]), np.int32)
    payloads[:old] = world.payloads
    uses = np.zeros(old + count, np.int32)
    uses[:old] = world.payload_uses
    free = np.zeros(old + count, np.int32)
    free[:held] = world.payload_free[:held]
    free[held : held + count] = np.arange(old + count - 1, old - 1, -1)
    clock.payload_free_count += count
    return world._replace(payloads=payloads, payload_uses=uses, payload_free=free)


def enlarged(table: Table, rows: int) -> Table:
    """A longer table that begins with the old rows."""
    larger = records(rows, table.dtype)
    larger[: table.size] = table
    return larger


def check_words(array: NDArray[Any], dtype: Any, size: int | None = None) -> None:
    """Addresses are handed to compiled code: refuse what it would misread."""
    if array.ndim != 1 or array.itemsize != 4 or not array.flags.c_contiguous:
        raise ValueError(
            f"words are a contiguous 1-D array of 4-byte items, found {array.dtype} of shape {array.shape}"
        )
    if dtype is not None and array.dtype != dtype:
        raise ValueError(f"words are {np.dtype(dtype).name}, found {array.dtype}")
    if size is not None and array.size != size:
        raise ValueError(f"expected {size} words, found {array.size}")
