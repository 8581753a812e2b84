"""All hosts on one switch."""

from __future__ import annotations

import networkx as nx

from netfold.topologies.graph import (
    LinkSpec,
    add_host,
    add_link,
    add_switch,
    check_counts,
    new_graph,
    validate,
)


def star_size(hosts: int) -> tuple[int, int]:
    """Nodes, and links in both directions, that `star` makes."""
    return hosts + 1, 2 * hosts


def star(hosts: int, link: LinkSpec, profile: str = "plain") -> nx.Graph:
    """Hosts h0 … on the switch s0.

    With n hosts: 2n links (both directions counted), diameter 2 hops, bisection ⌊n/2⌋ · link.rate_bps.

    Raises
    ------
    TopologyError
        `hosts` is not an int of at least 1, or the link or the profile breaks the contract.
    """
    check_counts("star", hosts=hosts)
    graph = new_graph("star")
    names = [f"h{index}" for index in range(hosts)]
    for name in names:
        add_host(graph, name)
    add_switch(graph, "s0", tier=1, profile=profile)
    for name in names:
        add_link(graph, name, "s0", link)
    validate(graph)
    return graph
