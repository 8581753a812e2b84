"""Two tiers: hosts on leaf switches, every leaf linked to every spine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import networkx as nx

from netfold.topologies.graph import (
    LinkSpec,
    add_host,
    add_link,
    add_switch,
    check_counts,
    new_graph,
    validate,
)
from netfold.topologies.kind import Counts, Facts, Generated, count, divisors, like, optional, steps


@dataclass(frozen=True, kw_only=True)
class LeafSpine(Generated):
    """Two tiers of switches; every leaf is linked to every spine."""

    kind: ClassVar[str] = "leaf_spine"
    growing: ClassVar[tuple[str, ...]] = ("hosts_per_leaf", "leaves", "spines")

    leaves: int = count("Number of leaf switches.")
    spines: int = count("Number of spine switches.")
    hosts_per_leaf: int = count("Number of hosts on each leaf.")
    uplink_rate_bps: int = like(
        "rate_bps", "Rate of the links between leaves and spines; by default that of the host links."
    )
    uplink_delay_ps: int | None = optional(
        "Delay of the links between leaves and spines; by default `delay`."
    )

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        for leaves in divisors(hosts)[1:]:
            for spines in steps(hosts // leaves):
                yield cls(leaves=leaves, spines=spines, hosts_per_leaf=hosts // leaves, **links)

    def counts(self) -> Counts:
        """L·H hosts, L + S switches and 2·L·(H + S) links."""
        leaves, spines, hosts = self.leaves, self.spines, self.hosts_per_leaf
        return Counts(leaves * hosts, leaves + spines, 2 * leaves * (hosts + spines))

    def facts(self) -> Facts:
        leaves, hosts, rate = self.leaves, self.hosts_per_leaf, self.rate_bps
        split_leaf_bps = leaves % 2 * (hosts // 2) * rate
        uplinks_bps = leaves // 2 * self.spines * self.uplink_rate_bps
        bisection = min(leaves * hosts // 2 * rate, uplinks_bps + split_leaf_bps)
        within = 2 if hosts > 1 else 0
        return Facts(*self.counts(), 4 if leaves > 1 else within, bisection, self.spines if leaves > 1 else 1)

    def graph(self) -> nx.Graph:
        """The graph, with leaves and spines named in order."""
        counts = self.leaves, self.spines, self.hosts_per_leaf
        uplink = self.link(self.uplink_rate_bps, self.uplink_delay_ps)
        return leaf_spine(*counts, self.link(), uplink, self.switch)


def leaf_spine(
    leaves: int, spines: int, hosts_per_leaf: int, link: LinkSpec, uplink: LinkSpec, profile: str = "plain"
) -> nx.Graph:
    """Hosts h0 … in groups of `hosts_per_leaf` on leaf0 …, each leaf linked to each of spine0 ….

    With L leaves, S spines, H hosts a leaf, r = link.rate_bps and u = uplink.rate_bps:

    - hosts L·H, switches L + S, links 2·L·(H + S) (both directions counted);
    - diameter 4 hops if L ≥ 2, with S equal-cost paths between hosts of different leaves;
    - oversubscription (H·r) / (S·u): what the hosts of a leaf can send over what its uplinks can carry;
    - bisection ½·L · min(H·r, S·u) if L is even: what half of the leaves can send, or their uplinks carry;
      if L is odd, the smaller of ⌊½·L·H⌋·r and ⌊½·L⌋·S·u + ⌊½·H⌋·r, as halves then divide a leaf.

    Raises
    ------
    TopologyError
        A count is not an int of at least 1, or a link or the profile breaks the contract.
    """
    check_counts("leaf_spine", leaves=leaves, spines=spines, hosts_per_leaf=hosts_per_leaf)
    graph = new_graph("leaf_spine")
    hosts = [f"h{index}" for index in range(leaves * hosts_per_leaf)]
    leaf_names = [f"leaf{index}" for index in range(leaves)]
    spine_names = [f"spine{index}" for index in range(spines)]
    for host in hosts:
        add_host(graph, host)
    for leaf in leaf_names:
        add_switch(graph, leaf, tier=1, profile=profile)
    for spine in spine_names:
        add_switch(graph, spine, tier=2, profile=profile)
    for index, host in enumerate(hosts):
        add_link(graph, host, leaf_names[index // hosts_per_leaf], link)
    for leaf in leaf_names:
        for spine in spine_names:
            add_link(graph, leaf, spine, uplink)
    validate(graph)
    return graph
