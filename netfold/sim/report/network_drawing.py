"""Drawings of topologies, alone or with the utilisation of their links."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations, groupby
from statistics import fmean, median
from typing import Any, Protocol

import networkx as nx
import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from matplotlib.textpath import text_to_path
from matplotlib.transforms import IdentityTransform

from netfold.sim.report import style, words
from netfold.sim.report.hover_text import Row, mark
from netfold.sim.report.result_display import Svg
from netfold.sim.results.folder import RunFolder
from netfold.topologies.drawing_layout import NODES_DRAWN_MAX, Class, ClassLink, Place, classes_of, layout
from netfold.topologies.graph import HOST, LINK_RANGES, SWITCH
from netfold.units import RATE

Edge = frozenset[str]
WIDTHS = (0.7, 1.2, 1.8, 2.6, 3.6)
"""Widths of lines, by rate; the slowest first."""
_FASTEST = LINK_RANGES["rate_bps"][1]
"""The rate of links that never limit anything."""


@dataclass(frozen=True)
class Look:
    """What a drawing shows beside nodes and links."""

    title: str
    aggregates: Collection[str] = ()  # profiles of switches that can aggregate
    busy: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """The share of time that a link is busy, by its ends: ("from", "to")."""
    marked: Edge = frozenset()  # a link that stands out
    variant: str = ""
    present: nx.Graph | None = None  # what is there of the switches and links that are drawn; None: all

    def busier(self, a: str, b: str) -> float:
        return max(self.busy.get((a, b), 0.0), self.busy.get((b, a), 0.0))

    def row(self, a: str, b: str) -> Row:
        there, back = self.busy.get((a, b), 0.0), self.busy.get((b, a), 0.0)
        return {
            **{"variant": self.variant, "from": a, "to": b},
            **{"there_busy_share": there, "back_busy_share": back},
        }

    def colour(self, share: float) -> str:
        return style.busy_colour(share) if self.busy else style.MIDDLE_GREY


class Drawing(Protocol):
    """A topology that is laid out."""

    def height_inches(self, width_inches: float, most: float) -> float: ...

    def draw(self, axes: Axes, look: Look, size_inches: tuple[float, float]) -> None: ...

    # What marks and widths mean, for those that the graph has.
    def legend(self, look: Look) -> dict[str, Line2D]: ...


def drawing_of(graph: nx.Graph) -> Drawing:
    # Of a valid graph's nodes, or of its classes where it is large.
    return _Classes(graph) if len(graph) > NODES_DRAWN_MAX else _Nodes(graph)


# A small topology, node by node.


_WIDER = 1.6  # lines with a colour
_DASHES, _ABSENT = (0, (2.0, 2.0)), style.LIGHT_GREY  # of links and switches that a network is without
_ARC_POINTS = 13
_ARC = 0.3  # height of a curved link, in units of a layout; less where it is short
_MARGIN_INCHES, _POINTS = 0.28, 72.0
_PAD = 0.6  # points around text on paper
_PAPER: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": _PAD}  # behind text
_CHARACTER_POINTS = 0.62  # width of a character over the size of its font
_FONT_MAX, _FONT_MIN = 8.0, 4.5
_STEEP = 0.4
"""Text is centred in a direction of which its vector of length 1 has less than this."""
_FACING = 0.55  # share of the space between nodes that a name has where two names face each other


class _Nodes:
    """All nodes at their places, with their names where these fit."""

    def __init__(self, graph: nx.Graph) -> None:
        self._drawn = layout(graph)
        self._nodes = self._drawn.graph.nodes
        xs, ys = zip(*self._drawn.places.values(), strict=True)
        self._low, self._high = (min(xs) - 0.5, min(ys) - 0.5), (max(xs) + 0.5, max(ys) + 0.5)
        self._wide = float(self._high[0] - self._low[0])
        self._tall = float(self._high[1] - self._low[1])

    def height_inches(self, width_inches: float, most: float) -> float:
        if self._drawn.is_in_rows:
            return min(most, 1.05 * self._tall - 0.45)
        return min(most, max(1.6, (width_inches - 2 * _MARGIN_INCHES) * self._tall / self._wide))

    def draw(self, axes: Axes, look: Look, size_inches: tuple[float, float]) -> None:
        room = [(size_inches[0] - 2 * _MARGIN_INCHES) / self._wide]
        room.append((size_inches[1] - 2 * _MARGIN_INCHES) / self._tall)
        if not self._drawn.is_in_rows:
            room = [min(room)] * 2
            axes.set_aspect("equal")
        axes.set_xlim(self._low[0], self._high[0])
        axes.set_ylim(self._low[1], self._high[1])
        axes.axis("off")
        self._draw_boxes(axes)
        self._draw_links(axes, look)
        self._draw_marks(axes, look, room)

    def legend(self, look: Look) -> dict[str, Line2D]:
        profiles = {data["profile"] for _, data in self._nodes(data=True) if data["kind"] != HOST}
        square: dict[str, Any] = {
            "marker": "s",
            "linestyle": "",
            "markersize": 7,
            "markeredgecolor": style.BLACK,
        }
        marks = {"host": Line2D([], [], color=style.MIDDLE_GREY, marker="o", linestyle="", markersize=5)}
        if profiles & {*look.aggregates}:
            marks["switch that can aggregate"] = Line2D([], [], markerfacecolor=style.SLATE, **square)
        if profiles - {*look.aggregates}:
            marks["switch"] = Line2D([], [], markerfacecolor="white", **square)
        if look.present is not None:
            marks["absent"] = Line2D([], [], color=style.MIDDLE_GREY, linestyle=_DASHES)
        colour = style.BLACK if look.busy else style.MIDDLE_GREY
        for rate, width in self._widths().items():
            name = RATE.format(rate) if rate < _FASTEST else "never limits"
            marks[name] = Line2D([], [], color=colour, linewidth=width)
        return marks

    def _widths(self) -> dict[int, float]:
        """Width of a link's line by its rate; neighbours share one if there are many rates."""
        rates = sorted({rate for _, _, rate in self._drawn.graph.edges(data="rate_bps")})
        if len(rates) <= 2:
            return dict(zip(rates, WIDTHS[1::2], strict=False))
        largest = min(len(rates), len(WIDTHS)) - 1
        return {rate: WIDTHS[round(at * largest / (len(rates) - 1))] for at, rate in enumerate(rates)}

    def _draw_boxes(self, axes: Axes) -> None:
        """Shades of islands, with names, or the numbers of groups in their middle."""
        for name, members in self._drawn.boxes.items():
            xs, ys = zip(*(self._drawn.places[node] for node in members), strict=True)
            if self._drawn.is_in_rows:
                corner, size = (min(xs) - 0.4, min(ys) - 0.24), (max(xs) - min(xs) + 0.8, 0.48)
                axes.add_patch(Rectangle(corner, *size, color="#f0f0f0", zorder=0))
                axes.text(fmean(xs), corner[1], name, ha="center", va="top", size=7, color=style.DARK_GREY)
            else:
                text_style: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 2, "bbox": _PAPER}
                axes.text(fmean(xs), fmean(ys), name.split()[-1], size=9, **text_style)

    def _draw_links(self, axes: Axes, look: Look) -> None:
        """A line for each link, the busiest on top."""
        widths, places = self._widths(), self._drawn.places
        links = []
        for a, b, data in self._drawn.graph.edges(data=True):
            ends = tuple(data.get("ends", {a: a, b: b}).values())
            points = _arc(places[a], places[b]) if {a, b} in self._drawn.curved else [places[a], places[b]]
            wide = widths[data["rate_bps"]] * (_WIDER if look.busy else 1.0)
            links.append((look.busier(*ends), points, wide, ends))
        links.sort(key=lambda link: link[0])
        shares, lines, thick, ends_of = zip(*links, strict=True)
        below = [points for _, points, _, ends in links if {*ends} == look.marked]
        axes.add_collection(LineCollection(below, colors=style.BLACK, linewidths=max(thick) + 2.4, zorder=1))
        colours = [look.colour(share) for share in shares]
        is_there = [look.present is None or look.present.has_edge(*ends) for ends in ends_of]
        dashes = ["solid" if there else _DASHES for there in is_there]
        drawn = LineCollection(
            lines, colors=colours, linewidths=thick, linestyles=dashes, zorder=1, capstyle="round"
        )
        axes.add_collection(drawn)
        if look.busy:
            mark(drawn, *(look.row(*ends) for ends in ends_of))

    def _draw_marks(self, axes: Axes, look: Look, room_inches: Sequence[float]) -> None:
        hosts = [name for name in self._nodes if self._nodes[name]["kind"] == HOST]
        inner = [name for name in self._nodes if self._nodes[name]["kind"] != HOST]
        able = [name for name in inner if self._nodes[name]["profile"] in look.aggregates]
        in_rows = self._drawn.is_in_rows
        between, gap = self._gap_points(hosts, room_inches), self._gap_points(inner, room_inches)
        anywhere = between if in_rows else self._gap_points([*hosts, *inner], room_inches)
        self._dots(axes, hosts, "o", min(7.0, 0.62 * between), style.MIDDLE_GREY, "white")
        self._names(axes, hosts, between if in_rows else _FACING * min(between, anywhere), 5.5)
        absent = [name for name in inner if look.present is not None and name not in look.present]
        others = [name for name in inner if name not in able and name not in absent]
        able = [name for name in able if name not in absent]
        looks = (able, style.SLATE, style.BLACK), (others, "white", style.BLACK), (absent, "white", _ABSENT)
        for names, fill, edge in looks:
            self._dots(axes, names, "s", max(4.0, min(12.0, 0.5 * gap)), fill, edge)
        self._names(axes, inner, gap * (_FACING if self._drawn.boxes and not in_rows else 1), 8.0)

    def _gap_points(self, names: Sequence[str], room_inches: Sequence[float]) -> float:
        """Least space between two of these nodes: in the same row, or anywhere."""
        scaled = [
            (x * room_inches[0], y * room_inches[1]) for x, y in (self._drawn.places[name] for name in names)
        ]
        pairs = ((a, b) for a, b in combinations(scaled, 2) if not self._drawn.is_in_rows or a[1] == b[1])
        return _POINTS * min((math.dist(a, b) for a, b in pairs), default=1.0)

    def _dots(self, axes: Axes, names: Sequence[str], marker: str, size: float, fill: str, edge: str) -> None:
        look: dict[str, Any] = {"markerfacecolor": fill, "markeredgecolor": edge, "markeredgewidth": 0.8}
        if names:
            xs, ys = zip(*(self._drawn.places[name] for name in names), strict=True)
            axes.plot(xs, ys, marker, markersize=size, zorder=3, **look)

    def _names(self, axes: Axes, names: Sequence[str], gap: float, away_points: float) -> None:
        """Names beside their marks in the largest font that fits; none if even the smallest does not."""
        longest = max(map(len, names), default=1)
        size = min(_FONT_MAX, gap * 0.9 / (_CHARACTER_POINTS * longest))
        is_below = self._drawn.is_in_rows and bool(names) and self._drawn.asides[names[0]][1] < 0
        is_turned = size < _FONT_MIN and is_below
        if is_turned:
            size = min(_FONT_MAX, 0.85 * gap)
        if names and size >= _FONT_MIN:
            places = [self._drawn.places[name] for name in names]
            asides = [self._drawn.asides[name] for name in names]
            axes.add_artist(
                _Names(names, places, asides, size=size, away_points=away_points, is_turned=is_turned)
            )


class _Names(Artist):
    """Names beside their places, each on paper; a text of Matplotlib for each would take longer."""

    def __init__(
        self,
        names: Sequence[str],
        places: Sequence[Place],
        asides: Sequence[Place],
        *,
        size: float,
        away_points: float,
        is_turned: bool,
    ) -> None:
        super().__init__()
        self.set(zorder=4, in_layout=False)  # axes have margins for names
        self._names, self._places, self._is_turned = names, places, is_turned
        self._font = FontProperties(size=size)
        tall, descent = (size * share for share in _line_heights())
        low_left, sizes = [], []  # of names, in points from their places
        for name, (across, up) in zip(names, asides, strict=True):
            extent = (tall, size * _width(name)) if is_turned else (size * _width(name), tall)
            # The share of a name that is left of where it is put, and below.
            before = 0.5 if abs(across) < _STEEP else float(across < 0)
            under = 0.5 if abs(up) < _STEEP else float(up < 0)
            low_left.append((away_points * across - before * extent[0], away_points * up - under * extent[1]))
            sizes.append(extent)
        low, high = np.array(low_left) - _PAD, np.add(low_left, sizes) + _PAD
        corners = (
            (low[:, 0], low[:, 1]),
            (high[:, 0], low[:, 1]),
            (high[:, 0], high[:, 1]),
            (low[:, 0], high[:, 1]),
        )
        self._papers = np.stack([np.stack(corner, 1) for corner in (*corners, corners[0])], 1)
        self._lines = np.array(low_left) + ((tall - descent, 0) if is_turned else (0, descent))

    def draw(self, renderer: RendererBase) -> None:
        assert self.axes is not None
        point: Any = renderer.points_to_pixels(1)
        angle = 90 if self._is_turned else 0
        places = self.axes.transData.transform(self._places)
        graphics = renderer.new_gc()
        graphics.set_linewidth(0)
        graphics.set_alpha(_PAPER["alpha"])
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(places)
        papers = Path((places[:, None] + point * self._papers).reshape(-1, 2), codes)
        renderer.draw_path(graphics, papers, IdentityTransform(), to_rgba(_PAPER["facecolor"]))
        graphics.restore()
        graphics = renderer.new_gc()
        height = renderer.get_canvas_width_height()[1] if renderer.flipy() else 0
        for name, (x, y) in zip(self._names, places + point * self._lines, strict=True):
            renderer.draw_text(graphics, x, abs(height - y), name, self._font, angle)
        graphics.restore()


@cache
def _width(name: str) -> float:
    # Of text in the house font, over the size of that.
    return float(text_to_path.get_text_width_height_descent(name, FontProperties(size=1), False)[0])


@cache
def _line_heights() -> tuple[float, float]:
    """Of a line of text, and of what is below its base line, over the size of the font."""
    _, height, descent = text_to_path.get_text_width_height_descent("lp", FontProperties(size=1), False)
    return height, descent


def _arc(a: Place, b: Place) -> list[Place]:
    """Points of an arc beside the straight line."""
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


# A large topology as rows of boxes: one for each class of nodes, a line for the links between two.


_ROW_INCHES, _APART = 1.35, 6.0


class _Classes:
    """How many nodes each class has, and how many links of which rates join them."""

    def __init__(self, graph: nx.Graph) -> None:
        self._classes = classes_of(graph)
        tiers = [list(tier) for _, tier in groupby(self._classes, key=lambda node_class: node_class.tier)]
        self._places: dict[Class, Place] = {
            node_class: (_APART * (at - (len(tier) - 1) / 2), float(row))
            for row, tier in enumerate(tiers)
            for at, node_class in enumerate(tier)
        }
        self._rows = len(tiers)

    def height_inches(self, width_inches: float, most: float) -> float:
        return _ROW_INCHES * self._rows - 0.3

    def legend(self, look: Look) -> dict[str, Line2D]:
        return {}

    def draw(self, axes: Axes, look: Look, size_inches: tuple[float, float]) -> None:
        axes.axis("off")
        centred: dict[str, Any] = {"ha": "center", "va": "center"}
        within: dict[Class, list[str]] = {}
        for a, b, links in self._classes.edges(data="links"):
            lower, upper = min(a, b), max(a, b)
            if lower == upper:
                within[a] = [f"{_rates_text(links)} among them", *_busy_texts(links, look, is_within=True)]
                continue
            (x1, y1), (x2, y2) = self._places[lower], self._places[upper]
            colour = look.colour(max(look.busier(*link.ends) for link in links))
            width = 4.0 if look.busy else 2.2
            (line,) = axes.plot((x1, x2), (y1, y2), color=colour, linewidth=width, zorder=1)
            if look.busy:
                mark(line, _class_row(look, f"{lower.name}–{upper.name}", links))
            text = "\n".join([_rates_text(links), *_busy_texts(links, look)])
            # Near the upper box, so that texts of neighbours and boxes that the line passes do not cover it.
            text_place = (x1 + 0.6 * (x2 - x1), max((y1 + y2) / 2, y2 - 0.5))
            axes.text(*text_place, text, zorder=2, bbox={**_PAPER, "alpha": 1}, **centred)
        for node_class, text_place in self._places.items():
            is_able = bool({*self._classes.nodes[node_class]["profiles"]} & {*look.aggregates})
            box = {
                "boxstyle": "round,pad=0.6",
                "facecolor": "#d6e8f3" if is_able else "white" if node_class.tier else "#f0f0f0",
                "edgecolor": style.SLATE if is_able else style.DARK_GREY,
                "linewidth": 1.4,
            }
            text = "\n".join(self._lines(node_class, within.get(node_class, []), is_able))
            axes.text(*text_place, text, zorder=4, linespacing=1.25, bbox=box, **centred)
        xs = [x for x, _ in self._places.values()]
        axes.set_xlim(min(xs) - 2.0, max(xs) + 2.0)
        axes.set_ylim(-0.3, self._rows - 0.7)

    def _lines(self, node_class: Class, links: list[str], is_able: bool) -> list[str]:
        """Lines in a box: "32 × leaf", the hosts on each, the links within the class, profiles."""
        data = self._classes.nodes[node_class]
        count, profiles, hosts_each = len(data["members"]), ", ".join(data["profiles"]), data["hosts"]
        lines = [f"{count} × {node_class.name}" if profiles else f"{count} hosts"]
        if any(hosts_each):
            few = " to ".join(map(str, dict.fromkeys((hosts_each[0], hosts_each[-1]))))
            lines.append(f"{few} host{'s' if hosts_each != [1] else ''} on each")
        return [*lines, *links, *([f"{profiles}{': can aggregate' if is_able else ''}"] if profiles else [])]


def _class_row(look: Look, between: str, links: Sequence[ClassLink]) -> Row:
    shares = [look.busier(*link.ends) for link in links]
    return {
        **{"variant": look.variant, "from": between, "links": len(links)},
        **{"least_busy_share": min(shares), "median_busy_share": median(shares)},
        "most_busy_share": max(shares),
    }


def _rates_text(links: Sequence[ClassLink]) -> str:
    """ "512 links of 100Gbps", the fastest first; an edge is one link here."""
    counted = sorted(Counter(link.rate_bps for link in links).items(), reverse=True)
    rate_texts = [f"{count} links of {RATE.format(rate)}" for rate, count in counted[:3]]
    return ", ".join(rate_texts) + (", …" if len(counted) > 3 else "")


def _busy_texts(links: Sequence[ClassLink], look: Look, is_within: bool = False) -> list[str]:
    """Least, middle and most busy links of each direction: "up: 3 % to 98 % busy, median 41 %"."""
    if not look.busy:
        return []
    up = [look.busy.get(link.ends, 0.0) for link in links]
    down = [look.busy.get((link.ends[1], link.ends[0]), 0.0) for link in links]
    return (
        [_spread_text(up + down)] if is_within else [f"up: {_spread_text(up)}", f"down: {_spread_text(down)}"]
    )


def _spread_text(shares: list[float]) -> str:
    low, middle, high = map(words.percent, (min(shares), median(shares), max(shares)))
    return f"{low} to {high} busy, median {middle}"


# How busy links were, and where they are in each variant's topology.


def busy_links(run: RunFolder) -> pl.DataFrame:
    """The table of links with `busy`, the share of the simulated time that each was busy; the busiest first.

    The share is null for a variant that did not finish: its links kept sending after its last step.
    """
    network = pl.col("variant").str.split("/").list.first()  # the jobs of a variant share it
    unfinished = {
        entry["name"].partition("/")[0] for entry in run.summary["variants"] if not words.has_finished(entry)
    }
    steps = run.steps.filter(~network.is_in(sorted(unfinished)))
    duration = steps.group_by(network, maintain_order=True).agg(
        (pl.col("end_ps").max() - pl.col("start_ps").min()).alias("duration_ps")
    )
    return (
        run.links.join(duration, on="variant", how="left", maintain_order="left")
        .with_columns((pl.col("busy_ps") / pl.col("duration_ps")).alias("busy"))
        .sort("busy_ps", descending=True, maintain_order=True)
    )


def graphs(run: RunFolder) -> dict[str, nx.Graph]:
    # A run that did not record its nodes has no graphs.
    return {
        str(name): _graph(nodes, run.links.filter(pl.col("variant") == name))
        for (name,), nodes in run.nodes.group_by("variant", maintain_order=True)
    }


def _graph(nodes: pl.DataFrame, links: pl.DataFrame) -> nx.Graph:
    graph = nx.Graph()
    for row in nodes.iter_rows(named=True):
        graph.add_node(row["node"], **_attributes(row))
    for source, target, rate_bps in links.select("source", "target", "rate_bps").iter_rows():
        if source != target and source in graph and target in graph:  # not the loopback of a switch
            graph.add_edge(source, target, rate_bps=rate_bps, delay_ps=0)  # a drawing shows no delays
    return graph


def _attributes(row: Mapping[str, Any]) -> dict[str, Any]:
    attributes = {"kind": row["kind"], "tier": row["tier"], "profile": row["profile"]}
    if row["coordinates"] is not None:
        attributes["coordinates"] = tuple(map(int, row["coordinates"].split(",")))
    return attributes | {key: row[key] for key in ("group", "rail", "island") if row[key] is not None}


def can_aggregate(nodes: pl.DataFrame) -> set[str]:
    """Profiles of the switches that can aggregate."""
    able = nodes.filter((pl.col("kind") == SWITCH) & pl.col("can_aggregate"))
    return set(able["profile"])


# A topology as SVG: node by node if it is small, in tiers with counts if it is large.


_AROUND_INCHES = 0.75  # title and legend


def draw_svg(graph: nx.Graph, look: Look) -> Svg:
    """SVG of a valid graph; the same graph gives the same bytes."""
    with style.house_style():
        return style.to_svg(figure_of(graph, look))


def figure_of(graph: nx.Graph, look: Look) -> Figure:
    """The figure, in the house style that is in force."""
    drawing = drawing_of(graph)
    height = drawing.height_inches(style.width_inches(), most=7.0)
    figure = style.new_figure(height + _AROUND_INCHES)
    drawing.draw(figure.add_subplot(), look, (style.width_inches(), height))
    if marks := drawing.legend(look):
        style.legend_below(figure, list(marks.values()), list(marks))
    figure.suptitle(look.title, x=0.01, ha="left", size=11, weight="bold")
    return figure


# The utilisation of links, drawn on the topology of each variant.


VARIANTS_MAX = 16  # drawn
_BESIDE_MAX = 40  # nodes of graphs that are drawn two in a row
_TITLE_INCHES, _LINE_INCHES, _AROUND_BUSY_INCHES = 0.35, 0.15, 1.5
_TITLE_CHARACTERS = 120  # over a panel of full width


def utilisation(run: RunFolder) -> Figure | None:
    """A panel for each variant, links coloured by how busy they were; None if nodes were not recorded."""
    if run.nodes.is_empty():
        return None
    is_drawn, variants_count = pl.col("variant").is_in(_drawn_variants(run)), run.nodes["variant"].n_unique()
    panels = graphs(replace(run, nodes=run.nodes.filter(is_drawn)))
    is_beside = len(panels) > 1 and max(map(len, panels.values())) <= _BESIDE_MAX
    columns = 2 if is_beside and not style.is_narrow() else 1
    drawings = [drawing_of(graph) for graph in panels.values()]
    width = style.width_inches() / columns
    heights = [drawing.height_inches(width, most=5.0) for drawing in drawings]
    used = {
        entry["name"].partition("/")[0]: f"\nlinks used: {text}"
        for entry in run.summary["variants"]
        if (text := words.links_used(entry["metrics"])) != words.NOTHING
    }
    tall_inches = _TITLE_INCHES + bool(used) * _LINE_INCHES
    tallest = [max(heights[at : at + columns]) + tall_inches for at in range(0, len(heights), columns)]
    figure = style.new_figure(sum(tallest) + _AROUND_BUSY_INCHES)
    grid = figure.subplots(len(tallest), columns, squeeze=False, height_ratios=tallest).flatten()
    able, busy = can_aggregate(run.nodes), busy_links(run)
    entries: dict[str, Line2D] = {}
    for axes, name, drawing, height in zip(grid, panels, drawings, heights, strict=False):
        look = _look(name, busy.filter(pl.col("variant") == name), able)
        drawing.draw(axes, look, (width, height))
        entries |= drawing.legend(look)
        title = textwrap.shorten(look.title, _TITLE_CHARACTERS // columns, placeholder="…")
        axes.set_title(title + used.get(name, ""), fontsize=9.5 if columns == 1 else 8)
    for axes in grid[len(panels) :]:
        axes.axis("off")
    more = f", in {len(panels)} of {variants_count} variants" if variants_count > len(panels) else ""
    figure.suptitle(f"How busy links were{more}", x=0.01, ha="left", size=11, weight="bold")
    style.busy_scale(figure, list(grid))
    if entries:
        style.legend_below(figure, list(entries.values()), list(entries))
    return figure


def _drawn_variants(run: RunFolder) -> list[str]:
    """All variants, or of many the fastest and the slowest of every network, as far as there is room."""
    names = run.nodes["variant"].unique(maintain_order=True).to_list()
    if len(names) <= VARIANTS_MAX:
        return names
    by_network: dict[tuple[Any, ...], list[str]] = {}
    for (name,), nodes in run.nodes.group_by("variant", maintain_order=True):
        links = run.links.filter(pl.col("variant") == name).select("source", "target", "rate_bps")
        by_network.setdefault((*nodes.drop("variant").rows(), *links.rows()), []).append(str(name))
    ends = run.steps.group_by(pl.col("variant").str.split("/").list.first()).agg(pl.col("end_ps").max())
    times = dict(ends.rows())
    fastest, slowest = (
        [choose(alike, key=lambda name: times.get(name, 0)) for alike in by_network.values()]
        for choose in (min, max)
    )
    chosen = list(dict.fromkeys([*fastest, *slowest]))[:VARIANTS_MAX]
    return [name for name in names if name in chosen]


def _look(name: str, links: pl.DataFrame, able: set[str]) -> Look:
    """Shares by link, the busiest marked and named; no shares for a variant that did not finish."""
    between = links.filter(pl.col("source") != pl.col("target"))
    if between.is_empty() or between["busy"].null_count():
        return Look(f"{name} · did not finish, so shares are unknown", able)
    busiest = between.row(int(between["busy"].arg_max() or 0), named=True)
    title = f"{name} · busiest: {busiest['link']}, {words.percent(busiest['busy'])}"
    shares = {
        (source, target): busy for source, target, busy in between["source", "target", "busy"].iter_rows()
    }
    return Look(title, able, shares, frozenset((busiest["source"], busiest["target"])), name)
