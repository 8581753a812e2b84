"""All hosts on one switch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

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
from netfold.topologies.kind import Counts, Facts, Generated, count


@dataclass(frozen=True, kw_only=True)
class Star(Generated):
    """All hosts on one switch."""

    kind: ClassVar[str] = "star"
    growing: ClassVar[tuple[str, ...]] = ("hosts",)

    hosts: int = count("Number of hosts: h0, h1, …")

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        yield cls(hosts=hosts, **links)

    def counts(self) -> Counts:
        """One switch, a link each way for each host."""
        return Counts(self.hosts, 1, 2 * self.hosts)

    def facts(self) -> Facts:
        diameter = 2 if self.hosts > 1 else 0
        return Facts(*self.counts(), diameter, self.hosts // 2 * self.rate_bps, 1)

    def graph(self) -> nx.Graph:
        """The graph, with its one switch s0."""
        return star(self.hosts, self.link(), self.switch)


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
