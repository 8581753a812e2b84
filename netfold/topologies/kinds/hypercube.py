"""A binary hypercube, with hosts on each switch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import networkx as nx

from netfold.topologies.kind import Counts, Direct, Facts, Generated, ParameterError, count

_DIMENSION_MAX = 64  # more switches than can be counted in an int64


@dataclass(frozen=True, kw_only=True)
class Hypercube(Direct):
    """A binary hypercube with hosts on each switch: the torus of dimensions 2, 2, ….

    Saad, Schultz: Topological properties of hypercubes, IEEE Transactions on Computers 37(7), 1988. With d
    dimensions, N = 2^d switches, p hosts on each, and the rates r of hosts and u between switches:

    - hosts N·p, switches N, links 2·(N·p + N·d/2) (both directions counted);
    - diameter d + 2 hops, with d! paths between the farthest hosts;
    - bisection N/2 · min(p·r, u): the halves differ in one coordinate.

    Switches have their `coordinates`, the graph has its `dimensions`.
    """

    kind: ClassVar[str] = "hypercube"
    growing: ClassVar[tuple[str, ...]] = ("dimension", "hosts_per_switch")

    dimension: int = count("Number of dimensions: 2 to this power are the switches.")

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        for dimension in range(1, hosts.bit_length()):
            if hosts % 2**dimension == 0:
                yield cls(dimension=dimension, hosts_per_switch=hosts // 2**dimension, **links)

    def check(self) -> None:
        """The switches can be counted.

        Raises
        ------
        ParameterError
            There are too many dimensions for that.
        """
        if self.dimension > _DIMENSION_MAX:
            raise ParameterError(
                "dimension",
                f"{self.kind}: dimension is {self.dimension}, must be at most {_DIMENSION_MAX}; "
                "it has 2 to this power of switches",
            )

    def counts(self) -> Counts:
        return self.counts_of(2**self.dimension, self.dimension * 2**self.dimension // 2)

    def facts(self) -> Facts:
        return self.torus_facts((2,) * self.dimension)

    def graph(self) -> nx.Graph:
        """Switches s000, s001, …: their coordinates, the last changes fastest."""
        return self.torus((2,) * self.dimension, "")
