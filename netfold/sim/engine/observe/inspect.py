"""Read the tables for reports and stall diagnosis, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from netfold.sim.engine.interface import (
    Disturbance,
    Fate,
    Outstanding,
    PointView,
    SlotState,
    WaitingTransfer,
)
from netfold.sim.engine.links.link import PS_BYTES
from netfold.sim.engine.observe.in_flight import in_flight
from netfold.sim.engine.tables import rows
from netfold.sim.engine.tables.world import DOWN, NEVER, World
from netfold.switch.program import ProgramSpec
from netfold.switch.programs.atp import FREE
from netfold.switch.registers import VERDICTS

_LINK_COUNTERS = [name for name in rows.LINK.names or () if name.endswith(("_packets", "_bytes"))]
_LINK_COUNTERS += ["busy_ps"]
FLOW_COUNTERS = ("timeouts", "retransmitted_packets", "reordered_packets", "spurious_retransmissions")


def link_counters(world: World) -> list[dict[str, int]]:
    """Counters of every link, by name."""
    links = world.links[: world.clock[0].links_count]
    return [
        {name: int(link[name]) for name in _LINK_COUNTERS}
        | {"in_flight_packets": packets, "in_flight_bytes": size_bytes}
        | {"backlog_bytes_max": backlog_bytes_max(link)}
        for link, (packets, size_bytes) in zip(links, in_flight(world).tolist(), strict=True)
    ]


def backlog_bytes_max(link: np.record) -> int:
    """Largest backlog of a link in bytes, the rest of the packet on its wire included.

    Inside a host: at its mean rate so far.
    """
    if link.packet_ps or link.message_ps:
        return int(link.backlog_ps_max) * int(link.sent_bytes) // max(1, int(link.busy_ps))
    now_bytes = int(link.backlog_ps_max) * int(link.rate_bps) // PS_BYTES
    return max(int(link.backlog_bytes_max), now_bytes)


def down_links(world: World) -> list[int]:
    """Links that are down."""
    links = world.links[: world.clock[0].links_count]
    return [int(link) for link in np.flatnonzero(links["buffer_ps"] == DOWN)]


def flow_counters(world: World, number: int) -> dict[str, int]:
    """Counters of a flow whose row has not been reused."""
    found = np.flatnonzero(world.flows["serial"] == number)
    if found.size == 0:
        raise KeyError(f"flow {number} has been closed and forgotten")
    flow = world.flows[found[0]]
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
    found = []
    for flow in flows[is_waiting]:
        count = min(int(flow.words_count), int(flow.elements))
        is_last = flow.packets_count == 1
        size_bytes = int(flow.overhead_bytes + 4 * count + flow.first_bytes + is_last * flow.last_bytes)
        schedule = int(world.schedules[int(flow.schedule)].number)
        found.append(
            WaitingTransfer(
                schedule,
                int(flow.transfer),
                int(flow.serial),
                int(flow.source),
                int(flow.target),
                int(flow.route),
                int(flow.ack_route),
                int(flow.job),
                size_bytes,
                int(flow.opened_ps),
            )
        )
    return sorted(found, key=lambda one: one.flow)


def point_counters(world: World, job: int) -> list[dict[str, int]]:
    """What each switch of a job's tree did, by point."""
    points = world.points[points_of(world, job)]
    return [{name: int(point[name]) for name in rows.POINT_COUNTERS} for point in points]


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
    found = []
    for stream_row in range(int(row.first_stream), int(row.first_stream + row.workers_count)):
        stream = world.streams[stream_row]
        if not stream.is_open:
            continue
        is_crashed = world.hosts[int(stream.host)].away_until_ps == NEVER
        units = _server_units if program.has_server else _window_units
        for unit, slot, version, attempt, sent_ps in units(world, job, stream_row):
            found.append(
                Outstanding(
                    int(stream.worker), int(stream.serial), unit, slot, version, attempt, sent_ps, is_crashed
                )
            )
    return found


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
        place = world.places[stream_row, unit % int(server.window_max)]
        if not place.acknowledged:
            units.append((unit, int(place.entry), 0, int(place.attempt), int(place.sent_ps)))
    return units


def slot_state(world: World, program: ProgramSpec, job: int, where: tuple[int, int, int]) -> SlotState:
    """State of a slot, given its point, number and version; with a server, of an entry."""
    row = world.jobs[job]
    point, slot, version = where
    place = world.points[int(row.first_point) + point]
    if program.has_server:
        entry = world.entries.rows[int(world.servers[int(row.server)].entry_base) + slot]
        workers = int(row.workers_count)
        missing = workers - int(entry["count"])
        return SlotState(int(entry.bitmap), workers, missing, int(entry.last_ps), -1, "", False)
    at = 2 * (int(place.register_base) + slot) + min(version, program.versions - 1)
    state = world.registers.slots[at]
    children = int(place.children_count)
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
    found = []
    first_slot, count = int(row.slot_base), int(row.window) * int(row.unit_packets)
    for point in world.points[points_of(world, job)]:
        first = int(point.register_base) + first_slot
        slots = world.registers.slots[2 * first : 2 * (first + count)].reshape(count, 2)
        # All at once: on long links a job has hundreds of thousands.
        for place, version in np.argwhere(program.is_waiting(slots[:, : program.versions])).tolist():
            name = f"slot {first_slot + place}, version {version} at {nodes[point.switch]}"
            found.append(f"{name} {_waiting_for(program, int(point.children_count), slots[place, version])}")
    return found


def _waiting_for(program: ProgramSpec, children_count: int, state: np.record) -> str:
    """How many packets a slot waits for; after a fault its counter and bitmap may differ."""
    marked = int(state.bitmap).bit_count()
    if not program.has_counter or int(state.counter) == children_count - marked:
        return f"waits for {children_count - marked} more"
    return f"waits for {int(state.counter)} more, though its bitmap has {marked} of {children_count}"
