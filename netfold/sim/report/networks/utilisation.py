"""The utilisation of links, drawn on the topology of each variant."""

from __future__ import annotations

import textwrap

import networkx as nx
import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from netfold.sim.report import style, words
from netfold.sim.report.networks.boxes import draw_tiers, tiers_height_inches
from netfold.sim.report.networks.busy import busy_links, can_aggregate, graphs
from netfold.sim.report.networks.nodes import Look, draw_nodes, height_inches, legend_entries
from netfold.sim.results.folder import Run
from netfold.topologies.layout import NODES_DRAWN_MAX, Layout, Tiers, layout, tiers_of

VARIANTS_MAX = 16  # drawn
_BESIDE_MAX = 40  # nodes of graphs that are drawn two in a row
_TITLE_INCHES, _AROUND_INCHES = 0.35, 1.5
_TITLE_CHARACTERS = 120  # over a panel of full width


def utilisation(run: Run) -> Figure | None:
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
    figure = style.new_figure(sum(tallest) + _AROUND_INCHES)
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
