"""Where to draw the nodes of a topology: places follow from attributes, for every kind of graph alike."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import networkx as nx

from netfold.topologies.graph import HOST, hosts, racks, server_ports, switches

# Tiers as rows: hosts at the bottom, switches above what they are linked to.


_ROOM = 1.9
"""Space that a switch above its hosts needs."""
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
    # Hosts of one island, or else of one switch, are beside each other.
    return graph.nodes[host].get("island", next(iter(graph.adj[host])))


def _by_neighbours(graph: nx.Graph, row: Sequence[str], x: dict[str, float]) -> list[str]:
    # Rounded, so that ties keep the graph's order.
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


# Servers with several ports, as one node each.


def in_one_piece(graph: nx.Graph) -> nx.Graph:
    """The graph with the links of a server's ports at its host, without the node that stands for the ports.

    Such a link has `ends`: the node of the given graph by each of its two nodes here.
    """
    owner = server_ports(graph)
    if not owner:
        return graph
    whole = nx.Graph(**graph.graph)
    whole.add_nodes_from((name, data) for name, data in graph.nodes(data=True) if name not in owner)
    for a, b, data in graph.edges(data=True):
        one, two = owner.get(a, a), owner.get(b, b)
        if one != two:
            whole.add_edge(one, two, **data, ends={one: a, two: b})
    return whole


# A place for every node of a small topology.
#
# The first rule that fits decides:
#
# 1. Switches with `coordinates`: on a grid of their dimensions, a ring if there is one.
# 2. Switches of several tiers, or one switch: tiers are rows, hosts at the bottom.
# 3. Switches with `group`: groups on a circle, each a small circle.
# 4. Otherwise switches on a circle.
#
# Without rows, hosts are around their switch, on its outer side.


Place = tuple[float, float]
_HOST_REACH = 0.34
"""Distance from a switch to its hosts, where the next switch is 1 away."""
_FAN, _FAN_EACH = 0.7 * math.pi, 0.32 * math.pi  # the most that a switch's hosts take up, and between two
_DEEP = ((1.0, 0.0), (0.0, 1.0), (0.62, 0.42))
"""Steps along the first three axes: across, up, and into the depth."""
_TOUCH = 0.08  # how near a line may pass a switch that it does not lead to
_GAP = 1.2
"""Space between copies of a grid along further axes."""


class Layout(NamedTuple):
    """A drawing of a topology, in units of about the space that one switch needs."""

    graph: nx.Graph  # what is drawn: a server with several ports is one node, see `in_one_piece`
    places: dict[str, Place]
    """Place of each node; y grows upward."""
    curved: frozenset[frozenset[str]]  # links that would run along others, as those round the ends of a grid
    boxes: dict[str, tuple[str, ...]]  # nodes that belong together, by a name to show
    asides: dict[str, Place]  # the side of a node on which its name is, as a vector of length 1


def layout(graph: nx.Graph) -> Layout:
    """Places of all nodes of a valid graph; the same graph has the same places."""
    drawn = in_one_piece(graph)
    inner = switches(drawn)
    attributes = drawn.nodes
    if all("coordinates" in attributes[name] for name in inner):
        return _on_grid(drawn, inner)
    if len(inner) == 1 or len({level_of(drawn, name) for name in inner}) > 1:
        asides = {name: (0.0, -1.0 if data["kind"] == HOST else 1.0) for name, data in drawn.nodes(data=True)}
        return Layout(drawn, rows(drawn), frozenset(), _islands(drawn), asides)
    groups = _members(inner, attributes, "group")
    if len(groups) > 1 and sum(map(len, groups.values())) == len(inner):
        return _in_groups(drawn, groups)
    return _with_hosts(drawn, _circle(inner, max(1.0, len(inner) / (2 * math.pi))), {})


def _islands(graph: nx.Graph) -> dict[str, tuple[str, ...]]:
    """Hosts of each island, where there are several."""
    found = _members(hosts(graph), graph.nodes, "island")
    return {f"island {island}": tuple(names) for island, names in found.items()} if len(found) > 1 else {}


def _members(
    names: Iterable[str], attributes: Mapping[str, Mapping[str, Any]], key: str
) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name in names:
        if key in attributes[name]:
            found.setdefault(attributes[name][key], []).append(name)
    return dict(sorted(found.items()))


def _circle(
    names: Sequence[str], radius: float, centre: Place = (0.0, 0.0), start: float = 0.0
) -> dict[str, Place]:
    """Names clockwise on a circle, from the top or `start` (radians); two are side by side."""
    if len(names) == 1:
        return {names[0]: centre}
    turn = start - (math.pi / 2 if len(names) == 2 else 0.0)
    angles = (turn + 2 * math.pi * at / len(names) for at in range(len(names)))
    return {
        name: (centre[0] + radius * math.sin(angle), centre[1] + radius * math.cos(angle))
        for name, angle in zip(names, angles, strict=True)
    }


def _on_grid(graph: nx.Graph, inner: Sequence[str]) -> Layout:
    at = {name: tuple(graph.nodes[name]["coordinates"]) for name in inner}
    axes = max(map(len, at.values()))
    sides = [max(place[axis] for place in at.values() if axis < len(place)) + 1 for axis in range(axes)]
    if axes == 1:
        ordered = sorted(inner, key=lambda name: at[name])
        return _with_hosts(graph, _circle(ordered, max(1.0, len(inner) / (2 * math.pi))), {})
    steps = _axis_steps(sides)
    places = {
        name: (
            sum(value * step[0] for value, step in zip(place, steps, strict=False)),
            sum(value * step[1] for value, step in zip(place, steps, strict=False)),
        )
        for name, place in at.items()
    }
    curved = frozenset(
        frozenset((a, b))
        for a, b in graph.edges
        if a in at and b in at and _passes_another(places, places[a], places[b])
    )
    return _with_hosts(graph, places, {}, curved, towards=(0.5, -0.87))


def _passes_another(places: Mapping[str, Place], a: Place, b: Place) -> bool:
    """Whether a straight line runs over a third place."""
    length = math.hypot(b[0] - a[0], b[1] - a[1])
    across = ((b[0] - a[0]) / length, (b[1] - a[1]) / length)
    for x, y in places.values():
        along = (x - a[0]) * across[0] + (y - a[1]) * across[1]
        aside = (x - a[0]) * across[1] - (y - a[1]) * across[0]
        if _TOUCH < along < length - _TOUCH and abs(aside) < _TOUCH:
            return True
    return False


def _axis_steps(sides: Sequence[int]) -> list[Place]:
    """Where a step along each axis leads: across, up, into the depth, then to copies of the whole."""
    steps: list[Place] = []
    width, height = float(sides[0] - 1), float(sides[1] - 1)
    for axis, side in enumerate(sides):
        if axis < len(_DEEP) - 1:
            steps.append(_DEEP[axis])
        elif axis == len(_DEEP) - 1:
            steps.append((_DEEP[axis][0] / side * 1.2, _DEEP[axis][1] / side * 1.2))
            width += steps[-1][0] * (side - 1)
            height += steps[-1][1] * (side - 1)
        elif axis % 2:
            steps.append((width + _GAP, 0.0))
            width = (width + _GAP) * (side - 1) + width
        else:
            steps.append((0.0, height + _GAP))
            height = (height + _GAP) * (side - 1) + height
    return steps


def _in_groups(graph: nx.Graph, groups: Mapping[int, Sequence[str]]) -> Layout:
    """Groups on a circle, the members of each on a small one; the first member is the outermost."""
    largest = max(map(len, groups.values()))
    small = max(0.6, largest / (2 * math.pi) * 1.1)
    apart = 2 * (small + _HOST_REACH + 0.35)
    radius = max(apart / 2 / math.sin(math.pi / len(groups)), apart / 2)
    places: dict[str, Place] = {}
    for index, members in enumerate(groups.values()):
        angle = 2 * math.pi * index / len(groups)
        centre = (radius * math.sin(angle), radius * math.cos(angle))
        places |= _circle(members, small, centre, angle)
    boxes = {f"group {group}": tuple(members) for group, members in groups.items()}
    return _with_hosts(graph, places, boxes)


def _with_hosts(
    graph: nx.Graph,
    places: dict[str, Place],
    boxes: dict[str, tuple[str, ...]],
    curved: frozenset[frozenset[str]] = frozenset(),
    towards: Place | None = None,
) -> Layout:
    """Places of switches and of their hosts: around each switch, away from the middle or `towards` a side."""
    count = len(places)
    middle = (sum(x for x, _ in places.values()) / count, sum(y for _, y in places.values()) / count)
    centre = dict.fromkeys(places, middle)
    for group in boxes.values():
        own = [places[name] for name in group]
        within = (sum(x for x, _ in own) / len(own), sum(y for _, y in own) / len(own))
        centre |= dict.fromkeys(group, within if len(own) > 1 else middle)
    found = dict(places)
    asides: dict[str, Place] = dict.fromkeys(places, (0.0, 1.0))
    for switch, members in racks(graph).items():
        x, y = places[switch]
        side = towards or (x - centre[switch][0], y - centre[switch][1])
        angle = math.atan2(side[1], side[0]) if math.hypot(*side) > 1e-9 else -math.pi / 2
        if towards is None and math.hypot(*side) > 1e-9:
            asides[switch] = (-math.cos(angle), -math.sin(angle))
        for index, host in enumerate(members):
            fan = min(_FAN, _FAN_EACH * (len(members) - 1))
            turned = angle + (fan * (index / (len(members) - 1) - 0.5) if len(members) > 1 else 0.0)
            reach = _HOST_REACH * (1 if len(members) <= 6 else 1 + 0.25 * (index % 2))
            found[host] = (x + reach * math.cos(turned), y + reach * math.sin(turned))
            asides[host] = (math.cos(turned), math.sin(turned))
    return Layout(graph, found, curved, boxes, asides)


# A large topology in short: classes of nodes, and the links between two classes, with their numbers.


_NAMES_MAX = 4
"""Most classes in a tier; with more they become one."""
_OTHER_NAMES = ("host", "switch")
NODES_DRAWN_MAX = 200
"""Most nodes of a graph that is drawn node by node."""


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


class _Key(NamedTuple):
    """What the nodes of a class have in common."""

    tier: int
    name: str


class Tiers(NamedTuple):
    """Classes from the hosts upward, and what links them."""

    classes: tuple[Class, ...]
    bundles: tuple[Bundle, ...]


def tiers_of(graph: nx.Graph) -> Tiers:
    """The classes and bundles of a valid graph; a server with several ports is one node."""
    graph = in_one_piece(graph)
    keys = {name: _Key(data["tier"], stem(name)) for name, data in graph.nodes(data=True)}
    names_in = Counter(tier for tier, _ in {*keys.values()})
    keys = {
        name: _Key(tier, letters if names_in[tier] <= _NAMES_MAX else _OTHER_NAMES[tier > 0])
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
    # "leaf" of "leaf12"; the whole name if it has no letters.
    return " ".join(re.findall(r"[^\W\d_]+", name)) or name


def _class(graph: nx.Graph, key: _Key, keys: Mapping[str, _Key]) -> Class:
    names = [name for name, own in keys.items() if own == key]
    if graph.nodes[names[0]]["kind"] == HOST:
        return Class(*key, len(names), (), ())
    each = {sum(graph.nodes[other]["kind"] == HOST for other in graph.adj[name]) for name in names}
    profiles = {graph.nodes[name]["profile"] for name in names}
    return Class(*key, len(names), tuple(sorted(profiles)), tuple(sorted(each)))


def _rates(links: list[_Link]) -> dict[int, int]:
    counted = Counter(link.rate_bps for link in links)
    return dict(sorted(counted.items(), reverse=True))
