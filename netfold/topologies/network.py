"""The integer view of a graph: nodes and links as rows of arrays, with its routes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.topologies.ecmp import way_of_plain
from netfold.topologies.graph import hosts, server_ports, switches, validate
from netfold.topologies.routing import (
    ECMP,
    Detours,
    Policy,
    Steering,
    Tables,
    check_room,
    detour,
    fabric_of,
    first_ports,
)

# Links inside hosts: a host's work on packets, before its wire on the way out, behind it on the way in.
#
# A host with work has two links of its own. A packet that it sends passes the first, then the host's wire;
# one that it receives passes the wire, then the second. Both lead from the host to itself, come after all
# links of the graph, and change no route: paths between hosts have them at their ends.


NO_LINK = -1


class HostWork(NamedTuple):
    """What one direction of a host takes: a packet of B bytes occupies it `packet_ps` + 8·B / `rate_bps`."""

    name: str
    """Name of the link."""
    rate_bps: int
    packet_ps: int = 0
    """Time for each packet."""
    message_ps: int = 0
    """Further time for the first packet of a message, where it is sent."""
    delay_ps: int = 0
    """Time until the packet goes on; others may be worked on meanwhile."""


@dataclass(frozen=True, eq=False)
class HostLinks:
    """The links inside the hosts of a network, with H hosts and L links, these among them."""

    send: NDArray[np.int32]  # (H,) link; −1 of a host whose work takes no time
    receive: NDArray[np.int32]  # (H,)
    packet_ps: NDArray[np.int64]  # (L,) 0 of all other links
    message_ps: NDArray[np.int64]  # (L,)


def with_host_links(network: Network, work: Mapping[int, tuple[HostWork, HostWork]]) -> Network:
    """The network with links inside some hosts, by node: what sending takes, and what receiving takes.

    Raises
    ------
    ValueError
        The network has links inside hosts already, one of the nodes is no host, or receiving has a time for
        messages.
    """
    if network.inside is not None:
        raise ValueError("this network has links inside hosts already")
    if not work:
        return network
    nodes = sorted(work)
    if not all(network.is_host[node] for node in nodes):
        raise ValueError(f"nodes {nodes} must be hosts")
    if any(receiving.message_ps for _, receiving in work.values()):
        raise ValueError("a message takes time where it is sent, not where it is received")
    host_links = [(node, link) for node in nodes for link in work[node]]
    owners = np.array([node for node, _ in host_links], np.int32)
    links_before, hosts = len(network.link_names), int(network.is_host.sum())
    rows = links_before + np.arange(len(host_links), dtype=np.int32)
    send, receive = np.full(hosts, NO_LINK, np.int32), np.full(hosts, NO_LINK, np.int32)
    send[nodes], receive[nodes] = rows[0::2], rows[1::2]
    nothing = np.zeros(links_before, np.int64)
    return replace(
        network,
        link_names=(*network.link_names, *(link.name for _, link in host_links)),
        link_source=np.append(network.link_source, owners),
        link_target=np.append(network.link_target, owners),
        rate_bps=np.append(network.rate_bps, np.array([link.rate_bps for _, link in host_links], np.int64)),
        delay_ps=np.append(network.delay_ps, np.array([link.delay_ps for _, link in host_links], np.int64)),
        buffer_bytes=np.append(network.buffer_bytes, np.zeros(len(host_links), np.int64)),
        inside=HostLinks(
            send,
            receive,
            np.append(nothing, np.array([link.packet_ps for _, link in host_links], np.int64)),
            np.append(nothing, np.array([link.message_ps for _, link in host_links], np.int64)),
        ),
    )


@dataclass(frozen=True, eq=False)
class Network:
    """The integer view of a valid graph, with N nodes and L links. Holding one means that:

    - nodes are the hosts, then the switches, each in the graph's order; a node's index is its row;
    - links are one direction each, two for every edge, sorted by source, then target; so the link out of
      host i is link i. Links from a node to itself may follow: those inside hosts, then loopback links;
    - every node, switches too, can be a target (see `next_links` and `path`), and no path passes through a
      host.
    """

    nodes: tuple[str, ...]
    profiles: tuple[str, ...]
    """Profiles of the switches; "" for hosts."""
    is_host: NDArray[np.bool_]  # (N,)
    island: NDArray[np.int64]  # (N,) of a GPU, the island that it is in; -1: none
    tiers: tuple[int, ...]
    """Tiers of the switches; 0 for hosts."""
    server_ports: frozenset[int]  # nodes that stand for the ports of a server
    link_names: tuple[str, ...]  # "h0->s0"
    link_source: NDArray[np.int32]  # (L,) node
    link_target: NDArray[np.int32]  # (L,) node
    rate_bps: NDArray[np.int64]  # (L,)
    delay_ps: NDArray[np.int64]  # (L,)
    buffer_bytes: NDArray[np.int64]  # (L,) of the port at the source; no limit where the source is a host
    policy: Policy
    tables: Tables
    detours: Detours | None
    """Detours that the policy makes; None if it makes none."""
    inside: HostLinks | None = None  # links inside hosts, where their work takes time

    def first_link(self, host: int) -> int:
        return host if self.inside is None or self.inside.send[host] < 0 else int(self.inside.send[host])

    def last_link(self, host: int) -> int:
        """The link that packets to a host arrive on."""
        if self.inside is None or self.inside.receive[host] < 0:
            return int(self.tables.fabric.down_link[host])
        return int(self.inside.receive[host])

    def work_ps(self, link: int, *, starts_message: bool = False) -> int:
        """What a packet takes on a link besides its bytes; more than 0 only inside a host."""
        if self.inside is None or link >= self.inside.packet_ps.size:
            return 0
        return int(self.inside.packet_ps[link]) + starts_message * int(self.inside.message_ps[link])

    def is_inside(self, link: int) -> bool:
        return bool(self.link_source[link] == self.link_target[link] and self.is_host[self.link_source[link]])


def compile_network(graph: nx.Graph, room_bytes: int | None = None, policy: Policy = ECMP) -> Network:
    """Integer view of a graph, with the routes of a policy, in at most `room_bytes` of memory.

    Equal cost means equal hop count. For S switches, L links between them and a diameter of D hops, the
    tables take 2 · S² bytes and some for sets of links, and O(D · L · S / 64 + S² log S) operations in
    NumPy.

    Raises
    ------
    TopologyError
        The graph breaks the contract (see `topologies.graph.validate`), its routes take more than
        `room_bytes`, or the policy is not for such a graph.
    """
    validate(graph)
    hosts_count, nodes = len(hosts(graph)), (*hosts(graph), *switches(graph))
    index = {name: row for row, name in enumerate(nodes)}
    data = [graph.nodes[name] for name in nodes]
    ends = np.array([(index[a], index[b]) for a, b in graph.edges], np.int32)
    both_ways = np.concatenate([ends, ends[:, ::-1]])
    order = np.lexsort((both_ways[:, 1], both_ways[:, 0]))
    link_source, link_target = both_ways[order].T.copy()
    edges = [edge for _, _, edge in graph.edges(data=True)]

    def of_links(key: str) -> NDArray[np.int64]:
        return np.tile(np.array([edge[key] for edge in edges], np.int64), 2)[order]

    fabric = fabric_of(link_source, link_target, hosts_count)
    check_room(fabric, room_bytes)
    tables = policy.make_tables(graph, fabric)
    return Network(
        nodes=nodes,
        profiles=tuple(node["profile"] for node in data),
        tiers=tuple(node["tier"] for node in data),
        server_ports=frozenset(index[name] for name in server_ports(graph)),
        is_host=np.arange(len(nodes)) < hosts_count,
        island=np.array([node.get("island", -1) for node in data], dtype=np.int64),
        link_names=tuple(
            f"{nodes[source]}->{nodes[target]}"
            for source, target in zip(link_source.tolist(), link_target.tolist(), strict=True)
        ),
        link_source=link_source,
        link_target=link_target,
        rate_bps=of_links("rate_bps"),
        delay_ps=of_links("delay_ps"),
        buffer_bytes=of_links("buffer_bytes"),
        policy=policy,
        tables=tables,
        detours=None if policy.find_detours is None else policy.find_detours(graph, tables),
    )


# Routes on what is left of a network when links have failed, with the numbers of the whole network.


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


# Paths of flows, for all who need to know them without sending packets.


def next_links(network: Network, node: int, target: int) -> list[int]:
    """Links out of a node on the ways to a target, in order of index; none where they are the same."""
    tables, fabric = network.tables, network.tables.fabric
    if node == target:
        return []
    switch = node - fabric.hosts_count
    if switch < 0:
        return [node]  # a host's only link has its number
    home = int(fabric.home[target])
    if home == switch:
        return [int(fabric.down_link[target])]
    first, number = int(fabric.first_link[switch]), int(tables.choice[switch, home])
    several = number - int(fabric.degrees[switch])
    if several < 0:
        return [first + number]
    begin, count = tables.sets[int(tables.first_set[switch]) + several].tolist()
    return [first + port for port in tables.ports[begin : begin + count].tolist()]


def path(network: Network, source: int, target: int, key: int) -> list[int]:
    # ECMP: the hash of the key decides at every node, as in `next_link` of the engine's `links.py`. Links
    # inside the two hosts come first and last. The key of a sprayed packet is its entropy.
    out, into = _ends(network, source, target)
    return [*out, *_between(network, source, target, key), *into]


def nodes_of(network: Network, links: Sequence[int]) -> list[int]:
    # Links inside hosts lead nowhere.
    return [int(network.link_target[link]) for link in links if not network.is_inside(link)]


def _ends(network: Network, source: int, target: int) -> tuple[list[int], list[int]]:
    """The links of a path inside its source, and inside its target, where these are hosts with some."""
    if source == target or network.inside is None:
        return [], []
    send, receive = network.inside.send, network.inside.receive
    out = [int(send[source])] if network.is_host[source] and send[source] >= 0 else []
    return out, [int(receive[target])] if network.is_host[target] and receive[target] >= 0 else []


def _between(network: Network, source: int, target: int, key: int) -> list[int]:
    """The links of a path outside hosts."""
    between = detour_of(network, source, target, key)
    if between < 0:
        return _walk(network, source, target, key)
    return [*_walk(network, source, between, key), *_walk(network, between, target, key)]


def shares(network: Network, source: int, target: int, key: int) -> dict[int, float]:
    # How often each link carries a packet, in the mean: sprayed packets divide evenly at every node.
    if not (network.policy.is_sprayed and _is_steered(network, source, target)):
        return dict(Counter(path(network, source, target, key)))
    return equal_shares(network, source, target)


def equal_shares(network: Network, source: int, target: int) -> dict[int, float]:
    """The share of packets on each link of all equal paths, if they divide evenly at every node."""
    link_shares: dict[int, float] = {}
    shares: dict[int, float] = {source: 1}
    while target not in shares:  # all paths are equally long
        following: defaultdict[int, float] = defaultdict(float)
        for node, share in shares.items():
            links = next_links(network, node, target)
            for link in links:
                link_shares[link] = share / len(links)
                following[int(network.link_target[link])] += share / len(links)
        shares = following
    out, into = _ends(network, source, target)
    return link_shares | dict.fromkeys((*out, *into), 1.0)


def detour_of(network: Network, source: int, target: int, key: int) -> int:
    """The intermediate switch that a flow's policy sends it to; -1 if there is none."""
    is_detoured = network.policy.steering is Steering.DETOURED
    if not is_detoured or network.detours is None or not _is_steered(network, source, target):
        return -1
    return detour(network.detours, network.tables.fabric, source, target, key)


def _is_steered(network: Network, source: int, target: int) -> bool:
    # Policies are for traffic between hosts.
    return bool(network.is_host[source] and network.is_host[target])


def _walk(network: Network, source: int, target: int, key: int) -> list[int]:
    links: list[int] = []
    node = source
    while node != target:
        choices = next_links(network, node, target)
        is_sent_here = len(links) == 1 and network.is_host[source] and node in network.server_ports
        ways = -len(choices) if is_sent_here else len(choices)
        links.append(choices[way_of_plain(key, node, ways)])
        node = int(network.link_target[links[-1]])
    return links
