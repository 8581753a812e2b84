"""What a topology is built of: switches, ports and cables."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import networkx as nx

from netfold.topologies.graph import hosts, server_ports, switches

WITHIN_RACK, WITHIN_ROW, ACROSS_HALL = "within a rack", "within a row", "across the hall"
LENGTHS = (WITHIN_RACK, WITHIN_ROW, ACROSS_HALL)
PS_PER_METRE = 5_000  # light in fibre
_RACK_PS, _ROW_PS = 3 * PS_PER_METRE, 30 * PS_PER_METRE
BY_DELAY = (
    f"by delay, at {PS_PER_METRE // 1000} ns a metre: up to {_RACK_PS // PS_PER_METRE} m within a rack, "
    f"up to {_ROW_PS // PS_PER_METRE} m within a row, longer ones across the hall"
)
BY_TIER = (
    "by tier: those of hosts within a rack; those between switches of tiers 1 and 2, if both are in one "
    "group or in none, within a row; all others across the hall"
)


class Cost(NamedTuple):
    """Parts of a topology. What is inside of a server (`graph.server_ports`) is no switch, port or cable."""

    switches_by_tier: dict[int, int]
    switch_ports_by_rate: dict[int, int]  # bits per second, fastest first
    host_ports_by_rate: dict[int, int]
    cables: dict[str, dict[int, int]]  # by length class, then by rate; one for both directions
    length_rule: str  # how the classes were told apart

    @property
    def switches_count(self) -> int:
        """Switches of all tiers."""
        return sum(self.switches_by_tier.values())

    @property
    def cables_count(self) -> int:
        """Cables of all lengths."""
        return sum(sum(by_rate.values()) for by_rate in self.cables.values())


def cost(graph: nx.Graph) -> Cost:
    """Switches, ports and cables of a valid graph.

    Delays decide how long cables are if at least one is so short that it stays within a row. Otherwise a
    delay stands for more than a cable, as the default of 1 us does, and tiers decide.
    """
    inside = server_ports(graph)
    at_hosts = {*inside, *hosts(graph)}
    cabled = [
        (a, b, edge) for a, b, edge in graph.edges(data=True) if inside.get(a) != b and inside.get(b) != a
    ]
    by_delay = any(edge["delay_ps"] <= _ROW_PS for _, _, edge in cabled)
    cables: dict[str, Counter[int]] = {length: Counter() for length in LENGTHS}
    ports: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    for a, b, edge in cabled:
        length = _by_delay(edge["delay_ps"]) if by_delay else _by_tier(graph, a, b, at_hosts)
        cables[length][edge["rate_bps"]] += 1
        for end in (a, b):
            ports[end in at_hosts][edge["rate_bps"]] += 1
    tiers = Counter(graph.nodes[name]["tier"] for name in switches(graph) if name not in inside)
    return Cost(
        dict(sorted(tiers.items())),
        _fastest_first(ports[False]),
        _fastest_first(ports[True]),
        {length: _fastest_first(found) for length, found in cables.items() if found},
        BY_DELAY if by_delay else BY_TIER,
    )


def oversubscription(graph: nx.Graph) -> dict[int, float]:
    """By tier: the most that a switch's links down carry over what its links up carry.

    Down lead to lower tiers, up to higher ones; tiers without both are left out. Links inside of servers do
    not count, and the ports of a server count as tier 0.
    """
    inside = server_ports(graph)
    tier = {name: 0 if name in inside else own for name, own in graph.nodes(data="tier")}
    found: dict[int, float] = {}
    for name in switches(graph):
        if name in inside:
            continue
        down = up = 0
        for other, edge in graph.adj[name].items():
            down += edge["rate_bps"] * (tier[other] < tier[name])
            up += edge["rate_bps"] * (tier[other] > tier[name])
        if down and up:
            found[tier[name]] = max(found.get(tier[name], 0.0), down / up)
    return dict(sorted(found.items()))


def _by_delay(delay_ps: int) -> str:
    if delay_ps <= _RACK_PS:
        return WITHIN_RACK
    return WITHIN_ROW if delay_ps <= _ROW_PS else ACROSS_HALL


def _by_tier(graph: nx.Graph, a: str, b: str, at_hosts: set[str]) -> str:
    if a in at_hosts or b in at_hosts:
        return WITHIN_RACK
    one, two = graph.nodes[a], graph.nodes[b]
    is_near = max(one["tier"], two["tier"]) <= 2 and one.get("group") == two.get("group")
    return WITHIN_ROW if is_near else ACROSS_HALL


def _fastest_first(counts: Counter[int]) -> dict[int, int]:
    return dict(sorted(counts.items(), reverse=True))
