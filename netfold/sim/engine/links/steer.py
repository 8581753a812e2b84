"""The network's policy steers a packet between hosts: a way of its own for each, or a detour for each
flow."""

from __future__ import annotations

import numpy as np

from netfold.kernels import purposes
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed import mix
from netfold.sim.engine.tables.addresses import natural
from netfold.sim.engine.tables.cold_calls import world_at
from netfold.sim.engine.tables.world import FLOW_ACK, SPRAYED, VIA, World


@kernel
def steer(at: int, row: int, source: int) -> None:
    """Steer a packet of a flow that is about to leave a host (README, Routes)."""
    world = world_at(at)
    clock, packet = world.clock[0], world.packets[row]
    flow = world.flows[natural(packet.owner)]
    if clock.policy == SPRAYED:
        number = packet.transmission if packet.kind == FLOW_ACK else packet.attempt
        draw = mix(clock.seed, purposes.SPRAY, flow.key, packet.kind, packet.unit, number)
        packet.route = np.int64(draw >> np.uint64(33))
        return
    switch = detour(world, source, packet.target, packet.route)
    if switch >= 0:
        packet.slot = packet.target
        packet.target = clock.hosts_count + switch
        packet.receiver = VIA


@inlined
def detour(world: World, source: int, target: int, route: int) -> int:
    """The switch through which a flow goes, counted from the first switch; −1: none."""
    here, there = natural(world.nodes[natural(source)].home), natural(world.nodes[natural(target)].home)
    count = world.clock[0].groups_count
    first = min(world.groups[here], world.groups[there])
    second = max(world.groups[here], world.groups[there])
    if first == second or count < 3:
        return -1
    draw = mix(purposes.VALIANT, source, target, route)
    group = np.int64(draw % np.uint64(count - 2))
    if group >= first:
        group += 1
    if group >= second:
        group += 1
    if world.entries_of_groups.size == 0:
        return int(group)
    row = natural(here * count + group)
    begin, end = world.first_entry[row], world.first_entry[row + 1]
    number = np.int64((draw >> np.uint64(32)) % np.uint64(end - begin))
    return int(world.entries_of_groups[natural(begin + number)])
