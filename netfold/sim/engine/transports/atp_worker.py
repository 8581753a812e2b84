"""ATP's worker: a window of units, answered by the parameter server (README, ATP)."""

from __future__ import annotations

import numpy as np

from netfold.kernels import purposes
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed import mix
from netfold.sim.engine.links.forward import put_by_call
from netfold.sim.engine.links.link import take_packet
from netfold.sim.engine.tables.addresses import bytes_at
from netfold.sim.engine.tables.cold_calls import store_tables, world_at
from netfold.sim.engine.tables.heap import push
from netfold.sim.engine.tables.world import (
    ATP_DATA,
    STREAM_TIMER,
    World,
)
from netfold.sim.engine.transports.payload import segment_of, write_result
from netfold.sim.engine.transports.stream import (
    JITTER_SHARE,
    backed_off_ps,
    end_stream,
    is_in_vain,
    packet_key,
)

# Flags of packets.
RESEND, FLOATS, COLLIDED, REQUEST = 1, 2, 4, 8

INCREASE_BYTES = 1500  # of the window, once a window without marks


@kernel
def open_atp_stream(world: World, row: int) -> None:
    """Start the stream that `Engine` has written into `row`."""
    world.clock[0].at = store_tables(world)
    stream = world.streams[row]
    stream.is_open = 1
    stream.completed_count = stream.base = stream.next = stream.resent = 0
    stream.window_end = window_packets(world, row) - 1
    pump(world.clock[0].at, row)
    stream.deadline_ps = world.clock[0].now_ps + world.jobs[stream.job].first_timeout_ps
    arm(world, row)


@inlined
def window_packets(world: World, row: int) -> int:
    """Packets that a worker may have outstanding."""
    stream = world.streams[row]
    return stream.window_bytes // frame_bytes(world, row)


@inlined
def frame_bytes(world: World, row: int) -> int:
    """Bytes that a packet counts in a worker's window."""
    job = world.jobs[world.streams[row].job]
    return job.overhead_bytes + 4 * job.elements


@inlined
def arm(world: World, row: int) -> None:
    """Set the stream's timer to its deadline."""
    clock, stream = world.clock[0], world.streams[row]
    stream.armed_ps = stream.deadline_ps
    stream.armed_order = clock.order
    push(world.heap, clock.heap_count, stream.deadline_ps, clock.order, STREAM_TIMER | row)
    clock.heap_count += 1
    clock.order += 1


@kernel
def pump(at: int, row: int) -> None:
    """Send the units that the window allows."""
    world = world_at(at)
    stream = world.streams[row]
    server = world.servers[world.jobs[stream.job].server]
    while stream.next < min(stream.units_count, stream.base + window_packets(world, row)):
        place = world.places[row, stream.next % server.window_max]
        place.attempt = 0
        place.acknowledged = 0
        send(world.clock[0].at, row, stream.next, 0)
        stream.next += 1


@kernel
def send_again(at: int, row: int, stop: int) -> None:
    """Send all from the first unacknowledged unit to `stop` again; the switch evicts them."""
    world = world_at(at)
    stream = world.streams[row]
    server = world.servers[world.jobs[stream.job].server]
    for unit in range(stream.base, stop):
        world.places[row, unit % server.window_max].attempt += 1
        send(world.clock[0].at, row, unit, RESEND)


@kernel
def send(at: int, row: int, unit: int, flags: int) -> None:
    """Send one unit to the switch, as integers or, where its sum overflowed, as floats."""
    world = world_at(at)
    stream = world.streams[row]
    job = world.jobs[stream.job]
    slot = unit % world.servers[job.server].window_max
    place = world.places[row, slot]
    segment = world.segments[row, segment_of(world, row, unit)]
    index = take_packet(world.clock, world.packets)
    packet = world.packets[index]
    packet.kind = ATP_DATA
    packet.target = world.servers[job.server].switch
    packet.route = stream.route
    packet.owner = row
    packet.serial = stream.serial
    packet.unit = unit
    packet.part = 0
    packet.attempt = place.attempt
    packet.transmission = -1
    packet.slot = slot
    packet.version = place.entry
    packet.bits = np.uint32(1) << np.uint32(stream.worker)
    place.sent_ps = world.clock[0].now_ps
    packet.size_bytes = frame_bytes(world, row) + job.first_bytes + job.last_bytes
    packet.point = stream.point
    packet.child = stream.child
    packet.merge = 0
    packet.exponent = 0
    packet.workers = 1
    start = (unit - segment.first_unit) * job.elements
    packet.words_count = min(job.elements, segment.words_count - start)
    packet.words = segment.words + 4 * start
    packet.flags = flags
    if segment.is_float != 0 and bytes_at(segment.is_float, unit + 1)[unit - segment.first_unit]:
        packet.flags |= FLOATS
        packet.words = segment.floats + 4 * start
    if place.attempt > 0:
        stream.retransmitted_packets += 1
    if world.clock[0].is_keyed:
        packet.key = packet_key(world, index, purposes.WORKER_PACKET, stream.worker)
    put_by_call(world.clock[0].at, stream.first_link, index)


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
    window_max = world.servers[job.server].window_max
    unit = packet.unit
    stream.deadline_ps = world.clock[0].now_ps + job.timeout_ps
    place = world.places[row, unit % window_max]
    if unit < stream.base or place.acknowledged:
        stream.stale_results += 1
        return
    if packet.flags & REQUEST:
        on_request(world, row, unit)
        return
    if packet.transmission >= 0:
        place.entry = packet.transmission
    store(world, row, index)
    place.acknowledged = 1
    stream.completed_count += 1
    world.clock[0].progress += 1
    while stream.base < stream.next and world.places[row, stream.base % window_max].acknowledged:
        stream.base += 1
    if stream.completed_count == stream.units_count:
        end_stream(world, row)
        return
    is_window_end = unit == stream.window_end
    if is_window_end and world.servers[job.server].is_adaptive:
        adapt_window(world, row, packet.is_marked)
    first = first_acknowledged(world, row)
    if first >= 0 and stream.base >= stream.resent:
        stream.resent = first
        send_again(world.clock[0].at, row, first)
    pump(world.clock[0].at, row)
    if is_window_end:
        stream.window_end = max(stream.next - 1, unit + 1)


@inlined
def on_request(world: World, row: int, unit: int) -> None:
    """A sum has overflowed: send the unit's floats."""
    stream = world.streams[row]
    segment = world.segments[row, segment_of(world, row, unit)]
    is_float = bytes_at(segment.is_float, unit + 1)
    if not is_float[unit - segment.first_unit]:
        is_float[unit - segment.first_unit] = 1
        if unit < stream.next:  # else its turn comes, and it is sent as floats at once
            world.places[row, unit % world.servers[world.jobs[stream.job].server].window_max].attempt += 1
            send(world.clock[0].at, row, unit, 0)


@inlined
def store(world: World, row: int, index: int) -> None:
    """Write a result's words, and whether they are floats."""
    packet = world.packets[index]
    segment = world.segments[row, segment_of(world, row, packet.unit)]
    unit = packet.unit - segment.first_unit
    if segment.is_float != 0:
        bytes_at(segment.is_float, unit + 1)[unit] = 1 if packet.flags & FLOATS else 0
    elements = world.jobs[world.streams[row].job].elements
    address = segment.result if segment.shared == 0 else segment.shared
    write_result(world, segment, unit, address + 4 * unit * elements, index)


@inlined
def adapt_window(world: World, row: int, is_marked: int) -> None:
    """Additive increase, multiplicative decrease, once a window."""
    stream = world.streams[row]
    frame = frame_bytes(world, row)
    if is_marked:
        stream.window_bytes = max(frame, stream.window_bytes // 2)
    else:
        window_max = world.servers[world.jobs[stream.job].server].window_max
        stream.window_bytes = min(window_max * frame, stream.window_bytes + INCREASE_BYTES)


@inlined
def first_acknowledged(world: World, row: int) -> int:
    """The first acknowledged unit above the first unacknowledged one; −1 if there is none."""
    stream = world.streams[row]
    window_max = world.servers[world.jobs[stream.job].server].window_max
    if stream.completed_count == stream.base:
        return -1
    for unit in range(stream.base + 1, stream.next):
        if world.places[row, unit % window_max].acknowledged:
            return unit
    return -1


@kernel
def on_atp_timer(at: int, row: int) -> None:
    """No result has arrived for a timeout: send the oldest units again."""
    world = world_at(at)
    stream, now_ps = world.streams[row], world.clock[0].now_ps
    job = world.jobs[stream.job]
    place = world.places[row, stream.base % world.servers[job.server].window_max]
    if stream.deadline_ps <= now_ps and is_in_vain(world, job.waits_for_loss, place.attempt, place.sent_ps):
        stream.deadline_ps = now_ps + job.timeout_ps
    elif stream.deadline_ps <= now_ps:
        stream.timeouts += 1
        first = first_acknowledged(world, row)
        send_again(world.clock[0].at, row, first if first >= 0 else stream.base + 1)
        timeout_ps = job.timeout_ps
        draw = mix(
            world.clock[0].seed,
            purposes.JITTER,
            stream.job,
            stream.worker,
            stream.serial,
            stream.base,
            stream.timeouts,
        )
        jitter_ps = int(draw % np.uint64(max(timeout_ps // JITTER_SHARE, 1)))
        stream.deadline_ps = now_ps + backed_off_ps(job, timeout_ps, place.attempt) + jitter_ps
    arm(world, row)
