"""What direct networks have in common: every switch has hosts, and links to other switches in one fabric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import factorial, prod
from typing import Any, ClassVar

import networkx as nx

from netfold.topologies.graph import add_host, add_link, add_switch, new_graph, validate
from netfold.topologies.kind import Counts, Facts, Generated, count, like, optional


@dataclass(frozen=True, kw_only=True)
class Direct(Generated):
    """Switches with hosts on each, linked to each other."""

    kind: ClassVar[str]

    hosts_per_switch: int = count("Number of hosts on each switch.", 1)
    fabric_rate_bps: int = like(
        "rate_bps", "Rate of the links between switches; by default that of the host links."
    )
    fabric_delay_ps: int | None = optional("Delay of the links between switches; by default `delay`.")

    def counts_of(self, switches: int, edges: int) -> Counts:
        """The counts, with so many edges between switches."""
        hosts = switches * self.hosts_per_switch
        return Counts(hosts, switches, 2 * (hosts + edges))

    def build(
        self, switches: Mapping[str, Mapping[str, Any]], edges: Iterable[tuple[str, str]], **attributes: Any
    ) -> nx.Graph:
        """The graph of these switches, with their places, and of the edges between them.

        Hosts are h0 …, in the order of their switches.
        """
        graph = new_graph(self.kind)
        graph.graph.update(attributes)
        per_switch = self.hosts_per_switch
        for index in range(len(switches) * per_switch):
            add_host(graph, f"h{index}")
        for number, (name, places) in enumerate(switches.items()):
            add_switch(graph, name, 1, self.switch, **places)
            for index in range(number * per_switch, (number + 1) * per_switch):
                add_link(graph, f"h{index}", name, self.link())
        fabric = self.link(self.fabric_rate_bps, self.fabric_delay_ps)
        for one, other in edges:
            add_link(graph, one, other, fabric)
        validate(graph)
        return graph

    def torus_counts(self, dimensions: Sequence[int]) -> Counts:
        """Counts of a torus: two neighbours in each dimension, one where it has two switches."""
        switches = prod(dimensions)
        return self.counts_of(switches, sum(switches if size > 2 else switches // 2 for size in dimensions))

    def torus_facts(self, dimensions: Sequence[int]) -> Facts:
        """Closed forms of a torus, see `topologies.kinds.torus`."""
        counts = self.torus_counts(dimensions)
        hops = [size // 2 for size in dimensions]
        two_ways = sum(size > 2 and size % 2 == 0 for size in dimensions)
        paths = factorial(sum(hops)) // prod(map(factorial, hops)) * 2**two_ways
        slowest = max(dimensions, key=_load)
        bisection = None
        if slowest % 2 == 0:
            cut = Fraction(counts.switches) / (4 * _load(slowest))
            bisection = min(counts.hosts // 2 * self.rate_bps, int(cut) * self.fabric_rate_bps)
        return Facts(*counts, sum(hops) + 2, bisection, paths)

    def torus(self, dimensions: Sequence[int], separator: str) -> nx.Graph:
        """The graph of a torus: switches are named by their coordinates, with a separator between them."""
        places = list(product(*map(range, dimensions)))
        names = {place: f"s{separator.join(map(str, place))}" for place in places}
        edges = []
        for place in places:
            for axis, size in enumerate(dimensions):
                if size == 2 and place[axis] == 1:  # the link to its one neighbour is there
                    continue
                following = (*place[:axis], (place[axis] + 1) % size, *place[axis + 1 :])
                edges.append((names[place], names[following]))
        switches = {name: {"coordinates": place} for place, name in names.items()}
        return self.build(switches, edges, dimensions=tuple(dimensions))


def _load(size: int) -> Fraction:
    """Load of a link in a dimension of this size, over that of a network of one switch.

    If every switch sends 1 to every other in dimension order, a link carries this times the number of
    switches.
    """
    if size == 2:
        return Fraction(1, 2)
    return Fraction(size * size // 4, 2 * size)  # k/8 or (k² − 1)/(8k)
