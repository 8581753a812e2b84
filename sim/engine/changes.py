"""What happens to the network at a moment: links change or fail, registers are lost (README, Faults).

Rare, so in plain Python on the engine's tables.
"""

from __future__ import annotations

import heapq

import numpy as np

from sim.engine import tables
from sim.engine.link import free_packet
from sim.engine.state import DELAYED, ROW, STREAM_TIMER, World
from switch import registers
from switch.programs.atp import ENTRY

CUT = -1  # a buffer that nothing fits in


def set_rate(world: World, link: int, rate_bps: int) -> None:
    """Change a link's rate for what is put on it from now on."""
    row = world.links[link]
    is_cut = row.buffer_ps == CUT
    tables.set_rate(row, rate_bps)
    if is_cut:
        row.buffer_ps = CUT


def cut(world: World, link: int) -> None:
    """Lose what is in flight on a link; until it is restored, what is put on it is dropped."""
    clock, row = world.clock[0], world.links[link]
    lanes = (link, int(clock.links_count) + link)
    gone = []
    for lane in lanes:
        packet = int(world.links[lane].head)
        while packet >= 0:
            gone.append(packet)
            packet = int(world.packets[packet].next)
        world.links[lane].head = world.links[lane].tail = -1
        world.links[lane].free_at_ps = clock.now_ps
    left = []
    for entry in world.heap[: clock.heap_count].tolist():
        kind, index = entry[2] & ~ROW, entry[2] & ROW
        if kind == DELAYED and world.packets[index].link == link:
            gone.append(index)
        elif entry[2] >= STREAM_TIMER or entry[2] not in lanes:
            left.append(entry)
    heapq.heapify(left)
    if left:
        world.heap[: len(left)] = np.array(left, world.heap.dtype)
    clock.heap_count = len(left)
    for packet in gone:
        row.in_flight_packets -= 1
        row.in_flight_bytes -= world.packets[packet].size_bytes
        row.lost_packets += 1
        row.lost_bytes += world.packets[packet].size_bytes
        free_packet(world, packet)
    row.buffer_ps = CUT


def restore(world: World, link: int) -> None:
    """Let a link carry packets again."""
    tables.set_rate(world.links[link], int(world.links[link].rate_bps))


def clear(world: World, switch: int) -> None:
    """Reset all registers of a switch, and the packet numbers it keeps for workers."""
    for number, point in enumerate(world.points):
        if point.switch != switch:
            continue
        job = world.jobs[point.job]
        first = 2 * (int(point.register_base) + int(job.slot_base))
        registers.clear(world.registers, slice(first, first + 2 * int(job.window) * int(job.unit_packets)))
        for row in np.flatnonzero(world.streams["point"] == number):
            world.windows["switch_expected_psn"][row] = -1
            world.windows["switch_psn"][row] = 0
    for server in world.servers:
        if server.switch == switch:
            rows = slice(int(server.entry_base), int(server.entry_base) + int(server.entries))
            world.entries.rows[rows] = np.zeros((), ENTRY)
            world.entries.values[rows] = 0
