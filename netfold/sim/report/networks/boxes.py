"""Draws a large topology as tiers: a box for each class of nodes, a line for the links between two."""

from __future__ import annotations

import statistics

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from netfold.sim.report import style, words
from netfold.sim.report.networks.nodes import Look
from netfold.topologies.layout import Bundle, Class, Tiers
from netfold.units import RATE

ROW_INCHES = 1.35
_BOX = 2.6  # width of a box, in units of a row's height
_LINE_INCHES, _PAD_INCHES = 0.16, 0.12
_APART = 3.6


def tiers_height_inches(tiers: Tiers) -> float:
    """The height of the drawing."""
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
