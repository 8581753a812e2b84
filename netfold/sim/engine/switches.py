"""Packet processing at switches: aggregation, egress, slot timers, ATP."""

from __future__ import annotations

import numpy as np

from netfold.homomorphic.merge import lift_words, survival
from netfold.kernels import rng_streams
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed_random import mix
from netfold.sim.engine.heap import call_cold, push, world_at
from netfold.sim.engine.links import (
    dispatch,
    free_packet,
    put_by_call,
    send_towards,
    take_packet,
    take_payload,
)
from netfold.sim.engine.memory_access import copy_words, words_at, zero_words
from netfold.sim.engine.switchml_stream import packet_key, result_address
from netfold.sim.engine.tables import (
    ADD_LANES,
    ALL_CHILDREN,
    DATA,
    EMIT,
    LIFT,
    LOOP,
    MERGE_WITHOUT_OVERFLOW,
    PARENT,
    RESULT,
    SEND_EMPTY_RESULT,
    SLOT_TIMER,
    SPLIT,
    TO_POINT,
    UPDATE_SLOT_TIMER,
    World,
)
from netfold.switch import registers
from netfold.switch.program import Machine
from netfold.switch.programs import switchml, timed, tree
from netfold.switch.registers import (
    ANSWER,
    ANSWERED,
    COMPLETE,
    DROPPED,
    EXPIRED,
    LATE,
    MERGE,
    OVERWRITE,
    READ,
    TABLE_ADD,
    merge_of,
)

# Packets that leave a point: results for its children and partials for its parent.


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
    size_bytes = job.sender.overhead_bytes
    if packet.part == 0:
        size_bytes += job.sender.first_bytes
    if packet.part == job.unit_packets - 1:
        size_bytes += job.sender.last_bytes
    if has_words:
        size_bytes += 4 * job.sender.elements * (job.lanes if merge_of(packet.merge) == TABLE_ADD else 1)
    return int(size_bytes)


@inlined
def widen(world: World, cause: int, index: int) -> None:
    """TABLE_ADD: size a result of a worker's packet for the lanes that its codes were lifted to."""
    packet, result = world.packets[cause], world.packets[index]
    if packet.table != 0:
        job = world.jobs[world.points[packet.point].job]
        result.words_count = job.lanes * packet.words_count
        result.size_bytes += 4 * (job.lanes - 1) * job.sender.elements


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
        rng_stream = rng_streams.TIMER_LOOPBACK if packet.flags else rng_streams.LOOPBACK
        packet.key = packet_key(
            world, index, rng_stream, 65536 * point.index + world.streams[packet.owner].worker
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
        send_to_point(world.clock[0].at, index, point.switch, point.parent, rng_streams.PARTIAL)
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
            send_to_point(world.clock[0].at, index, node, receiver.point, rng_streams.DOWN_RESULT)
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
        rng_stream = rng_streams.TIMER_RESULT if packet.flags else rng_streams.RESULT
        result.key = packet_key(world, copy, rng_stream, stream.worker * 65536 + cause)
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
        result.key = packet_key(world, copy, rng_streams.DOWN_RESULT, number * 65536 + cause)
    dispatch(world.clock[0].at, node, copy)


@kernel
def send_to_point(at: int, index: int, node: int, row: int, rng_stream: int) -> None:
    """Send a copy of a partial to the parent (PARTIAL) or of a result to a child that is a point."""
    world = world_at(at)
    packet = world.packets[index]
    sender = world.points[packet.point]
    lower = sender if rng_stream == rng_streams.PARTIAL else world.points[row]
    copy = copy_content(world, index)
    result = world.packets[copy]
    if rng_stream == rng_streams.PARTIAL:
        result.kind = DATA
        result.child = sender.child
    else:
        result.kind = RESULT
        result.receiver = TO_POINT
    result.transmission = -1
    result.point = row
    result.target = world.points[row].switch
    result.route = lower.route
    if world.clock[0].is_keyed:
        cause = world.streams[packet.owner].worker
        result.key = packet_key(world, copy, rng_stream, lower.index * 65536 + cause)
    dispatch(world.clock[0].at, node, copy)


# The switches of a job's tree: front end, state machine, and the slot's words.


SWITCHML, TREE, TIMED = int(Machine.SWITCHML), int(Machine.TREE), int(Machine.TIMED)


@inlined
def on_data(world: World, index: int) -> None:
    """A child's packet has arrived at its point; the packet ends here."""
    packet = world.packets[index]
    point = world.points[packet.point]
    job = world.jobs[point.job]
    point.packets += 1
    if packet.transmission >= 0 and not advance_front_end(world, index):
        point.discarded += 1
        free_packet(world, index)
        return
    row = register_row(world, index)
    verdict, action = process(world, index, row)
    record_last_event(world, row, packet.child, verdict)
    if action != READ:
        take_words(world, index, row, action)
    if job.program == TIMED:
        call_cold(world.clock[0].handlers, world.clock[0].at, UPDATE_SLOT_TIMER, index, row, action)
    if verdict in (COMPLETE, ANSWER, LATE):
        receiver = choose_receiver(world, index, row, verdict)
        call_cold(world.clock[0].handlers, world.clock[0].at, EMIT, index, row, receiver)
    elif verdict == DROPPED:
        point.duplicates_dropped += 1
    elif verdict == EXPIRED:
        call_cold(world.clock[0].handlers, world.clock[0].at, SEND_EMPTY_RESULT, index, 0, 0)
    free_packet(world, index)


@inlined
def choose_receiver(world: World, index: int, row: int, verdict: int) -> int:
    """Choose and count the receiver of a result: all children, the child that retransmits, or the parent."""
    packet = world.packets[index]
    point = world.points[packet.point]
    if verdict == COMPLETE:
        if point.parent < 0:
            point.results += 1
            return ALL_CHILDREN
        point.partials += 1
        return PARENT
    if verdict == LATE:
        point.late += 1
        return packet.child
    if point.parent < 0 or world.registers.slots[row].is_answered:
        point.answers += 1
        return packet.child
    point.partials += 1
    return PARENT


@inlined
def advance_front_end(world: World, index: int) -> bool:
    """Check and record a packet's PSN; returns whether it passes.

    RoCE: a message's packets pass while PSNs follow each other; a gap discards the rest of it.
    """
    packet = world.packets[index]
    window = world.windows[packet.owner, packet.slot]
    if packet.part == 0 or packet.transmission == window.switch_expected_psn:
        window.switch_expected_psn = packet.transmission + 1
        return True
    window.switch_expected_psn = -1
    world.clock[0].lost_ps = world.clock[0].now_ps  # the unit needs a copy, even if its packets only overtook
    return False


@inlined
def register_row(world: World, index: int) -> int:
    """Row of the registers that a packet of a stream belongs to."""
    packet = world.packets[index]
    point = world.points[packet.point]
    job = world.jobs[point.job]
    slot = point.register_base + job.slot_base + packet.slot * job.unit_packets + packet.part
    return 2 * slot if job.program == TREE else 2 * slot + (packet.version & 1)


@inlined
def process(world: World, index: int, row: int) -> tuple[int, int]:
    """Take a packet through its job's state machine; returns its verdict and the action on its words."""
    packet = world.packets[index]
    point, slots = world.points[packet.point], world.registers.slots
    program = world.jobs[point.job].program
    if program == SWITCHML:
        return switchml.process_packet(slots, row, packet.child, point.children_count, packet.exponent)
    if program == TREE:
        return tree.process_packet(slots, row, packet.child, point.children_count, packet.exponent)
    return timed.process_packet(slots, row, packet.child, point.children_count, packet.version)


@inlined
def record_last_event(world: World, row: int, child: int, verdict: int) -> None:
    """Record the last event of a slot, for diagnosis."""
    slot = world.registers.slots[row]
    slot.last_ps = world.clock[0].now_ps
    slot.last_child = child
    slot.last_verdict = verdict


@inlined
def take_words(world: World, index: int, row: int, action: int) -> None:
    """Merge a packet's words into a slot, or overwrite a slot that holds no worker."""
    packet, slot = world.packets[index], world.registers.slots[row]
    if action == OVERWRITE:
        slot.workers = 0
        slot.members = np.uint32(0)
    if packet.workers == 0:
        return
    if packet.table != 0:
        action = OVERWRITE if slot.workers == 0 else MERGE
        call_cold(world.clock[0].handlers, world.clock[0].at, LIFT, index, row, action)
    else:
        if packet.payload >= 0:
            words = world.payloads[packet.payload, : packet.words_count]
        else:
            words = words_at(packet.words, packet.words_count)
        values = world.registers.values[row, : words.size]
        point = world.points[packet.point]
        job = world.jobs[point.job]
        if slot.workers == 0:
            copy_words(values, words)
        elif packet.merge == registers.ADD or packet.merge == registers.TABLE_ADD:
            point.overflowed_words += registers.add(values, words, job.overflow)
        elif registers.has_narrow_lanes(packet.merge):
            call_cold(world.clock[0].handlers, world.clock[0].at, ADD_LANES, index, row, 0)
        else:
            call_cold(world.clock[0].handlers, world.clock[0].at, MERGE_WITHOUT_OVERFLOW, index, row, 0)
    slot.workers += packet.workers
    slot.members |= packet.bits


@kernel
def merge_without_overflow(at: int, index: int, row: int) -> None:
    """Merge a packet's words into a slot's in another way than by adding integers."""
    world = world_at(at)
    packet = world.packets[index]
    if packet.payload >= 0:
        words = world.payloads[packet.payload, : packet.words_count]
    else:
        words = words_at(packet.words, packet.words_count)
    values = world.registers.values[row, : words.size]
    threshold, key = np.int64(0), np.uint64(0)
    if packet.merge == registers.SIGN:
        threshold, key = sign_draw(world, index, world.registers.slots[row].workers)
    registers.merge_without_overflow(values, words, packet.merge, threshold, key)


@inlined
def sign_draw(world: World, index: int, held: int) -> tuple[np.int64, np.uint64]:
    """Probability that the slot's bit survives a merge, times 2^32, and the key of the draws."""
    packet = world.packets[index]
    point = world.points[packet.point]
    sender = 65536 * point.index + packet.child
    threshold = survival(held, packet.workers)
    key = mix(
        world.clock[0].seed,
        rng_streams.SIGN_MERGE,
        point.job,
        sender,
        packet.serial,
        packet.unit,
        packet.part,
    )
    return threshold, key


@kernel
def add_narrow_lanes(at: int, index: int, row: int) -> None:
    """Add a packet's lanes of less than 32 bits to a slot's."""
    world = world_at(at)
    packet = world.packets[index]
    if packet.payload >= 0:
        words = world.payloads[packet.payload, : packet.words_count]
    else:
        words = words_at(packet.words, packet.words_count)
    values = world.registers.values[row, : words.size]
    point = world.points[packet.point]
    overflow = world.jobs[point.job].overflow
    bits = registers.lane_bits_of(packet.merge)
    point.overflowed_words += registers.add_lanes(values, words, bits, overflow)


@kernel
def take_lifted(at: int, index: int, row: int, action: int) -> None:
    """TABLE_ADD: overwrite a slot with the table's values of a packet's codes, or add them."""
    world = world_at(at)
    packet = world.packets[index]
    point = world.points[packet.point]
    job = world.jobs[point.job]
    if packet.payload >= 0:
        codes = world.payloads[packet.payload, : packet.words_count]
    else:
        codes = words_at(packet.words, packet.words_count)
    count, bits = job.lanes * packet.words_count, registers.lane_bits_of(packet.merge)
    values = world.registers.values[row, :count]
    if action == OVERWRITE:
        lift_words(codes.view(np.uint32), words_at(packet.table, 16), values, bits)
        return
    scratch = take_payload(world)
    lifted = world.payloads[scratch, :count]
    lift_words(codes.view(np.uint32), words_at(packet.table, 16), lifted, bits)
    point.overflowed_words += registers.add_lanes(values, lifted, bits, job.overflow)
    world.payload_uses[scratch] = 0
    world.payload_free[world.clock[0].payload_free_count] = scratch
    world.clock[0].payload_free_count += 1


@kernel
def on_parent_result(at: int, index: int) -> None:
    """A result from the parent has arrived: store it for retransmissions, and forward it."""
    world = world_at(at)
    packet = world.packets[index]
    point = world.points[packet.point]
    if world.jobs[point.job].program != TREE:
        row = register_row(world, index)
        slot = world.registers.slots[row]
        if slot.is_answered:
            point.stale_results += 1
            free_packet(world, index)
            return
        record_last_event(world, row, -1, ANSWERED)
        slot.is_answered = 1
        slot.exponent = packet.exponent
        slot.workers = packet.workers
        slot.members = packet.bits
        if packet.payload >= 0:
            words = world.payloads[packet.payload, : packet.words_count]
            copy_words(world.registers.values[row], words)
    point.installed += 1
    packet.receiver = ALL_CHILDREN
    replicate(world.clock[0].at, index)


# Timers of slots, which then send partial results (aggregation-streams.md).


@kernel
def update_slot_timer(at: int, index: int, row: int, action: int) -> None:
    """Arm the timer of a row that a packet has restarted; void the timer of a row that has answered."""
    world = world_at(at)
    clock, packet, slot = world.clock[0], world.packets[index], world.registers.slots[row]
    job = world.jobs[world.points[packet.point].job]
    if action == OVERWRITE:
        slot.owner = packet.owner
        slot.serial = packet.serial
        slot.unit = packet.unit
        slot.attempt = packet.attempt
        slot.merge = packet.merge
        slot.words_count = packet.words_count * (job.lanes if packet.table != 0 else 1)
        slot.timer_order = clock.order
        clock.order += 1
    if slot.is_emitted:
        slot.timer_order = -1
    elif action == OVERWRITE:
        time_ps = clock.now_ps + job.slot_timer_ps
        push(world.heap, clock.heap_count, time_ps, slot.timer_order, SLOT_TIMER | row)
        clock.heap_count += 1


@kernel
def send_empty_result(at: int, index: int) -> None:
    """Send a worker words of zero without holders: its row now belongs to a later unit."""
    world = world_at(at)
    packet = world.packets[index]
    world.points[packet.point].expired += 1
    empty = copy_header(world, index)
    reply = world.packets[empty]
    widen(world, index, empty)
    reply.size_bytes = wire_bytes(world, empty, True)
    reply.receiver = packet.child
    reply.exponent = 0
    reply.workers = 0
    reply.bits = 0
    reply.payload = take_payload(world)
    zero_words(world.payloads[reply.payload])
    leave(world.clock[0].at, empty)


@kernel
def on_slot_timer(at: int, row: int) -> None:
    """A row's timer has expired: send its partial result to all workers."""
    world = world_at(at)
    slot = world.registers.slots[row]
    stream = world.streams[slot.owner]
    point, job = world.points[stream.point], world.jobs[stream.job]
    slot.timer_order = -1
    slot.is_emitted = 1
    point.timed_out += 1
    index = take_packet(world.clock, world.packets)
    packet = world.packets[index]
    packet.owner = slot.owner
    packet.serial = slot.serial
    packet.unit = slot.unit
    packet.part = 0
    packet.attempt = slot.attempt
    packet.words_count = slot.words_count
    packet.slot = (row >> 1) - point.register_base - job.slot_base
    packet.version = slot.generation
    packet.merge = slot.merge
    packet.point = stream.point
    packet.flags = 1
    packet.receiver = ALL_CHILDREN
    packet.exponent = slot.exponent
    packet.workers = slot.workers
    packet.bits = slot.members
    packet.size_bytes = wire_bytes(world, index, slot.workers != 0)
    if slot.workers != 0:
        packet.payload = take_payload(world)
        words = world.registers.values[row, : packet.words_count]
        copy_words(world.payloads[packet.payload], words)
    leave(world.clock[0].at, index)
