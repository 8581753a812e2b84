"""Aggregation trees: one switch, or all switches where workers' paths to the root meet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.sim.collectives.in_network.switch_resources import Tree
from netfold.topologies.network import Network, nodes_of, path


def one_switch(root: int, workers: int) -> Tree:
    """The tree in which all workers send to the root."""
    return Tree((root,), (0,), (0,) * workers)


def build_tree(
    network: Network, hosts: Sequence[int], root: int, route: int, can_add_up: Callable[[int], bool]
) -> Tree:
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
    return Tree(tuple(order), parents, homes)


def numbered(root: int, parents: Mapping[int, int], homes: Sequence[int]) -> Tree:
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
    return Tree(
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

    def __init__(self, tree: Tree) -> None:
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


def relieved(
    tree: Tree,
    hosts: tuple[int, ...],
    helpers: Iterable[int],
    children_max: Callable[[int], int],
    hops: Callable[[int, int], int],
    points_max: int | None = None,
) -> Tree | None:
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
            return numbered(growing.root, growing.parents, growing.homes)
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
        self._hops = rows  # from each able node to each node
        self._to_racks = rows[:, [index[rack] for rack in racks]] + 1  # to the hosts of each rack
        self._between = rows[:, self._able]

    def cost(self, points: Sequence[int]) -> int:
        """Links that packets pass with these points (rows of the able nodes): one way, for one result."""
        nearest = self._to_racks[list(points)].min(axis=0)
        return int(nearest @ self._workers) + _spanning_hops(self._between, points)

    def best(self) -> Tree:
        """The best set of points found: local search from several starts by adding, dropping and swapping."""
        starts = [[row] for row in np.argsort(self._to_racks @ self._workers, kind="stable")[:3].tolist()]
        near = [row for row in range(len(self._able)) if self._to_racks[row].min() == 1]
        starts += [near] if 0 < len(near) <= self._points_max else []
        if self._fixed is not None:
            starts = [[0], sorted({0, *near})] if len({0, *near}) <= self._points_max else [[0]]
        found = [self._improved(tuple(start)) for start in starts]
        return self.tree(min(found, key=lambda points: (self.cost(points), len(points), points)))

    def tree(self, points: Sequence[int]) -> Tree:
        """The tree of some points: the root is the one that is nearest to the farthest worker."""
        nodes = [self._able[row] for row in points]
        joined = nx.minimum_spanning_tree(_complete(self._between, points))
        nearest = self._hops[list(points)][:, list(self._hosts)].argmin(axis=0)
        homes = [nodes[place] for place in nearest.tolist()]
        depths = {}
        for place, row in enumerate(points):
            above = nx.single_source_dijkstra_path_length(joined, row, weight="weight")
            ways = [
                int(self._hops[points[near], host]) + above[points[near]]
                for near, host in zip(nearest.tolist(), self._hosts, strict=True)
            ]
            depths[nodes[place]] = (max(ways), sum(ways), place)
        root = self._fixed if self._fixed is not None else min(depths, key=depths.__getitem__)
        order = nx.bfs_predecessors(joined, self._able.index(root))
        return numbered(root, {self._able[row]: self._able[above] for row, above in order}, homes)

    def _improved(self, points: tuple[int, ...]) -> tuple[int, ...]:
        """Make the best single change as long as one reduces the traffic, or the points at equal traffic."""
        cost = self.cost(points)
        while True:
            tried = [(self.cost(one), len(one), one) for one in self._neighbours(points)]
            best = min(tried, default=(cost, len(points), points))
            if best[:2] >= (cost, len(points)):
                return points
            cost, _, points = best

    def _neighbours(self, points: tuple[int, ...]) -> list[tuple[int, ...]]:
        kept = {0} if self._fixed is not None else set()
        others = [row for row in range(len(self._able)) if row not in points]
        dropped = [tuple(one for one in points if one != row) for row in points if row not in kept]
        changed = [one for one in dropped if one]
        if len(points) < self._points_max:
            changed += [tuple(sorted((*points, row))) for row in self._promising(points, others)]
        if len(dropped) * len(others) <= SWAPS_MAX:
            changed += [tuple(sorted((*one, row))) for one in dropped for row in others]
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
        place = int(np.argmin(np.where(is_out, nearest, np.iinfo(np.int64).max)))
        total += int(nearest[place])
        is_out[place] = False
        nearest = np.minimum(nearest, between[rows[place], rows])
    return total


def _complete(between: NDArray[np.int64], points: Sequence[int]) -> nx.Graph:
    """The complete graph of some points, with hops as weights."""
    graph = nx.Graph()
    graph.add_nodes_from(points)
    graph.add_weighted_edges_from(
        (a, b, int(between[a, b])) for place, a in enumerate(points) for b in points[place + 1 :]
    )
    return graph
