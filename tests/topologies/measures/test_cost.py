"""Parts of a topology, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import networkx as nx
import pytest

from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph
from netfold.topologies.kinds.leaf_spine import leaf_spine
from netfold.topologies.measures import measure
from netfold.topologies.measures.cost import (
    ACROSS_HALL,
    BY_DELAY,
    BY_TIER,
    WITHIN_RACK,
    WITHIN_ROW,
    cost,
    oversubscription,
)
from tests.topologies.graphs import GBPS, LINK, UPLINK
from tests.topologies.measures.known import fat_tree


def test_leaf_spine_by_tier() -> None:
    found = cost(leaf_spine(4, 2, 8, LINK, UPLINK))

    assert found.switches_by_tier == {1: 4, 2: 2}
    assert found.switch_ports_by_rate == {400 * GBPS: 16, 100 * GBPS: 32}
    assert found.host_ports_by_rate == {100 * GBPS: 32}
    assert found.cables == {WITHIN_RACK: {100 * GBPS: 32}, WITHIN_ROW: {400 * GBPS: 8}}
    assert found.length_rule == BY_TIER
    assert (found.switches_count, found.cables_count) == (6, 40)


def test_fat_tree_by_tier() -> None:
    """Inside of a pod are rows; the core is across the hall."""
    found = cost(fat_tree(4))

    assert {length: sum(rates.values()) for length, rates in found.cables.items()} == {
        WITHIN_RACK: 16,
        WITHIN_ROW: 16,
        ACROSS_HALL: 16,
    }


@pytest.mark.parametrize(
    ("delay_ps", "length"),
    [(15_000, WITHIN_RACK), (15_001, WITHIN_ROW), (150_000, WITHIN_ROW), (150_001, ACROSS_HALL)],
)
def test_delays_tell_lengths_apart(delay_ps: int, length: str) -> None:
    """Hosts are within 3 m, so delays count; uplinks just inside and just outside of each class."""
    link, uplink = replace(LINK, delay_ps=10_000), replace(UPLINK, delay_ps=delay_ps)
    found = cost(leaf_spine(2, 1, 2, link, uplink))

    expected = {WITHIN_RACK: {100 * GBPS: 4}}
    expected.setdefault(length, {})[400 * GBPS] = 2
    assert found.cables == expected
    assert found.length_rule == BY_DELAY


def test_long_delays_alone_say_nothing_of_cables() -> None:
    slow = replace(LINK, delay_ps=150_001)

    assert cost(leaf_spine(2, 1, 2, slow, slow)).length_rule == BY_TIER


def servers_with_ports() -> nx.Graph:
    """Two servers with two ports each, to two switches: a port node each, on a link inside of the server."""
    graph = new_graph("ports")
    inside = LinkSpec(rate_bps=10**15, delay_ps=0, buffer_bytes=1)
    for rail in range(2):
        add_switch(graph, f"rail{rail}", tier=2, profile="tofino1")
    for server in range(2):
        add_host(graph, f"h{server}")
        add_switch(graph, f"port{server}", tier=1, profile="plain", server=server)
        add_link(graph, f"h{server}", f"port{server}", inside)
        for rail in range(2):
            add_link(graph, f"port{server}", f"rail{rail}", LINK)
    return graph


def test_the_inside_of_a_server_costs_nothing() -> None:
    graph = servers_with_ports()
    found = cost(graph)

    assert found.switches_by_tier == {2: 2}
    assert found.switch_ports_by_rate == {100 * GBPS: 4}
    assert found.host_ports_by_rate == {100 * GBPS: 4}
    assert found.cables == {WITHIN_RACK: {100 * GBPS: 4}}
    assert oversubscription(graph) == {}
    assert measure(graph).bisection_bps == 200 * GBPS
