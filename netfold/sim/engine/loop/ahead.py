"""Prefetches for events that come soon: on large networks most time would be spent waiting for memory.

An event needs its link, then the packet at the head of that link, then the packet behind it and the link on
which the first goes on. In each event one entry moves up to each level of the heap. At the third level its
link is prefetched, at the second the packet, at the first the rest. So each address is known when it is
needed.
"""

from __future__ import annotations

from netfold.kernels.compiled import inlined
from netfold.sim.engine.links.forward import next_link
from netfold.sim.engine.tables.addresses import natural, prefetch_row
from netfold.sim.engine.tables.world import FLOW_DATA, STREAM_TIMER, World

LARGE = 512  # entries of the heap: the links of fewer stay in the cache
LINK_WORDS = 32  # what a hop needs of a link and …
PACKET_WORDS = 16  # … of a packet that is passed on


@inlined
def look_ahead(world: World, third: int) -> None:
    """Prefetch for the entries that have just moved up the path to a place in the third level."""
    what = world.heap[natural(third)].what
    if what < STREAM_TIMER:
        prefetch_row(world.links, what, LINK_WORDS // 2)
    second = natural((third - 1) >> 2)
    what = world.heap[second].what
    if what < STREAM_TIMER:
        prefetch_row(world.packets, world.links[natural(what)].head, PACKET_WORDS)
    what = world.heap[natural((second - 1) >> 2)].what
    if what < STREAM_TIMER:
        link = world.links[natural(what)]
        row = natural(link.head)
        packet = world.packets[row]
        prefetch_row(world.packets, packet.next, PACKET_WORDS)
        if packet.target != link.target:
            prefetch_row(world.links, next_link(world, link.target, row), LINK_WORDS)
        elif packet.kind >= FLOW_DATA:
            prefetch_row(world.packets, row, 2 * PACKET_WORDS)
            prefetch_row(world.flows, packet.owner, 2 * LINK_WORDS)
