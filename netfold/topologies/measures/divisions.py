"""The exact bisection of a topology, by all divisions of its switches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations, product
from math import prod
from typing import NamedTuple

import networkx as nx

from netfold.topologies.graph import racks, switches

# With more divisions of the switches the bisection is not computed this way; this many take about a second.
DIVISIONS_MAX = 2**14


class _Group(NamedTuple):
    """Interchangeable switches: the same neighbours at the same rates, and the same rates of hosts."""

    switches: list[str]
    host_rates_bps: tuple[int, ...]  # of each switch, sorted


def by_divisions(graph: nx.Graph) -> int | None:
    """Smallest rate in one direction between two halves of the hosts (equal, or one apart); exact.

    That is the minimum of the maximum flow between the halves over all such splits of the hosts. A maximum
    flow is a minimum cut, and a cut puts each switch on one side; so instead of splits of the hosts we go
    through divisions of the *switches*. Given one, the links between its sides are cut and hosts follow
    their switch; if one side then has too many hosts, those with the slowest links change sides, each at the
    cost of its link. Of interchangeable switches only the number on a side matters, so a leaf-spine of L
    leaves and S spines has (L + 1)·(S + 1) divisions.

    The problem is NP-hard in general: None where there are more than `DIVISIONS_MAX` divisions.
    """
    groups = _exchangeable(graph)
    if prod(len(group.switches) + 1 for group in groups) > DIVISIONS_MAX:
        return None
    group_links = [
        (one, two, graph.edges[groups[one].switches[0], groups[two].switches[0]]["rate_bps"])
        for one, two in combinations(range(len(groups)), 2)
        if graph.has_edge(groups[one].switches[0], groups[two].switches[0])
    ]
    sizes = [len(group.switches) for group in groups]
    best: int | None = None
    for near in product(*(range(size + 1) for size in sizes)):
        far = [size - count for size, count in zip(sizes, near, strict=True)]
        cut_bps = sum(rate * (near[one] * far[two] + far[one] * near[two]) for one, two, rate in group_links)
        if best is None or cut_bps < best:
            cut_bps += balance_bps(_host_rates(groups, near), _host_rates(groups, far))
            best = cut_bps if best is None else min(best, cut_bps)
    return best


def _exchangeable(graph: nx.Graph) -> list[_Group]:
    groups: dict[tuple[frozenset[tuple[str, int]], tuple[int, ...]], list[str]] = defaultdict(list)
    on_rack = racks(graph)
    for name in switches(graph):
        members = set(on_rack.get(name, ()))
        neighbours = {other: edge["rate_bps"] for other, edge in graph.adj[name].items()}
        host_rates = tuple(sorted(rate for other, rate in neighbours.items() if other in members))
        uplinks = frozenset(item for item in neighbours.items() if item[0] not in members)
        groups[uplinks, host_rates].append(name)
    return [_Group(names, host_rates) for (_, host_rates), names in groups.items()]


def _host_rates(groups: Sequence[_Group], counts: Sequence[int]) -> list[int]:
    """Rates of the hosts on `counts[i]` switches of each group i."""
    return [
        rate for group, count in zip(groups, counts, strict=True) for rate in group.host_rates_bps * count
    ]


def balance_bps(near: Sequence[int], far: Sequence[int]) -> int:
    """Smallest total rate of the hosts that change sides to make the sides differ by at most one host."""
    smaller, larger = sorted((near, far), key=len)
    return sum(sorted(larger)[: (len(larger) - len(smaller)) // 2])
