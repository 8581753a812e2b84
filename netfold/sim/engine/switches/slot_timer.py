"""Timers of slots, which then send partial results (README, TIMED)."""

from __future__ import annotations

from netfold.kernels.compiled import kernel
from netfold.sim.engine.links.link import take_packet, take_payload
from netfold.sim.engine.switches.egress import copy_header, leave, widen, wire_bytes
from netfold.sim.engine.tables.addresses import copy_words, zero_words
from netfold.sim.engine.tables.cold_calls import world_at
from netfold.sim.engine.tables.heap import push
from netfold.sim.engine.tables.world import ALL_CHILDREN, SLOT_TIMER
from netfold.switch.registers import OVERWRITE


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
    packet.version = slot.turn
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
