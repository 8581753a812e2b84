"""The figure of messages of every size: time and bandwidth, as simulated, and as predicted beyond."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from netfold.sim.report import style, words
from netfold.sim.report.answer import answered_in
from netfold.sim.report.hover_text import mark_points
from netfold.sim.report.predictions import SizeLine, size_lines
from netfold.sim.report.training_curves import plain_ticks
from netfold.sim.results.folder import RunFolder

_ROW_INCHES = 2.1


def message_sizes(run: RunFolder) -> Figure | None:
    """Time and algbw against the size of the message, a panel for each value of a grid's last key.

    None unless some variant has messages of two sizes, whose times are predicted too.
    """
    lines = size_lines(answered_in(run.summary))
    if not lines:
        return None
    columns = list(dict.fromkeys(line.place[1] for line in lines))
    names = list(dict.fromkeys(line.place[0] for line in lines))
    looks = dict(
        zip(names, zip(itertools.cycle(style.VARIANT_COLOURS), itertools.cycle(style.MARKERS)), strict=False)
    )
    shape = (2 * len(columns), 1) if style.is_narrow() else (2, len(columns))
    figure = style.new_figure(0.9 + _ROW_INCHES * shape[0])
    panels = figure.subplots(*shape, squeeze=False, sharex=True).reshape(2, len(columns))
    for column, (times, rates) in zip(columns, panels.T, strict=True):
        times.set_title(column or "Time and bandwidth by size of the message")
        for line in (line for line in lines if line.place[1] == column):
            _draw(times, line, looks[line.place[0]], "time_us", lambda size, time_us: time_us)
            _draw(rates, line, looks[line.place[0]], "algbw_bytes_per_s", lambda size, us: 1e6 * size / us)
    for row, (label, text) in zip(panels, (("time", words.time), ("algbw", _rate)), strict=True):
        least, most = (pick(limit for axes in row for limit in axes.get_ylim()) for pick in (min, max))
        for axes in row:
            axes.set_ylim(least, most)
            plain_ticks(axes.yaxis, (least, most))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _, text=text: text(value)))
        row[0].set_ylabel(label)
    for axes in panels[-1]:
        axes.set_xlabel("message of a worker")
    handles = [Line2D([], [], color=colour, marker=sign, markersize=4) for colour, sign in looks.values()]
    dashed = Line2D([], [], color=style.BLACK, linestyle="--")
    style.legend_below(figure, [*handles, dashed], [*names, "predicted"])
    return figure


def _rate(value: float) -> str:
    return words.scaled(value, "B/s")


def _draw(
    axes: Axes, line: SizeLine, look: tuple[str, str], metric: str, value: Callable[[float, float], float]
) -> None:
    colour, sign = look
    sizes = [point.size_bytes for point in line.simulated]
    heights = [value(point.size_bytes, point.time_us) for point in line.simulated]
    least = [value(point.size_bytes, point.least_us) for point in line.simulated]
    most = [value(point.size_bytes, point.most_us) for point in line.simulated]
    axes.fill_between(sizes, least, most, color=colour, alpha=0.25, linewidth=0)
    axes.plot(sizes, heights, color=colour, marker=sign, markersize=4)
    predicted = [(size, value(size, time_us)) for size, time_us in line.predicted]
    if predicted:
        axes.plot(*zip(*predicted, strict=True), color=colour, linestyle="--", linewidth=1.0)
    rows: list[dict[str, Any]] = [
        {"variant": line.name, "is": kind, "size_bytes": size, metric: height}
        for kind, points in (("simulated", zip(sizes, heights, strict=True)), ("predicted", predicted[-1:]))
        for size, height in points
    ]
    mark_points(axes, [(row["size_bytes"], row[metric]) for row in rows], rows)
    axes.set(xscale="log", yscale="log")
    plain_ticks(axes.xaxis, axes.get_xlim())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: words.scaled(size, "B")))
    axes.grid(color=style.LIGHT_GREY, linewidth=0.6)
