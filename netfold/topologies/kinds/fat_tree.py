"""Three tiers of switches with k ports each, whole or tapered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import networkx as nx

from netfold.topologies.graph import add_host, add_link, add_switch, new_graph, validate
from netfold.topologies.kind import Counts, Facts, Generated, ParameterError, count, like, optional


@dataclass(frozen=True, kw_only=True)
class FatTree(Generated):
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
    uplink_rate_bps: int = like(
        "rate_bps", "Rate of the links between edge and aggregation switches; by default `rate`."
    )
    uplink_delay_ps: int | None = optional("Delay of these links; by default `delay`.")
    core_rate_bps: int = like(
        "uplink_rate_bps", "Rate of the links to core switches; by default `uplink_rate`."
    )
    core_delay_ps: int | None = optional("Delay of the links to core switches; by default `uplink_delay`.")

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
        hosts, aggregations, cores = self._parts()
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

    def _parts(self) -> tuple[int, int, int]:
        """H, A and C."""
        half = max(1, self.k // 2)
        hosts, aggregations, cores = self.hosts_per_edge, self.aggregations, self.core_links
        return (
            half if hosts is None else hosts,
            half if aggregations is None else aggregations,
            half if cores is None else cores,
        )

    def counts(self) -> Counts:
        """Hosts, switches and links of the class's closed forms."""
        hosts, aggregations, cores = self._parts()
        edges = self.k * (self.k // 2)
        links = edges * (hosts + aggregations) + self.k * aggregations * cores
        return Counts(edges * hosts, edges + self.k * aggregations + aggregations * cores, 2 * links)

    def facts(self) -> Facts:
        hosts, aggregations, cores = self._parts()
        edges = self.k // 2
        pod_bps = min(
            edges * hosts * self.rate_bps,
            edges * aggregations * self.uplink_rate_bps,
            aggregations * cores * self.core_rate_bps,
        )
        return Facts(*self.counts(), 6, self.k // 2 * pod_bps, aggregations * cores)

    def graph(self) -> nx.Graph:
        """Hosts h0 …, switches pod0edge0 …, pod0agg0 …, core0 …."""
        hosts, aggregations, cores = self._parts()
        pods, edges = range(self.k), range(self.k // 2)
        graph = new_graph(self.kind)
        for index in range(self.k * len(edges) * hosts):
            add_host(graph, f"h{index}", group=index // (len(edges) * hosts))
        for tier, role, number in ((1, "edge", len(edges)), (2, "agg", aggregations)):
            for pod in pods:
                for index in range(number):
                    add_switch(graph, f"pod{pod}{role}{index}", tier, self.switch, group=pod)
        for core in range(aggregations * cores):
            add_switch(graph, f"core{core}", 3, self.switch)
        host, uplink = self.link(), self.link(self.uplink_rate_bps, self.uplink_delay_ps)
        core_delay = self.uplink_delay_ps if self.core_delay_ps is None else self.core_delay_ps
        core_link = self.link(self.core_rate_bps, core_delay)
        for pod in pods:
            for edge in edges:
                name, first = f"pod{pod}edge{edge}", (pod * len(edges) + edge) * hosts
                for index in range(first, first + hosts):
                    add_link(graph, f"h{index}", name, host)
                for aggregation in range(aggregations):
                    add_link(graph, name, f"pod{pod}agg{aggregation}", uplink)
            for aggregation in range(aggregations):
                for core in range(aggregation * cores, (aggregation + 1) * cores):
                    add_link(graph, f"pod{pod}agg{aggregation}", f"core{core}", core_link)
        validate(graph)
        return graph
