"""What a job asks of the switches of a tree, and what it gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from netfold.errors import ScenarioError
from netfold.homomorphic.merge import Merge
from netfold.sim.collectives.in_network.in_network_keys import InNetworkSection
from netfold.sim.keys import Location
from netfold.sim.plan.idle_network import with_loopback
from netfold.sim.plan.plan import frame_of
from netfold.switch.fit import (
    FOLDED_WORKERS_MAX,
    Fit,
    FitError,
    check_merges,
    check_overflow,
    children_max,
    declare_on,
    fit,
    loopback_streams,
)
from netfold.switch.profiles import PIPELINE, Profile
from netfold.switch.program import Demand, ProgramSpec
from netfold.topologies.network import Network


class AggregationTree(NamedTuple):
    """Aggregation points, in order of their distance from the root.

    `parents[0]` is unused; point i sends to point `parents[i]`, worker r to point `homes[r]`.
    """

    switches: tuple[int, ...]  # node of each point
    parents: tuple[int, ...]
    homes: tuple[int, ...]

    def children_count(self, point: int) -> int:
        """Workers and points that send to a point."""
        return self.homes.count(point) + self.parents[1:].count(point)


@dataclass(frozen=True)
class SlotAllocation:
    """The allocation of a job: slots from `slot_base` on, and a loopback link or −1, at every point."""

    slot_base: int
    loopback_links: tuple[int, ...]
    fit: Fit
    """The resources that it takes at the root."""


@dataclass(frozen=True)
class SwitchRequest:
    """What a job needs of every switch of its tree."""

    location: Location
    section: InNetworkSection
    demand: Demand
    """That of a switch with one worker: slots of one tree, words, and how registers are divided."""
    merges: Collection[Merge]
    overflow: str  # one of `switch.profiles.OVERFLOWS`
    stream_bps: int
    """Rate of every worker's packets, limited by the job's busiest link."""
    instead: str = ""  # a codec for switches that cannot merge this one's words

    @property
    def slots(self) -> int:
        """Slots of one tree."""
        return self.demand.slots


def slot_bits(demand: Demand) -> int:
    """Bits of registers for each word of a packet."""
    return demand.values_per_word * demand.adder_bits


def lanes_in_words(demand: Demand) -> str:
    """What errors call registers that are divided so."""
    return f"{'codes lifted to ' if demand.is_lifted else ''}lanes of {demand.lane_bits} bits"


def entries(section: InNetworkSection) -> int | None:
    """Entries of a switch, if all jobs share them; None if each job has its own slots."""
    return int(section.option("entries")) if section.spec.has_server else None


# Allocates switches to the jobs of a variant: one program per switch, slots one job after the other.


@dataclass(frozen=True)
class _JobOnSwitch:
    request: SwitchRequest
    children: int
    slots_end: int
    loopback_streams: int = 0
    is_root: bool = False

    @property
    def name_in_errors(self) -> str:
        return self.request.location.name_in_errors


class Switches:
    """The allocations of a variant's switches; `network` gets the loopback links that programs need."""

    def __init__(
        self, network: Network, profiles: dict[str, Profile], profile_key: str, sharing: int = 1
    ) -> None:
        self.network = network
        self.profiles = profiles
        self.profile_key = profile_key  # the scenario key of the switches' profile
        self.sharing = sharing  # how many jobs divide a switch, where they take what they need
        self._chosen: dict[tuple[object, ...], int] = {}  # slots of jobs that took what they need
        self._jobs: dict[int, list[_JobOnSwitch]] = {}  # keys: nodes
        self._loopbacks: dict[int, int] = {}
        self._passes: dict[str, int] = {}  # further passes of packets, by profile
        self._has_gaps = False  # some job has given its slots back

    def copy(self) -> Switches:
        """A copy for a reservation that may be refused."""
        copied = Switches(self.network, self.profiles, self.profile_key, self.sharing)
        copied._chosen = self._chosen
        copied._jobs = {node: list(jobs) for node, jobs in self._jobs.items()}
        copied._loopbacks, copied._passes = dict(self._loopbacks), dict(self._passes)
        copied._has_gaps = self._has_gaps
        return copied

    def adopt(self, other: Switches) -> None:
        """Take over the state of a copy."""
        self.network, self._jobs = other.network, other._jobs
        self._loopbacks, self._passes = other._loopbacks, other._passes

    def release(self, location: Location) -> None:
        """Free what a job has reserved; its loopback links stay."""
        self._has_gaps = True
        for node, jobs in self._jobs.items():
            self._jobs[node] = [
                job
                for job in jobs
                if (job.request.location.job, job.request.location.number) != (location.job, location.number)
            ]

    def add_loopbacks(self) -> None:
        """Give every switch a loopback link whose profile needs one for some job so far."""
        for name, profile in self.profiles.items():
            if profile.name in self._passes:
                self._loopback(self.network.nodes.index(name), self._passes[profile.name])

    def profile_of(self, node: int) -> Profile:
        """Profile of a switch."""
        return self.profiles[self.network.nodes[node]]

    def children_max(self, node: int, section: InNetworkSection) -> int:
        """Workers and switches below that a switch can tell apart, for packets of the section's frame."""
        profile = self.profile_of(node)
        words = frame_of(section.frame).elements
        program = declare_on(profile, section.program, Demand(workers=1, slots=1, words=words))
        most = children_max(profile, section.spec)
        return min(most, FOLDED_WORKERS_MAX) if profile.kind == PIPELINE and program.pipes > 1 else most

    def reserve(self, request: SwitchRequest, tree: AggregationTree) -> SlotAllocation:
        """Reserve what a job needs at every point of its tree.

        Raises
        ------
        ScenarioError
            The program does not fit, another one runs there, too few slots are free, or the switch does not
            support the merges.
        """
        base = self._slot_base(tree, request.slots)
        jobs = [
            self._job_on(request, node, tree.children_count(point), base + request.slots)
            for point, node in enumerate(tree.switches)
        ]
        fits = []
        for node, job in zip(tree.switches, jobs, strict=True):
            try:
                fits.append(self._fit(node, job, base))
                check_merges(self.profile_of(node), request.merges)
                check_overflow(self.profile_of(node), request.overflow)
            except FitError as error:
                where = f"switch {self.network.nodes[node]}: " if len(tree.switches) > 1 else ""
                raise self._refusal(request, error, where) from None
        for node, job in zip(tree.switches, jobs, strict=True):
            self._jobs.setdefault(node, []).append(replace(job, is_root=node == tree.switches[0]))
        links = tuple(
            self._loopback(node, usage.extra_passes) for node, usage in zip(tree.switches, fits, strict=True)
        )
        return SlotAllocation(base, links, fits[0])

    def roots_of_others(self, location: Location) -> Counter[str]:
        """How many trees of other jobs have their root at each switch."""
        return Counter(
            self.network.nodes[node]
            for node, tenants in self._jobs.items()
            for tenant in tenants
            if tenant.is_root and tenant.request.location.name != location.name
        )

    def room(self, request: SwitchRequest, trees: Sequence[AggregationTree]) -> int:
        """How many of the slots of a request fit at every point of each tree, beside as many other jobs.

        Slots that a job gave back are for one that needs as many: it waits until there are so many again.
        """
        location = request.location
        key = (location.job, location.number, getattr(location, "part", ""), request.section.program)
        if self._has_gaps and key in self._chosen:
            return self._chosen[key]
        most = min(request.slots, entries(request.section) or request.slots)
        uses = Counter(node for tree in trees for node in tree.switches)
        for tree in trees:
            for point, node in enumerate(tree.switches):
                job = self._job_on(request, node, tree.children_count(point), request.slots)
                demand = self._demand(self.profile_of(node), job)
                shares = uses[node] * self.sharing
                most = min(most, self._most(node, request.section, demand, shares * request.slots) // shares)
        self._chosen[key] = most
        return most

    def _most(self, node: int, section: InNetworkSection, demand: Demand, most: int, base: int = 0) -> int:
        """How many slots of a job fit on a switch behind `base` others, `most` at most; 0: none."""
        left, too_many = 0, most + 1
        middle = most
        while too_many - left > 1:
            slots = entries(section) or base + middle
            try:
                fit(self.profile_of(node), section.program, replace(demand, slots=slots))
                left = middle
            except FitError:
                too_many = middle
            middle = (left + too_many) // 2
        return left

    def _slot_base(self, tree: AggregationTree, slots: int) -> int:
        """First of a range of slots that is free at every point: behind all jobs, or the lowest gap."""
        taken_ranges = sorted(
            (job.slots_end - job.request.slots, job.slots_end)
            for node in tree.switches
            for job in self._jobs.get(node, ())
        )
        base = 0
        for first, end in taken_ranges:
            if self._has_gaps and first - base >= slots:
                break
            base = max(base, end)
        return base

    def _job_on(self, request: SwitchRequest, node: int, children: int, slots_end: int) -> _JobOnSwitch:
        profile = self.profile_of(node)
        demand = replace(request.demand, workers=children, slots=1, header_bytes=None)
        program = declare_on(profile, request.section.program, demand)
        streams = loopback_streams(profile, program) if profile.kind == PIPELINE else 0
        return _JobOnSwitch(request, children, slots_end, streams)

    def _fit(self, node: int, job: _JobOnSwitch, base: int) -> Fit:
        """Fit the program to a switch together with the jobs already there."""
        others = self._jobs.get(node, [])
        profile, section = self.profile_of(node), job.request.section
        self._check_same_program(node, job.request)
        own_bps, *others_bps = self._loopback_rates(profile, [job, *others])
        alone = replace(
            self._demand(profile, job),
            may_be_absent=any(tenant.request.demand.may_be_absent for tenant in [job, *others]),
        )
        fit_alone = fit(profile, section.program, alone, any_words=False)
        if not others:
            return fit_alone
        widest = max((tenant.request.demand for tenant in (job, *others)), key=slot_bits)
        together = replace(
            alone,
            lane_bits=widest.lane_bits,
            is_lifted=widest.is_lifted,
            slots=entries(section) or max(tenant.slots_end for tenant in (job, *others)),
            jobs=len(others) + 1,
            rate_bps=own_bps,
            others_bps=sum(
                rate_bps * other.loopback_streams for rate_bps, other in zip(others_bps, others, strict=True)
            ),
        )
        try:
            return fit(profile, section.program, together, any_words=False)
        except FitError as error:
            if error.about != "slots":
                raise
        raise self._no_room(node, job, base, together)

    def _demand(self, profile: Profile, job: _JobOnSwitch) -> Demand:
        """What a job alone asks of a switch."""
        demand = job.request.demand
        return replace(
            demand,
            workers=job.children,
            slots=entries(job.request.section) or demand.slots,
            rate_bps=self._loopback_rates(profile, [job])[0],
        )

    def _loopback_rates(self, profile: Profile, jobs: Sequence[_JobOnSwitch]) -> list[int]:
        """Rate of one worker's packets of each job, at which their joint load of loopback ports is highest.

        Results of all jobs pass the same loopback port once, so jobs that share it add up to its rate.
        """
        room_bps = profile.loopback_rate_bps
        if room_bps == 0:
            return [job.request.stream_bps for job in jobs]
        rates_bps = [0] * len(jobs)
        for index in sorted(range(len(jobs)), key=lambda number: -jobs[number].loopback_streams):
            rates_bps[index] = min(room_bps, jobs[index].request.stream_bps)
            room_bps -= rates_bps[index]
        return rates_bps

    def _refusal(self, request: SwitchRequest, error: FitError, where: str) -> ScenarioError:
        """The error, at the key to change."""
        section, location, message = request.section, request.location, where + error.message
        hint = error.hint if error.about == "words" else _with_frame(error.hint, section.spec)
        if error.about == "merges" and request.instead:
            hint += f", such as {request.instead}"
        if error.about == "profile" and section.switch == "auto":
            return location.error(self.profile_key, message, hint)
        if error.about == "jobs":
            return location.error("jobs", message, hint)
        key = {
            "profile": "collective.switch",
            "program": "collective.program",
            "workers": "workers.count",
            "words": "collective.frame",
            "slots": "collective.entries" if section.spec.has_server else "collective.slots",
            "merges": "codec",
            "lanes": "codec",
            "overflow": "collective.overflow",
        }[error.about]
        return location.job_error(key, message, hint)

    def _check_same_program(self, node: int, request: SwitchRequest) -> None:
        """Reject another program, packet size or number of entries than the jobs on the switch have."""
        location, section = request.location, request.section
        for job in self._jobs.get(node, ())[:1]:
            name, other_request = self.network.nodes[node], job.request
            if other_request.section.program != section.program:
                raise location.job_error(
                    "collective.program",
                    f"switch {name} runs {other_request.section.program} for {job.name_in_errors}, "
                    f"it cannot also run {section.program}",
                    "use the same program, or another switch",
                )
            if other_request.demand.words != request.demand.words:
                raise location.job_error(
                    "collective.frame",
                    f"switch {name} takes packets of {other_request.demand.words} words for "
                    f"{job.name_in_errors}, not of {request.demand.words}",
                    "use the same frame, or another switch",
                )
            lanes, other_lanes = lanes_in_words(request.demand), lanes_in_words(other_request.demand)
            if self.profile_of(node).kind == PIPELINE and lanes != other_lanes:
                raise location.job_error(
                    "codec",
                    f"switch {name} has registers for {other_lanes} for {job.name_in_errors}, "
                    f"not for {lanes}",
                    "use codecs with the same lanes, or another switch",
                )
            shared = entries(other_request.section)
            if shared != entries(section):
                raise location.job_error(
                    "collective.entries",
                    f"switch {name} has {shared} entries for {job.name_in_errors}, which all jobs share",
                    f"use {shared}",
                )

    def _no_room(self, node: int, job: _JobOnSwitch, base: int, together: Demand) -> ScenarioError:
        """The error for a job that needs more slots than are free."""
        section = job.request.section
        room = self._most(node, section, together, job.request.slots, base)
        holders = " and ".join(
            f"{other.name_in_errors} (up to {other.slots_end})" for other in self._jobs.get(node, ())
        )
        return job.request.location.job_error(
            "collective.slots",
            f"{job.request.slots} slots do not fit on switch {self.network.nodes[node]}: {base} are taken "
            f"by {holders}, {room} are left",
            f"use {f'{room} slots at most, fewer' if room else 'fewer slots'} for the other jobs, "
            "or another switch",
        )

    def _loopback(self, node: int, passes: int) -> int:
        """The switch's loopback link, which all its jobs share; −1 if no packet needs a further pass."""
        if self._loopbacks.get(node, -1) < 0:
            name = self.network.nodes[node]
            if passes:
                self._passes[self.profiles[name].name] = passes
            self.network, link = with_loopback(self.network, name, self.profiles[name], passes)
            self._loopbacks[node] = link
        return self._loopbacks[node]


def _with_frame(hint: str, program: ProgramSpec) -> str:
    """The hint, with the name of a frame that has the number of words in it."""
    for frame in program.frames:
        text = f"{frame.words} words ({4 * frame.words} B) a packet"
        if text in hint:
            return hint.replace(text, f"{text} (collective.frame: {frame.name})")
    return hint
