"""Links: packets in the queue, on the wire, and in flight; `send.py` puts them there."""

from __future__ import annotations

from homomorphic.compiled import inlined
from sim.engine.heap import push
from sim.engine.memory import copy_words, words_at
from sim.engine.state import DELAYED, FLOW_ACK, FLOW_DATA, Table, World

PS_BYTES = 8 * 10**12  # picoseconds · bits per byte: time on the wire is size · PS_BYTES / rate


@inlined
def take_packet(clock: Table, packets: Table) -> int:
    """Row of a free packet; `run` keeps enough of them."""
    assert clock[0].packet_free_count > 0
    row = clock[0].packet_free
    clock[0].packet_free = packets[row].next
    clock[0].packet_free_count -= 1
    packets[row].payload = -1
    packets[row].words = 0
    packets[row].words_count = 0
    packets[row].hop = 0
    packets[row].key = 0
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
    """Row of a free payload, held by one packet."""
    clock = world.clock[0]
    assert clock.payload_free_count > 0
    clock.payload_free_count -= 1
    row = world.payload_free[clock.payload_free_count]
    world.payload_uses[row] = 1
    return row


@inlined
def transmit_time_ps(size_bytes: int, rate_bps: int) -> int:
    """Time on the wire, rounded up so that a link is never too fast; up to 1 MiB fits int64."""
    return -(-size_bytes * PS_BYTES // rate_bps)


@inlined
def accept(world: World, index: int, row: int) -> bool:
    """Queue a packet on a link and count it as sent; False if the link drops it (README, Links)."""
    clock, link, packet = world.clock[0], world.links[index], world.packets[row]
    if link.byte_ps != 0:
        transmit_ps = packet.size_bytes * link.byte_ps
    else:
        transmit_ps = transmit_time_ps(packet.size_bytes, link.rate_bps)
    start_ps = max(clock.now_ps, link.free_at_ps)
    backlog_ps = start_ps - clock.now_ps + transmit_ps
    if packet.kind == FLOW_ACK and link.buffer_ps >= 0:
        lane = world.links[clock.links_count + index]
        start_ps = max(clock.now_ps, lane.free_at_ps)
        lane.free_at_ps = start_ps + transmit_ps
        link.free_at_ps = max(clock.now_ps, link.free_at_ps) + transmit_ps
    elif backlog_ps > link.buffer_ps:
        link.dropped_packets += 1
        link.dropped_bytes += packet.size_bytes
        free_packet(world, row)
        return False
    else:
        link.backlog_ps_max = max(link.backlog_ps_max, backlog_ps)
        if backlog_ps - transmit_ps >= link.ecn_ps:
            packet.is_marked = 1
        link.free_at_ps = start_ps + transmit_ps
    link.busy_ps += transmit_ps
    link.sent_packets += 1
    link.sent_bytes += packet.size_bytes
    packet.link = index
    packet.arrive_ps = start_ps + transmit_ps + link.delay_ps
    return True


@inlined
def fly(world: World, row: int, delay_ps: int) -> None:
    """Let a packet be in flight; with a delay it is out of line, and arrives by an event of its own."""
    clock, packet = world.clock[0], world.packets[row]
    link = world.links[packet.link]
    link.in_flight_packets += 1
    link.in_flight_bytes += packet.size_bytes
    if delay_ps == 0:
        lane = packet.link
        if packet.kind == FLOW_ACK:
            lane += clock.links_count
        join(world, lane, row)
        return
    packet.arrive_ps += delay_ps
    schedule(world, row, DELAYED, packet.arrive_ps)


@inlined
def schedule(world: World, row: int, kind: int, time_ps: int) -> None:
    """Give a packet an event of its own."""
    clock, packet = world.clock[0], world.packets[row]
    packet.order = clock.order
    clock.order += 1
    push(world.heap, clock.heap_count, time_ps, packet.order, kind | row)
    clock.heap_count += 1


@inlined
def join(world: World, lane: int, row: int) -> None:
    """Let a packet be the last one in flight on a lane, which delivers in order."""
    clock, link, packet = world.clock[0], world.links[lane], world.packets[row]
    packet.order = clock.order
    packet.next = -1
    clock.order += 1
    if link.head >= 0:
        world.packets[link.tail].next = row
    else:
        link.head = row
        push(world.heap, clock.heap_count, packet.arrive_ps, packet.order, lane)
        clock.heap_count += 1
    link.tail = row


@inlined
def own_words(world: World, row: int) -> None:
    """Give a packet words of its own: its sender's buffer may be gone when it arrives late."""
    packet = world.packets[row]
    if packet.words == 0 or packet.payload >= 0 or packet.kind in (FLOW_DATA, FLOW_ACK):
        return
    payload = take_payload(world)
    copy_words(world.payloads[payload], words_at(packet.words, packet.words_count))
    packet.payload = payload
    packet.words = 0
