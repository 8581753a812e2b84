"""Three tiers of switches with any number of pods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from netfold.topologies.kind import Generated, ParameterError, Pods, ThreeTiers, count, divisors, steps


@dataclass(frozen=True, kw_only=True)
class Clos(ThreeTiers):
    """A folded Clos network of three tiers with any number of pods.

    Clos: A study of non-blocking switching networks, Bell System Technical Journal 32(2), 1953; folded, in
    pods and with several core planes as in Singh et al., Jupiter Rising, SIGCOMM 2015. A fat tree of ports k
    has k pods of k/2 edge switches; here each number is free. There are P pods of E edge switches (H hosts on
    each) and A aggregation switches, all linked to each other. The N core switches are A planes: aggregation
    switch j of every pod is linked to the C = N/A core switches of plane j. With the rates r of hosts, u
    between edge and aggregation, c of the core:

    - hosts P·E·H, switches P·(E + A) + N;
    - links 2·P·(E·(H + A) + N), both directions counted;
    - diameter 6 hops, with N shortest paths between hosts of two pods;
    - oversubscription H·r / (A·u) at edge switches, and E·A·u / (N·c) at the aggregation switches;
    - bisection P/2 · min(E·H·r, E·A·u, N·c), half of the pods on each side, P even. No halves have less:
      every host can send at the smallest rate of these per host, spread over all its uplinks.
    """

    kind: ClassVar[str] = "clos"
    growing: ClassVar[tuple[str, ...]] = ("pods", "edges_per_pod", "hosts_per_edge")

    pods: int = count("Number of pods.", least=2)
    edges_per_pod: int = count("Edge switches of a pod.")
    hosts_per_edge: int = count("Hosts on each edge switch.")
    aggregations: int = count("Aggregation switches of a pod, which are the uplinks of an edge switch.")
    cores: int = count("Core switches in all: a multiple of `aggregations`, with a link to every pod each.")

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        for pods in divisors(hosts)[1:]:
            for edges in divisors(hosts // pods)[1:]:
                hosts_each = hosts // pods // edges
                for aggregations, cores in product(steps(hosts_each), steps(edges)):
                    yield cls(
                        pods=pods,
                        edges_per_pod=edges,
                        hosts_per_edge=hosts_each,
                        aggregations=aggregations,
                        cores=aggregations * cores,
                        **links,
                    )

    def check(self) -> None:
        """Core switches are planes of the same size.

        Raises
        ------
        ParameterError
            They are no multiple of the aggregation switches of a pod.
        """
        if self.cores % self.aggregations:
            raise ParameterError(
                "cores",
                f"{self.kind}: cores is {self.cores}, must be a multiple of the {self.aggregations} "
                "aggregations of a pod; each has as many uplinks",
            )

    def parts(self) -> Pods:
        return Pods(
            self.pods,
            self.edges_per_pod,
            self.hosts_per_edge,
            self.aggregations,
            self.cores // self.aggregations,
        )
