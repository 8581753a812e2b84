"""The figures of what time costs: bytes and errors of codecs, and prices of networks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from netfold.sim.report import style, words
from netfold.sim.report.answer import GROUPS_MAX, Entry, Group, answered_in, place
from netfold.sim.report.hover_text import mark
from netfold.sim.report.training_curves import looks_of, plain_ticks
from netfold.sim.results.folder import RunFolder

_FAR = 100.0
"""The largest error over the smallest from which on codecs differ in it, and not only in how they round."""
_EXACT = 1e-16
"""Where an error of 0 is drawn."""


class Tradeoff(NamedTuple):
    variant: str
    size_bytes: float  # that a worker sends in a step, headers included
    nmse: float
    time_us: float  # of a step's aggregation

    def is_beaten_by(self, other: Tradeoff) -> bool:
        # Nowhere better, and somewhere worse.
        return all(a >= b for a, b in zip(self[1:], other[1:], strict=True)) and self[1:] != other[1:]


def trade_off(run: RunFolder) -> Figure | None:
    """Time against bytes and against error; None unless errors of comparable variants differ."""
    rows = [
        (group, points)
        for group in answered_in(run.summary)[:GROUPS_MAX]
        if _differ(points := _points(group))
    ]
    if not rows:
        return None
    looks = looks_of(run)
    figure = style.new_figure(0.9 + 2.3 * len(rows) * (2 if style.is_narrow() else 1))
    shape = (2 * len(rows), 1) if style.is_narrow() else (len(rows), 2)
    panels = figure.subplots(*shape, squeeze=False).reshape(len(rows), 2)
    for (group, points), (by_bytes, by_error) in zip(rows, panels, strict=True):
        best = [point for point in points if not any(map(point.is_beaten_by, points))]
        for point in points:
            look = looks[point.variant.partition("/")[0]] | {"linestyle": "", "markersize": 7}
            if point not in best:
                look["markerfacecolor"] = "none"
            for axes, across in ((by_bytes, point.size_bytes), (by_error, max(point.nmse, _EXACT))):
                (drawn,) = axes.plot(across, point.time_us, **look)
                mark(drawn, point._asdict())
        by_bytes.set_title(group.label or "Bytes, error and time")
        _scale(by_bytes, [point.size_bytes for point in points], lambda value: words.scaled(value, "B"))
        by_bytes.set_xlabel("bytes that a worker sends in a step")
        _scale(by_error, [0.0, _FAR], lambda value: f"{value:g}" if value > 1.5 * _EXACT else "0")
        by_error.set_xlabel("NMSE of the sums")
    shown = [
        name
        for name in looks
        if any(point.variant.partition("/")[0] == name for _, points in rows for point in points)
    ]
    style.legend_below(figure, [Line2D([], [], **looks[name] | {"linestyle": ""}) for name in shown], shown)
    return figure


def cost_and_time(run: RunFolder) -> Figure | None:
    """Time against the price of the network, a panel for each group; None unless networks differ in price.

    Colours are networks, and shapes the values of a grid's last key.
    """
    groups = [group for group in answered_in(run.summary)[:GROUPS_MAX] if len(_costs(group)) > 1]
    if not groups or run.summary.get("jobs"):
        return None
    figure = style.new_figure(0.9 + 2.5 * (len(groups) if style.is_narrow() else 1))
    shape = (len(groups), 1) if style.is_narrow() else (1, len(groups))
    panels = figure.subplots(*shape, squeeze=False).ravel()
    places = {variant["name"]: _place(group, variant) for group in groups for variant in _priced(group)}
    networks, chosen = (list(dict.fromkeys(names)) for names in zip(*places.values(), strict=True))
    colours = dict(zip(networks, itertools.cycle(style.VARIANT_COLOURS), strict=False))
    signs = dict(zip(chosen, itertools.cycle(style.MARKERS), strict=False))
    for axes, group in zip(panels, groups, strict=True):
        for variant in _priced(group):
            network, value = places[variant["name"]]
            _draw_cost(axes, group, variant, {"color": colours[network], "marker": signs[value]})
        _draw_best(axes, group)
    looks = [(colour, "s") for colour in colours.values()]
    looks += [(style.DARK_GREY, sign) for value, sign in signs.items() if value]
    handles = [Line2D([], [], color=colour, marker=sign, linestyle="") for colour, sign in looks]
    style.legend_below(figure, handles, [*networks, *filter(None, chosen)])
    return figure


def _place(group: Group, variant: Entry) -> tuple[str, str]:
    return place(group, variant) if len(group.axes) > 1 else (group.name(variant), "")


def _costs(group: Group) -> set[float]:
    return {variant["metrics"]["cost_usd"] for variant in _priced(group)}


def _priced(group: Group) -> list[Entry]:
    return [variant for variant in group.sound if variant["metrics"].get("cost_usd") is not None]


def _draw_cost(axes: Axes, group: Group, variant: Entry, look: Mapping[str, Any]) -> None:
    cost, time_us = (variant["metrics"][name] for name in ("cost_usd", "aggregation_time_us"))
    span = variant.get("spread", {}).get("aggregation_time_us", [time_us] * 2)
    axes.plot([cost, cost], span, color=look["color"])
    (drawn,) = axes.plot(cost, time_us, **look, markersize=6, alpha=0.85)
    mark(drawn, {"variant": group.name(variant), "cost_usd": cost, "time_us": time_us})


def _draw_best(axes: Axes, group: Group) -> None:
    """The least time for each price, and the scales."""
    figures = [variant["metrics"] for variant in _priced(group)]
    points = sorted((metrics["cost_usd"], metrics["aggregation_time_us"]) for metrics in figures)
    costs, times_us = zip(*points, strict=True)
    best_us = list(itertools.accumulate(times_us, min))
    axes.step(costs, best_us, where="post", color=style.MIDDLE_GREY, zorder=0)
    axes.set(title=group.label or "Cost and time", xlabel="price of the network")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.money(value)))
    if max(times_us) > 3 * min(times_us):
        axes.set_yscale("log")
        plain_ticks(axes.yaxis, axes.get_ylim())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: words.time(value)))
    axes.grid(color=style.LIGHT_GREY, linewidth=0.6)


def _points(group: Group) -> list[Tradeoff]:
    points = []
    for variant in group.sound:
        metrics = variant["metrics"]
        if metrics.get("aggregation_time_us") and metrics.get("nmse") is not None:
            size_bytes = metrics["wire_bytes_up"] / metrics["workers"]
            points.append(
                Tradeoff(variant["name"], size_bytes, metrics["nmse"], metrics["aggregation_time_us"])
            )
    return points


def _differ(points: Sequence[Tradeoff]) -> bool:
    errors = [max(point.nmse, _EXACT) for point in points]
    return len(points) > 1 and max(errors) > _FAR * min(errors) and max(errors) > 1e-9


def _scale(axes: Axes, values: Sequence[float], text: Any) -> None:
    if max(values) > 3 * min(values):
        axes.set_xscale("log")
        if min(values) > 0:
            plain_ticks(axes.xaxis, (min(values), max(values)))
    else:
        axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: words.time(value) if value > 0 else "0"))
    axes.set_ylim(bottom=0)
    axes.grid(color=style.LIGHT_GREY, linewidth=0.6)
