"""Schedules between hosts: what is sent when, and the merges at their workers (flows-and-schedules.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import add_words, lift_words, survival
from netfold.kernels import rng_streams
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed_random import mix
from netfold.sim.engine.engine_views import log_timer
from netfold.sim.engine.flow import start_flow
from netfold.sim.engine.heap import push, world_at
from netfold.sim.engine.memory_access import copy_words, longs_at, natural, words_at
from netfold.sim.engine.tables import (
    ARRIVED,
    ASKED,
    DONE_ASKS,
    DONE_WORKER,
    DUE,
    FINAL,
    GIVEN,
    HELD_BACK,
    IN_LANE,
    LANE_HEAD,
    LATE,
    MERGED,
    MERGING,
    NEVER,
    PROCESSED,
    READY,
    ROW,
    SCHEDULE_BITS,
    SCRATCH,
    SENT,
    World,
    cells_at,
    lanes_at,
    parties_at,
    planned_at,
    transfers_at,
)
from netfold.switch.registers import ADD, MAX, SIGN, TABLE_ADD, merge_without_overflow
from netfold.topologies.ecmp import flow_key

# What workers of a schedule hold, and how an arriving transfer is merged into it.
#
# Nothing is copied when a transfer arrives: the target reads its source's cells, which the source has given
# away. A merge writes into a buffer that no worker's words are in: that of the arriving words, or of the
# target's own where the order of operands does not matter, or a free one.


INT32_MIN = np.int32(-(2**31))


@inlined
def has_buffers(schedule: Any, count: int) -> bool:
    # Each of `count` cells that are merged may take a buffer, and one of them another for a while.
    return bool(schedule.merge < 0 or schedule.scratch_count > count)


@inlined
def take_buffer(world: World, row: int) -> int:
    """Take a free buffer of a schedule; returns its address."""
    schedule = world.schedules[row]
    assert schedule.scratch_count > 0
    schedule.scratch_count -= 1
    address = schedule.scratch_free
    if address != 0:
        schedule.scratch_free = longs_at(address, 1)[0]
        return int(address)
    address = schedule.scratch_next
    schedule.scratch_next += schedule.scratch_bytes
    return int(address)


@inlined
def free_buffer(world: World, row: int, address: int) -> None:
    """Give back a buffer."""
    schedule = world.schedules[row]
    longs_at(address, 1)[0] = schedule.scratch_free
    schedule.scratch_free = address
    schedule.scratch_count += 1


@inlined
def any_merges(world: World, row: int, number: int) -> bool:
    """Whether a transfer brings words to a cell that has words."""
    schedule = world.schedules[row]
    planned = planned_at(schedule.planned, schedule.transfers_count)[number]
    cells = cells_at(schedule.cells, schedule.workers_count * schedule.chunks)
    source, target = planned.source * schedule.chunks, planned.target * schedule.chunks
    for chunk in range(planned.first, planned.first + planned.count):
        if cells[source + chunk].workers > 0 and cells[target + chunk].workers > 0:
            return True
    return False


@inlined
def time_of_merge_ps(world: World, row: int, number: int) -> int:
    """Time that a transfer's merge takes on an ordinary host; it depends on whether codes or lanes arrive."""
    schedule = world.schedules[row]
    if schedule.merge_ps == 0:
        return 0
    planned = planned_at(schedule.planned, schedule.transfers_count)[number]
    cells = cells_at(schedule.cells, schedule.workers_count * schedule.chunks)
    source, is_lifted = planned.source * schedule.chunks, 0
    for chunk in range(planned.first, planned.first + planned.count):
        is_lifted |= cells[source + chunk].is_lifted
    return int(longs_at(schedule.merge_ps, 2 * schedule.transfers_count)[2 * number + is_lifted])


@kernel
def merge_cells(at: int, row: int, number: int) -> None:
    """Merge a transfer's cells into its target's."""
    world = world_at(at)
    schedule = world.schedules[row]
    planned = planned_at(schedule.planned, schedule.transfers_count)[number]
    cells = cells_at(schedule.cells, schedule.workers_count * schedule.chunks)
    source, target = planned.source * schedule.chunks, planned.target * schedule.chunks
    key = mix(
        schedule.seed, rng_streams.RING_MERGE, schedule.job, schedule.operation, planned.target, planned.step
    )
    offset = 0
    for chunk in range(planned.first, planned.first + planned.count):
        arriving, local = natural(source + chunk), natural(target + chunk)
        workers_held = cells[arriving].held + cells[local].held
        words = cells[arriving].words
        if cells[arriving].workers > 0:
            if cells[local].workers == 0:
                move(cells, arriving, local)
            elif schedule.merge < 0:
                cells[local].words = words
                cells[local].workers += cells[arriving].workers
            else:
                merge_cell(world, row, arriving, local, key + np.uint64(32 * offset))
        cells[local].held = workers_held
        cells[arriving].state = GIVEN
        if workers_held == schedule.workers_count:
            finish_cell(world, row, chunk, local)
        offset += words


@inlined
def move(cells: Any, source: int, target: int) -> None:
    """Pass on what a cell holds, as it is."""
    cells[target].address = cells[source].address
    cells[target].words = cells[source].words
    cells[target].workers = cells[source].workers
    cells[target].state = cells[source].state
    cells[target].is_lifted = cells[source].is_lifted


@inlined
def merge_cell(world: World, row: int, arriving: int, own_cell: int, key: np.uint64) -> None:
    """Merge the words of two cells; the second then holds them."""
    schedule = world.schedules[row]
    cells = cells_at(schedule.cells, schedule.workers_count * schedule.chunks)
    lift_cell(world, row, arriving)
    address, other, count = cells[arriving].address, cells[own_cell].address, cells[arriving].words
    threshold = survival(cells[arriving].workers, cells[own_cell].workers)
    cells[own_cell].workers += cells[arriving].workers
    if cells[arriving].state == SCRATCH:
        lift_cell(world, row, own_cell)
        merge_words(world, row, address, cells[own_cell].address, count, threshold, key)
        if cells[own_cell].state == SCRATCH:
            free_buffer(world, row, cells[own_cell].address)
        cells[own_cell].address = address
    elif cells[own_cell].state == SCRATCH and schedule.merge != SIGN:
        merge_words(world, row, other, address, count, threshold, key)
    else:
        buffer = take_buffer(world, row)
        copy_words(words_at(buffer, count), words_at(address, count))
        merge_words(world, row, buffer, other, count, threshold, key)
        if cells[own_cell].state == SCRATCH:
            free_buffer(world, row, other)
        cells[own_cell].address = buffer
    cells[own_cell].words = count
    cells[own_cell].state = SCRATCH
    cells[own_cell].is_lifted = cells[arriving].is_lifted


@inlined
def lift_cell(world: World, row: int, cell: int) -> None:
    """Turn the codes of TABLE_ADD in a cell into lanes, in a buffer."""
    schedule = world.schedules[row]
    cells = cells_at(schedule.cells, schedule.workers_count * schedule.chunks)
    if schedule.table == 0 or cells[cell].is_lifted != 0:
        return
    buffer, lifted = take_buffer(world, row), schedule.lifted_words
    lift_to(world, row, cell, buffer)
    cells[cell].address = buffer
    cells[cell].words *= lifted
    cells[cell].state = SCRATCH
    cells[cell].is_lifted = 1


@inlined
def lift_to(world: World, row: int, cell: int, address: int) -> None:
    """Write the lanes of the codes in a cell to an address."""
    schedule = world.schedules[row]
    held = cells_at(schedule.cells, schedule.workers_count * schedule.chunks)[cell]
    codes = words_at(held.address, held.words).view(np.uint32)
    lanes = words_at(address, held.words * schedule.lifted_words)
    lift_words(codes, words_at(schedule.table, 16), lanes, schedule.lane_bits)


@inlined
def merge_words(
    world: World, row: int, accumulated: int, arriving: int, count: int, threshold: np.int64, key: np.uint64
) -> None:
    """Merge words at an address into those at another, in place."""
    schedule = world.schedules[row]
    values, words = words_at(accumulated, count), words_at(arriving, count)
    if schedule.merge not in (ADD, TABLE_ADD):
        merge_without_overflow(values, words, schedule.merge, threshold, key)
    elif schedule.lane_bits == 8:
        add_words(values.view(np.int8), words.view(np.int8))
    elif schedule.lane_bits == 16:
        add_words(values.view(np.int16), words.view(np.int16))
    else:
        add_words(values, words)


@inlined
def finish_cell(world: World, row: int, chunk: int, cell: int) -> None:
    """Write a chunk that stands for all workers into the result; it is written once (`engine_data.py`)."""
    schedule = world.schedules[row]
    cells = cells_at(schedule.cells, schedule.workers_count * schedule.chunks)
    state = cells[cell].state
    cells[cell].state = FINAL
    if schedule.merge < 0:
        return
    ends, times = longs_at(schedule.ends, schedule.chunks + 1), schedule.lifted_words
    address, count = schedule.result + 4 * times * ends[chunk], times * (ends[chunk + 1] - ends[chunk])
    if cells[cell].workers == 0:
        fill_words(words_at(address, count), schedule.merge)
    elif schedule.table != 0 and cells[cell].is_lifted == 0:
        lift_to(world, row, cell, address)
    else:
        copy_words(words_at(address, count), words_at(cells[cell].address, count))
    if state == SCRATCH:
        free_buffer(world, row, cells[cell].address)
    cells[cell].address = address
    cells[cell].words = count
    cells[cell].is_lifted = 1


@inlined
def fill_words(words: NDArray[np.int32], merge: int) -> None:
    """Write the words that nobody contributed to: those that change no others (`merge.unchanged_by`)."""
    word = INT32_MIN if merge == MAX else np.int32(0)
    for i in range(words.size):
        words[i] = word


# How a schedule goes on: a queue of transfers that may be sent or processed (flows-and-schedules.md).
#
# Each call carries out one of them, so that what one call needs is bounded: it opens one flow at most, and
# merges one transfer. Where rows of flows or buffers are short, it says so and leaves it in the queue.


QUEUE_BITS = 32
"""Bits of an entry of the queue for a transfer's number; the row of its schedule is above."""


@inlined
def set_link(world: World, row: int, number: int, entry: int) -> None:
    """Set what is behind a transfer in the queue."""
    schedule = world.schedules[row]
    transfers_at(schedule.transfers, schedule.transfers_count)[number].link = entry


@inlined
def enqueue(world: World, row: int, number: int, stage: int) -> None:
    """Put a transfer at the end of the queue."""
    clock, schedule = world.clock[0], world.schedules[row]
    transfer = transfers_at(schedule.transfers, schedule.transfers_count)[natural(number)]
    transfer.stage = stage
    transfer.link = -1
    entry = row << QUEUE_BITS | number
    if clock.queue_head < 0:
        clock.queue_head = entry
    else:
        last = clock.queue_tail
        set_link(world, natural(last >> QUEUE_BITS), natural(last & ROW), entry)
    clock.queue_tail = entry
    clock.attention = 1


@kernel
def go_on(at: int) -> None:
    """Carry out the first transfer in the queue, unless something is short."""
    world = world_at(at)
    clock = world.clock[0]
    row, number = natural(clock.queue_head >> QUEUE_BITS), natural(clock.queue_head & ROW)
    schedule = world.schedules[row]
    transfer = transfers_at(schedule.transfers, schedule.transfers_count)[number]
    stage = transfer.stage
    clock.short_of = 0
    if stage in (READY, LANE_HEAD) and clock.flow_free < 0:
        clock.short_of = -1
    if stage in (ARRIVED, DUE) and not has_buffers(
        schedule, planned_at(schedule.planned, schedule.transfers_count)[natural(number)].count
    ):
        clock.short_of = row + 1
    if clock.short_of != 0:
        return
    clock.queue_head = transfer.link
    transfer.link = -1
    if stage == ARRIVED:
        take_in(world, row, number)
    elif stage == DUE:
        merge_cells(at, row, number)
        finish(world, row, number)
    else:
        send_or_wait(world, row, number, stage)


@inlined
def words_of(world: World, row: int, number: int) -> int:
    """Words that a transfer carries: those of cells that somebody contributed to."""
    schedule = world.schedules[row]
    planned = planned_at(schedule.planned, schedule.transfers_count)[natural(number)]
    cells = cells_at(schedule.cells, schedule.workers_count * schedule.chunks)
    first = planned.source * schedule.chunks + planned.first
    total = 0
    for cell in range(first, first + planned.count):
        if cells[cell].workers > 0:
            total += cells[cell].words
    return total


@inlined
def lane_of(world: World, row: int, number: int) -> int:
    """The number of a schedule's lane in the table that has it."""
    schedule = world.schedules[row]
    if schedule.lane_names == 0:
        return number
    return natural(longs_at(schedule.lane_names, number + 1)[number])


@inlined
def is_local(world: World, row: int, number: int) -> bool:
    """Whether a transfer's source and target share a host: its words then take no time."""
    schedule = world.schedules[row]
    planned = planned_at(schedule.planned, schedule.transfers_count)[natural(number)]
    parties = parties_at(schedule.parties, schedule.workers_count + 1)
    return bool(parties[natural(planned.source)].host == parties[natural(planned.target)].host)


@inlined
def send_or_wait(world: World, row: int, number: int, stage: int) -> None:
    """Send a transfer, or let it wait until its lane has room for it."""
    schedule = world.schedules[row]
    planned = planned_at(schedule.planned, schedule.transfers_count)[natural(number)]
    transfer = transfers_at(schedule.transfers, schedule.transfers_count)[number]
    if is_local(world, row, number):
        enqueue(world, row, number, ARRIVED)
        return
    words = words_of(world, row, number)
    transfer.packets = max(1, -(-words // schedule.sender.elements))
    if planned.lane >= 0:
        entry = row << QUEUE_BITS | number
        lane_number = lane_of(world, row, planned.lane)
        lane = lanes_at(schedule.lanes, schedule.lanes_count)[lane_number]
        is_full = lane.outstanding > 0 and lane.outstanding + transfer.packets > schedule.sender.window
        if stage == READY and (is_full or lane.head >= 0):
            transfer.behind = -1
            if lane.head < 0:
                lane.head = entry
            else:
                last = lane.tail
                set_behind(world, natural(last >> QUEUE_BITS), natural(last & ROW), entry)
            lane.tail = entry
        if is_full or (stage == READY and lane.head >= 0):
            transfer.stage = IN_LANE
            return
        lane.outstanding += transfer.packets
        if stage == LANE_HEAD:
            lane.head = transfer.behind
            let_lane_go_on(world, row, lane_number)
    transfer.stage = SENT
    open_transfer(world, row, number, words)


@inlined
def set_behind(world: World, row: int, number: int, entry: int) -> None:
    """Set what is behind a transfer in its lane."""
    schedule = world.schedules[row]
    transfers_at(schedule.transfers, schedule.transfers_count)[number].behind = entry


@inlined
def let_lane_go_on(world: World, row: int, place: int) -> None:
    """Look at the first transfer that waits in a lane, if there is one; it may be of another schedule."""
    head = lanes_at(world.schedules[row].lanes, world.schedules[row].lanes_count)[place].head
    if head < 0:
        return
    owner, number = natural(head >> QUEUE_BITS), natural(head & ROW)
    schedule = world.schedules[owner]
    if transfers_at(schedule.transfers, schedule.transfers_count)[number].stage == IN_LANE:
        enqueue(world, owner, number, LANE_HEAD)


@inlined
def open_transfer(world: World, row: int, number: int, words: int) -> None:
    """Send a transfer as a flow whose words are counted: its target reads them in the source's cells."""
    clock = world.clock[0]
    schedule = world.schedules[row]
    planned = planned_at(schedule.planned, schedule.transfers_count)[natural(number)]
    source = parties_at(schedule.parties, schedule.workers_count + 1)[natural(planned.source)]
    target = parties_at(schedule.parties, schedule.workers_count + 1)[natural(planned.target)]
    flow_row = natural(clock.flow_free)
    flow = world.flows[flow_row]
    clock.flow_free = flow.next_free
    packets = transfers_at(schedule.transfers, schedule.transfers_count)[number].packets
    flow.key = mix(rng_streams.RING_FLOW_SEED, schedule.job, schedule.operation, planned.step, planned.source)
    flow.words = flow.received = flow.timeouts = flow.retransmitted_packets = 0
    flow.words_count, flow.units_count = words, packets
    flow.sender = schedule.sender
    flow.host, flow.target = source.host, target.host
    flow.route = flow_key(schedule.seed, schedule.job, source.rank, target.rank, planned.channel)
    flow.ack_route = flow_key(schedule.seed, schedule.job, target.rank, source.rank, planned.channel)
    flow.first_link = world.nodes[natural(source.host)].first_set
    flow.target_link = world.nodes[natural(target.host)].first_set
    flow.window_max = min(schedule.sender.window, max(schedule.sender.ack_every, packets))
    flow.base = flow.next = flow.transmissions = flow.backoff = 0
    flow.expected = flow.unacknowledged = flow.is_delivered = 0
    flow.reordered_packets = flow.spurious_retransmissions = 0  # also if it never starts
    flow.armed_order = -1
    flow.job, flow.schedule, flow.transfer = schedule.job, row, number
    flow.opened_ps = clock.now_ps
    flow.serial = clock.flows_count
    clock.flows_count += 1
    for i in range(flow.window_max):
        world.flights[flow_row, i].received = 0
    if world.hosts[flow.host].away_until_ps == NEVER:
        flow.is_open = 1  # it stays open: its source has crashed
    else:
        start_flow(world, flow_row)


@kernel
def on_delivered(at: int, place: int) -> None:
    """A transfer's flow has been delivered."""
    world = world_at(at)
    flow = world.flows[place]
    row, number = flow.schedule, flow.transfer
    schedule = world.schedules[row]
    planned = planned_at(schedule.planned, schedule.transfers_count)[natural(number)]
    if planned.lane >= 0:
        place = lane_of(world, row, planned.lane)
        lane = lanes_at(schedule.lanes, schedule.lanes_count)[place]
        lane.outstanding -= transfers_at(
            world.schedules[row].transfers, world.schedules[row].transfers_count
        )[number].packets
        let_lane_go_on(world, row, place)
    enqueue(world, row, number, ARRIVED)


@kernel
def begin(at: int, row: int, worker: int) -> None:
    """A worker has begun: it may send what waits for nothing, and take in what has arrived."""
    world = world_at(at)
    schedule = world.schedules[row]
    party = parties_at(schedule.parties, schedule.workers_count + 1)[natural(worker)]
    party.has_begun = 1
    roots = words_at(schedule.roots, schedule.transfers_count)
    for root_index in range(
        party.first_root,
        parties_at(schedule.parties, schedule.workers_count + 1)[natural(worker + 1)].first_root,
    ):
        enqueue(world, row, roots[root_index], READY)
    entry = party.arrived_head
    while entry >= 0:
        following = transfers_at(schedule.transfers, schedule.transfers_count)[entry].link
        enqueue(world, row, entry, ARRIVED)
        entry = following
    if party.left == 0:
        report_worker(world, row, worker)


@inlined
def take_in(world: World, row: int, number: int) -> None:
    """Process a transfer that has arrived, or let it wait; if it is to be merged, begin with that."""
    clock = world.clock[0]
    schedule = world.schedules[row]
    planned = planned_at(schedule.planned, schedule.transfers_count)[natural(number)]
    transfers = transfers_at(schedule.transfers, schedule.transfers_count)
    party = parties_at(schedule.parties, schedule.workers_count + 1)[natural(planned.target)]
    if not party.has_begun:
        transfers[number].stage = HELD_BACK
        if party.arrived_head < 0:
            party.arrived_head = number
        else:
            transfers[natural(party.arrived_tail)].link = number
        party.arrived_tail = number
        return
    if planned.follows >= 0 and transfers[planned.follows].stage != PROCESSED:
        transfers[number].stage = HELD_BACK
        return
    if not planned.merges:
        cells = cells_at(schedule.cells, schedule.workers_count * schedule.chunks)
        source, target = planned.source * schedule.chunks, planned.target * schedule.chunks
        for chunk in range(planned.first, planned.first + planned.count):
            move(cells, source + chunk, target + chunk)
            cells[target + chunk].held = cells[source + chunk].held
        finish(world, row, number)
        return
    if any_merges(world, row, number):
        if party.asks or schedule.merge == ASKED:
            transfers[number].stage = MERGING
            report(world, schedule.number, number, DONE_ASKS)
            return
        time_ps = time_of_merge_ps(world, row, number)
        if time_ps > 0:
            end_merge_at(world, row, number, clock.now_ps + time_ps)
            return
    merge_cells(clock.at, row, number)
    finish(world, row, number)


@inlined
def end_merge_at(world: World, row: int, number: int, time_ps: int) -> None:
    """Let a merge end at a time, after the packets of that instant."""
    clock, schedule = world.clock[0], world.schedules[row]
    transfers_at(schedule.transfers, schedule.transfers_count)[number].stage = MERGING
    push(world.heap, clock.heap_count, time_ps, clock.order + LATE, MERGED | row << SCHEDULE_BITS | number)
    clock.heap_count += 1
    clock.order += 1
    clock.busy_until_ps = max(clock.busy_until_ps, time_ps)


@kernel
def answer(at: int, row: int, number: int, time_ps: int) -> None:
    """Whoever opened the schedule says when a merge ends that it was asked for."""
    world = world_at(at)
    if time_ps > world.clock[0].now_ps:
        end_merge_at(world, row, number, time_ps)
    else:
        enqueue(world, row, number, DUE)


@kernel
def on_merge_end(at: int, what: int, order: int) -> None:
    """The time of a merge is over; in a pause it waits, after a crash it never ends."""
    world = world_at(at)
    row, number = natural(what >> SCHEDULE_BITS), natural(what & ROW)
    schedule = world.schedules[row]
    planned = planned_at(schedule.planned, schedule.transfers_count)[number]
    party = parties_at(schedule.parties, schedule.workers_count + 1)[natural(planned.target)]
    away_until_ps = world.hosts[party.host].away_until_ps
    if away_until_ps == NEVER:
        return
    if world.clock[0].now_ps < away_until_ps:
        end_merge_at(world, row, number, away_until_ps)
        return
    if world.clock[0].is_logging:
        log_timer(at, order, MERGED, number)
    enqueue(world, row, number, DUE)


@inlined
def finish(world: World, row: int, number: int) -> None:
    """A transfer is processed: let those go on that wait for it."""
    schedule = world.schedules[row]
    planned = planned_at(schedule.planned, schedule.transfers_count)[natural(number)]
    transfers = transfers_at(schedule.transfers, schedule.transfers_count)
    transfers[number].stage = PROCESSED
    schedule.processed += 1
    world.clock[0].progress += 1
    end = planned_at(schedule.planned, schedule.transfers_count + 1)[number + 1].first_waiter
    waiters = words_at(schedule.waiters, end)
    for waiter_index in range(planned.first_waiter, end):
        waiter = waiters[waiter_index]
        transfers[waiter].waits -= 1
        if transfers[waiter].waits == 0:
            enqueue(world, row, waiter, READY)
    follower = planned.first_follower
    while follower >= 0:
        if transfers[follower].stage == HELD_BACK:
            enqueue(world, row, follower, ARRIVED)
        follower = planned_at(schedule.planned, schedule.transfers_count)[natural(follower)].next_follower
    party = parties_at(schedule.parties, schedule.workers_count + 1)[natural(planned.target)]
    party.left -= 1
    if party.left == 0:
        report_worker(world, row, planned.target)


@inlined
def report_worker(world: World, row: int, worker: int) -> None:
    """A worker has finished; of joint operations, only the last that it finishes is reported."""
    schedule = world.schedules[row]
    schedule.unfinished -= 1
    if schedule.left == 0:
        report(world, schedule.number, worker, DONE_WORKER)
        return
    rank = natural(parties_at(schedule.parties, schedule.workers_count + 1)[natural(worker)].rank)
    left = longs_at(schedule.left, rank + 1)
    left[rank] -= 1
    if left[rank] == 0:
        report(world, schedule.joint, rank, DONE_WORKER)


@inlined
def report(world: World, operation: int, number: int, kind: int) -> None:
    """Tell whoever runs the engine that a worker has finished, or that a merge is to be carried out."""
    clock = world.clock[0]
    done = world.done[clock.done_count]
    done.what = kind
    done.row = operation
    done.serial = number
    clock.done_count += 1
    clock.attention = 1
