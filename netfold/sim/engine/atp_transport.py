"""ATP: its tables, its workers' windows, its switches and its parameter server (atp.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import WORD_MAX, float_add_words
from netfold.kernels import rng_streams
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed_random import mix, mix_plain
from netfold.sim.engine.congestion_policies import frame_bytes, on_open
from netfold.sim.engine.engine_data import AtpServer, Job
from netfold.sim.engine.heap import store_tables, world_at
from netfold.sim.engine.links import (
    detach_words,
    dispatch,
    free_packet,
    put_by_call,
    take_packet,
    take_payload,
)
from netfold.sim.engine.memory_access import address_of, bits_at, bytes_at, copy_words, words_at
from netfold.sim.engine.sender import (
    acknowledge,
    arm,
    backed_off_ps,
    is_in_vain,
    jitter_ps,
    new_packet,
    pump,
    send_again,
)
from netfold.sim.engine.switches import copy_content
from netfold.sim.engine.switchml_stream import end_stream, packet_key, segment_of, write_result
from netfold.sim.engine.tables import (
    ATP_ACK,
    ATP_DATA,
    ATP_FORWARD,
    ATP_LOOP,
    ATP_RESULT,
    PLACE,
    STREAM_TIMER,
    Table,
    World,
    enlarge,
    records,
)
from netfold.switch.programs import atp
from netfold.switch.programs.atp import Entries, new_entries
from netfold.switch.registers import add_sticky


def add_server(world: World, job: Job, server: AtpServer) -> World:
    """World with the job's parameter server, its switch's entries, and its workers' windows."""
    number = world.jobs.size - 1
    servers = enlarge(world.servers, world.servers.size + 1)
    row = servers[-1]
    row.host, row.switch, row.loopback_link = server.host, job.switch, job.loopback_link
    row.route, row.entries, row.window_max = server.route, server.entries, server.window_max
    world.jobs[number].server = servers.size - 1
    sums = enlarge(world.sums, 2 * servers.size)
    sums["serial"][-2:] = -1
    total = place_entries(servers)
    places = records((world.streams.size, int(servers["window_max"].max())), PLACE)
    places[: world.places.shape[0], : world.places.shape[1]] = world.places
    first = int(world.jobs[number].first_stream)
    entries = first_entries(int(world.clock[0].seed), number, server.entries, server.window_max)
    places["entry"][first:, : server.window_max] = entries
    used = np.zeros((servers.size, int(servers["entries"].max())), np.int8)
    used[:-1, : world.used.shape[1]] = world.used
    used[-1, entries] = 1
    world.streams["window_max"][first:] = server.window_max
    frame_bytes = job.frame.overhead_bytes + 4 * job.frame.elements
    world.streams["window_bytes"][first:] = job.slots_count * frame_bytes
    kept = with_entries(world.entries, total, world.registers.values.shape[1])
    return world._replace(servers=servers, sums=sums, used=used, entries=kept, places=places)


def with_entries(old: Entries, count: int, words: int) -> Entries:
    """Entries that begin with the old ones: a switch keeps its range, new switches come behind it."""
    grown = new_entries(count, words)
    grown.rows[: len(old.rows)] = old.rows
    grown.values[: len(old.rows), : old.values.shape[1]] = old.values
    return grown


def place_entries(servers: Table) -> int:
    """Give each switch its own range of entries, shared by its jobs; returns all entries together."""
    sizes: dict[int, int] = {}
    for server in servers:
        sizes[int(server.switch)] = max(int(server.entries), sizes.get(int(server.switch), 0))
    total = 0
    for switch, size in sizes.items():
        servers["entry_base"][servers["switch"] == switch] = total
        total += size
    return total


def first_entries(seed: int, job: int, entries: int, count: int) -> list[int]:
    """Entries of a job's windows, by place: hashed and distinct."""
    hashed: list[int] = []
    taken: set[int] = set()
    for window_index in range(count):
        salt = 0
        while (entry := mix_plain(seed, rng_streams.FIRST_ENTRY, job, window_index, salt) % entries) in taken:
            salt += 1
        taken.add(entry)
        hashed.append(entry)
    return hashed


def open_sums(world: World, job: int, serial: int, units_count: int, has_floats: bool) -> list[object]:
    """Allocate a server's state for a stream, in place of the last but one; returns the arrays to pin."""
    row = world.sums[2 * int(world.jobs[job].server) + serial % 2]
    if row.serial == serial:
        return []
    arrays: dict[str, NDArray[Any]] = {
        "got": np.zeros(units_count, np.uint32),
        "state": np.zeros(units_count, np.int8),
        "replies": np.zeros(units_count, np.int32),
        "proposal": np.full(units_count, -2, np.int32),
        "words": np.zeros((units_count, int(world.jobs[job].sender.elements)), np.int32),
    }
    for name, array in arrays.items():
        row[name] = address_of(array)
    row.serial, row.units_count, row.has_floats = serial, units_count, has_floats
    return list(arrays.values())


# Flags of packets.
RESEND, FLOATS, COLLIDED, REQUEST = 1, 2, 4, 8


@kernel
def open_atp_stream(world: World, row: int) -> None:
    """Start the stream that `Engine` has written into `row`."""
    world.clock[0].at = store_tables(world)
    stream = world.streams[row]
    stream.is_open = 1
    stream.entry_order = -1
    stream.completed_count = stream.base = stream.next = stream.resent = stream.transmissions = 0
    on_open(stream, stream.window_bytes)
    pump(world, stream, world.places, row, send)
    stream.deadline_ps = world.clock[0].now_ps + world.jobs[stream.job].sender.first_timeout_ps
    arm(world, stream, STREAM_TIMER | row, stream.deadline_ps)


@inlined
def send(world: World, row: int, unit: int) -> None:
    send_by_call(world.clock[0].at, row, unit)


@kernel
def send_by_call(at: int, row: int, unit: int) -> None:
    """Send one unit to the switch, as integers or, where its sum overflowed, as floats."""
    world = world_at(at)
    stream = world.streams[row]
    job = world.jobs[stream.job]
    slot = unit % stream.window_max
    unit_state = world.places[row, slot]
    segment = world.segments[row, segment_of(world, row, unit)]
    index = new_packet(world, stream, row, unit, unit_state.attempt)
    packet = world.packets[index]
    packet.kind = ATP_DATA
    packet.transmission = -1
    packet.slot = slot
    packet.version = unit_state.entry
    packet.bits = np.uint32(1) << np.uint32(stream.worker)
    unit_state.sent_ps = world.clock[0].now_ps
    packet.size_bytes = frame_bytes(stream) + job.sender.first_bytes + job.sender.last_bytes
    packet.point = stream.point
    packet.child = stream.child
    packet.merge = 0
    packet.exponent = 0
    packet.workers = 1
    start = (unit - segment.first_unit) * job.sender.elements
    packet.words_count = min(job.sender.elements, segment.words_count - start)
    packet.words = segment.words + 4 * start
    if unit_state.attempt > 0:  # the switch evicts it
        packet.flags = RESEND
    if segment.is_float != 0 and bytes_at(segment.is_float, unit + 1)[unit - segment.first_unit]:
        packet.flags |= FLOATS
        packet.words = segment.floats + 4 * start
    if world.clock[0].is_keyed:
        packet.key = packet_key(world, index, rng_streams.WORKER_PACKET, stream.worker)
    put_by_call(world.clock[0].at, stream.first_link, index)


@inlined
def resend(world: World, row: int, stop: int) -> None:
    """Send all from the first unacknowledged unit to `stop` again."""
    stream = world.streams[row]
    send_again(world, stream, world.places, row, stop, stream.transmissions, send)


@kernel
def on_atp_result(at: int, index: int) -> None:
    """The server's answer has arrived at a worker."""
    world = world_at(at)
    packet = world.packets[index]
    row = packet.owner
    stream = world.streams[row]
    if not stream.is_open or packet.serial != stream.serial:
        stream.stale_results += 1
        return
    job = world.jobs[stream.job]
    unit = packet.unit
    stream.deadline_ps = world.clock[0].now_ps + job.sender.timeout_ps
    unit_state = world.places[row, unit % stream.window_max]
    if unit < stream.base or unit_state.acknowledged:
        stream.stale_results += 1
        return
    if packet.flags & REQUEST:
        on_request(world, row, unit)
        return
    if packet.transmission >= 0:
        unit_state.entry = packet.transmission
    store(world, row, index)
    unit_state.acknowledged = 1
    stream.completed_count += 1
    world.clock[0].progress += 1
    while stream.base < stream.next and world.places[row, stream.base % stream.window_max].acknowledged:
        stream.base += 1
    if stream.completed_count == stream.units_count:
        end_stream(world, row)
        return
    acknowledge(stream, unit, unit, packet.is_marked)
    first = first_acknowledged(world, row)
    if first >= 0 and stream.base >= stream.resent:
        stream.resent = first
        resend(world, row, first)
    pump(world, stream, world.places, row, send)


@inlined
def on_request(world: World, row: int, unit: int) -> None:
    """A sum has overflowed: send the unit's floats."""
    stream = world.streams[row]
    segment = world.segments[row, segment_of(world, row, unit)]
    is_float = bytes_at(segment.is_float, unit + 1)
    if not is_float[unit - segment.first_unit]:
        is_float[unit - segment.first_unit] = 1
        if unit < stream.next:  # else its turn comes, and it is sent as floats at once
            world.places[row, unit % stream.window_max].attempt += 1
            send(world, row, unit)


@inlined
def store(world: World, row: int, index: int) -> None:
    """Write a result's words, and whether they are floats."""
    packet = world.packets[index]
    segment = world.segments[row, segment_of(world, row, packet.unit)]
    unit = packet.unit - segment.first_unit
    if segment.is_float != 0:
        bytes_at(segment.is_float, unit + 1)[unit] = 1 if packet.flags & FLOATS else 0
    elements = world.jobs[world.streams[row].job].sender.elements
    address = segment.result if segment.shared == 0 else segment.shared
    write_result(world, segment, unit, address + 4 * unit * elements, index)


@inlined
def first_acknowledged(world: World, row: int) -> int:
    """The first acknowledged unit above the first unacknowledged one; −1 if there is none."""
    stream = world.streams[row]
    if stream.completed_count == stream.base:
        return -1
    for unit in range(stream.base + 1, stream.next):
        if world.places[row, unit % stream.window_max].acknowledged:
            return unit
    return -1


@kernel
def on_atp_timer(at: int, row: int) -> None:
    """No result has arrived for a timeout: send the oldest units again."""
    world = world_at(at)
    stream, now_ps = world.streams[row], world.clock[0].now_ps
    job = world.jobs[stream.job]
    unit_state = world.places[row, stream.base % stream.window_max]
    if stream.deadline_ps <= now_ps and is_in_vain(world, stream, unit_state.attempt, unit_state.sent_ps):
        stream.deadline_ps = now_ps + job.sender.timeout_ps
    elif stream.deadline_ps <= now_ps:
        stream.timeouts += 1
        first = first_acknowledged(world, row)
        resend(world, row, first if first >= 0 else stream.base + 1)
        timeout_ps = backed_off_ps(stream, job.sender.timeout_ps, unit_state.attempt)
        stream.deadline_ps = now_ps + timeout_ps
        stream.deadline_ps += jitter_ps(world, stream, job.sender.timeout_ps, stream.base, stream.timeouts)
    arm(world, stream, STREAM_TIMER | row, stream.deadline_ps)


# ATP's parameter server: completes the sums of the switch and answers every unit (atp.md).


# Flags of a unit.
MARKED, HAS_COLLIDED, IS_FLOAT, IS_DONE = 1, 2, 4, 8

TRIES = 64
"""The most entries that are tried to find a free one to propose."""


@kernel
def on_atp_forward(at: int, index: int) -> None:
    """A packet has arrived at the parameter server."""
    world = world_at(at)
    packet = world.packets[index]
    job = world.jobs[world.streams[packet.owner].job]
    world.points[packet.point].server_packets += 1
    row = 2 * job.server + (packet.serial & 1)
    record = world.sums[row]
    unit = packet.unit
    if packet.serial != record.serial or unit >= record.units_count:
        return
    state = bytes_at(record.state, record.units_count)
    if packet.is_marked:
        state[unit] |= MARKED
    if packet.flags & COLLIDED:
        state[unit] |= HAS_COLLIDED
    if state[unit] & IS_DONE:
        reply(world.clock[0].at, index, row, False)
        return
    is_float = packet.flags & FLOATS != 0
    if is_float and not state[unit] & IS_FLOAT:
        redo_as_floats(world, index, row)
    elif not is_float and state[unit] & IS_FLOAT:
        world.points[packet.point].requests += 1
        reply(world.clock[0].at, index, row, True)
        return
    if not add_words(world, index, row):
        return
    if not is_float and record.has_floats and has_overflowed(world, index, row):
        redo_as_floats(world, index, row)
        return
    state[unit] |= IS_DONE
    reply(world.clock[0].at, index, row, False)


@inlined
def redo_as_floats(world: World, index: int, row: int) -> None:
    """Discard a unit's integers and request floats from all workers."""
    packet, record = world.packets[index], world.sums[row]
    bytes_at(record.state, record.units_count)[packet.unit] |= IS_FLOAT
    bits_at(record.got, record.units_count)[packet.unit] = np.uint32(0)
    world.points[packet.point].requests += 1
    reply(world.clock[0].at, index, row, True)


@inlined
def add_words(world: World, index: int, row: int) -> bool:
    """Add a packet's words if all its workers are new or it holds all; returns whether the sum is full."""
    packet, record = world.packets[index], world.sums[row]
    job = world.jobs[world.streams[packet.owner].job]
    unit = packet.unit
    got = bits_at(record.got, record.units_count)
    full = np.uint32((np.uint64(1) << np.uint64(job.workers_count)) - np.uint64(1))
    total = words_at(record.words + 4 * unit * job.sender.elements, packet.words_count)
    words = world.payloads[packet.payload, : packet.words_count]
    is_float = packet.flags & FLOATS != 0
    if packet.bits == full and not is_float:
        got[unit] = np.uint32(0)
    if got[unit] & packet.bits:
        return False
    if got[unit] == 0:
        copy_words(total, words)
    elif is_float:
        float_add_words(total.view(np.float32), words.view(np.float32))
    else:
        add_sticky(total, words)
    got[unit] |= packet.bits
    return bool(got[unit] == full)


@inlined
def has_overflowed(world: World, index: int, row: int) -> bool:
    """Whether a complete sum has a word at the limit."""
    packet, record = world.packets[index], world.sums[row]
    elements = world.jobs[world.streams[packet.owner].job].sender.elements
    total = words_at(record.words + 4 * packet.unit * elements, packet.words_count)
    largest = np.int64(0)
    for i in range(total.size):
        largest = max(largest, abs(np.int64(total[i])))
    return bool(largest >= WORD_MAX)


@kernel
def reply(at: int, cause: int, row: int, is_request: bool) -> None:
    """Answer all workers, through the switch."""
    world = world_at(at)
    packet, record = world.packets[cause], world.sums[row]
    sender = world.streams[packet.owner]
    job = world.jobs[sender.job]
    server, unit = world.servers[job.server], packet.unit
    state = bytes_at(record.state, record.units_count)
    replies = words_at(record.replies, record.units_count)
    index = take_packet(world.clock, world.packets)
    answer = world.packets[index]
    lowest = 0
    while not (packet.bits >> np.uint32(lowest)) & np.uint32(1):
        lowest += 1
    answer.kind = ATP_ACK
    answer.target = server.switch
    answer.route = server.route
    answer.owner = job.first_stream + lowest
    answer.serial = packet.serial
    answer.unit = unit
    answer.part = 0
    answer.attempt = replies[unit]
    answer.slot = packet.slot
    answer.version = packet.version
    answer.point = packet.point
    answer.merge = 0
    answer.exponent = 0
    answer.workers = job.workers_count
    answer.bits = packet.bits
    answer.size_bytes = packet.size_bytes
    answer.words_count = packet.words_count
    answer.is_marked = 1 if state[unit] & MARKED else 0
    answer.transmission = -1
    if is_request:
        answer.flags = REQUEST
    else:
        answer.flags = FLOATS if state[unit] & IS_FLOAT else 0
        if state[unit] & HAS_COLLIDED:
            answer.transmission = propose_entry(world, sender.job, row, unit)
    replies[unit] += 1
    answer.payload = take_payload(world)
    total = words_at(record.words + 4 * unit * job.sender.elements, packet.words_count)
    copy_words(world.payloads[answer.payload], total)
    if world.clock[0].is_keyed:
        answer.key = packet_key(world, index, rng_streams.SERVER_REPLY, lowest)
    put_by_call(world.clock[0].at, world.nodes[server.host].first_set, index)


@inlined
def propose_entry(world: World, job: int, row: int, unit: int) -> int:
    """Propose an unused entry for a unit that collided; the same one every time."""
    record, server = world.sums[row], world.servers[world.jobs[job].server]
    proposals = words_at(record.proposal, record.units_count)
    if proposals[unit] != -2:
        return proposals[unit]
    used = world.used[world.jobs[job].server]
    proposals[unit] = -1
    for _ in range(TRIES):
        draw = mix(world.clock[0].seed, rng_streams.PROPOSED_ENTRY, job, server.proposals)
        candidate = int(draw % np.uint64(server.entries))
        server.proposals += 1
        if not used[candidate]:
            used[candidate] = 1
            proposals[unit] = candidate
            break
    return proposals[unit]


# ATP's switch: entries that aggregate; packets without an entry go to the server (atp.md).


@kernel
def on_atp_switch(at: int, index: int) -> None:
    """A packet of ATP has arrived at its switch."""
    world = world_at(at)
    packet = world.packets[index]
    if packet.kind == ATP_LOOP:
        forward(world.clock[0].at, index)
    elif packet.kind == ATP_ACK:
        on_acknowledgement(world, index)
    else:
        world.points[packet.point].packets += 1
        if packet.flags & FLOATS:
            world.points[packet.point].forwarded += 1
            forward(world.clock[0].at, index)
        else:
            aggregate(world.clock[0].at, index)


@inlined
def identity_of(world: World, index: int) -> int:
    """Identity that claims an entry for a packet: its job, stream and unit."""
    packet = world.packets[index]
    job = world.streams[packet.owner].job + 1
    return (job << 51) | (np.int64(packet.serial) << 31) | packet.unit


@kernel
def aggregate(at: int, index: int) -> None:
    """Aggregate a worker's integers in their entry."""
    world = world_at(at)
    packet = world.packets[index]
    point, job = world.points[packet.point], world.jobs[world.streams[packet.owner].job]
    entry = world.servers[job.server].entry_base + packet.version
    if packet.payload >= 0:
        words = world.payloads[packet.payload, : packet.words_count]
    else:
        words = words_at(packet.words, packet.words_count)
    is_resend = packet.flags & RESEND != 0
    verdict, overflowed = atp.process_packet(
        world.entries, entry, identity_of(world, index), packet.bits, job.workers_count, is_resend, words
    )
    point.overflowed_words += overflowed
    if verdict == atp.COLLIDED:
        if not is_resend:
            packet.flags |= COLLIDED
            point.collisions += 1
            world.clock[0].lost_ps = world.clock[0].now_ps  # only copies get others out of the entry
        point.forwarded += 1
        forward(world.clock[0].at, index)
        return
    world.entries.rows[entry].last_ps = world.clock[0].now_ps
    world.entries.rows[entry].is_marked |= packet.is_marked
    if verdict == atp.CONSUMED:
        free_packet(world, index)
        return
    if verdict == atp.DROPPED:
        point.duplicates_dropped += 1
        free_packet(world, index)
        return
    point.forwarded += 1
    point.results += verdict == atp.FORWARD_COMPLETE
    point.answers += verdict == atp.FORWARD_ANSWER
    point.evictions += verdict == atp.FORWARD_EVICT
    take_entry(world, index, entry)
    if verdict == atp.FORWARD_EVICT:
        atp.free(world.entries, entry)
    pass_again(world, index)


@inlined
def take_entry(world: World, index: int, entry: int) -> None:
    """Copy an entry's state into a packet."""
    packet = world.packets[index]
    if packet.payload < 0 or world.payload_uses[packet.payload] > 1:
        if packet.payload >= 0:
            world.payload_uses[packet.payload] -= 1
        packet.payload = take_payload(world)
    packet.words = 0
    copy_words(world.payloads[packet.payload], world.entries.values[entry, : packet.words_count])
    packet.bits = world.entries.rows[entry].bitmap
    packet.is_marked = world.entries.rows[entry].is_marked


@inlined
def pass_again(world: World, index: int) -> None:
    """Send a packet that leaves an entry over the loopback link, if there is one, for a second pass."""
    packet = world.packets[index]
    server = world.servers[world.jobs[world.streams[packet.owner].job].server]
    if server.loopback_link < 0:
        forward(world.clock[0].at, index)
        return
    packet.kind = ATP_LOOP
    packet.target = server.switch
    put_by_call(world.clock[0].at, server.loopback_link, index)


@kernel
def forward(at: int, index: int) -> None:
    """Send a packet on to the parameter server; detached from its sender's buffer."""
    world = world_at(at)
    packet = world.packets[index]
    server = world.servers[world.jobs[world.streams[packet.owner].job].server]
    detach_words(world, index)
    packet.kind = ATP_FORWARD
    packet.target = server.host
    packet.route = server.route
    dispatch(world.clock[0].at, server.switch, index)


@inlined
def on_acknowledgement(world: World, index: int) -> None:
    """The server's answer frees the entry and goes to all workers."""
    packet = world.packets[index]
    cause = world.streams[packet.owner]
    job = world.jobs[cause.job]
    server = world.servers[job.server]
    world.points[packet.point].acknowledged += 1
    if not packet.flags & REQUEST:
        atp.acknowledge(world.entries, server.entry_base + packet.version, identity_of(world, index))
    for worker in range(job.workers_count):
        row = job.first_stream + worker
        copy = copy_content(world, index)
        result = world.packets[copy]
        result.kind = ATP_RESULT
        result.receiver = worker
        result.owner = row
        result.target = world.streams[row].host
        result.route = world.streams[row].route
        result.transmission = packet.transmission
        result.is_marked = packet.is_marked
        if world.clock[0].is_keyed:
            result.key = packet_key(world, copy, rng_streams.SERVER_RESULT, 65536 * worker + cause.worker)
        dispatch(world.clock[0].at, server.switch, copy)
    free_packet(world, index)
