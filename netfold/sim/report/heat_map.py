"""A grid of variants as a heat map: rows for what is given, columns for what is compared."""

from __future__ import annotations

import math
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from netfold.sim.report import style, words
from netfold.sim.report.answer import GROUPS_MAX, Group, answered_in, place
from netfold.sim.report.hover_text import mark
from netfold.sim.results.folder import RunFolder

_COLOURS = "cividis_r"  # for colour-blind readers, and readable in grey
_LETTERS_INCH = 11
"""Letters of a label that fit into an inch; longer labels of columns are slanted."""
_DARK_FROM = 0.55
"""The share of the scale from which a cell is dark, and its text white."""


def heat_map(run: RunFolder) -> Figure | None:
    """The answer of a run whose variants are a grid of two keys or more; None if they are none.

    Each group has a panel.
    """
    groups = answered_in(run.summary)
    if len(groups) > GROUPS_MAX or any(len(group.axes) < 2 for group in groups):
        return None
    beside = 1 if style.is_narrow() else len(groups) if len(groups) < GROUPS_MAX else GROUPS_MAX // 2
    rows = max(len({place(group, variant)[0] for variant in group.members}) for group in groups)
    below = len(groups) // beside
    figure = style.new_figure((1.0 + 0.34 * rows) * below)
    panels = figure.subplots(below, beside, squeeze=False).ravel()
    by = groups[0].question.by
    titles = [f"{by[:1].upper()}{by[1:]}: the best of each row is framed"]
    if len(groups) > 1:
        figure.suptitle(titles[0], x=0.01, ha="left", size=11, weight="bold")
        titles = [group.label for group in groups]
    for axes, group, title in zip(panels, groups, titles, strict=True):
        axes.set_title(title)
        _draw(axes, group, beside)
    return figure


def _draw(axes: Axes, group: Group, beside: int) -> None:
    """The panel of a group, one of so many beside each other."""
    *conditions, compared = group.axes
    places = [place(group, variant) for variant in group.members]
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*places, strict=True))
    values = [[math.nan] * len(columns) for _ in rows]
    for variant, (row, column) in zip(group.members, places, strict=True):
        value = group.value(variant)
        values[rows.index(row)][columns.index(column)] = math.nan if value is None else value
    axes.set(xlabel=compared, ylabel=" × ".join(conditions))
    letters = style.width_inches() / beside * _LETTERS_INCH / len(columns)
    slanted: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(range(len(columns)), columns, **slanted if max(map(len, columns)) > letters else {})
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _fill(axes, group, values, (rows, columns))


def _fill(axes: Axes, group: Group, values: list[list[float]], names: tuple[list[str], list[str]]) -> None:
    """Colour the cells, write their values, and frame the best of each row."""
    positive = [value for line in values for value in line if value > 0]
    scale = LogNorm(min(positive, default=1.0), max(positive, default=10.0))
    colours = colormaps[_COLOURS]
    axes.set(xlim=(-0.5, len(values[0]) - 0.5), ylim=(len(values) - 0.5, -0.5))
    group_name = {"group": group.label} if group.label else {}
    best_of = max if group.more_is_better else min
    frame = {"boxstyle": "square,pad=0.3", "facecolor": "none", "edgecolor": style.VERMILION}
    for row, line in enumerate(values):
        best = best_of((value for value in line if not math.isnan(value)), default=math.nan)
        for column, value in enumerate(line):
            is_dark = value > 0 and float(scale(value)) >= _DARK_FROM
            colour = style.LIGHT_GREY if math.isnan(value) else colours(float(scale(value)))
            cell = Rectangle((column - 0.5, row - 0.5), 1, 1, color=colour, linewidth=0)
            axes.add_patch(cell)
            known = None if math.isnan(value) else value
            mark(
                cell,
                {
                    **group_name,
                    "row": names[0][row],
                    "column": names[1][column],
                    group.question.metric: known,
                },
            )
            axes.text(
                *(column, row, words.NOTHING if math.isnan(value) else group.shown(value)),
                ha="center",
                va="center",
                color=style.ON_DARK if is_dark else style.ON_LIGHT,
                weight="bold" if value == best else "normal",
                bbox=frame if value == best else None,
            )
