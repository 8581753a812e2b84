"""Where to draw the nodes of a topology: places follow from attributes, for every kind of graph alike.

The first rule that fits decides:

1. Switches with `coordinates`: on a grid of their dimensions, a ring if there is one.
2. Switches of several tiers, or one switch: tiers are rows, hosts at the bottom.
3. Switches with `group`: groups on a circle, each a small circle.
4. Otherwise switches on a circle.

Without rows, hosts are around their switch, on its outer side.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

import networkx as nx

from netfold.topologies.graph import HOST, hosts, racks, server_ports, switches

Place = tuple[float, float]
NODES_DRAWN_MAX = 200
"""Most nodes of a graph that is drawn node by node; of more, classes are drawn."""
_BETWEEN_RACKS = 0.6  # more space between hosts of different racks, in units of the space of a host
_HOST_REACH = 0.34
"""Distance from a switch to its hosts, where the next switch is 1 away."""
_FAN, _FAN_EACH = 0.7 * math.pi, 0.32 * math.pi  # the most that a switch's hosts take up, and between two
_DEPTH = (0.74, 0.5)  # all of the third axis
_GAP = 1.2
"""Space between copies of a grid along further axes."""
_STEMS_MAX = 4
"""Most classes in a tier; with more they become one."""


class Layout(NamedTuple):
    """A drawing of a topology, in units of about the space that one switch needs."""

    graph: nx.Graph  # what is drawn: a server with several ports is one node, see `in_one_piece`
    places: dict[str, Place]
    """Place of each node; y grows upward."""
    asides: dict[str, Place]  # the side of a node on which its name is, as a vector of length 1
    boxes: dict[str, list[str]]  # nodes that belong together, by a name to show
    curved: frozenset[frozenset[str]]  # links that would run along others, as those round the ends of a grid
    is_in_rows: bool


def layout(graph: nx.Graph) -> Layout:
    """Places of all nodes of a valid graph; the same graph has the same places."""
    one_piece = in_one_piece(graph)
    inner, attributes = switches(one_piece), one_piece.nodes
    if all("coordinates" in attributes[name] for name in inner):
        at = {name: tuple(attributes[name]["coordinates"]) for name in inner}
        if max(map(len, at.values())) > 1:
            curved = frozenset(
                frozenset((a, b))
                for a, b in one_piece.edges
                if a in at and b in at and _passes_others(at[a], at[b])
            )
            return _with_hosts(one_piece, _grid(at), curved=curved, side=-math.pi / 3)
        inner = sorted(inner, key=lambda name: at[name])
    elif len(inner) == 1 or len({_level(one_piece, name) for name in inner}) > 1:
        asides = {
            name: (0.0, -1.0 if data["kind"] == HOST else 1.0) for name, data in one_piece.nodes(data=True)
        }
        islands = _members(one_piece, hosts(one_piece), "island")
        return Layout(
            one_piece, _rows(one_piece), asides, islands if len(islands) > 1 else {}, frozenset(), True
        )
    groups = _members(one_piece, inner, "group")
    if len(groups) > 1 and sum(map(len, groups.values())) == len(inner):
        return _with_hosts(one_piece, _circles(list(groups.values())), groups)
    return _with_hosts(one_piece, _circle(inner, _radius(len(inner))))


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
        node, two = owner.get(a, a), owner.get(b, b)
        if node != two:
            whole.add_edge(node, two, **data, ends={node: a, two: b})
    return whole


def _members(graph: nx.Graph, names: Iterable[str], key: str) -> dict[str, list[str]]:
    """The nodes that have the attribute, by its name and value."""
    members: dict[int, list[str]] = {}
    for name in names:
        if key in graph.nodes[name]:
            members.setdefault(graph.nodes[name][key], []).append(name)
    return {f"{key} {value}": members[value] for value in sorted(members)}


# Tiers as rows: hosts at the bottom, switches spread evenly above what they are linked to.


def _rows(graph: nx.Graph) -> dict[str, Place]:
    """x from 0 to the width of the widest row, y the number of the row."""
    levels = sorted({_level(graph, name) for name in switches(graph)})
    rows = [[name for name in switches(graph) if _level(graph, name) == level] for level in levels]
    x: dict[str, float] = {}
    end = 0.0
    order = {name: index for index, name in enumerate(switches(graph))}
    rack = {
        name: graph.nodes[name].get("island", min(order[switch] for switch in graph.adj[name]))
        for name in hosts(graph)
    }
    gap = _BETWEEN_RACKS if len({*rack.values()}) < len(rack) else 0.0
    previous = None
    for name in sorted(rack, key=lambda name: rack[name]):
        end += gap if x and rack[name] != previous else 0.0
        x[name], previous = end, rack[name]
        end += 1.0
    width = max(end + gap, *(float(len(row)) for row in rows))
    places = {name: (x_position + (width - end) / 2, 0.0) for name, x_position in x.items()}
    for number, row in enumerate(rows, start=1):
        below = {name: [places[other][0] for other in graph.adj[name] if other in places] for name in row}
        # Rounded, so that ties keep the graph's order.
        ordered = sorted(row, key=lambda name: round(fmean(below[name] or [width / 2]), 6))
        places |= {
            name: ((at + 0.5) * width / len(row) - 0.5, float(number)) for at, name in enumerate(ordered)
        }
    return places


def _level(graph: nx.Graph, name: str) -> tuple[int, bool]:
    """What the row of a switch follows from: its tier, and whether it belongs to no island."""
    attributes = graph.nodes[name]
    return attributes["tier"], "island" not in attributes


# Circles and grids of switches, with hosts around them.


def _radius(count: int) -> float:
    return max(1.0, count / (2 * math.pi))


def _circle(
    names: Sequence[str], radius: float, centre: Place = (0.0, 0.0), start: float = 0.0
) -> dict[str, Place]:
    """Names clockwise on a circle, from the top or `start` (radians); two are side by side."""
    turns = [start + math.pi * (2 * at / len(names) - 0.5 * (len(names) == 2)) for at in range(len(names))]
    reach = radius if len(names) > 1 else 0.0
    return {
        name: (centre[0] + reach * math.sin(turn), centre[1] + reach * math.cos(turn))
        for name, turn in zip(names, turns, strict=True)
    }


def _circles(groups: Sequence[Sequence[str]]) -> dict[str, Place]:
    """Groups on a circle, the members of each on a small one; the first member is the outermost."""
    small = max(0.6, 1.1 * max(map(len, groups)) / (2 * math.pi))
    radius = (small + _HOST_REACH + 0.35) / min(1.0, math.sin(math.pi / len(groups)))
    places: dict[str, Place] = {}
    for index, members in enumerate(groups):
        angle = 2 * math.pi * index / len(groups)
        places |= _circle(members, small, (radius * math.sin(angle), radius * math.cos(angle)), angle)
    return places


def _grid(at: Mapping[str, Sequence[int]]) -> dict[str, Place]:
    """Axes lead across, up and into the depth; further ones to copies of all, beside and above it in turn."""
    steps: list[Place] = []
    extent = [0.0, 0.0]
    for axis in range(max(map(len, at.values()))):
        side = 1 + max(coordinates[axis] for coordinates in at.values() if axis < len(coordinates))
        if axis == 2:
            step = [_DEPTH[0] / side, _DEPTH[1] / side]
        else:
            direction = axis % 2 if axis < 2 else (axis + 1) % 2
            step = [0.0, 0.0]
            step[direction] = 1.0 if axis < 2 else extent[direction] + _GAP
        extent = [before + (side - 1) * along for before, along in zip(extent, step, strict=True)]
        steps.append((step[0], step[1]))
    return {
        name: (
            sum(value * step[0] for value, step in zip(coordinates, steps, strict=False)),
            sum(value * step[1] for value, step in zip(coordinates, steps, strict=False)),
        )
        for name, coordinates in at.items()
    }


def _passes_others(a: Sequence[int], b: Sequence[int]) -> bool:
    # Whether a straight line on the grid would run over other switches.
    return any(abs(coordinate - two) > 1 for coordinate, two in zip(a, b, strict=False)) or a[3:] != b[3:]


def _with_hosts(
    graph: nx.Graph,
    places: dict[str, Place],
    boxes: Mapping[str, list[str]] | None = None,
    curved: frozenset[frozenset[str]] = frozenset(),
    side: float | None = None,
) -> Layout:
    """Places of switches and of their hosts: away from the middle (of the group), or all on one `side`."""
    boxes = dict(boxes or {})
    centre = {name: _middle(places, places) for name in places}
    for members in boxes.values():
        centre |= dict.fromkeys(members, _middle(places, members)) if len(members) > 1 else {}
    every, asides = dict(places), dict.fromkeys(places, (0.0, 1.0))
    for switch, members in racks(graph).items():
        (x, y), (middle_x, middle_y) = places[switch], centre[switch]
        angle = math.atan2(y - middle_y, x - middle_x) if side is None else side
        if side is None:
            asides[switch] = (-math.cos(angle), -math.sin(angle))
        angle_each = min(_FAN_EACH, _FAN / max(1, len(members) - 1))
        for index, host in enumerate(members):
            turned = angle + angle_each * (index - (len(members) - 1) / 2)
            # Many hosts stand in two rows.
            reach = _HOST_REACH * (1 + 0.25 * (index % 2) * (len(members) > 6))
            every[host] = (x + reach * math.cos(turned), y + reach * math.sin(turned))
            asides[host] = (math.cos(turned), math.sin(turned))
    return Layout(graph, every, asides, boxes, curved, False)


def _middle(places: Mapping[str, Place], names: Iterable[str]) -> Place:
    xs, ys = zip(*(places[name] for name in names), strict=True)
    return fmean(xs), fmean(ys)


# A large topology in short: classes of nodes, and the links between two classes, with their numbers.


class Class(NamedTuple):
    """Nodes of one tier whose names have the same letters."""

    tier: int
    name: str  # "leaf" of leaf0, leaf1, …; "group router" of group0router0


class ClassLink(NamedTuple):
    """An edge, with the names that its ends have in the given graph: the end in the lower class first."""

    rate_bps: int
    ends: tuple[str, str]


def tier_links(graph: nx.Graph) -> dict[str, set[tuple[str, str]]]:
    """The links between switches by what they join, "leaf→spine"; a link of two leaves is "leaf→leaf"."""
    tiers = defaultdict[str, set[tuple[str, str]]](set)
    for *classes, links in classes_of(graph).edges(data="links"):
        lower, upper = (node_class.name.split()[-1] for node_class in sorted(classes))
        if min(node_class.tier for node_class in classes):  # hosts have tier 0
            tiers[f"{lower}→{upper}"] |= {link.ends for link in links}
            tiers[f"{upper}→{lower}"] |= {link.ends[::-1] for link in links}
    return dict(tiers)


def classes_of(graph: nx.Graph) -> nx.Graph:
    """A graph of the classes of nodes, from the hosts upward; a server with several ports is one node.

    A node, a `Class`, has the names of its `members`, the `profiles` of these, and the numbers of `hosts` on
    one of them that occur, ascending. An edge, between two classes or of one to itself, has `links`.
    """
    graph = in_one_piece(graph)
    class_of_node = {name: Class(data["tier"], _stem(name)) for name, data in graph.nodes(data=True)}
    stems = Counter(tier for tier, _ in {*class_of_node.values()})
    for name, (tier, _) in class_of_node.items():
        if stems[tier] > _STEMS_MAX:
            class_of_node[name] = Class(tier, "switch" if tier else "host")
    classes = nx.Graph()
    for node_class in sorted({*class_of_node.values()}):
        members = [name for name in graph if class_of_node[name] == node_class]
        inner = [name for name in members if graph.nodes[name]["kind"] != HOST]
        counts = {sum(graph.nodes[other]["kind"] == HOST for other in graph.adj[name]) for name in inner}
        profiles = sorted({graph.nodes[name]["profile"] for name in inner})
        classes.add_node(node_class, members=members, profiles=profiles, hosts=sorted(counts))
    for a, b, data in graph.edges(data=True):
        lower, upper = (a, b) if class_of_node[a] <= class_of_node[b] else (b, a)
        ends = data.get("ends", {a: a, b: b})
        classes.add_edge(class_of_node[lower], class_of_node[upper])
        links = classes.edges[class_of_node[lower], class_of_node[upper]].setdefault("links", [])
        links.append(ClassLink(data["rate_bps"], (ends[lower], ends[upper])))
    return classes


def _stem(name: str) -> str:
    # "leaf" of "leaf12"; the whole name if it has no letters.
    return " ".join(re.findall(r"[^\W\d_]+", name)) or name
