"""A job's tables: its row, the points of its tree, a stream per worker, slots or entries on its switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.merge import COUNTER_BITS, MERGEABLE, WORD_BITS, Merge, check_lanes, words_per_word
from netfold.sim.engine import tables as rows
from netfold.sim.engine.atp_transport import add_server
from netfold.sim.engine.engine_data import (
    SEGMENTS_MAX,
    Job,
    JointOperations,
    Operation,
    Overflow,
    Segment,
    all_bits,
)
from netfold.sim.engine.loop import HANDLERS
from netfold.sim.engine.memory_access import address_of
from netfold.sim.engine.switchml_stream import TIMEOUTS_THRESHOLD
from netfold.sim.engine.table_setup import Derived, check_sender, check_words, derive, mark
from netfold.sim.engine.tables import NEVER, Table, World, enlarge, records
from netfold.switch.program import ProgramSpec
from netfold.switch.registers import Registers, new_registers, number_of


def add_job(world: World, job: Job, room: Mapping[int, int]) -> World:
    """World with one more job: its row, points, streams, and registers for its slots.

    `room` has slots by switch; there a switch has no fewer, so that later jobs do not move those of earlier
    ones. What registers, entries and packets hold is kept.

    Raises
    ------
    RuntimeError
        Registers that are in use would move.
    """
    check_job(job)
    mark(world, job.sender)
    is_first = world.clock[0].order == 0  # nothing has been sent
    first, workers = world.streams.size, len(job.hosts)
    jobs, streams = enlarge(world.jobs, world.jobs.size + 1), enlarge(world.streams, first + workers)
    row = jobs[-1]
    for name in ("slot_base", "unit_packets", "lanes", "overflow", "slot_timer_ps"):
        row[name] = int(getattr(job, name))
    row.program = job.program.machine
    rows.write_sender(row, job.sender)
    row.workers_count, row.first_stream, row.window = workers, first, job.slots_count // job.unit_packets
    row.first_point, row.points_count, row.server = world.points.size, 1 + len(job.branches), -1
    if job.program.timeouts is None:
        row.sender.timeout_ps = row.sender.first_timeout_ps = NEVER
    for worker, (host, route) in enumerate(zip(job.hosts, job.routes, strict=True)):
        stream = streams[first + worker]
        stream.job, stream.worker, stream.host, stream.route = jobs.size - 1, worker, host, route
        stream.first_link, stream.sender = world.nodes[host].first_set, row.sender
        stream.serial, stream.armed_ps, stream.armed_order = -1, NEVER, -1
        stream.early_head = stream.early_tail = -1
        stream.timeouts_threshold = TIMEOUTS_THRESHOLD
    points, children = _grow_tree(world, job, jobs.size - 1, streams[first:])
    splits, children = _grow_splits(world, job, points[world.points.size :], children)
    slots = _place_registers(jobs, points, room)
    if not is_first and (points["register_base"][: world.points.size] != world.points["register_base"]).any():
        raise RuntimeError("registers that are in use would move; reserve slots for all jobs")
    words = max(int(job_row.sender.elements * job_row.lanes) for job_row in jobs)
    windows = records((streams.size, int(jobs["window"].max())), rows.WINDOW)
    for name in ("unit", "expected_psn", "switch_expected_psn"):
        windows[name] = -1
    windows[: world.windows.shape[0], : world.windows.shape[1]] = world.windows
    segments = records((streams.size, SEGMENTS_MAX), rows.SEGMENT)
    segments[: world.segments.shape[0]] = world.segments
    if is_first:
        world.clock[0].payload_free_count = 0
    world = world._replace(
        jobs=jobs,
        points=points,
        children=children,
        splits=splits,
        streams=streams,
        windows=windows,
        segments=segments,
        registers=_with_registers(world.registers, slots, words),
        payloads=np.zeros((0, words), np.int32) if is_first else _widen(world.payloads, words),
        payload_uses=np.zeros(0, np.int32) if is_first else world.payload_uses,
    )
    return world if job.server is None else add_server(world, job, job.server)


def check_job(job: Job) -> None:
    """Reject jobs that compiled code does not support."""
    homes, program = job.homes or (0,) * len(job.hosts), job.program
    for point in range(1 + len(job.branches)):
        below = homes.count(point) + sum(branch.parent == point for branch in job.branches)
        if not 1 <= below <= program.children_max:
            raise ValueError(f"point {point} has {below} children, must have 1 to {program.children_max}")
    if program.machine is None:
        raise ValueError(f"{program.name} cannot be run")
    if not program.may_be_tree and (job.branches or job.unit_packets != 1):
        raise ValueError(f"{program.name} runs on one switch with units of one packet")
    if program.has_server != (job.server is not None):
        raise ValueError(f"{program.name} {'needs a' if program.has_server else 'has no'} parameter server")
    if job.server and not job.slots_count <= job.server.window_max <= job.server.entries:
        raise ValueError("a parameter server needs slots_count <= window_max <= entries")
    if program.has_timers and job.slot_timer_ps <= 0:
        raise ValueError("slots with timers need a positive slot_timer_ps")
    _check_splits(job)


def _check_splits(job: Job) -> None:
    """Reject splits that do not form trees below their points, or that send a child no copy or two."""
    if job.splits and job.program.has_server:
        raise ValueError(f"{job.program.name} sends a copy to each worker: it has no splits")
    taken: set[tuple[int, int]] = set()
    for index, split in enumerate(job.splits):
        if not -1 <= split.parent < index or not 0 <= split.point <= len(job.branches):
            raise ValueError(f"split {index} has parent {split.parent} and point {split.point}")
        if split.parent >= 0 and job.splits[split.parent].point != split.point:
            raise ValueError(f"split {index} and its parent belong to different points")
        below = sum(other.parent == index for other in job.splits)
        if len(split.children) + below < 2:
            raise ValueError(f"split {index} has fewer than two receivers")
        count = len(job.children_of(split.point))
        for child in split.children:
            if not 0 <= child < count or (split.point, child) in taken:
                raise ValueError(f"split {index} cannot send a copy to child {child} of point {split.point}")
            taken.add((split.point, child))


def _grow_tree(world: World, job: Job, number: int, streams: Table) -> tuple[Table, Table]:
    """The job's points, and the children of each: workers in rank order, then points."""
    base, homes = world.points.size, job.homes or (0,) * len(job.hosts)
    points = enlarge(world.points, base + 1 + len(job.branches))
    children = world.children
    for index in range(1 + len(job.branches)):
        point = points[base + index]
        point.job, point.index, point.parent = number, index, -1
        point.switch, point.loopback_link = job.switch, job.loopback_link
        if index > 0:
            branch = job.branches[index - 1]
            point.switch, point.loopback_link = branch.switch, branch.loopback_link
            point.parent, point.route = base + branch.parent, branch.route
    for index in range(1 + len(job.branches)):
        workers = [worker for worker, home in enumerate(homes) if home == index]
        below = [1 + child for child, branch in enumerate(job.branches) if branch.parent == index]
        point = points[base + index]
        point.first_child, point.children_count = children.size, len(workers) + len(below)
        children = enlarge(children, children.size + len(workers) + len(below))
        point.first_receiver, point.receivers_count = point.first_child, point.children_count
        for child, entry in enumerate(children[point.first_child :]):
            entry.stream = entry.point = entry.split = -1
            if child < len(workers):
                entry.stream = world.streams.size + workers[child]
                stream = streams[workers[child]]
                stream.point, stream.child, stream.target = base + index, child, point.switch
            else:
                entry.point = base + below[child - len(workers)]
                points[entry.point].child = child
    return points, children


def _grow_splits(world: World, job: Job, points: Table, children: Table) -> tuple[Table, Table]:
    """The job's splits, and the receivers of each and of its points: children in order, then splits."""
    base = world.splits.size
    splits = enlarge(world.splits, base + len(job.splits))
    for index, split in enumerate(job.splits):
        row = splits[base + index]
        row.job, row.switch, row.index, row.route = points[0].job, split.switch, index, split.route
    for number in sorted({split.point for split in job.splits}):
        point_splits = [(index, split) for index, split in enumerate(job.splits) if split.point == number]
        elsewhere = {child for _, split in point_splits for child in split.children}
        point = points[number]
        direct = [child for child in range(int(point.children_count)) if child not in elsewhere]
        senders = [
            (point, direct, -1),
            *((splits[base + index], split.children, index) for index, split in point_splits),
        ]
        for sender, kept, index in senders:
            below = [base + other for other, split in point_splits if split.parent == index]
            sender.first_receiver, sender.receivers_count = children.size, len(kept) + len(below)
            children = enlarge(children, children.size + len(kept) + len(below))
            entries = children[sender.first_receiver :]
            for entry, child in zip(entries, kept, strict=False):
                original = children[point.first_child + child]
                entry.stream, entry.point, entry.split = original.stream, original.point, -1
            for entry, split_row in zip(entries[len(kept) :], below, strict=True):
                entry.stream = entry.point = -1
                entry.split = split_row
    return splits, children


def _with_registers(old: Registers, slots: int, words: int) -> Registers:
    """Registers that begin with the old ones; these themselves if they are large enough."""
    if old.values.shape == (2 * slots, words):
        return old
    registers, count = new_registers(slots, words), len(old.slots)
    registers.slots[:count] = old.slots
    registers.values[:count, : old.values.shape[1]] = old.values
    return registers


def _widen(payloads: NDArray[np.int32], words: int) -> NDArray[np.int32]:
    """Payload rows with room for `words` words, which is no less than they have."""
    if payloads.shape[1] == words:
        return payloads
    wide_payloads = np.zeros((payloads.shape[0], words), np.int32)
    wide_payloads[:, : payloads.shape[1]] = payloads
    return wide_payloads


def _place_registers(jobs: Table, points: Table, room: Mapping[int, int]) -> int:
    """Give each switch its own range of slots, as long as its jobs need; returns all slots together."""
    sizes: dict[int, int] = dict(room)
    for point in points:
        job = jobs[point.job]
        slots = int(job.slot_base) + int(job.window) * int(job.unit_packets)
        sizes[int(point.switch)] = max(slots, sizes.get(int(point.switch), 0))
    bases, total = {}, 0
    for switch, size in sizes.items():
        bases[switch] = total
        total += size
    for point in points:
        point.register_base = bases[int(point.switch)]
    return total


# Check that all workers of a job open equal streams in the same order.
#
# A result is as long as the packet that caused it says, which of an absent worker is a header alone.


SERIALS_MAX = 1 << 20  # streams of a worker that the identity of an ATP entry can hold


class StreamLayout(NamedTuple):
    """The properties of a stream that are the same at all workers."""

    segments: tuple[tuple[int, Merge, int], ...]  # words, how they merge, and the width of their lanes
    is_scaled: bool
    has_floats: bool

    @classmethod
    def of(cls, segments: Sequence[Segment], is_scaled: bool) -> StreamLayout:
        """Layout of one worker's stream."""
        has_floats = any(segment.floats is not None for segment in segments)
        layouts = tuple((segment.size, segment.merge, segment.lane_bits) for segment in segments)
        return cls(layouts, is_scaled, has_floats)

    def __str__(self) -> str:
        words = " and ".join(
            f"{count} words by {merge.name}{'' if bits == WORD_BITS else f' in {bits}-bit lanes'}"
            for count, merge, bits in self.segments
        )
        floats = "with" if self.has_floats else "without"
        return f"{words}{', scaled,' if self.is_scaled else ''} {floats} floats to fall back to"


class LockStep:
    """The streams that some workers of a job have opened and others have not."""

    def __init__(self) -> None:
        # By job and stream: its layout, and how many workers have opened it.
        self._opened: dict[tuple[int, int], tuple[StreamLayout, int]] = {}

    def open(self, job: int, worker: int, serial: int, layout: StreamLayout, workers_count: int) -> None:
        if serial >= SERIALS_MAX:
            raise RuntimeError(f"worker {worker} of job {job} has opened {serial} streams, the maximum")
        first, opened = self._opened.get((job, serial), (layout, 0))
        if layout != first:
            raise ValueError(f"worker {worker} of job {job} streams {layout}, another worker {first}")
        self._opened[job, serial] = first, opened + 1
        if opened + 1 == workers_count:
            del self._opened[job, serial]


# The tables of schedules that are under way: made when one is opened, and dropped when it is closed.


SCRATCH_WORDS = 1 << 16
"""The least size of a schedule's first block of buffers, in words."""


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
    block: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """The last block of buffers."""
    buffers: int = 0


def open_schedule(world: World, number: int, operation: Operation) -> tuple[World, OpenSchedule]:
    """World with one more open schedule, of which no worker has begun."""
    HANDLERS.compile(rows.GO_ON)  # the loop could not go on without it
    schedule, tables, joint = operation.schedule, derive(operation.schedule), operation.joint
    opened = OpenSchedule(
        0,
        operation,
        tables,
        records(schedule.transfers, rows.TRANSFER),
        records((schedule.workers, schedule.chunks), rows.CELL),
        records(schedule.workers + 1, rows.PARTY),
        new_lanes(tables.lanes) if joint is None else joint.lanes,
    )
    opened.transfers["link"], opened.transfers["behind"] = -1, -1
    opened.transfers["waits"] = tables.waits
    opened.parties["arrived_head"], opened.parties["first_root"] = -1, tables.first_root
    parties = opened.parties[: schedule.workers]
    parties["host"], parties["left"] = operation.hosts, tables.received
    parties["rank"] = operation.ranks or range(schedule.workers)
    parties["asks"][list(operation.asks)] = 1
    if joint is not None:
        parties["has_begun"] = joint.has_begun[parties["rank"]]
    closed = np.flatnonzero(world.schedules["is_open"] == 0)
    if closed.size == 0:
        closed = np.array([world.schedules.size])
        world = world._replace(schedules=enlarge(world.schedules, 2 * world.schedules.size + 4))
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
    row.lanes_count, row.merge = opened.lanes.size, rows.COUNTED
    if operation.joint is not None:
        assert operation.lane_names is not None
        row.joint, row.left = operation.joint.number, address_of(operation.joint.left)
        row.lane_names = address_of(operation.lane_names)
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
    rows.write_sender(row, operation.sender)


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
    if operation.joint is not None:
        _check_joint(operation, operation.joint)
    elif len(set(operation.hosts)) != schedule.workers:
        raise ValueError(f"two workers share a host: {operation.hosts}")
    check_sender(operation.sender)
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


def _check_joint(operation: Operation, joint: JointOperations) -> None:
    ranks, names = operation.ranks, operation.lane_names
    count = derive(operation.schedule).lanes
    if operation.merge is not None or operation.schedule.merges.any():
        raise ValueError("joint operations merge nothing")
    if names is None or names.dtype != np.int64 or names.shape != (count,) or not names.flags.c_contiguous:
        raise ValueError(f"lane_names is a contiguous array of int64 of shape ({count},)")
    if not (names.min(initial=0) >= 0 and names.max(initial=0) < joint.lanes.size):
        raise ValueError(f"lane_names are from 0 to {joint.lanes.size - 1}, found {names.tolist()}")
    if not (min(ranks, default=-1) >= 0 and max(ranks) < joint.left.size):
        raise ValueError(f"ranks are from 0 to {joint.left.size - 1}, found {ranks}")


def new_lanes(count: int) -> Table:
    """Lanes in which nothing waits."""
    lanes = records(count, rows.LANE)
    lanes["head"], lanes["tail"] = -1, -1
    return lanes


def holds_first(opened: OpenSchedule) -> bool:
    """Whether every worker of a joint operation holds the very words of the first."""
    cells = opened.cells
    return all(bool((cells[name] == cells[name][0]).all()) for name in ("address", "words", "workers"))


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
    opened.cells[worker]["held"] = 1


def add_buffers(world: World, opened: OpenSchedule, count: int) -> None:
    """Give a schedule more buffers: as many as it has, more than `count`, and some `SCRATCH_WORDS`."""
    row = world.schedules[opened.row]
    buffer_bytes = int(row.scratch_bytes)
    while row.scratch_next < row.scratch_end:  # the rest of the last block
        offset = (int(row.scratch_next) - address_of(opened.block)) // 8
        opened.block[offset] = row.scratch_free
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
    sender = operation.sender
    if operation.merge is Merge.HOST:
        return sender.window
    schedule, ends = operation.schedule, operation.ends
    words = ends[schedule.first + schedule.count] - ends[schedule.first]
    most = int(words.max(initial=0)) * operation.lifted_words
    packets = max(1, -(-most // sender.frame.elements))
    return min(sender.window, max(sender.ack_every, packets))


def write_segments(
    world: World, program: ProgramSpec, row: int, segments: list[Segment], is_scaled: bool
) -> int:
    """Fill a stream's segments; returns how many units they take."""
    job = world.jobs[world.streams[row].job]
    unit_words = int(job.unit_packets * job.sender.elements)
    if not 1 <= len(segments) <= SEGMENTS_MAX:
        raise ValueError(f"a stream has 1 to {SEGMENTS_MAX} segments, found {len(segments)}")
    if any(segment.merge not in MERGEABLE for segment in segments):
        raise ValueError("GATHER cannot be merged by switches")
    if len({(segment.floats is None, segment.is_float is None) for segment in segments}) > 1:
        raise ValueError("either all segments of a stream have floats to fall back to, or none has")
    units = 0
    for index, segment in enumerate(segments):
        _check_lanes(segment, job, is_whole=is_scaled or program.has_server)
        lanes = words_per_word(segment.merge, segment.lane_bits)
        segment_units = -(-segment.size // unit_words)
        check_words(segment.words, np.float32 if is_scaled else None)
        check_words(segment.result, None, lanes * segment.size)
        entry = world.segments[row, index]
        entry.words, entry.result = address_of(segment.words), address_of(segment.result)
        entry.words_count, entry.first_unit = segment.size, units
        entry.merge = number_of(segment.merge, segment.lane_bits)
        entry.workers, entry.is_partial = 0 if segment.is_absent else 1, 0
        bits = all_bits(int(job.workers_count))
        entry.all_bits = bits
        entry.bits = 0 if segment.is_absent else bits & 1 << int(world.streams[row].worker)
        _write_extras(entry, segment, program, segment_units)
        _write_by_packet(entry, segment, segment_units * int(job.unit_packets))
        units += segment_units
    if units == 0:
        raise ValueError("a stream carries at least one word")
    return units


def _check_lanes(segment: Segment, job: Any, *, is_whole: bool) -> None:
    """Check the lanes of a segment against its table, its job and its adders."""
    bits = segment.lane_bits
    check_lanes(segment.merge, bits, segment.table)
    if is_whole and bits != WORD_BITS:
        raise ValueError(f"scaled streams and programs with a server add whole words, found {bits}-bit lanes")
    if bits == COUNTER_BITS and job.overflow != Overflow.WRAP:
        raise ValueError(f"lanes of {bits} bits need adders that wrap")
    if segment.merge is Merge.TABLE_ADD and words_per_word(segment.merge, bits) != job.lanes:
        raise ValueError(
            f"TABLE_ADD in lanes of {bits} bits gives {words_per_word(segment.merge, bits)} words for each, "
            f"the job has {job.lanes}"
        )


def _write_extras(entry: Any, segment: Segment, program: ProgramSpec, units: int) -> None:
    """Check and write the fields that only some merges and programs need."""
    entry.table = entry.holders = entry.floats = entry.is_float = 0
    if segment.is_absent and segment.words.size:
        raise ValueError(f"an absent worker has no words, found {segment.words.size}")
    if segment.is_absent and not program.carries_absence:
        raise ValueError(f"{program.name} cannot carry the header of an absent worker")
    if segment.merge is Merge.TABLE_ADD:
        if segment.table is None:
            raise ValueError("TABLE_ADD needs the table that lifts its codes")
        check_words(segment.table, np.int32, 16)
        entry.table = address_of(segment.table)
    if program.has_timers:
        if segment.holders is None:
            raise ValueError("slots with timers need room for the holders of each result")
        check_words(segment.holders, np.uint32, units)
        entry.holders = address_of(segment.holders)
    if (segment.floats is None) != (segment.is_float is None):
        raise ValueError("floats and is_float go together")
    if program.has_server and segment.merge is not Merge.ADD:
        raise ValueError("a program with a server merges only by ADD")
    if segment.floats is not None and segment.is_float is not None:
        check_words(segment.floats, np.float32, segment.words.size)
        if segment.is_float.dtype != np.uint8 or segment.is_float.shape != (units,):
            raise ValueError(f"is_float must be uint8 of shape ({units},)")
        entry.floats, entry.is_float = address_of(segment.floats), address_of(segment.is_float)


def _write_by_packet(entry: Any, segment: Segment, packets: int) -> None:
    """Check and write the addresses of what is written by result packet: contributors, shared results."""
    entry.shared = entry.seen = entry.own = entry.members = 0
    if segment.members is not None:
        if segment.members.dtype != np.uint32 or segment.members.shape != (packets, 2):
            raise ValueError(f"members must be uint32 of shape ({packets}, 2)")
        entry.members = address_of(segment.members)
    if (segment.shared is None) != (segment.own is None):
        raise ValueError("shared and own go together")
    if segment.shared is None or segment.own is None:
        return
    check_words(segment.shared.words, segment.result.dtype.type, segment.result.size)
    for marks in (segment.shared.seen, segment.own):
        if marks.dtype != np.uint8 or marks.shape != (packets,):
            raise ValueError(f"seen and own must be uint8 of shape ({packets},)")
    entry.shared = address_of(segment.shared.words)
    entry.seen, entry.own = address_of(segment.shared.seen), address_of(segment.own)
