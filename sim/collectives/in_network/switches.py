"""What the jobs of a variant ask of its switches: one program each, slots one job after the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from netfold.homomorphic.codec import Merge
from netfold.sim.collectives.in_network.section import InNetwork
from netfold.sim.collectives.in_network.tree import Tree
from netfold.sim.errors import ScenarioError
from netfold.sim.keys.place import Place
from netfold.sim.plan.idle_network import with_loopback
from netfold.switch.fit import Fit, FitError, check_merges, check_overflow, fit
from netfold.switch.limits import PIPELINE
from netfold.switch.profiles import Profile
from netfold.switch.program import Demand, ProgramSpec
from netfold.switch.refusals import declare_on, loopback_streams
from netfold.topologies.routing import Network


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
    stream_bps: int  # of every worker's packets, as the links of the whole job let them through
    header_bytes: int | None = None  # of a frame of one's own


@dataclass(frozen=True)
class _Tenant:
    """A job on a switch."""

    request: Request
    children: int
    slots_end: int
    loopback_streams: int = 0

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

    def copy(self) -> Switches:
        """The same, to try something that may be refused."""
        copied = Switches(self.network, self.profiles, self.profile_key)
        copied._tenants = {node: list(tenants) for node, tenants in self._tenants.items()}
        copied._loopbacks = dict(self._loopbacks)
        return copied

    def become(self, other: Switches) -> None:
        """Take over what a copy has granted."""
        self.network, self._tenants, self._loopbacks = other.network, other._tenants, other._loopbacks

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
            self._tenant(request, node, tree.children_count(point), base + section.slots)
            for point, node in enumerate(tree.switches)
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

    def _tenant(self, request: Request, node: int, children: int, slots_end: int) -> _Tenant:
        kind = self.profile_of(node)
        demand = Demand(workers=children, slots=1, words=request.words)
        program = declare_on(kind, request.section.program, demand)
        streams = loopback_streams(kind, program) if kind.kind == PIPELINE else 0
        return _Tenant(request, children, slots_end, streams)

    def _fit(self, node: int, tenant: _Tenant, base: int) -> Fit:
        """What the program takes of a switch together with the jobs that are there already."""
        others = self._tenants.get(node, [])
        kind, section = self.profile_of(node), tenant.request.section
        self._check_company(node, tenant.request)
        own_bps, *others_bps = self._loopback_rates(kind, [tenant, *others])
        alone = Demand(
            workers=tenant.children,
            slots=_entries(section) or section.slots,
            words=tenant.request.words,
            rate_bps=self._loopback_rates(kind, [tenant])[0],
            header_bytes=tenant.request.header_bytes,
        )
        found = fit(kind, section.program, alone, any_words=False)
        if not others:
            return found
        together = replace(
            alone,
            slots=_entries(section) or tenant.slots_end,
            jobs=len(others) + 1,
            rate_bps=own_bps,
            others_bps=sum(
                rate_bps * other.loopback_streams for rate_bps, other in zip(others_bps, others, strict=True)
            ),
        )
        try:
            return fit(kind, section.program, together, any_words=False)
        except FitError as error:
            if error.about != "slots":
                raise
        raise self._no_room(node, tenant, base, together)

    def _loopback_rates(self, kind: Profile, tenants: Sequence[_Tenant]) -> list[int]:
        """Rate of one worker's packets of each job, where they load loopback ports the most together.

        Results of all jobs pass the same loopback port once, so jobs that share it add up to its rate.
        """
        room_bps = kind.loopback_rate_bps
        if room_bps == 0:
            return [tenant.request.stream_bps for tenant in tenants]
        rates_bps = [0] * len(tenants)
        for index in sorted(range(len(tenants)), key=lambda one: -tenants[one].loopback_streams):
            rates_bps[index] = min(room_bps, tenants[index].request.stream_bps)
            room_bps -= rates_bps[index]
        return rates_bps

    def _refused(self, request: Request, error: FitError, where: str) -> ScenarioError:
        """The error at the key that has to change."""
        section, place, message = request.section, request.place, where + error.message
        hint = error.hint if error.about == "words" else _with_frame(error.hint, section.spec)
        if error.about == "profile" and section.switch == "auto":
            return place.error(self.profile_key, message, hint)
        if error.about == "jobs":
            return place.error("jobs", message, hint)
        key = {
            "profile": "collective.switch",
            "program": "collective.program",
            "workers": "workers.count",
            "words": "collective.frame",
            "slots": "collective.entries" if section.spec.has_server else "collective.slots",
            "merges": "codec",
            "overflow": "collective.overflow",
        }[error.about]
        return place.job_error(key, message, hint)

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
            entries = _entries(theirs.section)
            if entries != _entries(section):
                raise place.job_error(
                    "collective.entries",
                    f"switch {name} has {entries} entries for {tenant.called}, which all jobs share",
                    f"use {entries}",
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


def _entries(section: InNetwork) -> int | None:
    """Entries of a switch that all jobs on it share; None where each has slots of its own."""
    return int(section.option("entries")) if section.spec.has_server else None


def _with_frame(hint: str, program: ProgramSpec) -> str:
    """A hint that names a number of words, with the frame of a scenario that has so many."""
    for frame in program.frames:
        text = f"{frame.words} words ({4 * frame.words} B) a packet"
        if text in hint:
            return hint.replace(text, f"{text} (collective.frame: {frame.name})")
    return hint
