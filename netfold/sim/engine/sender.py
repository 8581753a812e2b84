"""A window sender: what streams and flows share of their timers, windows and packets.

`sender` is the row of a stream or of a flow: a function is compiled for either, and reads the columns that
`tables.SENDER` gives both. `flights` has what it remembers of outstanding units, by their number modulo the
largest window. `send(world, row, unit)` sends one, for the first time or again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from netfold.kernels import rng_streams
from netfold.kernels.compiled import inlined
from netfold.kernels.keyed_random import mix
from netfold.sim.engine.congestion_policies import on_ack, on_mark, on_send, on_timeout
from netfold.sim.engine.engine_views import log_timer
from netfold.sim.engine.heap import push
from netfold.sim.engine.links import take_packet
from netfold.sim.engine.tables import NEVER, Table, World

Send = Callable[[World, int, int], None]

# Timers. `timer` is what stands for a sender's in the heap.


@inlined
def arm(world: World, sender: Any, timer: int, deadline_ps: int) -> None:
    """Set a sender's timer."""
    clock = world.clock[0]
    sender.armed_ps, sender.armed_order = deadline_ps, clock.order
    clock.order += 1
    # An entry that an earlier flow of the row has left in the heap does, if it is not too late: when its time
    # comes, it is put off. So closed flows do not fill the heap.
    if sender.entry_order < 0 or sender.entry_ps > deadline_ps:
        push_timer(world, sender, timer)


@inlined
def push_timer(world: World, sender: Any, timer: int) -> None:
    """Add the entry of a sender's timer to the heap."""
    clock = world.clock[0]
    sender.entry_ps, sender.entry_order = sender.armed_ps, sender.armed_order
    push(world.heap, clock.heap_count, sender.armed_ps, sender.armed_order, timer)
    clock.heap_count += 1


@inlined
def disarm(sender: Any) -> None:
    sender.armed_ps, sender.armed_order = NEVER, -1


@inlined
def expires(world: World, sender: Any, timer: int, order: int, owner: int) -> bool:
    """Whether a timer fires: it was not rearmed or voided in the meantime; that of a paused host waits.

    If the entry is of an earlier flow of the row, it is put off until the timer of this one.
    """
    clock = world.clock[0]
    is_entry = order == sender.entry_order
    if is_entry:
        sender.entry_order = -1
    if order != sender.armed_order:
        if is_entry and sender.armed_order >= 0:
            push_timer(world, sender, timer)
        return False
    disarm(sender)
    away_until_ps = world.hosts[sender.host].away_until_ps
    if clock.now_ps < away_until_ps:
        if away_until_ps != NEVER:  # else it has crashed
            arm(world, sender, timer, away_until_ps)
        return False
    if clock.is_logging:
        log_timer(clock.at, order, timer, owner)
    return True


@inlined
def is_in_vain(world: World, sender: Any, attempt: int, sent_ps: int) -> bool:
    # Nothing was lost since the unit was sent, once: a copy would change nothing.
    return bool(sender.sender.waits_for_loss and attempt == 0 and world.clock[0].lost_ps < sent_ps)


@inlined
def backed_off_ps(stream: Any, timeout_ps: int, attempt: int) -> int:
    """The timeout of a copy, the `attempt`-th of its unit."""
    if not stream.sender.waits_for_loss:
        return timeout_ps
    return on_timeout(stream, timeout_ps, attempt)


JITTER_SHARE = 4  # a retransmitted unit waits up to a quarter of the timeout longer


@inlined
def jitter_ps(world: World, stream: Any, timeout_ps: int, unit: int, number: int) -> int:
    """Extra timeout of a retransmitted unit, so that workers that collided do not collide again."""
    seed, worker = world.clock[0].seed, stream.worker
    draw = mix(seed, rng_streams.JITTER, stream.job, worker, stream.serial, unit, number)
    return int(draw % np.uint64(max(timeout_ps // JITTER_SHARE, 1)))


# Windows and packets.


@inlined
def new_packet(world: World, sender: Any, row: int, unit: int, attempt: int) -> int:
    index = take_packet(world.clock, world.packets)
    packet = world.packets[index]
    packet.target = sender.target
    packet.route = sender.route
    packet.owner = row
    packet.serial = sender.serial
    packet.unit = unit
    packet.part = 0
    packet.attempt = attempt
    if attempt > 0:
        sender.retransmitted_packets += 1
    return index


@inlined
def pump(world: World, sender: Any, flights: Table, row: int, send: Send) -> None:
    """Send what the window allows."""
    while sender.next < min(sender.units_count, sender.base + sender.window):
        flight = flights[row, sender.next % sender.window_max]
        flight.attempt = 0
        flight.acknowledged = 0
        on_send(sender, sender.next)
        transmit(world, sender, flights, row, sender.next, send)
        sender.next += 1


@inlined
def acknowledge(sender: Any, first: int, last: int, is_marked: int) -> None:
    """Tell a sender's policy that units from `first` to `last` are acknowledged."""
    if is_marked:
        on_mark(sender, first, last)
    else:
        on_ack(sender, first, last)


@inlined
def send_again(
    world: World, sender: Any, flights: Table, row: int, stop: int, before: int, send: Send
) -> None:
    """Send again in [base, stop) what is unacknowledged, and is lost or was last transmitted before `before`.

    `before` is 0 where only what is known to be lost is sent again.
    """
    for unit in range(sender.base, stop):
        flight = flights[row, unit % sender.window_max]
        if flight.acknowledged < 0 or (flight.acknowledged == 0 and flight.transmission < before):
            flight.acknowledged = 0
            flight.attempt += 1
            transmit(world, sender, flights, row, unit, send)
        elif flight.attempt == 0 and 0 < before <= flight.transmission:
            return  # all behind it were sent later


@inlined
def transmit(world: World, sender: Any, flights: Table, row: int, unit: int, send: Send) -> None:
    """Send a unit, and remember by the number of its transmission which ones were sent later."""
    flights[row, unit % sender.window_max].transmission = sender.transmissions
    sender.transmissions += 1
    send(world, row, unit)
