"""How the network's policy steers packets of flows: where they leave their host, and at switches."""

from __future__ import annotations

import numpy as np

from netfold.kernels import rng_streams
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed_random import mix
from netfold.sim.engine.heap import world_at
from netfold.sim.engine.links import PS_BYTES, dispatch, next_link, put_by_call
from netfold.sim.engine.memory_access import natural
from netfold.sim.engine.tables import (
    ADAPTIVE,
    DETOURED,
    DOWN,
    FLOW_ACK,
    FLOWLETS,
    SPRAYED,
    STEERED,
    UGAL,
    VIA,
    World,
)
from netfold.topologies.ecmp import TURNS, way_of

# A packet that a switch is to steer has that switch as its target, is `STEERED`, and goes to its `slot` after
# that. So packets that nobody steers cost nothing more on their way.


GRADE_BYTES = 4096
"""Switches compare queues in whole grades of so many bytes. With exact ones, flows that arrive in turn would
find the link free that they took before, and keep to it."""
QUEUED_MAX_PS = 1 << 50  # a queue as long as this, or one that stands still


@kernel
def steer(at: int, row: int, source: int) -> None:
    """Steer a packet of a flow that is about to leave a host (packets-and-links.md)."""
    world = world_at(at)
    clock, packet = world.clock[0], world.packets[row]
    if clock.policy not in (DETOURED, FLOWLETS):
        flow = world.flows[natural(packet.owner)]
        number = packet.transmission if packet.kind == FLOW_ACK else packet.attempt
        draw = mix(clock.seed, rng_streams.SPRAY, flow.key, packet.kind, packet.unit, number)
        packet.route = np.int64(draw >> np.uint64(33))
    if clock.policy == SPRAYED:
        return
    home, switch = clock.hosts_count + world.nodes[natural(source)].home, -1
    if clock.policy in (DETOURED, UGAL):
        switch = detour(world, source, packet.target, packet.route)
        if switch < 0:
            return
    packet.slot = packet.target
    packet.receiver = VIA if clock.policy == DETOURED else STEERED
    packet.target = clock.hosts_count + switch if clock.policy == DETOURED else home
    packet.table = switch


@kernel
def on_steered(at: int, row: int) -> None:
    """A packet has arrived at a switch that steers it."""
    world = world_at(at)
    clock, packet = world.clock[0], world.packets[row]
    node, is_via = packet.target, packet.receiver == VIA
    packet.target, packet.receiver = packet.slot, -1
    if is_via:
        dispatch(at, node, row)
    elif clock.policy == ADAPTIVE:
        index = shortest_queue(world, node, row)
        if world.nodes[natural(node)].home != world.nodes[natural(packet.slot)].home:
            packet.target, packet.receiver = world.links[index].target, STEERED
        put_by_call(at, index, row)
    elif clock.policy == UGAL:
        put_by_call(at, shorter_way(world, node, row), row)
    else:
        choose_flowlet(world, row)
        dispatch(at, node, row)


@inlined
def queued_ps(world: World, index: int) -> int:
    """How long what a link has to send takes."""
    link = world.links[natural(index)]
    if link.buffer_ps == DOWN:
        return QUEUED_MAX_PS
    return int(min(QUEUED_MAX_PS, max(0, link.free_at_ps - world.clock[0].now_ps)))


@inlined
def graded_ps(world: World, index: int) -> int:
    """How long what a link has to send takes, rounded down to whole grades."""
    waits_ps = queued_ps(world, index)
    grade_ps = -(-GRADE_BYTES * PS_BYTES // world.links[natural(index)].rate_bps)
    return waits_ps if waits_ps == QUEUED_MAX_PS else int(waits_ps - waits_ps % grade_ps)


@inlined
def shortest_queue(world: World, node: int, row: int) -> int:
    """The link with the least to send among those on the shortest paths; of several a hash chooses."""
    packet = world.packets[row]
    position, goal = world.nodes[natural(node)], world.nodes[natural(packet.target)]
    port = -1 if goal.home == position.home else int(world.choice[position.home, goal.home])
    if port < position.degree:
        return int(goal.link if port < 0 else position.link + port)
    number = natural(position.first_set + port - position.degree)
    first, count = world.sets[number, 0], abs(world.sets[number, 1])
    least_ps, ties = QUEUED_MAX_PS, 0
    for port in world.ports[first : first + count]:
        waits_ps = graded_ps(world, position.link + port)
        ties = ties + 1 if waits_ps == least_ps else 1 if waits_ps < least_ps else ties
        least_ps = min(least_ps, waits_ps)
    left = np.int64(way_of(packet.route, node, ties))
    for port in world.ports[first : first + count]:
        if graded_ps(world, position.link + port) == least_ps:
            if left == 0:
                return int(position.link + port)
            left -= 1
    return -1


@inlined
def shorter_way(world: World, node: int, row: int) -> int:
    """The link to a packet's target, or that of its detour: the lesser queue times hops (UGAL-L)."""
    packet = world.packets[row]
    target, switch = packet.slot, packet.table
    home = world.nodes[natural(target)].home
    straight = next_link(world, node, row)
    packet.target = world.clock[0].hosts_count + switch
    around = next_link(world, node, row)
    here = world.nodes[natural(node)].home
    hops = hops_between(world, here, switch) + hops_between(world, switch, home)
    if queued_ps(world, straight) * hops_between(world, here, home) <= queued_ps(world, around) * hops:
        packet.target = target
        return straight
    packet.receiver = VIA
    return around


@inlined
def hops_between(world: World, switch: int, goal: int) -> int:
    """Links on the ways between two switches, counted from the first switch; all have the same number."""
    hops = 0
    while switch != goal:
        position = world.nodes[natural(world.clock[0].hosts_count + switch)]
        port = int(world.choice[natural(switch), natural(goal)])
        if port >= position.degree:
            port = int(world.ports[world.sets[natural(position.first_set + port - position.degree), 0]])
        switch = world.links[natural(position.link + port)].target - world.clock[0].hosts_count
        hops += 1
    return hops


@inlined
def choose_flowlet(world: World, row: int) -> None:
    """Give a packet the route of its flowlet: a new one begins after a pause of its flow."""
    clock, packet = world.clock[0], world.packets[row]
    flow = world.flows[natural(packet.owner)]
    if packet.serial != flow.serial or not flow.is_open:
        return
    if packet.kind == FLOW_ACK:
        flow.ack_flowlets += clock.now_ps - flow.ack_flowlet_ps > clock.gap_ps
        flow.ack_flowlet_ps, number = clock.now_ps, flow.ack_flowlets
    else:
        flow.flowlets += clock.now_ps - flow.flowlet_ps > clock.gap_ps
        flow.flowlet_ps, number = clock.now_ps, flow.flowlets
    if number > 0:
        draw = mix(clock.seed, rng_streams.FLOWLET, flow.key, packet.kind, number) >> np.uint64(34)
        turns = np.uint64(TURNS)
        packet.route = np.int64(draw - draw % turns + np.uint64(packet.route) % turns)


@inlined
def detour(world: World, source: int, target: int, route: int) -> int:
    """The switch through which a flow goes, counted from the first switch; −1: none."""
    source_home, target_home = (
        natural(world.nodes[natural(source)].home),
        natural(world.nodes[natural(target)].home),
    )
    count = world.clock[0].groups_count
    first = min(world.groups[source_home], world.groups[target_home])
    second = max(world.groups[source_home], world.groups[target_home])
    if first == second or count < 3:
        return -1
    draw = mix(rng_streams.VALIANT, source, target, route)
    group = np.int64(draw % np.uint64(count - 2))
    if group >= first:
        group += 1
    if group >= second:
        group += 1
    if world.entries_of_groups.size == 0:
        return int(group)
    row = natural(source_home * count + group)
    begin, end = world.first_entry[row], world.first_entry[row + 1]
    number = np.int64((draw >> np.uint64(32)) % np.uint64(end - begin))
    return int(world.entries_of_groups[natural(begin + number)])
