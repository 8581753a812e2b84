"""Links: queues, transmitters, packets in flight, and the faults that strike them."""

from __future__ import annotations

from typing import Any

import numpy as np

from netfold.kernels import rng_streams
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed_random import mix
from netfold.sim.engine.engine_data import BACKLOG_MAX_PS, Fate
from netfold.sim.engine.heap import call_cold, push, world_at
from netfold.sim.engine.memory_access import copy_words, natural, words_at
from netfold.sim.engine.tables import (
    APPLY_FAULTS,
    DELAYED,
    DOWN,
    FLOW_ACK,
    FLOW_DATA,
    LOST,
    MISSING,
    SPRAYED,
    Table,
    World,
)
from netfold.topologies.ecmp import way_of

# Links: packets in the queue, on the wire, and in flight; `put` puts them there.
#
# There is one event per packet and link: the arrival time is known when a packet is put, unless something
# changes. Acknowledgements overtake packets whose transmission has not begun. A link does not update each
# waiting packet: it accumulates their common delay, and a packet adds it when its transmission begins
# (`due_ps`, `note_begun`). Changes of the rate are rare, and reschedule the queue (`table_setup.py`).


PS_BYTES = 8 * 10**12  # picoseconds · bits per byte: time on the wire is size · PS_BYTES / rate
PACKET_BYTES_MAX = 1 << 16


@inlined
def take_packet(clock: Table, packets: Table) -> int:
    """Take a free packet and return its row; `Engine.run` keeps enough of them."""
    assert clock[0].packet_free_count > 0
    row = natural(clock[0].packet_free)
    clock[0].packet_free = packets[row].next
    clock[0].packet_free_count -= 1
    packets[row].payload = -1
    packets[row].words = 0
    packets[row].words_count = 0
    packets[row].hop = 0
    packets[row].struck = 0
    packets[row].key = 0
    packets[row].copy = 0
    packets[row].table = 0
    packets[row].is_marked = 0
    packets[row].flags = 0
    packets[row].receiver = -1
    return row


@inlined
def free_packet(world: World, row: int) -> None:
    """Give back a packet and, with the last packet that refers to it, its payload."""
    clock, packet = world.clock[0], world.packets[row]
    payload = packet.payload
    if payload >= 0:
        world.payload_uses[payload] -= 1
        if world.payload_uses[payload] == 0:
            world.payload_free[clock.payload_free_count] = payload
            clock.payload_free_count += 1
    packet.next = clock.packet_free
    clock.packet_free = row
    clock.packet_free_count += 1


@inlined
def take_payload(world: World) -> int:
    """Take a free payload for one packet and return its row."""
    clock = world.clock[0]
    assert clock.payload_free_count > 0
    clock.payload_free_count -= 1
    row = world.payload_free[clock.payload_free_count]
    world.payload_uses[row] = 1
    return row


@inlined
def transmit_time_ps(link: Any, packet: Any) -> int:
    """Time on the wire, rounded up so that a link is never too fast, or of a host's work on a packet."""
    if link.byte_ps != 0:
        return int(packet.size_bytes * link.byte_ps)
    work_ps = -(-packet.size_bytes * PS_BYTES // link.rate_bps) + link.packet_ps
    if link.message_ps != 0 and starts_message(packet):
        work_ps += link.message_ps
    return int(work_ps)


@inlined
def starts_message(packet: Any) -> bool:
    """Whether a packet that a host sends is the first of a unit or flow; acknowledgements are no messages."""
    if packet.kind == FLOW_DATA:
        return bool(packet.unit == 0)
    return bool(packet.kind != FLOW_ACK and packet.part == 0)


@inlined
def due_ps(lane: Any, packet: Any) -> int:
    # `shift_ps` is the common delay of packets whose transmission has not begun.
    return int(packet.arrive_ps + (lane.shift_ps if packet.order > lane.begun_order else 0))


@inlined
def queue_or_drop(world: World, index: int, row: int) -> bool:
    """Queue a packet on a link and count it as sent; False if the link drops it (packets-and-links.md)."""
    clock, link, packet = world.clock[0], world.links[index], world.packets[row]
    transmit_ps = transmit_time_ps(link, packet)
    start_ps = max(clock.now_ps, link.free_at_ps)
    backlog_ps = start_ps - clock.now_ps + transmit_ps
    if packet.kind == FLOW_ACK or backlog_ps > link.buffer_ps:
        return queue_or_drop_otherwise(clock.at, index, row, transmit_ps)
    link.backlog_ps_max = max(link.backlog_ps_max, backlog_ps)
    if backlog_ps - transmit_ps >= link.ecn_ps:
        packet.is_marked = 1
    link.free_at_ps = start_ps + transmit_ps
    packet.arrive_ps = start_ps + transmit_ps + link.delay_ps - link.shift_ps
    count_sent(world, index, row, transmit_ps)
    return True


@inlined
def count_sent(world: World, index: int, row: int, transmit_ps: int) -> None:
    """A link has taken a packet."""
    link, packet = world.links[index], world.packets[row]
    link.busy_ps += transmit_ps
    link.sent_packets += 1
    link.sent_bytes += packet.size_bytes
    packet.link = index


@kernel
def queue_or_drop_otherwise(at: int, index: int, row: int, transmit_ps: int) -> bool:
    """`queue_or_drop` of an acknowledgement, and where the link is down or its buffer full."""
    world = world_at(at)
    clock, link, packet = world.clock[0], world.links[index], world.packets[row]
    lane = world.links[clock.links_count + index]
    if link.buffer_ps == DOWN:
        is_over = link.queued_bytes + packet.size_bytes > link.buffer_bytes
        if link.is_dead or (is_over and link.buffer_bytes > 0 and packet.kind != FLOW_ACK):
            return drop(world, index, row)
        if packet.kind != FLOW_ACK and link.queued_bytes >= link.ecn_bytes >= 0:
            packet.is_marked = 1
        link.queued_bytes += packet.size_bytes
        link.backlog_bytes_max = max(link.backlog_bytes_max, link.queued_bytes)
        count_sent(world, index, row, transmit_ps)
        return True
    backlog_ps = max(0, link.free_at_ps - clock.now_ps) + transmit_ps
    if backlog_ps > BACKLOG_MAX_PS and (link.buffer_ps == BACKLOG_MAX_PS or packet.kind == FLOW_ACK):
        clock.overflowed_link = index + 1
        return drop(world, index, row)
    if packet.kind != FLOW_ACK:
        return drop(world, index, row)
    note_begun(world, index)
    start_ps = max(clock.now_ps, lane.free_at_ps, link.begun_leaves_ps)
    lane.free_at_ps = start_ps + transmit_ps
    link.free_at_ps = max(clock.now_ps, link.free_at_ps) + transmit_ps
    link.shift_ps += transmit_ps if first_waiting(world, index) >= 0 else 0
    link.backlog_ps_max = max(link.backlog_ps_max, backlog_ps)
    packet.arrive_ps = start_ps + transmit_ps + link.delay_ps
    count_sent(world, index, row, transmit_ps)
    return True


@inlined
def drop(world: World, index: int, row: int) -> bool:
    """A link refuses a packet."""
    link = world.links[index]
    link.dropped_packets += 1
    link.dropped_bytes += world.packets[row].size_bytes
    note_loss(world, row)
    free_packet(world, row)
    return False


@inlined
def note_loss(world: World, row: int) -> None:
    """Mark a packet that is lost in its flow, if others may overtake it: no acknowledgement says so."""
    clock, packet = world.clock[0], world.packets[row]
    clock.lost_ps = clock.now_ps
    if clock.policy < SPRAYED or packet.kind != FLOW_DATA or packet.copy != 0:
        return
    flow = world.flows[packet.owner]
    flight = world.flights[packet.owner, packet.unit % flow.window_max]
    is_latest = flight.transmission == packet.transmission and flight.acknowledged == 0
    if packet.serial == flow.serial and flow.is_open and packet.unit >= flow.base and is_latest:
        flight.acknowledged = MISSING
        flow.lost_packets += 1


@inlined
def first_waiting(world: World, index: int) -> int:
    """The first packet on a link that is not known to have begun, acknowledgements aside; −1 if all have."""
    link = world.links[index]
    if link.head < 0 or world.packets[link.head].order > link.begun_order:
        return link.head
    return world.packets[link.begun].next


@inlined
def note_begun(world: World, index: int) -> None:
    """Fix the arrival times of packets whose transmission has begun: no packet overtakes them."""
    clock, link = world.clock[0], world.links[index]
    row = first_waiting(world, index)
    if row >= 0 and link.shift_ps == 0:  # then no time needs to be fixed, and the last packet may tell of all
        last = world.packets[natural(link.tail)]
        leaves_ps = last.arrive_ps - link.delay_ps
        if leaves_ps - transmit_time_ps(link, last) <= clock.now_ps:
            link.begun = link.tail
            link.begun_order = last.order
            link.begun_leaves_ps = leaves_ps
            return
    while row >= 0:
        packet = world.packets[row]
        leaves_ps = packet.arrive_ps + link.shift_ps - link.delay_ps
        if leaves_ps - transmit_time_ps(link, packet) > clock.now_ps:
            return
        packet.arrive_ps += link.shift_ps
        link.begun = row
        link.begun_order = packet.order
        link.begun_leaves_ps = leaves_ps
        row = packet.next
    link.shift_ps = 0  # nothing waits


@inlined
def append_in_flight(world: World, row: int) -> None:
    """Append a packet to the line of its link, or of the link's lane; a line arrives in order."""
    clock, packet = world.clock[0], world.packets[row]
    lane = natural(packet.link)
    if packet.kind == FLOW_ACK:
        lane += clock.links_count
    link = world.links[natural(lane)]
    packet.order = clock.order
    packet.next = -1
    clock.order += 1
    if link.head >= 0:
        world.packets[natural(link.tail)].next = row
    else:
        link.head = row
        if link.buffer_ps != DOWN:
            push(world.heap, clock.heap_count, packet.arrive_ps + link.shift_ps, packet.order, lane)
            clock.heap_count += 1
    link.tail = row


@inlined
def schedule(world: World, row: int, kind: int, time_ps: int) -> None:
    """Schedule a separate event for a packet."""
    clock, packet = world.clock[0], world.packets[row]
    packet.order = clock.order
    clock.order += 1
    push(world.heap, clock.heap_count, time_ps, packet.order, kind | row)
    clock.heap_count += 1


@inlined
def detach_words(world: World, row: int) -> None:
    """Copy a packet's words to a payload: its sender's buffer may be gone when it arrives late."""
    packet = world.packets[row]
    if packet.words == 0 or packet.payload >= 0 or packet.kind in (FLOW_DATA, FLOW_ACK):
        return
    payload = take_payload(world)
    copy_words(world.payloads[payload], words_at(packet.words, packet.words_count))
    packet.payload = payload
    packet.words = 0


# Apply fault rules to packets on links (packets-and-links.md).


LOSS, CORRUPTION, FLIP = int(Fate.LOSS), int(Fate.CORRUPTION), int(Fate.FLIP)
DUPLICATE, REORDER, BURST_LOSS = int(Fate.DUPLICATE), int(Fate.REORDER), int(Fate.BURST_LOSS)
ALWAYS = ~np.uint64(0)


@kernel
def apply_faults(at: int, index: int, row: int) -> None:
    """Draw the fate of a packet that a link has queued, and apply it."""
    world = world_at(at)
    packet = world.packets[row]
    number = draw_rule(world, index, row)
    if number < 0:
        append_in_flight(world, row)
        return
    rule = world.rules[number]
    rule.struck += 1
    world.clock[0].lost_ps = world.clock[0].now_ps
    fate = rule.fate
    if fate == FLIP and not flip_bit(world, row):
        fate = LOSS
    if fate == DUPLICATE:
        copy = copy_packet(world, row)
        append_in_flight(world, row)
        if queue_or_drop(world, index, copy):
            delay(world, copy, number)
            append_in_flight(world, copy)
    elif fate in (FLIP, REORDER):
        if fate == REORDER:
            delay(world, row, number)
        append_in_flight(world, row)
    else:
        world.links[index].lost_packets += 1
        world.links[index].lost_bytes += packet.size_bytes
        packet.struck = LOST
        note_loss(world, row)
        append_in_flight(world, row)


@inlined
def delay(world: World, row: int, number: int) -> None:
    """Delay the arrival of a packet as a rule says."""
    if world.rules[number].delay_ps > 0:
        detach_words(world, row)
        world.packets[row].struck = number + 1


@kernel
def leave_line(at: int, row: int) -> None:
    """Take a struck packet out of line at its arrival time: it is lost, or a later event delivers it."""
    world = world_at(at)
    clock, packet = world.clock[0], world.packets[row]
    if packet.struck == LOST:
        free_packet(world, row)
        return
    arrive_ps = clock.now_ps + world.rules[packet.struck - 1].delay_ps
    packet.struck = 0
    push(world.heap, clock.heap_count, arrive_ps, packet.order, DELAYED | row)
    clock.heap_count += 1


@inlined
def draw_rule(world: World, index: int, row: int) -> int:
    """Draw which rule strikes first, of the first active rule of each fate; −1: none."""
    packet, now_ps = world.packets[row], world.clock[0].now_ps
    rules_bits, decided = world.links[index].rules, 0
    hop = packet.hop - 1
    for number in range(world.rules.size):
        rule = world.rules[number]
        if not (rules_bits >> np.uint64(number)) & np.uint64(1) or (decided >> rule.fate) & 1:
            continue
        if not rule.from_ps <= now_ps < rule.until_ps:
            continue
        decided |= 1 << rule.fate
        draw = (
            mix(packet.key, hop) if rule.fate == LOSS else mix(packet.key, hop, rng_streams.FATE + rule.fate)
        )
        threshold = rule.threshold
        if rule.fate == BURST_LOSS and not step_chain(world, index, number):
            threshold = rule.threshold_good
        if draw < threshold or threshold == ALWAYS:
            return number
    return -1


@inlined
def step_chain(world: World, index: int, number: int) -> bool:
    """Advance a link's chain by one packet; returns whether the state is bad."""
    rule = world.rules[number]
    chain = world.chains[rule.chain, index]
    draw = mix(world.clock[0].seed, rng_streams.BURST_CHAIN, number, index, chain.packets)
    if chain.packets == 0:
        threshold = rule.starts_bad
    elif chain.is_bad:
        threshold = ALWAYS - rule.to_good
    else:
        threshold = rule.to_bad
    chain.is_bad = 1 if draw < threshold or threshold == ALWAYS else 0
    chain.packets += 1
    return bool(chain.is_bad)


@inlined
def flip_bit(world: World, row: int) -> bool:
    """Invert one bit of a packet's words, in this packet alone; False if it carries none."""
    packet = world.packets[row]
    is_header = packet.payload < 0 and packet.words == 0
    if packet.words_count == 0 or is_header or packet.kind in (FLOW_DATA, FLOW_ACK):
        return False
    detach_words(world, row)
    if world.payload_uses[packet.payload] > 1:
        payload = take_payload(world)
        copy_words(world.payloads[payload], world.payloads[packet.payload])
        world.payload_uses[packet.payload] -= 1
        packet.payload = payload
    hop = packet.hop - 1
    word = int(mix(packet.key, hop, rng_streams.FLIPPED_WORD) % np.uint64(packet.words_count))
    bit = int(mix(packet.key, hop, rng_streams.FLIPPED_BIT) % np.uint64(32))
    world.payloads[packet.payload, word] ^= np.int32(1 << bit) if bit < 31 else np.int32(-(2**31))
    return True


@inlined
def copy_packet(world: World, row: int) -> int:
    """Copy a packet under a new key; both refer to the same words."""
    copy = take_packet(world.clock, world.packets)
    world.packets[copy] = world.packets[row]
    packet = world.packets[copy]
    packet.key = mix(world.packets[row].key, rng_streams.COPY, packet.hop - 1)
    packet.copy = np.uint32(packet.key) | np.uint32(1)
    if packet.payload >= 0:
        world.payload_uses[packet.payload] += 1
    return copy


# Putting packets on links.
#
# `put` and `send_towards` are compiled into their callers: on the hot path a call costs more than the work.
# Elsewhere it would only take long to compile: there `put_by_call` and `dispatch` do the same by a call.


@inlined
def put(world: World, index: int, row: int) -> None:
    """Put a packet on a link now: it is dropped, meets a fault, or is in flight until it arrives."""
    if not queue_or_drop(world, index, row):
        return
    world.packets[row].hop += 1
    if world.links[index].rules != 0:
        call_cold(world.clock[0].handlers, world.clock[0].at, APPLY_FAULTS, index, row, 0)
    else:
        append_in_flight(world, row)


@inlined
def send_towards(world: World, node: int, row: int) -> None:
    # For switches; hosts `put` a packet on their first link.
    put(world, natural(next_link(world, node, row)), row)


@inlined
def next_link(world: World, node: int, row: int) -> int:
    """The link out of a switch that a packet to another node takes.

    ECMP: among links of equal length the hash of the packet's route and this node decides (`way_of`), as in
    `topologies.network.path`, which says the same of a flow without a run.
    """
    packet = world.packets[row]
    position, goal = world.nodes[natural(node)], world.nodes[natural(packet.target)]
    if goal.home == position.home:  # the target is a host of this switch
        return int(goal.link)
    port = int(world.choice[natural(position.home), natural(goal.home)])
    if port >= position.degree:
        if position.degree < 0:  # a host's card
            return int(-1 - position.degree if packet.target == position.first_set else position.link)
        number = natural(position.first_set + port - position.degree)
        first, ways = world.sets[number, 0], world.sets[number, 1]
        if ways < 0 and packet.link >= world.clock[0].hosts_count:  # it does not come from this server's host
            ways = -ways
        port = int(world.ports[natural(first + int(way_of(packet.route, node, ways)))])
    return int(position.link + port)


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


# Rate changes of a link: reschedule all packets that have not left its transmitter (packets-and-links.md).


@kernel
def stop(world: World, index: int) -> int:
    """Store the rest of the packet on the wire; returns the time until the link would be free."""
    clock, link = world.clock[0], world.links[index]
    now_ps = clock.now_ps
    note_begun(world, index)
    order = link.wire_order
    link.wire_order = -1
    if link.free_at_ps <= now_ps:
        return 0
    row, leaves_ps = link.begun, link.begun_leaves_ps
    if leaves_ps <= now_ps:  # then an acknowledgement: a link with something to send is sending
        row = first_unsent(world, index)
        leaves_ps = world.packets[row].arrive_ps - link.delay_ps
    packet = world.packets[row]
    if packet.order == order:
        link.wire_work -= (now_ps - link.changed_ps) * link.rate_bps
    else:
        start_ps = leaves_ps - transmit_time_ps(link, packet)
        link.wire_work = packet.size_bytes * PS_BYTES - (now_ps - start_ps) * link.rate_bps
    link.wire = row
    link.wire_order = packet.order
    link.changed_ps = now_ps
    return link.free_at_ps - now_ps


@inlined
def first_unsent(world: World, index: int) -> int:
    """The first acknowledgement on a link that has not left its transmitter; −1 if there is none."""
    clock, link = world.clock[0], world.links[index]
    row = world.links[clock.links_count + index].head
    while row >= 0 and world.packets[row].arrive_ps - link.delay_ps <= clock.now_ps:
        row = world.packets[row].next
    return row


@inlined
def first_waiting_ack(world: World, index: int) -> int:
    """The first acknowledgement on a link that has not begun, as `stop` has left it; −1 if all have."""
    link, row = world.links[index], first_unsent(world, index)
    is_on_wire = row >= 0 and link.wire_order == world.packets[row].order
    return world.packets[row].next if is_on_wire else row


@kernel
def reschedule(world: World, index: int) -> int:
    """Set arrival times of packets that have not left, at the present rate; returns the time until they have.

    The rest of a packet that `stop` has stored goes first. Without one, all packets in line wait.
    """
    clock, link = world.clock[0], world.links[index]
    lane = world.links[clock.links_count + index]
    end_ps, first, first_ack = clock.now_ps, first_waiting(world, index), lane.head
    if link.wire_order >= 0:
        first_ack = first_waiting_ack(world, index)
        end_ps += -(-link.wire_work // link.rate_bps)
        packet = world.packets[link.wire]
        packet.arrive_ps = end_ps + link.delay_ps
        if packet.kind == FLOW_ACK:
            lane.free_at_ps = end_ps
        else:
            link.begun_leaves_ps = end_ps
    end_ps = reschedule_from(world, index, first_ack, end_ps)
    if first_ack >= 0:
        lane.free_at_ps = end_ps
    link.shift_ps = 0
    link.free_at_ps = reschedule_from(world, index, first, end_ps)
    schedule_head(world, index)
    schedule_head(world, clock.links_count + index)
    return link.free_at_ps - clock.now_ps


@inlined
def reschedule_from(world: World, index: int, row: int, end_ps: int) -> int:
    """Let packets from a row on leave one after the other from a time on; returns the end of the last."""
    clock, link = world.clock[0], world.links[index]
    while row >= 0:
        packet = world.packets[row]
        end_ps += transmit_time_ps(link, packet)
        if end_ps - clock.now_ps > BACKLOG_MAX_PS:
            clock.overflowed_link = index + 1
            end_ps = clock.now_ps
        packet.arrive_ps = end_ps + link.delay_ps
        row = packet.next
    return end_ps


@inlined
def schedule_head(world: World, lane: int) -> None:
    """Schedule the head of a line no later than its arrival; an early event is rescheduled."""
    clock, head = world.clock[0], world.links[lane].head
    if head < 0:
        return
    packet = world.packets[head]
    heap_index = 0
    while heap_index < clock.heap_count and world.heap[heap_index].what != lane:
        heap_index += 1
    if heap_index == clock.heap_count:
        clock.heap_count += 1
    elif world.heap[heap_index].time_ps <= packet.arrive_ps:
        return
    push(world.heap, heap_index, packet.arrive_ps, packet.order, lane)


@kernel
def waiting_ps(world: World, index: int) -> int:
    """Time on the wire, at the present rate, of all that waits on a link that is down."""
    clock, link = world.clock[0], world.links[index]
    total_ps = 0
    for lane in (index, clock.links_count + index):
        row = world.links[lane].head
        while row >= 0:
            total_ps += transmit_time_ps(link, world.packets[row])
            row = world.packets[row].next
    return total_ps
