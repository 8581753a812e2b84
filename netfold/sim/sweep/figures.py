"""The figures of a sweep: one for each metric, over the first swept number, with a line for each variant.

The second key makes the columns of a figure, the third its rows; further keys are part of a line's name. A
line is the mean over the seeds, and the band around it their range.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from netfold.sim.report import style
from netfold.sim.results.summary import GOOD
from netfold.sim.sweep.grid import Grid, metric_text, metric_title, metrics_of, value_text

_COLOURS = (
    *(style.BLUE, style.VERMILION, style.GREEN, style.ORANGE),
    *(style.PURPLE, style.SKY, style.BLACK, style.MIDDLE_GREY),
)
_MARKS = "os^Dv<>P"
_COLUMNS_MAX = 3  # of a figure whose facets have one key
_ROW_INCHES, _REST_INCHES = 2.5, 0.75
_DECADE = 10.0  # from which ratio of largest and smallest on an axis is logarithmic
_TICKS_MAX = 8
_BAD = "failed or stuck"


def sweep_figures(grid: Grid) -> dict[str, bytes]:
    """SVG of each metric, by file name, headlines first."""
    with style.house_style():
        return {f"{name}.svg": style.to_svg(draw(grid, name)) for name in metrics_of(grid)}


def draw(grid: Grid, metric: str) -> Figure:
    """The figure of a metric."""
    x, *others = grid.ordered or [("seed", "seed")]
    columns, rows = (others[place] if len(others) > place else None for place in (0, 1))
    facets = _facets(grid, columns, rows)
    height, width = len(facets), len(facets[0])
    count = sum(facet is not None for row in facets for facet in row)
    figure = style.new_figure(_REST_INCHES + _ROW_INCHES * height)
    figure.suptitle(metric_title(metric).capitalize(), x=0.01, ha="left", fontweight="bold")
    axes = figure.subplots(height, width, sharex=True, sharey=True, squeeze=False)
    lines = _lines(grid, others[2:])
    legend: dict[str, Any] = {}
    ticks = _Ticks(grid, x)
    for place, facet in enumerate(itertools.chain(*facets)):
        one = axes[place // width][place % width]
        if facet is None:
            one.remove()
            continue
        one.set_title(facet.title, fontsize=9, fontweight="normal")
        one.grid(color=style.LIGHT_GREY, linewidth=0.6)
        part = grid.done.filter(facet.condition)
        for number, line in enumerate(lines):
            own = part.filter(line.condition)
            looks = (_COLOURS[number % len(_COLOURS)], _MARKS[number % len(_MARKS)])
            legend |= _plot(one, ticks, own, metric, (line.title, *looks))
        if place + width >= count:  # nothing is below it
            one.set_xlabel(x[0])
            one.tick_params(labelbottom=True)
    _scale(axes[0][0], ticks, metric, grid.done[metric])
    if _BAD in legend:
        legend[_BAD] = legend.pop(_BAD)  # last
    style.legend_below(figure, list(legend.values()), list(legend))
    return figure


@dataclass(frozen=True)
class _Part:
    """Rows of the table, and what they are."""

    title: str
    condition: pl.Expr


def _parts(grid: Grid, key: tuple[str, str] | None) -> list[_Part]:
    if key is None:
        return [_Part("", pl.lit(True))]
    path, column = key
    return [
        _Part(f"{path} = {value_text(column, value)}", pl.col(column).eq_missing(pl.lit(value)))
        for value in grid.values(column)
    ]


def _both(one: _Part, other: _Part) -> _Part:
    title = ", ".join(part.title for part in (one, other) if part.title)
    return _Part(title, one.condition & other.condition)


def _facets(
    grid: Grid, columns: tuple[str, str] | None, rows: tuple[str, str] | None
) -> list[list[_Part | None]]:
    """The facets of a figure by row; those of one key go on in further rows."""
    across = _parts(grid, columns)
    if rows is not None:
        return [[_both(one, down) for one in across] for down in _parts(grid, rows)]
    width = len(across) if len(across) <= _COLUMNS_MAX else math.ceil(len(across) / _row_count(len(across)))
    filled: list[_Part | None] = [*across, *[None] * (-len(across) % width)]
    return [filled[start : start + width] for start in range(0, len(filled), width)]


def _row_count(facets_count: int) -> int:
    return math.ceil(facets_count / _COLUMNS_MAX)


def _lines(grid: Grid, keys: Sequence[tuple[str, str]]) -> list[_Part]:
    """A line for every variant and value of the keys that are left."""
    lines = [_Part(str(name), pl.col("variant") == name) for name in grid.values("variant")]
    for key in keys:
        lines = [_both(line, part) for line in lines for part in _parts(grid, key)]
    return lines


class _Ticks:
    """The horizontal axis: its values, and where they are."""

    def __init__(self, grid: Grid, key: tuple[str, str]) -> None:
        _, self.column = key
        found = grid.values(self.column)
        self._is_number = grid.is_number(self.column) and self.column != "seed"  # which has no scale
        self.values = sorted(found) if self._is_number else found
        numbers = [value for value in self.values if self._is_number]
        self.is_logarithmic = bool(numbers) and min(numbers) > 0 and max(numbers) >= _DECADE * min(numbers)

    def place(self, value: Any) -> float:
        """Where a value is."""
        return float(value) if self._is_number else float(self.values.index(value))

    def put_on(self, axes: Axes) -> None:
        """Set the scale, and mark the values or, of many, some."""
        if self.is_logarithmic:
            axes.set_xscale("log")
        step = math.ceil(len(self.values) / _TICKS_MAX)
        shown = self.values[::step]
        axes.set_xticks(
            [self.place(value) for value in shown], [value_text(self.column, value) for value in shown]
        )
        axes.xaxis.set_minor_locator(NullLocator())


def _plot(
    axes: Axes, ticks: _Ticks, rows: pl.DataFrame, metric: str, looks: tuple[str, str, str]
) -> dict[str, Any]:
    """Draw a line with the range of its seeds; returns what the legend shows."""
    name, colour, mark = looks
    found = rows.filter(pl.col(metric).is_not_null())
    points = (
        found.group_by(ticks.column, maintain_order=True)
        .agg(
            pl.col(metric).cast(pl.Float64).mean().alias("mean"),
            pl.col(metric).cast(pl.Float64).min().alias("least"),
            pl.col(metric).cast(pl.Float64).max().alias("most"),
            (~pl.col("verdict").str.split(":").list.first().is_in(GOOD)).any().alias("bad"),
        )
        .rows()
    )
    if not points:
        return {}
    placed = sorted((ticks.place(value), *others) for value, *others in points)
    x, mean, least, most, bad = (list(column) for column in zip(*placed, strict=True))
    if least != most:
        axes.fill_between(x, least, most, color=colour, alpha=0.18, linewidth=0)
    (line,) = axes.plot(x, mean, color=colour, marker=mark, markersize=4, linewidth=1.4)
    legend: dict[str, Any] = {name: line}
    wrong = [(one, value) for one, value, is_bad in zip(x, mean, bad, strict=True) if is_bad]
    if wrong:
        axes.plot(*zip(*wrong, strict=True), "x", color=style.BLACK, markersize=8)
        legend[_BAD] = Line2D([], [], marker="x", color=style.BLACK, linestyle="none")
    return legend


def _scale(axes: Axes, ticks: _Ticks, metric: str, values: pl.Series) -> None:
    """Set both scales, which all facets share."""
    ticks.put_on(axes)
    text = metric_text(metric)
    found = values.drop_nulls().cast(pl.Float64)
    least, most = float(found.min()), float(found.max())  # type: ignore[arg-type]  # there are some
    if least > 0 and most >= _DECADE * least:
        axes.set_yscale("log")
        digits = (1.0,) if most >= 1000 * least else (1.0, 2.0, 5.0)
        axes.yaxis.set_major_locator(LogLocator(subs=digits, numticks=_TICKS_MAX))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_ylim(bottom=0 if least >= 0 else None)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
