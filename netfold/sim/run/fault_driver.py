"""Applies a fault plan to a running network, and counts the faults that it injected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

import simpy
from numpy.typing import NDArray

from netfold.sim.engine.interface import NEVER_PS, Rule
from netfold.sim.plan.plan import Change, Crash, FaultPlan, LinksDown, LinksSlower, Pause, Reboot
from netfold.sim.results.records import FaultRecord


class Changeable(Protocol):
    """Changes of a running network that an engine supports, at the current time; see sim/engine/README.md."""

    def advance(self, time_ps: int) -> None:
        """Advance to a time before which no event is due."""
        ...

    def set_rate(self, link: int, rate_bps: int) -> None:
        """Change the rate of a link."""
        ...

    def cut(self, link: int) -> None:
        """Lose the packets on the wire of a link; queued and new packets wait."""
        ...

    def flush(self, link: int) -> None:
        """Lose the packets that wait for a link that is cut."""
        ...

    def restore(self, link: int) -> None:
        """Let a link carry packets again."""
        ...

    def clear(self, switch: int) -> None:
        """Reset all registers of a switch."""
        ...

    def crash(self, host: int) -> None:
        """Make a host ignore arriving packets and send nothing."""
        ...

    def pause(self, host: int, until_ps: int) -> None:
        """Make packets that arrive at a host wait."""
        ...

    def rule_counters(self) -> list[int]:
        """Number of packets that each rule affected."""
        ...


class _Moment(NamedTuple):
    """The begin or end of a change; sorted by time, then by plan, with the begin before the end."""

    time_ps: int
    fault: int
    is_end: bool


class FaultDriver:
    """A SimPy process that applies the changes of a plan, and records the injected faults.

    Where faults overlap, a link is down while any of them holds it down, and has the rate of the one that
    began last (of those that began together: the last in the scenario), or else its configured rate.

    Parameters
    ----------
    rates_bps
        (links,) of the network as built.
    note
        Called for every change when it begins.
    done_ps
        Of a run that goes on: changes up to then are in force already.
    """

    def __init__(
        self,
        environment: simpy.Environment,
        engine: Changeable,
        plan: FaultPlan,
        rates_bps: NDArray[Any],
        note: Callable[[Change], None] = lambda change: None,
        done_ps: int = -1,
    ) -> None:
        self._environment, self._engine, self._plan, self._rates_bps = environment, engine, plan, rates_bps
        self._note = note
        self._holds: Counter[int] = Counter()  # by link: faults that hold it down now
        self._slowed: dict[int, list[LinksSlower]] = {}  # by link: in the order in which they began
        self._applied: set[int] = set()
        self.process = environment.process(self._run(done_ps))

    def _run(self, done_ps: int) -> Generator[simpy.Event, Any, None]:
        moments = []
        for index, fault in enumerate(self._plan.faults):
            if isinstance(fault.effect, Change):
                moments.append(_Moment(fault.effect.from_ps, index, is_end=False))
                if fault.effect.until_ps != NEVER_PS:
                    moments.append(_Moment(fault.effect.until_ps, index, is_end=True))
        for moment in sorted(moments):
            if moment.time_ps <= done_ps:
                continue
            yield self._environment.timeout(moment.time_ps - int(self._environment.now))
            self._engine.advance(moment.time_ps)
            effect = self._plan.faults[moment.fault].effect
            assert isinstance(effect, Change)
            if moment.is_end:
                self._end(effect)
            else:
                self._begin(effect)
                self._applied.add(moment.fault)

    def _begin(self, change: Change) -> None:
        self._note(change)
        match change:
            case LinksDown():
                self._hold_down(change.links)
            case LinksSlower():
                for link in change.links:
                    self._slowed.setdefault(link, []).append(change)
                    self._engine.set_rate(link, change.rate_bps)
            case Reboot():
                self._hold_down(change.links)
                self._flush(change)
                if change.clears_registers:
                    self._engine.clear(change.switch)
            case Crash():
                self._engine.crash(change.host)
            case Pause():
                self._engine.pause(change.host, change.until_ps)

    def _end(self, change: Change) -> None:
        match change:
            case LinksDown() | Reboot():
                if isinstance(change, Reboot):
                    self._flush(change)
                for link in change.links:
                    self._holds[link] -= 1
                    if self._holds[link] == 0:
                        self._engine.restore(link)
            case LinksSlower():
                for link in change.links:
                    others = self._slowed[link]
                    others.remove(change)
                    rate_bps = others[-1].rate_bps if others else int(self._rates_bps[link])
                    self._engine.set_rate(link, rate_bps)
            case Crash() | Pause():  # the engine ends a pause by itself
                pass

    def _hold_down(self, links: tuple[int, ...]) -> None:
        for link in links:
            self._holds[link] += 1
            if self._holds[link] == 1:
                self._engine.cut(link)

    def _flush(self, reboot: Reboot) -> None:
        """Lose the packets inside the switch: those queued when it went down, and those that came since."""
        for link in reboot.queues:
            self._engine.flush(link)

    def records(self, variant: str) -> list[FaultRecord]:
        """What each fault did so far, in the order of the plan."""
        struck = iter(self._engine.rule_counters())
        records = []
        for index, fault in enumerate(self._plan.faults):
            if isinstance(fault.effect, Rule):
                counted, count = "packets", next(struck)
            else:  # late starts and slow hosts apply from the start
                counted, count = "times", int(index in self._applied or not isinstance(fault.effect, Change))
            records.append(
                FaultRecord(
                    variant=variant,
                    fault=index,
                    kind=fault.kind,
                    where=fault.where,
                    extent=fault.extent,
                    count=count,
                    counted=counted,
                    first_ps=fault.effect.from_ps if count else None,
                )
            )
        return records
