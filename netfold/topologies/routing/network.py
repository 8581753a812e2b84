"""The integer view of a graph: nodes and links as rows of arrays, with its routes."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.topologies.graph import hosts, server_ports, switches, validate
from netfold.topologies.routing.host_links import HostLinks
from netfold.topologies.routing.policies import ECMP, Policy
from netfold.topologies.routing.tables import Tables, check_room, fabric_of
from netfold.topologies.routing.valiant import Detours


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
    profiles: tuple[str, ...]  # of the switches; "" for hosts
    is_host: NDArray[np.bool_]  # (N,)
    island: NDArray[np.int64]  # (N,) of a GPU, the island that it is in; -1: none
    tiers: tuple[int, ...]  # of the switches; 0 for hosts
    server_ports: frozenset[int]  # nodes that stand for the ports of a server
    link_names: tuple[str, ...]  # "h0->s0"
    link_source: NDArray[np.int32]  # (L,) node
    link_target: NDArray[np.int32]  # (L,) node
    rate_bps: NDArray[np.int64]  # (L,)
    delay_ps: NDArray[np.int64]  # (L,)
    buffer_bytes: NDArray[np.int64]  # (L,) of the port at the source; no limit where the source is a host
    policy: Policy
    tables: Tables
    detours: Detours | None  # of policies that have some
    inside: HostLinks | None = None  # links inside hosts, where their work takes time

    def first_link(self, host: int) -> int:
        """The link that packets of a host leave on."""
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
        """Whether a link is inside a host."""
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
    nodes = (*hosts(graph), *switches(graph))
    index = {name: row for row, name in enumerate(nodes)}
    links = sorted((index[a], index[b]) for edge in graph.edges for a, b in (edge, edge[::-1]))
    edges = [graph.edges[nodes[source], nodes[target]] for source, target in links]
    link_source, link_target = np.array(links, dtype=np.int32).T.copy()
    fabric = fabric_of(link_source, link_target, len(hosts(graph)))
    check_room(fabric, room_bytes)
    tables = policy.make_tables(graph, fabric)
    return Network(
        nodes=nodes,
        profiles=tuple(graph.nodes[name]["profile"] for name in nodes),
        tiers=tuple(graph.nodes[name]["tier"] for name in nodes),
        server_ports=frozenset(index[name] for name in server_ports(graph)),
        is_host=np.array([graph.nodes[name]["kind"] == "host" for name in nodes]),
        island=np.array([graph.nodes[name].get("island", -1) for name in nodes], dtype=np.int64),
        link_names=tuple(f"{nodes[source]}->{nodes[target]}" for source, target in links),
        link_source=link_source,
        link_target=link_target,
        rate_bps=np.array([edge["rate_bps"] for edge in edges], dtype=np.int64),
        delay_ps=np.array([edge["delay_ps"] for edge in edges], dtype=np.int64),
        buffer_bytes=np.array([edge["buffer_bytes"] for edge in edges], dtype=np.int64),
        policy=policy,
        tables=tables,
        detours=None if policy.find_detours is None else policy.find_detours(graph, tables),
    )
