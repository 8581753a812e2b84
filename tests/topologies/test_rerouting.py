"""Routes round failed links: networkx's shortest paths on what is left, numbered as the whole network."""

from __future__ import annotations

import random

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.topologies.network import compile_network, next_links, rerouted
from tests.examples import examples
from tests.topologies.graphs import KINDS, topologies


def cost(graph: nx.Graph, a: str, b: str) -> int:
    """A hop; links between the groups of a dragonfly count more than all others together."""
    groups = [graph.nodes[name].get("group") for name in (a, b)]
    return 1 if None in groups or groups[0] == groups[1] else 1000


def check(graph: nx.Graph, draw: random.Random, share: float) -> None:
    """Fail each link with some probability, one direction or both."""
    network = compile_network(graph)
    failed = [link for link in range(len(network.link_names)) if draw.random() < share]
    left = graph.copy()
    left.remove_edges_from(
        (network.nodes[network.link_source[link]], network.nodes[network.link_target[link]])
        for link in failed
        if not (network.is_host[network.link_source[link]] or network.is_host[network.link_target[link]])
    )
    routes, number = rerouted(network, graph, failed), {name: row for row, name in enumerate(network.nodes)}
    costs = dict(nx.all_pairs_dijkstra_path_length(left, weight=lambda a, b, _: cost(graph, a, b)))
    for source in filter(lambda name: graph.nodes[name]["kind"] == "switch", graph):
        for target in graph:
            if target in costs[source]:
                links = next_links(routes, number[source], number[target])
                nearer = {network.nodes[network.link_target[link]] for link in links}
                assert nearer == {
                    name
                    for name in left[source]
                    if costs[name][target] + cost(graph, source, name) == costs[source][target]
                }
                continue
            # No path is left: packets come to a failed link, by the first of the links that they took before.
            links = [(next_links(network, number[source], number[target])[0])]
            while left.has_edge(*(network.link_names[links[-1]].split("->"))):
                node = int(network.link_target[links[-1]])
                assert (
                    next_links(routes, node, number[target]) == next_links(network, node, number[target])[:1]
                )
                links += next_links(routes, node, number[target])
                assert len(links) < len(graph)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "wide"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_routes_of_every_kind(kind: str, share: float) -> None:
    check(KINDS[kind](), random.Random(1), share)


@examples(30)
@given(topologies(), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.2, 1.0]))
def test_routes_of_any_graph(graph: nx.Graph, draw: random.Random, share: float) -> None:
    check(graph, draw, share)
