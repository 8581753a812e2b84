"""Tiers as rows: hosts at the bottom, switches above what they are linked to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import networkx as nx

from netfold.topologies.graph import HOST, hosts, switches

_ROOM = 1.9  # that switches above their hosts need
_BETWEEN_RACKS = 0.6  # more space between hosts of different racks, in units of the space of a host


def rows(graph: nx.Graph) -> dict[str, tuple[float, float]]:
    """A place for every node: x from 0 to the width of the widest row, y the number of its row.

    Within a tier, switches of one island are a row below the others.
    """
    levels = sorted({level_of(graph, name) for name in switches(graph)})
    members = [[name for name in switches(graph) if level_of(graph, name) == level] for level in levels]
    at_bottom = _hosts_in_order(graph)
    x = _bottom(graph, at_bottom)
    width = max([*x.values(), *(1.0 * (len(row) - 1) for row in members)])
    shift = (width - max(x.values())) / 2
    x = {name: place + shift for name, place in x.items()}
    y = dict.fromkeys(at_bottom, 0.0)
    for number, row in enumerate(members, start=1):
        ordered = _by_neighbours(graph, row, x)
        x |= _spread(graph, ordered, x, width)
        y |= dict.fromkeys(row, float(number))
    return {name: (x[name], y[name]) for name in graph}


def level_of(graph: nx.Graph, name: str) -> tuple[int, bool]:
    """What the row of a switch follows from: its tier, and whether it belongs to no island."""
    attributes = graph.nodes[name]
    return attributes["tier"], "island" not in attributes


def _hosts_in_order(graph: nx.Graph) -> list[str]:
    """Hosts by island, then by the order of their switches."""
    order = {name: index for index, name in enumerate(switches(graph))}
    return sorted(
        hosts(graph),
        key=lambda name: (graph.nodes[name].get("island", 0), min(order[one] for one in graph.adj[name])),
    )


def _bottom(graph: nx.Graph, ordered: Sequence[str]) -> dict[str, float]:
    """Places of hosts side by side, racks or islands apart."""
    x, at, before = {}, 0.0, None
    several = len({_rack(graph, name) for name in ordered}) < len(ordered)
    for name in ordered:
        rack = _rack(graph, name)
        if before is not None:
            at += 1.0 + (_BETWEEN_RACKS if several and rack != before else 0.0)
        x[name], before = at, rack
    return x


def _rack(graph: nx.Graph, host: str) -> object:
    """What a host shares with those beside it: its island, or its switch."""
    return graph.nodes[host].get("island", next(iter(graph.adj[host])))


def _by_neighbours(graph: nx.Graph, row: Sequence[str], x: dict[str, float]) -> list[str]:
    """A row by the mean place of what its nodes are linked to below; ties keep the graph's order."""
    return sorted(row, key=lambda name: round(_mean_below(graph, name, x), 6))


def _mean_below(graph: nx.Graph, name: str, x: dict[str, float]) -> float:
    below = [x[other] for other in graph.adj[name] if other in x]
    return sum(below) / len(below) if below else max(x.values()) / 2


def _spread(graph: nx.Graph, ordered: Sequence[str], x: dict[str, float], width: float) -> dict[str, float]:
    """Above the middle of their hosts where that leaves space between them, else evenly over the width."""
    own = [_mean_below(graph, name, x) for name in ordered]
    has_hosts = all(any(graph.nodes[other]["kind"] == HOST for other in graph.adj[name]) for name in ordered)
    least = min((b - a for a, b in pairwise(own)), default=width)
    share = (width + 1) / len(ordered)
    if (has_hosts and least >= min(_ROOM, 0.9 * share)) or len(ordered) == 1:
        return dict(zip(ordered, own, strict=True))
    return {name: (index + 0.5) * share - 0.5 for index, name in enumerate(ordered)}
