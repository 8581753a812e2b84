"""The trees that a scenario allows below a root: which switches may be points, and what is minimised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import comb

import networkx as nx

from netfold.sim.collectives.in_network.placement.relief import relieved
from netfold.sim.collectives.in_network.placement.switches import Switches
from netfold.sim.collectives.in_network.placement.traffic import TrafficSearch
from netfold.sim.collectives.in_network.placement.tree import Tree, build_tree, one_switch
from netfold.sim.collectives.in_network.section import InNetworkSection
from netfold.sim.engine.interface import Job
from netfold.sim.plan.idle_network import job_pace, job_traffic
from netfold.switch.fit import can_run
from netfold.topologies.graph import switches as switch_names
from netfold.topologies.network import Network, path

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
