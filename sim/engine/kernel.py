"""The event loop."""

from __future__ import annotations

from homomorphic.compiled import inlined, kernel
from sim.engine.aggregate import on_data
from sim.engine.entering import ask, kept_at
from sim.engine.flow import on_flow_ack, on_flow_data
from sim.engine.heap import drop_top, replace_top
from sim.engine.link import free_packet, schedule
from sim.engine.memory import prefetch
from sim.engine.result import replicate
from sim.engine.send import send_towards
from sim.engine.state import (
    ARRIVAL,
    AT_SERVER,
    AT_SWITCH,
    AT_WORKER,
    ATP_ACK,
    ATP_DATA,
    ATP_FORWARD,
    COMPLETED,
    DATA,
    DELAYED,
    FLOW_ACK,
    FLOW_DATA,
    GROW,
    HELD,
    LOOP,
    NEVER,
    PARENT_RESULT,
    REACHED,
    RESULT,
    ROW,
    TIMER,
    TO_POINT,
    WRITE_LOG,
    World,
)
from sim.engine.stream import on_result


@kernel
def run_until(world: World, stop_ps: int, packets: int, payloads: int) -> int:
    """Process events up to and including `stop_ps`.

    Returns COMPLETED right after an event that completed something, REACHED when no event at or before
    `stop_ps` is left, GROW when a table is short of the free rows that one event may take (`packets`,
    `payloads`): nothing is lost, the caller enlarges the tables and calls again.
    """
    world.clock[0].at = kept_at(world)
    clock = world.clock[0]
    if clock.done_count > 0:  # a stream may be complete as soon as it opens
        return COMPLETED
    while clock.heap_count > 0 and world.heap[0].time_ps <= stop_ps:
        if not has_room(world, packets, payloads):
            return GROW
        top = world.heap[0]
        clock.now_ps = top.time_ps
        what, order = top.what, top.order
        kind = what & ~ROW
        row = what & ROW
        if kind == ARRIVAL:
            row = take_first(world, what)
        else:
            drop_top(world.heap, clock.heap_count)
            clock.heap_count -= 1
        if kind in (ARRIVAL, DELAYED, HELD):
            on_arrival(world, row, kind)
        else:
            ask(clock.rare, clock.at, TIMER, what, order, 0)
        clock.events += 1
        if clock.done_count > 0:
            return COMPLETED
    clock.now_ps = max(clock.now_ps, stop_ps)
    return REACHED


@inlined
def on_arrival(world: World, row: int, kind: int) -> None:
    """A packet has arrived at the end of its link, or its host has woken up."""
    if kind != HELD:
        count_arrival(world, row)
    clock = world.clock[0]
    if clock.is_logging:
        ask(clock.rare, clock.at, WRITE_LOG, row, kind, 0)
    packet = world.packets[row]
    node = world.links[packet.link].target
    if packet.target != node:
        send_towards(world, node, row)
    elif packet.kind == DATA:
        on_data(world, row)
    elif packet.kind == LOOP:
        replicate(clock.at, row)
    elif ATP_DATA <= packet.kind <= ATP_ACK:
        ask(clock.atp, clock.at, AT_SWITCH, row, 0, 0)
    elif packet.kind == RESULT and packet.receiver == TO_POINT:
        ask(clock.rare, clock.at, PARENT_RESULT, row, 0, 0)
    elif is_away(world, row):
        return
    elif packet.kind == RESULT:
        on_result(world, row)
    else:
        if packet.kind == FLOW_DATA:
            on_flow_data(world, row)
        elif packet.kind == FLOW_ACK:
            on_flow_ack(world, row)
        else:
            ask(clock.atp, clock.at, AT_SERVER if packet.kind == ATP_FORWARD else AT_WORKER, row, 0, 0)
        free_packet(world, row)


@inlined
def has_room(world: World, packets: int, payloads: int) -> bool:
    """Whether every table has room for what one event may need."""
    clock = world.clock[0]
    return (
        clock.packet_free_count >= packets
        and clock.payload_free_count >= payloads
        and clock.heap_count + packets + 8 <= world.heap.size
        and (not clock.is_logging or clock.log_count < world.log.size)
    )


@inlined
def take_first(world: World, what: int) -> int:
    """The oldest packet in line on a link or its priority lane, which has arrived."""
    clock, lane = world.clock[0], world.links[what]
    row = lane.head
    lane.head = world.packets[row].next
    if lane.head >= 0:
        following = world.packets[lane.head]
        replace_top(world.heap, clock.heap_count, following.arrive_ps, following.order, what)
        if following.words != 0:
            prefetch(following.words, following.words_count)
    else:
        drop_top(world.heap, clock.heap_count)
        clock.heap_count -= 1
    return row


@inlined
def count_arrival(world: World, row: int) -> None:
    """A link has delivered a packet."""
    clock, packet = world.clock[0], world.packets[row]
    link = world.links[packet.link]
    link.in_flight_packets -= 1
    link.in_flight_bytes -= packet.size_bytes
    link.delivered_packets += 1
    link.delivered_bytes += packet.size_bytes
    clock.packet_hops += 1


@inlined
def is_away(world: World, row: int) -> bool:
    """Whether a packet meets a host that is paused, and waits there, or that has crashed, and ends there."""
    packet = world.packets[row]
    away_until_ps = world.hosts[packet.target].away_until_ps
    if world.clock[0].now_ps >= away_until_ps:
        return False
    if away_until_ps == NEVER:
        free_packet(world, row)
    else:
        schedule(world, row, HELD, away_until_ps)
    return True
