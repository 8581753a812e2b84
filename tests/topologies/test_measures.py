"""Measures of any graph against networkx: all distances, and maximum flow over all equal splits."""

from __future__ import annotations

from itertools import combinations

import networkx as nx
from hypothesis import given

from netfold.topologies.graph import add_link, add_switch, hosts
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.measures import bisection_bps, measure
from tests.examples import examples
from tests.topologies.graphs import GBPS, LINK, UPLINK, topologies


def bisection_by_splits(graph: nx.Graph) -> int:
    """The definition: least maximum flow between two halves of the hosts, over all splits into halves."""
    names = hosts(graph)
    network = nx.DiGraph()
    for a, b, rate in graph.edges(data="rate_bps"):
        network.add_edge(a, b, capacity=rate)
        network.add_edge(b, a, capacity=rate)
    network.add_nodes_from(["source", "target"])
    flows = []
    for half in combinations(names, len(names) // 2):
        split = network.copy()
        split.add_edges_from(("source", name) if name in half else (name, "target") for name in names)
        flows.append(nx.maximum_flow_value(split, "source", "target") if half else 0)
    return min(flows)


@examples(30)
@given(topologies(switches_max=5, hosts_max=6))
def test_bisection_is_the_least_flow_over_all_splits(graph: nx.Graph) -> None:
    assert bisection_bps(graph) == bisection_by_splits(graph)


@given(topologies())
def test_counts_and_diameter(graph: nx.Graph) -> None:
    found = measure(graph)
    hops = dict(nx.all_pairs_shortest_path_length(graph))

    assert found.hosts_count == len(hosts(graph))
    assert found.switches_count == len(graph) - len(hosts(graph))
    assert found.links_count == sum(dict(graph.degree).values())
    assert found.diameter_hops == max(hops[a][b] for a in hosts(graph) for b in hosts(graph))


def test_odd_leaves_split_one_leaf() -> None:
    """Three leaves of two hosts: one leaf's uplinks, then one host of another leaf, are cheapest to cut."""
    graph = leaf_spine(3, 1, 2, LINK, LINK)

    assert bisection_bps(graph) == bisection_by_splits(graph) == 200 * GBPS


def test_slow_hosts_change_sides_first() -> None:
    graph = star(4, LINK)
    graph.edges["h1", "s0"]["rate_bps"] = GBPS
    graph.edges["h2", "s0"]["rate_bps"] = 2 * GBPS

    assert bisection_bps(graph) == 3 * GBPS


def test_large_leaf_spine_is_exact() -> None:
    assert bisection_bps(leaf_spine(32, 16, 64, UPLINK, UPLINK)) == 16 * 16 * 400 * GBPS


def test_large_irregular_graph_is_unknown() -> None:
    """Fifteen switches in a chain, no two alike, have 2**15 divisions."""
    graph = star(1, LINK)
    for index in range(1, 15):
        add_switch(graph, f"s{index}", tier=2, profile="plain")
        add_link(graph, f"s{index}", f"s{index - 1}", LINK)

    assert bisection_bps(graph) is None
    assert measure(graph).switches_count == 15
