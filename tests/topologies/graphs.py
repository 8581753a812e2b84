"""Graphs that several tests use, some by networkx's own generators, and what networkx measures on them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import combinations, product

import networkx as nx
from hypothesis import strategies as st

from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, hosts, new_graph

GBPS = 10**9
LINK = LinkSpec(rate_bps=100 * GBPS, delay_ps=1_000_000, buffer_bytes=262_144)
UPLINK = LinkSpec(rate_bps=400 * GBPS, delay_ps=500_000, buffer_bytes=1_048_576)


def pair() -> nx.Graph:
    """h0 and h1 on s0."""
    graph = new_graph("pair")
    add_host(graph, "h0")
    add_host(graph, "h1")
    add_switch(graph, "s0", tier=1, profile="plain")
    add_link(graph, "h0", "s0", LINK)
    add_link(graph, "h1", "s0", LINK)
    return graph


LINKS = st.builds(
    LinkSpec,
    rate_bps=st.sampled_from([GBPS, 10 * GBPS, 25 * GBPS]),
    delay_ps=st.integers(0, 10**6),
    buffer_bytes=st.integers(1, 10**6),
)


@st.composite
def topologies(draw: st.DrawFn, switches_max: int = 8, hosts_max: int = 8) -> nx.Graph:
    """Any valid graph: a random tree of switches with more links between them, and hosts on any of them.

    Hosts and switches are inserted in mixed order and links in random order.
    """
    switches_count = draw(st.integers(1, switches_max))
    rack_of_host = draw(st.lists(st.integers(0, switches_count - 1), min_size=1, max_size=hosts_max))
    tree = {(draw(st.integers(0, child - 1)), child) for child in range(1, switches_count)}
    pairs = [(a, b) for b in range(switches_count) for a in range(b)]
    more = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    edges = [(f"s{a}", f"s{b}") for a, b in tree | more]
    edges += [(f"h{host}", f"s{rack}") for host, rack in enumerate(rack_of_host)]

    names = [f"s{index}" for index in range(switches_count)] + [
        f"h{index}" for index in range(len(rack_of_host))
    ]
    graph = new_graph("random")
    for name in draw(st.permutations(names)):
        if name.startswith("h"):
            add_host(graph, name)
        else:
            add_switch(
                graph, name, tier=draw(st.integers(1, 3)), profile=draw(st.sampled_from(["plain", "tofino1"]))
            )
    for a, b in draw(st.permutations(sorted(edges))):
        add_link(graph, a, b, draw(LINKS))
    return graph


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
