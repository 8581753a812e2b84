"""The contract: one test for each property and the whole text of its error."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
from hypothesis import given

from netfold.topologies.files.node_link import from_json, to_json
from netfold.topologies.graph import (
    PORT_LINK,
    TopologyError,
    add_host,
    add_link,
    add_server,
    add_switch,
    hosts,
    new_graph,
    racks,
    server_ports,
    switches,
    validate,
)
from tests.topologies.graphs import LINK, pair, topologies


def refused(text: str, graph: nx.Graph) -> None:
    with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
        validate(graph)


@given(topologies())
def test_random_graphs_are_valid(graph: nx.Graph) -> None:
    validate(graph)


def test_order_is_the_order_of_insertion() -> None:
    graph = pair()
    add_switch(graph, "a", tier=2, profile="tofino1")
    add_host(graph, "b")
    add_link(graph, "b", "a", LINK)

    assert hosts(graph) == ["h0", "h1", "b"]
    assert switches(graph) == ["s0", "a"]
    assert racks(graph) == {"s0": ["h0", "h1"], "a": ["b"]}


def test_an_edge_carries_the_link() -> None:
    assert pair().edges["s0", "h1"] == {"rate_bps": 100 * 10**9, "delay_ps": 10**6, "buffer_bytes": 2**18}


@pytest.mark.parametrize(
    "add", [lambda graph: add_host(graph, "s0"), lambda graph: add_switch(graph, "s0", 1, "plain")]
)
def test_a_name_is_used_once(add: Callable[[nx.Graph], None]) -> None:
    with pytest.raises(
        TopologyError, match=r"^topology 'pair': there already is a node 's0'; names must be unique$"
    ):
        add(pair())


def test_a_link_needs_its_nodes() -> None:
    text = "topology 'pair': cannot link 'h0' and 's1': there is no node 's1'; add it first"
    with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
        add_link(pair(), "h0", "s1", LINK)


def test_two_nodes_are_linked_once() -> None:
    text = (
        "topology 'pair': 's0' and 'h0' are linked already; two nodes have one link each way, "
        "for more capacity raise its rate_bps"
    )
    with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
        add_link(pair(), "s0", "h0", LINK)


@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_graph_is_undirected_and_simple(kind: type[nx.Graph]) -> None:
    text = (
        f"topology 'pair': is a {kind.__name__}, must be an undirected networkx.Graph; "
        "one edge already stands for a link each way"
    )
    refused(text, kind(pair()))


def test_no_node_is_linked_to_itself() -> None:
    graph = pair()
    add_link(graph, "s0", "s0", LINK)
    refused("topology 'pair': node 's0' is linked to itself; remove that link", graph)


@pytest.mark.parametrize("name", ["", "a->b", 7, ("s", 0)])
def test_names_are_strings_without_arrow(name: Any) -> None:
    graph = nx.relabel_nodes(pair(), {"s0": name})
    refused(f"topology 'pair': {name!r} cannot name a node; use a non-empty string without '->'", graph)


@pytest.mark.parametrize("kind", [None, "router", 1])
def test_every_node_has_a_kind(kind: Any) -> None:
    graph = pair()
    graph.nodes["s0"]["kind"] = kind
    refused(f"topology 'pair': node 's0': kind is {kind!r}, must be 'host' or 'switch'", graph)


@pytest.mark.parametrize(
    ("name", "tier", "allowed"),
    [
        ("h0", 1, "0 for a host"),
        ("h0", None, "0 for a host"),
        ("h0", False, "0 for a host"),
        ("s0", 0, "an int of at least 1 for a switch"),
        ("s0", None, "an int of at least 1 for a switch"),
        ("s0", 1.0, "an int of at least 1 for a switch"),
        ("s0", True, "an int of at least 1 for a switch"),
    ],
)
def test_every_node_has_a_tier(name: str, tier: Any, allowed: str) -> None:
    graph = pair()
    graph.nodes[name]["tier"] = tier
    refused(f"topology 'pair': node {name!r}: tier is {tier!r}, must be {allowed}", graph)


@pytest.mark.parametrize(
    ("name", "profile", "allowed"),
    [
        ("h0", "plain", "'' for a host"),
        ("h0", None, "'' for a host"),
        ("s0", "", "the name of a switch profile, such as 'plain'"),
        ("s0", None, "the name of a switch profile, such as 'plain'"),
    ],
)
def test_every_node_has_a_profile(name: str, profile: Any, allowed: str) -> None:
    graph = pair()
    graph.nodes[name]["profile"] = profile
    refused(f"topology 'pair': node {name!r}: profile is {profile!r}, must be {allowed}", graph)


@pytest.mark.parametrize(
    ("key", "value", "lowest", "highest"),
    [
        ("rate_bps", None, 1, 1_000_000_000_000_000),
        ("rate_bps", 0, 1, 1_000_000_000_000_000),
        ("rate_bps", 1e11, 1, 1_000_000_000_000_000),
        ("rate_bps", "100Gbps", 1, 1_000_000_000_000_000),
        ("rate_bps", 10**15 + 1, 1, 1_000_000_000_000_000),
        ("delay_ps", -1, 0, 1_000_000_000_000_000),
        ("delay_ps", 10**15 + 1, 0, 1_000_000_000_000_000),
        ("buffer_bytes", 0, 1, 1_099_511_627_776),
        ("buffer_bytes", True, 1, 1_099_511_627_776),
    ],
)
def test_every_edge_has_numbers_in_range(key: str, value: Any, lowest: int, highest: int) -> None:
    graph = pair()
    graph.edges["h0", "s0"][key] = value
    refused(
        f"topology 'pair': link 'h0' - 's0': {key} is {value!r}, must be an int from {lowest} to {highest}",
        graph,
    )


def test_ends_of_the_ranges_are_allowed() -> None:
    graph = pair()
    graph.edges["h0", "s0"].update(rate_bps=1, delay_ps=0, buffer_bytes=1)
    graph.edges["h1", "s0"].update(rate_bps=10**15, delay_ps=10**15, buffer_bytes=2**40)
    validate(graph)


def test_there_is_a_host() -> None:
    graph = pair()
    graph.remove_nodes_from(["h0", "h1"])
    refused("topology 'pair': has no host; add at least one and link it to a switch", graph)


def test_a_host_has_exactly_one_edge() -> None:
    graph = pair()
    add_switch(graph, "s1", tier=1, profile="plain")
    add_link(graph, "h1", "s1", LINK)
    refused(
        "topology 'pair': host 'h1' has 2 links (to ['s0', 's1']), must have exactly one, to a switch", graph
    )

    graph.remove_edges_from([("h1", "s0"), ("h1", "s1")])
    refused("topology 'pair': host 'h1' has 0 links (to []), must have exactly one, to a switch", graph)


def test_a_host_is_linked_to_a_switch() -> None:
    graph = pair()
    graph.remove_node("s0")
    add_link(graph, "h0", "h1", LINK)
    refused("topology 'pair': host 'h0' is linked to host 'h1', must be linked to a switch", graph)


def test_every_node_can_be_reached() -> None:
    graph = pair()
    add_switch(graph, "s1", tier=1, profile="plain")
    refused(
        "topology 'pair': 1 of 4 nodes cannot be reached from 'h0' ('s1'); link them or remove them", graph
    )

    for name in ("s2", "s3", "s4"):
        add_switch(graph, name, tier=1, profile="plain")
    refused(
        "topology 'pair': 4 of 7 nodes cannot be reached from 'h0' ('s1', 's2', 's3', …); "
        "link them or remove them",
        graph,
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("h0", "host 'h0' has `server`, and links to 0 hosts and 1 switches; "),
        ("s0", "switch 's0' has `server`, and links to 2 hosts and 0 switches; "),
    ],
)
def test_the_ports_of_a_server_have_one_host_and_a_way_out(name: str, words: str) -> None:
    graph = pair()
    graph.nodes[name]["server"] = 0

    with pytest.raises(TopologyError, match=words):
        validate(graph)


def test_a_server_is_marked_in_files_too() -> None:
    graph = new_graph("servers")
    for number in range(2):
        add_server(graph, f"h{number}", f"port{number}")
    add_link(graph, "port0", "port1", PORT_LINK)
    read = from_json(to_json(graph))

    assert server_ports(read) == server_ports(graph) == {"port0": "h0", "port1": "h1"}
