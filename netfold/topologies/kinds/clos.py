"""Three tiers of switches with any number of pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from netfold.topologies.kind import ParameterError, Pods, ThreeTiers, count


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
