"""Counts the packets in flight: what links have taken, and have neither delivered nor lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netfold.kernels.compiled import kernel
from netfold.sim.engine.tables.world import DELAYED, LOST, ROW, World


def in_flight(world: World) -> NDArray[np.int64]:
    """(links, 2) packets and bytes in flight: in line on a link, or delayed by a fault behind it."""
    counts = np.zeros((int(world.clock[0].links_count), 2), np.int64)
    count_in_flight(world, counts)
    return counts


@kernel
def count_in_flight(world: World, counts: NDArray[np.int64]) -> None:
    """Add up packets and bytes by link."""
    clock = world.clock[0]
    for lane in range(2 * clock.links_count):
        row = world.links[lane].head
        while row >= 0:
            packet = world.packets[row]
            if packet.struck != LOST:
                counts[packet.link, 0] += 1
                counts[packet.link, 1] += packet.size_bytes
            row = packet.next
    for place in range(clock.heap_count):
        what = world.heap[place].what
        if what - (what & ROW) == DELAYED:
            packet = world.packets[what & ROW]
            counts[packet.link, 0] += 1
            counts[packet.link, 1] += packet.size_bytes
