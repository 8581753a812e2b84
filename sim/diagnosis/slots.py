"""Why does nothing move? Looks at what workers wait for, at slots, and at what became of packets on links.

Whose packet a slot lacks is read from its bitmap; why it lacks it, from what that worker has outstanding
itself and from what the links on its way did with the packets of the last few timeouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from netfold.sim.diagnosis import links as evidence
from netfold.sim.diagnosis.links import closed, once_only, trouble
from netfold.sim.diagnosis.messages import has_crashed, stuck_message, unknown
from netfold.sim.diagnosis.report import CRASH_ADVICE, Cause, Diagnosis, IdleWorker, StuckSlot, workers_listed
from netfold.sim.diagnosis.snapshot import CLEARED, HAS_CRASHED, Child, Observed, Scene
from netfold.sim.engine.interface import Outstanding, SlotState
from netfold.sim.plan.paths import ROOT, round_trip
from netfold.sim.units import TIME
from netfold.topologies.routing import path


def diagnose(engine: Observed, scene: Scene) -> Diagnosis:
    """Rows for all that is waited for, with the likely cause of each."""
    slots: list[StuckSlot] = []
    busy: set[tuple[int, int]] = set()
    for number, tenant in enumerate(scene.tenants):
        outstanding = engine.outstanding(number)
        busy |= {(tenant.owner, one.worker) for one in outstanding if not one.is_crashed}
        slots += _JobScene(engine, scene, number, outstanding).rows()
    idle = [
        IdleWorker(scene.names[owner], worker, what, what == HAS_CRASHED)
        for (owner, worker), what in sorted(scene.doing.items())
        if (owner, worker) not in busy
    ]
    messages = tuple(stuck_message(scene, flow) for flow in scene.flows)
    return Diagnosis(scene.time_ps, scene.quiet_ps, tuple(slots), messages, tuple(idle))


class _Unit(NamedTuple):
    """What workers wait for."""

    stream: int
    unit: int
    slot: int
    version: int


class _JobScene:
    """One job's slots."""

    def __init__(self, engine: Observed, scene: Scene, number: int, outstanding: list[Outstanding]) -> None:
        self.scene, self.number = scene, number
        self.owner, self.job = scene.tenants[number]
        self._engine = engine
        self._points = engine.job_points(number) if outstanding else ()
        self._outstanding = outstanding
        words = self.job.lanes * self.job.frame.elements
        self._packet_bytes = self.job.frame.wire_bytes(words, first=True, last=True)

    def rows(self) -> list[StuckSlot]:
        """One row for every unit and point that waits, by stream and unit; who has crashed does not wait."""
        waiting: dict[_Unit, list[int]] = {}
        for one in self._outstanding:
            if one.is_crashed:
                continue
            unit = _Unit(one.stream, one.unit, one.slot, one.version)
            waiting.setdefault(unit, []).append(one.worker)
        return [row for unit in sorted(waiting) for row in self._of_unit(unit, waiting[unit])]

    def _of_unit(self, unit: _Unit, waiting: list[int]) -> list[StuckSlot]:
        """Rows of the first of a unit's packets that a point lacks, or of a result that does not arrive."""
        if self.job.program.timeouts is None:
            return [self._of_once(unit, waiting)]
        if not self.job.program.is_all_or_nothing:
            return [self._of_server(unit, waiting)]
        for part in range(self.job.unit_packets):
            rows = self._at(ROOT, unit._replace(slot=unit.slot + part), waiting)
            if rows:
                return rows
        state = self._state(ROOT, unit)
        return [self._row(ROOT, unit, waiting, (state, ()), self._undelivered(waiting))]

    def _state(self, point: int, unit: _Unit) -> SlotState:
        return self._engine.slot_state(self.number, point, unit.slot, unit.version)

    def _at(self, point: int, unit: _Unit, waiting: list[int]) -> list[StuckSlot]:
        """Rows of a slot at a point, or of those below it that it waits for; none if it is complete."""
        state = self._state(point, unit)
        children = self._points[point].children
        missing = [child for bit, child in enumerate(children) if not state.children_seen >> bit & 1]
        below = self._below(point)
        lacks_who_waits = any(below.get(worker) in missing for worker in waiting)
        if state.missing_count == 0 and state.children_seen and not lacks_who_waits:
            return []
        if not missing:
            return [self._row(point, unit, waiting, (state, ()), self._disagreeing(point, state))]
        rows = [row for kind, child in missing if kind == "point" for row in self._at(child, unit, waiting)]
        lost = [
            child for child in missing if child[0] == "worker" or not self._at(child[1], unit, waiting)
        ]  # a complete point below is missing too: its partial does not come through
        if lost:
            cause = min((self._why(point, unit, child) for child in lost), key=lambda found: found[0])[1]
            rows.append(self._row(point, unit, waiting, (state, lost), cause))
        return rows

    def _of_once(self, unit: _Unit, waiting: list[int]) -> StuckSlot:
        """The lowest slot that holds a part of a unit, or the root's; what is complete is forgotten."""
        places = [
            (point, unit._replace(slot=unit.slot + part))
            for part in range(self.job.unit_packets)
            for point in reversed(range(len(self._points)))  # children come after their parents
        ]
        held = (place for place in places if self._state(*place).children_seen)
        point, unit = next(held, (ROOT, unit))
        state = self._state(point, unit)
        missing: list[Child] = []
        if state.children_seen or state.last_ps < 0:
            children = enumerate(self._points[point].children)
            missing = [child for bit, child in children if not state.children_seen >> bit & 1]
        state = replace(state, missing_count=len(missing))
        return self._row(point, unit, waiting, (state, missing), self._why_once(unit, waiting))

    def _why_once(self, unit: _Unit, waiting: list[int]) -> Cause:
        """Why a unit of a program that sends everything once is stuck: all that was ever lost counts."""
        scene = self.scene
        others = [worker for worker in range(len(self.job.hosts)) if worker not in waiting]
        for worker in others:
            if has_crashed(scene, self.job.hosts[worker]):
                return self._why(ROOT, unit, ("worker", worker))[1]
        links = [link for worker in (*waiting, *others) for link in self._round_trip(worker)]
        since_ps = min(scene.opened[self.number, worker].last_ps for worker in waiting)
        switches = {point.switch for point in self._points}
        cleared = next(
            (
                f"{scene.network.nodes[note.node]} lost its slots ({CLEARED} at {TIME.format(note.time_ps)})"
                for note in reversed(scene.notes)
                if note.what == CLEARED and note.node in switches and note.time_ps >= since_ps
            ),
            "",
        )
        cause = None if cleared else closed(scene.network, scene.totals, links, self._packet_bytes)
        facts = (scene.totals, scene.disturbances)
        cause = cause or once_only(scene.network, self.job.program.name, facts, links, cleared)
        absent = [worker for worker in others if self._opened(worker) <= unit.stream]
        if not cause and absent:
            return self._why(ROOT, unit, ("worker", absent[0]))[1]
        return cause or unknown(f"of {workers_listed(waiting)} through the tree and back")

    def _below(self, point: int) -> dict[int, Child]:
        """The child of a point under which each worker hangs."""
        below: dict[int, Child] = {}
        for kind, number in self._points[point].children:
            if kind == "worker":
                below[number] = (kind, number)
            else:
                below |= dict.fromkeys(self._below(number), (kind, number))
        return below

    def _row(
        self,
        point: int,
        unit: _Unit,
        waiting: Iterable[int],
        found: tuple[SlotState | None, Sequence[Child]],
        cause: Cause,
    ) -> StuckSlot:
        state, missing = found
        opened = [self.scene.opened[self.number, worker].last_ps for worker in waiting]
        return StuckSlot(
            job=self.scene.names[self.owner],
            switch=self._switch(point),
            slot=unit.slot,
            version=unit.version,
            stream=unit.stream,
            unit=unit.unit,
            waiting=tuple(sorted(waiting)),
            missing=tuple(self._named(child) for child in missing),
            missing_count=state.missing_count if state else len(missing),
            age_ps=self.scene.time_ps - min(opened),
            last_event=self._last_event(point, state) if state else "no slot state",
            cause=cause,
        )

    def _switch(self, point: int) -> str:
        return self.scene.network.nodes[self._points[point].switch]

    def _named(self, child: Child) -> str:
        return f"worker {child[1]}" if child[0] == "worker" else f"switch {self._switch(child[1])}"

    def _last_event(self, point: int, state: SlotState) -> str:
        if state.last_ps < 0:
            return "no packet has ever come"
        child = self._named(self._points[point].children[state.last_child])
        ago = TIME.rough(self.scene.time_ps - state.last_ps) if state.last_ps < self.scene.time_ps else "0s"
        return f"last event {ago} ago: a packet of {child}, {state.last_verdict}"

    def _why(self, point: int, unit: _Unit, child: Child) -> tuple[int, Cause]:
        """Why a point lacks a child's packet; what explains most has the lowest rank."""
        job, scene = self.job, self.scene
        if child[0] == "point":
            branch = job.branches[child[1] - 1]
            way = path(scene.network, branch.switch, self._points[point].switch, branch.route)
            words = f"from {self._named(child)} to {self._switch(point)}"
            return 1, self._trouble(way) or self._unknown(way, words)
        worker = child[1]
        own = [one for one in self._outstanding if one.worker == worker]
        if any(one.is_crashed for one in own) or has_crashed(scene, job.hosts[worker]):
            return 0, Cause(
                f"worker {worker} has crashed",
                CRASH_ADVICE,
            )
        if any((one.stream, one.unit) == (unit.stream, unit.unit) for one in own):
            way = path(scene.network, job.hosts[worker], self._points[point].switch, job.routes[worker])
            return 1, self._trouble(way) or self._unknown(way, f"of worker {worker} to {self._switch(point)}")
        if self._opened(worker) <= unit.stream:
            ahead = sorted({one.worker for one in self._outstanding if one.stream == unit.stream})
            links = [link for one in ahead for link in self._round_trip(one)]
            if cause := evidence.misread(scene.network, scene.disturbances, links, ahead):
                return 0, cause
            doing = scene.doing.get((self.owner, worker), "is elsewhere")
            return 0, Cause(
                f"worker {worker} has not begun this exchange: it {doing}",
                "look at what holds it up: `device`, and `faults` that stop or slow it",
            )
        same_slot = [one for one in own if one.slot == unit.slot]
        if any((one.stream, one.unit) < (unit.stream, unit.unit) for one in same_slot):
            why = f"worker {worker} is stuck earlier in the same slot"
            return 3, Cause(why, "what helps there", is_consequence=True)
        return 2, self._has_it_already(worker, self._points[point].switch)

    def _opened(self, worker: int) -> int:
        opened = self.scene.opened.get((self.number, worker))
        return opened.streams_count if opened else 0

    def _has_it_already(self, worker: int, switch: int) -> Cause:
        cleared = self._cleared(switch)
        late = None if cleared else self._late()
        return late or evidence.gone(worker, self.scene.network.nodes[switch], cleared)

    def _disagreeing(self, point: int, state: SlotState) -> Cause:
        cleared = self._cleared(self._points[point].switch)
        return self._late() or evidence.disagreement(self._switch(point), state, cleared)

    def _cleared(self, switch: int) -> str:
        """When a switch last lost its registers, in words; empty if it never did."""
        notes = [note for note in self.scene.notes if note.node == switch and note.what == CLEARED]
        return f"{CLEARED} at {TIME.format(notes[-1].time_ps)}" if notes else ""

    def _undelivered(self, waiting: list[int]) -> Cause:
        """Complete at the root: the results do not get to those who wait."""
        ways = [link for worker in waiting for link in self._round_trip(worker)]
        ways += [self.job.loopback_link] if self.job.loopback_link >= 0 else []
        return self._trouble(ways) or self._unknown(ways, f"of the results to {workers_listed(waiting)}")

    def _round_trip(self, worker: int) -> list[int]:
        return round_trip(self.scene.network, self.job, worker)

    def _unknown(self, links: Sequence[int], way: str) -> Cause:
        """Where nothing is lost on a way: packets that came twice or too late, or nobody knows."""
        network, disturbances = self.scene.network, self.scene.disturbances
        cause = evidence.broken(network, disturbances, links) if self.job.unit_packets > 1 else None
        return cause or self._late() or unknown(way)

    def _late(self) -> Cause | None:
        """Packets that came when their slot was at a later unit, on any link of the job."""
        links = [link for worker in range(len(self.job.hosts)) for link in self._round_trip(worker)]
        return evidence.late(self.scene.network, self.scene.disturbances, links)

    def _trouble(self, links: Sequence[int]) -> Cause | None:
        return trouble(self.scene.network, self.scene.fates, links, self._packet_bytes)

    def _of_server(self, unit: _Unit, waiting: list[int]) -> StuckSlot:
        """A unit of a program whose slots do not wait: a server does, or nobody."""
        missing: list[Child] = [("worker", w) for w in range(len(self.job.hosts)) if w not in waiting]
        found = [self._why(ROOT, unit, child) for child in missing]
        absent = [cause for rank, cause in found if rank == 0]
        ways = [link for worker in waiting for link in self._round_trip(worker)]
        server = self.job.server
        if server is not None:
            ways += path(self.scene.network, self.job.switch, server.host, server.route)
            ways += path(self.scene.network, server.host, self.job.switch, server.route)
        cause = absent[0] if absent else self._trouble(ways) or unknown(f"of {workers_listed(waiting)}")
        lacking = [child for child, (rank, _) in zip(missing, found, strict=True) if rank == 0]
        return self._row(ROOT, unit, waiting, (None, lacking), cause)
