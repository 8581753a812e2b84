"""Measures of any graph against networkx, and of published topologies against their closed forms."""

from __future__ import annotations

import time
from itertools import combinations
from math import comb

import networkx as nx
import pytest
from hypothesis import given

from netfold.topologies.graph import hosts, racks, switches
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.kinds.star import star
from netfold.topologies.measures import measure
from tests.examples import examples
from tests.topologies.graphs import LINK, UPLINK, topologies
from tests.topologies.measures.known import fat_tree, on_switches, torus


@given(topologies())
def test_counts_and_distances(graph: nx.Graph) -> None:
    found = measure(graph)
    hops = dict(nx.all_pairs_shortest_path_length(graph))
    names = hosts(graph)
    apart = [hops[a][b] for a, b in combinations(names, 2)]

    assert found.hosts_count == len(names)
    assert found.switches_count == len(graph) - len(names)
    assert found.links_count == sum(dict(graph.degree).values())
    assert found.diameter_hops == max(apart, default=0)
    assert found.mean_hops == (sum(apart) / len(apart) if apart else 0)


@examples(40)
@given(topologies(switches_max=8, hosts_max=6))
def test_path_diversity(graph: nx.Graph) -> None:
    found = measure(graph).diversity
    pairs = list(combinations(racks(graph), 2))
    fabric = graph.subgraph(switches(graph))
    if not pairs:
        assert found is None
        return
    shortest = sorted(len(list(nx.all_shortest_paths(fabric, a, b))) for a, b in pairs)
    middle = len(shortest) // 2

    assert found is not None
    assert found.shortest_min == shortest[0]
    assert found.shortest_median == (shortest[middle] + shortest[~middle]) / 2
    assert found.shortest_max == shortest[-1]
    assert found.disjoint_min == min(nx.edge_connectivity(fabric, a, b) for a, b in pairs)


def test_a_host_alone() -> None:
    found = measure(star(1, LINK))

    assert (found.diameter_hops, found.mean_hops, found.diversity, found.bisection_bps) == (0, 0, None, 0)


@pytest.mark.parametrize("k", [2, 4, 6])
def test_fat_tree(k: int) -> None:
    found = measure(fat_tree(k))

    assert found.hosts_count == k**3 // 4
    assert found.switches_count == 5 * k**2 // 4
    assert found.diameter_hops == 6
    assert found.bisection_bps == k**3 // 8 * LINK.rate_bps
    assert found.oversubscription == {1: 1, 2: 1}
    assert found.diversity is not None
    assert found.diversity.shortest_max == (k // 2) ** 2
    assert found.diversity.disjoint_min == k // 2


@pytest.mark.parametrize("sides", [(16,), (4, 4), (6, 4), (4, 4, 4), (2, 2, 2, 2, 2)])
@pytest.mark.parametrize("with_coordinates", [True, False])
def test_torus_and_hypercube(sides: tuple[int, ...], with_coordinates: bool) -> None:
    """Along the longest side k, two rings of links (one if k is 2) are cut in every line (Dally, 1990)."""
    found = measure(torus(sides, with_coordinates=with_coordinates))
    nodes = found.hosts_count
    longest = max(sides)

    assert found.diameter_hops == sum(side // 2 for side in sides) + 2
    assert found.bisection_bps == (2 if longest > 2 else 1) * nodes // longest * LINK.rate_bps
    assert found.diversity is not None
    assert found.diversity.disjoint_min == sum(2 if side > 2 else 1 for side in sides)


def test_paths_of_a_grid_without_ends() -> None:
    """Across half of an 8 × 8 torus: either way round each side, C(8, 4) orders of four steps each."""
    found = measure(torus((8, 8))).diversity

    assert found is not None
    assert found.shortest_max == 4 * comb(8, 4)


def test_oversubscription_is_by_tier() -> None:
    """Eight hosts of 100G on a leaf with one uplink of 400G; the spines have nothing above them."""
    assert measure(leaf_spine(2, 1, 8, LINK, UPLINK)).oversubscription == {1: 2.0}
    assert measure(star(4, LINK)).oversubscription == {}


@pytest.mark.parametrize("make", [lambda: fat_tree(16), lambda: torus((2048,)), lambda: torus((16, 8, 8))])
def test_large_networks_take_seconds(make: type[nx.Graph]) -> None:
    graph = make()
    began = time.process_time()
    found = measure(graph)

    assert found.bisection_bps is not None
    assert time.process_time() - began < 15  # 1 to 3 s where nothing else runs


def test_random_graph_of_4096_nodes_takes_seconds() -> None:
    """The bisection of a large random graph is known within bounds only."""
    graph = on_switches(nx.random_regular_graph(12, 1024, seed=1), hosts_each=3)
    began = time.process_time()
    found = measure(graph)

    assert len(graph) == 4096
    assert found.bisection_bps is None
    assert 0 < found.bisection.low < found.bisection.high
    assert found.diversity is not None
    assert found.diversity.disjoint_min == 12
    assert time.process_time() - began < 15
