"""Putting packets on links.

`put` and `send_towards` are compiled into their callers: on the hot path a call costs more than the work.
Elsewhere it would only take long to compile: there `put_by_call` and `dispatch` do the same by a call.
"""

from __future__ import annotations

from netfold.homomorphic.kernels.compiled import inlined, kernel
from netfold.sim.engine.links.link import queue_or_drop, start_propagation
from netfold.sim.engine.tables.addresses import natural
from netfold.sim.engine.tables.cold_calls import call_cold, world_at
from netfold.sim.engine.tables.world import APPLY_FAULTS, World


@inlined
def put(world: World, index: int, row: int) -> None:
    """Put a packet on a link now: it is dropped, meets a fault, or is in flight until it arrives."""
    if not queue_or_drop(world, index, row):
        return
    world.packets[row].hop += 1
    if world.links[index].rules != 0:
        call_cold(world.clock[0].rare, world.clock[0].at, APPLY_FAULTS, index, row, 0)
    else:
        start_propagation(world, row)


@inlined
def send_towards(world: World, node: int, row: int) -> None:
    """Put a packet on the next link from `node` towards its target."""
    packet = world.packets[row]
    target = natural(packet.target)
    ways = world.next_count[natural(node), target]
    way = natural(packet.route % ways) if ways > 1 else 0
    put(world, natural(world.next_link[natural(node), target, way]), row)


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
