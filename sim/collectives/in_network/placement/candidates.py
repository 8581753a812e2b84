"""Candidate places for a job's aggregation, the fastest first: a switch alone, or a tree below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import numpy as np

from netfold.sim.collectives.in_network.placement.switches import Switches
from netfold.sim.collectives.in_network.placement.tree import Tree, build_tree, one_switch
from netfold.sim.collectives.in_network.section import InNetworkSection
from netfold.sim.engine.interface import Job
from netfold.sim.errors import ScenarioError
from netfold.sim.keys.location import Location
from netfold.sim.plan.idle_network import Pace, job_pace, words_per_s
from netfold.sim.plan.placement import split_message_and_hint
from netfold.spelling import NAMES_SHOWN, names_hint
from netfold.switch.fit import can_run, suits
from netfold.switch.profiles import PROFILES
from netfold.topologies.graph import TopologyError
from netfold.topologies.placement import place_aggregators

COMPARED_MAX = 64  # roots whose pace is computed; others are tried if none of these fits
NAMED_MAX = 8  # places that an error lists


class Candidate(NamedTuple):
    """A place for a job, which may not fit; `job` has no slots, loopback links and timeouts yet."""

    root: str
    tree: Tree
    job: Job
    pace: Pace

    @property
    def name_in_errors(self) -> str:
        """What errors call it."""
        return f"{self.root} with a tree below" if self.tree.parents[1:] else self.root


@dataclass(frozen=True)
class Candidates:
    """All places where a scenario allows one job to aggregate."""

    graph: nx.Graph
    switches: Switches
    section: InNetworkSection
    location: Location
    hosts: tuple[str, ...]  # of the workers, in rank order
    tree_route: int
    job_on: Callable[[Tree], Job]

    def __iter__(self) -> Iterator[Candidate]:
        """Yield all candidates, the fastest first.

        No place is faster than the workers' own links, so a candidate as fast as these is yielded at once.
        Of equally fast places the nearest comes first, and one switch before a tree.
        """
        roots = self._roots()
        best = self._of_own_links()
        slower = []
        for root in roots[:COMPARED_MAX]:
            for candidate in self._at(root):
                if candidate.pace.elements_per_s >= 0.9999 * best:
                    yield candidate
                else:
                    slower.append(candidate)
        yield from sorted(slower, key=lambda one: -float(f"{one.pace.elements_per_s:.3e}"))
        for root in roots[COMPARED_MAX:]:
            yield from self._at(root)

    def _at(self, root: str) -> Iterator[Candidate]:
        """Yield a switch alone and as the root of a tree, if both are allowed and differ."""
        network = self.switches.network
        node = network.nodes.index(root)
        wanted = self.section.aggregators if self.section.spec.may_be_tree else "one"
        trees = [] if wanted == "tree" else [one_switch(node, len(self.hosts))]
        if wanted != "one":
            nodes = [network.nodes.index(host) for host in self.hosts]
            tree = build_tree(network, nodes, node, self.tree_route, self._can_add_up)
            trees += [tree] if wanted == "tree" or len(tree.switches) > 1 else []
        for tree in trees:
            job = self.job_on(tree)
            yield Candidate(root, tree, job, job_pace(network, job))

    def _can_add_up(self, node: int) -> bool:
        return can_run(self.switches.profile_of(node), self.section.program)

    def _of_own_links(self) -> float:
        """Words per second that the slowest worker's own link carries."""
        network = self.switches.network
        nodes = [network.nodes.index(host) for host in self.hosts]
        slowest_bps = int(network.rate_bps[np.isin(network.link_source, nodes)].min())
        return words_per_s(self.job_on(one_switch(nodes[0], len(nodes))).frame, slowest_bps)

    def _roots(self) -> list[str]:
        """Switches that can be the root, the nearest first."""
        section, profiles = self.section, self.switches.profiles
        if section.switch != "auto":
            if section.switch not in profiles:
                hint = names_hint(section.switch, profiles, "switches", NAMES_SHOWN)
                raise self.location.job_error(
                    "collective.switch", f"there is no switch {section.switch!r}", hint
                )
            return [section.switch]
        kinds = {kind.name: kind for kind in profiles.values()}
        able = (
            {name for name, kind in kinds.items() if suits(kind, section.program)}
            or {
                name for name, kind in kinds.items() if can_run(kind, section.program)
            }  # rejected later, with a reason
            or {name for name, kind in kinds.items() if kind.is_programmable}  # likewise
        )
        try:
            return place_aggregators(self.graph, self.hosts, able.__contains__)
        except TopologyError as error:
            known = {**PROFILES, **self.location.scenario.profiles}
            programmable = ", ".join(name for name, kind in known.items() if kind.is_programmable)
            message, hint = split_message_and_hint(self.graph, error)
            raise self.location.error(self.switches.profile_key, message, f"{hint}: {programmable}") from None


def none_fits(refused: Sequence[tuple[Candidate, ScenarioError]]) -> ScenarioError:
    """The error if no place fits: the reason of the fastest, and the other places tried."""
    (first, error), *others = refused
    if not others or all(str(other) == str(error) for _, other in others):
        return error
    names = [candidate.name_in_errors for candidate, _ in others]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    tried = f"also tried: {', '.join(names[:NAMED_MAX])}{more}"
    return ScenarioError(
        error.file,
        error.line,
        error.path,
        f"{first.name_in_errors}: {error.message}",
        f"{error.hint}; {tried}",
    )
