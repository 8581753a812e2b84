"""Faults: what goes wrong, where, when, and how much. Each is a class: its keys, and what it is in a plan.

Order matters: of the packet faults of one kind, the first that matches a link at a given time applies there,
so an earlier `rate: 0%` exempts links.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from itertools import permutations
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from netfold.errors import NAMES_SHOWN, Mistakes, OptionError, did_you_mean, names_hint
from netfold.kinds import family, register
from netfold.sim.engine.engine_data import NEVER_PS, RULES_MAX, Burst, Fate, Rule
from netfold.sim.keys import ByKind, Name, Option, Rate, RerouteTime, Share, Time
from netfold.sim.plan.plan import (
    Effect,
    Failure,
    FaultPlan,
    HostSlowdown,
    LateStart,
    LinksDown,
    LinksSlower,
    PlannedFault,
    Reboot,
    Stop,
    WorkerEffect,
)
from netfold.topologies.network import Network
from netfold.topologies.routing import POLICIES
from netfold.units import RATE, TIME, format_fraction

FACTOR_MAX = 10_000
"""How much slower all its faults together may make one host."""
Links = Annotated[tuple[str, ...], Field(min_length=1)]
Duration = Annotated[Time, Field(gt=0)]
Transition = Annotated[Share, Field(gt=0)]
ErrorAt = Callable[[str, str, str], Exception]  # path in the variant, message, hint


# What faults strike: the network and the jobs of a variant.


class JobWorkers(NamedTuple):
    """A job's workers, for resolving faults."""

    name: str
    hosts: tuple[int, ...]  # node of each worker
    start_ps: int = 0
    takes_compute_time: bool = True  # False: computing takes no time


@dataclass(frozen=True)
class FaultSite:
    """What a fault is resolved on; every error points to the line that the fault comes from."""

    network: Network
    jobs: Sequence[JobWorkers]
    index: int  # of the fault
    error_at: ErrorAt

    def error(self, key: str, message: str, hint: str) -> Exception:
        return self.error_at(f"faults.{self.index}.{key}", message, hint)

    def links(self, patterns: Sequence[str]) -> tuple[int, ...]:
        """Rows of the links that any pattern matches, in order; loopback links are excluded."""
        network = self.network
        names = {
            name: row
            for row, name in enumerate(network.link_names)
            if network.link_source[row] != network.link_target[row]
        }
        edges = [
            (f"{network.nodes[a]}-{network.nodes[b]}", row)
            for row in names.values()
            for a, b in permutations((network.link_source[row], network.link_target[row]))
        ]
        matched: set[int] = set()
        for pattern in patterns:
            is_edge = "->" not in pattern and "-" in re.sub(r"\[[^]]*\]", "", pattern)
            named = edges if is_edge else [*names.items()]
            rows = [row for name, row in named if fnmatchcase(name, pattern)]
            if not rows:
                hint = f"{did_you_mean(pattern, dict(named))}links are named like {named[0][0]!r}"
                raise self.error("links", f"no link matches {pattern!r}", hint)
            matched.update(rows)
        return tuple(sorted(matched))

    def switch_links(self, switch: str) -> tuple[int, NDArray[np.intp], NDArray[np.intp]]:
        """Node of a switch, rows of all links that end there, and of those out of it."""
        network = self.network
        names = [name for name, is_host in zip(network.nodes, network.is_host, strict=True) if not is_host]
        if switch not in names:
            hint = names_hint(switch, names, "switches", NAMES_SHOWN)
            raise self.error("switch", f"there is no switch {switch!r}", hint)
        node = network.nodes.index(switch)
        leading = network.link_source == node
        return node, np.flatnonzero(leading | (network.link_target == node)), np.flatnonzero(leading)

    def job_number(self, job: str | None) -> int:
        names = [workers.name for workers in self.jobs]
        if job is None:
            return 0
        if job not in names:
            hint = (
                names_hint(job, names, "jobs", NAMES_SHOWN)
                if len(names) > 1
                else "there is only one job: remove this key"
            )
            raise self.error("job", f"there is no job {job!r}", hint)
        return names.index(job)


@family("faults")
@dataclass(frozen=True, kw_only=True)
class Fault(Option, ABC):
    """A fault of the network or of a worker."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def where(self) -> str:
        """Its place, for people, where there is one job."""

    @abstractmethod
    def effect(self, site: FaultSite) -> Effect:
        """What it does, on links and workers that exist."""

    def planned(self, site: FaultSite) -> PlannedFault:
        return PlannedFault(self.kind, self.where, self.effect(site))


AnyFault = Annotated[Fault, ByKind()]


def plan_faults(
    faults: Sequence[Fault], network: Network, jobs: Sequence[JobWorkers], error: ErrorAt
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
            planned.append(fault.planned(FaultSite(network, jobs, index, error)))
    mistakes.raise_any()
    plan = FaultPlan(tuple(planned))
    if plan.reroutes and not network.policy.can_reroute:
        failure = next(fault for fault in plan.faults if isinstance(fault.effect, Failure))
        raise error(
            "routing",
            f"routing {network.policy.kind} finds no other paths after {failure.kind} of {failure.where} "
            f"({failure.extent})",
            f"use {' or '.join(name for name, policy in POLICIES.items() if policy.can_reroute)}, "
            "or faults with reroute: never",
        )
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
            if condition.factor > FACTOR_MAX:
                factor = f"{float(condition.factor):.6g}"
                raise error(
                    "faults",
                    f"worker {worker} becomes {factor} times as slow, by all of its faults together",
                    f"use factors whose product is {FACTOR_MAX} at most",
                )


# Faults of packets.


@dataclass(frozen=True, kw_only=True)
class PacketFault(Fault, ABC):
    """Affects packets as they are put on links."""

    links: Links = ("*",)
    """Which links, as patterns over names: h0->s0 is one direction, h0-s0 both."""
    begin_ps: Annotated[Time, Field(alias="from")] = 0
    """When the fault begins."""
    until_ps: Annotated[Time | None, Field(alias="until")] = None
    """When the fault ends; by default it lasts to the end of the run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.until_ps is not None and self.until_ps <= self.begin_ps:
            begin = TIME.format(self.begin_ps)
            raise OptionError(
                "until",
                f"{TIME.format(self.until_ps)} is not after from, {begin}",
                f"use a time after {begin}, or remove until: the fault then lasts to the end",
            )

    @property
    def where(self) -> str:
        return ", ".join(self.links)

    def rule(
        self, site: FaultSite, fate: Fate, probability: float, delay_ps: int = 0, burst: Burst | None = None
    ) -> Rule:
        """What happens to packets on its links while it lasts."""
        until_ps = NEVER_PS if self.until_ps is None else self.until_ps
        return Rule(fate, probability, site.links(self.links), delay_ps, self.begin_ps, until_ps, burst)


@dataclass(frozen=True, kw_only=True)
class WithRate(Option):
    """Affects each packet independently."""

    rate: Share
    """Probability that the fault affects a packet on one link."""


@dataclass(frozen=True, kw_only=True)
class RandomPacketFault(PacketFault, WithRate, ABC):
    """Affects packets at random as they are put on links."""


@register
@dataclass(frozen=True, kw_only=True)
class Loss(RandomPacketFault):
    """Packets that are lost on the wire."""

    kind: ClassVar[str] = "loss"

    def effect(self, site: FaultSite) -> Rule:
        return self.rule(site, Fate.LOSS, self.rate)


@dataclass(frozen=True, kw_only=True)
class GilbertElliott(Option):
    """A two-state Markov chain for each link, with one transition per packet."""

    good_to_bad: Transition
    """Probability that a link changes from good to bad before a packet (p)."""
    bad_to_good: Transition
    """Probability that a link changes from bad to good before a packet (r); a bad period lasts 1/r packets on
    average."""
    loss_bad: Share = 1.0
    """Probability that a packet is lost while the link is bad (1 - h)."""
    loss_good: Share = 0.0
    """Probability that a packet is lost while the link is good (1 - k)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss_good > self.loss_bad:
            raise OptionError(
                "loss_good",
                f"{format_fraction(self.loss_good)} is more than loss_bad, {format_fraction(self.loss_bad)}",
                "use a smaller value, or swap the two states",
            )


@register
@dataclass(frozen=True, kw_only=True)
class BurstLoss(PacketFault, GilbertElliott):
    """Packets that are lost in bursts (Gilbert-Elliott model): each link alternates between a good and a bad
    state. The share of packets in the bad state is p / (p + r), from the first packet on."""

    kind: ClassVar[str] = "burst_loss"

    def effect(self, site: FaultSite) -> Rule:
        burst = Burst(self.good_to_bad, self.bad_to_good, self.loss_good)
        return self.rule(site, Fate.BURST_LOSS, self.loss_bad, burst=burst)


@register
@dataclass(frozen=True, kw_only=True)
class Corruption(RandomPacketFault):
    """Packets in which bits flip on the wire."""

    kind: ClassVar[str] = "corruption"
    detected: bool = True
    """true: the frame check sequence detects the error and the packet is discarded; false: one bit of a word
    is wrong and nothing detects it. Packets of messages between hosts, such as a ring's, are always
    discarded."""

    def effect(self, site: FaultSite) -> Rule:
        return self.rule(site, Fate.CORRUPTION if self.detected else Fate.FLIP, self.rate)


@register
@dataclass(frozen=True, kw_only=True)
class Duplicate(RandomPacketFault):
    """Packets that arrive twice."""

    kind: ClassVar[str] = "duplicate"
    delay_ps: Time = 0
    """Extra delay of the copy; without it the copy arrives right after the packet."""

    def effect(self, site: FaultSite) -> Rule:
        return self.rule(site, Fate.DUPLICATE, self.rate, self.delay_ps)


@register
@dataclass(frozen=True, kw_only=True)
class Reorder(RandomPacketFault):
    """Packets that arrive late, after packets sent behind them."""

    kind: ClassVar[str] = "reorder"
    delay_ps: Duration
    """Extra delay of an affected packet."""

    def effect(self, site: FaultSite) -> Rule:
        return self.rule(site, Fate.REORDER, self.rate, self.delay_ps)


# Faults of links and switches.


@dataclass(frozen=True, kw_only=True)
class LinkFault(Fault, ABC):
    """Changes links for some time."""

    links: Links = ("*",)
    """Which links, as patterns over names: h0->s0 is one direction, h0-s0 both."""
    at_ps: Time
    """When the fault begins."""
    duration_ps: Annotated[Duration | None, Field(alias="for")] = None
    """How long it lasts; by default to the end of the run."""

    @property
    def where(self) -> str:
        return ", ".join(self.links)

    @property
    def end_ps(self) -> int:
        return NEVER_PS if self.duration_ps is None else self.at_ps + self.duration_ps


@register
@dataclass(frozen=True, kw_only=True)
class LinkDown(LinkFault):
    """Links that carry nothing. Packets on the wire are lost. Later packets wait in the buffer until it is
    full; with `reroute` they are dropped until the links return."""

    kind: ClassVar[str] = "link_down"
    reroute_ps: Annotated[RerouteTime, Field(alias="reroute")] = "never"
    """How long after the links fail, and after they return, routes change; never: they do not change, as with
    outages that routing does not notice."""

    def effect(self, site: FaultSite) -> LinksDown | Failure:
        links, network = site.links(self.links), site.network
        if self.reroute_ps == "never":
            return LinksDown(links, self.at_ps, self.end_ps)
        of_hosts = network.is_host[network.link_source] | network.is_host[network.link_target]
        if of_hosts[[*links]].any():
            name = network.link_names[next(link for link in links if of_hosts[link])]
            raise site.error(
                "links",
                f"link {name} is the only link of its host, so there is no other path",
                "use links between switches, or reroute: never",
            )
        return Failure(links, self.reroute_ps, self.at_ps, self.end_ps)


@register
@dataclass(frozen=True, kw_only=True)
class LinkRate(LinkFault):
    """Links that become slower, for all packets not yet sent; where such faults overlap, the one that began
    last applies."""

    kind: ClassVar[str] = "link_rate"
    rate_bps: Rate
    """Rate during the fault, at most the link's rate in the topology."""

    def effect(self, site: FaultSite) -> LinksSlower:
        links, network = site.links(self.links), site.network
        slowest = min(links, key=lambda link: int(network.rate_bps[link]))
        built_bps = int(network.rate_bps[slowest])
        if self.rate_bps > built_bps:
            name, built = network.link_names[slowest], RATE.format(built_bps)
            raise site.error(
                "rate",
                f"{RATE.format(self.rate_bps)} is more than the {built} that link {name} was built with",
                f"a fault only slows links down: use at most {built}, or a faster topology",
            )
        return LinksSlower(links, self.rate_bps, self.at_ps, self.end_ps)


@dataclass(frozen=True, kw_only=True)
class SwitchFault(Fault, ABC):
    """Affects a switch."""

    switch: str
    """Name of the switch."""
    at_ps: Time
    """When it happens."""

    @property
    def where(self) -> str:
        return self.switch


@register
@dataclass(frozen=True, kw_only=True)
class SwitchReboot(SwitchFault):
    """A switch that loses its registers, its tables, or both."""

    kind: ClassVar[str] = "switch_reboot"
    clears: Literal["registers", "tables", "both"] = "both"
    """registers: all partial sums are lost, and the switch continues at once; tables: it neither forwards nor
    aggregates, as if all its ports were down, until the controller has reinstalled them."""
    duration_ps: Annotated[Time, Field(alias="for")] = 0
    """How long the controller takes to reinstall the tables."""

    def __post_init__(self) -> None:
        if self.duration_ps and self.clears == "registers":
            raise OptionError(
                "for",
                "cleared registers are usable at once",
                "remove for, or use clears: tables or clears: both",
            )

    def effect(self, site: FaultSite) -> Reboot:
        switch, touching, leading = site.switch_links(self.switch)
        return Reboot(
            switch=switch,
            clears_registers=self.clears != "tables",
            links=() if self.clears == "registers" else tuple(touching.tolist()),
            queues=() if self.clears == "registers" else tuple(leading.tolist()),
            from_ps=self.at_ps,
            until_ps=self.at_ps + self.duration_ps,
        )


@register
@dataclass(frozen=True, kw_only=True)
class SwitchDown(SwitchFault):
    """A switch that fails. It loses its registers and all packets on its links, which drop later packets."""

    kind: ClassVar[str] = "switch_down"
    duration_ps: Annotated[Duration | None, Field(alias="for")] = None
    """How long until it returns; by default it does not."""
    reroute_ps: Annotated[RerouteTime, Field(alias="reroute")] = 50 * 10**9
    """How long after it fails, and after it returns, routes change (50ms: what operators expect of protection
    switching, ITU-T G.841); never: they do not change."""

    def effect(self, site: FaultSite) -> Failure:
        switch, touching, _ = site.switch_links(self.switch)
        reroute_ps = NEVER_PS if self.reroute_ps == "never" else self.reroute_ps
        end_ps = NEVER_PS if self.duration_ps is None else self.at_ps + self.duration_ps
        return Failure(tuple(touching.tolist()), reroute_ps, self.at_ps, end_ps, switch)


# Faults of workers.


@dataclass(frozen=True, kw_only=True)
class WorkerFault(Fault, ABC):
    """Affects a worker and its host."""

    worker: Annotated[int, Field(ge=0)]
    """Rank of the worker: 0, 1, …"""
    job: Name | None = None
    """Name of its job; by default the first."""

    @property
    def where(self) -> str:
        return f"worker {self.worker}"

    @abstractmethod
    def strike(self, site: FaultSite, job: int, host: int) -> WorkerEffect:
        """What it does to its worker, of a job of this number, on a host of this node."""

    def effect(self, site: FaultSite) -> WorkerEffect:
        job = site.job_number(self.job)
        hosts = site.jobs[job].hosts
        if self.worker >= len(hosts):
            ranks = "the only worker is 0" if len(hosts) == 1 else f"workers are 0 to {len(hosts) - 1}"
            raise site.error("worker", f"there is no worker {self.worker}", ranks)
        return self.strike(site, job, hosts[self.worker])

    def planned(self, site: FaultSite) -> PlannedFault:
        effect = self.effect(site)
        job = f" of {site.jobs[effect.job].name}" if len(site.jobs) > 1 else ""
        return PlannedFault(self.kind, self.where + job, effect)


@register
@dataclass(frozen=True, kw_only=True)
class WorkerCrash(WorkerFault):
    """A worker that stops for good: its host ignores packets that arrive and sends nothing."""

    kind: ClassVar[str] = "worker_crash"
    at_ps: Time
    """When it happens."""

    def strike(self, site: FaultSite, job: int, host: int) -> Stop:
        return Stop(job, self.worker, host, self.at_ps)


@register
@dataclass(frozen=True, kw_only=True)
class WorkerPause(WorkerFault):
    """A worker that pauses: it computes nothing, and packets that arrive wait."""

    kind: ClassVar[str] = "worker_pause"
    at_ps: Time
    """When the pause begins."""
    duration_ps: Annotated[Duration, Field(alias="for")]
    """How long it lasts."""

    def strike(self, site: FaultSite, job: int, host: int) -> Stop:
        return Stop(job, self.worker, host, self.at_ps, self.at_ps + self.duration_ps)


@register
@dataclass(frozen=True, kw_only=True)
class StartSkew(WorkerFault):
    """A worker that starts its first step late."""

    kind: ClassVar[str] = "start_skew"
    delay_ps: Duration
    """How long after its job it starts."""

    def strike(self, site: FaultSite, job: int, host: int) -> LateStart:
        start_ps = site.jobs[job].start_ps
        return LateStart(job, self.worker, start_ps, start_ps + self.delay_ps)


@register
@dataclass(frozen=True, kw_only=True)
class SlowHost(WorkerFault):
    """A worker whose computing, encoding and decoding take longer; the factors of several such faults of one
    worker multiply."""

    kind: ClassVar[str] = "slow_host"
    factor: Annotated[float, Field(gt=1, le=FACTOR_MAX)]
    """How many times longer, up to 10000."""

    def strike(self, site: FaultSite, job: int, host: int) -> HostSlowdown:
        if not site.jobs[job].takes_compute_time:
            raise site.error(
                "kind",
                "computing takes no time here, so a slow host changes nothing",
                "give the variant a device that takes time, fixed or roofline",
            )
        return HostSlowdown(job, self.worker, Fraction(self.factor), site.jobs[job].start_ps)
