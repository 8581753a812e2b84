"""Graphs that several tests use."""

from __future__ import annotations

import networkx as nx
from hypothesis import strategies as st

from netfold.topologies.graph import LinkSpec, add_host, add_link, add_switch, new_graph

GBPS = 10**9
LINK = LinkSpec(rate_bps=100 * GBPS, delay_ps=1_000_000, buffer_bytes=262_144)
UPLINK = LinkSpec(rate_bps=400 * GBPS, delay_ps=500_000, buffer_bytes=1_048_576)


def pair() -> nx.Graph:
    """h0 and h1 on s0."""
    graph = new_graph("pair")
    add_host(graph, "h0")
    add_host(graph, "h1")
    add_switch(graph, "s0", tier=1, profile="plain")
    add_link(graph, "h0", "s0", LINK)
    add_link(graph, "h1", "s0", LINK)
    return graph


LINKS = st.builds(
    LinkSpec,
    rate_bps=st.sampled_from([GBPS, 10 * GBPS, 25 * GBPS]),
    delay_ps=st.integers(0, 10**6),
    buffer_bytes=st.integers(1, 10**6),
)


@st.composite
def topologies(draw: st.DrawFn, switches_max: int = 8, hosts_max: int = 8) -> nx.Graph:
    """Any valid graph: a random tree of switches with more links between them, and hosts on any of them.

    Hosts and switches are inserted in mixed order and links in random order.
    """
    switches_count = draw(st.integers(1, switches_max))
    rack_of_host = draw(st.lists(st.integers(0, switches_count - 1), min_size=1, max_size=hosts_max))
    tree = {(draw(st.integers(0, child - 1)), child) for child in range(1, switches_count)}
    pairs = [(a, b) for b in range(switches_count) for a in range(b)]
    more = draw(st.sets(st.sampled_from(pairs))) if pairs else set()
    edges = [(f"s{a}", f"s{b}") for a, b in tree | more]
    edges += [(f"h{host}", f"s{rack}") for host, rack in enumerate(rack_of_host)]

    names = [f"s{index}" for index in range(switches_count)] + [
        f"h{index}" for index in range(len(rack_of_host))
    ]
    graph = new_graph("random")
    for name in draw(st.permutations(names)):
        if name.startswith("h"):
            add_host(graph, name)
        else:
            add_switch(
                graph, name, tier=draw(st.integers(1, 3)), profile=draw(st.sampled_from(["plain", "tofino1"]))
            )
    for a, b in draw(st.permutations(sorted(edges))):
        add_link(graph, a, b, draw(LINKS))
    return graph
