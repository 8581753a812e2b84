"""A job's tables: its row, the points of its tree, a stream per worker, slots or entries on its switches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.kernels import purposes
from netfold.kernels.keyed import mix_plain
from netfold.sim.engine.interface import SEGMENTS_MAX, Job, Server
from netfold.sim.engine.loop.cold_handlers import atp_handler
from netfold.sim.engine.setup.allocate import enlarged, set_rate
from netfold.sim.engine.tables import atp_rows, rows
from netfold.sim.engine.tables.addresses import address_of
from netfold.sim.engine.tables.world import DOWN, NEVER, Table, World, records
from netfold.sim.engine.transports.stream import TIMEOUTS_THRESHOLD
from netfold.switch.programs.atp import Entries, new_entries
from netfold.switch.registers import Registers, new_registers


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
    is_first = world.clock[0].order == 0  # nothing has been sent
    first, workers = world.streams.size, len(job.hosts)
    jobs, streams = enlarged(world.jobs, world.jobs.size + 1), enlarged(world.streams, first + workers)
    row = jobs[-1]
    for name in ("slot_base", "unit_packets", "lanes", "overflow", "waits_for_loss"):
        row[name] = int(getattr(job, name))
    row.program = job.program.machine
    for name in ("timeout_ps", "first_timeout_ps", "timeout_max_ps", "slot_timer_ps"):
        row[name] = getattr(job, name)
    for name in ("elements", "overhead_bytes", "first_bytes", "last_bytes"):
        row[name] = getattr(job.frame, name)
    row.workers_count, row.first_stream, row.window = workers, first, job.slots_count // job.unit_packets
    row.first_point, row.points_count, row.server = world.points.size, 1 + len(job.branches), -1
    if job.program.timeouts is None:
        row.timeout_ps = row.first_timeout_ps = NEVER
    for worker, (host, route) in enumerate(zip(job.hosts, job.routes, strict=True)):
        stream = streams[first + worker]
        stream.job, stream.worker, stream.host, stream.route = jobs.size - 1, worker, host, route
        stream.first_link = world.nodes[host].first_set
        stream.serial, stream.armed_ps, stream.armed_order = -1, NEVER, -1
        stream.early_head = stream.early_tail = -1
        stream.timeouts_threshold = TIMEOUTS_THRESHOLD
    points, children = _grow_tree(world, job, jobs.size - 1, streams[first:])
    splits, children = _grow_splits(world, job, points[world.points.size :], children)
    slots = _place_registers(jobs, points, room)
    if not is_first and (points["register_base"][: world.points.size] != world.points["register_base"]).any():
        raise RuntimeError("registers that are in use would move; reserve slots for all jobs")
    words = max(int(one.elements * one.lanes) for one in jobs)
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
        payloads=np.zeros((0, words), np.int32) if is_first else _widened(world.payloads, words),
        payload_uses=np.zeros(0, np.int32) if is_first else world.payload_uses,
    )
    return world if job.server is None else _add_server(world, job, job.server)


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
    points = enlarged(world.points, base + 1 + len(job.branches))
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
        children = enlarged(children, children.size + len(workers) + len(below))
        point.first_receiver, point.receivers_count = point.first_child, point.children_count
        for child, entry in enumerate(children[point.first_child :]):
            entry.stream = entry.point = entry.split = -1
            if child < len(workers):
                entry.stream = world.streams.size + workers[child]
                streams[workers[child]].point, streams[workers[child]].child = base + index, child
            else:
                entry.point = base + below[child - len(workers)]
                points[entry.point].child = child
    return points, children


def _grow_splits(world: World, job: Job, points: Table, children: Table) -> tuple[Table, Table]:
    """The job's splits, and the receivers of each and of its points: children in order, then splits."""
    base = world.splits.size
    splits = enlarged(world.splits, base + len(job.splits))
    for index, split in enumerate(job.splits):
        row = splits[base + index]
        row.job, row.switch, row.index, row.route = points[0].job, split.switch, index, split.route
    for number in sorted({split.point for split in job.splits}):
        own = [(index, one) for index, one in enumerate(job.splits) if one.point == number]
        elsewhere = {child for _, split in own for child in split.children}
        point = points[number]
        direct = [child for child in range(int(point.children_count)) if child not in elsewhere]
        senders = [(point, direct, -1), *((splits[base + index], one.children, index) for index, one in own)]
        for sender, kept, index in senders:
            below = [base + other for other, one in own if one.parent == index]
            sender.first_receiver, sender.receivers_count = children.size, len(kept) + len(below)
            children = enlarged(children, children.size + len(kept) + len(below))
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
    found, count = new_registers(slots, words), len(old.slots)
    found.slots[:count] = old.slots
    found.values[:count, : old.values.shape[1]] = old.values
    return found


def _widened(payloads: NDArray[np.int32], words: int) -> NDArray[np.int32]:
    """Payload rows with room for `words` words, which is no less than they have."""
    if payloads.shape[1] == words:
        return payloads
    found = np.zeros((payloads.shape[0], words), np.int32)
    found[:, : payloads.shape[1]] = payloads
    return found


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


def _add_server(world: World, job: Job, server: Server) -> World:
    """World with the job's parameter server, its switch's entries, and its workers' windows."""
    number = world.jobs.size - 1
    world.clock[0].atp = atp_handler()
    servers = enlarged(world.servers, world.servers.size + 1)
    row = servers[-1]
    row.host, row.switch, row.loopback_link = server.host, job.switch, job.loopback_link
    row.route, row.entries, row.window_max = server.route, server.entries, server.window_max
    row.is_adaptive = server.is_adaptive
    world.jobs[number].server = servers.size - 1
    sums = enlarged(world.sums, 2 * servers.size)
    sums["serial"][-2:] = -1
    total = _place_entries(servers)
    places = records((world.streams.size, int(servers["window_max"].max())), atp_rows.PLACE)
    places[: world.places.shape[0], : world.places.shape[1]] = world.places
    first = int(world.jobs[number].first_stream)
    frame_bytes = job.frame.overhead_bytes + 4 * job.frame.elements
    entries = first_entries(int(world.clock[0].seed), number, server.entries, server.window_max)
    places["entry"][first:, : server.window_max] = entries
    used = np.zeros((servers.size, int(servers["entries"].max())), np.int8)
    used[:-1, : world.used.shape[1]] = world.used
    used[-1, entries] = 1
    world.streams["window_bytes"][first:] = job.slots_count * frame_bytes
    for link in world.links[: world.clock[0].links_count]:
        if link.buffer_bytes > 0:  # out of a switch
            marked = server.ecn_bytes if link.ecn_bytes < 0 else min(server.ecn_bytes, int(link.ecn_bytes))
            if marked == link.ecn_bytes:
                continue
            is_down = link.buffer_ps == DOWN
            link.ecn_bytes = marked
            set_rate(link, int(link.rate_bps))
            if is_down:
                link.buffer_ps = DOWN
    kept = _with_entries(world.entries, total, world.registers.values.shape[1])
    return world._replace(servers=servers, sums=sums, used=used, entries=kept, places=places)


def _with_entries(old: Entries, count: int, words: int) -> Entries:
    """Entries that begin with the old ones: a switch keeps its range, new switches come behind it."""
    found = new_entries(count, words)
    found.rows[: len(old.rows)] = old.rows
    found.values[: len(old.rows), : old.values.shape[1]] = old.values
    return found


def _place_entries(servers: Table) -> int:
    """Give each switch its own range of entries, shared by its jobs; returns all entries together."""
    sizes: dict[int, int] = {}
    for server in servers:
        sizes[int(server.switch)] = max(int(server.entries), sizes.get(int(server.switch), 0))
    total = 0
    for switch, size in sizes.items():
        servers["entry_base"][servers["switch"] == switch] = total
        total += size
    return total


def first_entries(seed: int, job: int, entries: int, count: int) -> list[int]:
    """Entries of a job's windows, by place: hashed and distinct."""
    found: list[int] = []
    taken: set[int] = set()
    for place in range(count):
        salt = 0
        while (entry := mix_plain(seed, purposes.FIRST_ENTRY, job, place, salt) % entries) in taken:
            salt += 1
        taken.add(entry)
        found.append(entry)
    return found


def open_sums(world: World, job: int, serial: int, units_count: int, has_floats: bool) -> list[object]:
    """Allocate a server's state for a stream, in place of the last but one; returns the arrays to pin."""
    row = world.sums[2 * int(world.jobs[job].server) + serial % 2]
    if row.serial == serial:
        return []
    arrays: dict[str, NDArray[Any]] = {
        "got": np.zeros(units_count, np.uint32),
        "state": np.zeros(units_count, np.int8),
        "replies": np.zeros(units_count, np.int32),
        "proposal": np.full(units_count, -2, np.int32),
        "words": np.zeros((units_count, int(world.jobs[job].elements)), np.int32),
    }
    for name, array in arrays.items():
        row[name] = address_of(array)
    row.serial, row.units_count, row.has_floats = serial, units_count, has_floats
    return list(arrays.values())
