"""What the jobs of a variant ask of its switches: one program each, slots one job after the other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from homomorphic.codec import Merge
from sim.errors import ScenarioError
from sim.resolve.aggregation_tree import Tree
from sim.resolve.place import Place
from sim.scenario.collectives import InNetwork
from sim.wiring import with_loopback
from switch.fit import Fit, FitError, check_merges, check_overflow, fit
from switch.profiles import Profile
from switch.program import Demand
from topologies.routing import Network


@dataclass(frozen=True)
class Grant:
    """What a job gets: slots from `slot_base` on at every point, and each point's loopback link or −1."""

    slot_base: int
    loopback_links: tuple[int, ...]
    fit: Fit  # at the root


@dataclass(frozen=True)
class Request:
    """What a job asks of every switch of its tree."""

    place: Place
    section: InNetwork
    words: int  # of a packet
    merges: Collection[Merge]
    overflow: str  # one of `switch.limits.OVERFLOWS`
    header_bytes: int | None = None  # of a frame of one's own


@dataclass(frozen=True)
class _Tenant:
    """A job on a switch."""

    request: Request
    children: int
    slots_end: int

    @property
    def called(self) -> str:
        return self.request.place.called


class Switches:
    """Grows job by job; `network` gets the loopback links that programs need."""

    def __init__(self, network: Network, profiles: dict[str, Profile], profile_key: str) -> None:
        self.network = network
        self.profiles = profiles
        self.profile_key = profile_key  # where a scenario names the switches' profile
        self._tenants: dict[int, list[_Tenant]] = {}  # by node
        self._loopbacks: dict[int, int] = {}

    def profile_of(self, node: int) -> Profile:
        """Profile of a switch."""
        return self.profiles[self.network.nodes[node]]

    def admit(self, request: Request, tree: Tree) -> Grant:
        """Reserve what a job needs at every point of its tree.

        Raises
        ------
        ScenarioError
            The program does not fit, another one runs there, the slots are taken, or the switch cannot merge
            what is to be merged.
        """
        section = request.section
        base = max(
            (tenant.slots_end for node in tree.switches for tenant in self._tenants.get(node, ())), default=0
        )
        tenants = [
            _Tenant(request, tree.children_count(point), base + section.slots)
            for point in range(len(tree.switches))
        ]
        fits = []
        for node, tenant in zip(tree.switches, tenants, strict=True):
            try:
                fits.append(self._fit(node, tenant, base))
                check_merges(self.profile_of(node), request.merges)
                check_overflow(self.profile_of(node), request.overflow)
            except FitError as error:
                where = f"switch {self.network.nodes[node]}: " if len(tree.switches) > 1 else ""
                raise self._refused(request, error, where) from None
        for node, tenant in zip(tree.switches, tenants, strict=True):
            self._tenants.setdefault(node, []).append(tenant)
        links = tuple(
            self._loopback(node, one.extra_passes) for node, one in zip(tree.switches, fits, strict=True)
        )
        return Grant(base, links, fits[0])

    def _fit(self, node: int, tenant: _Tenant, base: int) -> Fit:
        """What the program takes of a switch together with the jobs that are there already."""
        others = self._tenants.get(node, [])
        kind, section = self.profile_of(node), tenant.request.section
        self._check_company(node, tenant.request)
        alone = Demand(
            workers=tenant.children,
            slots=section.entries if section.program == "atp" else section.slots,
            words=tenant.request.words,
            rate_bps=self._rate_bps(node),
            header_bytes=tenant.request.header_bytes,
        )
        found = fit(kind, section.program, alone, any_words=False)
        if not others:
            return found
        together = replace(
            alone,
            workers=max(tenant.children, *(other.children for other in others)),
            slots=section.entries if section.program == "atp" else tenant.slots_end,
            jobs=len(others) + 1,
        )
        try:
            return fit(kind, section.program, together, any_words=False)
        except FitError as error:
            if error.about != "slots":
                raise
        raise self._no_room(node, tenant, base, together)

    def _rate_bps(self, node: int) -> int:
        """Rate of the fastest link at a switch."""
        network = self.network
        ends_here = (network.link_source == node) ^ (network.link_target == node)  # not its loopback
        return int(np.max(network.rate_bps, where=ends_here, initial=0))

    def _refused(self, request: Request, error: FitError, where: str) -> ScenarioError:
        """The error at the key that has to change."""
        section, place, message = request.section, request.place, where + error.message
        if error.about == "profile" and section.switch == "auto":
            return place.error(self.profile_key, message, error.hint)
        if error.about == "jobs":
            return place.error("jobs", message, error.hint)
        key = {
            "profile": "collective.switch",
            "program": "collective.program",
            "workers": "workers.count",
            "words": "collective.frame",
            "slots": "collective.entries" if section.program == "atp" else "collective.slots",
            "merges": "codec",
            "overflow": "collective.overflow",
        }[error.about]
        return place.job_error(key, message, error.hint)

    def _check_company(self, node: int, request: Request) -> None:
        """All jobs on a switch run the same program on packets of the same size."""
        place, section = request.place, request.section
        for tenant in self._tenants.get(node, ())[:1]:
            name, theirs = self.network.nodes[node], tenant.request
            if theirs.section.program != section.program:
                raise place.job_error(
                    "collective.program",
                    f"switch {name} runs {theirs.section.program} for {tenant.called}, "
                    f"it cannot run {section.program} too",
                    "use the same program, or another switch",
                )
            if theirs.words != request.words:
                raise place.job_error(
                    "collective.frame",
                    f"switch {name} takes packets of {theirs.words} words for {tenant.called}, "
                    f"not of {request.words}",
                    "use the same frame, or another switch",
                )
            if section.program == "atp" and theirs.section.entries != section.entries:
                raise place.job_error(
                    "collective.entries",
                    f"switch {name} has {theirs.section.entries} entries for {tenant.called}, "
                    "which all jobs share",
                    f"use {theirs.section.entries}",
                )

    def _no_room(self, node: int, tenant: _Tenant, base: int, together: Demand) -> ScenarioError:
        """The slots that a job asks for are more than others leave."""
        section = tenant.request.section
        left, too_many = 0, section.slots
        while too_many - left > 1:
            middle = (left + too_many) // 2
            try:
                fit(self.profile_of(node), section.program, replace(together, slots=base + middle))
                left = middle
            except FitError:
                too_many = middle
        takers = " and ".join(
            f"{other.called} (up to {other.slots_end})" for other in self._tenants.get(node, ())
        )
        return tenant.request.place.job_error(
            "collective.slots",
            f"{section.slots} slots do not fit on switch {self.network.nodes[node]}: {base} are taken "
            f"by {takers}, {left} are left",
            f"use {left} slots at most, fewer for the other jobs, or another switch",
        )

    def _loopback(self, node: int, passes: int) -> int:
        """The switch's link to itself, which all jobs on it share; −1 if nothing needs a further pass."""
        if node not in self._loopbacks:
            name = self.network.nodes[node]
            self.network, link = with_loopback(self.network, name, self.profiles[name], passes)
            self._loopbacks[node] = link
        return self._loopbacks[node]
