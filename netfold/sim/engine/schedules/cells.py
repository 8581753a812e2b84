"""What workers of a schedule hold, and how an arriving transfer is merged into it.

Nothing is copied when a transfer arrives: the target reads its source's cells, which the source has given
away. A merge writes into a buffer that no worker's words are in: that of the arriving words, or of the
target's own where the order of operands does not matter, or a free one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import add_words, lift_words, survival
from netfold.kernels import purposes
from netfold.kernels.compiled import inlined, kernel
from netfold.kernels.keyed import mix
from netfold.sim.engine.tables.addresses import copy_words, longs_at, natural, words_at
from netfold.sim.engine.tables.cold_calls import world_at
from netfold.sim.engine.tables.schedule_rows import FINAL, GIVEN, SCRATCH, cells_at, planned_at
from netfold.sim.engine.tables.world import World
from netfold.switch.registers import ADD, MAX, SIGN, TABLE_ADD, merge_otherwise

INT32_MIN = np.int32(-(2**31))


@inlined
def has_buffers(schedule: Any, count: int) -> bool:
    """Whether so many cells can be merged: each may take a buffer, and one of them another for a while."""
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
        schedule.seed, purposes.RING_MERGE, schedule.job, schedule.operation, planned.target, planned.step
    )
    offset = 0
    for chunk in range(planned.first, planned.first + planned.count):
        arriving, own = natural(source + chunk), natural(target + chunk)
        held = cells[arriving].held + cells[own].held
        words = cells[arriving].words
        if cells[arriving].workers > 0:
            if cells[own].workers == 0:
                move(cells, arriving, own)
            elif schedule.merge < 0:
                cells[own].words = words
                cells[own].workers += cells[arriving].workers
            else:
                merge_cell(world, row, arriving, own, key + np.uint64(32 * offset))
        cells[own].held = held
        cells[arriving].state = GIVEN
        if held == schedule.workers_count:
            finish_cell(world, row, chunk, own)
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
def merge_cell(world: World, row: int, arriving: int, own: int, key: np.uint64) -> None:
    """Merge the words of two cells; the second then holds them."""
    schedule = world.schedules[row]
    cells = cells_at(schedule.cells, schedule.workers_count * schedule.chunks)
    lift_cell(world, row, arriving)
    address, other, count = cells[arriving].address, cells[own].address, cells[arriving].words
    threshold = survival(cells[arriving].workers, cells[own].workers)
    cells[own].workers += cells[arriving].workers
    if cells[arriving].state == SCRATCH:
        lift_cell(world, row, own)
        merge_words(world, row, address, cells[own].address, count, threshold, key)
        if cells[own].state == SCRATCH:
            free_buffer(world, row, cells[own].address)
        cells[own].address = address
    elif cells[own].state == SCRATCH and schedule.merge != SIGN:
        merge_words(world, row, other, address, count, threshold, key)
    else:
        buffer = take_buffer(world, row)
        copy_words(words_at(buffer, count), words_at(address, count))
        merge_words(world, row, buffer, other, count, threshold, key)
        if cells[own].state == SCRATCH:
            free_buffer(world, row, other)
        cells[own].address = buffer
    cells[own].words = count
    cells[own].state = SCRATCH
    cells[own].is_lifted = cells[arriving].is_lifted


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
        merge_otherwise(values, words, schedule.merge, threshold, key)
    elif schedule.lane_bits == 8:
        add_words(values.view(np.int8), words.view(np.int8))
    elif schedule.lane_bits == 16:
        add_words(values.view(np.int16), words.view(np.int16))
    else:
        add_words(values, words)


@inlined
def finish_cell(world: World, row: int, chunk: int, cell: int) -> None:
    """Write a chunk that stands for all workers into the result; it is written once (`schedule.py`)."""
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
