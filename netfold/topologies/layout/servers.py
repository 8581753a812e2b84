"""Servers with several ports, as one node each."""

from __future__ import annotations

import networkx as nx

from netfold.topologies.graph import server_ports


def in_one_piece(graph: nx.Graph) -> nx.Graph:
    """The graph with the links of a server's ports at its host, without the node that stands for the ports.

    Such a link has `ends`: the node of the given graph by each of its two nodes here.
    """
    owner = server_ports(graph)
    if not owner:
        return graph
    whole = nx.Graph(**graph.graph)
    whole.add_nodes_from((name, data) for name, data in graph.nodes(data=True) if name not in owner)
    for a, b, data in graph.edges(data=True):
        one, two = owner.get(a, a), owner.get(b, b)
        if one != two:
            whole.add_edge(one, two, **data, ends={one: a, two: b})
    return whole
