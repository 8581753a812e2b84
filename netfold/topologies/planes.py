"""Several planes: hosts with a port on each of several equal networks that are not linked to each other."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx

from netfold.topologies.graph import (
    LinkSpec,
    add_link,
    add_server,
    add_switch,
    hosts,
    new_graph,
    server_ports,
    validate,
)
from netfold.topologies.kind import Facts, ParameterError, Size, Topology


@dataclass(frozen=True)
class Planes:
    """Copies of a topology that share its hosts: each host has one port on every plane.

    A host is a server of several ports (`graph.add_server`), so the channels of a collective take the ports
    in turn. Switch `spine1` of plane 0 is `p0.spine1`, the ports of host `h3` are `h3nic`. Hosts have the
    name of their first switch as `rack`.
    """

    plane: Topology
    count: int

    @property
    def kind(self) -> str:
        return self.plane.kind

    def size(self) -> Size:
        plane, plane_hosts = self.plane.size(), self.plane.facts().hosts
        nodes = 2 * plane_hosts + self.count * (plane.nodes - plane_hosts)
        return plane._replace(nodes=nodes, links=2 * plane_hosts + self.count * plane.links)

    def facts(self) -> Facts:
        """As of one plane, whose links, bisection and paths count as often as there are planes.

        The ports of a host are a switch, and its two links to it are links.
        """
        facts, count = self.plane.facts(), self.count
        return Facts(
            facts.hosts,
            facts.hosts + count * facts.switches,
            2 * facts.hosts + count * facts.links,
            facts.diameter_hops and facts.diameter_hops + 2,
            None if facts.bisection_bps is None else count * facts.bisection_bps,
            None if facts.paths is None else count * facts.paths,
        )

    def graph(self) -> nx.Graph:
        """The graph.

        Raises
        ------
        ParameterError
            The hosts of the topology have several ports already.
        """
        plane = self.plane.graph()
        if server_ports(plane):
            raise ParameterError(
                "planes", f"{self.kind}: hosts have several ports already, so planes must be 1"
            )
        graph, names = new_graph(self.kind), hosts(plane)
        graph.graph.update(plane.graph)
        for host in names:
            places = {key: value for key, value in plane.nodes[host].items() if key not in _CONTRACT}
            first = next(iter(plane.adj[host]))
            add_server(graph, host, _ports(host), **places, rack=f"p0.{first}")
        for number in range(self.count):
            within = {name: f"p{number}.{name}" for name in plane} | {name: _ports(name) for name in names}
            for name, about in plane.nodes(data=True):
                if name not in names:
                    places = {key: value for key, value in about.items() if key not in _CONTRACT}
                    add_switch(graph, within[name], about["tier"], about["profile"], **places)
            for a, b, edge in plane.edges(data=True):
                add_link(graph, within[a], within[b], LinkSpec(**edge))
        validate(graph)
        return graph


_CONTRACT = ("kind", "tier", "profile")


def _ports(host: str) -> str:
    return f"{host}nic"
