"""The event loop."""

from __future__ import annotations

from homomorphic.compiled import inlined, kernel
from sim.engine.aggregate import on_data, replicate
from sim.engine.flow import on_flow_ack, on_flow_data, on_flow_timer
from sim.engine.heap import drop_top, replace_top
from sim.engine.link import free_packet, send_towards
from sim.engine.memory import prefetch
from sim.engine.state import COMPLETED, DATA, FLOW_ACK, FLOW_DATA, GROW, REACHED, RESULT, World
from sim.engine.stream import on_result, on_timer

ARRIVAL, STREAM_TIMER, FLOW_TIMER = 0, 1, 2  # `what` of the log


@kernel
def run_until(world: World, stop_ps: int, packets: int, payloads: int) -> int:
    """Process events up to and including `stop_ps`.

    Returns COMPLETED right after an event that completed something, REACHED when no event at or before
    `stop_ps` is left, GROW when a table is short of the free rows that one event may take (`packets`,
    `payloads`): nothing is lost, the caller enlarges the tables and calls again.
    """
    clock = world.clock[0]
    while clock.heap_count > 0 and world.heap[0].time_ps <= stop_ps:
        if not has_room(world, packets, payloads):
            return GROW
        top = world.heap[0]
        clock.now_ps = top.time_ps
        what = top.what
        if what < clock.stream_base:
            on_arrival(world, what)
        elif what < clock.flow_base:
            on_stream_timer_event(world, what - clock.stream_base, top.order)
        else:
            on_flow_timer_event(world, what - clock.flow_base, top.order)
        clock.events += 1
        if clock.done_count > 0:
            return COMPLETED
    clock.now_ps = max(clock.now_ps, stop_ps)
    return REACHED


@inlined
def has_room(world: World, packets: int, payloads: int) -> bool:
    """Whether every table has room for what one event may need."""
    clock = world.clock[0]
    return (
        clock.packet_free_count >= packets
        and clock.payload_free_count >= payloads
        and clock.heap_count + world.links.size + 8 <= world.heap.size
        and (not clock.is_logging or clock.log_count < world.log.size)
    )


@inlined
def on_arrival(world: World, what: int) -> None:
    """The oldest packet in flight on a link or its priority lane has arrived."""
    clock, lane = world.clock[0], world.links[what]
    index = what if what < clock.links_count else what - clock.links_count
    link, row = world.links[index], lane.head
    packet = world.packets[row]
    lane.head = packet.next
    if lane.head >= 0:
        following = world.packets[lane.head]
        replace_top(world.heap, clock.heap_count, following.arrive_ps, following.order, what)
        if following.words != 0:
            prefetch(following.words, following.words_count)
    else:
        drop_top(world.heap, clock.heap_count)
        clock.heap_count -= 1
    link.in_flight_packets -= 1
    link.in_flight_bytes -= packet.size_bytes
    link.delivered_packets += 1
    link.delivered_bytes += packet.size_bytes
    clock.packet_hops += 1
    if clock.is_logging:
        log_arrival(world, index, row)
    if packet.target != link.target:
        send_towards(world, link.target, row)
    elif packet.kind == DATA:
        on_data(world, row)
    elif packet.kind == RESULT and packet.target == world.jobs[world.streams[packet.owner].job].switch:
        replicate(world, row)
    else:
        on_host_arrival(world, row)
        free_packet(world, row)


@inlined
def on_host_arrival(world: World, row: int) -> None:
    """A packet has reached the host it was meant for."""
    kind = world.packets[row].kind
    if kind == RESULT:
        on_result(world, row)
    elif kind == FLOW_DATA:
        on_flow_data(world, row)
    elif kind == FLOW_ACK:
        on_flow_ack(world, row)


@kernel
def on_stream_timer_event(world: World, row: int, order: int) -> None:
    """A stream's timer fires, unless it was armed anew or voided meanwhile."""
    clock = world.clock[0]
    drop_top(world.heap, clock.heap_count)
    clock.heap_count -= 1
    if order != world.streams[row].armed_order:
        return
    if clock.is_logging:
        stream = world.streams[row]
        log_timer(world, order, STREAM_TIMER, stream.job * 65536 + stream.worker)
    on_timer(world, row)


@kernel
def on_flow_timer_event(world: World, row: int, order: int) -> None:
    """A flow's timer fires, unless the flow was closed meanwhile."""
    clock = world.clock[0]
    drop_top(world.heap, clock.heap_count)
    clock.heap_count -= 1
    if order != world.flows[row].armed_order:
        return
    if clock.is_logging:
        log_timer(world, order, FLOW_TIMER, world.flows[row].serial)
    on_flow_timer(world, row)


@kernel
def log_arrival(world: World, index: int, row: int) -> None:
    """Write an arrival into the log."""
    packet, entry = world.packets[row], world.log[world.clock[0].log_count]
    entry.time_ps = packet.arrive_ps
    entry.order = packet.order
    entry.what = ARRIVAL
    entry.where = index
    entry.unit = packet.unit
    entry.attempt = packet.attempt
    if packet.kind in (DATA, RESULT):
        stream = world.streams[packet.owner]
        entry.owner = stream.job * 65536 + stream.worker
        entry.part = packet.part
    else:
        entry.owner = packet.serial
        entry.part = 1 if packet.kind == FLOW_ACK else 0
        if packet.kind == FLOW_ACK:
            entry.attempt = packet.transmission
    world.clock[0].log_count += 1


@kernel
def log_timer(world: World, order: int, what: int, owner: int) -> None:
    """Write a timer into the log."""
    entry = world.log[world.clock[0].log_count]
    entry.time_ps = world.clock[0].now_ps
    entry.order = order
    entry.what = what
    entry.where = -1
    entry.owner = owner
    entry.unit = 0
    entry.part = 0
    entry.attempt = 0
    world.clock[0].log_count += 1
