"""Changes of the network at run time: rates, link failures, lost registers (README, Faults).

They are rare, so they are plain Python on the engine's tables.
"""

from __future__ import annotations

import numpy as np

from netfold.sim.engine.links.link import first_waiting, free_packet
from netfold.sim.engine.links.transmitter import first_waiting_ack, reschedule, stop, waiting_ps
from netfold.sim.engine.observe import inspect as inspection
from netfold.sim.engine.setup import allocate as tables
from netfold.sim.engine.tables.world import DELAYED, DOWN, LOST, ROW, World
from netfold.switch import registers
from netfold.switch.programs.atp import ENTRY


def set_rate(world: World, link: int, rate_bps: int) -> None:
    """Change a link's rate; what has not left its transmitter continues at the new rate."""
    row = world.links[link]
    is_down = row.buffer_ps == DOWN
    left_ps = waiting_ps(world, link) if is_down else stop(world, link)
    row.backlog_bytes_max = inspection.backlog_bytes_max(row)
    row.backlog_ps_max = 0
    tables.set_rate(row, rate_bps)
    if is_down:
        row.buffer_ps = DOWN
        row.busy_ps += waiting_ps(world, link) - left_ps
    elif left_ps:
        row.busy_ps += reschedule(world, link) - left_ps


def cut(world: World, link: int) -> None:
    """Take a link down: packets on its wire are lost, other packets wait until it is restored."""
    clock, row = world.clock[0], world.links[link]
    if row.buffer_ps == DOWN:
        return
    lane = int(clock.links_count) + link
    stop(world, link)
    waiting = {link: int(first_waiting(world, link)), lane: int(first_waiting_ack(world, link))}
    for index, first in waiting.items():
        lose_until(world, index, first)
        world.links[index].buffer_ps = DOWN
    row.wire_order = -1
    left = []
    for entry in world.heap[: clock.heap_count].tolist():
        kind, index = entry[2] & ~ROW, entry[2] & ROW
        if kind == DELAYED and world.packets[index].link == link:
            lose(world, index)
        elif entry[2] not in waiting:
            left.append(entry)
    left.sort()  # which a heap may be
    if left:
        world.heap[: len(left)] = np.array(left, world.heap.dtype)
    clock.heap_count = len(left)
    row.queued_bytes = sum(int(world.packets[packet].size_bytes) for packet in queue(world, link))
    row.begun_leaves_ps = world.links[lane].free_at_ps = clock.now_ps


def flush(world: World, link: int) -> None:
    """Lose the packets that wait on a link, if it is down."""
    row = world.links[link]
    if row.buffer_ps != DOWN:
        return
    for lane in (link, int(world.clock[0].links_count) + link):
        lose_until(world, lane, -1)
    row.queued_bytes = 0


def restore(world: World, link: int) -> None:
    """Bring a link up again; waiting packets go first."""
    row = world.links[link]
    if row.buffer_ps != DOWN:
        return
    tables.set_rate(row, int(row.rate_bps))
    world.links[int(world.clock[0].links_count) + link].buffer_ps = 0
    reschedule(world, link)


def queue(world: World, link: int) -> list[int]:
    """Packets in line on a link."""
    found = []
    for lane in (link, int(world.clock[0].links_count) + link):
        packet = int(world.links[lane].head)
        while packet >= 0:
            found.append(packet)
            packet = int(world.packets[packet].next)
    return found


def lose_until(world: World, lane: int, first: int) -> None:
    """Lose the packets in line on a link or its lane before a given one; −1: all."""
    row = world.links[lane]
    packet = int(row.head)
    while packet != first:
        following = int(world.packets[packet].next)
        lose(world, packet)
        packet = following
    row.head = first
    if first < 0:
        row.tail = -1


def lose(world: World, packet: int) -> None:
    """Lose a packet that a link has taken, if it is not lost already."""
    if world.packets[packet].struck != LOST:
        row, size_bytes = world.links[world.packets[packet].link], world.packets[packet].size_bytes
        row.lost_packets += 1
        row.lost_bytes += size_bytes
        world.clock[0].lost_ps = world.clock[0].now_ps
    free_packet(world, packet)


def clear(world: World, switch: int) -> None:
    """Reset all registers of a switch, and the packet numbers it keeps for workers."""
    world.clock[0].lost_ps = world.clock[0].now_ps
    for number, point in enumerate(world.points):
        if point.switch == switch:
            _clear_point(world, number)
    for server in world.servers:
        if server.switch == switch:
            rows = slice(int(server.entry_base), int(server.entry_base) + int(server.entries))
            world.entries.rows[rows] = np.zeros((), ENTRY)
            world.entries.values[rows] = 0


def release(world: World, job: int) -> None:
    """Reset the slots of a job that has ended, at all its switches. Entries, which jobs share, stay."""
    for number in np.flatnonzero(world.points["job"] == job):
        _clear_point(world, int(number))


def _clear_point(world: World, number: int) -> None:
    """Reset the slots of a point's job, and the packet numbers kept for the workers there."""
    point = world.points[number]
    job = world.jobs[point.job]
    first = 2 * (int(point.register_base) + int(job.slot_base))
    registers.clear(world.registers, slice(first, first + 2 * int(job.window) * int(job.unit_packets)))
    for row in np.flatnonzero(world.streams["point"] == number):
        world.windows["switch_expected_psn"][row] = -1
        world.windows["switch_psn"][row] = 0
