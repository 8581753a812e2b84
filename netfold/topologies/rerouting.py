"""Routes on what is left of a network when links have failed, with the numbers of the whole network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import networkx as nx
import numpy as np

from netfold.topologies.network import Network
from netfold.topologies.routing import first_ports


def rerouted(network: Network, graph: nx.Graph, failed: Sequence[int]) -> Network:
    """The network with the routes that its policy finds without some links.

    Both links of an edge are left out if either has failed, as with Bidirectional Forwarding Detection (RFC
    5880). Where no path to a switch is left, packets for it and its hosts keep to the first of the shortest
    paths of the whole network, and are lost where it has failed.

    Parameters
    ----------
    network
        With the routes of `graph` as it was built, by a policy that `can_reroute`.
    failed
        Rows of links; routes do not depend on those of hosts.
    """
    whole, fabric = network.tables, network.tables.fabric
    owner = np.repeat(np.arange(fabric.switches_count), fabric.degrees)
    number = np.arange(owner.size) - fabric.first_port[owner]  # of every port at its switch
    ends = np.sort(np.stack([network.link_source, network.link_target], axis=1), axis=1)
    edge = ends[:, 0].astype(np.int64) * len(network.nodes) + ends[:, 1]
    kept = np.flatnonzero(~np.isin(edge[fabric.first_link[owner] + number], edge[[*failed]]))
    counts = np.bincount(owner[kept], minlength=fabric.switches_count)
    first_port = np.append(0, np.cumsum(counts))
    left = fabric._replace(
        degrees=counts.astype(np.int32), first_port=first_port, far_end=fabric.far_end[kept]
    )
    tables, number = network.policy.make_tables(graph, left), number[kept]
    sets_count = np.diff(tables.first_set, append=len(tables.sets))
    choice = np.stack([first_ports(whole, switch) for switch in range(fabric.switches_count)])
    for part in nx.connected_components(nx.Graph(np.stack([owner[kept], left.far_end], axis=1).tolist())):
        targets = np.array(sorted(part))
        for switch in part:
            ports = number[first_port[switch] : first_port[switch + 1]]
            numbers = np.append(ports, fabric.degrees[switch] + np.arange(sets_count[switch]))
            choice[switch, targets] = numbers[tables.choice[switch, targets]]
    np.fill_diagonal(choice, 0)
    set_owner = np.repeat(np.arange(fabric.switches_count), sets_count)
    port_owner = np.repeat(set_owner, tables.sets[:, 1])
    set_ports = number[first_port[port_owner] + tables.ports].astype(np.uint16)
    tables = tables._replace(fabric=fabric, choice=choice.astype(np.uint16), ports=set_ports)
    return replace(network, tables=tables)
