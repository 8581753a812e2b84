"""Graphs of switches by networkx's own generators, with hosts on them: for routes and measures."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from itertools import product

import networkx as nx

from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph
from tests.topologies.graphs import LINK


def on_switches(inner: nx.Graph, hosts_per_switch: int = 1, link: LinkSpec = LINK) -> nx.Graph:
    """A topology whose switches are the nodes of a graph, in its order, with hosts on each.

    Attributes of nodes and of the graph are kept.
    """
    graph = new_graph(inner.graph.get("name", "switches"))
    graph.graph.update(inner.graph)
    names: dict[Hashable, str] = {node: f"s{number}" for number, node in enumerate(inner)}
    for number in range(len(names) * hosts_per_switch):
        add_host(graph, f"h{number}")
    for node, name in names.items():
        add_switch(graph, name, tier=1, profile="plain")
        graph.nodes[name].update(inner.nodes[node])
    for number in range(len(names) * hosts_per_switch):
        add_link(graph, f"h{number}", f"s{number // hosts_per_switch}", link)
    for a, b in inner.edges:
        add_link(graph, names[a], names[b], link)
    return graph


def torus(sizes: Sequence[int], hosts_per_switch: int = 1, link: LinkSpec = LINK) -> nx.Graph:
    """A torus with coordinates; sizes of 2 make a hypercube."""
    rings = [nx.cycle_graph(size) if size > 2 else nx.path_graph(size) for size in sizes]
    inner = nx.Graph(name="torus", dimensions=tuple(sizes))
    for place in product(*map(range, sizes)):
        inner.add_node(place, coordinates=place)
    for place in list(inner):
        for axis, ring in enumerate(rings):
            for other in ring[place[axis]]:
                inner.add_edge(place, (*place[:axis], other, *place[axis + 1 :]))
    return on_switches(inner, hosts_per_switch, link)


def dragonfly(routers: int, global_links: int, hosts_per_switch: int = 1, link: LinkSpec = LINK) -> nx.Graph:
    """Groups of fully linked routers, each with links to other groups; one link between any two groups."""
    groups = routers * global_links + 1
    inner = nx.Graph(name="dragonfly")
    for group, router in product(range(groups), range(routers)):
        inner.add_node((group, router), group=group)
    for group in range(groups):
        inner.add_edges_from(((group, a), (group, b)) for b in range(routers) for a in range(b))
        for port in range(groups - 1):
            other = (group + port + 1) % groups
            inner.add_edge((group, port // global_links), (other, (groups - 2 - port) // global_links))
    return on_switches(inner, hosts_per_switch, link)


def fat_tree(k: int, link: LinkSpec = LINK) -> nx.Graph:
    """A k-ary fat tree (Al-Fares et al., SIGCOMM 2008): k pods of k/2 edge and k/2 aggregation switches."""
    graph, half = new_graph("fat_tree"), k // 2
    hosts = [f"h{number}" for number in range(k * half * half)]
    edges = [f"edge{number}" for number in range(k * half)]
    aggregations = [f"aggregation{number}" for number in range(k * half)]
    cores = [f"core{number}" for number in range(half * half)]
    for name in hosts:
        add_host(graph, name)
    for tier, names in enumerate((edges, aggregations, cores), start=1):
        for name in names:
            add_switch(graph, name, tier=tier, profile="plain")
    for number, name in enumerate(hosts):
        add_link(graph, name, edges[number // half], link)
    for pod, a, b in product(range(k), range(half), range(half)):
        add_link(graph, edges[pod * half + a], aggregations[pod * half + b], link)
        add_link(graph, aggregations[pod * half + a], cores[a * half + b], link)
    return graph


def fat_tree_of_pods(k: int, core: LinkSpec = LINK) -> nx.Graph:
    """The same with its pods as groups; links to the core may have another rate."""
    graph = fat_tree(k)
    for name, tier in graph.nodes(data="tier"):
        if tier in (1, 2):
            graph.nodes[name]["group"] = int(re.sub(r"\D", "", name)) // (k // 2)
    for a, b in graph.edges:
        if "core" in a + b:
            graph.edges[a, b]["rate_bps"] = core.rate_bps
    return graph


def cost(graph: nx.Graph) -> Callable[[str, str, object], int]:
    """What minimal routing counts for a link: a hop; more between groups, as groups are fully linked."""
    group = nx.get_node_attributes(graph, "group")
    return lambda a, b, _: 3 if group.get(a) != group.get(b) and a in group and b in group else 1


KINDS = {
    "ring": lambda: on_switches(nx.cycle_graph(7)),
    "fat_tree": lambda: fat_tree(4),
    "torus": lambda: torus((4, 3)),
    "torus_3d": lambda: torus((3, 2, 4)),
    "hypercube": lambda: torus((2, 2, 2, 2)),
    "dragonfly": lambda: dragonfly(4, 2),
    "jellyfish": lambda: on_switches(nx.random_regular_graph(4, 16, seed=3)),
    "dumbbell": lambda: on_switches(nx.path_graph(2), 3),
    "complete": lambda: on_switches(nx.complete_graph(20)),
    "wide": lambda: on_switches(nx.complete_bipartite_graph(2, 70)),
}
"""Small fabrics of every kind; among their switches are some with up to 16 ports, more, and over 64."""
