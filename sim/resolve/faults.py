"""From faults as written to their effects: patterns become link rows, names become nodes, or errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import NamedTuple, assert_never

import numpy as np

from netfold.sim.engine.interface import NEVER_PS, RULES_MAX, Burst, Fate, Rule
from netfold.sim.errors import Mistakes
from netfold.sim.plan.faults import (
    Change,
    Crash,
    FaultPlan,
    LateStart,
    LinksDown,
    LinksSlower,
    Pause,
    PlannedFault,
    Reboot,
    SlowHost,
    WorkerEffect,
)
from netfold.sim.scenario import faults as written
from netfold.sim.units import RATE
from netfold.spelling import NAMES_SHOWN, did_you_mean, names_hint
from netfold.topologies.routing import Network

OnPackets = written.Loss | written.BurstLoss | written.Corruption | written.Duplicate | written.Reorder
ErrorAt = Callable[[str, str, str], Exception]  # path in the variant, message, hint


class Team(NamedTuple):
    """A job's workers, as far as faults are concerned."""

    name: str
    hosts: tuple[int, ...]  # node of each worker
    start_ps: int = 0
    computes: bool = True  # whether computing takes it any time


def plan_faults(
    faults: Sequence[written.Fault], network: Network, teams: Sequence[Team], error: ErrorAt
) -> FaultPlan:
    """Resolve a variant's faults on its network, which has its loopback links by now.

    Raises
    ------
    Exception
        What `error` makes of a pattern, switch, job or worker that is not there, a rate that is too high,
        or a slow host in a job that takes no time to compute.
    """
    mistakes, planned = Mistakes(), []
    for index, fault in enumerate(faults):
        with mistakes.kept():
            planned.append(_Resolver(network, teams, index, error).resolve(fault))
    mistakes.raise_any()
    plan = FaultPlan(tuple(planned))
    _check_factors(plan, teams, error)
    if len(plan.rules) > RULES_MAX:
        raise error(
            "faults",
            f"{len(plan.rules)} faults on packets are too many",
            f"use {RULES_MAX} at most; a pattern such as 'h*->s0' names many links at once",
        )
    return plan


def _check_factors(plan: FaultPlan, teams: Sequence[Team], error: ErrorAt) -> None:
    """Several faults that slow down one host multiply."""
    for index, team in enumerate(teams):
        conditions = plan.conditions(index, len(team.hosts)) if plan.faults else ()
        for worker, condition in enumerate(conditions):
            if condition.factor > written.FACTOR_MAX:
                factor = f"{float(condition.factor):.6g}"
                raise error(
                    "faults",
                    f"worker {worker} becomes {factor} times as slow, by all of its faults together",
                    f"use factors whose product is {written.FACTOR_MAX} at most",
                )


class _Resolver:
    """Resolves one fault; every error points to the line it comes from."""

    def __init__(self, network: Network, teams: Sequence[Team], index: int, error: ErrorAt) -> None:
        self._network, self._teams, self._index, self._error_at = network, teams, index, error

    def resolve(self, fault: written.Fault) -> PlannedFault:
        match fault:
            case (
                written.Loss()
                | written.BurstLoss()
                | written.Corruption()
                | written.Duplicate()
                | written.Reorder()
            ):
                return PlannedFault(fault.kind, ", ".join(fault.links), self._rule(fault))
            case written.LinkDown() | written.LinkRate():
                return PlannedFault(fault.kind, ", ".join(fault.links), self._change(fault))
            case written.SwitchReboot():
                return PlannedFault(fault.kind, fault.switch, self._reboot(fault))
            case written.WorkerCrash() | written.WorkerPause() | written.StartSkew() | written.SlowHost():
                team = self._team(fault.job)
                where = f"worker {fault.worker}"
                if len(self._teams) > 1:
                    where += f" of {self._teams[team].name}"
                return PlannedFault(fault.kind, where, self._on_worker(fault, team))
        assert_never(fault)

    def _error(self, key: str, message: str, hint: str) -> Exception:
        return self._error_at(f"faults.{self._index}.{key}", message, hint)

    def _rule(self, fault: OnPackets) -> Rule:
        burst, delay_ps = None, 0
        match fault:
            case written.Loss():
                fate = Fate.LOSS
            case written.BurstLoss():
                fate = Fate.BURST_LOSS
                burst = Burst(fault.good_to_bad, fault.bad_to_good, fault.loss_good)
            case written.Corruption():
                fate = Fate.CORRUPTION if fault.detected else Fate.FLIP
            case written.Duplicate():
                fate, delay_ps = Fate.DUPLICATE, fault.delay
            case written.Reorder():
                fate, delay_ps = Fate.REORDER, fault.delay
        return Rule(
            fate=fate,
            probability=fault.loss_bad if isinstance(fault, written.BurstLoss) else fault.rate,
            burst=burst,
            links=self._links(fault.links),
            delay_ps=delay_ps,
            from_ps=fault.begin,
            until_ps=NEVER_PS if fault.until is None else fault.until,
        )

    def _change(self, fault: written.LinkDown | written.LinkRate) -> Change:
        links = self._links(fault.links)
        until_ps = NEVER_PS if fault.duration is None else fault.at + fault.duration
        if isinstance(fault, written.LinkDown):
            return LinksDown(links, fault.at, until_ps)
        slowest = min(links, key=lambda link: int(self._network.rate_bps[link]))
        built_bps = int(self._network.rate_bps[slowest])
        if fault.rate > built_bps:
            name, built = self._network.link_names[slowest], RATE.format(built_bps)
            raise self._error(
                "rate",
                f"{RATE.format(fault.rate)} is more than the {built} that link {name} was built with",
                f"a fault only slows links down: use at most {built}, or a faster topology",
            )
        return LinksSlower(links, fault.rate, fault.at, until_ps)

    def _reboot(self, fault: written.SwitchReboot) -> Reboot:
        network = self._network
        names = [name for name, is_host in zip(network.nodes, network.is_host, strict=True) if not is_host]
        if fault.switch not in names:
            hint = names_hint(fault.switch, names, "switches", NAMES_SHOWN)
            raise self._error("switch", f"there is no switch {fault.switch!r}", hint)
        switch = network.nodes.index(fault.switch)
        touching = np.flatnonzero((network.link_source == switch) | (network.link_target == switch))
        leading = np.flatnonzero(network.link_source == switch)
        return Reboot(
            switch=switch,
            clears_registers=fault.clears != "tables",
            links=() if fault.clears == "registers" else tuple(touching.tolist()),
            queues=() if fault.clears == "registers" else tuple(leading.tolist()),
            from_ps=fault.at,
            until_ps=fault.at + fault.duration,
        )

    def _on_worker(
        self,
        fault: written.WorkerCrash | written.WorkerPause | written.StartSkew | written.SlowHost,
        team: int,
    ) -> WorkerEffect:
        _, hosts, start_ps, computes = self._teams[team]
        worker = fault.worker
        if worker >= len(hosts):
            ranks = "the only worker is 0" if len(hosts) == 1 else f"workers are 0 to {len(hosts) - 1}"
            raise self._error("worker", f"there is no worker {worker}", ranks)
        match fault:
            case written.WorkerCrash():
                return Crash(team, worker, hosts[worker], fault.at)
            case written.WorkerPause():
                return Pause(team, worker, hosts[worker], fault.at, fault.at + fault.duration)
            case written.StartSkew():
                return LateStart(team, worker, start_ps, start_ps + fault.delay)
            case written.SlowHost():
                if not computes:
                    raise self._error(
                        "kind",
                        "computing takes no time here, so a slow host changes nothing",
                        "give the variant a device that takes time, fixed or roofline",
                    )
                return SlowHost(team, worker, Fraction(fault.factor), start_ps)

    def _team(self, job: str | None) -> int:
        names = [team.name for team in self._teams]
        if job is None:
            return 0
        if job not in names:
            hint = (
                names_hint(job, names, "jobs", NAMES_SHOWN)
                if len(names) > 1
                else "there is only one job: remove this key"
            )
            raise self._error("job", f"there is no job {job!r}", hint)
        return names.index(job)

    def _links(self, patterns: Sequence[str]) -> tuple[int, ...]:
        """Rows that any pattern names, in order; the inside of a switch has no name."""
        network = self._network
        names = {
            name: row
            for row, name in enumerate(network.link_names)
            if network.link_source[row] != network.link_target[row]
        }
        found: set[int] = set()
        for pattern in patterns:
            rows = [row for name, row in names.items() if fnmatchcase(name, pattern)]
            if not rows:
                raise self._error(
                    "links",
                    f"no link matches {pattern!r}",
                    f"{did_you_mean(pattern, names)}links are named like {next(iter(names))!r}",
                )
            found.update(rows)
        return tuple(sorted(found))
