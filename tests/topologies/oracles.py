"""What networkx measures on a graph, to hold closed forms against."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

import networkx as nx

from netfold.topologies.graph import hosts


def flow_bps(graph: nx.Graph, half: Collection[str]) -> int:
    """Maximum flow, in one direction, from some hosts to all others."""
    network = nx.DiGraph()
    for a, b, rate in graph.edges(data="rate_bps"):
        network.add_edge(a, b, capacity=rate)
        network.add_edge(b, a, capacity=rate)
    network.add_nodes_from(["source", "target"])
    network.add_edges_from(("source", name) if name in half else (name, "target") for name in hosts(graph))
    return nx.maximum_flow_value(network, "source", "target") if half else 0


def bisection_by_splits(graph: nx.Graph) -> int:
    """The definition: least maximum flow between two halves of the hosts, over all splits into halves."""
    names = hosts(graph)
    size = len(names) // 2
    halves = combinations(names, size)
    if len(names) % 2 == 0 and names:  # links are the same both ways: each split once
        halves = ((names[0], *rest) for rest in combinations(names[1:], size - 1))  # type: ignore[assignment]
    return min(flow_bps(graph, half) for half in halves)


def diameter_and_paths(graph: nx.Graph) -> tuple[int, int]:
    """Hops between the farthest hosts, and the most shortest paths between two that are so far apart.

    Paths are counted with every host as a source (breadth-first: Brandes 2001), as there may be thousands.
    """
    names = hosts(graph)
    farthest, most = 0, 1
    for source in names:
        layers = dict(enumerate(nx.bfs_layers(graph, source)))
        hops = {name: depth for depth, layer in layers.items() for name in layer}
        paths = {source: 1}
        for depth in range(1, len(layers)):
            for name in layers[depth]:
                paths[name] = sum(paths[other] for other in graph.adj[name] if hops[other] == depth - 1)
        for name in names:
            if hops[name] > farthest:
                farthest, most = hops[name], paths[name]
            elif hops[name] == farthest:
                most = max(most, paths[name])
    return farthest, most
