"""A large topology in short: classes of nodes, and the links between two classes, with their numbers."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

import networkx as nx

from netfold.topologies.graph import HOST
from netfold.topologies.layout.servers import in_one_piece

_NAMES_MAX = 4  # of classes in a tier; with more they become one
_OTHER_NAMES = ("host", "switch")
NODES_DRAWN_MAX = 200  # of a graph that is drawn node by node


class Class(NamedTuple):
    """Nodes of one tier whose names have the same letters."""

    tier: int
    name: str  # "leaf" of leaf0, leaf1, …; "group router" of group0router0
    nodes_count: int
    profiles: tuple[str, ...]  # none for hosts
    hosts_each: tuple[int, ...]  # numbers of hosts on a switch that occur, ascending; none for hosts


class Bundle(NamedTuple):
    """The links between two classes, or within one; an edge is one."""

    lower: int  # class
    upper: int  # class; of a higher tier, or of the same
    rates_bps: dict[int, int]  # edges by their rate, fastest first
    edges: tuple[tuple[str, str], ...]  # lower end first


class _Link(NamedTuple):
    """An edge, with the names that it has in the given graph."""

    rate_bps: int
    ends: tuple[str, str]  # the end in the lower class first


class Tiers(NamedTuple):
    """Classes from the hosts upward, and what links them."""

    classes: tuple[Class, ...]
    bundles: tuple[Bundle, ...]


def tiers_of(graph: nx.Graph) -> Tiers:
    """The classes and bundles of a valid graph; a server with several ports is one node."""
    graph = in_one_piece(graph)
    keys: dict[str, tuple[int, str]] = {
        name: (data["tier"], stem(name)) for name, data in graph.nodes(data=True)
    }
    names_in = Counter(tier for tier, _ in {*keys.values()})
    keys = {
        name: (tier, letters if names_in[tier] <= _NAMES_MAX else _OTHER_NAMES[tier > 0])
        for name, (tier, letters) in keys.items()
    }
    order = sorted({*keys.values()})
    number = {key: index for index, key in enumerate(order)}
    found: dict[tuple[int, int], list[_Link]] = {}
    for a, b, data in graph.edges(data=True):
        ends = data.get("ends", {a: a, b: b})
        one, two = number[keys[a]], number[keys[b]]
        lower, upper = ((one, a), (two, b)) if one <= two else ((two, b), (one, a))
        link = _Link(data["rate_bps"], (ends[lower[1]], ends[upper[1]]))
        found.setdefault((lower[0], upper[0]), []).append(link)
    bundles = tuple(
        Bundle(*classes, _rates(links), tuple(link.ends for link in links))
        for classes, links in sorted(found.items())
    )
    return Tiers(tuple(_class(graph, key, keys) for key in order), bundles)


def stem(name: str) -> str:
    """The letters of a name: "leaf" of "leaf12"; the whole name if it has none."""
    return " ".join(re.findall(r"[^\W\d_]+", name)) or name


def _class(graph: nx.Graph, key: tuple[int, str], keys: dict[str, tuple[int, str]]) -> Class:
    names = [name for name, own in keys.items() if own == key]
    if graph.nodes[names[0]]["kind"] == HOST:
        return Class(*key, len(names), (), ())
    each = {sum(graph.nodes[other]["kind"] == HOST for other in graph.adj[name]) for name in names}
    profiles = {graph.nodes[name]["profile"] for name in names}
    return Class(*key, len(names), tuple(sorted(profiles)), tuple(sorted(each)))


def _rates(links: list[_Link]) -> dict[int, int]:
    counted = Counter(link.rate_bps for link in links)
    return dict(sorted(counted.items(), reverse=True))
