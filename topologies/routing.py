"""From a graph to integers: nodes and links as rows of arrays, and every shortest next hop.

Equal cost means equal hop count. Where several links are on shortest paths, a flow's key picks one at every
node (equal-cost multi-path by modulo-N hash, RFC 2991), so one flow stays on one path.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from topologies.graph import hosts, switches, validate


@dataclass(frozen=True, eq=False)
class Network:
    """The integer view of a valid graph, with N nodes and L links. Holding one means that:

    - nodes are the hosts, then the switches, each in the graph's order; a node's index is its row;
    - links are one direction each, two for every edge, sorted by source, then target;
    - `next_link[node, target, :next_count[node, target]]` are the links out of `node` on shortest paths to
      `target`, in order of index; the rest of that row is -1, and all of it where node is target;
    - every node, switches too, can be a target, and no path passes through a host.
    """

    nodes: tuple[str, ...]
    profiles: tuple[str, ...]  # of the switches; "" for hosts
    is_host: NDArray[np.bool_]  # (N,)
    link_names: tuple[str, ...]  # "h0->s0"
    link_source: NDArray[np.int32]  # (L,) node
    link_target: NDArray[np.int32]  # (L,) node
    rate_bps: NDArray[np.int64]  # (L,)
    delay_ps: NDArray[np.int64]  # (L,)
    buffer_bytes: NDArray[np.int64]  # (L,) of the port at the source; no limit where the source is a host
    next_link: NDArray[np.int32]  # (N, N, W), W the largest of next_count
    next_count: NDArray[np.int32]  # (N, N)


def compile_network(graph: nx.Graph) -> Network:
    """Integer view of a graph, with all shortest routes.

    Takes O(N · L) per hop of diameter in NumPy: a leaf-spine of 1000 nodes well under a second.

    Raises
    ------
    TopologyError
        The graph breaks the contract (see `topologies.graph.validate`).
    """
    validate(graph)
    nodes = (*hosts(graph), *switches(graph))
    index = {name: row for row, name in enumerate(nodes)}
    links = sorted((index[a], index[b]) for edge in graph.edges for a, b in (edge, edge[::-1]))
    edges = [graph.edges[nodes[source], nodes[target]] for source, target in links]
    link_source, link_target = np.array(links, dtype=np.int32).T.copy()
    next_link, next_count = _next_links(link_source, link_target)
    return Network(
        nodes=nodes,
        profiles=tuple(graph.nodes[name]["profile"] for name in nodes),
        is_host=np.array([graph.nodes[name]["kind"] == "host" for name in nodes]),
        link_names=tuple(f"{nodes[source]}->{nodes[target]}" for source, target in links),
        link_source=link_source,
        link_target=link_target,
        rate_bps=np.array([edge["rate_bps"] for edge in edges], dtype=np.int64),
        delay_ps=np.array([edge["delay_ps"] for edge in edges], dtype=np.int64),
        buffer_bytes=np.array([edge["buffer_bytes"] for edge in edges], dtype=np.int64),
        next_link=next_link,
        next_count=next_count,
    )


def path(network: Network, source: int, target: int, key: int) -> list[int]:
    """Links that a flow takes from one node to another, none if they are the same.

    The choice at each node is `next_link[node, target, key % next_count[node, target]]`, where `key` is a
    hash of the flow. The same key serves every node, so where a path has several choices in a row they are
    correlated, as they are among real switches that share one hash function ("hash polarisation").
    """
    links: list[int] = []
    node = source
    while node != target:
        link = int(network.next_link[node, target, key % int(network.next_count[node, target])])
        links.append(link)
        node = int(network.link_target[link])
    return links


def _next_links(
    link_source: NDArray[np.int32], link_target: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """`next_link` and `next_count` of links sorted by source, where every node has a link.

    A link is on a shortest path to a target if its far end is closer. That never leads through a host: a
    host has one link, so behind it there is nothing but itself.
    """
    nodes_count = int(link_source[-1]) + 1
    first_link = np.searchsorted(link_source, np.arange(nodes_count + 1))
    distance = _distances(link_target, first_link[:-1])
    next_count = np.zeros((nodes_count, nodes_count), dtype=np.int32)
    choices = []
    for node in range(nodes_count):
        neighbours = link_target[first_link[node] : first_link[node + 1]]
        closer = distance[neighbours] < distance[node]  # (links of node, targets)
        next_count[node] = closer.sum(axis=0)
        choices.append(np.nonzero(closer.T))  # by target, then by link
    next_link = np.full((nodes_count, nodes_count, int(next_count.max())), -1, dtype=np.int32)
    for node, (targets, offsets) in enumerate(choices):
        ends = np.cumsum(next_count[node])
        rank = np.arange(targets.size) - (ends - next_count[node])[targets]
        next_link[node, targets, rank] = first_link[node] + offsets
    return next_link, next_count


def _distances(link_target: NDArray[np.int32], first_link: NDArray[np.intp]) -> NDArray[np.int32]:
    """Hops from each node (row) to each (column): breadth-first search towards all targets at once."""
    nodes_count = first_link.size
    distance = np.full((nodes_count, nodes_count), -1, dtype=np.int32)
    frontier = np.eye(nodes_count, dtype=np.bool_)
    hops = 0
    while frontier.any():
        distance[frontier] = hops
        # Next come the neighbours of the frontier. Links are sorted by source, so each node is a segment.
        frontier = np.logical_or.reduceat(frontier[link_target], first_link, axis=0) & (distance < 0)
        hops += 1
    return distance
