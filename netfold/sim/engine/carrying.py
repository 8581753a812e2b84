"""The part of an engine that carries out schedules, and enlarges the tables where they are short."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine.interface import Frame
from netfold.sim.engine.links.link import PACKET_BYTES_MAX
from netfold.sim.engine.loop.loop import go_on_now, tell_schedule
from netfold.sim.engine.observe.views import EngineViews
from netfold.sim.engine.schedules.operation import Operation
from netfold.sim.engine.setup import allocate, schedules
from netfold.sim.engine.setup.schedules import OpenSchedule
from netfold.sim.engine.tables import world as state


class EngineSchedules(EngineViews):
    """Opens schedules, lets workers begin, and answers what the engine asks."""

    def __init__(self) -> None:
        self._schedules: dict[int, OpenSchedule] = {}  # by number
        self._schedules_count = 0
        self._copies = 1  # packets that a fault may make of one
        self._reserve = 8  # packets that one event may take
        self._payload_reserve = 1

    def open_schedule(self, operation: Operation) -> int:
        """Prepare to carry out a schedule; returns its number, which its completions carry as their job.

        `run` returns one of kind "worker" for each worker, when all transfers to it are processed, and one of
        kind "merge" for each merge that it asks for, with the number of the transfer: `end_merge` answers.

        Raises
        ------
        ValueError
            Arrays of another shape or type than `Operation` says, `ack_every` outside of the window, hosts
            that are none or not different.
        """
        for host in operation.hosts:
            self._check_host("host", host)
        check_size(operation.frame)
        schedules.check_operation(operation)
        self._add_flows(schedules.flow_window(operation))
        self.world = allocate.add_job_counter(self.world, operation.job)
        number = self._schedules_count
        self.world, self._schedules[number] = schedules.open_schedule(self.world, number, operation)
        self._schedules_count += 1
        self._make_room(self._copies * (2 * operation.window + 8))
        return number

    def begin(
        self,
        number: int,
        worker: int,
        words: NDArray[Any] | None = None,
        sizes: NDArray[np.int64] | None = None,
        is_absent: bool = False,
    ) -> None:
        """Let a worker begin now, with its words; HOST: with (chunks,) how many words it has of each chunk.

        Raises
        ------
        ValueError
            Words or sizes of another type or number than the operation's.
        RuntimeError
            It has begun already.
        """
        opened = self._schedules[number]
        if opened.parties[worker].has_begun:
            raise RuntimeError(f"worker {worker} of schedule {number} has begun already")
        if is_absent:
            schedules.write_absent(opened, worker)
        else:
            schedules.write_worker(opened, worker, words, sizes)
        self._tell(state.BEGIN, opened.row, worker)

    def end_merge(
        self, number: int, transfer: int, end_ps: int, sizes: NDArray[np.int64] | None = None
    ) -> None:
        """Answer a completion of kind "merge": when it ends; HOST: how many words each cell then has."""
        opened = self._schedules[number]
        if sizes is not None:
            planned = opened.derived.planned[transfer]
            first = int(planned["first"])
            opened.cells["words"][int(planned["source"]), first : first + int(planned["count"])] = sizes
        self._tell(state.ANSWER, opened.row, transfer, end_ps)

    def merge_time_ps(self, number: int, transfer: int) -> int:
        """Time of a transfer's merge on an ordinary host, of what its cells now hold."""
        opened = self._schedules[number]
        times_ps, planned = opened.operation.merge_ps, opened.derived.planned[transfer]
        if times_ps is None:
            return 0
        first = int(planned["first"])
        cells = opened.cells[int(planned["source"]), first : first + int(planned["count"])]
        return int(times_ps[transfer, int(cells["is_lifted"].any())])

    def contributors(self, number: int, worker: int) -> NDArray[np.int32]:
        """(chunks,) how many workers contributed to each chunk, as a worker that has finished was told."""
        found: NDArray[np.int32] = self._schedules[number].cells["workers"][worker]
        return found

    def close_schedule(self, number: int) -> None:
        """Forget a schedule, all of whose workers have finished.

        Raises
        ------
        RuntimeError
            Some have not.
        """
        row = self.world.schedules[self._schedules[number].row]
        if row.unfinished:
            raise RuntimeError(f"{row.unfinished} workers of schedule {number} have not finished")
        row.is_open = 0
        del self._schedules[number]

    def _tell(self, what: int, row: int, first: int, second: int = 0) -> None:
        """Tell a schedule something, and let it go on as far as it can now."""
        self._make_room(self._reserve)
        tell_schedule(self.world, what, row, first, second)
        while go_on_now(self.world, self._reserve, self._payload_reserve) == state.GROW:
            self._grow()

    def _check_host(self, name: str, node: int) -> None:
        is_host = self.network.is_host
        if not (0 <= node < is_host.size and is_host[node]):
            raise ValueError(f"{name} is node {node}: must be a host, of {np.flatnonzero(is_host).tolist()}")

    def _grow(self) -> None:
        """Enlarge what the compiled loop was short of."""
        clock = self.world.clock[0]
        if clock.short_of < 0:
            self._add_flows(0, self.world.flows.size)
        elif clock.short_of > 0:
            row = int(clock.short_of) - 1
            opened = self._schedules[int(self.world.schedules[row].number)]
            schedules.add_buffers(self.world, opened, int(opened.operation.schedule.count.max()))
        clock.short_of = 0
        self._make_room(self._reserve)

    def _add_flows(self, window: int, count: int = 0) -> None:
        """Have a free row for a flow with this window; add `count` rows at least if there is none."""
        size = self.world.flows.size
        if self.world.clock[0].flow_free >= 0:
            count = 0
        elif not count:
            count = max(8, size)
        if count or window > self.world.flights.shape[1]:
            self.world = allocate.add_flows(self.world, size + count, window)

    def _make_room(self, reserve: int) -> None:
        """Enlarge the tables until each has room for one event."""
        self._reserve = max(reserve, self._reserve)
        self.world = allocate.with_room(self.world, self._reserve, self._payload_reserve)


def check_size(frame: Frame, lanes: int = 1) -> None:
    """Raise ValueError if a packet is too long: its time at 1 bps must fit the clock."""
    size_bytes = max(frame.wire_bytes(lanes * frame.elements, first=True, last=True), frame.ack_bytes)
    if size_bytes > PACKET_BYTES_MAX:
        raise ValueError(f"a packet of {size_bytes}B is too long: {PACKET_BYTES_MAX}B at most on the wire")
