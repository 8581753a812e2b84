"""Two switches with one link between them: the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import networkx as nx

from netfold.topologies.graph import add_host, add_link, add_switch, new_graph, validate
from netfold.topologies.kind import Counts, Facts, Generated, count, like, optional


@dataclass(frozen=True, kw_only=True)
class Dumbbell(Generated):
    """Two switches, each with as many hosts, and one link between them: the bottleneck.

    With n hosts on a side, the hosts' rate r and the bottleneck's b:

    - hosts 2n, switches 2, links 2·(2n + 1) (both directions counted);
    - diameter 3 hops, one path;
    - bisection min(n·r, b): each side is a half, or hosts of both sides are in each half.
    """

    kind: ClassVar[str] = "dumbbell"
    growing: ClassVar[tuple[str, ...]] = ("hosts_per_side",)

    hosts_per_side: int = count("Number of hosts on each switch.")
    bottleneck_rate_bps: int = like("rate_bps", "Rate of the link between the switches; by default `rate`.")
    bottleneck_delay_ps: int | None = optional("Delay of that link; by default `delay`.")

    def counts(self) -> Counts:
        """2n hosts, two switches, 2·(2n + 1) links."""
        return Counts(2 * self.hosts_per_side, 2, 4 * self.hosts_per_side + 2)

    def facts(self) -> Facts:
        bisection = min(self.hosts_per_side * self.rate_bps, self.bottleneck_rate_bps)
        return Facts(*self.counts(), 3, bisection, 1)

    def graph(self) -> nx.Graph:
        """Hosts h0 … on left, the others on right."""
        graph = new_graph(self.kind)
        names = [f"h{index}" for index in range(2 * self.hosts_per_side)]
        for name in names:
            add_host(graph, name)
        for side in ("left", "right"):
            add_switch(graph, side, tier=1, profile=self.switch)
        for index, name in enumerate(names):
            add_link(graph, name, "left" if index < self.hosts_per_side else "right", self.link())
        add_link(graph, "left", "right", self.link(self.bottleneck_rate_bps, self.bottleneck_delay_ps))
        validate(graph)
        return graph
