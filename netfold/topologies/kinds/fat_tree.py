"""Three tiers of switches with k ports each, whole or tapered."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from netfold.topologies.kind import Generated, ParameterError, Pods, ThreeTiers, count, optional, steps


@dataclass(frozen=True, kw_only=True)
class FatTree(ThreeTiers):
    """A k-ary fat tree of three tiers, whole or tapered.

    Al-Fares, Loukissas, Vahdat: A scalable, commodity data center network architecture, SIGCOMM 2008,
    section 3. There are k pods, each with k/2 edge switches (H hosts on each) and A aggregation switches, all
    linked to each other. Aggregation switch j of every pod is linked to the same C core switches: C·j and the
    C − 1 after it. Whole is H = A = C = k/2; tapered has fewer uplinks (A, C), more hosts on an edge switch
    (H), or slower uplinks. With the rates r of hosts, u between edge and aggregation, c of the core:

    - hosts k²·H/2 (whole: k³/4), switches k·(k/2 + A) + A·C (whole: 5k²/4);
    - links 2·(k²·H/2 + k²·A/2 + k·A·C), both directions counted;
    - diameter 6 hops, with A·C shortest paths between hosts of two pods (whole: k²/4);
    - oversubscription H·r / (A·u) at edge switches, and k·H·r / (2·A·C·c) at pods;
    - bisection k/2 · min(k·H·r/2, k·A·u/2, A·C·c), half of the pods on each side (whole: k³/8 · r). No halves
      have less: every host can send at the smallest rate of these per host, spread over all its uplinks.
    """

    kind: ClassVar[str] = "fat_tree"
    growing: ClassVar[tuple[str, ...]] = ("k",)

    k: int = count("Ports of a switch, and number of pods: even.", least=2)
    hosts_per_edge: int | None = optional("Hosts on each edge switch; by default k/2.")
    aggregations: int | None = optional(
        "Aggregation switches of a pod, which are the uplinks of an edge switch; by default k/2."
    )
    core_links: int | None = optional("Uplinks of an aggregation switch; by default k/2.")

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        for k in range(4, math.isqrt(2 * hosts) + 1, 2):
            for aggregations, cores in product(steps(k // 2), repeat=2) if 2 * hosts % k**2 == 0 else ():
                hosts_each = 2 * hosts // k**2
                yield cls(
                    k=k, hosts_per_edge=hosts_each, aggregations=aggregations, core_links=cores, **links
                )

    def check(self) -> None:
        """Switches have k ports.

        Raises
        ------
        ParameterError
            k is odd, or a switch would have more ports.
        """
        if self.k % 2:
            raise ParameterError(
                "k", f"{self.kind}: k is {self.k}, must be even; it has k/2 edge switches a pod"
            )
        _, _, hosts, aggregations, cores = self.parts()
        if hosts + aggregations > self.k:
            raise ParameterError(
                "hosts_per_edge" if hosts > self.k // 2 else "aggregations",
                f"{self.kind}: edge switches have {hosts} hosts_per_edge and {aggregations} uplinks "
                f"(aggregations), more than the k = {self.k} ports; use at most {self.k} together",
            )
        if self.k // 2 + cores > self.k:
            raise ParameterError(
                "core_links",
                f"{self.kind}: aggregation switches have {self.k // 2} edge switches and {cores} core_links, "
                f"more than the k = {self.k} ports; use at most {self.k // 2} core_links",
            )

    def parts(self) -> Pods:
        """Pods of k/2 edge switches, with H, A and C."""
        half = max(1, self.k // 2)
        hosts, aggregations, cores = (
            half if number is None else number
            for number in (self.hosts_per_edge, self.aggregations, self.core_links)
        )
        return Pods(self.k, self.k // 2, hosts, aggregations, cores)
