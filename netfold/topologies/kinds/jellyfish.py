"""A random regular graph of switches, with hosts on each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import networkx as nx

from netfold.topologies.graph import TopologyError
from netfold.topologies.kind import Counts, Direct, Facts, Generated, ParameterError, count, divisors, steps

_TRIES = 1000


@dataclass(frozen=True, kw_only=True)
class Jellyfish(Direct):
    """A random regular graph of switches, with hosts on each.

    Singla, Hong, Popa, Godfrey: Jellyfish: Networking Data Centers Randomly, NSDI 2012. The graph is drawn by
    networkx's `random_regular_graph` (Steger, Wormald 1999; nearly uniform), again until it is connected.
    With n switches, d links from each to others, and p hosts on each:

    - hosts n·p, switches n, links 2·(n·p + n·d/2) (both directions counted);
    - diameter, paths and bisection depend on the draw. A diameter of D + 2 hops has
      n ≤ 1 + d·(1 + (d − 1) + … + (d − 1)^(D − 1)) (Moore's bound). As n grows, almost all draws have at
      least n·(d/4 − √(d·ln 2)/2) links between any halves (Bollobás, The isoperimetric number of random
      regular graphs, European Journal of Combinatorics 9, 1988).
    """

    kind: ClassVar[str] = "jellyfish"
    growing: ClassVar[tuple[str, ...]] = ("switches", "hosts_per_switch")

    switches: int = count("Number of switches.", least=2)
    degree: int = count("Links from each switch to others.")
    seed: int = count("Seed of the random graph.", default=1, least=0)

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        for each in divisors(hosts):
            for degree in steps(min(64, hosts // each)):
                yield cls(switches=hosts // each, degree=degree, hosts_per_switch=each, **links)

    def check(self) -> None:
        """A connected graph of this degree exists.

        Raises
        ------
        ParameterError
            The degree is too large or too small, or switches and degree are both odd.
        """
        switches, degree = self.switches, self.degree
        if degree >= switches:
            raise ParameterError(
                "degree",
                f"{self.kind}: degree is {degree}, must be less than the {switches} switches; "
                "two switches have one link",
            )
        if degree == 1 and switches > 2:
            raise ParameterError(
                "degree",
                f"{self.kind}: {switches} switches of degree 1 are not connected; use a degree of 2 or more",
            )
        if switches % 2 and degree % 2:
            raise ParameterError(
                "degree",
                f"{self.kind}: {switches} switches of degree {degree} have an odd number of ends of links; "
                "one of them must be even",
            )

    def counts(self) -> Counts:
        return self.counts_of(self.switches, self.switches * self.degree // 2)

    def facts(self) -> Facts:
        """The counts; nothing else has a closed form."""
        return Facts(*self.counts(), None, None, None)

    def graph(self) -> nx.Graph:
        """Switches s0 …; the same seed gives the same graph.

        Raises
        ------
        TopologyError
            A thousand draws were not connected, as may happen with many switches of degree 2.
        """
        # Of two graphs that complete each other, the sparse one is faster to draw.
        degree = min(self.degree, self.switches - 1 - self.degree)
        source = random.Random(self.seed)
        for _ in range(_TRIES):
            fabric = nx.random_regular_graph(degree, self.switches, source)
            fabric = fabric if degree == self.degree else nx.complement(fabric)
            if nx.is_connected(fabric):
                edges = sorted((min(edge), max(edge)) for edge in fabric.edges)
                names = [f"s{index}" for index in range(self.switches)]
                return self.build({name: {} for name in names}, ((names[a], names[b]) for a, b in edges))
        raise TopologyError(
            f"{self.kind}: {_TRIES} random graphs of {self.switches} switches and degree {self.degree} "
            "were not connected; use a higher degree"
        )
