"""Drawings of topologies, alone or with the utilisation of their links."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch
from matplotlib.transforms import ScaledTranslation

from netfold.sim.report import style, words
from netfold.sim.report.shown import Svg
from netfold.sim.results.folder import RunFolder
from netfold.topologies.graph import HOST, LINK_RANGES, SWITCH
from netfold.topologies.layout import NODES_DRAWN_MAX, Bundle, Class, Layout, Tiers, layout, tiers_of
from netfold.units import RATE

# Draws a small topology, node by node.


Edge = frozenset[str]
WIDTHS = (0.7, 1.2, 1.8, 2.6, 3.6)
"""Widths of lines, by rate; the slowest first."""
_WIDER = 1.6  # lines with a colour
_ARC_POINTS = 13
_ARC = 0.3  # height of a curved link, in units of a layout; less where it is short
_MARGIN_INCHES = 0.28
_POINTS = 72.0
_PAPER: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}  # behind text
_CHARACTER_POINTS = 0.62  # width of a character over the size of its font
_FONT_MAX, _FONT_MIN = 8.0, 4.5
_STEEP = 0.4
"""Text is centred in a direction of which its vector of length 1 has less than this."""
_FACING = 0.55  # share of the space between nodes that a name has where two names face each other
_NAME_POINTS = (8.0, 5.5)
"""The distance from a node to its name: for switches, for hosts."""
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

    def busier(self, a: str, b: str) -> float:
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
        figure = self._axes.get_figure(root=True)
        assert figure is not None
        for name in names:
            (x, y), (across, up) = self._drawn.places[name], self._drawn.asides[name]
            text: dict[str, Any] = {
                "ha": "center" if abs(across) < _STEEP else "left" if across > 0 else "right",
                "va": "center" if abs(up) < _STEEP else "bottom" if up > 0 else "top",
                "rotation": 90 if is_turned else 0,
                "fontsize": size,
                "bbox": _PAPER,
            }
            away = _NAME_POINTS[self._drawn.graph.nodes[name]["kind"] == HOST] / _POINTS
            aside = ScaledTranslation(away * across, away * up, figure.dpi_scale_trans)
            # Axes have margins for names: without measuring each, the layout takes half the time.
            self._axes.text(
                x, y, name, transform=self._axes.transData + aside, zorder=4, in_layout=False, **text
            )


# Draws a large topology as tiers: a box for each class of nodes, a line for the links between two.


ROW_INCHES = 1.35
_BOX = 2.6  # width of a box, in units of a row's height
_LINE_INCHES, _PAD_INCHES = 0.16, 0.12
_APART = 3.6


def tiers_height_inches(tiers: Tiers) -> float:
    return ROW_INCHES * len({one.tier for one in tiers.classes}) - 0.3


def draw_tiers(axes: Axes, tiers: Tiers, look: Look) -> None:
    """Draw classes as boxes in rows, hosts at the bottom, and how many links of which rates join them."""
    places = _places(tiers)
    axes.axis("off")
    for bundle in tiers.bundles:
        if bundle.lower != bundle.upper:
            (x1, y1), (x2, y2) = places[bundle.lower], places[bundle.upper]
            busiest = max(look.busier(*edge) for edge in bundle.edges)
            colour = style.busy_colour(busiest) if look.busy else style.MIDDLE_GREY
            axes.plot((x1, x2), (y1, y2), color=colour, linewidth=4.0 if look.busy else 2.2, zorder=1)
            axes.text(
                *((x1 + x2) / 2, (y1 + y2) / 2),
                "\n".join([_links_text(bundle), *_busy_texts(bundle, look)]),
                ha="center",
                va="center",
                zorder=2,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 2.0},
            )
    for number, one in enumerate(tiers.classes):
        _box(axes, places[number], one, _text(tiers, number, look), {*one.profiles} & {*look.aggregates})
    xs, ys = zip(*places, strict=True)
    half = 2.6
    axes.set_xlim(min(xs) - half, max(xs) + half)
    axes.set_ylim(min(ys) - 0.3, max(ys) + 0.3)


def _places(tiers: Tiers) -> list[tuple[float, float]]:
    levels = sorted({one.tier for one in tiers.classes})
    rows = [[number for number, one in enumerate(tiers.classes) if one.tier == tier] for tier in levels]
    places = {
        number: (_APART * (index - (len(row) - 1) / 2), float(height))
        for height, row in enumerate(rows)
        for index, number in enumerate(row)
    }
    return [places[number] for number in range(len(tiers.classes))]


def _text(tiers: Tiers, number: int, look: Look) -> str:
    """Lines in a box: "32 × leaf", its hosts, and the links within the class."""
    one = tiers.classes[number]
    lines = [f"{one.nodes_count} × {one.name}" if one.profiles else f"{one.nodes_count} hosts"]
    if any(one.hosts_each):
        each = " to ".join(map(str, (one.hosts_each[0], one.hosts_each[-1])[: len(one.hosts_each)]))
        lines.append(f"{each} host{'s' if one.hosts_each != (1,) else ''} on each")
    own = [bundle for bundle in tiers.bundles if bundle.lower == bundle.upper == number]
    for bundle in own:
        lines += [f"{_links_text(bundle)} among them", *_busy_texts(bundle, look)]
    return "\n".join(lines)


def _links_text(bundle: Bundle) -> str:
    """ "512 links of 100Gbps"; an edge is one link here."""
    shown = [f"{count} links of {RATE.format(rate)}" for rate, count in list(bundle.rates_bps.items())[:3]]
    return ", ".join(shown) + (", …" if len(bundle.rates_bps) > 3 else "")


def _busy_texts(bundle: Bundle, look: Look) -> list[str]:
    """Least, middle and most busy links of each direction: "up: 3 % to 98 % busy, median 41 %"."""
    if not look.busy:
        return []
    up = [look.busy.get(edge, 0.0) for edge in bundle.edges]
    down = [look.busy.get((b, a), 0.0) for a, b in bundle.edges]
    if bundle.lower == bundle.upper:
        return [_spread_text(up + down)]
    return [f"up: {_spread_text(up)}", f"down: {_spread_text(down)}"]


def _spread_text(shares: list[float]) -> str:
    low, middle, high = (
        words.percent(pick) for pick in (min(shares), statistics.median(shares), max(shares))
    )
    return f"{low} to {high} busy, median {middle}"


def _box(axes: Axes, place: tuple[float, float], one: Class, text: str, able: set[str]) -> None:
    if one.profiles:
        text += f"\n{', '.join(one.profiles)}{': can aggregate' if able else ''}"
    width = _BOX
    height = (_LINE_INCHES * (text.count("\n") + 1) + _PAD_INCHES) / ROW_INCHES
    corner = (place[0] - width / 2, place[1] - height / 2)
    fill = "white" if not able else "#d6e8f3"
    if not one.profiles:
        fill = "#f0f0f0"
    axes.add_patch(
        FancyBboxPatch(
            *(corner, width, height),
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=fill,
            edgecolor=style.BLUE if able else style.DARK_GREY,
            linewidth=1.4,
            zorder=3,
        )
    )
    axes.text(*place, text, ha="center", va="center", zorder=4, linespacing=1.25)


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
    found = {"kind": row["kind"], "tier": row["tier"], "profile": row["profile"]}
    if row["coordinates"] is not None:
        found["coordinates"] = tuple(map(int, row["coordinates"].split(",")))
    return found | {key: row[key] for key in ("group", "rail", "island") if row[key] is not None}


def can_aggregate(nodes: pl.DataFrame) -> set[str]:
    """Profiles of the switches that can aggregate."""
    able = nodes.filter((pl.col("kind") == SWITCH) & pl.col("can_aggregate"))
    return set(able["profile"])


# A topology as SVG: node by node if it is small, in tiers with counts if it is large.


__all__ = ["Look", "draw_svg"]
_AROUND_INCHES = 0.75  # title and legend


def draw_svg(graph: nx.Graph, look: Look) -> Svg:
    """SVG of a valid graph; the same graph gives the same bytes."""
    with style.house_style():
        return style.to_svg(figure_of(graph, look))


def figure_of(graph: nx.Graph, look: Look) -> Figure:
    """The figure, in the house style that is in force."""
    if len(graph) > NODES_DRAWN_MAX:
        tiers = tiers_of(graph)
        height = tiers_height_inches(tiers)
        figure = style.new_figure(height + _AROUND_INCHES)
        draw_tiers(figure.add_subplot(), tiers, look)
    else:
        drawn = layout(graph)
        height = height_inches(drawn, style.WIDTH_INCHES)
        figure = style.new_figure(height + _AROUND_INCHES)
        draw_nodes(figure.add_subplot(), drawn, look, (style.WIDTH_INCHES, height))
        entries = legend_entries(drawn.graph, look)
        style.legend_below(figure, [mark for _, mark in entries], [name for name, _ in entries])
    figure.suptitle(look.title, x=0.01, ha="left", size=11, weight="bold")
    return figure


# The utilisation of links, drawn on the topology of each variant.


VARIANTS_MAX = 16  # drawn
_BESIDE_MAX = 40  # nodes of graphs that are drawn two in a row
_TITLE_INCHES, _AROUND_BUSY_INCHES = 0.35, 1.5
_TITLE_CHARACTERS = 120  # over a panel of full width


def utilisation(run: RunFolder) -> Figure | None:
    """A panel for each variant, links coloured by how busy they were; None if nodes were not recorded."""
    known = graphs(run)
    if not known:
        return None
    found = dict(list(known.items())[:VARIANTS_MAX])
    columns = 2 if len(found) > 1 and max(map(len, found.values())) <= _BESIDE_MAX else 1
    drawings = [_drawing(graph) for graph in found.values()]
    width = style.WIDTH_INCHES / columns
    heights = [_height_inches(one, width) for one in drawings]
    tallest = [max(heights[at : at + columns]) + _TITLE_INCHES for at in range(0, len(heights), columns)]
    figure = style.new_figure(sum(tallest) + _AROUND_BUSY_INCHES)
    grid = figure.subplots(len(tallest), columns, squeeze=False, height_ratios=tallest).flatten()
    able, busy = can_aggregate(run.nodes), busy_links(run)
    entries: dict[str, Line2D | Patch] = {}
    for axes, name, drawing, height in zip(grid, found, drawings, heights, strict=False):
        look = _look(name, busy.filter(pl.col("variant") == name), able)
        if isinstance(drawing, Tiers):
            draw_tiers(axes, drawing, look)
        else:
            draw_nodes(axes, drawing, look, (width, height))
            entries |= dict(legend_entries(drawing.graph, look))
        title = textwrap.shorten(look.title, _TITLE_CHARACTERS // columns, placeholder="…")
        axes.set_title(title, fontsize=9.5 if columns == 1 else 8)
    for axes in grid[len(found) :]:
        axes.axis("off")
    more = f", in the first {len(found)} of {len(known)} variants" if len(known) > len(found) else ""
    figure.suptitle(f"How busy links were{more}", x=0.01, ha="left", size=11, weight="bold")
    style.busy_scale(figure, list(grid))
    if entries:
        style.legend_below(figure, list(entries.values()), list(entries))
    return figure


def _drawing(graph: nx.Graph) -> Layout | Tiers:
    return tiers_of(graph) if len(graph) > NODES_DRAWN_MAX else layout(graph)


def _height_inches(drawing: Layout | Tiers, width_inches: float) -> float:
    if isinstance(drawing, Tiers):
        return tiers_height_inches(drawing)
    return height_inches(drawing, width_inches, most=5.0)


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
    return Look(title, able, shares, frozenset((busiest["source"], busiest["target"])))
