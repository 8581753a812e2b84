"""Which switches add up, and who sends to whom: one switch, or all where workers' ways to it meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from netfold.topologies.routing import Network, path


class Tree(NamedTuple):
    """Points that add up: the root first, then the others from the nearest to it to the farthest.

    `parents[0]` means nothing; point i sends to point `parents[i]`, worker r to point `homes[r]`.
    """

    switches: tuple[int, ...]  # node of each point
    parents: tuple[int, ...]
    homes: tuple[int, ...]

    def children_count(self, point: int) -> int:
        """Workers and points that send to a point."""
        return self.homes.count(point) + self.parents[1:].count(point)


def one_switch(root: int, workers: int) -> Tree:
    """All workers send to the root."""
    return Tree((root,), (0,), (0,) * workers)


def build_tree(
    network: Network, hosts: Sequence[int], root: int, route: int, can_add_up: Callable[[int], bool]
) -> Tree:
    """The tree of the workers' shortest ways to `root`, on which `route` picks among equal ones.

    The same key at every switch makes the union of the ways a tree. A switch that can add up and to which two
    streams or more come becomes a point and sends one on; all others pass on what comes.
    """
    paths = [_switches_on_path(network, host, root, route) for host in hosts]
    senders: dict[int, set[int]] = {}  # streams that come to a switch: hosts, and points (by their switch)
    points = {root}
    # From the farthest switches to the root: what comes to one is known before it sends anything on.
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


def _switches_on_path(network: Network, host: int, root: int, route: int) -> list[int]:
    return [int(network.link_target[link]) for link in path(network, host, root, route)]


def _next_point(node: int, above: dict[int, int], points: set[int]) -> int:
    node = above[node]
    while node not in points:
        node = above[node]
    return node
