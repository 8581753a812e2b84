"""Graphs of other programs as topologies: what they leave out has a default, or is an error.

- A node is a switch of tier 1 with the default profile unless it has a `kind`. Its name is its `label`, or
  its id where it has none; a label that several nodes have is followed by their ids.
- A link's rate is its `rate_bps`, or else its `LinkSpeedRaw` (Topology Zoo, bits per second), or else the
  default.
- A link's delay is its `delay_ps`; or else that of light in glass (5 µs a km) over its `dist` in km
  (topohub), or along the great circle between ends that have `Latitude` and `Longitude`; or else the default.
- Several edges between two nodes become one link, with their rates added and the shortest delay; of those
  that have no rate beside others that do (dark fibre in the Topology Zoo), none is counted.
- The edges a → b and b → a of a directed graph are one link; they must have the same rate.
- A graph without hosts gets `hosts_per_switch` of them on each switch, with links of the default rate and
  delay.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from math import asin, cos, radians, sin, sqrt
from typing import Any, NamedTuple

import networkx as nx

from netfold.topologies.graph import (
    HOST,
    HOST_ATTRIBUTES,
    PLACES,
    LinkSpec,
    TopologyError,
    add_host,
    add_link,
    check_size,
    edge_mistakes,
    hosts,
    new_graph,
    node_mistakes,
    switches,
    validate,
    where,
)

_PS_PER_KM = 5 * 10**6  # light in glass: two thirds of its speed in vacuum
_EARTH_KM = 6371.0  # mean radius
_WITH_UNITS = {"rate": "rate_bps", "delay": "delay_ps", "buffer": "buffer_bytes"}  # in node-link JSON
_DIGITS = re.compile(r"[0-9]{1,19}")


class Defaults(NamedTuple):
    """What a graph that leaves something out is given."""

    link: LinkSpec
    profile: str
    hosts_per_switch: int | None  # None: a graph without hosts is an error


class _Edge(NamedTuple):
    """One edge of a file."""

    rate_bps: object
    delay_ps: object
    buffer_bytes: object


def topology_of(found: nx.Graph, defaults: Defaults) -> nx.Graph:
    """A topology of any networkx graph, with several edges or directed ones too.

    Raises
    ------
    TopologyError
        All that is wrong with nodes and links, each alone; or a node is linked to itself, both directions
        differ in rate, there are no hosts, it is too large, or breaks the contract (see
        `topologies.graph.validate`).
    """
    graph = new_graph(_text(found.graph.get("label", found.graph.get("name", ""))))
    names = _names(found)
    for node in nx.nodes_with_selfloops(found):
        raise TopologyError(f"{where(graph)}node {names[node]!r} is linked to itself; remove that link")
    mistakes = []
    for node, attributes in found.nodes(data=True):
        ours = _node(attributes, defaults)
        mistakes += [f"{where(graph)}{mistake}" for mistake in node_mistakes(names[node], ours)]
        graph.add_node(names[node], **ours)
    for (a, b), edge in _merged(found, names, defaults).items():
        attributes = edge._asdict()
        link = f"{where(graph)}link {names[a]!r} - {names[b]!r}: "
        mistakes += [link + mistake for mistake in _units(found, a, b)]
        mistakes += [link + mistake for mistake in edge_mistakes(attributes)]
        graph.add_edge(names[a], names[b], **attributes)
    if mistakes:
        raise TopologyError(*mistakes)
    dimensions = _numbers(found.graph.get("dimensions"))
    if isinstance(dimensions, tuple):
        graph.graph["dimensions"] = dimensions
    add_hosts(graph, defaults)
    validate(graph)
    return graph


def _units(found: nx.Graph, a: object, b: object) -> Iterator[str]:
    """Mistakes of the edges between two nodes: text such as "10Gbps", which only node-link JSON may have."""
    edges = found[a][b].values() if found.is_multigraph() else (found[a][b],)
    for key, ours in _WITH_UNITS.items():
        if any(key in edge and isinstance(edge[key], str) and ours not in edge for edge in edges):
            yield f"has text under {key!r}, which is read in node-link JSON alone; write {ours}, a number"


def add_hosts(graph: nx.Graph, defaults: Defaults) -> None:
    """Add hosts h0 … to the switches of a graph that has none, in their order.

    Raises
    ------
    TopologyError
        The graph has no hosts and the defaults neither, or both have them; there are too many; or names
        clash.
    """
    per_switch = defaults.hosts_per_switch
    if hosts(graph):
        if per_switch is not None:
            raise TopologyError(
                f"{where(graph)}has {len(hosts(graph))} hosts of its own; leave out hosts_per_switch"
            )
        return
    if per_switch is None:
        raise TopologyError(
            f"{where(graph)}has no host, its {len(graph)} nodes are switches; add hosts_per_switch: 1"
        )
    routers = switches(graph)
    added = len(routers) * per_switch
    check_size(graph, len(graph) + added, 2 * (graph.number_of_edges() + added))
    for number, router in enumerate(routers):
        for index in range(number * per_switch, (number + 1) * per_switch):
            add_host(graph, f"h{index}")
            add_link(graph, f"h{index}", router, defaults.link)


def _text(value: object) -> str:
    return str(value)


def _names(found: nx.Graph) -> dict[Any, str]:
    """Names of nodes by their id: their labels where these are different."""
    labels = {
        node: _text(attributes.get("label", node)).strip() for node, attributes in found.nodes(data=True)
    }
    count = Counter(labels.values())
    names = {
        node: label if label and count[label] == 1 else f"{label}_{_text(node)}".lstrip("_")
        for node, label in labels.items()
    }
    taken = Counter(names.values())
    return {node: name if taken[name] == 1 else f"{name}#{_text(node)}" for node, name in names.items()}


def _node(attributes: Mapping[str, Any], defaults: Defaults) -> dict[str, Any]:
    """A node's attributes as the contract wants them."""
    places = {
        key: _numbers(attributes[key]) if key == "coordinates" else attributes[key]
        for key in PLACES
        if key in attributes and "kind" in attributes
    }
    if attributes.get("kind") == HOST:
        return {**HOST_ATTRIBUTES, **places}
    defaulted = {"kind": "switch", "tier": 1, "profile": defaults.profile}
    return {**{key: attributes.get(key, value) for key, value in defaulted.items()}, **places}


def _numbers(value: object) -> object:
    """The tuple of ints that a text such as "0,1" stands for."""
    try:
        return tuple(map(int, str(value).split(","))) if isinstance(value, str) else value
    except ValueError:
        return value


def _merged(found: nx.Graph, names: Mapping[Any, str], defaults: Defaults) -> dict[tuple[Any, Any], _Edge]:
    """One edge for each two linked nodes."""
    each_way: dict[tuple[Any, Any], list[Mapping[str, Any]]] = defaultdict(list)
    for a, b, attributes in found.edges(data=True):
        pair = (b, a) if not found.is_directed() and (b, a) in each_way else (a, b)
        each_way[pair].append(attributes)
    merged: dict[tuple[Any, Any], _Edge] = {}
    for (a, b), edges in each_way.items():
        rated = [edge for edge in edges if "rate_bps" in edge or "LinkSpeedRaw" in edge]
        one = _joined([_edge(edge, found.nodes[a], found.nodes[b], defaults) for edge in rated or edges])
        back = merged.get((b, a))
        if back is not None and back.rate_bps != one.rate_bps:
            raise TopologyError(
                f"link {names[a]!r} - {names[b]!r}: has {one.rate_bps} bit/s, "
                f"and {back.rate_bps} the other way; both directions must have the same rate"
            )
        if back is None:
            merged[a, b] = one
    return merged


def _joined(edges: list[_Edge]) -> _Edge:
    """Parallel edges as one; values that are no ints stay for the check to find."""
    if len(edges) == 1:
        return edges[0]
    for edge in edges:
        if not (isinstance(edge.rate_bps, int) and edge.rate_bps > 0 and isinstance(edge.delay_ps, int)):
            return edge
    rates = [edge.rate_bps for edge in edges if isinstance(edge.rate_bps, int)]
    delays = [edge.delay_ps for edge in edges if isinstance(edge.delay_ps, int)]
    return _Edge(sum(rates), min(delays), edges[0].buffer_bytes)


def _edge(
    attributes: Mapping[str, Any], one: Mapping[str, Any], other: Mapping[str, Any], defaults: Defaults
) -> _Edge:
    """An edge's attributes as the contract wants them."""
    rate = attributes.get("rate_bps", attributes.get("LinkSpeedRaw", defaults.link.rate_bps))
    delay = attributes.get("delay_ps")
    if delay is None:
        kilometres = _kilometres(attributes, one, other)
        delay = defaults.link.delay_ps if kilometres is None else round(kilometres * _PS_PER_KM)
    buffer = attributes.get("buffer_bytes", defaults.link.buffer_bytes)
    return _Edge(_whole(rate), _whole(delay), _whole(buffer))


def _whole(value: object) -> object:
    """The whole number that a float or a text of digits stands for; networkx's GML has text above 32 bits."""
    if isinstance(value, str) and _DIGITS.fullmatch(value) and len(value) < 1000:
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _kilometres(
    attributes: Mapping[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]
) -> float | None:
    """Length of a link, None if it is unknown; along the great circle by the haversine formula."""
    if _is_number(attributes.get("dist")):
        return max(0.0, float(attributes["dist"]))
    degrees = [end.get(key) for end in (one, other) for key in ("Latitude", "Longitude")]
    if not all(map(_is_number, degrees)):
        return None
    south, west, north, east = (radians(float(degree)) for degree in degrees if degree is not None)
    chord = sin((north - south) / 2) ** 2 + cos(south) * cos(north) * sin((east - west) / 2) ** 2
    return 2 * _EARTH_KM * asin(sqrt(min(1.0, chord)))


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(float(value)) < 10**6  # type: ignore[arg-type]  # just checked
