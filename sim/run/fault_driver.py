"""Changes a network while it runs, when its fault plan says so, and keeps account of what was injected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

import simpy
from numpy.typing import NDArray

from netfold.sim.engine.interface import NEVER_PS, Rule
from netfold.sim.plan.faults import Change, Crash, FaultPlan, LinksDown, LinksSlower, Pause, Reboot
from netfold.sim.results.records import FaultRecord


class Changeable(Protocol):
    """What an engine lets one do to its network, at the current time; see the law in sim/engine/README.md."""

    def advance(self, time_ps: int) -> None:
        """Let time pass up to an instant before which nothing happens."""
        ...

    def set_rate(self, link: int, rate_bps: int) -> None:
        """Give a link another rate."""
        ...

    def cut(self, link: int) -> None:
        """Lose what is on the wire of a link; the rest, and what is put on it, waits."""
        ...

    def flush(self, link: int) -> None:
        """Lose what waits on a link that is cut."""
        ...

    def restore(self, link: int) -> None:
        """Let a link carry packets again."""
        ...

    def clear(self, switch: int) -> None:
        """Reset all registers of a switch."""
        ...

    def crash(self, host: int) -> None:
        """Let a host ignore what arrives and send nothing."""
        ...

    def pause(self, host: int, until_ps: int) -> None:
        """Let what arrives at a host wait."""
        ...

    def rule_counters(self) -> list[int]:
        """Packets that each rule has struck."""
        ...


class _Moment(NamedTuple):
    """A change begins or ends; in the order of time, then of the plan; it begins before it ends."""

    time_ps: int
    fault: int
    is_end: bool


class FaultDriver:
    """Applies the changes of a plan, as a SimPy process, and says what was injected.

    Where faults overlap, a link is down while any of them holds it down, and has the rate of the one that
    began last (of those that began together: the last in the scenario), or its own.

    Parameters
    ----------
    rates_bps
        (links,) of the network as built.
    note
        Told of every change that begins.
    """

    def __init__(
        self,
        environment: simpy.Environment,
        engine: Changeable,
        plan: FaultPlan,
        rates_bps: NDArray[Any],
        note: Callable[[Change], None] = lambda change: None,
    ) -> None:
        self._environment, self._engine, self._plan, self._rates_bps = environment, engine, plan, rates_bps
        self._note = note
        self._holds: Counter[int] = Counter()  # by link: faults that hold it down now
        self._slowed: dict[int, list[LinksSlower]] = {}  # by link: in the order in which they began
        self._applied: set[int] = set()
        environment.process(self._run())

    def _run(self) -> Generator[simpy.Event, Any, None]:
        moments = []
        for index, fault in enumerate(self._plan.faults):
            if isinstance(fault.effect, Change):
                moments.append(_Moment(fault.effect.from_ps, index, is_end=False))
                if fault.effect.until_ps != NEVER_PS:
                    moments.append(_Moment(fault.effect.until_ps, index, is_end=True))
        for moment in sorted(moments):
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
        """What waits inside the switch is lost: what did when it went down, and what came until it is up."""
        for link in reboot.queues:
            self._engine.flush(link)

    def records(self, variant: str) -> list[FaultRecord]:
        """What each fault came to so far, in the order of the plan."""
        struck = iter(self._engine.rule_counters())
        records = []
        for index, fault in enumerate(self._plan.faults):
            if isinstance(fault.effect, Rule):
                counted, count = "packets", next(struck)
            else:  # late starts and slow hosts are there from the start
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
