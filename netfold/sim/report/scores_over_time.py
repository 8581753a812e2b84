"""The figure of the time to accuracy: scores against simulated time, and what the answer takes from them."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from netfold.sim.report import style, words
from netfold.sim.report.answer import SCORE_AT_TIME, TIME_TO_TARGET, Group, groups_in
from netfold.sim.report.hover_text import mark
from netfold.sim.report.over_time import is_far, time_axis
from netfold.sim.report.training_curves import (
    TASKS_MAX,
    TIME,
    Looks,
    Row,
    draw_panel,
    looks_of,
    scale_up,
)
from netfold.sim.results.folder import RunFolder
from netfold.sim.results.summary import GOOD, kind

_TARGET_TIME = "time_to_target_us"
_NAME_INCHES = 0.24


def scores_over_time(run: RunFolder) -> Figure | None:
    """A row for each group that is tested: scores over time, and the times to the target or the scores then.

    None unless the variants of some group have a target, or were tested twice.
    """
    groups = [replace(group, asked=None) for group in groups_in(run.summary)]
    groups = [
        group
        for group in groups
        if group.question in (TIME_TO_TARGET, SCORE_AT_TIME)
        and any(variant.get("scores") for variant in group.members)
    ][:TASKS_MAX]
    if not groups:
        return None
    columns_count = 1 if style.is_narrow() else 2
    height = max(2.0, _NAME_INCHES * max(len(group.members) for group in groups)) + 0.7
    figure = style.new_figure(height * len(groups) * 2 / columns_count)
    panels = figure.subplots(2 * len(groups) // columns_count, columns_count, squeeze=False).reshape(-1, 2)
    for group, (scores, answers) in zip(groups, panels, strict=True):
        _draw_scores(scores, group, looks_of(run))
        _draw_answers(answers, group, looks_of(run))
    return figure


def _draw_scores(axes: Axes, group: Group, looks: Looks) -> None:
    """Lines of scores, shades between the seeds, and a ring where a variant reaches its target."""
    tests = [
        {
            "variant": variant["name"],
            "step": test["steps"],
            "time_us": test["time_us"],
            "test_score": test["score"],
        }
        for variant in group.members
        for test in variant.get("scores", ())
    ]
    targets = {variant["metrics"].get("target") for variant in group.members} - {None}
    metric = group.score_metric.name
    row = Row(
        metric, "test_score", pl.DataFrame(tests), is_last=True, metric=metric, targets=tuple(sorted(targets))
    )
    draw_panel(axes, row, TIME, looks)
    scale_up(axes, row)
    axes.set_title(f"{group.label}: {metric}" if group.label else f"{metric} on held-out data")
    axes.set_xlabel(TIME.label)
    for variant in group.members:
        scores, colour = variant.get("scores", ()), looks[variant["name"].partition("/")[0]]["color"]
        if any(test.get("range") for test in scores):
            lows, highs = zip(*(test.get("range") or 2 * [test["score"]] for test in scores), strict=True)
            axes.fill_between(
                [test["time_us"] for test in scores], lows, highs, color=colour, alpha=0.15, linewidth=0
            )
        if variant["metrics"].get(_TARGET_TIME) is not None:
            reached = variant["metrics"][_TARGET_TIME], variant["metrics"]["target"]
            axes.plot(*reached, marker="o", markersize=9, markerfacecolor="none", color=colour, linestyle="")
    if group.question is SCORE_AT_TIME:
        axes.axvline(group.first_to_end[0], color=style.BLACK, linewidth=0.8, linestyle=":")


def _draw_answers(axes: Axes, group: Group, looks: Looks) -> None:
    """The times to the target, or the scores when the first variant ends, with their spread; best first."""
    is_score = group.question is SCORE_AT_TIME
    variants = [*group.ranked, *(variant for variant in group.members if variant not in group.ranked)]
    by_then = f"{group.score_metric.name} after {words.time(group.first_to_end[0])}"
    style.bars_axes(
        axes, [group.name(variant) for variant in variants], by_then if is_score else group.question.by
    )
    ends: list[float] = []
    for row, variant in enumerate(variants):
        look = looks[variant["name"].partition("/")[0]] | {"markersize": 7, "linewidth": 2.5}
        value, verdict = group.value(variant), variant["verdict"]
        if value is None:
            across = axes.get_yaxis_transform()
            axes.plot(0.03, row, **look, transform=across)
            why = verdict if kind(verdict) not in GOOD else "not tested by then" if is_score else "missed"
            axes.text(0.07, row, why, transform=across, va="center")
            continue
        span = group.span(variant) or (value, value)
        ends += span
        axes.plot(span, (row, row), color=look["color"], linewidth=2.5, alpha=0.5)
        (dot,) = axes.plot(value, row, **look)
        mark(dot, {"variant": variant["name"], group.score_metric.name if is_score else _TARGET_TIME: value})
        style.beside(axes, row, group.shown(value))
    if ends and not is_score:
        time_axis(axes, "", (min(ends), 1.05 * max(ends)), is_far(ends))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(lambda value, _: group.shown(value))
