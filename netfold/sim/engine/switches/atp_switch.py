"""ATP's switch: entries that aggregate; packets without an entry go to the server (README, ATP)."""

from __future__ import annotations

import numpy as np

from netfold.kernels import purposes
from netfold.kernels.compiled import inlined, kernel
from netfold.sim.engine.links.forward import dispatch, put_by_call
from netfold.sim.engine.links.link import detach_words, free_packet, take_payload
from netfold.sim.engine.switches.egress import copy_content
from netfold.sim.engine.tables.addresses import copy_words, words_at
from netfold.sim.engine.tables.cold_calls import world_at
from netfold.sim.engine.tables.world import (
    ATP_ACK,
    ATP_FORWARD,
    ATP_LOOP,
    ATP_RESULT,
    World,
)
from netfold.sim.engine.transports.atp_worker import COLLIDED, FLOATS, REQUEST, RESEND
from netfold.sim.engine.transports.stream import packet_key
from netfold.switch.programs import atp


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
            result.key = packet_key(world, copy, purposes.SERVER_RESULT, 65536 * worker + cause.worker)
        dispatch(world.clock[0].at, server.switch, copy)
    free_packet(world, index)
