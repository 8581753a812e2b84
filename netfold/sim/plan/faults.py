"""Resolved faults, for the engine and workers; `sim.resolve.faults` makes them.

A `Rule` affects packets inside the engine. A *change* (links down or slower, a reboot, a crash, a pause) is
applied to the engine at its time, by `sim.run.fault_driver`. What delays a worker outside the network (a
late start, a slow host, a crash or a pause) is collected in its `Condition`, for `sim.network.host_time`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from netfold.sim.engine.interface import NEVER_PS, Rule
from netfold.units import RATE, TIME


@dataclass(frozen=True)
class LinksDown:
    """Links that carry nothing in [from, until)."""

    links: tuple[int, ...]
    from_ps: int
    until_ps: int


@dataclass(frozen=True)
class LinksSlower:
    """Links with a lower rate in [from, until)."""

    links: tuple[int, ...]
    rate_bps: int
    from_ps: int
    until_ps: int


@dataclass(frozen=True)
class Reboot:
    """A switch that loses its registers, or is cut off until its tables are reinstalled, or both."""

    switch: int  # node
    clears_registers: bool
    links: tuple[int, ...]  # down in [from, until): all its links, or none
    queues: tuple[int, ...]  # its outgoing links: their packets wait in its memory
    from_ps: int
    until_ps: int


@dataclass(frozen=True)
class Crash:
    """A worker that stops with its host."""

    job: int
    worker: int
    host: int  # node
    from_ps: int
    until_ps: int = NEVER_PS


@dataclass(frozen=True)
class Pause:
    """A worker that pauses with its host in [from, until)."""

    job: int
    worker: int
    host: int  # node
    from_ps: int
    until_ps: int


@dataclass(frozen=True)
class LateStart:
    """A worker that waits in [from, until), where from is the start of its job."""

    job: int
    worker: int
    from_ps: int
    until_ps: int


@dataclass(frozen=True)
class HostSlowdown:
    """A worker whose computing takes `factor` times as long."""

    job: int
    worker: int
    factor: Fraction
    from_ps: int  # start of its job


def _duration(from_ps: int, until_ps: int) -> str:
    if until_ps == NEVER_PS:
        return "to the end"
    return f"for {TIME.format(until_ps - from_ps)}" if until_ps > from_ps else ""


Change = LinksDown | LinksSlower | Reboot | Crash | Pause
WorkerEffect = Crash | Pause | LateStart | HostSlowdown
Effect = Rule | Change | WorkerEffect


@dataclass(frozen=True)
class PlannedFault:
    """One fault of the scenario: its kind, its place, and its effect."""

    kind: str
    where: str  # for people: "h*->s0", "s0", "worker 2"
    effect: Effect

    @property
    def extent(self) -> str:
        """Text of its strength and duration: "10Gbps for 2ms", "4 times as slow"; empty for others."""
        match self.effect:
            case LinksSlower(rate_bps=rate_bps) as effect:
                return f"{RATE.format(rate_bps)} {_duration(effect.from_ps, effect.until_ps)}"
            case HostSlowdown(factor=factor):
                return f"{float(factor):.6g} times as slow"
            case LinksDown() | Reboot() | Pause() | LateStart() as effect:
                return _duration(effect.from_ps, effect.until_ps)
            case Rule() | Crash():
                return ""


@dataclass(frozen=True)
class Condition:
    """How a worker's host delays its work over time."""

    factor: Fraction = Fraction(1)
    stops: tuple[tuple[int, int], ...] = ()  # [from, until) of its pauses, sorted; may overlap
    crash_ps: int = NEVER_PS

    def end_ps(self, start_ps: int, work_ps: int) -> int:
        """The end of work that begins at `start_ps` and takes `work_ps` on a host without faults.

        A paused host does not finish even work that takes no time. A crash is ignored.
        """
        now_ps, left_ps = start_ps, math.ceil(work_ps * self.factor)
        for from_ps, until_ps in self.stops:
            if until_ps <= now_ps:
                continue
            if from_ps > now_ps:
                if now_ps + left_ps <= from_ps:
                    break
                left_ps -= from_ps - now_ps
            now_ps = until_ps
        return now_ps + left_ps


@dataclass(frozen=True)
class FaultPlan:
    """A variant's faults, in the order of the scenario. It guarantees that:

    - every pattern matches at least one link, and no effect on packets or rates is inside a switch;
    - every switch and worker exists;
    - every fault ends after it begins, except reboots, which may take no time;
    - no link becomes faster than in the topology.
    """

    faults: tuple[PlannedFault, ...] = ()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of the engine, in the order of their counters."""
        return tuple(fault.effect for fault in self.faults if isinstance(fault.effect, Rule))

    @property
    def last_change_ps(self) -> int:
        """Time of the last change of the network or of packet faults; 0 if there is none."""
        effects = [fault.effect for fault in self.faults if isinstance(fault.effect, Change | Rule)]
        times = (effect.from_ps if effect.until_ps == NEVER_PS else effect.until_ps for effect in effects)
        return max(times, default=0)

    def conditions(self, job: int, workers_count: int) -> tuple[Condition, ...]:
        """The condition of each worker of a job."""
        return tuple(self._condition(job, worker) for worker in range(workers_count))

    def _condition(self, job: int, worker: int) -> Condition:
        factor, stops, crash_ps = Fraction(1), [], NEVER_PS
        for fault in self.faults:
            effect = fault.effect
            if not isinstance(effect, WorkerEffect) or (effect.job, effect.worker) != (job, worker):
                continue
            match effect:
                case HostSlowdown():
                    factor *= effect.factor
                case Crash():
                    crash_ps = min(crash_ps, effect.from_ps)
                case Pause() | LateStart():
                    stops.append((effect.from_ps, effect.until_ps))
        return Condition(factor, tuple(sorted(stops)), crash_ps)
