"""ATP's parameter server: completes the sums of the switch and answers every unit (README, ATP)."""

from __future__ import annotations

import numpy as np

from netfold.homomorphic.merge import float_add_words
from netfold.homomorphic.message import WORD_MAX
from netfold.kernels import purposes
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed import mix
from netfold.sim.engine.links.forward import put_by_call
from netfold.sim.engine.links.link import take_packet, take_payload
from netfold.sim.engine.tables.addresses import bits_at, bytes_at, copy_words, words_at
from netfold.sim.engine.tables.cold_calls import world_at
from netfold.sim.engine.tables.world import ATP_ACK, World
from netfold.sim.engine.transports.atp_worker import COLLIDED, FLOATS, REQUEST
from netfold.sim.engine.transports.stream import packet_key
from netfold.switch.registers import add_sticky

# Flags of a unit.
MARKED, HAS_COLLIDED, IS_FLOAT, IS_DONE = 1, 2, 4, 8

TRIES = 64  # for a free entry to propose


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
    total = words_at(record.words + 4 * unit * job.elements, packet.words_count)
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
    elements = world.jobs[world.streams[packet.owner].job].elements
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
    total = words_at(record.words + 4 * unit * job.elements, packet.words_count)
    copy_words(world.payloads[answer.payload], total)
    if world.clock[0].is_keyed:
        answer.key = packet_key(world, index, purposes.SERVER_REPLY, lowest)
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
        draw = mix(world.clock[0].seed, purposes.PROPOSED_ENTRY, job, server.proposals)
        candidate = int(draw % np.uint64(server.entries))
        server.proposals += 1
        if not used[candidate]:
            used[candidate] = 1
            proposals[unit] = candidate
            break
    return proposals[unit]
