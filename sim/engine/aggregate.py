"""The aggregating switch: front end, state machine, and results on their way back."""

from __future__ import annotations

from homomorphic.compiled import inlined
from sim.engine.link import free_packet, put, send_towards, take_packet, take_payload
from sim.engine.memory import words_at
from sim.engine.state import ALL_WORKERS, RESULT, World
from sim.engine.stream import packet_key, result_address
from switch.programs.switchml import ANSWER, COMPLETE, DROPPED, process_packet


@inlined
def on_data(world: World, index: int) -> None:
    """A worker's packet has arrived at its switch; the packet ends here."""
    packet = world.packets[index]
    stream = world.streams[packet.owner]
    job = world.jobs[stream.job]
    job.packets += 1
    if not passes_front_end(world, index):
        job.discarded += 1
        free_packet(world, index)
        return
    slot = job.register_base + job.slot_base + packet.slot * job.unit_packets + packet.part
    row = 2 * slot + packet.version
    if packet.payload >= 0:
        words = world.payloads[packet.payload, : packet.words_count]
    else:
        words = words_at(packet.words, packet.words_count)
    verdict = process_packet(
        world.registers, row, stream.worker, job.workers_count, packet.merge, packet.exponent, words
    )
    if verdict == COMPLETE:
        job.results += 1
        emit_result(world, index, row, ALL_WORKERS)
    elif verdict == ANSWER:
        job.answers += 1
        emit_result(world, index, row, stream.worker)
    elif verdict == DROPPED:
        job.duplicates_dropped += 1
    free_packet(world, index)


@inlined
def passes_front_end(world: World, index: int) -> bool:
    """RoCE: a message's packets pass while PSNs follow each other; a gap discards what is left of it."""
    packet = world.packets[index]
    window = world.windows[packet.owner, packet.slot]
    if packet.part == 0 or packet.transmission == window.switch_expected_psn:
        window.switch_expected_psn = packet.transmission + 1
        return True
    window.switch_expected_psn = -1
    return False


@inlined
def emit_result(world: World, cause: int, row: int, receiver: int) -> None:
    """Copy a slot into a result and send it on its way, over the loopback link where there is one."""
    packet = world.packets[cause]
    job = world.jobs[world.streams[packet.owner].job]
    index = copy_header(world, cause)
    result = world.packets[index]
    result.kind = RESULT
    result.receiver = receiver
    result.exponent = world.registers.exponent[row]
    result.payload = take_payload(world)
    values = world.registers.values[row, : packet.words_count]
    words = world.payloads[result.payload]
    for i in range(values.size):
        words[i] = values[i]
    if job.loopback_link >= 0:
        if world.clock[0].is_lossy:
            result.key = packet_key(world, index, 5, world.streams[packet.owner].worker)
        put(world, job.loopback_link, index)
    else:
        replicate(world, index)


@inlined
def copy_header(world: World, source: int) -> int:
    """A new packet with the header fields that a result echoes."""
    index = take_packet(world.clock, world.packets)
    old, new = world.packets[source], world.packets[index]
    new.target = world.jobs[world.streams[old.owner].job].switch
    new.size_bytes = old.size_bytes
    new.owner = old.owner
    new.serial = old.serial
    new.unit = old.unit
    new.part = old.part
    new.attempt = old.attempt
    new.words_count = old.words_count
    new.slot = old.slot
    new.version = old.version
    new.merge = old.merge
    return index


@inlined
def replicate(world: World, index: int) -> None:
    """Send a result to its receiver, or a copy to every worker of the job; the packet given ends here."""
    packet = world.packets[index]
    job = world.jobs[world.streams[packet.owner].job]
    first, last = 0, job.workers_count - 1
    if packet.receiver != ALL_WORKERS:
        first = last = packet.receiver
    for worker in range(first, last + 1):
        row = job.first_stream + worker
        copy = copy_header(world, index)
        result = world.packets[copy]
        result.kind = RESULT
        result.receiver = worker
        result.exponent = packet.exponent
        result.payload = packet.payload
        world.payload_uses[packet.payload] += 1
        result.owner = row
        result.target = world.streams[row].host
        result.route = world.streams[row].route
        result.words = result_address(world, row, copy)
        result.transmission = world.windows[row, packet.slot].switch_psn
        world.windows[row, packet.slot].switch_psn += 1
        if world.clock[0].is_lossy:
            cause = world.streams[packet.owner].worker
            result.key = packet_key(world, copy, 2, worker * 65536 + cause)
        send_towards(world, job.switch, copy)
    free_packet(world, index)
