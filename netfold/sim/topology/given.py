"""The networks that a user names: those of a scenario, of a kind with its keys, or of a graph file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import networkx as nx

from netfold.errors import MistakesError, NetfoldError, ScenarioError
from netfold.sim.collectives.spec import CollectiveSection
from netfold.sim.keys.location import Location
from netfold.sim.plan.host_profiles import NONE, HostProfile
from netfold.sim.plan.plan import HostAllocation
from netfold.sim.scenario import Scenario, Variant, load
from netfold.sim.scenario.models import JobSections
from netfold.sim.scenario.source import ScenarioText
from netfold.sim.scenario.topology import build_topology, check_profiles
from netfold.spelling import names_hint
from netfold.switch.profiles import PROFILES, Profile
from netfold.topologies.graph import hosts
from netfold.topologies.kind import topology_kinds
from netfold.topologies.placement import place_workers
from netfold.topologies.routing import ECMP

GRAPH_SUFFIXES = (".json", ".graphml", ".gml")
Given = str | Path | ScenarioText
_PREFIX = "topology."
_REST = {  # the sections that a scenario needs besides its topology; nothing here looks at them
    "name": "topology",
    "workers": 1,
    "workload": {"kind": "synthetic", "elements": 1},
    "codec": {"kind": "none"},
    "collective": {"kind": "ring"},
}


@dataclass(frozen=True)
class NamedNetwork:
    """One network, and the switch profiles that are known there."""

    name: str  # of the variant, of the kind, or of the file
    kind: str  # of the topology
    graph: nx.Graph
    profiles: Mapping[str, Profile]
    variant: Variant | None = None  # of a scenario; None: a network alone
    scenario: Scenario | None = None

    @property
    def able(self) -> frozenset[str]:
        """Profiles of its switches that run programs which aggregate."""
        found = {profile for _, profile in self.graph.nodes(data="profile") if profile}
        return frozenset(
            name for name in found if name in self.profiles and self.profiles[name].is_programmable
        )

    @property
    def routing(self) -> str:
        """The policy of its routes."""
        return ECMP.kind if self.variant is None else self.variant.routing

    @property
    def seed(self) -> int:
        """The seed of the scenario."""
        return 0 if self.scenario is None else self.scenario.seed

    @property
    def host_profile(self) -> HostProfile:
        """What its hosts take for packets."""
        return NONE if self._first is None else self._first.hosts.profile()

    @property
    def collectives(self) -> tuple[CollectiveSection, ...]:
        """Of the jobs of its variant, in order; none: a network alone."""
        if self.variant is None:
            return ()
        return tuple(job.collective for job in self.variant.jobs or (self.variant,))

    @property
    def _first(self) -> JobSections | None:
        """The first job of the variant."""
        return None if self.variant is None else (self.variant.jobs or (self.variant,))[0]

    def is_like(self, other: NamedNetwork) -> bool:
        """Whether a run has the same network, routes, workers and hosts on both."""
        if self.variant is None or other.variant is None:
            return self is other
        own, others = (
            (one.variant.topology, one.routing, one._first.workers, one.host_profile)
            for one in (self, other)
            if one.variant is not None and one._first is not None
        )
        return own == others

    def place(self) -> list[str]:
        """The hosts of the workers, in rank order: those of a scenario's first job; alone, all, rack by rack.

        Raises
        ------
        ScenarioError
            The network has not the hosts that the scenario's workers need.
        """
        if self.variant is None or self.scenario is None or self._first is None:
            return place_workers(self.graph, len(hosts(self.graph)), "pack")
        jobs = self.variant.jobs
        location = Location(self.scenario, self.variant.name, jobs[0].name if jobs else "")
        workers = self._first.workers
        placed = HostAllocation(self.graph).place(workers.count, workers.placement, location)
        return list(placed)


def networks_of(
    given: Given, sets: Sequence[str] = (), variants: Collection[str] = ()
) -> tuple[NamedNetwork, ...]:
    """The networks of what a user gave, in order.

    Parameters
    ----------
    given
        The name of a kind, whose keys are in `sets`; the path of a graph (.json, .graphml, .gml); or a
        scenario's path or text, with a network for each variant.
    sets
        Texts "PATH=VALUE" that change values. Of a kind or a graph file, the path is a key: "k=8".
    variants
        Names of those that are wanted; none for all.

    Raises
    ------
    ScenarioError
        All mistakes in the scenario, the keys or the graph.
    NetfoldError
        There is neither such a kind nor such a file, or no variant of that name.
    """
    text = str(given)
    is_scenario = isinstance(given, ScenarioText)
    if not is_scenario and text in topology_kinds():
        return _alone(text, {"kind": text}, sets, variants)
    if not is_scenario and text.lower().endswith(GRAPH_SUFFIXES):
        return _alone(Path(text).stem, {"kind": "file", "path": text}, sets, variants)
    if not is_scenario and _is_a_word(text):
        hint = f"{names_hint(text, topology_kinds(), 'kinds')}; or give a scenario or a graph file"
        raise NetfoldError(f"there is no kind of topology {text!r}, and no such file", hint)
    scenario = load(given, sets)
    known = [variant.name for variant in scenario.variants]
    _check_variants(variants, known)
    return tuple(
        _of_scenario(scenario, variant)
        for variant in scenario.variants
        if not variants or variant.name in variants
    )


def _of_scenario(scenario: Scenario, variant: Variant) -> NamedNetwork:
    graph, known = build_topology(scenario, variant), {**PROFILES, **scenario.profiles}
    check_profiles(graph, scenario, variant)
    return NamedNetwork(variant.name, variant.topology.kind, graph, known, variant, scenario)


def _is_a_word(text: str) -> bool:
    """Whether text is no path: it has neither a folder nor a suffix, and no file has that name."""
    return text != "-" and Path(text).name == text and not Path(text).suffix and not Path(text).exists()


def _alone(
    name: str, topology: Mapping[str, str], sets: Sequence[str], variants: Collection[str]
) -> tuple[NamedNetwork, ...]:
    """The network of one topology: that of a scenario which has nothing else."""
    _check_variants(variants, [])
    text = ScenarioText(json.dumps(_REST | {"topology": dict(topology)}), name)
    scenario = load(text, [one if one.startswith(_PREFIX) else f"{_PREFIX}{one}" for one in sets])
    (variant,) = scenario.variants
    try:
        graph = build_topology(scenario, variant)
        if variant.topology.file is None:
            check_profiles(graph, scenario, variant)
    except ScenarioError as error:
        if variant.topology.file is None or not error.line:
            raise
        raise _of_file(error) from None
    return (NamedNetwork(name, variant.topology.kind, graph, PROFILES),)


def _of_file(error: ScenarioError) -> NetfoldError:
    """An error in a graph file: no scenario names it, so it has no line of one."""
    mistakes = error.mistakes if isinstance(error, MistakesError) else (error,)
    *others, last = (NetfoldError(one.message, one.hint) for one in mistakes)
    return NetfoldError("\n".join(map(str, (*others, last.message))), last.hint)


def _check_variants(wanted: Collection[str], known: Sequence[str]) -> None:
    for name in wanted:
        if name not in known:
            hint = names_hint(name, known, "variants") if known else "remove --variant: there are no variants"
            raise NetfoldError(f"there is no variant {name!r}", hint)
