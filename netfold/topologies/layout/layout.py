"""A place for every node of a small topology.

The first rule that fits decides:

1. Switches with `coordinates`: on a grid of their dimensions, a ring if there is one.
2. Switches of several tiers, or one switch: tiers are rows, hosts at the bottom.
3. Switches with `group`: groups on a circle, each a small circle.
4. Otherwise switches on a circle.

Without rows, hosts are around their switch, on its outer side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import networkx as nx

from netfold.topologies.graph import HOST, hosts, racks, switches
from netfold.topologies.layout.rows import level_of, rows
from netfold.topologies.layout.servers import in_one_piece

Place = tuple[float, float]
_HOST_REACH = 0.34  # from a switch to its hosts, where the next switch is 1 away
_FAN, _FAN_EACH = 0.7 * math.pi, 0.32 * math.pi  # the most that a switch's hosts take up, and between two
_DEEP = ((1.0, 0.0), (0.0, 1.0), (0.62, 0.42))  # where the first three axes lead; the third one over its side
_TOUCH = 0.08  # how near a line may pass a switch that it does not lead to
_GAP = 1.2  # between copies of a grid along further axes


class Layout(NamedTuple):
    """A drawing of a topology, in units of about the space that one switch needs."""

    graph: nx.Graph  # what is drawn: a server with several ports is one node, see `in_one_piece`
    places: dict[str, Place]  # of each node; y grows upward
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
