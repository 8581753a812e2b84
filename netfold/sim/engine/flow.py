"""Reliable unicast: a window of packets, selective acknowledgement, retransmission.

Where paths are FIFO, an acknowledgement of a later transmission proves an earlier one lost (as RACK, RFC
8985, with the transmission number in place of the time). Where packets may overtake each other, a gap proves
nothing: links tell of losses, as ideal trimming would (`links.note_loss`), and the next acknowledgement has
the lost ones sent again. A timeout covers losses that no acknowledgement reveals.
"""

from __future__ import annotations

from netfold.kernels import rng_streams
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed_random import mix
from netfold.sim.engine.congestion_policies import frame_bytes, on_open, on_timeout
from netfold.sim.engine.heap import call_cold, store_tables, world_at
from netfold.sim.engine.links import put, take_packet
from netfold.sim.engine.memory_access import copy_words, natural, words_at
from netfold.sim.engine.sender import acknowledge, arm, disarm, is_in_vain, new_packet, pump, send_again
from netfold.sim.engine.tables import (
    DELIVERED,
    DONE_FLOW,
    FLOW_ACK,
    FLOW_DATA,
    FLOW_TIMER,
    NEVER,
    PLAIN,
    SPRAYED,
    STEER,
    World,
)


@kernel
def open_flow(world: World, row: int) -> None:
    """Start the flow that `Engine` has written into `row`."""
    world.clock[0].at = store_tables(world)
    start_flow(world, row)


@inlined
def start_flow(world: World, row: int) -> None:
    """Send the first window of the flow that is written into `row`."""
    flow = world.flows[row]
    flow.is_open = 1
    flow.newest = -1
    flow.is_marked = 0
    on_open(flow, flow.window_max * frame_bytes(flow))
    flow.lost_packets = flow.reordered_packets = flow.spurious_retransmissions = 0
    flow.flowlets = flow.ack_flowlets = 0
    flow.flowlet_ps = flow.ack_flowlet_ps = NEVER
    pump(world, flow, world.flights, row, send)
    flow.deadline_ps = world.clock[0].now_ps + flow.sender.timeout_ps
    arm(world, flow, FLOW_TIMER | row, flow.deadline_ps)


@inlined
def send(world: World, row: int, sequence: int) -> None:
    """Send one packet of a flow, for the first time or again."""
    flow = world.flows[row]
    flight = world.flights[row, sequence % flow.window_max]
    index = new_packet(world, flow, row, sequence, flight.attempt)
    packet = world.packets[index]
    packet.kind = FLOW_DATA
    packet.transmission = flight.transmission
    packet.words_count = min(flow.sender.elements, flow.words_count - sequence * flow.sender.elements)
    packet.size_bytes = flow.sender.overhead_bytes + 4 * packet.words_count
    if sequence == 0:
        packet.size_bytes += flow.sender.first_bytes
    if sequence == flow.units_count - 1:
        packet.size_bytes += flow.sender.last_bytes
    if world.clock[0].is_keyed:
        seed, attempt = world.clock[0].seed, flight.attempt
        packet.key = mix(seed, rng_streams.FLOW_PACKET, flow.key, sequence, attempt)
    if world.clock[0].policy != PLAIN:
        call_cold(world.clock[0].handlers, world.clock[0].at, STEER, index, flow.host, 0)
    put(world, natural(flow.first_link), index)


@kernel
def send_lost(at: int, row: int, stop: int, before: int) -> None:
    """Send packets again, see `send_again`."""
    world = world_at(at)
    send_again(world, world.flows[row], world.flights, row, stop, before, send)


@inlined
def on_flow_data(world: World, index: int) -> None:
    """A packet has arrived at the flow's target."""
    packet = world.packets[index]
    row = natural(packet.owner)
    flow = world.flows[row]
    if packet.serial != flow.serial or not flow.is_open:
        return
    if packet.transmission < flow.newest:
        flow.reordered_packets += 1
    else:
        flow.newest = packet.transmission
    flow.is_marked |= packet.is_marked
    window_index = natural(packet.unit % flow.window_max)
    received = world.flights[row, window_index].received
    is_new = packet.unit >= flow.expected and received != packet.unit + 1
    if not is_new:
        flow.spurious_retransmissions += packet.copy == 0
    if not is_new or store_data(world, index, window_index):
        send_ack(world, index)
    if flow.expected == flow.units_count and not flow.is_delivered:
        flow.is_delivered = 1
        report_delivery(world, row)


@inlined
def store_data(world: World, index: int, position: int) -> bool:
    """Store a packet's words and mark it received; returns whether to acknowledge now."""
    packet = world.packets[index]
    row, sequence = natural(packet.owner), packet.unit
    flow = world.flows[row]
    world.flights[row, natural(position)].received = sequence + 1
    if flow.received != 0 and packet.words_count > 0:
        start = 4 * sequence * flow.sender.elements
        sent = words_at(flow.words + start, packet.words_count)
        received = words_at(flow.received + start, packet.words_count)
        copy_words(received, sent)
    before = flow.expected
    if sequence == before:
        flow.expected = first_missing(world, row, position)
    world.clock[0].progress += flow.expected - before
    flow.unacknowledged += 1
    is_complete = flow.expected == flow.units_count
    return bool(flow.expected != before + 1 or flow.unacknowledged == flow.sender.ack_every or is_complete)


@inlined
def first_missing(world: World, row: int, position: int) -> int:
    """The first packet that a flow's target has not received, once the expected one has arrived."""
    flow = world.flows[row]
    sequence, position = flow.expected + 1, position + 1
    while sequence < flow.units_count:
        if position == flow.window_max:
            position = 0
        if world.flights[row, natural(position)].received != sequence + 1:
            break
        sequence, position = sequence + 1, position + 1
    return int(sequence)


@inlined
def report_delivery(world: World, row: int) -> None:
    """Report a flow as delivered, to its schedule if it is of one."""
    clock = world.clock[0]
    clock.attention = 1
    if world.flows[row].schedule >= 0:
        call_cold(clock.handlers, clock.at, DELIVERED, row, 0, 0)
        return
    done = world.done[clock.done_count]
    done.what = DONE_FLOW
    done.row = row
    done.serial = world.flows[row].serial
    clock.done_count += 1


@inlined
def send_ack(world: World, cause: int) -> None:
    """Send the source a cumulative acknowledgement that names the causing packet."""
    packet = world.packets[cause]
    row = packet.owner
    flow = world.flows[row]
    flow.unacknowledged = 0
    is_marked, flow.is_marked = flow.is_marked, 0
    index = take_packet(world.clock, world.packets)
    ack = world.packets[index]
    ack.kind = FLOW_ACK
    ack.target = flow.host
    ack.route = flow.ack_route
    ack.owner = row
    ack.serial = flow.serial
    ack.unit = packet.unit
    ack.part = flow.expected
    ack.transmission = packet.transmission
    ack.is_marked = is_marked
    ack.size_bytes = flow.sender.ack_bytes
    if world.clock[0].is_keyed:
        seed, transmission = world.clock[0].seed, packet.transmission
        ack.key = mix(seed, rng_streams.FLOW_ACK, flow.key, packet.unit, transmission)
        if packet.copy != 0:
            ack.key = mix(ack.key, packet.copy)
        ack.copy = packet.copy
    if world.clock[0].policy != PLAIN:
        call_cold(world.clock[0].handlers, world.clock[0].at, STEER, index, flow.target, 0)
    put(world, natural(flow.target_link), index)


@inlined
def on_flow_ack(world: World, index: int) -> None:
    """An acknowledgement has arrived at the flow's source."""
    packet = world.packets[index]
    row, sequence, cumulative = packet.owner, packet.unit, packet.part
    flow = world.flows[row]
    if packet.serial != flow.serial or not flow.is_open:
        return
    if sequence >= flow.base:
        world.flights[row, sequence % flow.window_max].acknowledged = 1
    if cumulative > flow.base:
        acknowledge(flow, flow.base, cumulative - 1, packet.is_marked)
        flow.base = cumulative
        flow.deadline_ps = world.clock[0].now_ps + flow.sender.timeout_ps
        flow.backoff = 0
    if flow.base == flow.units_count:
        flow.is_open = 0
        disarm(flow)
        flow.next_free = world.clock[0].flow_free
        world.clock[0].flow_free = row
        counts = world.flow_counts[natural(flow.job)]
        counts[0] += flow.retransmitted_packets
        counts[1] += flow.reordered_packets
        counts[2] += flow.spurious_retransmissions
        return
    if flow.lost_packets > 0:
        flow.lost_packets = 0
        send_lost(world.clock[0].at, row, flow.next, 0)
    elif cumulative <= sequence and world.clock[0].policy < SPRAYED:
        send_lost(world.clock[0].at, row, sequence, packet.transmission)
    pump(world, flow, world.flights, row, send)


@inlined
def on_flow_timer(world: World, row: int) -> None:
    """Nothing was acknowledged for a timeout: send again all that is outstanding."""
    flow, now_ps = world.flows[row], world.clock[0].now_ps
    if flow.deadline_ps <= now_ps and is_in_vain(world, flow, 0, flow.opened_ps):
        flow.deadline_ps = now_ps + flow.sender.timeout_ps
    elif flow.deadline_ps <= now_ps:
        flow.backoff += 1
        flow.timeouts += 1
        send_lost(world.clock[0].at, row, flow.next, flow.transmissions)
        flow.deadline_ps = now_ps + on_timeout(flow, flow.sender.timeout_ps, flow.backoff)
    arm(world, flow, FLOW_TIMER | row, flow.deadline_ps)
