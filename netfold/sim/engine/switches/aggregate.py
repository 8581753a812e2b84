"""The switches of a job's tree: front end, state machine, and the slot's words."""

from __future__ import annotations

import numpy as np

from netfold.homomorphic.merge import lift_words, survival
from netfold.kernels import purposes
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed import mix
from netfold.sim.engine.links.link import free_packet, take_payload
from netfold.sim.engine.switches.egress import emit, replicate
from netfold.sim.engine.tables.addresses import copy_words, words_at
from netfold.sim.engine.tables.cold_calls import call_cold, world_at
from netfold.sim.engine.tables.world import (
    ADD_LANES,
    ALL_CHILDREN,
    LIFT,
    PARENT,
    SEND_EMPTY_RESULT,
    UPDATE_SLOT_TIMER,
    World,
)
from netfold.switch import registers as arithmetic
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
)

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
        call_cold(world.clock[0].rare, world.clock[0].at, UPDATE_SLOT_TIMER, index, row, action)
    if verdict in (COMPLETE, ANSWER, LATE):
        emit(world.clock[0].at, index, row, choose_receiver(world, index, row, verdict))
    elif verdict == DROPPED:
        point.duplicates_dropped += 1
    elif verdict == EXPIRED:
        call_cold(world.clock[0].rare, world.clock[0].at, SEND_EMPTY_RESULT, index, 0, 0)
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
        call_cold(world.clock[0].rare, world.clock[0].at, LIFT, index, row, action)
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
        elif packet.merge == arithmetic.ADD or packet.merge == arithmetic.TABLE_ADD:
            point.overflowed_words += arithmetic.add(values, words, job.overflow)
        elif arithmetic.has_narrow_lanes(packet.merge):
            call_cold(world.clock[0].rare, world.clock[0].at, ADD_LANES, index, row, 0)
        else:
            threshold, key = np.int64(0), np.uint64(0)
            if packet.merge == arithmetic.SIGN:
                threshold, key = sign_draw(world, index, slot.workers)
            arithmetic.merge_otherwise(values, words, packet.merge, threshold, key)
    slot.workers += packet.workers
    slot.members |= packet.bits


@inlined
def sign_draw(world: World, index: int, held: int) -> tuple[np.int64, np.uint64]:
    """Probability that the slot's bit survives a merge, times 2^32, and the key of the draws."""
    packet = world.packets[index]
    point = world.points[packet.point]
    sender = 65536 * point.index + packet.child
    threshold = survival(held, packet.workers)
    key = mix(
        world.clock[0].seed, purposes.SIGN_MERGE, point.job, sender, packet.serial, packet.unit, packet.part
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
    bits = arithmetic.lane_bits_of(packet.merge)
    point.overflowed_words += arithmetic.add_lanes(values, words, bits, overflow)


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
    count, bits = job.lanes * packet.words_count, arithmetic.lane_bits_of(packet.merge)
    values = world.registers.values[row, :count]
    if action == OVERWRITE:
        lift_words(codes.view(np.uint32), words_at(packet.table, 16), values, bits)
        return
    scratch = take_payload(world)
    lifted = world.payloads[scratch, :count]
    lift_words(codes.view(np.uint32), words_at(packet.table, 16), lifted, bits)
    point.overflowed_words += arithmetic.add_lanes(values, lifted, bits, job.overflow)
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
