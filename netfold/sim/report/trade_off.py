"""The figure of what a codec buys with its errors: bytes, error and time of variants that may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from netfold.sim.report import style, words
from netfold.sim.report.answer import GROUPS_MAX, Group, answered_in
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
