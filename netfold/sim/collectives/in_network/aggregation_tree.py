"""Aggregation trees: one switch, or all switches where workers' paths to the root meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from math import comb
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.errors import NAMES_SHOWN, ScenarioError, names_hint
from netfold.sim.collectives.in_network.in_network_keys import InNetworkSection
from netfold.sim.collectives.in_network.switch_resources import AggregationTree, Switches
from netfold.sim.engine.engine_data import Job
from netfold.sim.keys import Location
from netfold.sim.plan.idle_network import Pace, busiest_link, job_pace, job_traffic, words_per_s
from netfold.sim.plan.plan import split_message_and_hint
from netfold.switch.fit import can_run, suits
from netfold.switch.profiles import PROFILES
from netfold.topologies.graph import TopologyError, switches
from netfold.topologies.graph import switches as switch_names
from netfold.topologies.network import Network, nodes_of, path
from netfold.topologies.placement import place_aggregators


def one_switch(root: int, workers: int) -> AggregationTree:
    """The tree in which all workers send to the root."""
    return AggregationTree((root,), (0,), (0,) * workers)


def build_tree(
    network: Network, hosts: Sequence[int], root: int, route: int, can_add_up: Callable[[int], bool]
) -> AggregationTree:
    """The tree of the workers' shortest paths to `root`; `route` selects among equal paths.

    The same key at every switch makes the union of the paths a tree. A switch that can aggregate and receives
    at least two streams becomes a point and sends one stream; all others forward.
    """
    paths = [_switches_on_path(network, host, root, route) for host in hosts]
    senders: dict[int, set[int]] = {}  # streams into a switch: from hosts, and from points (by their switch)
    points = {root}
    # From the farthest switch to the root, so that all streams into a switch are known.
    distance = {node: hops for nodes in paths for hops, node in enumerate(reversed(nodes))}
    above = {node: following for nodes in paths for node, following in pairwise(nodes)}
    for host, nodes in zip(hosts, paths, strict=True):
        senders.setdefault(nodes[0], set()).add(host)
    for node in sorted(above, key=lambda node: (-distance[node], node)):
        streams = senders.get(node, set())
        if len(streams) > 1 and can_add_up(node):
            points.add(node)
            streams = {node}
        senders.setdefault(above[node], set()).update(streams)
    order = sorted(points, key=lambda node: (distance[node], node))
    number = {node: point for point, node in enumerate(order)}
    homes = tuple(next(number[node] for node in nodes if node in number) for nodes in paths)
    parents = tuple(0 if node == root else number[_next_point(node, above, points)] for node in order)
    return AggregationTree(tuple(order), parents, homes)


def number_points(root: int, parents: Mapping[int, int], homes: Sequence[int]) -> AggregationTree:
    """The tree in which each point, by node, has this parent, and each worker this point."""
    depth = {root: 0}
    for node in parents:
        way = [node]
        while way[-1] not in depth:
            way.append(parents[way[-1]])
        for above in reversed(way[:-1]):
            depth[above] = depth[parents[above]] + 1
    order = sorted(depth, key=lambda node: (depth[node], node))
    number = {node: point for point, node in enumerate(order)}
    return AggregationTree(
        tuple(order),
        (0, *(number[parents[node]] for node in order[1:])),
        tuple(number[home] for home in homes),
    )


def _switches_on_path(network: Network, host: int, root: int, route: int) -> list[int]:
    return nodes_of(network, path(network, host, root, route))


def _next_point(node: int, above: dict[int, int], points: set[int]) -> int:
    node = above[node]
    while node not in points:
        node = above[node]
    return node


# Trees whose points have more children than a switch can tell apart: some move to other switches.


Child = tuple[bool, int]  # (True, rank of a worker), or (False, node of a point)


class _Move(NamedTuple):
    """Children that leave a point for another switch, and the hops that it costs to relieve it by one."""

    hops_each: float
    relieved: int
    target: int
    children: tuple[Child, ...]
    is_new: bool


class _Growing:
    """A tree by node: the parent of each point, and the point of each worker."""

    def __init__(self, tree: AggregationTree) -> None:
        self.root = tree.switches[0]
        self.parents = {
            node: tree.switches[parent]
            for node, parent in zip(tree.switches[1:], tree.parents[1:], strict=True)
        }
        self.homes = [tree.switches[home] for home in tree.homes]

    @property
    def points(self) -> list[int]:
        return [self.root, *self.parents]

    def children(self, node: int) -> list[Child]:
        workers = [(True, rank) for rank, home in enumerate(self.homes) if home == node]
        return workers + [(False, point) for point, parent in self.parents.items() if parent == node]

    def is_above(self, node: int, other: int) -> bool:
        """Whether a point is another one, or one of those that the other hangs on."""
        while other != node and other in self.parents:
            other = self.parents[other]
        return other == node

    def move(self, source: int, move: _Move) -> None:
        if move.is_new:
            self.parents[move.target] = source
        for is_worker, number in move.children:
            if is_worker:
                self.homes[number] = move.target
            else:
                self.parents[number] = move.target


def relieve(
    tree: AggregationTree,
    hosts: tuple[int, ...],
    helpers: Iterable[int],
    children_max: Callable[[int], int],
    hops: Callable[[int, int], int],
    points_max: int | None = None,
) -> AggregationTree | None:
    """The tree with no more than `children_max` children at any point; None if that cannot be reached.

    Surplus children move to the switch that adds the fewest hops for each: a point of the tree that has room,
    or one of `helpers`, which then hangs on the point that it relieves, as long as the tree has fewer than
    `points_max` points.
    """
    growing, spare = _Growing(tree), [node for node in helpers if node not in tree.switches]
    while True:
        over = next(
            (node for node in growing.points if len(growing.children(node)) > children_max(node)), None
        )
        if over is None:
            return number_points(growing.root, growing.parents, growing.homes)
        surplus = len(growing.children(over)) - children_max(over)
        moves = []
        points = growing.points
        may_grow = points_max is None or len(points) < points_max
        for target in (*points, *(spare if may_grow else ())):
            if target == over or children_max(target) == 0:
                continue
            is_new = target not in points
            movable = sorted(
                (hops(node, target) - hops(node, over), child)
                for child in growing.children(over)
                if (node := hosts[child[1]] if child[0] else child[1]) != target
                and (child[0] or is_new or not growing.is_above(child[1], target))
            )
            room = children_max(target) - (0 if is_new else len(growing.children(target)))
            count = min(room, surplus + is_new, len(movable))
            if count - is_new < 1:
                continue
            added = sum(extra for extra, _ in movable[:count]) + (hops(target, over) if is_new else 0)
            chosen = tuple(child for _, child in movable[:count])
            moves.append(_Move(added / (count - is_new), count - is_new, target, chosen, is_new))
        if not moves:
            return None
        best = min(moves, key=lambda move: (move.hops_each, -move.relieved))
        growing.move(over, best)
        spare = [node for node in spare if node != best.target]


# Trees with the least traffic: the fewest links that a packet of every worker, and their sums, pass.
#
# With hosts as leaves this is a Steiner tree in the hop metric whose inner nodes are switches that can
# aggregate. For given points the best tree is known: every worker at its nearest point, and the points joined
# by a minimum spanning tree. So only the set of points is searched.


SWAPS_MAX = 4096  # pairs of a point and another switch that one round exchanges on trial


class TrafficSearch:
    """Searches the points of the tree with the least traffic for one job.

    Parameters
    ----------
    able
        Nodes that may be points.
    fixed
        A node that must be one, or none.
    points_max
        Points at most.
    """

    def __init__(
        self,
        graph: nx.Graph,
        network: Network,
        hosts: Sequence[int],
        able: Sequence[int],
        fixed: int | None = None,
        points_max: int | None = None,
    ) -> None:
        self._network, self._hosts, self._fixed = network, tuple(hosts), fixed
        self._able = list(dict.fromkeys([*([fixed] if fixed is not None else []), *able]))
        self._points_max = points_max or len(self._able)
        names = network.nodes
        index = {name: row for row, name in enumerate(names)}
        racks = Counter(next(iter(graph.adj[names[host]])) for host in hosts)
        self._workers = np.array(list(racks.values()))
        rows = np.full((len(self._able), len(names)), 0, dtype=np.int64)
        for row, node in enumerate(self._able):
            for name, hops in nx.single_source_shortest_path_length(graph, names[node]).items():
                rows[row, index[name]] = hops
        self._hops = rows  # hops from each able node to each node
        self._to_racks = rows[:, [index[rack] for rack in racks]] + 1  # hops to the hosts of each rack
        self._between = rows[:, self._able]

    def cost(self, points: Sequence[int]) -> int:
        """Links that packets pass with these points (rows of the able nodes): one way, for one result."""
        nearest = self._to_racks[list(points)].min(axis=0)
        return int(nearest @ self._workers) + _spanning_hops(self._between, points)

    def best(self) -> AggregationTree:
        """The best set of points found: local search from several starts by adding, dropping and swapping."""
        starts = [[row] for row in np.argsort(self._to_racks @ self._workers, kind="stable")[:3].tolist()]
        near = [row for row in range(len(self._able)) if self._to_racks[row].min() == 1]
        starts += [near] if 0 < len(near) <= self._points_max else []
        if self._fixed is not None:
            starts = [[0], sorted({0, *near})] if len({0, *near}) <= self._points_max else [[0]]
        optima = [self._improve(tuple(start)) for start in starts]
        return self.tree(min(optima, key=lambda points: (self.cost(points), len(points), points)))

    def tree(self, points: Sequence[int]) -> AggregationTree:
        """The tree of some points: the root is the one that is nearest to the farthest worker."""
        nodes = [self._able[row] for row in points]
        joined = nx.minimum_spanning_tree(_complete(self._between, points))
        nearest = self._hops[list(points)][:, list(self._hosts)].argmin(axis=0)
        homes = [nodes[home_index] for home_index in nearest.tolist()]
        depths = {}
        for point_index, row in enumerate(points):
            above = nx.single_source_dijkstra_path_length(joined, row, weight="weight")
            ways = [
                int(self._hops[points[near], host]) + above[points[near]]
                for near, host in zip(nearest.tolist(), self._hosts, strict=True)
            ]
            depths[nodes[point_index]] = (max(ways), sum(ways), point_index)
        root = self._fixed if self._fixed is not None else min(depths, key=depths.__getitem__)
        edges = nx.bfs_edges(joined, self._able.index(root))
        return number_points(root, {self._able[row]: self._able[above] for above, row in edges}, homes)

    def _improve(self, points: tuple[int, ...]) -> tuple[int, ...]:
        """Make the best single change as long as one reduces the traffic, or the points at equal traffic."""
        cost = self.cost(points)
        while True:
            tried = [(self.cost(trial), len(trial), trial) for trial in self._neighbours(points)]
            best = min(tried, default=(cost, len(points), points))
            if best[:2] >= (cost, len(points)):
                return points
            cost, _, points = best

    def _neighbours(self, points: tuple[int, ...]) -> list[tuple[int, ...]]:
        fixed = {0} if self._fixed is not None else set()
        others = [row for row in range(len(self._able)) if row not in points]
        dropped = [tuple(point for point in points if point != row) for row in points if row not in fixed]
        changed = [rest for rest in dropped if rest]
        if len(points) < self._points_max:
            changed += [tuple(sorted((*points, row))) for row in self._promising(points, others)]
        if len(dropped) * len(others) <= SWAPS_MAX:
            changed += [tuple(sorted((*rest, row))) for rest in dropped for row in others]
        return changed

    def _promising(self, points: tuple[int, ...], others: list[int]) -> list[int]:
        """Switches that would bring workers or points nearer: each of the others, if they are few."""
        if len(others) <= SWAPS_MAX // 32:
            return others
        nearest = self._to_racks[list(points)].min(axis=0)
        gain = np.maximum(nearest - self._to_racks[others], 0) @ self._workers
        gain = gain - self._between[np.ix_(others, list(points))].min(axis=1)
        return [others[row] for row in np.argsort(-gain, kind="stable")[: SWAPS_MAX // 32].tolist()]


def _spanning_hops(between: NDArray[np.int64], points: Sequence[int]) -> int:
    """Hops of a minimum spanning tree (Prim)."""
    rows = list(points)
    nearest = between[rows[0], rows].astype(np.int64)
    is_out = np.ones(len(rows), np.bool_)
    is_out[0] = False
    total = 0
    for _ in rows[1:]:
        point_index = int(np.argmin(np.where(is_out, nearest, np.iinfo(np.int64).max)))
        total += int(nearest[point_index])
        is_out[point_index] = False
        nearest = np.minimum(nearest, between[rows[point_index], rows])
    return total


def _complete(between: NDArray[np.int64], points: Sequence[int]) -> nx.Graph:
    """The complete graph of some points, with hops as weights."""
    graph = nx.Graph()
    graph.add_nodes_from(points)
    graph.add_weighted_edges_from(
        (a, b, int(between[a, b])) for index, a in enumerate(points) for b in points[index + 1 :]
    )
    return graph


# The trees that a scenario allows below a root: which switches may be points, and what is minimised.


SETS_MAX = 64  # sets of k switches that are all tried; of more, one switch after the other is chosen


@dataclass(frozen=True)
class Shapes:
    """Makes the trees of one job; `hosts` are the nodes of its workers, in rank order."""

    graph: nx.Graph
    switches: Switches
    section: InNetworkSection
    hosts: tuple[int, ...]
    route: Callable[[int], int]
    """The key of a parallel tree's paths, by the tree's number."""
    job_on: Callable[[AggregationTree, int], Job]
    """The job on a tree, by the tree and its number among the parallel ones."""
    _least: dict[int | None, AggregationTree] = field(default_factory=dict)

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

    def at(self, root: str, number: int = 0) -> list[AggregationTree]:
        """The trees with this root; `number` is that of the tree among several in parallel."""
        node = self._network.nodes.index(root)
        if self.section.tree == "traffic":
            return [self.least_traffic(node)]
        star = one_switch(node, len(self.hosts))
        if self.points_max == 1:
            return [star]
        tree = self._depth_tree(node, number, self._can_add_up)
        if self.wanted == "auto":
            return [star, tree] if len(tree.switches) > 1 else [star]
        return [tree if self.points_max is None else self._few(tree, number, self.points_max)]

    def least_traffic(self, root: int | None = None) -> AggregationTree:
        """The tree with the least traffic, with any root or this one."""
        if root not in self._least:
            search = TrafficSearch(self.graph, self._network, self.hosts, self.able, root, self.points_max)
            self._least[root] = search.best()
        return self._least[root]

    def within_limits(self, tree: AggregationTree) -> AggregationTree | None:
        """The tree, changed so that no switch has more children than it can tell apart; None if none is."""
        if self.points_max == 1 or not self._is_over(tree):
            return None
        spare = self._spare(tree)
        return relieve(tree, self.hosts, spare, self._children_max, self._hops, self.points_max)

    @property
    def _network(self) -> Network:
        return self.switches.network

    @cached_property
    def _racks(self) -> Collection[str]:
        return {next(iter(self.graph.adj[self._network.nodes[host]])) for host in self.hosts}

    @cached_property
    def _tier_max(self) -> int:
        return max(int(self.graph.nodes[name]["tier"]) for name in switch_names(self.graph))

    def _can_add_up(self, node: int) -> bool:
        if self._network.is_host[node]:
            return False
        profile = self.switches.profile_of(node)
        return can_run(profile, self.section.program) and self.allows(self._network.nodes[node])

    def _depth_tree(self, root: int, number: int, can_add_up: Callable[[int], bool]) -> AggregationTree:
        return build_tree(self._network, self.hosts, root, self.route(number), can_add_up)

    def _few(self, full: AggregationTree, number: int, count: int) -> AggregationTree:
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

    def _is_over(self, tree: AggregationTree) -> bool:
        counts = Counter((*tree.homes, *tree.parents[1:]))
        return any(counts[point] > self._children_max(node) for point, node in enumerate(tree.switches))

    def _children_max(self, node: int) -> int:
        return self.switches.children_max(node, self.section) if self._can_add_up(node) else 0

    def _spare(self, tree: AggregationTree) -> list[int]:
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
    trees: tuple[AggregationTree, ...]
    """Parallel trees, each with a share of the words."""
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

    shapes: Shapes
    location: Location

    def __iter__(self) -> Iterator[Candidate]:
        """Yield all candidates, the fastest first, and then those with switches that relieve others.

        No place is faster than the workers' own links, so a candidate as fast as these is yielded at once.
        Of equally fast places the nearest comes first, and one switch before a tree.
        """
        roots = self._roots()
        usual: Iterator[tuple[AggregationTree, ...]]
        section = self.shapes.section
        if section.trees > 1:
            usual = iter([self._parallel(roots)])
        elif (
            self.shapes.section.tree == "traffic"
            and self.shapes.section.switch == "auto"
            and self.shapes.able
        ):
            usual = iter([(self.shapes.least_traffic(),)])
        else:
            yield from self._fastest(roots)
            usual = iter(())
            wide = ((tree,) for root in roots[:COMPARED_MAX] for tree in self.shapes.at(root))
            yield from self._relieve(wide)
        for trees in usual:
            yield self._candidate(trees)
            yield from self._relieve([trees])

    def _fastest(self, roots: list[str]) -> Iterator[Candidate]:
        best = self._of_own_links()
        slower = []
        for root in roots[:COMPARED_MAX]:
            for candidate in self._at(root):
                if candidate.pace.elements_per_s >= 0.9999 * best:
                    yield candidate
                else:
                    slower.append(candidate)
        yield from sorted(slower, key=lambda laggard: -float(f"{laggard.pace.elements_per_s:.3e}"))
        for root in roots[COMPARED_MAX:]:
            yield from self._at(root)

    def _at(self, root: str) -> Iterator[Candidate]:
        """Yield a switch alone and as the root of a tree, if both are allowed and differ."""
        for tree in self.shapes.at(root):
            yield self._candidate((tree,))

    def _candidate(self, trees: tuple[AggregationTree, ...]) -> Candidate:
        jobs = tuple(self.shapes.job_on(tree, number) for number, tree in enumerate(trees))
        root = self.shapes.switches.network.nodes[trees[0].switches[0]]
        return Candidate(root, trees, jobs, job_pace(self.shapes.switches.network, *jobs))

    def _relieve(self, places: Iterable[tuple[AggregationTree, ...]]) -> Iterator[Candidate]:
        """Yield the places with too many children at a switch, changed so that they have not."""
        for trees in places:
            changed = [self.shapes.within_limits(tree) for tree in trees]
            if any(changed):
                yield self._candidate(tuple(new or old for new, old in zip(changed, trees, strict=True)))

    def _parallel(self, roots: list[str]) -> tuple[AggregationTree, ...]:
        """Several trees at once: each next one keeps the busiest link least busy, then spreads the load.

        A tree of least traffic is chosen by its traffic first.
        """
        network = self.shapes.switches.network
        chosen: list[AggregationTree] = []
        busy_s: dict[int, float] = {}  # each link's time for one packet of every tree, up to a constant
        for number in range(self.shapes.section.trees):
            options: list[tuple[tuple[float, ...], int, AggregationTree, dict[int, float]]] = []
            for order, root in enumerate(roots[:PARALLEL_MAX]):
                for tree in self.shapes.at(root, number):
                    load = job_traffic(network, self.shapes.job_on(tree, number)).load
                    own_s = {link: count / int(network.rate_bps[link]) for link, count in load.items()}
                    after = {**busy_s, **{link: busy_s.get(link, 0) + time for link, time in own_s.items()}}
                    traffic = sum(load.values()) if self.shapes.section.tree == "traffic" else 0
                    spread = sum(time * time for time in after.values())
                    key = (traffic, float(f"{max(after.values()):.6e}"), float(f"{spread:.6e}"), order)
                    options.append((key, len(options), tree, after))
            _, _, tree, busy_s = min(options, key=lambda option: option[:2])
            chosen.append(tree)
        return tuple(chosen)

    def _of_own_links(self) -> float:
        """Words per second that the slowest worker, or its own link, carries."""
        network = self.shapes.switches.network
        nodes = self.shapes.hosts
        job = self.shapes.job_on(one_switch(nodes[0], len(nodes)), 0)
        worker_links = np.flatnonzero(np.isin(network.link_source, nodes)).tolist()
        slowest = busiest_link(network, dict.fromkeys(worker_links, 1), job.frame, job.unit_packets)
        return words_per_s(job.frame, slowest.rate_bps)

    def _roots(self) -> list[str]:
        """Switches that can be the root, the nearest first, then those with fewest trees of others."""
        section, profiles = self.shapes.section, self.shapes.switches.profiles
        if section.switch != "auto":
            if section.switch not in profiles:
                hint = names_hint(section.switch, profiles, "switches", NAMES_SHOWN)
                raise self.location.job_error(
                    "collective.switch", f"there is no switch {section.switch!r}", hint
                )
            self._check_tier([section.switch])
            return [section.switch]
        kinds = {profile.name: profile for profile in profiles.values()}
        able = (
            {name for name, profile in kinds.items() if suits(profile, section.program)}
            or {
                name for name, profile in kinds.items() if can_run(profile, section.program)
            }  # rejected later, with a reason
            or {name for name, profile in kinds.items() if profile.can_aggregate}  # likewise
        )
        hosts = [self.shapes.switches.network.nodes[host] for host in self.shapes.hosts]
        try:
            taken = self.shapes.switches.roots_of_others(self.location)
            roots = place_aggregators(self.shapes.graph, hosts, able.__contains__, taken)
        except TopologyError as error:
            profiles_by_name = {**PROFILES, **self.location.scenario.switch_profiles}
            programmable = ", ".join(
                name for name, profile in profiles_by_name.items() if profile.can_aggregate
            )
            message, hint = split_message_and_hint(self.shapes.graph, error)
            key = self.shapes.switches.profile_key
            raise self.location.error(key, message, f"{hint}: {programmable}") from None
        self._check_tier(roots)
        return [name for name in roots if self.shapes.allows(name)]

    def _check_tier(self, roots: list[str]) -> None:
        """Reject `aggregators` that no switch which could aggregate belongs to."""
        shapes, graph = self.shapes, self.shapes.graph
        nodes = graph.nodes
        if any(shapes.allows(name) for name in roots):
            return
        where = "next to a worker" if shapes.wanted == "tor" else "of the highest tier"
        counts = Counter(nodes[name]["profile"] for name in switches(graph) if shapes.allows(name))
        profiles = ", ".join(f"{profile!r} on {count}" for profile, count in counts.items())
        tier_names = ", ".join(
            f"{name} (tier {nodes[name]['tier']}, {nodes[name]['profile']})" for name in roots[:3]
        )
        raise self.location.job_error(
            "collective.aggregators",
            f"no switch {where} can be the root: their profiles are {profiles}, "
            f"and the root may be {tier_names}",
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
