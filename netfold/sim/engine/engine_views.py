"""Views of an engine: counters, tables, the event log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.compiled import inlined, kernel
from netfold.sim.engine import tables
from netfold.sim.engine.engine_data import (
    Disturbance,
    Fate,
    Job,
    Outstanding,
    PointView,
    SlotState,
    WaitingFlow,
    WaitingTransfer,
)
from netfold.sim.engine.heap import world_at
from netfold.sim.engine.links import PS_BYTES
from netfold.sim.engine.tables import (
    DATA,
    DELAYED,
    DOWN,
    FLOW_ACK,
    FLOW_DATA,
    HELD,
    KINDS_AT_ATP_SWITCH,
    LOOP,
    LOST,
    NEVER,
    RESULT,
    ROW,
    SLOT_TIMER,
    Table,
    World,
)
from netfold.switch.program import ProgramSpec
from netfold.switch.programs.atp import FREE
from netfold.switch.registers import VERDICTS
from netfold.topologies.network import Network

# The event log: one row per event, while it is switched on.


@kernel
def log_packet(at: int, row: int, what: int) -> None:
    """Write the arrival of a packet into the log, or the end of its hold."""
    world = world_at(at)
    packet, entry = world.packets[row], world.log[world.clock[0].log_count]
    entry.time_ps = world.clock[0].now_ps
    entry.order = packet.order
    entry.what = 3 if what == HELD else 0
    entry.where = packet.link
    entry.unit = packet.unit
    entry.attempt = packet.attempt
    if packet.kind in (FLOW_DATA, FLOW_ACK):
        entry.owner = packet.serial
        entry.part = 1 if packet.kind == FLOW_ACK else 0
        if packet.kind == FLOW_ACK:
            entry.attempt = packet.transmission
    else:
        stream = world.streams[packet.owner]
        entry.owner = stream.job * 65536 + stream.worker
        entry.part = packet.part
    world.clock[0].log_count += 1


@kernel
def log_timer(at: int, order: int, what: int, owner: int) -> None:
    world = world_at(at)
    entry = world.log[world.clock[0].log_count]
    entry.time_ps = world.clock[0].now_ps
    entry.order = order
    entry.what = what >> 32
    entry.where = -1
    entry.owner = owner
    entry.unit = 0
    entry.part = 0
    entry.attempt = 0
    world.clock[0].log_count += 1


@kernel
def log_slot_timer(at: int, row: int, order: int) -> None:
    """Write a slot's timer into the log, with fields of the packet that started it."""
    world = world_at(at)
    if not world.clock[0].is_logging:
        return
    slot = world.registers.slots[row]
    stream = world.streams[slot.owner]
    log_timer(world.clock[0].at, order, SLOT_TIMER, stream.job * 65536 + stream.worker)
    entry = world.log[world.clock[0].log_count - 1]
    entry.unit = slot.unit
    entry.attempt = slot.attempt


# Counts the packets in flight: what links have taken, and have neither delivered nor lost.


def in_flight(world: World) -> NDArray[np.int64]:
    """(links, 2) packets and bytes in flight: in line on a link, or delayed by a fault behind it."""
    counts = np.zeros((int(world.clock[0].links_count), 2), np.int64)
    count_in_flight(world, counts)
    return counts


@kernel
def count_in_flight(world: World, counts: NDArray[np.int64]) -> None:
    """Add up packets and bytes by link."""
    clock = world.clock[0]
    for lane in range(2 * clock.links_count):
        row = world.links[lane].head
        while row >= 0:
            packet = world.packets[row]
            if packet.struck != LOST:
                counts[packet.link, 0] += 1
                counts[packet.link, 1] += packet.size_bytes
            row = packet.next
    for heap_index in range(clock.heap_count):
        what = world.heap[heap_index].what
        if what - (what & ROW) == DELAYED:
            packet = world.packets[what & ROW]
            counts[packet.link, 0] += 1
            counts[packet.link, 1] += packet.size_bytes


# Read the tables for reports and stall diagnosis, in plain Python.


_LINK_COUNTERS = [name for name in tables.LINK.names or () if name.endswith(("_packets", "_bytes"))]
_LINK_COUNTERS += ["busy_ps"]
_BACKLOG = (
    "packet_ps",
    "message_ps",
    "backlog_ps_max",
    "backlog_bytes_max",
    "sent_bytes",
    "busy_ps",
    "rate_bps",
)
FLOW_COUNTERS = ("timeouts", "retransmitted_packets", "reordered_packets", "spurious_retransmissions")


def plain(table: Table) -> NDArray[Any]:
    # The same table without an attribute for each column, which would take Python ten times as long.
    return np.ndarray.view(table, np.ndarray)


def in_clock(world: World, name: str) -> int:
    return int(plain(world.clock)[name][0])


def link_counters(world: World) -> list[dict[str, int]]:
    """Counters of every link, by name."""
    links = plain(world.links)[: in_clock(world, "links_count")]
    return [
        counters
        | {"in_flight_packets": packets, "in_flight_bytes": size_bytes}
        | {"backlog_bytes_max": backlog_bytes_max(backlog)}
        for counters, backlog, (packets, size_bytes) in zip(
            _rows(links, _LINK_COUNTERS), _rows(links, _BACKLOG), in_flight(world).tolist(), strict=True
        )
    ]


def _rows(table: NDArray[Any], names: Sequence[str]) -> list[dict[str, int]]:
    columns = [table[name].tolist() for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def backlog_bytes_max(link: Any) -> int:
    """The longest backlog of a link, given its row, or what `_BACKLOG` names."""
    # Inside a host: at its mean rate so far. Elsewhere the rest of the packet on its wire is included.
    backlog_ps = int(link["backlog_ps_max"])
    if link["packet_ps"] or link["message_ps"]:
        return backlog_ps * int(link["sent_bytes"]) // max(1, int(link["busy_ps"]))
    return max(int(link["backlog_bytes_max"]), backlog_ps * int(link["rate_bps"]) // PS_BYTES)


def down_links(world: World) -> list[int]:
    links = world.links[: world.clock[0].links_count]
    return [int(link) for link in np.flatnonzero(links["buffer_ps"] == DOWN)]


def flow_counters(world: World, number: int) -> dict[str, int]:
    """Counters of a flow whose row has not been reused."""
    flow_rows = np.flatnonzero(world.flows["serial"] == number)
    if flow_rows.size == 0:
        raise KeyError(f"flow {number} has been closed and forgotten")
    flow = world.flows[flow_rows[0]]
    return {name: int(flow[name]) for name in FLOW_COUNTERS}


def flow_counts(world: World, job: int) -> tuple[int, int, int]:
    """Packets of all flows of a job: sent again, overtaken by later ones, and sent again in vain."""
    flows = world.flows
    still_open = flows[(flows["is_open"] != 0) & (flows["job"] == job)]
    closed = world.flow_counts[job] if job < len(world.flow_counts) else (0, 0, 0)
    names = ("retransmitted_packets", "reordered_packets", "spurious_retransmissions")
    again, reordered, in_vain = (
        int(still_open[name].sum()) + int(before) for name, before in zip(names, closed, strict=True)
    )
    return again, reordered, in_vain


def waiting_transfers(world: World) -> list[WaitingTransfer]:
    """Transfers of schedules whose flow is not delivered, by flow."""
    flows = world.flows
    is_waiting = (flows["is_open"] != 0) & (flows["is_delivered"] == 0) & (flows["schedule"] >= 0)
    transfers = []
    for flow in flows[is_waiting]:
        sender, is_last = flow.sender, flow.units_count == 1
        size_bytes = sender.overhead_bytes + 4 * min(int(flow.words_count), int(sender.elements))
        size_bytes += sender.first_bytes + is_last * sender.last_bytes
        schedule = int(world.schedules[int(flow.schedule)].number)
        transfers.append(
            WaitingTransfer(
                schedule,
                int(flow.transfer),
                int(flow.serial),
                WaitingFlow(
                    int(flow.host),
                    int(flow.target),
                    int(flow.route),
                    int(flow.ack_route),
                    int(flow.opened_ps),
                    int(size_bytes),
                    int(flow.job),
                ),
            )
        )
    return sorted(transfers, key=lambda transfer: transfer.flow)


def point_counters(world: World, job: int) -> list[dict[str, int]]:
    return _rows(plain(world.points)[points_of(world, job)], tables.POINT_COUNTERS)


def points_of(world: World, job: int) -> slice:
    """Rows of a job's points."""
    first = int(world.jobs[job].first_point)
    return slice(first, first + int(world.jobs[job].points_count))


def job_points(world: World, job: int) -> list[PointView]:
    """The switches of a job's tree, and the children of each."""
    first_stream, first_point = int(world.jobs[job].first_stream), int(world.jobs[job].first_point)
    views = []
    for point in world.points[points_of(world, job)]:
        first = int(point.first_child)
        children = [
            ("worker", int(child.stream) - first_stream)
            if child.stream >= 0
            else ("point", int(child.point) - first_point)
            for child in world.children[first : first + int(point.children_count)]
        ]
        views.append(PointView(int(point.switch), tuple(children)))
    return views


def outstanding(world: World, program: ProgramSpec, job: int) -> list[Outstanding]:
    """Units that workers have sent and whose results they wait for."""
    row = world.jobs[job]
    pending_units = []
    for stream_row in range(int(row.first_stream), int(row.first_stream + row.workers_count)):
        stream = world.streams[stream_row]
        if not stream.is_open:
            continue
        is_crashed = world.hosts[int(stream.host)].away_until_ps == NEVER
        units = _server_units if program.has_server else _window_units
        for unit, slot, version, attempt, sent_ps in units(world, job, stream_row):
            pending_units.append(
                Outstanding(
                    int(stream.worker), int(stream.serial), unit, slot, version, attempt, sent_ps, is_crashed
                )
            )
    return pending_units


def _window_units(world: World, job: int, stream_row: int) -> list[tuple[int, int, int, int, int]]:
    row = world.jobs[job]
    return [
        (
            int(window.unit),
            int(row.slot_base) + slot * int(row.unit_packets),
            int(window.version) & 1,
            int(window.attempt),
            int(window.sent_ps),
        )
        for slot, window in enumerate(world.windows[stream_row])
        if slot < row.window and window.unit >= 0
    ]


def _server_units(world: World, job: int, stream_row: int) -> list[tuple[int, int, int, int, int]]:
    stream, server = world.streams[stream_row], world.servers[int(world.jobs[job].server)]
    units = []
    for unit in range(int(stream["base"]), int(stream["next"])):  # not `.base`, an attribute of every array
        unit_state = world.places[stream_row, unit % int(server.window_max)]
        if not unit_state.acknowledged:
            units.append((unit, int(unit_state.entry), 0, int(unit_state.attempt), int(unit_state.sent_ps)))
    return units


def slot_state(world: World, program: ProgramSpec, job: int, where: tuple[int, int, int]) -> SlotState:
    """State of a slot, given its point, number and version; with a server, of an entry."""
    row = world.jobs[job]
    point, slot, version = where
    tree_point = world.points[int(row.first_point) + point]
    if program.has_server:
        entry = world.entries.rows[int(world.servers[int(row.server)].entry_base) + slot]
        workers = int(row.workers_count)
        missing = workers - int(entry["count"])
        return SlotState(int(entry.bitmap), workers, missing, int(entry.last_ps), -1, "", False)
    at = 2 * (int(tree_point.register_base) + slot) + min(version, program.versions - 1)
    state = world.registers.slots[at]
    children = int(tree_point.children_count)
    missing = int(state.counter)
    if not program.has_counter:
        missing = children - int(state.bitmap).bit_count()
    return SlotState(
        int(state.bitmap),
        children,
        missing,
        int(state.last_ps),
        int(state.last_child),
        VERDICTS[state.last_verdict] if state.last_ps >= 0 else "",
        bool(state.is_answered),
    )


def disturbances(world: World) -> list[Disturbance]:
    """Packets that were duplicated, delayed or changed, and the links, by rule that did so."""
    return [
        Disturbance(
            Fate(int(rule.fate)),
            int(rule.struck),
            tuple(np.flatnonzero(world.links["rules"] >> np.uint64(number) & 1).tolist()),
        )
        for number, rule in enumerate(world.rules)
        if rule.fate in (Fate.DUPLICATE, Fate.REORDER, Fate.FLIP) and rule.struck
    ]


def leaks(world: World, program: ProgramSpec, job: int, nodes: Sequence[str]) -> list[str]:
    """Slots that still wait for packets, with their switch, and entries that are still claimed."""
    row = world.jobs[job]
    if program.has_server:
        identities = world.entries.rows["identity"]
        claimed = np.flatnonzero((identities != FREE) & (identities >> 51 == job + 1))
        first = int(world.servers[int(row.server)].entry_base)
        return [f"entry {entry - first} is claimed" for entry in claimed]
    leaked_slots = []
    first_slot, count = int(row.slot_base), int(row.window) * int(row.unit_packets)
    for point in world.points[points_of(world, job)]:
        first = int(point.register_base) + first_slot
        slots = world.registers.slots[2 * first : 2 * (first + count)].reshape(count, 2)
        # All at once: on long links a job has hundreds of thousands.
        for offset, version in np.argwhere(program.is_waiting(slots[:, : program.versions])).tolist():
            name = f"slot {first_slot + offset}, version {version} at {nodes[point.switch]}"
            leaked_slots.append(
                f"{name} {_waiting_for(program, int(point.children_count), slots[offset, version])}"
            )
    return leaked_slots


def _waiting_for(program: ProgramSpec, children_count: int, state: np.record) -> str:
    """How many packets a slot waits for; after a fault its counter and bitmap may differ."""
    marked = int(state.bitmap).bit_count()
    if not program.has_counter or int(state.counter) == children_count - marked:
        return f"waits for {children_count - marked} more"
    return f"waits for {int(state.counter)} more, though its bitmap has {marked} of {children_count}"


# What the network was doing, sample by sample, while somebody waited for it.
#
# A sample is a stretch of simulated time. It has the busy time of its busiest links, and what the senders of
# each job were waiting for. It only reads the tables: a run with samples has the same events as one without.


LINKS_MAX = 48  # busiest links that a sample has
OUTSTANDING, DEAD, BLOCKED, SENDERS = range(4)  # columns of `Samples.waiting`
STATES = 4


@dataclass(frozen=True)
class Samples:
    """n samples of a network with L links and J jobs, in order; times in ps.

    Within a sample nothing is known of order. `links` are the busiest ones of each sample, the busiest first;
    of equally busy ones those that were busy longest so far, then by number. −1: none.
    """

    start_ps: NDArray[np.int64]  # (n,)
    end_ps: NDArray[np.int64]  # (n,)
    links: NDArray[np.int32]  # (n, min(L, LINKS_MAX))
    busy_ps: NDArray[np.int64]
    """Busy time of each of `links`; a link that is down and has packets is busy."""
    waiting: NDArray[np.float64]  # (n, J, STATES) means of what was found where the sample begins and ends:
    # units that senders wait for; of these, units of which no packet is on its way; senders that have more
    # to send than their windows allow; senders
    queue_ps: NDArray[np.int64]  # (n,) the longest queue of a link where it ends, as time on the wire
    is_steady: NDArray[np.bool_]  # (n,) no stream or flow began or ended in it
    is_empty: NDArray[np.bool_]  # (n,) no packet was on its way at its ends
    sharing: NDArray[np.int32]  # (L,) hosts whose packets were seen on a link; 0 if it was not counted

    @staticmethod
    def none(links_count: int = 0, jobs_count: int = 1) -> Samples:
        return Samples(
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
            np.zeros((0, min(links_count, LINKS_MAX)), np.int32),
            np.zeros((0, min(links_count, LINKS_MAX)), np.int64),
            np.zeros((0, jobs_count, STATES)),
            np.zeros(0, np.int64),
            np.zeros(0, np.bool_),
            np.zeros(0, np.bool_),
            np.zeros(links_count, np.int32),
        )


class LookBuffers(NamedTuple):
    """Buffers of a look at the tables, for L links and J jobs."""

    before_ps: NDArray[np.int64]  # (L,) busy time until the look before …
    busy_ps: NDArray[np.int64]  # … and until this one
    links: NDArray[np.int32]
    """This and the next two are like a row of `Samples`."""
    links_busy_ps: NDArray[np.int64]
    waiting: NDArray[np.int64]  # (J, STATES)
    owners: NDArray[np.int64]  # job by number of the engine's job
    live: NDArray[np.uint8]  # (engine's jobs + …, units) marks of units, then of flows, that have packets
    hosts: NDArray[np.uint8]  # (L, nodes) hosts whose packets were seen on each link; (L, 0): not counted


@kernel
def look(world: World, seen: LookBuffers, elapsed_ps: int, with_hosts: bool) -> tuple[int, int]:
    """Look at the tables now, `elapsed_ps` after the look before.

    Walking through the packets takes most of the time, so it is only done to mark hosts, `with_hosts`, and
    where something was lost: else every unit that a sender waits for has a packet.

    Returns the packets on their way, and a number that changes when a stream or flow begins or ends.
    """
    read_busy(world, seen, elapsed_ps)
    choose_busiest(seen)
    seen.waiting[:] = 0
    in_flight, lost = count_packets(world)
    if with_hosts or lost > 0:
        seen.live[:] = 0
        mark_packets(world, seen)
    if lost == 0:
        seen.live[:] = 1
    return in_flight, count_streams(world, seen, lost == 0) + count_flows(world, seen)


@kernel
def count_packets(world: World) -> tuple[int, int]:
    """Packets on their way, and packets that were lost so far."""
    in_flight, lost = 0, 0
    for index in range(world.clock[0].links_count):
        link = world.links[index]
        in_flight += on_their_way(link)
        lost += link.lost_packets + link.dropped_packets
    for at in range(world.clock[0].heap_count):
        in_flight += int(world.heap[at].what & ~ROW == HELD)
    return in_flight, lost


@inlined
def on_their_way(link: Any) -> int:
    return link.sent_packets - link.delivered_packets - link.lost_packets


@kernel
def read_busy(world: World, seen: LookBuffers, elapsed_ps: int) -> None:
    """Busy time of every link up to now: what it was given to send, without what has not left yet."""
    now_ps = world.clock[0].now_ps
    for index in range(seen.busy_ps.size):
        link = world.links[index]
        before_ps = seen.busy_ps[index]
        if link.buffer_ps == DOWN:
            busy_ps = before_ps + (elapsed_ps if on_their_way(link) > 0 else 0)
        else:
            busy_ps = link.busy_ps - max(0, link.free_at_ps - now_ps)
        seen.before_ps[index] = before_ps
        seen.busy_ps[index] = min(max(busy_ps, before_ps), before_ps + elapsed_ps)


@kernel
def choose_busiest(seen: LookBuffers) -> None:
    """The links that were busy longest since the look before, by insertion into the list of the best."""
    links, links_busy_ps = seen.links, seen.links_busy_ps
    listed_count = 0
    for index in range(seen.busy_ps.size):
        busy_ps = seen.busy_ps[index] - seen.before_ps[index]
        if busy_ps <= 0 or (listed_count == links.size and busy_ps < links_busy_ps[listed_count - 1]):
            continue
        position = listed_count
        while position > 0 and is_busier(seen, index, busy_ps, position - 1):
            position -= 1
        if position == links.size:
            continue
        last = min(listed_count, links.size - 1)
        for at in range(last - position):
            links[last - at] = links[last - at - 1]
            links_busy_ps[last - at] = links_busy_ps[last - at - 1]
        links[position] = index
        links_busy_ps[position] = busy_ps
        listed_count = last + 1
    for number in range(links.size - listed_count):
        links[listed_count + number] = -1
        links_busy_ps[listed_count + number] = 0


@inlined
def is_busier(seen: LookBuffers, index: int, own_ps: int, position: int) -> bool:
    """Whether a link goes before the one at a place of the list."""
    other_ps = seen.links_busy_ps[position]
    if other_ps != own_ps:
        return bool(other_ps < own_ps)
    return bool(seen.before_ps[seen.links[position]] < seen.before_ps[index])


@kernel
def mark_packets(world: World, seen: LookBuffers) -> None:
    """Mark the units and flows of which a packet is on its way, and the hosts whose packets are on a link.

    Packets that will be lost are on their way until the time of their arrival: their senders cannot know.
    """
    links_count = world.clock[0].links_count
    for lane in range(2 * links_count):
        row = world.links[lane].head
        while row >= 0:
            mark(world, seen, row)
            mark_host(world, seen, row, lane % links_count)
            row = world.packets[row].next
    for at in range(world.clock[0].heap_count):  # packets that are not in line have events of their own
        what = world.heap[at].what
        if what & ~ROW == HELD or what & ~ROW == DELAYED:
            mark(world, seen, what & ROW)


@inlined
def mark(world: World, seen: LookBuffers, row: int) -> None:
    """Mark the unit or flow of a packet."""
    packet = world.packets[row]
    units = seen.live.shape[1]
    if packet.kind == FLOW_DATA or packet.kind == FLOW_ACK:
        seen.live[seen.owners.size + packet.owner // units, packet.owner % units] = 1
    elif packet.owner >= 0:
        seen.live[world.streams[packet.owner].job, packet.unit % units] = 1


@inlined
def mark_host(world: World, seen: LookBuffers, row: int, link: int) -> None:
    """Mark the host that a packet on a link is from or, of results, to."""
    packet = world.packets[row]
    if seen.hosts.size == 0 or packet.owner < 0:
        return
    if packet.kind == FLOW_DATA:
        seen.hosts[link, world.flows[packet.owner].host] = 1
    elif packet.kind == RESULT:
        seen.hosts[link, packet.target] = 1
    elif packet.kind == DATA or packet.kind == LOOP or packet.kind in KINDS_AT_ATP_SWITCH:
        seen.hosts[link, world.streams[packet.owner].host] = 1


@kernel
def count_streams(world: World, seen: LookBuffers, all_live: bool) -> int:
    """Count what the streams of each job wait for; returns a number that changes when one begins or ends."""
    signature = 0
    for row in range(world.streams.size):
        stream = world.streams[row]
        signature += stream.serial * 2 + stream.is_open
        if stream.is_open == 0:
            continue
        owner = seen.owners[stream.job]
        outstanding, dead = 0, 0
        if world.jobs[stream.job].server >= 0:
            for unit in range(stream.base, stream.next):
                if world.places[row, unit % world.places.shape[1]].acknowledged == 0:
                    outstanding += 1
                    dead += 1 - seen.live[stream.job, unit % seen.live.shape[1]]
        elif all_live:  # a window is as full as it can be
            outstanding = min(stream.window, stream.units_count - stream.completed_count)
        else:
            for slot in range(world.jobs[stream.job].window):
                unit = world.windows[row, slot].unit
                if unit >= 0:
                    outstanding += 1
                    dead += 1 - seen.live[stream.job, unit % seen.live.shape[1]]
        seen.waiting[owner, OUTSTANDING] += outstanding
        seen.waiting[owner, DEAD] += dead
        seen.waiting[owner, SENDERS] += 1
        seen.waiting[owner, BLOCKED] += int(stream.units_count > stream.completed_count + outstanding)
    return signature


@kernel
def count_flows(world: World, seen: LookBuffers) -> int:
    """Count the flows whose targets wait; returns a number that changes when one begins or ends."""
    signature, units = 0, seen.live.shape[1]
    for row in range(world.flows.size):
        flow = world.flows[row]
        if flow.is_open == 0 or flow.is_delivered != 0:
            continue
        signature += 3 * flow.serial + 1
        live = seen.live[seen.owners.size + row // units, row % units]
        seen.waiting[flow.job, OUTSTANDING] += 1
        seen.waiting[flow.job, DEAD] += 1 - live
        seen.waiting[flow.job, SENDERS] += 1
        seen.waiting[flow.job, BLOCKED] += int(flow.next < flow.units_count)
    return signature


# Read-only views of an engine, between runs of its loop.


class EngineViews:
    """Counters and states of an engine's links, workers, flows and switches; nothing here changes them."""

    world: World
    network: Network
    _jobs: list[Job]

    @property
    def now_ps(self) -> int:
        return in_clock(self.world, "now_ps")

    @property
    def links_count(self) -> int:
        return len(self.network.link_names)

    @property
    def packet_hops(self) -> int:
        return in_clock(self.world, "packet_hops")

    @property
    def events(self) -> int:
        return in_clock(self.world, "events")

    @property
    def progress(self) -> int:
        return in_clock(self.world, "progress")

    def streams_share(self, job: int) -> float:
        """Share of the units of a job's open streams that are complete; 0 if none is open."""
        streams = self.world.streams
        open_streams = streams[(streams["job"] == job) & (streams["is_open"] != 0)]
        units = int(open_streams["units_count"].sum())
        return int(open_streams["completed_count"].sum()) / units if units else 0.0

    def schedules_share(self, job: int) -> float:
        """Share of the transfers of a job's open schedules that are processed; 0 if none is open."""
        schedules = self.world.schedules
        schedules = schedules[
            (schedules["job"] == job) & (schedules["is_open"] != 0) & (schedules["unfinished"] > 0)
        ]
        transfers = int(schedules["transfers_count"].sum())
        return int(schedules["processed"].sum()) / transfers if transfers else 0.0

    def waiting_transfers(self) -> list[WaitingTransfer]:
        return waiting_transfers(self.world)

    @property
    def busy_until_ps(self) -> int:
        # End of the last merge of a schedule that has begun.
        return in_clock(self.world, "busy_until_ps")

    def flow_retransmissions(self, job: int) -> int:
        return flow_counts(self.world, job)[0]

    def flow_reordering(self, job: int) -> tuple[int, int]:
        """Packets of a job's flows that later ones had overtaken, and those sent again in vain."""
        _, reordered, spurious = flow_counts(self.world, job)
        return reordered, spurious

    @property
    def log(self) -> list[tuple[int, ...]]:
        # Rows of `tables.LOG`, one per event since `start_log`.
        return [tuple(row) for row in self.world.log[: self.world.clock[0].log_count].tolist()]

    def link_counters(self) -> list[dict[str, int]]:
        return link_counters(self.world)

    def worker_counters(self, job: int, worker: int) -> dict[str, int]:
        """Counters of one worker's streams."""
        stream = self.world.streams[int(self.world.jobs[job].first_stream) + worker]
        return {name: int(stream[name]) for name in ("timeouts", "retransmitted_packets", "stale_results")}

    def switch_counters(self, job: int) -> dict[str, int]:
        """What a job's switches did, all together."""
        points = self.point_counters(job)
        return {name: sum(point[name] for point in points) for name in tables.POINT_COUNTERS}

    def point_counters(self, job: int) -> list[dict[str, int]]:
        return point_counters(self.world, job)

    def split_counters(self, job: int) -> list[int]:
        splits = self.world.splits
        return [int(packets) for packets in splits["packets"][splits["job"] == job]]

    def job_points(self, job: int) -> list[PointView]:
        return job_points(self.world, job)

    def outstanding(self, job: int) -> list[Outstanding]:
        return outstanding(self.world, self._jobs[job].program, job)

    def slot_state(self, job: int, point: int, slot: int, version: int) -> SlotState:
        return slot_state(self.world, self._jobs[job].program, job, (point, slot, version))

    def leaks(self, job: int) -> list[str]:
        # For a job that has ended.
        return leaks(self.world, self._jobs[job].program, job, self.network.nodes)

    def disturbances(self) -> list[Disturbance]:
        return disturbances(self.world)

    def rule_counters(self) -> list[int]:
        return [int(struck) for struck in self.world.rules["struck"]]

    def down_links(self) -> list[int]:
        return down_links(self.world)

    def sent_bytes(self, link: int) -> int:
        return int(plain(self.world.links)["sent_bytes"][link])

    def busiest_link(self) -> tuple[int, int]:
        # A link, and for how long it was busy so far, ps.
        busy_ps = plain(self.world.links)["busy_ps"][: in_clock(self.world, "links_count")]
        return int(busy_ps.argmax()), int(busy_ps.max())

    def flow_counters(self, number: int) -> dict[str, int]:
        return flow_counters(self.world, number)
