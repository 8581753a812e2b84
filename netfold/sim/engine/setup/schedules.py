"""The tables of schedules that are under way: made when one is opened, and dropped when it is closed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import Merge
from netfold.sim.engine.schedules.operation import Operation
from netfold.sim.engine.setup.allocate import check_words, enlarged
from netfold.sim.engine.setup.derived import Derived, derived
from netfold.sim.engine.tables import schedule_rows as rows
from netfold.sim.engine.tables.addresses import address_of
from netfold.sim.engine.tables.world import Table, World, records

SCRATCH_WORDS = 1 << 16  # of the first block of buffers, at least


@dataclass
class OpenSchedule:
    """A schedule under way, and the arrays whose addresses are in its row."""

    row: int
    operation: Operation
    derived: Derived
    transfers: Table
    cells: Table  # (workers, chunks)
    parties: Table  # (workers + 1,)
    lanes: Table
    kept: list[NDArray[Any]] = field(default_factory=list)  # workers' words, buffers
    block: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # of buffers, the last
    buffers: int = 0


def open_schedule(world: World, number: int, operation: Operation) -> tuple[World, OpenSchedule]:
    """World with one more open schedule, of which no worker has begun."""
    schedule, tables = operation.schedule, derived(operation.schedule)
    opened = OpenSchedule(
        0,
        operation,
        tables,
        records(schedule.transfers, rows.TRANSFER),
        records((schedule.workers, schedule.chunks), rows.CELL),
        records(schedule.workers + 1, rows.PARTY),
        records(tables.lanes, rows.LANE),
    )
    opened.transfers["link"], opened.transfers["behind"] = -1, -1
    opened.transfers["waits"] = tables.waits
    opened.lanes["head"], opened.lanes["tail"] = -1, -1
    opened.parties["arrived_head"], opened.parties["first_root"] = -1, tables.first_root
    parties = opened.parties[: schedule.workers]
    parties["host"], parties["left"] = operation.hosts, tables.received
    parties["rank"] = operation.ranks or range(schedule.workers)
    parties["asks"][list(operation.asks)] = 1
    closed = np.flatnonzero(world.schedules["is_open"] == 0)
    if closed.size == 0:
        closed = np.array([world.schedules.size])
        world = world._replace(schedules=enlarged(world.schedules, 2 * world.schedules.size + 4))
    opened.row = int(closed[0])
    _write(world.schedules, opened, number)
    return world, opened


def _write(table: Table, opened: OpenSchedule, number: int) -> None:
    """Fill the row of an open schedule."""
    operation, tables = opened.operation, opened.derived
    schedule = operation.schedule
    table[opened.row] = np.zeros((), rows.SCHEDULE)
    row = table[opened.row]
    row.number, row.is_open, row.job = number, 1, operation.job
    row.workers_count, row.chunks, row.transfers_count = schedule.workers, schedule.chunks, schedule.transfers
    row.operation, row.seed, row.unfinished = operation.number, operation.seed % 2**64, schedule.workers
    row.planned, row.waiters, row.roots = map(address_of, (tables.planned, tables.waiters, tables.roots))
    row.transfers, row.cells, row.parties, row.lanes = map(
        address_of, (opened.transfers, opened.cells, opened.parties, opened.lanes)
    )
    row.lanes_count, row.merge = tables.lanes, rows.COUNTED
    row.lane_bits, row.lifted_words = operation.lane_bits, operation.lifted_words
    row.ends = address_of(operation.ends)
    if operation.merge is not None:
        row.merge = rows.ASKED if operation.merge is Merge.HOST else operation.merge.number
    if operation.result is not None:
        row.result = address_of(operation.result)
    if operation.table is not None:
        row.table = address_of(operation.table)
    if operation.merge_ps is not None:
        row.merge_ps = address_of(operation.merge_ps)
    longest = int(np.diff(operation.ends).max(initial=0)) * operation.lifted_words
    row.scratch_bytes = max(8, 4 * longest + 4 * longest % 8)
    row.timeout_ps, row.window, row.ack_every = operation.timeout_ps, operation.window, operation.ack_every
    row.waits_for_loss = operation.waits_for_loss
    for name in ("elements", "overhead_bytes", "first_bytes", "last_bytes", "ack_bytes"):
        row[name] = getattr(operation.frame, name)


def check_operation(operation: Operation) -> None:
    """Check what compiled code relies on.

    Raises
    ------
    ValueError
        Arrays of another shape or type than `Operation` says, a worker's host that is another's, `ack_every`
        outside of the window.
    """
    schedule = operation.schedule
    if not len(operation.hosts) == len(operation.ranks or operation.hosts) == schedule.workers:
        raise ValueError(f"{len(operation.hosts)} hosts for {schedule.workers} workers")
    if len(set(operation.hosts)) != schedule.workers:
        raise ValueError(f"two workers share a host: {operation.hosts}")
    if not 1 <= operation.ack_every <= operation.window:
        raise ValueError(
            f"ack_every must be from 1 to the window, {operation.window}; found {operation.ack_every}"
        )
    _check_array("ends", operation.ends, np.int64, (schedule.chunks + 1,))
    if operation.merge_ps is not None:
        _check_array("merge_ps", operation.merge_ps, np.int64, (schedule.transfers, 2))
    if operation.table is not None:
        _check_array("table", operation.table, np.int32, (16,))
    carries = operation.merge not in (None, Merge.HOST)
    if carries != (operation.result is not None):
        raise ValueError("there is a result where the engine merges words, and only there")
    if operation.result is not None:
        check_words(operation.result, None, int(operation.ends[-1]) * operation.lifted_words)


def _check_array(name: str, array: NDArray[Any], dtype: Any, shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        raise ValueError(
            f"{name} is a contiguous array of {np.dtype(dtype).name} of shape {shape}, "
            f"found {array.dtype} of shape {array.shape}"
        )


def write_worker(
    opened: OpenSchedule, worker: int, words: NDArray[Any] | None, sizes: NDArray[np.int64] | None
) -> None:
    """Write what a worker holds at first.

    `words` are None where they are only counted, or belong to a merge of the codec; `sizes` are words of each
    chunk, by default those of the operation, and (chunks,) zeros at an absent worker.
    """
    operation = opened.operation
    cells, lengths = opened.cells[worker], np.diff(operation.ends) if sizes is None else sizes
    _check_array("sizes", lengths, np.int64, (cells.size,))
    cells["held"], cells["workers"], cells["words"] = 1, 1, lengths
    if words is None:
        return
    check_words(words, None, int(lengths.sum()))
    starts = np.cumsum(lengths) - lengths
    cells["address"] = address_of(words) + 4 * starts
    opened.kept.append(words)


def write_absent(opened: OpenSchedule, worker: int) -> None:
    """Write that a worker contributes nothing."""
    opened.cells[worker]["held"] = 1


def add_buffers(world: World, opened: OpenSchedule, count: int) -> None:
    """Give a schedule more buffers: as many as it has, more than `count`, and some `SCRATCH_WORDS`."""
    row = world.schedules[opened.row]
    buffer_bytes = int(row.scratch_bytes)
    while row.scratch_next < row.scratch_end:  # the rest of the last block
        place = (int(row.scratch_next) - address_of(opened.block)) // 8
        opened.block[place] = row.scratch_free
        row.scratch_free = row.scratch_next
        row.scratch_next += buffer_bytes
    more = max(count + 1, opened.buffers, 4 * SCRATCH_WORDS // buffer_bytes)
    opened.block = np.empty(more * buffer_bytes // 8, np.int64)
    opened.kept.append(opened.block)
    opened.buffers += more
    row.scratch_next = address_of(opened.block)
    row.scratch_end = int(row.scratch_next) + more * buffer_bytes
    row.scratch_count += more


def flow_window(operation: Operation) -> int:
    """The largest window that a flow of an operation may have: that of its longest transfer."""
    if operation.merge is Merge.HOST:
        return operation.window
    schedule, ends = operation.schedule, operation.ends
    words = ends[schedule.first + schedule.count] - ends[schedule.first]
    most = int(words.max(initial=0)) * operation.lifted_words
    packets = max(1, -(-most // operation.frame.elements))
    return min(operation.window, max(operation.ack_every, packets))
