"""The compiled view equals the graph, and its routes are all shortest paths."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.topologies.graph import TopologyError, hosts, switches
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import compile_network, path
from tests.topologies.graphs import LINK, UPLINK, pair, topologies


def test_pair_in_full() -> None:
    network = compile_network(pair())

    assert network.nodes == ("h0", "h1", "s0")
    assert network.profiles == ("", "", "plain")
    assert network.is_host.tolist() == [True, True, False]
    assert network.link_names == ("h0->s0", "h1->s0", "s0->h0", "s0->h1")
    assert network.link_source.tolist() == [0, 1, 2, 2]
    assert network.link_target.tolist() == [2, 2, 0, 1]
    assert network.next_link.tolist() == [[[-1], [0], [0]], [[1], [-1], [1]], [[2], [3], [-1]]]
    assert network.next_count.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]


@given(topologies())
def test_arrays_equal_the_graph(graph: nx.Graph) -> None:
    network = compile_network(graph)

    assert network.nodes == (*hosts(graph), *switches(graph))
    assert list(network.profiles) == [graph.nodes[name]["profile"] for name in network.nodes]
    assert network.is_host.tolist() == [graph.nodes[name]["kind"] == "host" for name in network.nodes]
    ends = list(zip(network.link_source.tolist(), network.link_target.tolist(), strict=True))
    assert ends == sorted(set(ends))
    assert len(ends) == 2 * graph.number_of_edges()
    for link, (source, target) in enumerate(ends):
        edge = graph.edges[network.nodes[source], network.nodes[target]]
        assert network.link_names[link] == f"{network.nodes[source]}->{network.nodes[target]}"
        assert network.rate_bps[link] == edge["rate_bps"]
        assert network.delay_ps[link] == edge["delay_ps"]
        assert network.buffer_bytes[link] == edge["buffer_bytes"]
    int32 = (network.link_source, network.link_target, network.next_link, network.next_count)
    int64 = (network.rate_bps, network.delay_ps, network.buffer_bytes)
    assert {array.dtype for array in int32} == {np.dtype(np.int32)}
    assert {array.dtype for array in int64} == {np.dtype(np.int64)}
    assert all(array.flags.c_contiguous for array in int32 + int64)


@given(topologies())
def test_choices_are_exactly_the_first_links_of_shortest_paths(graph: nx.Graph) -> None:
    network = compile_network(graph)
    number = {name: link for link, name in enumerate(network.link_names)}
    for node, source in enumerate(network.nodes):
        for other, target in enumerate(network.nodes):
            count = network.next_count[node, other]
            choices = network.next_link[node, other].tolist()
            if node == other:
                expected = set()
            else:
                expected = {
                    number[f"{way[0]}->{way[1]}"] for way in nx.all_shortest_paths(graph, source, target)
                }

            assert choices[:count] == sorted(expected)
            assert set(choices[count:]) <= {-1}


@given(topologies(), st.integers(0, 2**64 - 1))
def test_a_path_is_shortest_and_avoids_hosts(graph: nx.Graph, key: int) -> None:
    network = compile_network(graph)
    for source in range(len(network.nodes)):
        for target in range(len(network.nodes)):
            links = path(network, source, target, key)
            inner = network.link_target[links[:-1]]

            assert len(links) == nx.shortest_path_length(graph, network.nodes[source], network.nodes[target])
            assert not network.is_host[inner].any()
            assert all(network.link_target[a] == network.link_source[b] for a, b in pairwise(links))
            assert path(network, source, target, key) == links


def test_keys_reach_every_spine() -> None:
    network = compile_network(leaf_spine(2, 4, 1, LINK, UPLINK))
    h0, h1 = network.nodes.index("h0"), network.nodes.index("h1")
    used = [[network.link_names[link] for link in path(network, h0, h1, key)] for key in range(4)]

    assert used == [["h0->leaf0", f"leaf0->spine{i}", f"spine{i}->leaf1", "leaf1->h1"] for i in range(4)]


def test_routes_do_not_depend_on_the_order_of_links() -> None:
    graph = leaf_spine(2, 2, 2, LINK, UPLINK)
    shuffled = nx.Graph(name=graph.name)
    shuffled.add_nodes_from(graph.nodes(data=True))
    shuffled.add_edges_from(reversed(list(graph.edges(data=True))))

    assert np.array_equal(compile_network(graph).next_link, compile_network(shuffled).next_link)


def test_a_broken_graph_is_not_compiled() -> None:
    graph = pair()
    graph.remove_edge("h0", "s0")
    with pytest.raises(TopologyError, match="host 'h0' has 0 links"):
        compile_network(graph)


def test_a_thousand_nodes() -> None:
    """Size, not speed: hosts have one way, leaves one for each spine, spines one for each leaf."""
    network = compile_network(leaf_spine(16, 4, 64, LINK, UPLINK))
    leaf0, last_host = network.nodes.index("leaf0"), network.nodes.index("h1023")

    assert network.next_link.shape == (1044, 1044, 16)
    assert network.next_count[:1024].max() == 1
    assert network.next_count[leaf0, last_host] == 4


def test_routes_that_exceed_the_memory_are_refused_before_they_are_made() -> None:
    """3 × 3 leaves and spines with 2 hosts a leaf: 12 nodes, 3 equal ways and their number, 4 bytes each."""
    graph = leaf_spine(3, 3, 2, LINK, UPLINK)
    needed = 4 * 12 * 12 * (3 + 1)

    assert compile_network(graph, needed).next_link.shape == (12, 12, 3)
    with pytest.raises(TopologyError, match="the routes of 12 nodes with up to 3 equal ways take"):
        compile_network(graph, needed - 1)
