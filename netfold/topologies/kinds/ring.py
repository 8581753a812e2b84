"""Switches in a ring, with hosts on each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import networkx as nx

from netfold.topologies.kind import Counts, Direct, Facts, Generated, count, divisors


@dataclass(frozen=True, kw_only=True)
class Ring(Direct):
    """Switches in a ring, with hosts on each.

    With n switches, p hosts on each, and the rates r of hosts and u between switches:

    - hosts n·p, switches n, links 2·n·(p + 1) (both directions counted);
    - diameter ⌊n/2⌋ + 2 hops, with two paths between opposite hosts if n is even, one if it is odd;
    - bisection min(⌊n·p/2⌋·r, 2·u), half of the ring on each side; if n is odd, halves divide a switch's
      hosts, and the second is 2·u + ⌊p/2⌋·r.
    """

    kind: ClassVar[str] = "ring"
    growing: ClassVar[tuple[str, ...]] = ("switches", "hosts_per_switch")

    switches: int = count("Number of switches.", least=3)

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        for switches in divisors(hosts):
            yield cls(switches=switches, hosts_per_switch=hosts // switches, **links)

    def counts(self) -> Counts:
        """n·p hosts, n switches and 2·n·(p + 1) links."""
        return self.counts_of(self.switches, self.switches)

    def facts(self) -> Facts:
        counts, is_odd = self.counts(), self.switches % 2
        split_bps = is_odd * (self.hosts_per_switch // 2) * self.rate_bps
        bisection = min(counts.hosts // 2 * self.rate_bps, 2 * self.fabric_rate_bps + split_bps)
        return Facts(*counts, self.switches // 2 + 2, bisection, 1 if is_odd else 2)

    def graph(self) -> nx.Graph:
        """Switches s0 …, each linked to the next, and the last to the first."""
        names = [f"s{index}" for index in range(self.switches)]
        return self.build({name: {} for name in names}, zip(names, [*names[1:], names[0]], strict=True))
