"""A topology: an undirected networkx graph of hosts and switches that satisfies a contract.

Nodes carry `kind` ("host" or "switch"), `tier` (0 for hosts, 1 for their switches, and so on) and `profile`
(the capabilities of a switch; "" for hosts). Each edge stands for two links, one per direction, with the
edge's `rate_bps`, `delay_ps` and `buffer_bytes`. `validate` checks the full contract. Hosts and switches are
in the order of insertion everywhere else.

Nodes of some generated graphs also carry `PLACES`; graphs of tori, hypercubes and hyperx have their
`dimensions`, a tuple of ints.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from itertools import chain
from typing import Any

import networkx as nx

from netfold.errors import NAMES_SHOWN, names_hint

HOST = "host"
SWITCH = "switch"
_NAME_MAX = 100  # characters of a node's name
_SHOWN_CHARACTERS = 120
HOST_ATTRIBUTES = {"kind": HOST, "tier": 0, "profile": ""}

# Where a node is in a regular graph: attributes that it may have.
PLACES = {
    "coordinates": "a tuple of ints",  # place of a switch in a torus, hypercube or hyperx
    "group": "an int",  # a group of a dragonfly; a pod of a fat tree, a clos or rails
    "island": "an int",  # GPUs that share NVLink switches
    "rail": "an int",  # GPUs that have the same place in their island
    "server": "an int",  # marks a switch that stands for the ports of a server; any number
}

# Allowed values of an edge's attributes, limits included. A thousand of the longest delays fit int64.
LINK_RANGES = {
    "rate_bps": (1, 10**15),
    "delay_ps": (0, 10**15),
    "buffer_bytes": (1, 2**40),
}


# Limits of the packet engine; memory for routes may allow less.
NODES_MAX = 16384
LINKS_MAX = 2**18  # both directions counted


class TopologyError(ValueError):
    """A graph that breaks the contract, or a request that it cannot satisfy."""

    def __init__(self, *mistakes: str) -> None:
        super().__init__(*mistakes)
        self.mistakes = mistakes  # one or more

    def __str__(self) -> str:
        return "\n".join(self.mistakes)


@dataclass(frozen=True)
class LinkSpec:
    """Attributes of a link; both directions of an edge have the same.

    `buffer_bytes` is the egress buffer of a *switch* port. Links out of hosts have no such limit: the
    sender's window limits what waits there.
    """

    rate_bps: int
    delay_ps: int
    buffer_bytes: int


# Between a server and a switch that stands for its ports: it takes no time.
PORT_LINK = LinkSpec(rate_bps=LINK_RANGES["rate_bps"][1], delay_ps=0, buffer_bytes=2**40)


def new_graph(name: str) -> nx.Graph:
    return nx.Graph(name=name)


def add_host(graph: nx.Graph, name: str, **places: Any) -> None:
    # A host never forwards.
    _add_node(graph, name, **HOST_ATTRIBUTES, **places)


def add_switch(graph: nx.Graph, name: str, tier: int, profile: str, **places: Any) -> None:
    # Tier 1 is next to the hosts.
    _add_node(graph, name, kind=SWITCH, tier=tier, profile=profile, **places)


def add_server(graph: nx.Graph, host: str, port: str, **places: Any) -> None:
    """Add a server of several ports, or one that forwards: a host, and a switch that stands for its ports."""
    # The link between them has the highest rate and no delay.
    add_host(graph, host, **places)
    add_switch(graph, port, tier=1, profile="plain", server=len(graph) // 2, **places)
    add_link(graph, host, port, PORT_LINK)


def server_ports(graph: nx.Graph) -> dict[str, str]:
    """The host of each switch that stands for the ports of a server, by that switch."""
    owners = {}
    for port in switches(graph):
        if "server" in graph.nodes[port]:
            owners[port] = next(node for node in graph.adj[port] if graph.nodes[node]["kind"] == HOST)
    return owners


def unmarked_ports(graph: nx.Graph) -> tuple[str, ...]:
    """Links that are like those inside of servers, at switches that are not marked as ports of a server."""
    inside, within = server_ports(graph), (PORT_LINK.rate_bps, PORT_LINK.delay_ps)
    return tuple(
        f"{a}–{b}"
        for a, b, edge in graph.edges(data=True)
        if (edge["rate_bps"], edge["delay_ps"]) == within and b != inside.get(a) and a != inside.get(b)
    )


def _add_node(graph: nx.Graph, name: str, **attributes: Any) -> None:
    if name in graph:
        raise TopologyError(f"{where(graph)}there already is a node {name!r}; names must be unique")
    graph.add_node(name, **attributes)


def add_link(graph: nx.Graph, a: str, b: str, link: LinkSpec) -> None:
    """Connect two nodes with a pair of links, one each way.

    Raises
    ------
    TopologyError
        A node does not exist, or the two are linked already. networkx would silently create the node or
        overwrite the link.
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
    graph.add_edge(a, b, **vars(link))


def hosts(graph: nx.Graph) -> list[str]:
    return [name for name, kind in graph.nodes(data="kind") if kind == HOST]


def switches(graph: nx.Graph) -> list[str]:
    return [name for name, kind in graph.nodes(data="kind") if kind == SWITCH]


def racks(graph: nx.Graph) -> dict[str, list[str]]:
    """Hosts by the switch that they are linked to; both in order of insertion."""
    rack_hosts: dict[str, list[str]] = {switch: [] for switch in switches(graph)}
    for host in hosts(graph):
        rack_hosts[next(iter(graph.adj[host]))].append(host)
    return {switch: members for switch, members in rack_hosts.items() if members}


def validate(graph: nx.Graph) -> None:
    """Check the contract. A graph that passes has these properties, each with its own error:

    - it is undirected and has at most one edge between two nodes;
    - no node is linked to itself;
    - every name is printable text of 1 to 100 characters without "->", which joins names in those of links;
    - every node has a `kind`, which is "host" or "switch";
    - every node has a `tier`, an int: 0 for hosts, 1 or more for switches;
    - every node has a `profile`, a str: "" for hosts, not "" for switches;
    - where a node has some of `PLACES`, they are ints, or a tuple of ints;
    - every edge has `rate_bps`, `delay_ps` and `buffer_bytes`, ints within `LINK_RANGES`;
    - there is a host;
    - every host has exactly one edge;
    - that edge leads to a switch;
    - a switch with `server` has one host, and an edge to another switch;
    - every node can be reached from every other (so no switch is isolated).

    Raises
    ------
    TopologyError
        Names the first offender, what was found there and what is allowed.
    """
    _check_simple(graph)
    for name, attributes in graph.nodes(data=True):
        for mistake in node_mistakes(name, attributes):
            raise TopologyError(f"{where(graph)}{mistake}")
    for a, b, attributes in graph.edges(data=True):
        for mistake in edge_mistakes(attributes):
            raise TopologyError(f"{where(graph)}link {a!r} - {b!r}: {mistake}")
    _check_hosts(graph)
    _check_servers(graph)
    _check_connected(graph)


def where(graph: nx.Graph) -> str:
    return f"topology {graph.name!r}: " if graph.name else "topology: "


def _check_simple(graph: nx.Graph) -> None:
    if graph.is_directed() or graph.is_multigraph():
        raise TopologyError(
            f"{where(graph)}is a {type(graph).__name__}, must be an undirected networkx.Graph; "
            "one edge already stands for a link each way"
        )
    for name in nx.nodes_with_selfloops(graph):
        raise TopologyError(f"{where(graph)}node {name!r} is linked to itself; remove that link")


def check_size(graph: nx.Graph, nodes: int, links: int) -> None:
    """Check the future size of a graph; links are counted in both directions.

    Raises
    ------
    TopologyError
        More than `NODES_MAX` or `LINKS_MAX`.
    """
    if nodes > NODES_MAX:
        raise TopologyError(
            f"{where(graph)}{nodes} nodes are too many; the packet engine takes up to {NODES_MAX}"
        )
    if links > LINKS_MAX:
        raise TopologyError(
            f"{where(graph)}{links} links are too many; the packet engine takes up to {LINKS_MAX}"
        )


def node_mistakes(name: object, attributes: Mapping[str, Any]) -> Iterator[str]:
    """Errors in a node's name and attributes."""
    if not isinstance(name, str) or not name or "->" in name:
        yield f"{shorten(name)} cannot name a node; use a non-empty string without '->'"
        return
    if len(name) > _NAME_MAX or not name.isprintable():
        yield f"{shorten(name)} cannot name a node; use up to {_NAME_MAX} printable characters"
        return
    kind, tier, profile = (attributes.get(key) for key in ("kind", "tier", "profile"))
    if kind not in (HOST, SWITCH):
        yield f"node {name!r}: {_found(attributes, 'kind')}, must be 'host' or 'switch'"
        return
    if type(tier) is not int or (tier != 0 if kind == HOST else tier < 1):
        allowed = "0 for a host" if kind == HOST else "an int of at least 1 for a switch"
        yield f"node {name!r}: {_found(attributes, 'tier')}, must be {allowed}"
    if not isinstance(profile, str) or (profile == "") != (kind == HOST):
        allowed = "'' for a host" if kind == HOST else "the name of a switch profile, such as 'plain'"
        yield f"node {name!r}: {_found(attributes, 'profile')}, must be {allowed}"
    for key, allowed in PLACES.items():
        if key in attributes and not _is_place(attributes[key], is_tuple="tuple" in allowed):
            yield f"node {name!r}: {_found(attributes, key)}, must be {allowed}"


def _is_place(value: object, is_tuple: bool) -> bool:
    if is_tuple:
        return isinstance(value, tuple) and all(type(coordinate) is int for coordinate in value)
    return type(value) is int


def edge_mistakes(attributes: Mapping[str, Any], without: Collection[str] = ()) -> Iterator[str]:
    """Errors in the attributes of an edge, except those in `without`."""
    for key, (lowest, highest) in LINK_RANGES.items():
        value = attributes.get(key)
        if key not in without and (type(value) is not int or not lowest <= value <= highest):
            yield f"{_found(attributes, key)}, must be an int from {lowest} to {highest}"


def shorten(value: object) -> str:
    """A value for an error message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def _found(attributes: Mapping[str, Any], key: str) -> str:
    return f"{key} is {shorten(attributes[key])}" if key in attributes else f"{key} is missing"


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


def _check_servers(graph: nx.Graph) -> None:
    for name, data in graph.nodes(data=True):
        if "server" not in data:
            continue
        around = Counter(graph.nodes[neighbour]["kind"] for neighbour in graph.adj[name])
        if data["kind"] != SWITCH or around[HOST] != 1 or not around[SWITCH]:
            raise TopologyError(
                f"{where(graph)}{data['kind']} {name!r} has `server`, and links to {around[HOST]} hosts and "
                f"{around[SWITCH]} switches; its ports are a switch with one host and some switches"
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
    for name, count in counts.items():
        if type(count) is not int or count < 1:
            raise TopologyError(f"{caller}: {name} is {count!r}, must be an int of at least 1")


# Changes of single links and switches of a graph, and their absence, which patterns of names select.
#
# A link is called by its ends, "leaf0-spine1" or "spine1-leaf0": a pattern may match either. Patterns are
# those of `fnmatch`, case included: `*` is any text, `?` a character, `[01]` one of some. Later changes win
# over earlier ones.


class NoMatchError(TopologyError):
    """A pattern that matches nothing; `index` is the number of its change, from 0."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


class CutOffError(TopologyError):
    """Hosts without a path to the others; `hosts_count` is their number."""

    def __init__(self, hosts_count: int, message: str) -> None:
        super().__init__(message)
        self.hosts_count = hosts_count


def change_links(graph: nx.Graph, changes: Sequence[tuple[str, Mapping[str, int]]]) -> None:
    """Give the links that a pattern matches new attributes, in both directions, one change after the other.

    Raises NoMatchError, with names that come near, where a pattern matches no link, and TopologyError where a
    value is out of range.
    """
    for index, (pattern, attributes) in enumerate(changes):
        edges = links_matching(graph, pattern)
        if not edges:
            raise _no_match(graph, index, "link", pattern)
        for edge in edges:
            graph.edges[edge].update(attributes)
    if changes:
        validate(graph)


def change_profiles(graph: nx.Graph, changes: Sequence[tuple[str, str]]) -> None:
    """Give the switches that a pattern matches another profile, one change after the other.

    Raises
    ------
    NoMatchError
        A pattern matches no switch; the message has names that come near.
    """
    for index, (pattern, profile) in enumerate(changes):
        names = switches_matching(graph, pattern)
        if not names:
            raise _no_match(graph, index, "switch", pattern)
        for name in names:
            graph.nodes[name]["profile"] = profile
    if changes:
        validate(graph)


def remove_matching(graph: nx.Graph, patterns: Sequence[str]) -> None:
    """Remove the switches and links that any pattern matches, as `remove` does.

    Raises NoMatchError where a pattern matches nothing, and CutOffError as `remove` does.
    """
    matches = [parts_matching(graph, pattern, index) for index, pattern in enumerate(patterns)]
    if matches:
        absent, links = (list(chain.from_iterable(parts)) for parts in zip(*matches, strict=True))
        remove(graph, absent, links)


def remove(graph: nx.Graph, absent: Collection[str], links: Collection[tuple[str, str]]) -> None:
    """Remove switches and links, then the switches that no host reaches any more.

    Raises
    ------
    CutOffError
        Hosts have no path to the others, which are those of the part with most hosts.
    """
    rack_of = {host: next(iter(graph.adj[host])) for host in hosts(graph)}
    graph.remove_edges_from(links)
    graph.remove_nodes_from(absent)
    largest = max(nx.connected_components(graph), key=lambda part: len(part & rack_of.keys()))
    cut_off = [host for host in rack_of if host not in largest or not graph.adj[host]]
    if cut_off:
        racks_cut_off = Counter(rack_of[host] for host in cut_off)
        shown = ", ".join(f"{count} of {rack}" for rack, count in [*racks_cut_off.items()][:NAMES_SHOWN])
        raise CutOffError(
            len(cut_off),
            f"{where(graph)}these hosts have no path to the others: "
            f"{', '.join(cut_off[:NAMES_SHOWN])}{', …' * (len(cut_off) > NAMES_SHOWN)} ({shown}"
            f"{', …' * (len(racks_cut_off) > NAMES_SHOWN)}); "
            "a host needs its link, its switch, and a path from there to all other hosts",
        )
    graph.remove_nodes_from([name for name in graph if name not in largest])


def parts_matching(graph: nx.Graph, pattern: str, index: int = 0) -> tuple[list[str], list[tuple[str, str]]]:
    """The switches that a pattern matches or, if it matches none, the links.

    Raises NoMatchError, which says that it is number `index` of several, where it matches neither.
    """
    names = switches_matching(graph, pattern)
    edges = [] if names else links_matching(graph, pattern)  # spine* matches spine0-leaf0, too
    if not names and not edges:
        raise _no_match(graph, index, "switch or link", pattern)
    return names, edges


def switches_matching(graph: nx.Graph, pattern: str) -> list[str]:
    is_match = re.compile(translate(pattern)).match
    return [name for name in switches(graph) if is_match(name) is not None]


def links_matching(graph: nx.Graph, pattern: str) -> list[tuple[str, str]]:
    # The edges, by their ends.
    is_match = re.compile(translate(pattern)).match
    return [(a, b) for a, b in graph.edges if is_match(f"{a}-{b}") or is_match(f"{b}-{a}")]


def _no_match(graph: nx.Graph, index: int, what: str, pattern: str) -> NoMatchError:
    """The error for a pattern without a match, with patterns of the names that there are."""
    names = {"switch": switches(graph), "link": [f"{a}-{b}" for a, b in graph.edges]}
    known = [name for part in what.split(" or ") for name in names[part]]
    called = what.replace("switch", "switches").replace("link", "links")
    shapes = list(dict.fromkeys(re.sub(r"\d+", "*", name) for name in known))
    hint = names_hint(pattern, shapes, f"{called.replace(' or ', ' and ')} are called", NAMES_SHOWN)
    return NoMatchError(index, f"{where(graph)}no {what} matches {pattern!r}; {hint}")
