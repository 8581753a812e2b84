"""The bisection against its definition: maximum flow over all equal splits of the hosts."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.topologies.graph import LINK_RANGES, add_link, add_switch, hosts
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.measures import bisection
from netfold.topologies.measures.bandwidth import uniform_bound_bps, worst_bound_bps
from netfold.topologies.measures.cuts import cheapest_cut_bps
from netfold.topologies.measures.fabric import distances, fabric_of
from tests.examples import examples
from tests.topologies.graphs import GBPS, LINK, UPLINK, topologies
from tests.topologies.measures.known import fat_tree, on_switches, torus


def by_splits(graph: nx.Graph) -> int:
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
def test_it_is_the_least_flow_over_all_splits(graph: nx.Graph) -> None:
    assert bisection(graph).exact == by_splits(graph)


@examples(60)
@given(topologies(switches_max=8, hosts_max=6))
def test_bounds_hold_the_least_flow(graph: nx.Graph) -> None:
    """Each bound alone, of graphs small enough for the definition."""
    fabric, true_bps = fabric_of(graph), by_splits(graph)

    assert cheapest_cut_bps(graph, fabric) >= true_bps
    if fabric.rate_bps.size:
        hops = distances(fabric)
        assert uniform_bound_bps(fabric, hops) <= true_bps * (1 + 1e-9)
        assert worst_bound_bps(fabric, hops) <= true_bps * (1 + 1e-9)


@examples(20)
@given(st.integers(0, 2**32 - 1))
def test_bounds_alone_hold_the_least_flow(seed: int) -> None:
    """Random regular graphs with nothing interchangeable, without the search of all divisions."""
    fabric = nx.random_regular_graph(3, 8, seed=seed)
    if not nx.is_connected(fabric):
        return
    graph = on_switches(fabric, hosts_each=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("netfold.topologies.measures.bandwidth.by_divisions", lambda graph: None)
        found = bisection(graph)

    assert found.low <= by_splits(graph) <= found.high


@pytest.mark.parametrize(
    ("graph", "expected_bps"),
    [
        (fat_tree(4), 800 * GBPS),
        (fat_tree(4, replace(LINK, rate_bps=25 * GBPS)), 200 * GBPS),
        (torus((4, 4)), 800 * GBPS),
        (leaf_spine(4, 3, 4, LINK, LINK), 600 * GBPS),
        (star(6, LINK), 300 * GBPS),
    ],
)
def test_bounds_meet_without_all_divisions(
    graph: nx.Graph, expected_bps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("netfold.topologies.measures.bandwidth.by_divisions", lambda graph: None)

    assert bisection(graph) == (expected_bps, expected_bps)


def test_odd_leaves_split_one_leaf() -> None:
    """Three leaves of two hosts: one leaf's uplinks, then one host of another leaf, are cheapest to cut."""
    graph = leaf_spine(3, 1, 2, LINK, LINK)

    assert bisection(graph).exact == by_splits(graph) == 200 * GBPS


def test_slow_hosts_change_sides_first() -> None:
    graph = star(4, LINK)
    graph.edges["h1", "s0"]["rate_bps"] = GBPS
    graph.edges["h2", "s0"]["rate_bps"] = 2 * GBPS

    assert bisection(graph).exact == 3 * GBPS


def test_large_leaf_spine_is_exact() -> None:
    assert bisection(leaf_spine(32, 16, 64, UPLINK, UPLINK)).exact == 16 * 16 * 400 * GBPS


def test_fastest_links_do_not_overflow() -> None:
    """2^14 links of 10^15 bps are more than int64 holds."""
    fastest = replace(LINK, rate_bps=LINK_RANGES["rate_bps"][1])
    graph = leaf_spine(128, 128, 2, fastest, fastest)

    assert bisection(graph).exact == 128 * 10**15


def test_an_irregular_graph_has_bounds() -> None:
    """Fifteen switches in a chain, no two alike, have 2**15 divisions; the chain is cut in the middle."""
    graph = star(1, LINK)
    for index in range(1, 15):
        add_switch(graph, f"s{index}", tier=2, profile="plain")
        add_link(graph, f"s{index}", f"s{index - 1}", LINK)

    assert bisection(graph) == (0, 0)  # one host has no other half
