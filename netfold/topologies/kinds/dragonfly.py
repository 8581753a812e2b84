"""Groups of fully connected routers, and links between groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import networkx as nx

from netfold.topologies.graph import add_host, add_link, add_switch, new_graph, validate
from netfold.topologies.kind import (
    Counts,
    Facts,
    Generated,
    ParameterError,
    count,
    divisors,
    like,
    optional,
    steps,
)


@dataclass(frozen=True, kw_only=True)
class Dragonfly(Generated):
    """Groups of fully connected routers, and global links between groups.

    Kim, Dally, Scott, Abts: Technology-driven, highly-scalable dragonfly topology, ISCA 2008, section 3.
    There are g groups of a routers, with p hosts and h global links on each router, h < g ≤ a·h + 1. The
    global ports of a group are numbered from 0, h on each router; in the *relative* arrangement of Hastings
    et al. (Comparing global link arrangements for dragonfly networks, CLUSTER 2015) port j of group i leads
    to group i + j + 1 (mod g). With fewer groups than a·h + 1 that is repeated: g − 1 ports lead to the next
    g − 1 groups, and so on; ports that are left lead to the groups that are half way round, if their number
    is odd, and to the nearest on both sides. (Where g and a·h are odd, one port of each group is left
    unused.) The n-th link from a group to another ends at the n-th port that leads back. With the rates r of
    hosts, l of local and c of global links, and P = a·h ports in use, or one fewer:

    - hosts a·p·g, switches a·g, links 2·(a·p·g + g·a·(a − 1)/2 + g·P/2), both directions counted;
    - diameter 5 hops (local, global, local) if a·g > a + 2·h·(a − 1) + h², the most routers that two hops can
      reach; 3 if a = 1, then with one path. There is no closed form for shortest paths otherwise: some lead
      through two global links, as Bunde et al. found (2019);
    - bisection min(a·p·g/2 · r, M·g²/4 · c) with M = P/(g − 1) links between any two groups, half of the
      groups on each side, if g is even, M is whole, and global links are the slowest part when all routers
      send to all: a²/(M·c) ≥ (2·a·h/M + 1)/l. There is no closed form otherwise.

    Nodes have the number of their `group`.
    """

    kind: ClassVar[str] = "dragonfly"
    growing: ClassVar[tuple[str, ...]] = ("groups", "hosts_per_router", "routers_per_group")

    groups: int = count("Number of groups (g): more than h, and at most a·h + 1.", least=2)
    routers_per_group: int = count("Routers of a group (a), all linked to each other.")
    hosts_per_router: int = count("Hosts on each router (p).")
    global_links: int = count("Links from each router to other groups (h).")
    local_rate_bps: int = like("rate_bps", "Rate of the links within a group; by default `rate`.")
    local_delay_ps: int | None = optional("Delay of these links; by default `delay`.")
    global_rate_bps: int = like("rate_bps", "Rate of the links between groups; by default `rate`.")
    global_delay_ps: int | None = optional("Delay of these links; by default `delay`.")

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        for each in divisors(hosts):
            for groups in divisors(hosts // each)[1:]:
                for global_links in steps(2 * each):
                    yield cls(
                        groups=groups,
                        routers_per_group=hosts // each // groups,
                        hosts_per_router=each,
                        global_links=global_links,
                        **links,
                    )

    def check(self) -> None:
        """Every two groups have a link, and no two routers have two.

        Raises
        ------
        ParameterError
            There are too many or too few groups for that.
        """
        most = self.routers_per_group * self.global_links + 1
        if not self.global_links < self.groups <= most:
            raise ParameterError(
                "groups",
                f"{self.kind}: groups is {self.groups}, must be from {self.global_links + 1} to {most}; "
                f"{self.routers_per_group} routers_per_group with {self.global_links} global_links each lead "
                f"to {most - 1} other groups, and those of a router to different ones",
            )

    def _ports(self) -> int:
        """Global ports of a group that are in use."""
        ports = self.routers_per_group * self.global_links
        return ports - ports % 2 * (self.groups % 2)

    def counts(self) -> Counts:
        routers = self.routers_per_group * self.groups
        hosts = routers * self.hosts_per_router
        local, between = routers * (self.routers_per_group - 1) // 2, self.groups * self._ports() // 2
        return Counts(hosts, routers, 2 * (hosts + local + between))

    def facts(self) -> Facts:
        routers, links = self.routers_per_group, self.global_links
        reached = routers + 2 * links * (routers - 1) + links**2
        diameter = 5 if routers * self.groups > reached else None
        if routers == 1:
            return Facts(*self.counts(), 3, self._bisection_bps(), 1)
        return Facts(*self.counts(), diameter, self._bisection_bps(), None)

    def _bisection_bps(self) -> int | None:
        """The rate between halves of the groups, if that is known to be the least."""
        routers, groups, hosts = self.routers_per_group, self.groups, self.counts().hosts
        links, ports_left = divmod(self._ports(), groups - 1)  # between two groups
        if groups % 2 or ports_left:
            return None
        # Both sides are multiplied by `links` and by both rates.
        on_global = routers**2 * self.local_rate_bps
        on_local = (2 * routers * self.global_links + links) * self.global_rate_bps
        if routers > 1 and on_global < on_local:
            return None
        return min(hosts // 2 * self.rate_bps, links * groups**2 // 4 * self.global_rate_bps)

    def graph(self) -> nx.Graph:
        """Hosts h0 …, switches group0router0 …."""
        graph = new_graph(self.kind)
        routers = [
            (group, router) for group in range(self.groups) for router in range(self.routers_per_group)
        ]
        names = {switch: f"group{switch[0]}router{switch[1]}" for switch in routers}
        per_router = self.hosts_per_router
        for number, (group, _) in enumerate(routers):
            for index in range(number * per_router, (number + 1) * per_router):
                add_host(graph, f"h{index}", group=group)
        for switch in routers:
            add_switch(graph, names[switch], 1, self.switch, group=switch[0])
        for number, switch in enumerate(routers):
            for index in range(number * per_router, (number + 1) * per_router):
                add_link(graph, f"h{index}", names[switch], self.link())
        local = self.link(self.local_rate_bps, self.local_delay_ps)
        for group in range(self.groups):
            for first_router, other in combinations(range(self.routers_per_group), 2):
                add_link(graph, names[group, first_router], names[group, other], local)
        between = self.link(self.global_rate_bps, self.global_delay_ps)
        for one_port, other_port in self._global_ports():
            first_router, other = one_port[1] // self.global_links, other_port[1] // self.global_links
            add_link(graph, names[one_port[0], first_router], names[other_port[0], other], between)
        validate(graph)
        return graph

    def _offsets(self) -> list[int]:
        """How many groups further each port in use leads."""
        rounds, ports_left = divmod(self._ports(), self.groups - 1)
        half = [self.groups // 2] if ports_left % 2 else []
        near = range(1, ports_left // 2 + 1)
        last = sorted([*half, *near, *(self.groups - distance for distance in near)])
        return [*(offset for _ in range(rounds) for offset in range(1, self.groups)), *last]

    def _global_ports(self) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Pairs of linked ports, each a group and the number of a port."""
        offsets = self._offsets()
        seen: Counter[int] = Counter()
        # Keys are an offset and how many ports before have the same.
        port_of: dict[tuple[int, int], int] = {}
        for port, offset in enumerate(offsets):
            port_of[offset, seen[offset]] = port
            seen[offset] += 1
        for group in range(self.groups):
            for (offset, number), port in port_of.items():
                other = (group + offset) % self.groups
                if group < other:
                    yield (group, port), (other, port_of[self.groups - offset, number])
