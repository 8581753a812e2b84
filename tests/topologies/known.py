"""Graphs of published topologies that measures are compared on: those that routes are tested on, in tiers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import networkx as nx

from netfold.topologies.graph import LinkSpec
from tests.topologies import fabrics
from tests.topologies.graphs import LINK


def torus(sides: Sequence[int], hosts_each: int = 1, with_coordinates: bool = True) -> nx.Graph:
    """Switches at the points of a grid, each linked to the next along every side; hosts s0h0, s0h1 …"""
    graph = fabrics.torus(sides, hosts_each)
    count = graph.number_of_nodes() * hosts_each // (hosts_each + 1)
    names = {f"h{number}": f"s{number // hosts_each}h{number % hosts_each}" for number in range(count)}
    graph = nx.relabel_nodes(graph, names)
    for name in () if with_coordinates else list(graph):
        graph.nodes[name].pop("coordinates", None)
    return graph


def fat_tree(k: int, core: LinkSpec = LINK) -> nx.Graph:
    """The k-ary fat tree, its pods as groups; links to the core may have another rate."""
    graph = fabrics.fat_tree(k)
    for name, tier in graph.nodes(data="tier"):
        if tier in (1, 2):
            graph.nodes[name]["group"] = int(re.sub(r"\D", "", name)) // (k // 2)
    for a, b in graph.edges:
        if "core" in a + b:
            graph.edges[a, b]["rate_bps"] = core.rate_bps
    return graph
