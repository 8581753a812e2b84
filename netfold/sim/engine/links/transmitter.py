"""Rate changes of a link: reschedule all packets that have not left its transmitter (README, Links)."""

from __future__ import annotations

from netfold.kernels.compiled import inlined, kernel
from netfold.sim.engine.interface import BACKLOG_MAX_PS
from netfold.sim.engine.links.link import PS_BYTES, first_waiting, note_begun, transmit_time_ps
from netfold.sim.engine.tables.heap import push
from netfold.sim.engine.tables.world import FLOW_ACK, World


@kernel
def stop(world: World, index: int) -> int:
    """Store the rest of the packet on the wire; returns the time until the link would be free."""
    clock, link = world.clock[0], world.links[index]
    now_ps = clock.now_ps
    note_begun(world, index)
    order = link.wire_order
    link.wire_order = -1
    if link.free_at_ps <= now_ps:
        return 0
    row, leaves_ps = link.begun, link.begun_leaves_ps
    if leaves_ps <= now_ps:  # then an acknowledgement: a link with something to send is sending
        row = first_unsent(world, index)
        leaves_ps = world.packets[row].arrive_ps - link.delay_ps
    packet = world.packets[row]
    if packet.order == order:
        link.wire_work -= (now_ps - link.changed_ps) * link.rate_bps
    else:
        start_ps = leaves_ps - transmit_time_ps(link, packet)
        link.wire_work = packet.size_bytes * PS_BYTES - (now_ps - start_ps) * link.rate_bps
    link.wire = row
    link.wire_order = packet.order
    link.changed_ps = now_ps
    return link.free_at_ps - now_ps


@inlined
def first_unsent(world: World, index: int) -> int:
    """The first acknowledgement on a link that has not left its transmitter; −1 if there is none."""
    clock, link = world.clock[0], world.links[index]
    row = world.links[clock.links_count + index].head
    while row >= 0 and world.packets[row].arrive_ps - link.delay_ps <= clock.now_ps:
        row = world.packets[row].next
    return row


@inlined
def first_waiting_ack(world: World, index: int) -> int:
    """The first acknowledgement on a link that has not begun, as `stop` has left it; −1 if all have."""
    link, row = world.links[index], first_unsent(world, index)
    is_on_wire = row >= 0 and link.wire_order == world.packets[row].order
    return world.packets[row].next if is_on_wire else row


@kernel
def reschedule(world: World, index: int) -> int:
    """Set arrival times of packets that have not left, at the present rate; returns the time until they have.

    The rest of a packet that `stop` has stored goes first. Without one, all packets in line wait.
    """
    clock, link = world.clock[0], world.links[index]
    lane = world.links[clock.links_count + index]
    end_ps, first, first_ack = clock.now_ps, first_waiting(world, index), lane.head
    if link.wire_order >= 0:
        first_ack = first_waiting_ack(world, index)
        end_ps += -(-link.wire_work // link.rate_bps)
        packet = world.packets[link.wire]
        packet.arrive_ps = end_ps + link.delay_ps
        if packet.kind == FLOW_ACK:
            lane.free_at_ps = end_ps
        else:
            link.begun_leaves_ps = end_ps
    end_ps = reschedule_from(world, index, first_ack, end_ps)
    if first_ack >= 0:
        lane.free_at_ps = end_ps
    link.shift_ps = 0
    link.free_at_ps = reschedule_from(world, index, first, end_ps)
    schedule_head(world, index)
    schedule_head(world, clock.links_count + index)
    return link.free_at_ps - clock.now_ps


@inlined
def reschedule_from(world: World, index: int, row: int, end_ps: int) -> int:
    """Let packets from a row on leave one after the other from a time on; returns the end of the last."""
    clock, link = world.clock[0], world.links[index]
    while row >= 0:
        packet = world.packets[row]
        end_ps += transmit_time_ps(link, packet)
        if end_ps - clock.now_ps > BACKLOG_MAX_PS:
            clock.overflowed_link = index + 1
            end_ps = clock.now_ps
        packet.arrive_ps = end_ps + link.delay_ps
        row = packet.next
    return end_ps


@inlined
def schedule_head(world: World, lane: int) -> None:
    """Schedule the head of a line no later than its arrival; an early event is rescheduled."""
    clock, head = world.clock[0], world.links[lane].head
    if head < 0:
        return
    packet = world.packets[head]
    place = 0
    while place < clock.heap_count and world.heap[place].what != lane:
        place += 1
    if place == clock.heap_count:
        clock.heap_count += 1
    elif world.heap[place].time_ps <= packet.arrive_ps:
        return
    push(world.heap, place, packet.arrive_ps, packet.order, lane)


@kernel
def waiting_ps(world: World, index: int) -> int:
    """Time on the wire, at the present rate, of all that waits on a link that is down."""
    clock, link = world.clock[0], world.links[index]
    total_ps = 0
    for lane in (index, clock.links_count + index):
        row = world.links[lane].head
        while row >= 0:
            total_ps += transmit_time_ps(link, world.packets[row])
            row = world.packets[row].next
    return total_ps
