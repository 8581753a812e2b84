"""GPU pods: islands of GPUs that share NVLink switches, and a rail for each place in an island."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import networkx as nx

from netfold.topologies.graph import add_link, add_server, add_switch, new_graph, validate
from netfold.topologies.kind import Counts, Facts, Generated, ParameterError, count, like, optional, steps


@dataclass(frozen=True, kw_only=True)
class RailOptimized(Generated):
    """GPU pods: islands of GPUs that share NVLink switches, and a rail for each place in an island.

    Rails as in NVIDIA's DGX SuperPOD reference architectures: GPU j of every island of a pod is on the pod's
    rail switch j, and every rail switch is linked to every spine. With no spine it is the rail-only network
    of Wang et al. (Rail-only: A Low-Cost High-Performance Network for Training LLMs with Trillion Parameters,
    Hot Interconnects 2024). A GPU is a host and a plain switch that stands for its two ports and forwards:
    GPUs of one island reach each other's rails over NVLink. With P pods, I islands a pod, G GPUs an island, S
    spines, N = P·I·G, and the rates v of NVLink (of a GPU), r of a network port and u of uplinks:

    - hosts N; switches N of GPUs, P·I of NVLink, P·G of rails, S; links 2·(3·N + P·G·S), both directions
      counted;
    - diameter 6 hops: over NVLink and a rail (in either order), or over a spine; so between GPUs of different
      islands and rails there are S + 2 paths within a pod, S between pods. With one island it is 4, one path;
    - oversubscription I·r / (S·u) at rail switches;
    - bisection, if v ≥ 2·r: N/2 · min(r, S·u/I) for even P, half of the pods on each side; N/2 · r for odd P
      and even I, half of the islands of each pod on each side, if there is one pod or S·u ≥ I·r. No halves
      have less: NVLink spreads what an island sends evenly over its rails. There is no closed form otherwise.

    Hosts and their ports have `island`, `rail` and the pod as `group`; rail switches `rail` and `group`.
    """

    kind: ClassVar[str] = "rail_optimized"
    growing: ClassVar[tuple[str, ...]] = ("islands_per_pod", "pods", "gpus_per_island", "spines")

    pods: int = count("Number of pods: sets of islands with rail switches of their own.", default=1)
    islands_per_pod: int = count("Islands in a pod: servers whose GPUs share NVLink switches.")
    gpus_per_island: int = count(
        "GPUs of an island, and rails of a pod; a GPU is a host.", default=8, least=2
    )
    spines: int = count("Spine switches above the rails; several pods need at least one.", least=0)
    nvlink_rate_bps: int = field(
        default=3600 * 10**9,
        metadata={
            "meaning": "Rate of a GPU's link to its NVLink switch; by default 450 GB/s, as of an H100."
        },
    )
    nvlink_delay_ps: int | None = optional("Delay of these links; by default `delay`.")
    nvlink_switch: str = field(default="plain", metadata={"meaning": "Profile of the NVLink switches."})
    uplink_rate_bps: int = like("rate_bps", "Rate of the links between rails and spines; by default `rate`.")
    uplink_delay_ps: int | None = optional("Delay of these links; by default `delay`.")

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        if hosts % 8 == 0:  # GPUs of a server
            for spines in steps(hosts // 8):
                yield cls(islands_per_pod=hosts // 8, spines=spines, **links)

    def check(self) -> None:
        """Pods are linked.

        Raises
        ------
        ParameterError
            There are several pods and no spine.
        """
        if self.pods > 1 and not self.spines:
            raise ParameterError(
                "spines",
                f"{self.kind}: spines is 0, must be at least 1 with {self.pods} pods; spines link pods",
            )

    def counts(self) -> Counts:
        islands, rails = self.pods * self.islands_per_pod, self.pods * self.gpus_per_island
        gpus = islands * self.gpus_per_island
        return Counts(gpus, gpus + islands + rails + self.spines, 2 * (3 * gpus + rails * self.spines))

    def facts(self) -> Facts:
        within = self.spines + 2 if self.islands_per_pod > 1 else 1
        paths = within if self.islands_per_pod > 1 or self.pods == 1 else self.spines
        diameter = 4 if self.pods * self.islands_per_pod == 1 else 6
        return Facts(*self.counts(), diameter, self._bisection_bps(), paths)

    def _bisection_bps(self) -> int | None:
        """The rate between halves of the pods or islands, if that is known to be the least."""
        gpus, islands = self.counts().hosts, self.islands_per_pod
        uplinks_bps, rail_bps = self.spines * self.uplink_rate_bps, islands * self.rate_bps
        if self.nvlink_rate_bps < 2 * self.rate_bps:
            return None
        if self.pods % 2 == 0:
            return self.pods // 2 * self.gpus_per_island * min(rail_bps, uplinks_bps)
        if islands % 2 == 0 and (self.pods == 1 or uplinks_bps >= rail_bps):
            return gpus // 2 * self.rate_bps
        return None

    def graph(self) -> nx.Graph:
        """Hosts h0 … with ports gpu0 …, switches nvlink0 …, pod0rail0 …, spine0 …."""
        graph = new_graph(self.kind)
        gpus, per_island = self.counts().hosts, self.gpus_per_island
        per_pod = self.islands_per_pod * per_island
        for gpu in range(gpus):
            island, rail = divmod(gpu, per_island)
            add_server(graph, f"h{gpu}", f"gpu{gpu}", island=island, rail=rail, group=gpu // per_pod)
        for island in range(self.pods * self.islands_per_pod):
            pod = island // self.islands_per_pod
            add_switch(graph, f"nvlink{island}", 2, self.nvlink_switch, island=island, group=pod)
        rails = [(pod, rail) for pod in range(self.pods) for rail in range(per_island)]
        for pod, rail in rails:
            add_switch(graph, f"pod{pod}rail{rail}", 2, self.switch, rail=rail, group=pod)
        for spine in range(self.spines):
            add_switch(graph, f"spine{spine}", 3, self.switch)
        nvlink = self.link(self.nvlink_rate_bps, self.nvlink_delay_ps)
        uplink = self.link(self.uplink_rate_bps, self.uplink_delay_ps)
        for gpu in range(gpus):
            add_link(graph, f"gpu{gpu}", f"nvlink{gpu // per_island}", nvlink)
            add_link(graph, f"gpu{gpu}", f"pod{gpu // per_pod}rail{gpu % per_island}", self.link())
        for pod, rail in rails:
            for spine in range(self.spines):
                add_link(graph, f"pod{pod}rail{rail}", f"spine{spine}", uplink)
        validate(graph)
        return graph
