"""A topology as SVG: node by node if it is small, in tiers with counts if it is large."""

from __future__ import annotations

import networkx as nx
from matplotlib.figure import Figure

from netfold.sim.report import style
from netfold.sim.report.networks.boxes import draw_tiers, tiers_height_inches
from netfold.sim.report.networks.nodes import Look, draw_nodes, height_inches, legend_entries
from netfold.sim.report.shown import Svg
from netfold.topologies.layout import NODES_DRAWN_MAX, layout, tiers_of

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
