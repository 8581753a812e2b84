"""Apply fault rules to packets on links (README, Faults)."""

from __future__ import annotations

import numpy as np

from netfold.kernels import purposes
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed import mix
from netfold.sim.engine.interface import Fate
from netfold.sim.engine.links.link import (
    append_in_flight,
    detach_words,
    free_packet,
    queue_or_drop,
    take_packet,
    take_payload,
)
from netfold.sim.engine.tables.addresses import copy_words
from netfold.sim.engine.tables.cold_calls import world_at
from netfold.sim.engine.tables.heap import push
from netfold.sim.engine.tables.world import DELAYED, FLOW_ACK, FLOW_DATA, LOST, World

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
    named, decided = world.links[index].rules, 0
    hop = packet.hop - 1
    for number in range(world.rules.size):
        rule = world.rules[number]
        if not (named >> np.uint64(number)) & np.uint64(1) or (decided >> rule.fate) & 1:
            continue
        if not rule.from_ps <= now_ps < rule.until_ps:
            continue
        decided |= 1 << rule.fate
        draw = mix(packet.key, hop) if rule.fate == LOSS else mix(packet.key, hop, purposes.FATE + rule.fate)
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
    draw = mix(world.clock[0].seed, purposes.BURST_CHAIN, number, index, chain.packets)
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
    word = int(mix(packet.key, hop, purposes.FLIPPED_WORD) % np.uint64(packet.words_count))
    bit = int(mix(packet.key, hop, purposes.FLIPPED_BIT) % np.uint64(32))
    world.payloads[packet.payload, word] ^= np.int32(1 << bit) if bit < 31 else np.int32(-(2**31))
    return True


@inlined
def copy_packet(world: World, row: int) -> int:
    """Copy a packet under a new key; both refer to the same words."""
    copy = take_packet(world.clock, world.packets)
    world.packets[copy] = world.packets[row]
    packet = world.packets[copy]
    packet.key = mix(world.packets[row].key, purposes.COPY, packet.hop - 1)
    packet.copy = np.uint32(packet.key) | np.uint32(1)
    if packet.payload >= 0:
        world.payload_uses[packet.payload] += 1
    return copy
