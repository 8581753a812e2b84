"""The event loop."""

from __future__ import annotations

from netfold.kernels.compiled import inlined, kernel
from netfold.sim.engine.links.link import due_ps
from netfold.sim.engine.loop.ahead import LARGE, look_ahead
from netfold.sim.engine.loop.arrivals import on_arrival
from netfold.sim.engine.tables.addresses import natural, prefetch, prefetch_row
from netfold.sim.engine.tables.cold_calls import call_cold, store_tables, world_at
from netfold.sim.engine.tables.heap import drop_top, replace_top
from netfold.sim.engine.tables.rows import PACKET
from netfold.sim.engine.tables.world import (
    ARRIVAL,
    COMPLETED,
    FLOW_DATA,
    GO_ON,
    GROW,
    LEAVE_LINE,
    PAUSED,
    REACHED,
    SINGLE,
    STREAM_TIMER,
    World,
)

PACKET_WORDS = PACKET.itemsize // 4


@kernel
def run_until(world: World, stop_ps: int, events_max: int, packets: int, payloads: int) -> int:
    """Process events up to and including `stop_ps`.

    Returns COMPLETED right after an event that completed something, REACHED when no event at or before
    `stop_ps` is left, GROW when a table is short of the free rows that one event may take (`packets`,
    `payloads`), PAUSED after `events_max` events. The caller (enlarges the tables and) calls again.
    """
    world.clock[0].at = store_tables(world)
    clock = world.clock[0]
    pause = clock.events + events_max
    while True:
        if clock.attention > 0:  # also before the first event: a stream may be complete as soon as it opens
            stopped = attend(clock.at, packets, payloads)
            if stopped != REACHED:
                return stopped
        if clock.heap_count == 0 or world.heap[0].time_ps > stop_ps:
            break
        if clock.events == pause:
            return PAUSED
        if not has_room(world, packets, payloads):
            return GROW
        top = world.heap[0]
        clock.now_ps = top.time_ps
        what, order = top.what, top.order
        if what < STREAM_TIMER:
            row = take_first(world, what)
            if row >= 0:
                on_arrival(world, row, ARRIVAL)
        else:
            drop_top(world.heap, clock.heap_count)
            clock.heap_count -= 1
            call_cold(clock.rare, clock.at, SINGLE, what, order, 0)
        clock.events += 1
    clock.now_ps = max(clock.now_ps, stop_ps)
    return REACHED


@kernel
def go_on_now(world: World, packets: int, payloads: int) -> int:
    """Let transfers in the queue go on, now and not at an event; returns what `run_until` does."""
    world.clock[0].at = store_tables(world)
    return attend(world.clock[0].at, packets, payloads)


@kernel
def tell_schedule(world: World, what: int, row: int, first: int, second: int) -> None:
    """Call the handler of schedules (`cold_handlers.py`) now."""
    world.clock[0].at = store_tables(world)
    call_cold(world.clock[0].schedules, world.clock[0].at, what, row, first, second)


@kernel
def attend(at: int, packets: int, payloads: int) -> int:
    """Let transfers in the queue go on; returns COMPLETED if something is done, GROW if a table is short."""
    world = world_at(at)
    clock = world.clock[0]
    while clock.queue_head >= 0:
        if not has_room(world, packets, payloads) or clock.done_count + 8 > world.done.size:
            return GROW
        call_cold(clock.schedules, at, GO_ON, 0, 0, 0)
        if clock.short_of != 0:
            return GROW
    if clock.done_count > 0:
        return COMPLETED
    clock.attention = 0
    return REACHED


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
    """The oldest packet in line on a link or its priority lane, which has arrived; −1 if it has not."""
    clock, lane = world.clock[0], world.links[natural(what)]
    row = natural(lane.head)
    arrive_ps = due_ps(lane, world.packets[row])
    if arrive_ps > clock.now_ps:  # acknowledgements went before it, or the rate has changed
        replace_top(world.heap, clock.heap_count, arrive_ps, world.packets[row].order, what)
        return -1
    head = world.packets[row].next
    lane.head = head
    if head >= 0:
        following = world.packets[natural(head)]
        third = replace_top(world.heap, clock.heap_count, due_ps(lane, following), following.order, what)
        if clock.heap_count > LARGE:
            look_ahead(world, third)
        elif following.kind >= FLOW_DATA:
            prefetch_row(world.packets, following.next, PACKET_WORDS // 2)
        if following.kind < FLOW_DATA:
            prefetch_row(world.packets, following.next, PACKET_WORDS)
            if following.words != 0:
                prefetch(following.words, following.words_count)
            elif following.payload >= 0:
                prefetch_row(world.payloads, following.payload, following.words_count)
    else:
        drop_top(world.heap, clock.heap_count)
        clock.heap_count -= 1
    if world.packets[row].struck != 0:
        call_cold(clock.rare, clock.at, LEAVE_LINE, row, 0, 0)
        return -1
    return row
