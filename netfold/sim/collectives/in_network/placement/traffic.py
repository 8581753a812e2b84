"""Trees with the least traffic: the fewest links that a packet of every worker, and their sums, pass.

With hosts as leaves this is a Steiner tree in the hop metric whose inner nodes are switches that can
aggregate. For given points the best tree is known: every worker at its nearest point, and the points joined
by a minimum spanning tree. So only the set of points is searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.sim.collectives.in_network.placement.tree import Tree, numbered
from netfold.topologies.network import Network

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
