"""Resolves the faults of a scenario: patterns become link rows, names become nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import NamedTuple, assert_never

import numpy as np

from netfold.errors import NAMES_SHOWN, Mistakes, did_you_mean, names_hint
from netfold.sim.engine.interface import NEVER_PS, RULES_MAX, Burst, Fate, Rule
from netfold.sim.plan.plan import (
    Change,
    Crash,
    FaultPlan,
    HostSlowdown,
    LateStart,
    LinksDown,
    LinksSlower,
    Pause,
    PlannedFault,
    Reboot,
    WorkerEffect,
)
from netfold.sim.scenario import variant_keys
from netfold.topologies.network import Network
from netfold.units import RATE

OnPackets = (
    variant_keys.Loss
    | variant_keys.BurstLoss
    | variant_keys.Corruption
    | variant_keys.Duplicate
    | variant_keys.Reorder
)
ErrorAt = Callable[[str, str, str], Exception]  # path in the variant, message, hint


class JobWorkers(NamedTuple):
    """A job's workers, for resolving faults."""

    name: str
    hosts: tuple[int, ...]  # node of each worker
    start_ps: int = 0
    takes_compute_time: bool = True  # False: computing takes no time


def plan_faults(
    faults: Sequence[variant_keys.Fault], network: Network, jobs: Sequence[JobWorkers], error: ErrorAt
) -> FaultPlan:
    """Resolve a variant's faults on its network, which already has its loopback links.

    Raises
    ------
    Exception
        The error that `error` makes for an unknown pattern, switch, job or worker, a rate that is too high,
        or a slow host in a job whose computing takes no time.
    """
    mistakes, planned = Mistakes(), []
    for index, fault in enumerate(faults):
        with mistakes.collecting():
            planned.append(_FaultResolver(network, jobs, index, error).resolve(fault))
    mistakes.raise_any()
    plan = FaultPlan(tuple(planned))
    _check_factors(plan, jobs, error)
    if len(plan.rules) > RULES_MAX:
        raise error(
            "faults",
            f"{len(plan.rules)} faults on packets are too many",
            f"use {RULES_MAX} at most; a pattern such as 'h*->s0' names many links at once",
        )
    return plan


def _check_factors(plan: FaultPlan, jobs: Sequence[JobWorkers], error: ErrorAt) -> None:
    """Check the product of the factors of all slow_host faults of a worker."""
    for index, job in enumerate(jobs):
        conditions = plan.conditions(index, len(job.hosts)) if plan.faults else ()
        for worker, condition in enumerate(conditions):
            if condition.factor > variant_keys.FACTOR_MAX:
                factor = f"{float(condition.factor):.6g}"
                raise error(
                    "faults",
                    f"worker {worker} becomes {factor} times as slow, by all of its faults together",
                    f"use factors whose product is {variant_keys.FACTOR_MAX} at most",
                )


class _FaultResolver:
    """Resolves one fault; every error points to the line it comes from."""

    def __init__(self, network: Network, jobs: Sequence[JobWorkers], index: int, error: ErrorAt) -> None:
        self._network, self._jobs, self._index, self._error_at = network, jobs, index, error

    def resolve(self, fault: variant_keys.Fault) -> PlannedFault:
        match fault:
            case (
                variant_keys.Loss()
                | variant_keys.BurstLoss()
                | variant_keys.Corruption()
                | variant_keys.Duplicate()
                | variant_keys.Reorder()
            ):
                return PlannedFault(fault.kind, ", ".join(fault.links), self._rule(fault))
            case variant_keys.LinkDown() | variant_keys.LinkRate():
                return PlannedFault(fault.kind, ", ".join(fault.links), self._change(fault))
            case variant_keys.SwitchReboot():
                return PlannedFault(fault.kind, fault.switch, self._reboot(fault))
            case (
                variant_keys.WorkerCrash()
                | variant_keys.WorkerPause()
                | variant_keys.StartSkew()
                | variant_keys.SlowHost()
            ):
                job = self._job_number(fault.job)
                where = f"worker {fault.worker}"
                if len(self._jobs) > 1:
                    where += f" of {self._jobs[job].name}"
                return PlannedFault(fault.kind, where, self._on_worker(fault, job))
        assert_never(fault)

    def _error(self, key: str, message: str, hint: str) -> Exception:
        return self._error_at(f"faults.{self._index}.{key}", message, hint)

    def _rule(self, fault: OnPackets) -> Rule:
        burst, delay_ps = None, 0
        match fault:
            case variant_keys.Loss():
                fate = Fate.LOSS
            case variant_keys.BurstLoss():
                fate = Fate.BURST_LOSS
                burst = Burst(fault.good_to_bad, fault.bad_to_good, fault.loss_good)
            case variant_keys.Corruption():
                fate = Fate.CORRUPTION if fault.detected else Fate.FLIP
            case variant_keys.Duplicate():
                fate, delay_ps = Fate.DUPLICATE, fault.delay
            case variant_keys.Reorder():
                fate, delay_ps = Fate.REORDER, fault.delay
        return Rule(
            fate=fate,
            probability=fault.loss_bad if isinstance(fault, variant_keys.BurstLoss) else fault.rate,
            burst=burst,
            links=self._links(fault.links),
            delay_ps=delay_ps,
            from_ps=fault.begin,
            until_ps=NEVER_PS if fault.until is None else fault.until,
        )

    def _change(self, fault: variant_keys.LinkDown | variant_keys.LinkRate) -> Change:
        links = self._links(fault.links)
        until_ps = NEVER_PS if fault.duration is None else fault.at + fault.duration
        if isinstance(fault, variant_keys.LinkDown):
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

    def _reboot(self, fault: variant_keys.SwitchReboot) -> Reboot:
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
        fault: variant_keys.WorkerCrash
        | variant_keys.WorkerPause
        | variant_keys.StartSkew
        | variant_keys.SlowHost,
        job: int,
    ) -> WorkerEffect:
        _, hosts, start_ps, takes_compute_time = self._jobs[job]
        worker = fault.worker
        if worker >= len(hosts):
            ranks = "the only worker is 0" if len(hosts) == 1 else f"workers are 0 to {len(hosts) - 1}"
            raise self._error("worker", f"there is no worker {worker}", ranks)
        match fault:
            case variant_keys.WorkerCrash():
                return Crash(job, worker, hosts[worker], fault.at)
            case variant_keys.WorkerPause():
                return Pause(job, worker, hosts[worker], fault.at, fault.at + fault.duration)
            case variant_keys.StartSkew():
                return LateStart(job, worker, start_ps, start_ps + fault.delay)
            case variant_keys.SlowHost():
                if not takes_compute_time:
                    raise self._error(
                        "kind",
                        "computing takes no time here, so a slow host changes nothing",
                        "give the variant a device that takes time, fixed or roofline",
                    )
                return HostSlowdown(job, worker, Fraction(fault.factor), start_ps)

    def _job_number(self, job: str | None) -> int:
        names = [one.name for one in self._jobs]
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
        """Rows of the links that any pattern matches, in order; loopback links are excluded."""
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
