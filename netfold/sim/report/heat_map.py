"""A grid of variants as a heat map: rows for what is given, columns for what is compared."""

from __future__ import annotations

import math

from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from netfold.sim.report import style, words
from netfold.sim.report.answer import Group, answered_in, place
from netfold.sim.results.folder import RunFolder

_COLOURS = "cividis_r"  # for colour-blind readers, and readable in grey
_DARK_FROM = 0.55
"""The share of the scale from which a cell is dark, and its text white."""


def heat_map(run: RunFolder) -> Figure | None:
    """The answer of a run whose variants are a grid of two keys or more; None if they are none."""
    groups = answered_in(run.summary)
    if len(groups) != 1 or len(groups[0].axes) < 2:
        return None
    (group,) = groups
    *conditions, compared = group.axes
    places = [place(variant) for variant in group.members]
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*places, strict=True))
    values = [[math.nan] * len(columns) for _ in rows]
    for variant, (row, column) in zip(group.members, places, strict=True):
        value = group.value(variant)
        values[rows.index(row)][columns.index(column)] = math.nan if value is None else value
    return _drawn(group, (" × ".join(conditions), rows), (compared, columns), values)


def _drawn(
    group: Group, rows: tuple[str, list[str]], columns: tuple[str, list[str]], values: list[list[float]]
) -> Figure:
    (row_key, row_names), (column_key, column_names) = rows, columns
    known = [value for line in values for value in line if value > 0]
    scale = LogNorm(min(known, default=1.0), max(known, default=10.0))
    figure = style.new_figure(1.0 + 0.34 * len(row_names))
    axes = figure.add_subplot(xlabel=column_key, ylabel=row_key)
    axes.set_title(f"{group.question.by[:1].upper()}{group.question.by[1:]}: the best of each row is framed")
    axes.imshow(values, cmap=_COLOURS, norm=scale, aspect="auto")
    axes.set_xticks(range(len(column_names)), column_names)
    axes.set_yticks(range(len(row_names)), row_names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    best_of = max if group.more_is_better else min
    for row, line in enumerate(values):
        best = best_of((value for value in line if not math.isnan(value)), default=math.nan)
        for column, value in enumerate(line):
            text = words.NOTHING if math.isnan(value) else group.shown(value)
            dark = value > 0 and float(scale(value)) >= _DARK_FROM
            box = {"boxstyle": "square,pad=0.3", "facecolor": "none", "edgecolor": style.VERMILION}
            axes.text(
                *(column, row, text),
                ha="center",
                va="center",
                color="white" if dark else style.BLACK,
                weight="bold" if value == best else "normal",
                bbox=box if value == best else None,
            )
    return figure
