"""Figures over simulated time: the network, how long messages took, and scores with the time to accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from netfold.sim.report import style, words
from netfold.sim.report.answer import (
    SCORE_AT_TIME,
    TIME_TO_TARGET,
    Entry,
    Group,
    answered_in,
    groups_in,
    listed,
)
from netfold.sim.report.hover_text import mark, mark_points
from netfold.sim.report.training_curves import (
    TASKS_MAX,
    TIME,
    Looks,
    Row,
    draw_panel,
    looks_of,
    plain_ticks,
    scale_up,
)
from netfold.sim.results.folder import RunFolder
from netfold.sim.results.summary import GOOD, kind
from netfold.sim.results.time_series import LINK_BUSY, QUANTITIES, QUEUE
from netfold.units import PS_PER_US

VARIANTS_MAX = 10
_ROW_INCHES = 1.25
_SHARES = (0.01, *(at / 20 for at in range(1, 20)), 0.99, 1.0)
"""The shares of messages at which the distribution of their times is drawn."""
_FAR = 10.0  # ratio of times that need a logarithmic axis
_SPREAD_MIN = 1.05  # of the longest time over the shortest


def over_time(run: RunFolder) -> Figure | None:
    """A row for each quantity, a line for each of the most telling variants; None if none is recorded."""
    looks = _looks(run)
    series = run.series.filter(pl.col("variant").is_in(list(looks)))
    if series.is_empty():
        return None
    busiest = series.filter(quantity=LINK_BUSY).group_by("variant", maintain_order=True)
    first_links = busiest.agg(pl.col("where").first())
    series = series.filter(pl.col("quantity") != LINK_BUSY).vstack(
        series.join(first_links, on=["variant", "where"], how="semi", maintain_order="left")
    )
    shown = [
        name
        for name in QUANTITIES
        if not series.filter((pl.col("quantity") == name) & (pl.col("value") > 0)).is_empty()
    ]
    start_ps = pl.col("start_ps") - pl.col("start_ps").min().over("variant")
    middle = (start_ps + (pl.col("end_ps") - pl.col("start_ps")) // 2) / PS_PER_US
    series = series.with_columns(middle.alias("time_us"))
    figure = style.new_figure(0.9 + _ROW_INCHES * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, quantity in zip(panels, shown, strict=True):
        for variant, look in looks.items():
            rows = series.filter(quantity=quantity, variant=variant)
            _draw_series(axes, quantity, rows, look, len(looks))
        axes.set_title(_title(quantity))
        axes.grid(color=style.LIGHT_GREY, linewidth=0.6)
        axes.set_ylim(bottom=0)
    ends_us = series.group_by("variant").agg(pl.col("time_us").max())["time_us"].to_list()
    first_us = float(series["time_us"].min())  # type: ignore[arg-type]  # there are some
    time_axis(panels[-1], "since the network was first used", (first_us, max(ends_us)), is_far(ends_us))
    _legend(figure, looks, series["variant"])
    return figure


def _title(quantity: str) -> str:
    if quantity == LINK_BUSY:
        return "the busiest link, % of the time busy"
    return "the longest queue, µs on the wire" if quantity == QUEUE else quantity


def _draw_series(
    axes: Axes, quantity: str, rows: pl.DataFrame, look: dict[str, Any], lines_count: int
) -> None:
    factor = 100.0 if quantity == LINK_BUSY else 1.0
    times, values = rows["time_us"].to_list(), [factor * value for value in rows["value"]]
    axes.plot(times, values, **{**look, "marker": ""})
    name = {LINK_BUSY: "busy_share", QUEUE: "queue_us"}.get(quantity, quantity.replace(" ", "_"))
    mark_points(
        axes,
        list(zip(times, values, strict=True)),
        [
            {"variant": variant, "link": where, "time_us": time_us, name: value}
            for variant, where, time_us, value in rows.select("variant", "where", "time_us", "value").rows()
        ],
        lines_count,
    )


def message_times(run: RunFolder) -> Figure | None:
    """The distribution of the times of messages, a line for each of the most telling variants.

    None if the messages of each variant took about equally long, or there are few.
    """
    times = (
        run.phases.filter((pl.col("phase") == "network") & (pl.col("end_ps") > pl.col("start_ps")))
        .with_columns(((pl.col("end_ps") - pl.col("start_ps")) / PS_PER_US).alias("time_us"))
        .with_columns(pl.col("variant").str.split("/").list.first().alias("line"))
    )
    sorted_times = {
        str(line): sorted(rows["time_us"].to_list())
        for (line,), rows in times.group_by("line", maintain_order=True)
    }
    looks = _looks(run)
    lines = {
        line: of_line
        for line, of_line in sorted_times.items()
        if line in looks and len(of_line) >= len(_SHARES) and of_line[-1] > _SPREAD_MIN * of_line[0]
    }
    if not lines:
        return None
    figure = style.new_figure(2.9)
    axes = figure.add_subplot(ylabel="% of the messages")
    axes.set_title("How long messages took")
    for line, of_line in lines.items():
        points = [(of_line[max(0, round(share * len(of_line)) - 1)], 100 * share) for share in _SHARES]
        axes.plot(*zip(*points, strict=True), drawstyle="steps-post", **{**looks[line], "marker": ""})
        rows = [{"variant": line, "messages_share": share / 100, "time_us": time} for time, share in points]
        mark_points(axes, points, rows)
    ends = min(of_line[0] for of_line in lines.values()), max(of_line[-1] for of_line in lines.values())
    axes.set_ylim(0, 102)
    axes.grid(color=style.LIGHT_GREY, linewidth=0.6)
    time_axis(axes, "from the start of a message to its arrival", ends, is_far(ends))
    _legend(figure, looks, pl.Series(list(lines)))
    return figure


def _looks(run: RunFolder) -> Looks:
    """The style of each variant that is drawn, as in every figure."""
    looks = looks_of(run)
    return {name: looks[name] for name in telling(run.summary, VARIANTS_MAX)}


def telling(summary: Mapping[str, Any], count: int) -> list[str]:
    """At most so many variants, without their jobs, that say most of a run; by name, in its order.

    The winner of each group, the next, and the baseline; then, one after the other, what has no time, as it
    is stalled, or has that which is farthest from those of all that are chosen.
    """
    names = list(dict.fromkeys(map(_network, summary["variants"])))
    groups = answered_in(summary)
    leaders = [entry for rank in range(2) for group in groups for entry in group.ranked[rank : rank + 1]]
    leaders += [group.baseline for group in groups if group.baseline is not None]
    chosen = list(dict.fromkeys(map(_network, leaders)))[:count]
    paces = [
        {_network(entry): math.log(pace) for entry in group.members if (pace := group.pace(entry))}
        for group in groups
    ]

    def distance(name: str) -> float:
        return max(
            (
                min((abs(known[name] - known[other]) for other in chosen if other in known), default=0.0)
                for known in paces
                if name in known
            ),
            default=math.inf,
        )

    while len(chosen) < min(count, len(names)):
        chosen.append(max((name for name in names if name not in chosen), key=distance))
    return [name for name in names if name in chosen]


def _network(variant: Entry) -> str:
    return str(variant["name"]).partition("/")[0]


def not_drawn(run: RunFolder) -> str:
    """Which variants the figures of this file leave out, and why; empty if none."""
    names = [name for name in looks_of(run) if name not in _looks(run)]
    drawn = " Drawn are the first two, the baseline and those whose times differ most; not "
    return f"{drawn}{listed(names)}." if names else ""


def is_far(times_us: Sequence[float]) -> bool:
    return max(times_us) > _FAR * min(times_us)


def time_axis(axes: Axes, label: str, ends_us: tuple[float, float], is_logarithmic: bool) -> None:
    if is_logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(0.95 * ends_us[0], 1.05 * ends_us[1])
        plain_ticks(axes.xaxis, ends_us)
    else:
        axes.set_xlim(0, 1.02 * ends_us[1])
        axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: words.time(value) if value > 0 else "0"))
    axes.set_xlabel(label)


def _legend(figure: Figure, looks: Looks, names: pl.Series) -> None:
    shown = [name for name in looks if name in {*names.to_list()}]
    style.legend_below(figure, [Line2D([], [], **{**looks[name], "marker": ""}) for name in shown], shown)


# The time to accuracy: scores against simulated time, and what the answer takes from them.


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
