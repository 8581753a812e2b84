"""Star and leaf-spine: the closed forms of their docstrings, and every wrong argument."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.topologies.graph import LinkSpec, TopologyError, hosts, racks, switches
from netfold.topologies.kind import Topology
from netfold.topologies.kinds.leaf_spine import LeafSpine, leaf_spine
from netfold.topologies.kinds.star import Star, star
from netfold.topologies.measures import measure
from netfold.topologies.routing import compile_network, next_links
from tests.topologies.graphs import LINK, UPLINK


@given(st.integers(1, 40))
def test_star(hosts_count: int) -> None:
    graph = star(hosts_count, LINK, profile="tofino1")
    found = measure(graph)

    assert hosts(graph) == [f"h{index}" for index in range(hosts_count)]
    assert graph.nodes["s0"] == {"kind": "switch", "tier": 1, "profile": "tofino1"}
    assert found[:3] == (hosts_count, 1, 2 * hosts_count)
    assert found.diameter_hops == (2 if hosts_count > 1 else 0)
    assert found.bisection_bps == hosts_count // 2 * LINK.rate_bps


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 5))
def test_leaf_spine(leaves: int, spines: int, hosts_per_leaf: int) -> None:
    graph = leaf_spine(leaves, spines, hosts_per_leaf, LINK, UPLINK)
    found = measure(graph)

    assert found.hosts_count == leaves * hosts_per_leaf
    assert found.switches_count == leaves + spines
    assert found.links_count == 2 * leaves * (hosts_per_leaf + spines)
    if leaves > 1:
        assert found.diameter_hops == 4
    if leaves % 2 == 0:
        a_leaf_bps = min(hosts_per_leaf * LINK.rate_bps, spines * UPLINK.rate_bps)
        assert found.bisection_bps == leaves // 2 * a_leaf_bps


@pytest.mark.parametrize(
    "topology",
    [
        Star(hosts=7, rate_bps=10, switch="sharp"),
        LeafSpine(leaves=3, spines=2, hosts_per_leaf=4, uplink_rate_bps=20, delay_ps=5, buffer_bytes=9),
    ],
)
def test_sizes_are_known_before_graphs_are_made(topology: Topology) -> None:
    graph = topology.graph()
    nodes, links, key, _ = topology.size()

    assert (nodes, links) == (graph.number_of_nodes(), 2 * graph.number_of_edges())
    assert hasattr(topology, key)


def test_graphs_carry_the_fields() -> None:
    graph = LeafSpine(leaves=2, spines=1, hosts_per_leaf=1, uplink_rate_bps=20, delay_ps=5).graph()

    assert graph.edges["h0", "leaf0"] == {"rate_bps": 10**11, "delay_ps": 5, "buffer_bytes": 2**24}
    assert graph.edges["leaf1", "spine0"]["rate_bps"] == 20
    assert graph.nodes["spine0"]["profile"] == "tofino1"


def test_leaf_spine_in_full() -> None:
    """Hosts are on leaves in order, leaves have the uplinks, and every spine is a choice between leaves."""
    graph = leaf_spine(2, 3, 2, LINK, UPLINK)
    network = compile_network(graph)
    leaf0, h1, h2 = (network.nodes.index(name) for name in ("leaf0", "h1", "h2"))

    assert switches(graph) == ["leaf0", "leaf1", "spine0", "spine1", "spine2"]
    assert [graph.nodes[name]["tier"] for name in switches(graph)] == [1, 1, 2, 2, 2]
    assert racks(graph) == {"leaf0": ["h0", "h1"], "leaf1": ["h2", "h3"]}
    assert graph.edges["h3", "leaf1"]["rate_bps"] == LINK.rate_bps
    assert graph.edges["leaf1", "spine2"]["rate_bps"] == UPLINK.rate_bps
    assert len(next_links(network, leaf0, h2)) == 3
    assert len(next_links(network, leaf0, h1)) == 1


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "4"])
def test_counts_are_ints_of_at_least_one(count: Any) -> None:
    with pytest.raises(
        TopologyError, match=f"^star: hosts is {re.escape(repr(count))}, must be an int of at least 1$"
    ):
        star(count, LINK)
    arguments = {"leaves": 1, "spines": 1, "hosts_per_leaf": 1}
    for name in arguments:
        text = f"leaf_spine: {name} is {count!r}, must be an int of at least 1"
        with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
            leaf_spine(**(arguments | {name: count}), link=LINK, uplink=UPLINK)


def test_a_generated_graph_is_checked() -> None:
    text = "topology 'star': link 'h0' - 's0': rate_bps is 0, must be an int from 1 to 1000000000000000"
    with pytest.raises(TopologyError, match=f"^{re.escape(text)}$"):
        star(2, LinkSpec(rate_bps=0, delay_ps=0, buffer_bytes=1))
