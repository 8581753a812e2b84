"""Draws a small topology, node by node."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch

from netfold.sim.report import style
from netfold.topologies.graph import HOST, LINK_RANGES
from netfold.topologies.layout import Layout
from netfold.units import RATE

Edge = frozenset[str]
WIDTHS = (0.7, 1.2, 1.8, 2.6, 3.6)  # of lines, by rate; the slowest first
_WIDER = 1.6  # lines with a colour
_ARC_POINTS = 13
_ARC = 0.3  # height of a curved link, in units of a layout; less where it is short
_MARGIN_INCHES = 0.28
_POINTS = 72.0
_PAPER: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}  # behind text
_CHARACTER_POINTS = 0.62  # width of a character over the size of its font
_FONT_MAX, _FONT_MIN = 8.0, 4.5
_STEEP = 0.4  # of a vector of length 1: with less of a direction, text is centred in it
_FACING = 0.55  # share of the space between nodes that a name has where two names face each other
_NAME_POINTS = (8.0, 5.5)  # from a node to its name: of switches, of hosts
_FASTEST = LINK_RANGES["rate_bps"][1]  # that of links which never limit anything


@dataclass(frozen=True)
class Look:
    """What a drawing shows beside nodes and links."""

    title: str
    aggregates: Collection[str] = ()  # profiles of switches that can aggregate
    busy: Mapping[tuple[str, str], float] = field(
        default_factory=dict
    )  # share of time, by link ("from", "to")
    marked: Edge = frozenset()  # a link that stands out

    def busier(self, a: str, b: str) -> float:
        """The share of the busier direction."""
        return max(self.busy.get((a, b), 0.0), self.busy.get((b, a), 0.0))


def height_inches(drawn: Layout, width_inches: float, most: float = 7.0) -> float:
    """The height that a layout takes at a width."""
    wide, high = _extent(drawn)
    if _is_in_rows(drawn):
        return min(most, 0.6 + 1.05 * high)
    return min(most, max(1.6, (width_inches - 2 * _MARGIN_INCHES) * (high + 1.0) / (wide + 1.0)))


def draw_nodes(axes: Axes, drawn: Layout, look: Look, size_inches: tuple[float, float]) -> None:
    """Draw a layout into axes of a size."""
    wide, high = _extent(drawn)
    xs, ys = zip(*drawn.places.values(), strict=True)
    margin_x = 0.5
    room_x = (size_inches[0] - 2 * _MARGIN_INCHES) / (wide + 2 * margin_x)
    room_y = (size_inches[1] - 2 * _MARGIN_INCHES) / (high + 1.0)
    if not _is_in_rows(drawn):
        room_x = room_y = min(room_x, room_y)
        axes.set_aspect("equal")
    axes.set_xlim(min(xs) - margin_x, max(xs) + margin_x)
    axes.set_ylim(min(ys) - 0.5, max(ys) + 0.5)
    axes.axis("off")
    _boxes(axes, drawn)
    _links(axes, drawn, look)
    _Marks(axes, drawn, look, (room_x, room_y)).draw()


def legend_entries(graph: nx.Graph, look: Look) -> list[tuple[str, Line2D | Patch]]:
    """What marks and widths mean, for those that the graph has."""
    found: list[tuple[str, Line2D | Patch]] = []
    profiles = {data["profile"] for _, data in graph.nodes(data=True) if data["kind"] != HOST}
    square: dict[str, Any] = {"marker": "s", "linestyle": "", "markersize": 7, "markeredgecolor": style.BLACK}
    found.append(("host", Line2D([], [], color=style.MIDDLE_GREY, marker="o", linestyle="", markersize=5)))
    if profiles & {*look.aggregates}:
        able = Line2D([], [], markerfacecolor=style.BLUE, **square)
        found.append(("switch that can aggregate", able))
    if profiles - {*look.aggregates}:
        found.append(("switch", Line2D([], [], markerfacecolor="white", **square)))
    colour = style.BLACK if look.busy else style.MIDDLE_GREY
    for rate, width in widths(graph).items():
        name = RATE.format(rate) if rate < _FASTEST else "never limits"
        found.append((name, Line2D([], [], color=colour, linewidth=width)))
    return found


def widths(graph: nx.Graph) -> dict[int, float]:
    """Width of a link's line by its rate, the slowest first; neighbours share one if there are many rates."""
    rates = sorted({rate for _, _, rate in graph.edges(data="rate_bps")})
    if len(rates) <= 2:
        return dict(zip(rates, WIDTHS[1::2], strict=False))
    steps = len(WIDTHS) - 1
    least = min(len(rates) - 1, steps)
    return {rate: WIDTHS[round(index * least / (len(rates) - 1))] for index, rate in enumerate(rates)}


def _extent(drawn: Layout) -> tuple[float, float]:
    xs, ys = zip(*drawn.places.values(), strict=True)
    return max(xs) - min(xs), max(ys) - min(ys)


def _is_in_rows(drawn: Layout) -> bool:
    """Whether all hosts are at the bottom, and switches above."""
    nodes = drawn.graph.nodes
    return all((y == 0) == (nodes[name]["kind"] == HOST) and y >= 0 for name, (_, y) in drawn.places.items())


def _boxes(axes: Axes, drawn: Layout) -> None:
    """Shaded boxes around nodes that belong together, with their names."""
    for name, members in drawn.boxes.items():
        xs, ys = zip(*(drawn.places[one] for one in members), strict=True)
        corner = (min(xs) - 0.4, min(ys) - 0.24)
        size = (max(xs) - min(xs) + 0.8, max(ys) - min(ys) + 0.48)
        if _is_in_rows(drawn):
            patch = FancyBboxPatch(
                corner, *size, boxstyle="round,pad=0,rounding_size=0.08", color="#f0f0f0", zorder=0
            )
            axes.add_patch(patch)
            place = (corner[0] + size[0] / 2, corner[1] - 0.02)
            axes.text(*place, name, ha="center", va="top", fontsize=7, color=style.DARK_GREY)
        else:
            centre = (sum(xs) / len(xs), sum(ys) / len(ys))
            axes.text(*centre, name.split()[-1], ha="center", va="center", fontsize=9, zorder=2, bbox=_PAPER)


def _links(axes: Axes, drawn: Layout, look: Look) -> None:
    line_widths = widths(drawn.graph)
    lines, colours, thick = [], [], []
    marked: list[Sequence[tuple[float, float]]] = []
    edges = [
        (a, b, tuple(data.get("ends", {a: a, b: b}).values()), data["rate_bps"])
        for a, b, data in drawn.graph.edges(data=True)
    ]
    for a, b, ends, rate in sorted(edges, key=lambda edge: look.busier(*edge[2])):  # the busiest on top
        points = _line(drawn.places[a], drawn.places[b], frozenset((a, b)) in drawn.curved)
        lines.append(points)
        colours.append(style.busy_colour(look.busier(*ends)) if look.busy else style.MIDDLE_GREY)
        thick.append(line_widths[rate] * (_WIDER if look.busy else 1.0))
        marked += [points] if frozenset(ends) == look.marked else []
    if marked:
        axes.add_collection(LineCollection(marked, colors=style.BLACK, linewidths=max(thick) + 2.4, zorder=1))
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=thick, zorder=1, capstyle="round"))


def _line(a: tuple[float, float], b: tuple[float, float], is_curved: bool) -> list[tuple[float, float]]:
    """Points of a link: straight, or an arc beside the straight line."""
    if not is_curved:
        return [a, b]
    (x1, y1), (x2, y2) = sorted((a, b))
    length = math.hypot(x2 - x1, y2 - y1)
    points = []
    for step in range(_ARC_POINTS):
        along = step / (_ARC_POINTS - 1)
        aside = min(_ARC, 0.2 * length) * math.sin(math.pi * along) / length
        points.append(
            (x1 + (x2 - x1) * along - (y2 - y1) * aside, y1 + (y2 - y1) * along + (x2 - x1) * aside)
        )
    return points


class _Marks:
    """Marks of nodes with their names, where these fit."""

    def __init__(self, axes: Axes, drawn: Layout, look: Look, room_inches: tuple[float, float]) -> None:
        self._axes, self._drawn, self._look, self._room = axes, drawn, look, room_inches
        self._in_rows = _is_in_rows(drawn)

    def draw(self) -> None:
        """Draw all nodes, a kind after the other."""
        nodes = self._drawn.graph.nodes
        own = [name for name in nodes if nodes[name]["kind"] == HOST]
        inner = [name for name in nodes if nodes[name]["kind"] != HOST]
        able = [name for name in inner if nodes[name]["profile"] in self._look.aggregates]
        between = self._gap_points(own)
        anywhere = min(between * _FACING, self._gap_points([*own, *inner]))
        self._dots(own, min(7.0, 0.62 * between), "o", style.MIDDLE_GREY, "white")
        self._names(own, between if self._in_rows else anywhere)
        gap = self._gap_points(inner)
        for names, fill in ((able, style.BLUE), ([name for name in inner if name not in able], "white")):
            self._dots(names, max(4.0, min(12.0, 0.5 * gap)), "s", fill, style.BLACK)
        self._names(inner, gap * (_FACING if self._drawn.boxes and not self._in_rows else 1))

    def _gap_points(self, names: Sequence[str]) -> float:
        """Least space between two of these nodes: in the same row, or anywhere."""
        places = [self._drawn.places[name] for name in names]
        best = math.inf
        for index, (x, y) in enumerate(places):
            for other_x, other_y in places[:index]:
                if not self._in_rows or y == other_y:
                    best = min(best, math.hypot((x - other_x) * self._room[0], (y - other_y) * self._room[1]))
        return _POINTS * (best if best < math.inf else 1.0)

    def _dots(self, names: Sequence[str], size: float, marker: str, fill: str, edge: str) -> None:
        if names:
            xs, ys = zip(*(self._drawn.places[name] for name in names), strict=True)
            look: dict[str, Any] = {"markerfacecolor": fill, "markeredgecolor": edge, "markeredgewidth": 0.8}
            self._axes.plot(xs, ys, marker, markersize=size, zorder=3, **look)

    def _names(self, names: Sequence[str], gap: float) -> None:
        """Names beside their marks in the largest font that fits; none if even the smallest does not."""
        longest = max(map(len, names), default=0)
        size = min(_FONT_MAX, gap * 0.9 / (_CHARACTER_POINTS * max(1, longest)))
        is_below = self._in_rows and bool(names) and self._drawn.asides[names[0]][1] < 0
        is_turned = size < _FONT_MIN and is_below
        if is_turned:
            size = min(_FONT_MAX, 0.85 * gap)
        if size < _FONT_MIN:
            return
        for name in names:
            (x, y), (across, up) = self._drawn.places[name], self._drawn.asides[name]
            text: dict[str, Any] = {
                "ha": "center" if abs(across) < _STEEP else "left" if across > 0 else "right",
                "va": "center" if abs(up) < _STEEP else "bottom" if up > 0 else "top",
                "rotation": 90 if is_turned else 0,
                "fontsize": size,
                "bbox": _PAPER,
            }
            away = _NAME_POINTS[self._drawn.graph.nodes[name]["kind"] == HOST]
            offset = (away * across, away * up)
            self._axes.annotate(name, (x, y), offset, textcoords="offset points", zorder=4, **text)
