"""The event loop: arrivals, timers, and the handlers of rare events."""

from __future__ import annotations

from netfold.kernels.compiled import Handlers, inlined, kernel
from netfold.sim.engine.atp_transport import on_atp_forward, on_atp_result, on_atp_switch, on_atp_timer
from netfold.sim.engine.engine_views import log_packet, log_slot_timer
from netfold.sim.engine.flow import on_flow_ack, on_flow_data, on_flow_timer
from netfold.sim.engine.heap import call_cold, drop_top, replace_top, store_tables, world_at
from netfold.sim.engine.links import (
    apply_faults,
    due_ps,
    free_packet,
    leave_line,
    next_link,
    schedule,
    send_towards,
)
from netfold.sim.engine.memory_access import natural, prefetch, prefetch_row
from netfold.sim.engine.schedules import answer, begin, go_on, on_delivered, on_merge_end
from netfold.sim.engine.sender import expires
from netfold.sim.engine.steering import on_steered, steer
from netfold.sim.engine.switches import (
    add_narrow_lanes,
    emit,
    merge_without_overflow,
    on_data,
    on_parent_result,
    on_slot_timer,
    replicate,
    send_empty_result,
    split,
    take_lifted,
    update_slot_timer,
)
from netfold.sim.engine.switchml_stream import on_result, on_timer, send_unit
from netfold.sim.engine.tables import (
    ANSWER,
    APPLY_FAULTS,
    ARRIVAL,
    AT_SERVER,
    AT_SWITCH,
    AT_WORKER,
    ATP_FORWARD,
    ATP_TIMER,
    BEGIN,
    COMPLETED,
    DATA,
    DELAYED_ARRIVES,
    DELIVERED,
    EMIT,
    FLOW_DATA,
    FLOW_EXPIRES,
    FLOW_TIMER,
    FOR_ATP,
    FOR_FAULTS,
    FOR_LANES,
    FOR_RESULTS,
    FOR_SCHEDULES,
    FOR_STEERING,
    FOR_TIMED_SLOTS,
    GO_ON,
    GROW,
    HELD,
    HELD_ARRIVES,
    KIND_SHIFT,
    KINDS_AT_ATP_SWITCH,
    LAST_HOT_KIND,
    LEAVE_LINE,
    LIFT,
    LOOP,
    MERGE_ENDS,
    MERGE_WITHOUT_OVERFLOW,
    NEVER,
    ON_STEERED,
    PACKET,
    PARENT_RESULT,
    PAUSED,
    RARE_ARRIVES,
    REACHED,
    RESEND_UNIT,
    RESULT,
    ROW,
    SEND_EMPTY_RESULT,
    SLOT_EXPIRES,
    SPLIT,
    STEER,
    STEERED,
    STREAM_EXPIRES,
    STREAM_TIMER,
    TO_POINT,
    UPDATE_SLOT_TIMER,
    VIA,
    WRITE_LOG,
    World,
)
from netfold.switch.program import Machine

# Prefetches for events that come soon: on large networks most time would be spent waiting for memory.
#
# An event needs its link, then the packet at the head of that link, then the packet behind it and the link on
# which the first goes on. In each event one entry moves up to each level of the heap. At the third level its
# link is prefetched, at the second the packet, at the first the rest. So each address is known when it is
# needed.


LARGE = 512  # entries of the heap: the links of fewer stay in the cache
LINK_WORDS = 32  # what a hop needs of a link and …
PACKET_WORDS = 16  # … of a packet that is passed on


@inlined
def look_ahead(world: World, third: int) -> None:
    """Prefetch for the entries that have just moved up the path to a place in the third level."""
    what = world.heap[natural(third)].what
    if what < STREAM_TIMER:
        prefetch_row(world.links, what, LINK_WORDS // 2)
    second = natural((third - 1) >> 2)
    what = world.heap[second].what
    if what < STREAM_TIMER:
        prefetch_row(world.packets, world.links[natural(what)].head, PACKET_WORDS)
    what = world.heap[natural((second - 1) >> 2)].what
    if what < STREAM_TIMER:
        link = world.links[natural(what)]
        row = natural(link.head)
        packet = world.packets[row]
        prefetch_row(world.packets, packet.next, PACKET_WORDS)
        if packet.target != link.target:
            prefetch_row(world.links, next_link(world, link.target, row), LINK_WORDS)
        elif packet.kind >= FLOW_DATA:
            prefetch_row(world.packets, row, 2 * PACKET_WORDS)
            prefetch_row(world.flows, packet.owner, 2 * LINK_WORDS)


# Handlers of packet arrivals.


@inlined
def on_arrival(world: World, row: int, kind: int) -> None:
    """A packet has arrived at the end of its link, or its host has woken up."""
    if kind != HELD:
        count_arrival(world, row)
    clock = world.clock[0]
    if clock.is_logging:
        call_cold(clock.handlers, clock.at, WRITE_LOG, row, kind, 0)
    packet = world.packets[row]
    node = natural(world.links[natural(packet.link)].target)
    if packet.target != node:
        send_towards(world, node, row)
    elif packet.kind == DATA:
        on_data(world, row)
    elif packet.kind > LAST_HOT_KIND or packet.receiver <= TO_POINT:
        call_cold(clock.handlers, clock.at, RARE_ARRIVES, row, 0, 0)
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
    if packet.receiver in (VIA, STEERED):
        call_cold(clock.handlers, at, ON_STEERED, row, 0, 0)
    elif packet.kind == LOOP:
        replicate(at, row)
    elif packet.kind == SPLIT:
        split(at, row)
    elif packet.kind == RESULT:
        call_cold(clock.handlers, at, PARENT_RESULT, row, 0, 0)
    elif packet.kind in KINDS_AT_ATP_SWITCH:
        call_cold(clock.handlers, at, AT_SWITCH, row, 0, 0)
    elif not hold_or_drop_if_host_down(world, row):
        call_cold(clock.handlers, at, AT_SERVER if packet.kind == ATP_FORWARD else AT_WORKER, row, 0, 0)
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


# Timers of senders.


ATP = int(Machine.ATP)


@kernel
def on_stream_timer_event(at: int, row: int, order: int) -> None:
    """A stream's timer has come up in the heap."""
    world = world_at(at)
    clock, stream = world.clock[0], world.streams[row]
    if not expires(world, stream, STREAM_TIMER | row, order, stream.job * 65536 + stream.worker):
        return
    if world.jobs[stream.job].program == ATP:
        call_cold(clock.handlers, clock.at, ATP_TIMER, row, 0, 0)
    else:
        on_timer(world, row)


@kernel
def on_flow_timer_event(at: int, row: int, order: int) -> None:
    """A flow's timer has come up in the heap."""
    world = world_at(at)
    flow = world.flows[row]
    if expires(world, flow, FLOW_TIMER | row, order, flow.serial):
        on_flow_timer(world, row)


# Handlers that are compiled apart from the event loop, each when a run first needs it: most runs need few of
# them, and another process compiles the loop meanwhile (`run/compiling.py`). They are called less often than
# once per packet and hop. An error in one is printed, not raised: `Engine.run` checks what is `unfinished`.


def _for_faults(at: int, what: int, row: int, first: int, _second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    if what == APPLY_FAULTS:
        apply_faults(at, row, first)
    else:
        leave_line(at, row)
    world_at(at).clock[0].unfinished -= 1


def _for_lanes(at: int, what: int, row: int, first: int, second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    if what == LIFT:
        take_lifted(at, row, first, second)
    else:
        add_narrow_lanes(at, row, first)
    world_at(at).clock[0].unfinished -= 1


def _merge_without_overflow(at: int, _what: int, row: int, first: int, _second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    merge_without_overflow(at, row, first)
    world_at(at).clock[0].unfinished -= 1


def _for_results(at: int, what: int, row: int, first: int, second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    if what == EMIT:
        emit(at, row, first, second)
    else:
        on_rare_arrival(at, row)
    world_at(at).clock[0].unfinished -= 1


def _for_timed_slots(at: int, what: int, row: int, first: int, second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    if what == UPDATE_SLOT_TIMER:
        update_slot_timer(at, row, first, second)
    elif what == SEND_EMPTY_RESULT:
        send_empty_result(at, row)
    elif first == world_at(at).registers.slots[row & ROW].timer_order:
        log_slot_timer(at, row & ROW, first)
        on_slot_timer(at, row & ROW)
    world_at(at).clock[0].unfinished -= 1


def _late_arrival(at: int, what: int, row: int, _first: int, _second: int) -> None:
    world = world_at(at)
    world.clock[0].unfinished += 1
    if what == DELAYED_ARRIVES:  # what the packet does now may be to a unit that was sent since
        world.clock[0].lost_ps = world.clock[0].now_ps
    on_arrival(world, row & ROW, row & ~ROW)
    world.clock[0].unfinished -= 1


def _stream_expires(at: int, _what: int, row: int, first: int, _second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    on_stream_timer_event(at, row & ROW, first)
    world_at(at).clock[0].unfinished -= 1


def _flow_expires(at: int, _what: int, row: int, first: int, _second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    on_flow_timer_event(at, row & ROW, first)
    world_at(at).clock[0].unfinished -= 1


def _for_steering(at: int, what: int, row: int, first: int, _second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    if what == STEER:
        steer(at, row, first)
    else:
        on_steered(at, row)
    world_at(at).clock[0].unfinished -= 1


def _resend_unit(at: int, _what: int, row: int, first: int, second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    send_unit(world_at(at), row, first, second)
    world_at(at).clock[0].unfinished -= 1


def _parent_result(at: int, _what: int, row: int, _first: int, _second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    on_parent_result(at, row)
    world_at(at).clock[0].unfinished -= 1


def _write_log(at: int, _what: int, row: int, first: int, _second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    log_packet(at, row, first)
    world_at(at).clock[0].unfinished -= 1


def _for_atp(at: int, what: int, row: int, _first: int, _second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    if what == AT_SWITCH:
        on_atp_switch(at, row)
    elif what == AT_SERVER:
        on_atp_forward(at, row)
    elif what == AT_WORKER:
        on_atp_result(at, row)
    else:
        on_atp_timer(at, row)
    world_at(at).clock[0].unfinished -= 1


def _for_schedules(at: int, what: int, row: int, first: int, second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    if what == GO_ON:
        go_on(at)
    elif what == DELIVERED:
        on_delivered(at, row)
    elif what == BEGIN:
        begin(at, row, first)
    elif what == ANSWER:
        answer(at, row, first, second)
    else:
        on_merge_end(at, row, first)
    world_at(at).clock[0].unfinished -= 1


HANDLERS = Handlers(
    {
        _late_arrival: [HELD_ARRIVES, DELAYED_ARRIVES],
        _stream_expires: [STREAM_EXPIRES],
        _flow_expires: [FLOW_EXPIRES],
        _for_faults: FOR_FAULTS,
        _for_lanes: FOR_LANES,
        _merge_without_overflow: [MERGE_WITHOUT_OVERFLOW],
        _for_results: FOR_RESULTS,
        _for_steering: FOR_STEERING,
        _for_timed_slots: [SLOT_EXPIRES, *FOR_TIMED_SLOTS],
        _resend_unit: [RESEND_UNIT],
        _parent_result: [PARENT_RESULT],
        _write_log: [WRITE_LOG],
        _for_atp: FOR_ATP,
        _for_schedules: [MERGE_ENDS, *FOR_SCHEDULES],
    },
    parameters=5,
)


PACKET_ROW_WORDS = PACKET.itemsize // 4


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
            call_cold(clock.handlers, clock.at, min(what >> KIND_SHIFT, MERGE_ENDS), what, order, 0)
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
    """Call the handler of schedules now."""
    world.clock[0].at = store_tables(world)
    call_cold(world.clock[0].handlers, world.clock[0].at, what, row, first, second)


@kernel
def attend(at: int, packets: int, payloads: int) -> int:
    """Let transfers in the queue go on; returns COMPLETED if something is done, GROW if a table is short."""
    world = world_at(at)
    clock = world.clock[0]
    while clock.queue_head >= 0:
        if not has_room(world, packets, payloads) or clock.done_count + 8 > world.done.size:
            return GROW
        call_cold(clock.handlers, at, GO_ON, 0, 0, 0)
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
            prefetch_row(world.packets, following.next, PACKET_ROW_WORDS // 2)
        if following.kind < FLOW_DATA:
            prefetch_row(world.packets, following.next, PACKET_ROW_WORDS)
            if following.words != 0:
                prefetch(following.words, following.words_count)
            elif following.payload >= 0:
                prefetch_row(world.payloads, following.payload, following.words_count)
    else:
        drop_top(world.heap, clock.heap_count)
        clock.heap_count -= 1
    if world.packets[row].struck != 0:
        call_cold(clock.handlers, clock.at, LEAVE_LINE, row, 0, 0)
        return -1
    return row
