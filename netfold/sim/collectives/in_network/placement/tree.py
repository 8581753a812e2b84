"""Aggregation trees: one switch, or all switches where workers' paths to the root meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from netfold.topologies.network import Network, nodes_of, path


class Tree(NamedTuple):
    """Aggregation points, in order of their distance from the root.

    `parents[0]` is unused; point i sends to point `parents[i]`, worker r to point `homes[r]`.
    """

    switches: tuple[int, ...]  # node of each point
    parents: tuple[int, ...]
    homes: tuple[int, ...]

    def children_count(self, point: int) -> int:
        """Workers and points that send to a point."""
        return self.homes.count(point) + self.parents[1:].count(point)


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
