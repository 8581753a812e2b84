"""A worker's aggregation stream: the self-clocked window of SwitchML's client.

As in the released client (p4lang/p4app-switchML, `dpdk_worker_thread`, `rdma_worker_thread`): a result is
the clock that releases the next unit of the same slot in the other version; one timer per outstanding unit
sends it again. A retransmission's timeout is up to a quarter longer, or workers whose bursts collide would
keep colliding. Timers here expire exactly; the released client checks them at most once per timeout.

In block floating point, a block's exponent travels one window ahead of its words (`lead`), and the switch
takes the largest. Other networks agree on exponents by messages: in two steps
(`homomorphic/codec_driver.py`), or as the codec says (`BlockExponent` in `homomorphic/number_formats.py`).

A job may wait for a loss: a unit that was sent once is not sent again while nothing was lost since, because
a copy would change nothing, whoever is late. Then each further copy waits twice as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.block_floating_point import quantize_block
from netfold.kernels import rng_streams
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed_random import mix
from netfold.sim.engine.heap import call_cold, store_tables, world_at
from netfold.sim.engine.links import detach_words, free_packet, put, take_payload
from netfold.sim.engine.memory_access import (
    bits_at,
    bytes_at,
    copy_words,
    floats_at,
    natural,
    prefetch,
    words_at,
)
from netfold.sim.engine.sender import arm, backed_off_ps, disarm, is_in_vain, jitter_ps, new_packet
from netfold.sim.engine.tables import DATA, DONE_STREAM, NEVER, RESEND_UNIT, STREAM_TIMER, World
from netfold.switch.program import Machine
from netfold.switch.registers import MAX

# Early results: they arrive before their worker has sent its own unit, from slots with timers.


@inlined
def store_early(world: World, row: int, index: int) -> None:
    """Append a result to a worker's early results."""
    stream = world.streams[row]
    world.packets[index].next = -1
    if stream.early_head >= 0:
        world.packets[stream.early_tail].next = index
    else:
        stream.early_head = index
    stream.early_tail = index


@inlined
def take_early(world: World, row: int, unit: int) -> int:
    """Take the first early result of a unit of the open stream; −1 if there is none."""
    stream = world.streams[row]
    before, index = -1, stream.early_head
    while index >= 0:
        packet = world.packets[index]
        if packet.serial == stream.serial and packet.unit == unit:
            unlink(world, row, before, index)
            return index
        before, index = index, packet.next
    return -1


@inlined
def drop_stale_early(world: World, row: int) -> None:
    """Drop early results of streams before the one that opens."""
    stream = world.streams[row]
    before, index = -1, stream.early_head
    while index >= 0:
        following = world.packets[index].next
        if world.packets[index].serial < stream.serial:
            unlink(world, row, before, index)
            stream.stale_results += 1
            free_packet(world, index)
        else:
            before = index
        index = following


@inlined
def unlink(world: World, row: int, before: int, index: int) -> None:
    """Remove a result from the early results; `before` is its predecessor, or −1."""
    stream, following = world.streams[row], world.packets[index].next
    if before >= 0:
        world.packets[before].next = following
    else:
        stream.early_head = following
    if stream.early_tail == index:
        stream.early_tail = before


# The words of a unit: at its worker, in the packets that carry them, and in its result.


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
        packet.size_bytes -= 4 * job.sender.elements
    if unit < 0:
        packet.merge = 0
        return
    packet.merge = segment.merge
    start = ((unit - segment.first_unit) * job.unit_packets + packet.part) * job.sender.elements
    count = min(job.sender.elements, segment.words_count - start)
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
    start = ((unit - segment.first_unit) * job.unit_packets + packet.part) * job.sender.elements
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
    if packet.words == 0:  # the stream was not open yet when it was sent
        packet.words = result_address(world, row, index)
    if packet.words == 0:
        return
    if packet.payload < 0:
        fill_unchanged(world.clock[0].at, index)
    segment = world.segments[row, segment_of(world, row, packet.unit - stream.lead)]
    packet_number = (packet.unit - stream.lead - segment.first_unit) * job.unit_packets + packet.part
    is_whole = packet.workers == job.workers_count and packet.bits == segment.all_bits
    if not is_whole or segment.is_partial != 0:
        write_members(segment, packet_number, packet.workers, packet.bits)
    write_result(world, segment, packet_number, packet.words, index)


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
    seen, private_marks = bytes_at(segment.seen, place + 1), bytes_at(segment.own, place + 1)
    private_marks[place] = 0
    if seen[place] == 0:
        seen[place] = 1
        copy_words(words_at(address, packet.words_count), words)
    elif not are_same(words_at(address, packet.words_count), words):
        private_marks[place] = 1
        copy_words(words_at(segment.result + (address - segment.shared), packet.words_count), words)


@inlined
def are_same(words: NDArray[np.int32], others: NDArray[np.int32]) -> bool:
    """Whether two runs of words are equal; without an early exit, so that it vectorises."""
    differing = np.int32(0)
    for i in range(words.size):
        differing |= words[i] ^ others[i]
    return bool(differing == 0)


NO_EXPONENT = -128
TIMEOUTS_THRESHOLD = 100  # after so many timeouts the timeout doubles


@kernel
def open_stream(world: World, row: int) -> None:
    """Start the stream that `Engine` has written into `row`: send the first window."""
    world.clock[0].at = store_tables(world)
    stream, job = world.streams[row], world.jobs[world.streams[row].job]
    stream.is_open = 1
    stream.entry_order = -1
    stream.completed_count = 0
    stream.timeout_ps = job.sender.timeout_ps
    drop_stale_early(world, row)
    for unit in range(min(stream.window, stream.units_count)):
        send_next(world, row, unit, job.sender.first_timeout_ps)


@inlined
def send_next(world: World, row: int, first: int, timeout_ps: int) -> None:
    """Send a unit for the first time, in its window slot; skip units with early results."""
    stream = world.streams[row]
    slot = first % stream.window
    window = world.windows[row, slot]
    for unit in range(first, stream.units_count, stream.window):
        window.unit = unit
        window.attempt = 0
        early = take_early(world, row, unit)
        if early < 0:
            send_unit(world, row, slot, timeout_ps)
            if window.deadline_ps < stream.armed_ps:
                arm(world, stream, STREAM_TIMER | row, window.deadline_ps)
            return
        timeout_ps = stream.timeout_ps
        store_result(world, row, early)
        free_packet(world, early)
        finish_unit(world, row, slot)


@inlined
def send_unit(world: World, row: int, slot: int, timeout_ps: int) -> None:
    """Send (again) the unit that is outstanding in a window slot, and set its deadline."""
    stream, window = world.streams[row], world.windows[row, slot]
    job = world.jobs[stream.job]
    window.sent_ps = world.clock[0].now_ps
    window.deadline_ps = NEVER if timeout_ps == NEVER else window.sent_ps + timeout_ps
    for part in range(job.unit_packets):
        index = new_packet(world, stream, row, window.unit, window.attempt)
        packet = world.packets[index]
        packet.kind = DATA
        packet.part = part
        packet.point = stream.point
        packet.child = stream.child
        packet.transmission = window.psn
        packet.slot = slot
        packet.version = window.version
        packet.exponent = NO_EXPONENT
        packet.size_bytes = job.sender.overhead_bytes + 4 * job.sender.elements
        if part == 0:
            packet.size_bytes += job.sender.first_bytes
        if part == job.unit_packets - 1:
            packet.size_bytes += job.sender.last_bytes
            if window.unit < stream.blocks_count:
                packet.exponent = bytes_at(stream.exponents, stream.blocks_count)[window.unit]
        if world.clock[0].is_keyed:
            packet.key = packet_key(world, index, rng_streams.WORKER_PACKET, stream.worker)
        fill_words(world, row, index)
        window.psn += 1
        put(world, natural(stream.first_link), index)


@inlined
def packet_key(world: World, index: int, rng_stream: int, sender: int) -> np.uint64:
    """Key of a packet's random draws, the same for the same packet in every run."""
    packet = world.packets[index]
    key = mix(
        world.clock[0].seed,
        rng_stream,
        world.streams[packet.owner].job,
        sender,
        packet.serial,
        packet.unit,
        packet.part,
        packet.attempt,
    )
    return mix(key, packet.copy) if packet.copy != 0 else key


@inlined
def on_result(world: World, index: int) -> None:
    """A result has arrived at its worker; the packet ends here, or is stored as early."""
    packet = world.packets[index]
    row = packet.owner
    stream = world.streams[row]
    window = world.windows[row, packet.slot]
    if not stream.is_open or packet.serial != stream.serial or packet.unit != window.unit:
        if world.jobs[stream.job].program == TIMED and is_early(world, row, index):
            store_early(world, row, index)
            return
        stream.stale_results += 1
    elif advance_unit(world, row, index):
        store_result(world, row, index)
        if window.parts == world.jobs[stream.job].unit_packets:
            complete_unit(world, row, packet.slot)
    free_packet(world, index)


@inlined
def advance_unit(world: World, row: int, index: int) -> bool:
    """Count a result packet if it is the next of its unit, else restart the unit; returns whether it is."""
    packet = world.packets[index]
    window = world.windows[row, packet.slot]
    if packet.part == 0:
        window.parts = 0
    elif packet.transmission != window.expected_psn or packet.part != window.parts:
        window.parts = 0
        window.expected_psn = -1
        world.clock[0].lost_ps = world.clock[0].now_ps  # what its unit needs now is a copy
        return False
    window.parts += 1
    window.expected_psn = packet.transmission + 1
    return True


@inlined
def is_early(world: World, row: int, index: int) -> bool:
    """Whether a result is of a unit that its worker has not sent yet."""
    stream, packet = world.streams[row], world.packets[index]
    if packet.serial != stream.serial:
        return packet.serial > stream.serial
    outstanding = world.windows[row, packet.slot].unit
    return bool(stream.is_open and 0 <= outstanding < packet.unit)


@inlined
def complete_unit(world: World, row: int, slot: int) -> None:
    """A unit is complete: its slot is free, and the next unit is released."""
    stream, window = world.streams[row], world.windows[row, slot]
    following = window.unit + stream.window
    finish_unit(world, row, slot)
    if following < stream.units_count:
        send_next(world, row, following, stream.timeout_ps)


@inlined
def finish_unit(world: World, row: int, slot: int) -> None:
    """Count a complete unit, and end the stream with its last."""
    stream, window = world.streams[row], world.windows[row, slot]
    stream.completed_count += 1
    world.clock[0].progress += 1
    window.parts = 0
    window.expected_psn = -1
    window.version = window.version + 1 if world.jobs[stream.job].program == TIMED else 1 - window.version
    window.unit = -1
    if stream.completed_count == stream.units_count:
        end_stream(world, row)


@inlined
def end_stream(world: World, row: int) -> None:
    """All units are complete: void the timer and report."""
    stream, clock = world.streams[row], world.clock[0]
    stream.is_open = 0
    disarm(stream)
    done = world.done[clock.done_count]
    done.what = DONE_STREAM
    done.row = row
    done.serial = stream.serial
    clock.done_count += 1
    clock.attention = 1


@inlined
def on_timer(world: World, row: int) -> None:
    """Send again every unit whose deadline has passed, then wait for the next deadline."""
    stream, now_ps = world.streams[row], world.clock[0].now_ps
    job = world.jobs[stream.job]
    next_ps = NEVER
    for slot in range(job.window):
        window = world.windows[row, slot]
        if window.unit < 0:
            continue
        if window.deadline_ps <= now_ps:
            if is_in_vain(world, stream, window.attempt, window.sent_ps):
                window.deadline_ps = now_ps + stream.timeout_ps
                next_ps = min(window.deadline_ps, next_ps)
                continue
            stream.timeouts += 1
            window.attempt += 1
            timeout_ps = backed_off_ps(stream, stream.timeout_ps, window.attempt)
            timeout_ps += jitter_ps(world, stream, stream.timeout_ps, window.unit, window.attempt)
            call_cold(world.clock[0].handlers, world.clock[0].at, RESEND_UNIT, row, slot, timeout_ps)
            if not stream.sender.waits_for_loss and stream.timeouts >= stream.timeouts_threshold:
                longer_ps = min(2 * stream.timeout_ps, stream.sender.timeout_max_ps)
                stream.timeout_ps = max(stream.timeout_ps, longer_ps)
                stream.timeouts_threshold += TIMEOUTS_THRESHOLD
        next_ps = min(next_ps, window.deadline_ps)
    if next_ps != NEVER:
        arm(world, stream, STREAM_TIMER | row, next_ps)
