"""The event log: one row per event, while it is switched on."""

from __future__ import annotations

from netfold.kernels.compiled import kernel
from netfold.sim.engine.tables.cold_calls import world_at
from netfold.sim.engine.tables.world import FLOW_ACK, FLOW_DATA, HELD, SLOT_TIMER


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
    """Write a timer into the log."""
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
