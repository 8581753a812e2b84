"""Handlers of packet arrivals."""

from __future__ import annotations

from netfold.kernels.compiled import inlined, kernel
from netfold.sim.engine.links.forward import dispatch, send_towards
from netfold.sim.engine.links.link import free_packet, schedule
from netfold.sim.engine.switches.aggregate import on_data
from netfold.sim.engine.switches.egress import replicate, split
from netfold.sim.engine.tables.addresses import natural
from netfold.sim.engine.tables.cold_calls import call_cold, world_at
from netfold.sim.engine.tables.world import (
    AT_SERVER,
    AT_SWITCH,
    AT_WORKER,
    ATP_FORWARD,
    DATA,
    FLOW_DATA,
    HELD,
    KINDS_AT_ATP_SWITCH,
    LAST_HOT_KIND,
    LOOP,
    NEVER,
    PARENT_RESULT,
    RESULT,
    SPLIT,
    TO_POINT,
    VIA,
    WRITE_LOG,
    World,
)
from netfold.sim.engine.transports.flow import on_flow_ack, on_flow_data
from netfold.sim.engine.transports.stream import on_result


@inlined
def on_arrival(world: World, row: int, kind: int) -> None:
    """A packet has arrived at the end of its link, or its host has woken up."""
    if kind != HELD:
        count_arrival(world, row)
    clock = world.clock[0]
    if clock.is_logging:
        call_cold(clock.rare, clock.at, WRITE_LOG, row, kind, 0)
    packet = world.packets[row]
    node = natural(world.links[natural(packet.link)].target)
    if packet.target != node:
        send_towards(world, node, row)
    elif packet.kind == DATA:
        on_data(world, row)
    elif packet.kind > LAST_HOT_KIND or packet.receiver <= TO_POINT:
        on_rare_arrival(clock.at, row)
    elif not hold_or_drop_if_host_down(world, row):
        if packet.kind == RESULT:
            on_result(world, row)
            return
        if packet.kind == FLOW_DATA:
            on_flow_data(world, row)
        else:
            on_flow_ack(world, row)
        free_packet(world, row)


@kernel
def on_rare_arrival(at: int, row: int) -> None:
    """A packet of a kind off the hot path has arrived."""
    world = world_at(at)
    clock, packet = world.clock[0], world.packets[row]
    if packet.receiver == VIA:
        node = packet.target
        packet.target, packet.receiver = packet.slot, -1
        dispatch(at, node, row)
    elif packet.kind == LOOP:
        replicate(at, row)
    elif packet.kind == SPLIT:
        split(at, row)
    elif packet.kind == RESULT:
        call_cold(clock.rare, at, PARENT_RESULT, row, 0, 0)
    elif packet.kind in KINDS_AT_ATP_SWITCH:
        call_cold(clock.atp, at, AT_SWITCH, row, 0, 0)
    elif not hold_or_drop_if_host_down(world, row):
        call_cold(clock.atp, at, AT_SERVER if packet.kind == ATP_FORWARD else AT_WORKER, row, 0, 0)
        free_packet(world, row)


@inlined
def count_arrival(world: World, row: int) -> None:
    """A link has delivered a packet."""
    clock, packet = world.clock[0], world.packets[row]
    link = world.links[natural(packet.link)]
    link.delivered_packets += 1
    link.delivered_bytes += packet.size_bytes
    clock.packet_hops += 1


@inlined
def hold_or_drop_if_host_down(world: World, row: int) -> bool:
    """Hold a packet whose host is paused, drop it if the host has crashed; returns whether it did either."""
    packet = world.packets[row]
    away_until_ps = world.hosts[packet.target].away_until_ps
    if world.clock[0].now_ps >= away_until_ps:
        return False
    if away_until_ps == NEVER:
        world.clock[0].lost_ps = world.clock[0].now_ps
        free_packet(world, row)
    else:
        schedule(world, row, HELD, away_until_ps)
    return True
