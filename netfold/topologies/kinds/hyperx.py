"""A lattice of switches, all linked to each other along every dimension, with hosts on each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import factorial, prod
from typing import Any, ClassVar

import networkx as nx

from netfold.topologies.kind import (
    Counts,
    Direct,
    Facts,
    Generated,
    ParameterError,
    count,
    divisors,
    lattices,
    optional,
)


@dataclass(frozen=True, kw_only=True)
class HyperX(Direct):
    """A lattice of switches, all linked to each other along every dimension, with hosts on each.

    Ahn, Binkert, Davis, McLaren, Schreiber: HyperX: Topology, Routing, and Packaging of Efficient Large-Scale
    Networks, SC 2009, section 3. Their S are `dimensions`, K `widths`, T `hosts_per_switch`: two switches
    that differ in dimension i alone have one link of K_i times the rate of the fabric. One dimension is a
    complete graph, two are a flattened butterfly, dimensions of 2 are a hypercube. With L dimensions S1,
    S2, …, their product N, T hosts on each switch, and the rates r of hosts and u of the fabric:

    - hosts N·T, switches N, links 2·(N·T + N/2 · Σ(S_i − 1)), both directions counted;
    - diameter L + 2 hops, with L! paths between hosts whose switches differ in every dimension;
    - bisection min(N·T/2 · r, N/4 · K_i·S_i · u) with i the dimension of the smallest K_i·S_i, if S_i is
      even: half of its coordinates on each side. No halves have less: traffic between all pairs in dimension
      order loads the links of a dimension evenly, those of dimension i most.

    Switches have their `coordinates`, the graph has its `dimensions`.
    """

    kind: ClassVar[str] = "hyperx"
    growing: ClassVar[tuple[str, ...]] = ("hosts_per_switch", "dimensions")

    dimensions: tuple[int, ...] = count("Switches in each dimension, such as [4, 4].", least=2)
    widths: tuple[int, ...] | None = optional(
        "Links in each dimension have this many times `fabric_rate`, such as [1, 2]; by default 1."
    )

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        for each in divisors(hosts):
            for dimensions in lattices(hosts // each):
                yield cls(dimensions=dimensions, hosts_per_switch=each, **links)

    def check(self) -> None:
        """Every dimension has a width.

        Raises
        ------
        ParameterError
            There are more or fewer.
        """
        if self.widths is not None and len(self.widths) != len(self.dimensions):
            raise ParameterError(
                "widths",
                f"{self.kind}: widths has {len(self.widths)} numbers, must have one for each of the "
                f"{len(self.dimensions)} dimensions",
            )

    def counts(self) -> Counts:
        switches = prod(self.dimensions)
        return self.counts_of(switches, sum(switches * (size - 1) // 2 for size in self.dimensions))

    def facts(self) -> Facts:
        counts, widths = self.counts(), self.widths or (1,) * len(self.dimensions)
        width, size = min(
            zip(widths, self.dimensions, strict=True), key=lambda axis: (axis[0] * axis[1], axis[1] % 2)
        )
        bisection = None
        if size % 2 == 0:
            cut_bps = counts.switches // size * (size // 2) ** 2 * width * self.fabric_rate_bps
            bisection = min(counts.hosts // 2 * self.rate_bps, cut_bps)
        return Facts(*counts, len(self.dimensions) + 2, bisection, factorial(len(self.dimensions)))

    def graph(self) -> nx.Graph:
        """Switches s0_0, s0_1, …, named by their coordinates; the last coordinate changes fastest."""
        places = list(product(*map(range, self.dimensions)))
        names = {place: f"s{'_'.join(map(str, place))}" for place in places}
        edges = [
            (name, names[(*place[:axis], other, *place[axis + 1 :])], width)
            for place, name in names.items()
            for axis, width in enumerate(self.widths or (1,) * len(self.dimensions))
            for other in range(place[axis] + 1, self.dimensions[axis])
        ]
        switches = {name: {"coordinates": place} for place, name in names.items()}
        graph = self.build(switches, [edge[:2] for edge in edges], dimensions=self.dimensions)
        for switch, other, width in edges:
            graph.edges[switch, other]["rate_bps"] *= width
        return graph
