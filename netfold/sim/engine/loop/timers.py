"""Events with a separate heap entry: timers, and packets that are not in line with others.

A timer fires unless it was rearmed or voided in the meantime; the timers of a paused host wait.
"""

from __future__ import annotations

from netfold.kernels.compiled import inlined, kernel
from netfold.sim.engine.loop.arrivals import on_arrival
from netfold.sim.engine.observe.event_log import log_slot_timer, log_timer
from netfold.sim.engine.switches.slot_timer import on_slot_timer
from netfold.sim.engine.tables.cold_calls import call_cold, world_at
from netfold.sim.engine.tables.heap import push
from netfold.sim.engine.tables.world import (
    ATP_TIMER,
    DELAYED,
    FLOW_TIMER,
    HELD,
    MERGE_ENDS,
    MERGED,
    NEVER,
    ROW,
    STREAM_TIMER,
    World,
)
from netfold.sim.engine.transports.flow import on_flow_timer, push_timer
from netfold.sim.engine.transports.stream import on_timer
from netfold.switch.program import Machine

ATP = int(Machine.ATP)


@kernel
def on_single_event(at: int, what: int, order: int) -> None:
    """Process the event of a removed heap entry that belongs to no link."""
    world = world_at(at)
    kind, row = what & ~ROW, what & ROW
    if kind in (DELAYED, HELD):
        if kind == DELAYED:  # what it does now may be to a unit that was sent since
            world.clock[0].lost_ps = world.clock[0].now_ps
        on_arrival(world, row, kind)
    elif kind == STREAM_TIMER:
        on_stream_timer_event(at, row, order)
    elif kind == FLOW_TIMER:
        on_flow_timer_event(at, row, order)
    elif what >= MERGED:
        call_cold(world.clock[0].schedules, at, MERGE_ENDS, what, order, 0)
    elif order == world.registers.slots[row].timer_order:
        log_slot_timer(at, row, order)
        on_slot_timer(at, row)


@kernel
def on_stream_timer_event(at: int, row: int, order: int) -> None:
    """A stream's timer fires, unless it was rearmed or voided in the meantime; in a pause it waits."""
    world = world_at(at)
    clock, stream = world.clock[0], world.streams[row]
    if order != stream.armed_order:
        return
    away_until_ps = world.hosts[stream.host].away_until_ps
    if clock.now_ps < away_until_ps:
        stream.armed_ps = away_until_ps
        stream.armed_order = postpone(world, STREAM_TIMER | row, away_until_ps)
        return
    if clock.is_logging:
        log_timer(world.clock[0].at, order, STREAM_TIMER, stream.job * 65536 + stream.worker)
    if world.jobs[stream.job].program == ATP:
        call_cold(clock.atp, clock.at, ATP_TIMER, row, 0, 0)
    else:
        on_timer(world, row)


@kernel
def on_flow_timer_event(at: int, row: int, order: int) -> None:
    """A flow's timer fires, unless the flow was closed in the meantime; in a pause it waits.

    If the entry is of an earlier flow of the row, it is put off until the timer of this one.
    """
    world = world_at(at)
    clock, flow = world.clock[0], world.flows[row]
    is_entry = order == flow.entry_order
    if is_entry:
        flow.entry_order = -1
    if order != flow.armed_order:
        if is_entry and flow.armed_order >= 0:
            push_timer(world, row)
        return
    away_until_ps = world.hosts[flow.source].away_until_ps
    if clock.now_ps < away_until_ps:
        flow.armed_order = postpone(world, FLOW_TIMER | row, away_until_ps)
        return
    if clock.is_logging:
        log_timer(world.clock[0].at, order, FLOW_TIMER, flow.serial)
    on_flow_timer(world, row)


@inlined
def postpone(world: World, what: int, time_ps: int) -> int:
    """Arm a timer of a paused host for the end of the pause; returns its order, −1 if it has crashed."""
    clock = world.clock[0]
    if time_ps == NEVER:
        return -1
    order = clock.order
    push(world.heap, clock.heap_count, time_ps, order, what)
    clock.heap_count += 1
    clock.order += 1
    return order
