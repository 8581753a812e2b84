"""The contract: every property of a valid graph, and the whole text of each error."""

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
from tests.examples import examples
from tests.topologies.graphs import LINK, pair, topologies

Change = Callable[[nx.Graph], object]  # in place, or the graph that it returns


@examples(30)
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


def test_ends_of_the_ranges_are_allowed() -> None:
    graph = pair()
    graph.edges["h0", "s0"].update(rate_bps=1, delay_ps=0, buffer_bytes=1)
    graph.edges["h1", "s0"].update(rate_bps=10**15, delay_ps=10**15, buffer_bytes=2**40)
    validate(graph)


def of_node(name: str, key: str, value: Any, allowed: str) -> tuple[Change, str]:
    """A node's attribute that is wrong."""
    text = f"node {name!r}: {key} is {value!r}, must be {allowed}"
    return lambda graph: graph.nodes[name].update({key: value}), text


def of_link(key: str, value: Any, lowest: int, highest: int) -> tuple[Change, str]:
    """A link's number that is wrong."""
    text = f"link 'h0' - 's0': {key} is {value!r}, must be an int from {lowest} to {highest}"
    return lambda graph: graph.edges["h0", "s0"].update({key: value}), text


def another_switch(graph: nx.Graph, *links: str) -> None:
    add_switch(graph, "s1", tier=1, profile="plain")
    for host in links:
        add_link(graph, host, "s1", LINK)


def two_hosts_linked(graph: nx.Graph) -> None:
    graph.remove_node("s0")
    add_link(graph, "h0", "h1", LINK)


def four_switches_alone(graph: nx.Graph) -> None:
    for name in ("s1", "s2", "s3", "s4"):
        add_switch(graph, name, tier=1, profile="plain")


A_TIER, A_PROFILE = "an int of at least 1 for a switch", "the name of a switch profile, such as 'plain'"
REFUSED: list[tuple[Change, str]] = [
    (lambda graph: add_host(graph, "s0"), "there already is a node 's0'; names must be unique"),
    (lambda graph: add_switch(graph, "s0", 1, "x"), "there already is a node 's0'; names must be unique"),
    (
        lambda graph: add_link(graph, "h0", "s1", LINK),
        "cannot link 'h0' and 's1': there is no node 's1'; add it first",
    ),
    (
        lambda graph: add_link(graph, "s0", "h0", LINK),
        "'s0' and 'h0' are linked already; two nodes have one link each way, "
        "for more capacity raise its rate_bps",
    ),
    *(
        (
            kind,
            f"is a {kind.__name__}, must be an undirected networkx.Graph; "
            "one edge already stands for a link each way",
        )
        for kind in (nx.DiGraph, nx.MultiGraph)
    ),
    (lambda graph: add_link(graph, "s0", "s0", LINK), "node 's0' is linked to itself; remove that link"),
    *(
        (
            lambda graph, name=name: nx.relabel_nodes(graph, {"s0": name}),  # type: ignore[misc]
            f"{name!r} cannot name a node; use a non-empty string without '->'",
        )
        for name in ("", "a->b", 7)
    ),
    *(of_node("s0", "kind", kind, "'host' or 'switch'") for kind in (None, "router", 1)),
    *(of_node("h0", "tier", tier, "0 for a host") for tier in (1, None, False)),
    *(of_node("s0", "tier", tier, A_TIER) for tier in (0, None, 1.0, True)),
    of_node("h0", "profile", "plain", "'' for a host"),
    *(of_node("s0", "profile", profile, A_PROFILE) for profile in ("", None)),
    *(of_link("rate_bps", rate, 1, 10**15) for rate in (None, 0, 1e11, "100Gbps", 10**15 + 1)),
    *(of_link("delay_ps", delay, 0, 10**15) for delay in (-1, 10**15 + 1)),
    *(of_link("buffer_bytes", size, 1, 2**40) for size in (0, True)),
    (
        lambda graph: graph.remove_nodes_from(["h0", "h1"]),
        "has no host; add at least one and link it to a switch",
    ),
    (
        lambda graph: another_switch(graph, "h1"),
        "host 'h1' has 2 links (to ['s0', 's1']), must have exactly one, to a switch",
    ),
    (
        lambda graph: graph.remove_edge("h1", "s0"),
        "host 'h1' has 0 links (to []), must have exactly one, to a switch",
    ),
    (two_hosts_linked, "host 'h0' is linked to host 'h1', must be linked to a switch"),
    (another_switch, "1 of 4 nodes cannot be reached from 'h0' ('s1'); link them or remove them"),
    (
        four_switches_alone,
        "4 of 7 nodes cannot be reached from 'h0' ('s1', 's2', 's3', …); link them or remove them",
    ),
]


@pytest.mark.parametrize(("change", "text"), REFUSED)
def test_a_graph_that_breaks_the_contract_is_refused(change: Change, text: str) -> None:
    def changed() -> nx.Graph:
        graph = pair()
        found = change(graph)
        return found if isinstance(found, nx.Graph) else graph

    whole = re.escape(f"topology 'pair': {text}")
    with pytest.raises(TopologyError, match=f"^{whole}$"):
        validate(changed())


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
