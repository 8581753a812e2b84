"""Servers with several ports that forward, on switches of several levels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from math import factorial
from typing import Any, ClassVar

import networkx as nx

from netfold.topologies.graph import add_link, add_server, add_switch, new_graph, validate
from netfold.topologies.kind import Counts, Facts, Generated, ParameterError, count

_LEVEL_MAX = 64  # more servers than can be counted in an int64


@dataclass(frozen=True, kw_only=True)
class BCube(Generated):
    """Servers that forward, on switches of several levels: BCube(n, k).

    Guo et al.: BCube: A High Performance, Server-centric Network Architecture for Modular Data Centers,
    SIGCOMM 2009, section 3. A server's address has k + 1 digits from 0 to n − 1; on level i it shares a
    switch with the n − 1 servers that differ from it in digit i alone. A server is a host and a plain switch
    that stands for its k + 1 ports and forwards. With N = n^(k + 1) and the rate r of ports:

    - hosts N, switches N of servers and (k + 1)·n^k of levels; links 2·(N + (k + 1)·N), both directions
      counted;
    - diameter 2·(k + 1) + 2 hops: one switch for each digit, and a hop into and out of the network;
    - (k + 1)! paths between servers that differ in all digits (k + 1 of them have no server in common);
    - halves that differ in the highest digit have N/2 · r between them, for even n. For n = 2 that is the
      bisection, as BCube is a hypercube then. For k = 0 it is that of a star, ⌊n/2⌋·r. For larger n other
      halves have less: BCube(6, 1) has some with 16·r, less than 18·r.
    """

    kind: ClassVar[str] = "bcube"
    growing: ClassVar[tuple[str, ...]] = ("n", "k")

    n: int = count("Ports of a switch, and servers on it.", least=2)
    k: int = count("Highest level of switches: a server has k + 1 ports.", least=0)

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        for n in range(2, math.isqrt(hosts) + 1):
            servers, k = n * n, 1
            while servers < hosts:
                servers, k = servers * n, k + 1
            if servers == hosts:
                yield cls(n=n, k=k, **links)

    def check(self) -> None:
        """The servers can be counted.

        Raises
        ------
        ParameterError
            There are too many levels for that.
        """
        if self.k > _LEVEL_MAX:
            raise ParameterError(
                "k", f"{self.kind}: k is {self.k}, must be at most {_LEVEL_MAX}; it has n^(k + 1) servers"
            )

    def counts(self) -> Counts:
        servers, ports = self.n ** (self.k + 1), self.k + 1
        return Counts(servers, servers + ports * self.n**self.k, 2 * servers * (ports + 1))

    def facts(self) -> Facts:
        counts, ports = self.counts(), self.k + 1
        is_known = self.n == 2 or self.k == 0
        bisection = counts.hosts // 2 * self.rate_bps if is_known else None
        return Facts(*counts, 2 * ports + 2, bisection, factorial(ports))

    def graph(self) -> nx.Graph:
        """Hosts h0 … with ports port0 … in order of their addresses; switches level0s0 …, on tiers 2 and up.

        A server's number is its address with the highest digit first. On level i, a switch's number is the
        address of its servers without digit i.
        """
        graph = new_graph(self.kind)
        servers = range(self.n ** (self.k + 1))
        for server in servers:
            add_server(graph, f"h{server}", f"port{server}")
        for level in range(self.k + 1):
            for number in range(self.n**self.k):
                add_switch(graph, f"level{level}s{number}", level + 2, self.switch)
            step = self.n**level
            for server in servers:
                number = server // (step * self.n) * step + server % step
                add_link(graph, f"port{server}", f"level{level}s{number}", self.link())
        validate(graph)
        return graph
