"""The compiled view equals the graph, and its routes are all shortest paths."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.kernels.keyed import splitmix64_plain
from netfold.topologies.graph import TopologyError, hosts, switches
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.routing import Network, compile_network, next_links, path
from netfold.topologies.routing.tables import room_needed
from tests.examples import examples
from tests.topologies.fabrics import KINDS, cost, on_switches, torus
from tests.topologies.graphs import LINK, UPLINK, pair, topologies


@examples(30)
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
    int32 = (network.link_source, network.link_target, network.tables.sets, network.tables.first_set)
    int64 = (network.rate_bps, network.delay_ps, network.buffer_bytes)
    uint16 = (network.tables.choice, network.tables.ports)
    assert {array.dtype for array in int32} == {np.dtype(np.int32)}
    assert {array.dtype for array in int64} == {np.dtype(np.int64)}
    assert {array.dtype for array in uint16} == {np.dtype(np.uint16)}
    assert all(array.flags.c_contiguous for array in int32 + int64 + uint16)


@examples(30)
@given(topologies())
def test_choices_are_exactly_the_first_links_of_shortest_paths(graph: nx.Graph) -> None:
    check_next_links(graph)


@pytest.mark.parametrize("kind", KINDS)
def test_choices_of_every_kind(kind: str) -> None:
    check_next_links(KINDS[kind]())


def check_next_links(graph: nx.Graph) -> None:
    """What networkx says of the neighbours that are nearer to the target."""
    network = compile_network(graph)
    number = {name: link for link, name in enumerate(network.link_names)}
    weigh = cost(graph)
    costs = dict(nx.all_pairs_dijkstra_path_length(graph, weight=weigh))
    for node, source in enumerate(network.nodes):
        for other, target in enumerate(network.nodes):
            left = {name: costs[source][target] - weigh(source, name, {}) for name in graph[source]}
            nearer = [name for name in graph[source] if costs[name][target] == left[name]]

            assert next_links(network, node, other) == sorted(number[f"{source}->{name}"] for name in nearer)


@examples(30)
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


@examples(30)
@given(topologies(), st.integers(-(2**31), 2**31 - 1))
def test_a_path_takes_the_link_that_its_key_names_at_every_node(graph: nx.Graph, key: int) -> None:
    """A planned key names it, any other one is hashed with the node."""
    network = compile_network(graph)
    for source in range(len(network.nodes)):
        for target in range(len(network.nodes)):
            for link in path(network, source, target, key):
                node = int(network.link_source[link])
                choices = next_links(network, node, target)
                number = splitmix64_plain(key * 2**32 + node) if key >= 0 else -1 - key

                assert link == choices[number % len(choices)]


def test_routes_do_not_depend_on_the_order_of_links() -> None:
    graph = leaf_spine(2, 2, 2, LINK, UPLINK)
    shuffled = nx.Graph(name=graph.name)
    shuffled.add_nodes_from(graph.nodes(data=True))
    shuffled.add_edges_from(reversed(list(graph.edges(data=True))))

    assert all_choices(compile_network(graph)) == all_choices(compile_network(shuffled))


def all_choices(network: Network) -> list[list[int]]:
    nodes = range(len(network.nodes))
    return [next_links(network, node, target) for node in nodes for target in nodes]


def test_a_broken_graph_is_not_compiled() -> None:
    graph = pair()
    graph.remove_edge("h0", "s0")
    with pytest.raises(TopologyError, match="host 'h0' has 0 links"):
        compile_network(graph)


def test_memory_grows_with_the_square_of_the_switches_and_not_with_the_hosts() -> None:
    sizes = {
        (switches, hosts): compile_network(torus((switches // 8, 8), hosts)).tables.size_bytes
        for switches, hosts in ((64, 1), (64, 8), (512, 1))
    }

    assert sizes[64, 8] == sizes[64, 1]
    assert 2 * 512**2 < sizes[512, 1] < 3 * 512**2


def test_compiling_takes_no_more_than_was_estimated() -> None:
    """Peak of what NumPy allocates for the tables, of sparse and of dense sets."""
    for graph in (torus((16, 16)), on_switches(nx.random_regular_graph(12, 256, seed=1))):
        fabric = compile_network(graph).tables.fabric
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        tables = compile_network(graph).policy.make_tables(graph, fabric)
        peak = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()

        assert tables.size_bytes <= room_needed(fabric)
        assert peak < 3 * room_needed(fabric) + 2**20  # graph and names among it


def test_routes_that_exceed_the_memory_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """3 × 3 leaves and spines: 6 switches of 3 ports each, so up to 6 sets each (2³ − 1 = 7 subsets)."""
    graph = leaf_spine(3, 3, 2, LINK, UPLINK)
    needed = 2 * 36 + 6 * 6 * (8 + 2 * 3) + 6 * (2 * 18 + 4 * 6) // 8

    assert compile_network(graph, needed).tables.choice.shape == (6, 6)
    monkeypatch.setattr(
        "netfold.topologies.routing.shortest.ports_nearer", lambda fabric: pytest.fail("it was made")
    )
    with pytest.raises(TopologyError, match=r"the routes between 6 switches take up to .* GiB"):
        compile_network(graph, needed - 1)
