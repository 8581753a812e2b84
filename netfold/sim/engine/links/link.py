"""Links: packets in the queue, on the wire, and in flight; `forward.py` puts them there.

There is one event per packet and link: the arrival time is known when a packet is put, unless something
changes. Acknowledgements overtake packets whose transmission has not begun. A link does not update each
waiting packet: it accumulates their common delay, and a packet adds it when its transmission begins
(`due_ps`, `note_begun`). Changes of the rate are rare, and reschedule the queue (`transmitter.py`).
"""

from __future__ import annotations

from typing import Any

from netfold.kernels.compiled import inlined, kernel
from netfold.sim.engine.interface import BACKLOG_MAX_PS
from netfold.sim.engine.tables.addresses import copy_words, natural, words_at
from netfold.sim.engine.tables.cold_calls import world_at
from netfold.sim.engine.tables.heap import push
from netfold.sim.engine.tables.world import DOWN, FLOW_ACK, FLOW_DATA, Table, World

PS_BYTES = 8 * 10**12  # picoseconds · bits per byte: time on the wire is size · PS_BYTES / rate
PACKET_BYTES_MAX = 1 << 16


@inlined
def take_packet(clock: Table, packets: Table) -> int:
    """Take a free packet and return its row; `Engine.run` keeps enough of them."""
    assert clock[0].packet_free_count > 0
    row = natural(clock[0].packet_free)
    clock[0].packet_free = packets[row].next
    clock[0].packet_free_count -= 1
    packets[row].payload = -1
    packets[row].words = 0
    packets[row].words_count = 0
    packets[row].hop = 0
    packets[row].struck = 0
    packets[row].key = 0
    packets[row].copy = 0
    packets[row].table = 0
    packets[row].is_marked = 0
    packets[row].flags = 0
    packets[row].receiver = -1
    return row


@inlined
def free_packet(world: World, row: int) -> None:
    """Give back a packet and, with the last packet that refers to it, its payload."""
    clock, packet = world.clock[0], world.packets[row]
    payload = packet.payload
    if payload >= 0:
        world.payload_uses[payload] -= 1
        if world.payload_uses[payload] == 0:
            world.payload_free[clock.payload_free_count] = payload
            clock.payload_free_count += 1
    packet.next = clock.packet_free
    clock.packet_free = row
    clock.packet_free_count += 1


@inlined
def take_payload(world: World) -> int:
    """Take a free payload for one packet and return its row."""
    clock = world.clock[0]
    assert clock.payload_free_count > 0
    clock.payload_free_count -= 1
    row = world.payload_free[clock.payload_free_count]
    world.payload_uses[row] = 1
    return row


@inlined
def transmit_time_ps(link: Any, packet: Any) -> int:
    """Time on the wire, rounded up so that a link is never too fast, or of a host's work on a packet."""
    if link.byte_ps != 0:
        return int(packet.size_bytes * link.byte_ps)
    work_ps = -(-packet.size_bytes * PS_BYTES // link.rate_bps) + link.packet_ps
    if link.message_ps != 0 and starts_message(packet):
        work_ps += link.message_ps
    return int(work_ps)


@inlined
def starts_message(packet: Any) -> bool:
    """Whether a packet that a host sends is the first of a unit or flow; acknowledgements are no messages."""
    if packet.kind == FLOW_DATA:
        return bool(packet.unit == 0)
    return bool(packet.kind != FLOW_ACK and packet.part == 0)


@inlined
def due_ps(lane: Any, packet: Any) -> int:
    """Arrival time of a packet in line on a link, with the common delay of waiting packets."""
    return int(packet.arrive_ps + (lane.shift_ps if packet.order > lane.begun_order else 0))


@inlined
def queue_or_drop(world: World, index: int, row: int) -> bool:
    """Queue a packet on a link and count it as sent; False if the link drops it (README, Links)."""
    clock, link, packet = world.clock[0], world.links[index], world.packets[row]
    transmit_ps = transmit_time_ps(link, packet)
    start_ps = max(clock.now_ps, link.free_at_ps)
    backlog_ps = start_ps - clock.now_ps + transmit_ps
    if packet.kind == FLOW_ACK or backlog_ps > link.buffer_ps:
        return queue_or_drop_otherwise(clock.at, index, row, transmit_ps)
    link.backlog_ps_max = max(link.backlog_ps_max, backlog_ps)
    if backlog_ps - transmit_ps >= link.ecn_ps:
        packet.is_marked = 1
    link.free_at_ps = start_ps + transmit_ps
    packet.arrive_ps = start_ps + transmit_ps + link.delay_ps - link.shift_ps
    count_sent(world, index, row, transmit_ps)
    return True


@inlined
def count_sent(world: World, index: int, row: int, transmit_ps: int) -> None:
    """A link has taken a packet."""
    link, packet = world.links[index], world.packets[row]
    link.busy_ps += transmit_ps
    link.sent_packets += 1
    link.sent_bytes += packet.size_bytes
    packet.link = index


@kernel
def queue_or_drop_otherwise(at: int, index: int, row: int, transmit_ps: int) -> bool:
    """`queue_or_drop` of an acknowledgement, and where the link is down or its buffer full."""
    world = world_at(at)
    clock, link, packet = world.clock[0], world.links[index], world.packets[row]
    lane = world.links[clock.links_count + index]
    if link.buffer_ps == DOWN:
        is_over = link.queued_bytes + packet.size_bytes > link.buffer_bytes
        if is_over and link.buffer_bytes > 0 and packet.kind != FLOW_ACK:
            return drop(world, index, row)
        if packet.kind != FLOW_ACK and link.queued_bytes >= link.ecn_bytes >= 0:
            packet.is_marked = 1
        link.queued_bytes += packet.size_bytes
        link.backlog_bytes_max = max(link.backlog_bytes_max, link.queued_bytes)
        count_sent(world, index, row, transmit_ps)
        return True
    backlog_ps = max(0, link.free_at_ps - clock.now_ps) + transmit_ps
    if backlog_ps > BACKLOG_MAX_PS and (link.buffer_ps == BACKLOG_MAX_PS or packet.kind == FLOW_ACK):
        clock.overflowed_link = index + 1
        return drop(world, index, row)
    if packet.kind != FLOW_ACK:
        return drop(world, index, row)
    note_begun(world, index)
    start_ps = max(clock.now_ps, lane.free_at_ps, link.begun_leaves_ps)
    lane.free_at_ps = start_ps + transmit_ps
    link.free_at_ps = max(clock.now_ps, link.free_at_ps) + transmit_ps
    link.shift_ps += transmit_ps if first_waiting(world, index) >= 0 else 0
    link.backlog_ps_max = max(link.backlog_ps_max, backlog_ps)
    packet.arrive_ps = start_ps + transmit_ps + link.delay_ps
    count_sent(world, index, row, transmit_ps)
    return True


@inlined
def drop(world: World, index: int, row: int) -> bool:
    """A link refuses a packet."""
    link = world.links[index]
    link.dropped_packets += 1
    link.dropped_bytes += world.packets[row].size_bytes
    world.clock[0].lost_ps = world.clock[0].now_ps
    free_packet(world, row)
    return False


@inlined
def first_waiting(world: World, index: int) -> int:
    """The first packet on a link that is not known to have begun, acknowledgements aside; −1 if all have."""
    link = world.links[index]
    if link.head < 0 or world.packets[link.head].order > link.begun_order:
        return link.head
    return world.packets[link.begun].next


@inlined
def note_begun(world: World, index: int) -> None:
    """Fix the arrival times of packets whose transmission has begun: no packet overtakes them."""
    clock, link = world.clock[0], world.links[index]
    row = first_waiting(world, index)
    if row >= 0 and link.shift_ps == 0:  # then no time needs to be fixed, and the last packet may tell of all
        last = world.packets[natural(link.tail)]
        leaves_ps = last.arrive_ps - link.delay_ps
        if leaves_ps - transmit_time_ps(link, last) <= clock.now_ps:
            link.begun = link.tail
            link.begun_order = last.order
            link.begun_leaves_ps = leaves_ps
            return
    while row >= 0:
        packet = world.packets[row]
        leaves_ps = packet.arrive_ps + link.shift_ps - link.delay_ps
        if leaves_ps - transmit_time_ps(link, packet) > clock.now_ps:
            return
        packet.arrive_ps += link.shift_ps
        link.begun = row
        link.begun_order = packet.order
        link.begun_leaves_ps = leaves_ps
        row = packet.next
    link.shift_ps = 0  # nothing waits


@inlined
def append_in_flight(world: World, row: int) -> None:
    """Append a packet to the line of its link, or of the link's lane; a line arrives in order."""
    clock, packet = world.clock[0], world.packets[row]
    lane = natural(packet.link)
    if packet.kind == FLOW_ACK:
        lane += clock.links_count
    link = world.links[natural(lane)]
    packet.order = clock.order
    packet.next = -1
    clock.order += 1
    if link.head >= 0:
        world.packets[natural(link.tail)].next = row
    else:
        link.head = row
        if link.buffer_ps != DOWN:
            push(world.heap, clock.heap_count, packet.arrive_ps + link.shift_ps, packet.order, lane)
            clock.heap_count += 1
    link.tail = row


@inlined
def schedule(world: World, row: int, kind: int, time_ps: int) -> None:
    """Schedule a separate event for a packet."""
    clock, packet = world.clock[0], world.packets[row]
    packet.order = clock.order
    clock.order += 1
    push(world.heap, clock.heap_count, time_ps, packet.order, kind | row)
    clock.heap_count += 1


@inlined
def detach_words(world: World, row: int) -> None:
    """Copy a packet's words to a payload: its sender's buffer may be gone when it arrives late."""
    packet = world.packets[row]
    if packet.words == 0 or packet.payload >= 0 or packet.kind in (FLOW_DATA, FLOW_ACK):
        return
    payload = take_payload(world)
    copy_words(world.payloads[payload], words_at(packet.words, packet.words_count))
    packet.payload = payload
    packet.words = 0
