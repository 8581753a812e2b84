"""Graphs of published topologies, built here by their definitions, to compare measures with closed forms."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import networkx as nx

from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph, validate
from tests.topologies.graphs import LINK


def on_switches(fabric: nx.Graph, hosts_each: int, link: LinkSpec = LINK) -> nx.Graph:
    """Hosts on every node of a graph, which becomes a graph of switches in one tier."""
    graph = new_graph("known")
    names = {node: f"s{index}" for index, node in enumerate(fabric)}
    for name in names.values():
        add_switch(graph, name, tier=1, profile="plain")
        for index in range(hosts_each):
            add_host(graph, f"{name}h{index}")
            add_link(graph, name, f"{name}h{index}", LINK)
    for a, b in fabric.edges:
        add_link(graph, names[a], names[b], link)
    validate(graph)
    return graph


def torus(sides: Sequence[int], hosts_each: int = 1, with_coordinates: bool = True) -> nx.Graph:
    """Switches at the points of a grid, each linked to the next along every side, round the ends."""
    fabric = nx.Graph()
    fabric.add_nodes_from(itertools.product(*map(range, sides)))
    for point in list(fabric):
        for axis in range(len(sides)):
            following = tuple((at + (axis == one)) % sides[one] for one, at in enumerate(point))
            if following != point:
                fabric.add_edge(point, following)
    graph = on_switches(fabric, hosts_each)
    if with_coordinates:
        for name, point in zip([n for n in graph if "h" not in n], fabric, strict=True):
            graph.nodes[name]["coordinates"] = point
    return graph


def fat_tree(k: int, core: LinkSpec = LINK) -> nx.Graph:
    """The k-ary fat tree (Al-Fares et al., SIGCOMM 2008); links to the core may have another rate."""
    half, graph = k // 2, new_graph("fat tree")
    for tier, kind, count in ((1, "edge", k * half), (2, "agg", k * half), (3, "core", half * half)):
        for index in range(count):
            add_switch(graph, f"{kind}{index}", tier=tier, profile="plain")
            if tier < 3:
                graph.nodes[f"{kind}{index}"]["group"] = index // half
    for pod, one, two in itertools.product(range(k), range(half), range(half)):
        edge, aggregation = pod * half + one, pod * half + two
        add_host(graph, f"h{edge * half + two}")
        add_link(graph, f"h{edge * half + two}", f"edge{edge}", LINK)
        add_link(graph, f"edge{edge}", f"agg{aggregation}", LINK)
        add_link(graph, f"agg{pod * half + one}", f"core{one * half + two}", core)
    validate(graph)
    return graph
