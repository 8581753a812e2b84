"""A torus of any number of dimensions, with hosts on each switch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import networkx as nx

from netfold.topologies.kind import Counts, Direct, Facts, Generated, count, divisors, lattices


@dataclass(frozen=True, kw_only=True)
class Torus(Direct):
    """A torus (k-ary n-cube) with hosts on each switch.

    Dally, Towles: Principles and Practices of Interconnection Networks, chapter 5. In a dimension of two
    switches there is one link between them. With dimensions k1, k2, …, their product N, p hosts on each
    switch, and the rates r of hosts and u between switches:

    - hosts N·p, switches N, links 2·(N·p + N for each dimension; N/2 for one of two switches);
    - diameter ⌊k1/2⌋ + ⌊k2/2⌋ + … + 2 hops;
    - between the farthest hosts (⌊k1/2⌋ + ⌊k2/2⌋ + …)! / (⌊k1/2⌋! · ⌊k2/2⌋! · …) paths, and twice as many for
      each dimension that is even and larger than 2, as both ways round are as long;
    - bisection min(N·p/2 · r, 2·N/k · u) with k the largest dimension, if that is even: it is cut in two
      places (N/2 · u if k = 2). No halves have less: traffic between all pairs in dimension order loads the
      links of that dimension most, evenly. The same holds with odd dimensions of which none has a larger (k²
      − 1)/k than an even one has k; there is no closed form otherwise.

    Switches have their `coordinates`, the graph has its `dimensions`.
    """

    kind: ClassVar[str] = "torus"
    growing: ClassVar[tuple[str, ...]] = ("hosts_per_switch", "dimensions")

    dimensions: tuple[int, ...] = count("Switches in each dimension, such as [4, 4] or [4, 4, 2].", least=2)

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        for each in divisors(hosts):
            for dimensions in lattices(hosts // each):
                yield cls(dimensions=dimensions, hosts_per_switch=each, **links)

    def counts(self) -> Counts:
        return self.torus_counts(self.dimensions)

    def facts(self) -> Facts:
        return self.torus_facts(self.dimensions)

    def graph(self) -> nx.Graph:
        """Switches s0_0, s0_1, …, named by their coordinates; the last coordinate changes fastest."""
        return self.torus(self.dimensions, "_")
