"""What a topology is: an undirected networkx graph of hosts and switches that keeps a contract.

Nodes carry `kind` ("host" or "switch"), `tier` (0 for hosts, 1 for the switches they hang on, counting up)
and `profile` (what a switch can do; "" for hosts). Each edge stands for two links, one a direction, that
share the edge's `rate_bps`, `delay_ps` and `buffer_bytes`. `validate` has the contract in full. Order of
insertion is the order of hosts and switches everywhere else.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import networkx as nx

HOST = "host"
SWITCH = "switch"
HOST_ATTRIBUTES = {"kind": HOST, "tier": 0, "profile": ""}

# Allowed values of an edge's attributes, both ends included. A thousand of the longest delays fit int64.
LINK_RANGES = {
    "rate_bps": (1, 10**15),
    "delay_ps": (0, 10**15),
    "buffer_bytes": (1, 2**40),
}


class TopologyError(ValueError):
    """A graph that breaks the contract, or something asked of a graph that it cannot give."""


@dataclass(frozen=True)
class LinkSpec:
    """One direction of a link; both directions of an edge are alike.

    `buffer_bytes` is the egress buffer of a *switch* port. Links out of hosts have no such limit: the
    sender's window limits what waits there.
    """

    rate_bps: int
    delay_ps: int
    buffer_bytes: int


def new_graph(name: str) -> nx.Graph:
    """Empty topology; the name is the one errors and reports use."""
    return nx.Graph(name=name)


def add_host(graph: nx.Graph, name: str) -> None:
    """Add a host: a machine that sends and receives and never forwards."""
    _add_node(graph, name, **HOST_ATTRIBUTES)


def add_switch(graph: nx.Graph, name: str, tier: int, profile: str) -> None:
    """Add a switch of a tier (1 is next to the hosts) whose abilities the profile names."""
    _add_node(graph, name, kind=SWITCH, tier=tier, profile=profile)


def _add_node(graph: nx.Graph, name: str, **attributes: Any) -> None:
    if name in graph:
        raise TopologyError(f"{where(graph)}there already is a node {name!r}; names must be unique")
    graph.add_node(name, **attributes)


def add_link(graph: nx.Graph, a: str, b: str, link: LinkSpec) -> None:
    """Connect two nodes with a pair of links, one each way.

    Raises
    ------
    TopologyError
        A node does not exist, or the two are linked already. networkx would create the node or overwrite the
        link without a word.
    """
    for name in (a, b):
        if name not in graph:
            raise TopologyError(
                f"{where(graph)}cannot link {a!r} and {b!r}: there is no node {name!r}; add it first"
            )
    if graph.has_edge(a, b):
        raise TopologyError(
            f"{where(graph)}{a!r} and {b!r} are linked already; two nodes have one link each way, "
            "for more capacity raise its rate_bps"
        )
    graph.add_edge(a, b, **asdict(link))


def hosts(graph: nx.Graph) -> list[str]:
    """Names of the hosts, in order of insertion."""
    return [name for name, kind in graph.nodes(data="kind") if kind == HOST]


def switches(graph: nx.Graph) -> list[str]:
    """Names of the switches, in order of insertion."""
    return [name for name, kind in graph.nodes(data="kind") if kind == SWITCH]


def racks(graph: nx.Graph) -> dict[str, list[str]]:
    """The switches that have hosts, each with its hosts; both in order of insertion."""
    found: dict[str, list[str]] = {switch: [] for switch in switches(graph)}
    for host in hosts(graph):
        found[next(iter(graph.adj[host]))].append(host)
    return {switch: members for switch, members in found.items() if members}


def validate(graph: nx.Graph) -> None:
    """Check the contract. A graph that passes has these properties, each with its own error:

    - it is undirected and has at most one edge between two nodes;
    - no node is linked to itself;
    - every name is a non-empty string without "->", which joins names in the names of links;
    - every node has a `kind`, which is "host" or "switch";
    - every node has a `tier`, an int: 0 for hosts, 1 or more for switches;
    - every node has a `profile`, a str: "" for hosts, not "" for switches;
    - every edge has `rate_bps`, `delay_ps` and `buffer_bytes`, ints within `LINK_RANGES`;
    - there is a host;
    - every host has exactly one edge;
    - that edge leads to a switch;
    - every node can be reached from every other (so no switch is isolated).

    Raises
    ------
    TopologyError
        Names the first offender, what was found there and what is allowed.
    """
    _check_simple(graph)
    for name, attributes in graph.nodes(data=True):
        _check_name(graph, name)
        _check_node(graph, name, attributes)
    for a, b, attributes in graph.edges(data=True):
        _check_edge(graph, a, b, attributes)
    _check_hosts(graph)
    _check_connected(graph)


def where(graph: nx.Graph) -> str:
    """How error texts begin."""
    return f"topology {graph.name!r}: " if graph.name else "topology: "


def _check_simple(graph: nx.Graph) -> None:
    if graph.is_directed() or graph.is_multigraph():
        raise TopologyError(
            f"{where(graph)}is a {type(graph).__name__}, must be an undirected networkx.Graph; "
            "one edge already stands for a link each way"
        )
    for name in nx.nodes_with_selfloops(graph):
        raise TopologyError(f"{where(graph)}node {name!r} is linked to itself; remove that link")


def _check_name(graph: nx.Graph, name: object) -> None:
    if not isinstance(name, str) or not name or "->" in name:
        raise TopologyError(f"{where(graph)}{name!r} cannot name a node; use a non-empty string without '->'")


def _found(attributes: dict[str, Any], key: str) -> str:
    return f"{key} is {attributes[key]!r}" if key in attributes else f"{key} is missing"


def _check_node(graph: nx.Graph, name: str, attributes: dict[str, Any]) -> None:
    at = f"{where(graph)}node {name!r}: "
    kind, tier, profile = (attributes.get(key) for key in ("kind", "tier", "profile"))
    if kind not in (HOST, SWITCH):
        raise TopologyError(f"{at}{_found(attributes, 'kind')}, must be 'host' or 'switch'")
    if type(tier) is not int or (tier != 0 if kind == HOST else tier < 1):
        allowed = "0 for a host" if kind == HOST else "an int of at least 1 for a switch"
        raise TopologyError(f"{at}{_found(attributes, 'tier')}, must be {allowed}")
    if not isinstance(profile, str) or (profile == "") != (kind == HOST):
        allowed = "'' for a host" if kind == HOST else "the name of a switch profile, such as 'plain'"
        raise TopologyError(f"{at}{_found(attributes, 'profile')}, must be {allowed}")


def _check_edge(graph: nx.Graph, a: str, b: str, attributes: dict[str, Any]) -> None:
    for key, (lowest, highest) in LINK_RANGES.items():
        value = attributes.get(key)
        if type(value) is not int or not lowest <= value <= highest:
            raise TopologyError(
                f"{where(graph)}link {a!r} - {b!r}: {_found(attributes, key)}, "
                f"must be an int from {lowest} to {highest}"
            )


def _check_hosts(graph: nx.Graph) -> None:
    if not hosts(graph):
        raise TopologyError(f"{where(graph)}has no host; add at least one and link it to a switch")
    for host in hosts(graph):
        neighbours = list(graph.adj[host])
        if len(neighbours) != 1:
            raise TopologyError(
                f"{where(graph)}host {host!r} has {len(neighbours)} links (to {neighbours}), "
                "must have exactly one, to a switch"
            )
        if graph.nodes[neighbours[0]]["kind"] != SWITCH:
            raise TopologyError(
                f"{where(graph)}host {host!r} is linked to host {neighbours[0]!r}, must be linked to a switch"
            )


def _check_connected(graph: nx.Graph) -> None:
    first = hosts(graph)[0]
    reached = nx.node_connected_component(graph, first)
    lost = [name for name in graph if name not in reached]
    if lost:
        shown = ", ".join(repr(name) for name in lost[:3]) + (", …" if len(lost) > 3 else "")
        raise TopologyError(
            f"{where(graph)}{len(lost)} of {len(graph)} nodes cannot be reached from {first!r} ({shown}); "
            "link them or remove them"
        )


def check_counts(caller: str, **counts: int) -> None:
    """Check that arguments of `caller` are ints of at least 1.

    Raises
    ------
    TopologyError
        Names the first that is not.
    """
    for name, count in counts.items():
        if type(count) is not int or count < 1:
            raise TopologyError(f"{caller}: {name} is {count!r}, must be an int of at least 1")
