"""The figure of the time to accuracy: scores against simulated time, and what the answer takes from them."""

from __future__ import annotations

from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from netfold.sim.report import style, words
from netfold.sim.report.answer import SCORE_AT_TIME, Entry, Group, groups_in
from netfold.sim.report.marks import mark, mark_points
from netfold.sim.report.over_time import is_far, time_axis
from netfold.sim.report.training_curves import TASKS_MAX, line_style, scale_scores
from netfold.sim.results.folder import RunFolder
from netfold.sim.results.metrics import has_target

_TARGET_TIME = "time_to_target_us"
_NAME_INCHES = 0.24
_MARKS_COUNT = 6  # of a line
_Looks = dict[str, dict[str, Any]]


def scores_over_time(run: RunFolder) -> Figure | None:
    """A row for each group that is tested: scores over time, and the times to the target or the scores then.

    None unless some variant was tested twice.
    """
    groups = [
        group
        for group in groups_in(run.summary)
        if any(len(variant.get("scores", ())) > 1 for variant in group.members)
    ][:TASKS_MAX]
    if not groups:
        return None
    names = list(dict.fromkeys(entry["name"].partition("/")[0] for entry in run.summary["variants"]))
    looks = {name: line_style(names.index(name), len(names)) for name in names}
    heights = [max(2.0, _NAME_INCHES * len(group.members)) for group in groups]
    if style.is_narrow():
        figure = style.new_figure(2 * sum(heights) + 1.0 * len(groups))
        panels = figure.subplots(2 * len(groups), 1).reshape(-1, 2)
    else:
        figure = style.new_figure(sum(heights) + 0.7 * len(groups))
        panels = figure.subplots(
            *(len(groups), 2), squeeze=False, width_ratios=(3, 2), gridspec_kw={"height_ratios": heights}
        )
    for group, (scores, answers) in zip(groups, panels, strict=True):
        _draw_scores(scores, group, looks)
        _draw_answers(answers, group, looks)
    return figure


def _look(variant: Entry, looks: _Looks) -> dict[str, Any]:
    return looks[variant["name"].partition("/")[0]]


def _draw_scores(axes: Axes, group: Group, looks: _Looks) -> None:
    """Lines of scores, shades between the seeds, and a ring where a variant reaches its target."""
    shown: list[float] = []
    ends_us: list[float] = []
    for variant in group.members:
        tests, look = variant.get("scores", ()), _look(variant, looks)
        if not tests:
            continue
        points = [(test["time_us"], test["score"]) for test in tests]
        axes.plot(*zip(*points, strict=True), **look, markevery=-(-len(points) // _MARKS_COUNT))
        rows = [{"variant": variant["name"], "time_us": at, "score": score} for at, score in points]
        mark_points(axes, points, rows, len(group.members))
        if any(test.get("range") for test in tests):
            lows, highs = zip(*(test.get("range") or 2 * [test["score"]] for test in tests), strict=True)
            times_us = [at for at, _ in points]
            axes.fill_between(times_us, lows, highs, color=look["color"], alpha=0.15, linewidth=0)
        shown += [score for _, score in points]
        ends_us.append(points[-1][0])
        target, time_us = variant["metrics"].get("target"), variant["metrics"].get(_TARGET_TIME)
        if target is not None:
            shown.append(target)
            axes.axhline(target, color=style.BLACK, linewidth=0.8, linestyle=":")
        if target is not None and time_us is not None:
            ring: dict[str, Any] = {"marker": "o", "markersize": 9, "markerfacecolor": "none"}
            axes.plot(time_us, target, **ring, color=look["color"], linestyle="")
    if group.question is SCORE_AT_TIME:
        axes.axvline(group.first_to_end[0], color=style.BLACK, linewidth=0.8, linestyle=":")
    metric = group.score_metric.name
    axes.set_title(f"{group.label}: {metric}" if group.label else f"{metric} on held-out data")
    axes.grid(color=style.LIGHT_GREY, linewidth=0.6)
    first_us = min(variant["scores"][0]["time_us"] for variant in group.members if variant.get("scores"))
    time_axis(axes, "simulated time", (first_us, max(ends_us)), is_far(ends_us))
    scale_scores(axes, metric, shown)


class _Dot(NamedTuple):
    variant: Entry
    value: float | None
    span: tuple[float, float] | None


def _draw_answers(axes: Axes, group: Group, looks: _Looks) -> None:
    """The times to the target, or the scores when the first variant ends, with their spread; best first."""
    is_score = group.question is SCORE_AT_TIME
    if is_score:
        dots = [_Dot(variant, group.value(variant), group.span(variant)) for variant in group.members]
        title, missing = (
            f"{group.score_metric.name} after {words.time(group.first_to_end[0])}",
            "not tested by then",
        )
    else:
        dots = [
            _Dot(variant, variant["metrics"][_TARGET_TIME], variant.get("spread", {}).get(_TARGET_TIME))
            for variant in group.members
            if has_target(variant["metrics"])
        ]
        title, missing = "time to the target", "missed"
    sign = -1 if is_score and group.more_is_better else 1
    dots.sort(key=lambda dot: (dot.value is None, sign * (dot.value or 0.0)))
    style.bars_axes(axes, [group.name(dot.variant) for dot in dots], title)
    ends: list[float] = []
    for row, (variant, value, span) in enumerate(dots):
        colour, shape = _look(variant, looks)["color"], _look(variant, looks)["marker"]
        if value is None:
            across = axes.get_yaxis_transform()
            axes.plot(0.03, row, color=colour, marker=shape, markersize=7, transform=across)
            axes.text(0.07, row, missing, transform=across, va="center")
            continue
        ends += span or (value, value)
        axes.plot(span or (value, value), (row, row), color=colour, linewidth=2.5, alpha=0.5)
        (dot,) = axes.plot(value, row, color=colour, marker=shape, markersize=7)
        mark(dot, {"variant": variant["name"], "score" if is_score else _TARGET_TIME: value})
        style.beside(axes, row, group.shown(value) if is_score else words.time(value))
    if is_score:
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(lambda value, _: group.shown(value))
    elif ends:
        time_axis(axes, "", (min(ends), 1.05 * max(ends)), is_far(ends))
    else:
        axes.set_xticks([])
