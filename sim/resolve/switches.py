"""What the jobs of a variant ask of its switches: one program each, slots one job after the other."""

from __future__ import annotations

from dataclasses import dataclass

from sim.resolve.abilities import extra_passes
from sim.resolve.aggregation_tree import Tree
from sim.resolve.place import Place
from sim.scenario.collectives import InNetwork
from sim.wiring import with_loopback
from switch.fit import FitError
from switch.profiles import Profile
from topologies.routing import Network


@dataclass(frozen=True)
class Grant:
    """What a job gets: slots from `slot_base` on at every point, and each point's loopback link or −1."""

    slot_base: int
    loopback_links: tuple[int, ...]
    extra_passes: int  # of a result, at the root


@dataclass(frozen=True)
class _Tenant:
    """A job on a switch."""

    place: Place
    program: str
    words: int  # per packet
    entries: int  # atp
    slots_end: int


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

    def admit(self, section: InNetwork, tree: Tree, words: int, place: Place) -> Grant:
        """Reserve what a job needs at every point of its tree.

        Raises
        ------
        ScenarioError
            The program does not fit, another one runs there, or the slots are taken.
        """
        base = max(
            (tenant.slots_end for node in tree.switches for tenant in self._tenants.get(node, ())), default=0
        )
        passes = [
            self._fit(section, place, (node, tree.children_count(point)), (base, words))
            for point, node in enumerate(tree.switches)
        ]
        tenant = _Tenant(place, section.program, words, section.entries, base + section.slots)
        for node in tree.switches:
            self._tenants.setdefault(node, []).append(tenant)
        links = tuple(self._loopback(node, count) for node, count in zip(tree.switches, passes, strict=True))
        return Grant(base, links, passes[0])

    def _fit(self, section: InNetwork, place: Place, point: tuple[int, int], slots: tuple[int, int]) -> int:
        """Extra passes at a point (node, children), from slot `base` on with so many words (base, words)."""
        (node, children), (base, words) = point, slots
        kind = self.profile_of(node)
        needed = section.entries if section.program == "atp" else section.slots
        try:
            passes = extra_passes(section.program, kind, children, needed, words)
        except FitError as error:
            raise self._refused(section, place, error) from None
        self._check_company(section, place, node, words)
        if section.program != "atp" and base:
            self._check_room(section, place, point, slots)
        return passes

    def _refused(self, section: InNetwork, place: Place, error: FitError) -> Exception:
        if error.about == "profile" and section.switch == "auto":
            return place.error(self.profile_key, error.message, error.hint)
        keys = {"profile": "collective.switch", "workers": "workers.count"}
        slots = "collective.entries" if section.program == "atp" else "collective.slots"
        key = {**keys, "frame": "collective.frame", "slots": slots}[error.about]
        return place.job_error(key, error.message, error.hint)

    def _check_company(self, section: InNetwork, place: Place, node: int, words: int) -> None:
        """All jobs on a switch run the same program on packets of the same size."""
        for tenant in self._tenants.get(node, ())[:1]:
            name, owner = self.network.nodes[node], tenant.place.called
            if tenant.program != section.program:
                raise place.job_error(
                    "collective.program",
                    f"switch {name} runs {tenant.program} for {owner}, it cannot run {section.program} too",
                    "use the same program, or another switch",
                )
            if tenant.words != words:
                raise place.job_error(
                    "collective.frame",
                    f"switch {name} takes packets of {tenant.words} words for {owner}, not of {words}",
                    "use the same frame, or another switch",
                )
            if section.program == "atp" and tenant.entries != section.entries:
                raise place.job_error(
                    "collective.entries",
                    f"switch {name} has {tenant.entries} entries for {owner}, which all jobs share",
                    f"use {tenant.entries}",
                )

    def _check_room(
        self, section: InNetwork, place: Place, point: tuple[int, int], slots: tuple[int, int]
    ) -> None:
        """The slots of all jobs on a switch must fit together."""
        (node, children), (base, words) = point, slots
        kind = self.profile_of(node)

        def fits(count: int) -> bool:
            try:
                extra_passes(section.program, kind, children, base + count, words)
            except FitError:
                return False
            return True

        if fits(section.slots):
            return
        left, too_many = 0, section.slots
        while too_many - left > 1:
            middle = (left + too_many) // 2
            left, too_many = (middle, too_many) if fits(middle) else (left, middle)
        takers = " and ".join(
            f"{tenant.place.called} (up to {tenant.slots_end})" for tenant in self._tenants.get(node, ())
        )
        raise place.job_error(
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
