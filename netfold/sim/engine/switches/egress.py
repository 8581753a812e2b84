"""Packets that leave a point: results for its children and partials for its parent."""

from __future__ import annotations

from netfold.kernels import purposes
from netfold.kernels.compiled import inlined, kernel
from netfold.sim.engine.links.forward import dispatch, put_by_call, send_towards
from netfold.sim.engine.links.link import free_packet, take_packet, take_payload
from netfold.sim.engine.tables.addresses import copy_words
from netfold.sim.engine.tables.cold_calls import world_at
from netfold.sim.engine.tables.world import DATA, LOOP, PARENT, RESULT, SPLIT, TO_POINT, World
from netfold.sim.engine.transports.payload import result_address
from netfold.sim.engine.transports.stream import packet_key
from netfold.switch.registers import TABLE_ADD, merge_of


@kernel
def emit(at: int, cause: int, row: int, receiver: int) -> None:
    """Copy a slot into a result or partial and send it on its way, over the loopback where there is one.

    If the slot holds no worker, a header goes.
    """
    world = world_at(at)
    slot = world.registers.slots[row]
    index = copy_header(world, cause)
    result = world.packets[index]
    result.receiver = receiver
    result.exponent = slot.exponent
    result.workers = slot.workers
    result.bits = slot.members
    widen(world, cause, index)
    if slot.workers == 0 or world.packets[cause].workers == 0:
        result.size_bytes = wire_bytes(world, index, slot.workers != 0)
    if slot.workers != 0:
        result.payload = take_payload(world)
        values = world.registers.values[row, : result.words_count]
        copy_words(world.payloads[result.payload], values)
    leave(world.clock[0].at, index)


@inlined
def wire_bytes(world: World, index: int, has_words: bool) -> int:
    """Size of a result or partial on the wire, or of its header alone."""
    packet = world.packets[index]
    job = world.jobs[world.points[packet.point].job]
    size_bytes = job.overhead_bytes
    if packet.part == 0:
        size_bytes += job.first_bytes
    if packet.part == job.unit_packets - 1:
        size_bytes += job.last_bytes
    if has_words:
        size_bytes += 4 * job.elements * (job.lanes if merge_of(packet.merge) == TABLE_ADD else 1)
    return int(size_bytes)


@inlined
def widen(world: World, cause: int, index: int) -> None:
    """TABLE_ADD: size a result of a worker's packet for the lanes that its codes were lifted to."""
    packet, result = world.packets[cause], world.packets[index]
    if packet.table != 0:
        job = world.jobs[world.points[packet.point].job]
        result.words_count = job.lanes * packet.words_count
        result.size_bytes += 4 * (job.lanes - 1) * job.elements


@kernel
def leave(at: int, index: int) -> None:
    """Send a result or partial over its point's loopback link, or at once."""
    world = world_at(at)
    packet = world.packets[index]
    point = world.points[packet.point]
    packet.kind = LOOP
    if point.loopback_link < 0:
        replicate(world.clock[0].at, index)
        return
    packet.target = point.switch
    if world.clock[0].is_keyed:
        purpose = purposes.TIMER_LOOPBACK if packet.flags else purposes.LOOPBACK
        packet.key = packet_key(
            world, index, purpose, 65536 * point.index + world.streams[packet.owner].worker
        )
    put_by_call(world.clock[0].at, point.loopback_link, index)


@inlined
def copy_header(world: World, source: int) -> int:
    """A new packet with the header fields that responses to a packet repeat."""
    index = take_packet(world.clock, world.packets)
    old, new = world.packets[source], world.packets[index]
    new.size_bytes = old.size_bytes
    new.owner = old.owner
    new.serial = old.serial
    new.unit = old.unit
    new.part = old.part
    new.attempt = old.attempt
    new.words_count = old.words_count
    new.slot = old.slot
    new.version = old.version
    new.merge = old.merge
    new.point = old.point
    new.flags = old.flags
    new.copy = old.copy
    return index


@kernel
def replicate(at: int, index: int) -> None:
    """Send a result to its receivers, or a partial to the parent; the packet itself ends here."""
    world = world_at(at)
    packet = world.packets[index]
    point = world.points[packet.point]
    if packet.receiver == PARENT:
        send_to_point(world.clock[0].at, index, point.switch, point.parent, purposes.PARTIAL)
    else:
        first, count = point.first_receiver, point.receivers_count
        if packet.receiver >= 0:
            first, count = point.first_child + packet.receiver, 1
        send_copies(world.clock[0].at, index, point.switch, first, count)
    free_packet(world, index)


@kernel
def split(at: int, index: int) -> None:
    """A result has arrived at a split: send a copy to each receiver; the packet itself ends here."""
    world = world_at(at)
    row = world.splits[world.packets[index].receiver]
    row.packets += 1
    send_copies(world.clock[0].at, index, row.switch, row.first_receiver, row.receivers_count)
    free_packet(world, index)


@kernel
def send_copies(at: int, index: int, node: int, first: int, count: int) -> None:
    """Send copies of a result from a switch to receivers: rows of `children`."""
    world = world_at(at)
    for number in range(first, first + count):
        receiver = world.children[number]
        if receiver.stream >= 0:
            send_to_worker(world, index, node, receiver.stream)
        elif receiver.point >= 0:
            send_to_point(world.clock[0].at, index, node, receiver.point, purposes.DOWN_RESULT)
        else:
            send_to_split(world.clock[0].at, index, node, receiver.split)


@inlined
def copy_content(world: World, source: int) -> int:
    """A copy of a result or partial that shares its words."""
    copy = copy_header(world, source)
    old, new = world.packets[source], world.packets[copy]
    new.exponent = old.exponent
    new.workers = old.workers
    new.bits = old.bits
    new.payload = old.payload
    if old.payload >= 0:
        world.payload_uses[old.payload] += 1
    return copy


@inlined
def send_to_worker(world: World, index: int, node: int, row: int) -> None:
    """Send a copy of a result from a switch to a worker, with its next PSN."""
    packet, stream = world.packets[index], world.streams[row]
    copy = copy_content(world, index)
    result = world.packets[copy]
    result.kind = RESULT
    result.receiver = stream.child
    result.owner = row
    result.target = stream.host
    result.route = stream.route
    if result.payload >= 0:
        result.words = result_address(world, row, copy)
    result.transmission = world.windows[row, packet.slot].switch_psn
    world.windows[row, packet.slot].switch_psn += 1
    if world.clock[0].is_keyed:
        cause = world.streams[packet.owner].worker
        purpose = purposes.TIMER_RESULT if packet.flags else purposes.RESULT
        result.key = packet_key(world, copy, purpose, stream.worker * 65536 + cause)
    send_towards(world, node, copy)


@kernel
def send_to_split(at: int, index: int, node: int, row: int) -> None:
    """Send a copy of a result from a switch to a split."""
    world = world_at(at)
    packet, receiver = world.packets[index], world.splits[row]
    copy = copy_content(world, index)
    result = world.packets[copy]
    result.kind = SPLIT
    result.receiver = row
    result.transmission = -1
    result.target = receiver.switch
    result.route = receiver.route
    if world.clock[0].is_keyed:
        number = world.jobs[receiver.job].points_count + receiver.index
        cause = world.streams[packet.owner].worker
        result.key = packet_key(world, copy, purposes.DOWN_RESULT, number * 65536 + cause)
    dispatch(world.clock[0].at, node, copy)


@kernel
def send_to_point(at: int, index: int, node: int, row: int, purpose: int) -> None:
    """Send a copy of a partial to the parent (PARTIAL) or of a result to a child that is a point."""
    world = world_at(at)
    packet = world.packets[index]
    here = world.points[packet.point]
    lower = here if purpose == purposes.PARTIAL else world.points[row]
    copy = copy_content(world, index)
    result = world.packets[copy]
    if purpose == purposes.PARTIAL:
        result.kind = DATA
        result.child = here.child
    else:
        result.kind = RESULT
        result.receiver = TO_POINT
    result.transmission = -1
    result.point = row
    result.target = world.points[row].switch
    result.route = lower.route
    if world.clock[0].is_keyed:
        cause = world.streams[packet.owner].worker
        result.key = packet_key(world, copy, purpose, lower.index * 65536 + cause)
    dispatch(world.clock[0].at, node, copy)
