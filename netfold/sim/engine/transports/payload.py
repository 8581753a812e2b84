"""The words of a unit: at its worker, in the packets that carry them, and in its result."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.numbers.exponents import quantize_block
from netfold.kernels.compiled import inlined, kernel
from netfold.sim.engine.links.link import detach_words, take_payload
from netfold.sim.engine.tables.addresses import bits_at, bytes_at, copy_words, floats_at, prefetch, words_at
from netfold.sim.engine.tables.cold_calls import world_at
from netfold.sim.engine.tables.world import World
from netfold.switch.program import Machine
from netfold.switch.registers import MAX

TIMED = int(Machine.TIMED)
INT32_MIN = np.int32(-(2**31))


@inlined
def segment_of(world: World, row: int, unit: int) -> int:
    """Index of the segment that holds a unit (counted without the lead)."""
    index = world.streams[row].segments_count - 1
    while world.segments[row, index].first_unit > unit:
        index -= 1
    return index


@inlined
def fill_words(world: World, row: int, index: int) -> None:
    """Let a packet point to its words; words of a scaled stream are quantised into a payload.

    A packet of an absent worker has none, and the number of words that its result has.
    """
    stream, packet = world.streams[row], world.packets[index]
    unit = packet.unit - stream.lead
    job = world.jobs[stream.job]
    segment = world.segments[row, segment_of(world, row, max(unit, 0))]
    packet.workers = segment.workers
    packet.bits = segment.bits
    if segment.workers == 0:
        packet.size_bytes -= 4 * job.elements
    if unit < 0:
        packet.merge = 0
        return
    packet.merge = segment.merge
    start = ((unit - segment.first_unit) * job.unit_packets + packet.part) * job.elements
    count = min(job.elements, segment.words_count - start)
    if segment.workers == 0:
        packet.words_count = max(0, count) * (job.lanes if segment.table != 0 else 1)
        return
    packet.table = segment.table
    if count <= 0:
        return
    packet.words_count = count
    if stream.lead == 0:
        packet.words = segment.words + 4 * start
        if job.program == TIMED:  # its streams may end while their packets are in flight
            detach_words(world, index)
        return
    packet.payload = take_payload(world)
    # Units follow each other: here the one after the next is prefetched.
    prefetch(segment.words + 4 * (start + 2 * count), count)
    quantize_block(
        floats_at(segment.words + 4 * start, count),
        bytes_at(stream.agreed, stream.blocks_count)[unit],
        job.workers_count,
        world.payloads[packet.payload, :count],
    )


@inlined
def result_address(world: World, row: int, index: int) -> int:
    """Address for a result's words at its worker, as in an RDMA header; 0 if there is none."""
    stream, packet = world.streams[row], world.packets[index]
    unit = packet.unit - stream.lead
    if not stream.is_open or packet.serial != stream.serial or unit < 0 or packet.words_count == 0:
        return 0
    job = world.jobs[stream.job]
    segment = world.segments[row, segment_of(world, row, unit)]
    start = ((unit - segment.first_unit) * job.unit_packets + packet.part) * job.elements
    if segment.table != 0:
        start *= job.lanes
    if segment.shared != 0:
        return segment.shared + 4 * start
    return segment.result + 4 * start


@inlined
def store_result(world: World, row: int, index: int) -> None:
    """Write a result's words, and from a unit's last packet the agreed exponent."""
    stream, packet = world.streams[row], world.packets[index]
    job = world.jobs[stream.job]
    if packet.unit < stream.blocks_count and packet.part == job.unit_packets - 1:
        bytes_at(stream.agreed, stream.blocks_count)[packet.unit] = packet.exponent
    if job.program == TIMED:
        segment = world.segments[row, segment_of(world, row, packet.unit)]
        bits_at(segment.holders, packet.unit + 1)[packet.unit - segment.first_unit] = packet.bits
    if packet.words == 0:  # when it was sent the stream was not open yet
        packet.words = result_address(world, row, index)
    if packet.words == 0:
        return
    if packet.payload < 0:
        fill_unchanged(world.clock[0].at, index)
    segment = world.segments[row, segment_of(world, row, packet.unit - stream.lead)]
    place = (packet.unit - stream.lead - segment.first_unit) * job.unit_packets + packet.part
    is_whole = packet.workers == job.workers_count and packet.bits == segment.all_bits
    if not is_whole or segment.is_partial != 0:
        write_members(segment, place, packet.workers, packet.bits)
    write_result(world, segment, place, packet.words, index)


@inlined
def write_members(segment: Any, place: int, workers: int, bits: int) -> None:
    """Write who contributed to a result packet; from the first that some worker is missing from, to each."""
    if segment.members != 0:
        segment.is_partial = 1
        members = bits_at(segment.members + 8 * place, 2)
        members[0] = workers
        members[1] = bits


@kernel
def fill_unchanged(at: int, index: int) -> None:
    """Give a result that nobody has contributed to the words that change no others in its merge."""
    world = world_at(at)
    packet = world.packets[index]
    packet.payload = take_payload(world)
    words = world.payloads[packet.payload, : packet.words_count]
    word = INT32_MIN if packet.merge == MAX else np.int32(0)
    for i in range(words.size):
        words[i] = word


@inlined
def write_result(world: World, segment: Any, place: int, address: int, index: int) -> None:
    """Write a result packet's words at their address; if that is shared, only new or different words."""
    packet = world.packets[index]
    words = world.payloads[packet.payload, : packet.words_count]
    if segment.shared == 0:
        copy_words(words_at(address, packet.words_count), words)
        return
    seen, own = bytes_at(segment.seen, place + 1), bytes_at(segment.own, place + 1)
    own[place] = 0
    if seen[place] == 0:
        seen[place] = 1
        copy_words(words_at(address, packet.words_count), words)
    elif not are_same(words_at(address, packet.words_count), words):
        own[place] = 1
        copy_words(words_at(segment.result + (address - segment.shared), packet.words_count), words)


@inlined
def are_same(words: NDArray[np.int32], others: NDArray[np.int32]) -> bool:
    """Whether two runs of words are equal; without an early exit, so that it vectorises."""
    differing = np.int32(0)
    for i in range(words.size):
        differing |= words[i] ^ others[i]
    return bool(differing == 0)
