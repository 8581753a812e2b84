"""Early results: they arrive before their worker has sent its own unit, from slots with timers."""

from __future__ import annotations

from netfold.kernels.compiled import inlined
from netfold.sim.engine.links.link import free_packet
from netfold.sim.engine.tables.world import World


@inlined
def store_early(world: World, row: int, index: int) -> None:
    """Append a result to a worker's early results."""
    stream = world.streams[row]
    world.packets[index].next = -1
    if stream.early_head >= 0:
        world.packets[stream.early_tail].next = index
    else:
        stream.early_head = index
    stream.early_tail = index


@inlined
def take_early(world: World, row: int, unit: int) -> int:
    """Take the first early result of a unit of the open stream; −1 if there is none."""
    stream = world.streams[row]
    before, index = -1, stream.early_head
    while index >= 0:
        packet = world.packets[index]
        if packet.serial == stream.serial and packet.unit == unit:
            unlink(world, row, before, index)
            return index
        before, index = index, packet.next
    return -1


@inlined
def drop_stale_early(world: World, row: int) -> None:
    """Drop early results of streams before the one that opens."""
    stream = world.streams[row]
    before, index = -1, stream.early_head
    while index >= 0:
        following = world.packets[index].next
        if world.packets[index].serial < stream.serial:
            unlink(world, row, before, index)
            stream.stale_results += 1
            free_packet(world, index)
        else:
            before = index
        index = following


@inlined
def unlink(world: World, row: int, before: int, index: int) -> None:
    """Remove a result from the early results; `before` is its predecessor, or −1."""
    stream, following = world.streams[row], world.packets[index].next
    if before >= 0:
        world.packets[before].next = following
    else:
        stream.early_head = following
    if stream.early_tail == index:
        stream.early_tail = before
