"""Diagnosis of streams that wait for a slot or a result, and of messages that are not delivered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import Outstanding, SlotState, WaitingFlow
from netfold.sim.engine.tree_paths import ROOT, round_trip
from netfold.sim.network import stall
from netfold.sim.network.stall import (
    CLEARED,
    CRASH_ADVICE,
    CRASHED,
    HAS_CRASHED,
    Cause,
    Child,
    Diagnosis,
    IdleWorker,
    Snapshot,
    StalledMessage,
    StalledSlot,
    list_workers,
    why_undelivered,
)
from netfold.topologies.network import path
from netfold.units import TIME


def stalled_message(snapshot: Snapshot, flow: WaitingFlow) -> StalledMessage:
    """A row for a message, with its likely cause."""
    nodes = snapshot.network.nodes
    outbound = path(snapshot.network, flow.source, flow.target, flow.route)
    back = path(snapshot.network, flow.target, flow.source, flow.ack_route)
    cause = next(
        (
            Cause(f"{nodes[node]} has crashed", CRASH_ADVICE)
            for node in (flow.source, flow.target)
            if has_crashed(snapshot, node)
        ),
        None,
    )
    cause = cause or why_undelivered(snapshot.network, snapshot.outcomes, outbound + back, flow.packet_bytes)
    cause = cause or unknown_cause(f"from {nodes[flow.source]} to {nodes[flow.target]} and back")
    age_ps = snapshot.time_ps - flow.opened_ps
    return StalledMessage(
        snapshot.names[flow.owner], nodes[flow.source], nodes[flow.target], age_ps, cause, flow.what
    )


def has_crashed(snapshot: Snapshot, node: int) -> bool:
    return any(event.node == node and event.what == CRASHED for event in snapshot.node_events)


def unknown_cause(way: str) -> Cause:
    """The cause where no evidence points to one."""
    return Cause(
        f"unknown: no link on the path {way} drops or loses packets",
        "fewer `faults`, to find the one that causes it",
        is_unknown=True,
    )


# Diagnosis of a stall from outstanding units, slot states and per-link packet outcomes.
#
# A slot's bitmap says whose packet is missing. The cause follows from the units that this worker has
# outstanding, and from the outcomes of recent packets on the links of its path.


def diagnose(engine: Engine, snapshot: Snapshot) -> Diagnosis:
    """One row per slot and message that workers wait for, with its likely cause."""
    slots: list[StalledSlot] = []
    busy: set[tuple[int, int]] = set()
    for number, placed in enumerate(snapshot.jobs):
        outstanding = engine.outstanding(number)
        busy |= {(placed.owner, placed.rank(wait.worker)) for wait in outstanding if not wait.is_crashed}
        slots += _JobDiagnosis(engine, snapshot, number, outstanding).rows()
    idle = [
        IdleWorker(snapshot.names[owner], worker, what, what == HAS_CRASHED)
        for (owner, worker), what in sorted(snapshot.activities.items())
        if (owner, worker) not in busy
    ]
    messages = tuple(stalled_message(snapshot, flow) for flow in snapshot.flows)
    return Diagnosis(snapshot.time_ps, snapshot.quiet_ps, tuple(slots), messages, tuple(idle))


class _Unit(NamedTuple):
    """A unit that workers wait for."""

    stream: int
    unit: int
    slot: int
    version: int


class _JobDiagnosis:
    def __init__(
        self, engine: Engine, snapshot: Snapshot, number: int, outstanding: list[Outstanding]
    ) -> None:
        self.snapshot, self.number = snapshot, number
        self._placed = snapshot.jobs[number]
        self.owner, self.job = self._placed.owner, self._placed.job
        self._engine = engine
        self._points = engine.job_points(number) if outstanding else ()
        self._outstanding = outstanding
        words = self.job.lanes * self.job.frame.elements
        self._packet_bytes = self.job.frame.wire_bytes(words, first=True, last=True)

    def rows(self) -> list[StalledSlot]:
        """One row per waiting unit and point, by stream and unit; crashed workers do not wait."""
        waiting: dict[_Unit, list[int]] = {}
        for wait in self._outstanding:
            if wait.is_crashed:
                continue
            unit = _Unit(wait.stream, wait.unit, wait.slot, wait.version)
            waiting.setdefault(unit, []).append(wait.worker)
        return [row for unit in sorted(waiting) for row in self._rows_of_unit(unit, waiting[unit])]

    def _rows_of_unit(self, unit: _Unit, waiting: list[int]) -> list[StalledSlot]:
        """Rows of a unit's first packet that is missing at a point, or of its undelivered result."""
        if self.job.program.timeouts is None:
            return [self._row_without_retransmission(unit, waiting)]
        if not self.job.program.is_all_or_nothing:
            return [self._row_with_server(unit, waiting)]
        for part in range(self.job.unit_packets):
            rows = self._rows_at(ROOT, unit._replace(slot=unit.slot + part), waiting)
            if rows:
                return rows
        state = self._state(ROOT, unit)
        return [
            self._row(
                ROOT,
                unit,
                waiting,
                state=state,
                missing=(),
                cause=self._why_result_undelivered(waiting),
            )
        ]

    def _state(self, point: int, unit: _Unit) -> SlotState:
        return self._engine.slot_state(self.number, point, unit.slot, unit.version)

    def _rows_at(self, point: int, unit: _Unit, waiting: list[int]) -> list[StalledSlot]:
        """Rows of a slot at a point, or of the points below that it waits for; none if it is complete."""
        state = self._state(point, unit)
        children = self._points[point].children
        missing = [child for bit, child in enumerate(children) if not state.children_seen >> bit & 1]
        below = self._children_by_worker(point)
        lacks_waiting_worker = any(below.get(worker) in missing for worker in waiting)
        if state.missing_count == 0 and state.children_seen and not lacks_waiting_worker:
            return []
        if not missing:
            return [
                self._row(
                    point, unit, waiting, state=state, missing=(), cause=self._why_bitmap_full(point, state)
                )
            ]
        rows = [
            row for kind, child in missing if kind == "point" for row in self._rows_at(child, unit, waiting)
        ]
        # Complete points below are among them: their partials do not arrive.
        lost = [
            child for child in missing if child[0] == "worker" or not self._rows_at(child[1], unit, waiting)
        ]
        if lost:
            cause = min(
                (self._why(point, unit, child) for child in lost), key=lambda ranked_cause: ranked_cause[0]
            )[1]
            rows.append(self._row(point, unit, waiting, state=state, missing=lost, cause=cause))
        return rows

    def _row_without_retransmission(self, unit: _Unit, waiting: list[int]) -> StalledSlot:
        """The lowest slot that holds a part of a unit, else the root's; complete slots keep nothing."""
        places = [
            (point, unit._replace(slot=unit.slot + part))
            for part in range(self.job.unit_packets)
            for point in reversed(range(len(self._points)))  # children come after their parents
        ]
        occupied = (candidate for candidate in places if self._state(*candidate).children_seen)
        point, unit = next(occupied, (ROOT, unit))
        state = self._state(point, unit)
        missing: list[Child] = []
        if state.children_seen or state.last_ps < 0:
            children = enumerate(self._points[point].children)
            missing = [child for bit, child in children if not state.children_seen >> bit & 1]
        state = replace(state, missing_count=len(missing))
        return self._row(
            point, unit, waiting, state=state, missing=missing, cause=self._why_not_repeated(unit, waiting)
        )

    def _why_not_repeated(self, unit: _Unit, waiting: list[int]) -> Cause:
        """Why a unit stalled whose program sends nothing again: losses count from the start of the run."""
        snapshot, nodes = self.snapshot, self.snapshot.network.nodes
        workers_ahead = [worker for worker in range(len(self.job.hosts)) if worker not in waiting]
        for worker in workers_ahead:
            if has_crashed(snapshot, self.job.hosts[worker]):
                return self._why(ROOT, unit, ("worker", worker))[1]
        links = [link for worker in (*waiting, *workers_ahead) for link in self._round_trip(worker)]
        since_ps = min(snapshot.opened[self.number, worker][1] for worker in waiting)
        switches = {point.switch for point in self._points}
        cleared = next(
            (
                f"{nodes[event.node]} lost its slots ({CLEARED} at {TIME.format(event.time_ps)})"
                for event in reversed(snapshot.node_events)
                if event.what == CLEARED and event.node in switches and event.time_ps >= since_ps
            ),
            "",
        )
        cause = (
            None
            if cleared
            else stall.why_blocked(
                snapshot.network, snapshot.total_outcomes, links, self._packet_bytes, repeats=False
            )
        )
        cause = cause or stall.why_not_repeated(
            snapshot.network,
            self.job.program.name,
            [*links, *(link for link, outcome in enumerate(snapshot.total_outcomes) if outcome.is_dead)],
            outcomes=snapshot.total_outcomes,
            disturbances=snapshot.disturbances,
            cleared=cleared,
        )
        absent = [worker for worker in workers_ahead if self._opened(worker) <= unit.stream]
        if not cause and absent:
            return self._why(ROOT, unit, ("worker", absent[0]))[1]
        return cause or unknown_cause(f"of {self._list_workers(waiting)} through the tree and back")

    def _children_by_worker(self, point: int) -> dict[int, Child]:
        """The child of a point that leads to each worker below it."""
        below: dict[int, Child] = {}
        for kind, number in self._points[point].children:
            if kind == "worker":
                below[number] = (kind, number)
            else:
                below |= dict.fromkeys(self._children_by_worker(number), (kind, number))
        return below

    def _row(
        self,
        point: int,
        unit: _Unit,
        waiting: Iterable[int],
        *,
        state: SlotState | None,
        missing: Sequence[Child],
        cause: Cause,
    ) -> StalledSlot:
        opened = [self.snapshot.opened[self.number, worker][1] for worker in waiting]
        return StalledSlot(
            job=self.snapshot.names[self.owner],
            switch=self._switch(point),
            slot=unit.slot,
            version=unit.version,
            stream=unit.stream,
            unit=unit.unit,
            waiting=tuple(sorted(map(self._placed.rank, waiting))),
            missing=tuple(self._name_child(child) for child in missing),
            missing_count=state.missing_count if state else len(missing),
            age_ps=self.snapshot.time_ps - min(opened),
            last_event=self._last_event(point, state) if state else "no slot state",
            cause=cause,
        )

    def _switch(self, point: int) -> str:
        return self.snapshot.network.nodes[self._points[point].switch]

    def _name_child(self, child: Child) -> str:
        is_worker, number = child[0] == "worker", child[1]
        return f"worker {self._placed.rank(number)}" if is_worker else f"switch {self._switch(number)}"

    def _list_workers(self, workers: Iterable[int]) -> str:
        return list_workers([self._placed.rank(worker) for worker in workers])

    def _last_event(self, point: int, state: SlotState) -> str:
        if state.last_ps < 0:
            return "no packet has arrived"
        child = self._name_child(self._points[point].children[state.last_child])
        ago = (
            TIME.rough(self.snapshot.time_ps - state.last_ps)
            if state.last_ps < self.snapshot.time_ps
            else "0s"
        )
        return f"last event {ago} ago: a packet of {child}, {state.last_verdict}"

    def _why(self, point: int, unit: _Unit, child: Child) -> tuple[int, Cause]:
        """Why a child's packet is missing at a point, and the rank of this cause; rank 0 explains most."""
        job, snapshot = self.job, self.snapshot
        if child[0] == "point":
            branch = job.branches[child[1] - 1]
            way = path(snapshot.network, branch.switch, self._points[point].switch, branch.route)
            words = f"from {self._name_child(child)} to {self._switch(point)}"
            return 1, self._why_undelivered(way) or self._why_without_loss(way, words)
        worker, name = child[1], self._name_child(child)
        pending = [wait for wait in self._outstanding if wait.worker == worker]
        if any(wait.is_crashed for wait in pending) or has_crashed(snapshot, job.hosts[worker]):
            return 0, Cause(
                f"{name} has crashed",
                CRASH_ADVICE,
            )
        if any((wait.stream, wait.unit) == (unit.stream, unit.unit) for wait in pending):
            way = path(snapshot.network, job.hosts[worker], self._points[point].switch, job.routes[worker])
            return 1, self._why_undelivered(way) or self._why_without_loss(
                way, f"of {name} to {self._switch(point)}"
            )
        if self._opened(worker) <= unit.stream:
            ahead = sorted({wait.worker for wait in self._outstanding if wait.stream == unit.stream})
            links = [link for peer in ahead for link in self._round_trip(peer)]
            ranks = [self._placed.rank(peer) for peer in ahead]
            if cause := stall.why_diverged(snapshot.network, snapshot.disturbances, links, ranks):
                return 0, cause
            doing = snapshot.activities.get((self.owner, self._placed.rank(worker)), "is elsewhere")
            return 0, Cause(
                f"{name} has not begun this exchange: it {doing}",
                "check what delays it: `device`, and `faults` that stop or slow it",
            )
        same_slot = [wait for wait in pending if wait.slot == unit.slot]
        if any((wait.stream, wait.unit) < (unit.stream, unit.unit) for wait in same_slot):
            why = f"{name} is stalled earlier in the same slot"
            return 3, Cause(why, "the advice for that unit", is_consequence=True)
        return 2, self._why_result_lost(worker, self._points[point].switch)

    def _opened(self, worker: int) -> int:
        opened = self.snapshot.opened.get((self.number, worker))
        return opened[0] if opened else 0

    def _why_result_lost(self, worker: int, switch: int) -> Cause:
        cleared = self._cleared(switch)
        late = None if cleared else self._why_late()
        return late or stall.why_result_lost(
            self._placed.rank(worker), self.snapshot.network.nodes[switch], cleared
        )

    def _why_bitmap_full(self, point: int, state: SlotState) -> Cause:
        cleared = self._cleared(self._points[point].switch)
        return self._why_late() or stall.why_bitmap_full(self._switch(point), state, cleared)

    def _cleared(self, switch: int) -> str:
        """When a switch last lost its registers, in words; empty if it never did."""
        cleared = [
            event for event in self.snapshot.node_events if event.node == switch and event.what == CLEARED
        ]
        return f"{CLEARED} at {TIME.format(cleared[-1].time_ps)}" if cleared else ""

    def _why_result_undelivered(self, waiting: list[int]) -> Cause:
        """Why results of a unit that is complete at the root do not arrive."""
        ways = [link for worker in waiting for link in self._round_trip(worker)]
        ways += [self.job.loopback_link] if self.job.loopback_link >= 0 else []
        return self._why_undelivered(ways) or self._why_without_loss(
            ways, f"of the results to {self._list_workers(waiting)}"
        )

    def _round_trip(self, worker: int) -> list[int]:
        return round_trip(self.snapshot.network, self.job, worker)

    def _why_without_loss(self, links: Sequence[int], way: str) -> Cause:
        """Why packets are missing though no link lost any: duplicated or late packets, or unknown."""
        network, disturbances = self.snapshot.network, self.snapshot.disturbances
        cause = stall.why_incomplete(network, disturbances, links) if self.job.unit_packets > 1 else None
        return cause or self._why_late() or unknown_cause(way)

    def _why_late(self) -> Cause | None:
        """Why packets arrive when their slot serves a later unit, from any link of the job."""
        links = [link for worker in range(len(self.job.hosts)) for link in self._round_trip(worker)]
        return stall.why_late(self.snapshot.network, self.snapshot.disturbances, links)

    def _why_undelivered(self, links: Sequence[int]) -> Cause | None:
        return stall.why_undelivered(self.snapshot.network, self.snapshot.outcomes, links, self._packet_bytes)

    def _row_with_server(self, unit: _Unit, waiting: list[int]) -> StalledSlot:
        """A unit of a program whose slots do not wait for all workers; a server may."""
        missing: list[Child] = [("worker", w) for w in range(len(self.job.hosts)) if w not in waiting]
        ranked_causes = [self._why(ROOT, unit, child) for child in missing]
        absent = [cause for rank, cause in ranked_causes if rank == 0]
        ways = [link for worker in waiting for link in self._round_trip(worker)]
        server = self.job.server
        if server is not None:
            ways += path(self.snapshot.network, self.job.switch, server.host, server.route)
            ways += path(self.snapshot.network, server.host, self.job.switch, server.route)
        cause = (
            absent[0]
            if absent
            else self._why_undelivered(ways) or unknown_cause(f"of {list_workers(waiting)}")
        )
        lacking = [child for child, (rank, _) in zip(missing, ranked_causes, strict=True) if rank == 0]
        return self._row(ROOT, unit, waiting, state=None, missing=lacking, cause=cause)
