"""The trees that a scenario allows below a root: which switches may be points, and what is minimised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import comb
from typing import NamedTuple

import networkx as nx
import numpy as np

from netfold.errors import NAMES_SHOWN, ScenarioError, names_hint
from netfold.sim.collectives.in_network.aggregation_tree import (
    TrafficSearch,
    build_tree,
    one_switch,
    relieved,
)
from netfold.sim.collectives.in_network.in_network_keys import InNetworkSection
from netfold.sim.collectives.in_network.switch_resources import Switches, Tree
from netfold.sim.engine.interface import Job
from netfold.sim.keys import Location
from netfold.sim.plan.idle_network import Pace, busiest_link, job_pace, job_traffic, words_per_s
from netfold.sim.plan.plan import split_message_and_hint
from netfold.switch.fit import can_run, suits
from netfold.switch.profiles import PROFILES
from netfold.topologies.graph import TopologyError, switches
from netfold.topologies.graph import switches as switch_names
from netfold.topologies.network import Network, path
from netfold.topologies.placement import place_aggregators

SETS_MAX = 64  # sets of k switches that are all tried; of more, one switch after the other is chosen


@dataclass(frozen=True)
class Shapes:
    """Makes the trees of one job; `hosts` are the nodes of its workers, in rank order."""

    graph: nx.Graph
    switches: Switches
    section: InNetworkSection
    hosts: tuple[int, ...]
    route: Callable[[int], int]  # of each of its parallel trees
    job_on: Callable[[Tree, int], Job]  # a tree and its number among them
    _least: dict[int | None, Tree] = field(default_factory=dict)

    @property
    def wanted(self) -> str | int:
        """Which switches aggregate."""
        return self.section.aggregators if self.section.spec.may_be_tree else "one"

    @property
    def points_max(self) -> int | None:
        """Points of a tree at most; None for any number."""
        if self.wanted == "one":
            return 1
        return self.wanted if isinstance(self.wanted, int) else None

    @property
    def able(self) -> list[int]:
        """Nodes that can add up."""
        return [node for node in range(len(self._network.nodes)) if self._can_add_up(node)]

    def allows(self, name: str) -> bool:
        """Whether a switch, by its place in the network, may aggregate."""
        if self.wanted == "tor":
            return name in self._racks
        return self.wanted != "core" or self.graph.nodes[name]["tier"] == self._tier_max

    def at(self, root: str, number: int = 0) -> list[Tree]:
        """The trees with this root; `number` is that of the tree among several in parallel."""
        node = self._network.nodes.index(root)
        if self.section.tree == "traffic":
            return [self.least_traffic(node)]
        one = one_switch(node, len(self.hosts))
        if self.points_max == 1:
            return [one]
        tree = self._depth_tree(node, number, self._can_add_up)
        if self.wanted == "auto":
            return [one, tree] if len(tree.switches) > 1 else [one]
        return [tree if self.points_max is None else self._few(tree, number, self.points_max)]

    def least_traffic(self, root: int | None = None) -> Tree:
        """The tree with the least traffic, with any root or this one."""
        if root not in self._least:
            search = TrafficSearch(self.graph, self._network, self.hosts, self.able, root, self.points_max)
            self._least[root] = search.best()
        return self._least[root]

    def within_limits(self, tree: Tree) -> Tree | None:
        """The tree, changed so that no switch has more children than it can tell apart; None if none is."""
        if self.points_max == 1 or not self._is_over(tree):
            return None
        spare = self._spare(tree)
        return relieved(tree, self.hosts, spare, self._children_max, self._hops, self.points_max)

    @property
    def _network(self) -> Network:
        return self.switches.network

    @cached_property
    def _racks(self) -> Collection[str]:
        """Switches that workers are linked to."""
        return {next(iter(self.graph.adj[self._network.nodes[host]])) for host in self.hosts}

    @cached_property
    def _tier_max(self) -> int:
        return max(int(self.graph.nodes[name]["tier"]) for name in switch_names(self.graph))

    def _can_add_up(self, node: int) -> bool:
        if self._network.is_host[node]:
            return False
        profile = self.switches.profile_of(node)
        return can_run(profile, self.section.program) and self.allows(self._network.nodes[node])

    def _depth_tree(self, root: int, number: int, can_add_up: Callable[[int], bool]) -> Tree:
        return build_tree(self._network, self.hosts, root, self.route(number), can_add_up)

    def _few(self, full: Tree, number: int, count: int) -> Tree:
        """The tree of the best `count` of a tree's points: the fastest, then the least traffic."""
        root, others = full.switches[0], full.switches[1:]
        if len(others) < count:
            return full

        def value(chosen: Sequence[int]) -> tuple[float, float, Sequence[int]]:
            tree = self._depth_tree(root, number, set(chosen).__contains__)
            job = self.job_on(tree, number)
            pace = float(f"{job_pace(self._network, job).elements_per_s:.6e}")
            return -pace, sum(job_traffic(self._network, job).load.values(), 0.0), chosen

        if comb(len(others), count - 1) <= SETS_MAX:
            best: Sequence[int] = min(combinations(others, count - 1), key=value)
        else:
            best = ()
            for _ in range(count - 1):
                best = min(((*best, node) for node in others if node not in best), key=value)
        return self._depth_tree(root, number, set(best).__contains__)

    def _is_over(self, tree: Tree) -> bool:
        counts = Counter((*tree.homes, *tree.parents[1:]))
        return any(counts[point] > self._children_max(node) for point, node in enumerate(tree.switches))

    def _children_max(self, node: int) -> int:
        return self.switches.children_max(node, self.section) if self._can_add_up(node) else 0

    def _spare(self, tree: Tree) -> list[int]:
        """Further switches that may help a tree, the nearest to its root first."""
        able = [node for node in range(len(self._network.nodes)) if self._can_add_up(node)]
        return sorted(able, key=lambda node: (self._hops(tree.switches[0], node), node))

    def _hops(self, source: int, target: int) -> int:
        return len(path(self._network, source, target, 0))


# Candidate places for a job's aggregation, the fastest first: a switch alone, or trees.


COMPARED_MAX = 64  # roots whose pace is computed; others are tried if none of these fits
PARALLEL_MAX = 32  # roots that each of several trees is chosen from
NAMED_MAX = 8  # places that an error lists


class Candidate(NamedTuple):
    """A place for a job, which may not fit; `jobs` have no slots, loopback links and timeouts yet."""

    root: str
    trees: tuple[Tree, ...]  # in parallel, each with a share of the words
    jobs: tuple[Job, ...]  # one per tree
    pace: Pace

    @property
    def name_in_errors(self) -> str:
        """What errors call it."""
        more = f" and {len(self.trees) - 1} more" if len(self.trees) > 1 else ""
        return f"{self.root}{more} with a tree below" if self.trees[0].parents[1:] else f"{self.root}{more}"


@dataclass(frozen=True)
class Candidates:
    """All places where a scenario allows one job to aggregate."""

    graph: nx.Graph
    switches: Switches
    section: InNetworkSection
    location: Location
    hosts: tuple[str, ...]  # of the workers, in rank order
    tree_route: Callable[[int], int]  # of each of its parallel trees
    job_on: Callable[[Tree, int], Job]

    def __iter__(self) -> Iterator[Candidate]:
        """Yield all candidates, the fastest first, and then those with switches that relieve others.

        No place is faster than the workers' own links, so a candidate as fast as these is yielded at once.
        Of equally fast places the nearest comes first, and one switch before a tree.
        """
        roots = self._roots()
        usual: Iterator[tuple[Tree, ...]]
        if self.section.trees > 1:
            usual = iter([self._parallel(roots)])
        elif self.section.tree == "traffic" and self.section.switch == "auto" and self._shapes.able:
            usual = iter([(self._shapes.least_traffic(),)])
        else:
            yield from self._fastest(roots)
            usual = iter(())
            wide = ((tree,) for root in roots[:COMPARED_MAX] for tree in self._shapes.at(root))
            yield from self._relieved(wide)
        for trees in usual:
            yield self._candidate(trees)
            yield from self._relieved([trees])

    def _fastest(self, roots: list[str]) -> Iterator[Candidate]:
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
        for tree in self._shapes.at(root):
            yield self._candidate((tree,))

    def _candidate(self, trees: tuple[Tree, ...]) -> Candidate:
        jobs = tuple(self.job_on(tree, number) for number, tree in enumerate(trees))
        root = self.switches.network.nodes[trees[0].switches[0]]
        return Candidate(root, trees, jobs, job_pace(self.switches.network, *jobs))

    def _relieved(self, places: Iterable[tuple[Tree, ...]]) -> Iterator[Candidate]:
        """Yield the places with too many children at a switch, changed so that they have not."""
        for trees in places:
            changed = [self._shapes.within_limits(tree) for tree in trees]
            if any(changed):
                yield self._candidate(tuple(new or old for new, old in zip(changed, trees, strict=True)))

    def _parallel(self, roots: list[str]) -> tuple[Tree, ...]:
        """Several trees at once: each next one keeps the busiest link least busy, then spreads the load.

        A tree of least traffic is chosen by its traffic first.
        """
        network = self.switches.network
        chosen: list[Tree] = []
        busy_s: dict[int, float] = {}  # by link: of one packet of every tree, up to a constant
        for number in range(self.section.trees):
            options: list[tuple[tuple[float, ...], int, Tree, dict[int, float]]] = []
            for order, root in enumerate(roots[:PARALLEL_MAX]):
                for tree in self._shapes.at(root, number):
                    load = job_traffic(network, self.job_on(tree, number)).load
                    own_s = {link: count / int(network.rate_bps[link]) for link, count in load.items()}
                    after = {**busy_s, **{link: busy_s.get(link, 0) + time for link, time in own_s.items()}}
                    traffic = sum(load.values()) if self.section.tree == "traffic" else 0
                    spread = sum(time * time for time in after.values())
                    key = (traffic, float(f"{max(after.values()):.6e}"), float(f"{spread:.6e}"), order)
                    options.append((key, len(options), tree, after))
            _, _, tree, busy_s = min(options, key=lambda option: option[:2])
            chosen.append(tree)
        return tuple(chosen)

    @cached_property
    def _shapes(self) -> Shapes:
        network = self.switches.network
        nodes = tuple(network.nodes.index(host) for host in self.hosts)
        return Shapes(self.graph, self.switches, self.section, nodes, self.tree_route, self.job_on)

    def _of_own_links(self) -> float:
        """Words per second that the slowest worker, or its own link, carries."""
        network = self.switches.network
        nodes = [network.nodes.index(host) for host in self.hosts]
        job = self.job_on(one_switch(nodes[0], len(nodes)), 0)
        own = np.flatnonzero(np.isin(network.link_source, nodes)).tolist()
        slowest = busiest_link(network, dict.fromkeys(own, 1), job.frame, job.unit_packets)
        return words_per_s(job.frame, slowest.rate_bps)

    def _roots(self) -> list[str]:
        """Switches that can be the root, the nearest first."""
        section, profiles = self.section, self.switches.profiles
        if section.switch != "auto":
            if section.switch not in profiles:
                hint = names_hint(section.switch, profiles, "switches", NAMES_SHOWN)
                raise self.location.job_error(
                    "collective.switch", f"there is no switch {section.switch!r}", hint
                )
            self._check_tier([section.switch])
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
            roots = place_aggregators(self.graph, self.hosts, able.__contains__)
        except TopologyError as error:
            known = {**PROFILES, **self.location.scenario.profiles}
            programmable = ", ".join(name for name, kind in known.items() if kind.is_programmable)
            message, hint = split_message_and_hint(self.graph, error)
            raise self.location.error(self.switches.profile_key, message, f"{hint}: {programmable}") from None
        self._check_tier(roots)
        return [name for name in roots if self._shapes.allows(name)]

    def _check_tier(self, roots: list[str]) -> None:
        """Reject `aggregators` that no switch which could aggregate belongs to."""
        shapes, nodes = self._shapes, self.graph.nodes
        if any(shapes.allows(name) for name in roots):
            return
        where = "next to a worker" if shapes.wanted == "tor" else "of the highest tier"
        found = Counter(nodes[name]["profile"] for name in switches(self.graph) if shapes.allows(name))
        profiles = ", ".join(f"{profile!r} on {count}" for profile, count in found.items())
        named = ", ".join(
            f"{name} (tier {nodes[name]['tier']}, {nodes[name]['profile']})" for name in roots[:3]
        )
        raise self.location.job_error(
            "collective.aggregators",
            f"no switch {where} can be the root: their profiles are {profiles}, and the root may be {named}",
            "use aggregators: tree, or give these switches a programmable profile",
        )


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
