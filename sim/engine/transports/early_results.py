"""Results that are there before their worker has sent its part: those of slots that did not wait for it."""

from __future__ import annotations

from netfold.homomorphic.kernels.compiled import inlined
from netfold.sim.engine.links.link import free_packet
from netfold.sim.engine.tables.world import World


@inlined
def keep(world: World, row: int, index: int) -> None:
    """Put a result behind those that a worker keeps."""
    stream = world.streams[row]
    world.packets[index].next = -1
    if stream.kept_head >= 0:
        world.packets[stream.kept_tail].next = index
    else:
        stream.kept_head = index
    stream.kept_tail = index


@inlined
def take_kept(world: World, row: int, unit: int) -> int:
    """Take the first kept result of a unit of the open stream; −1 if there is none."""
    stream = world.streams[row]
    before, index = -1, stream.kept_head
    while index >= 0:
        packet = world.packets[index]
        if packet.serial == stream.serial and packet.unit == unit:
            unlink(world, row, before, index)
            return index
        before, index = index, packet.next
    return -1


@inlined
def drop_kept(world: World, row: int) -> None:
    """Give up the kept results of streams before the one that opens."""
    stream = world.streams[row]
    before, index = -1, stream.kept_head
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
    """Take a result out of the kept ones; `before` is the one it follows, or −1."""
    stream, following = world.streams[row], world.packets[index].next
    if before >= 0:
        world.packets[before].next = following
    else:
        stream.kept_head = following
    if stream.kept_tail == index:
        stream.kept_tail = before
