"""Putting packets on links.

`put` and `send_towards` are compiled into their callers: on the hot path a call costs more than the work.
Elsewhere it would only take long to compile: there `put_by_call` and `dispatch` do the same by a call.
"""

from __future__ import annotations

from netfold.kernels.compiled import inlined, kernel
from netfold.sim.engine.links.link import append_in_flight, queue_or_drop
from netfold.sim.engine.tables.addresses import natural
from netfold.sim.engine.tables.cold_calls import call_cold, world_at
from netfold.sim.engine.tables.world import APPLY_FAULTS, World
from netfold.topologies.network import way_of


@inlined
def put(world: World, index: int, row: int) -> None:
    """Put a packet on a link now: it is dropped, meets a fault, or is in flight until it arrives."""
    if not queue_or_drop(world, index, row):
        return
    world.packets[row].hop += 1
    if world.links[index].rules != 0:
        call_cold(world.clock[0].rare, world.clock[0].at, APPLY_FAULTS, index, row, 0)
    else:
        append_in_flight(world, row)


@inlined
def send_towards(world: World, node: int, row: int) -> None:
    """Put a packet on the next link from a switch towards its target; hosts `put` it on their first link."""
    put(world, natural(next_link(world, node, row)), row)


@inlined
def next_link(world: World, node: int, row: int) -> int:
    """The link out of a switch that a packet to another node takes."""
    packet = world.packets[row]
    here, goal = world.nodes[natural(node)], world.nodes[natural(packet.target)]
    if goal.home == here.home:  # the target is a host of this switch
        return int(goal.link)
    port = int(world.choice[natural(here.home), natural(goal.home)])
    if port >= here.degree:
        if here.degree < 0:  # a host's card
            return int(-1 - here.degree if packet.target == here.first_set else here.link)
        number = natural(here.first_set + port - here.degree)
        first, ways = world.sets[number, 0], world.sets[number, 1]
        if ways < 0 and packet.link >= world.clock[0].hosts_count:  # it does not come from this server's host
            ways = -ways
        port = int(world.ports[natural(first + int(way_of(packet.route, node, ways)))])
    return int(here.link + port)


@kernel
def put_by_call(at: int, index: int, row: int) -> None:
    """`put`, not compiled into the caller."""
    world = world_at(at)
    put(world, index, row)


@kernel
def dispatch(at: int, node: int, row: int) -> None:
    """`send_towards`, not compiled into the caller."""
    world = world_at(at)
    send_towards(world, node, row)
