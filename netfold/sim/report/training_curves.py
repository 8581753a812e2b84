"""The figure of training: loss and held-out score against steps, bytes and simulated time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import polars as pl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from netfold.sim.report import style, words
from netfold.sim.report.hover_text import mark_points
from netfold.sim.report.words import format_value
from netfold.sim.results.folder import RunFolder
from netfold.sim.workload.training_keys import metric_named
from netfold.units import PS_PER_US

_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_MARKS = "os^Dv"
_MARKS_COUNT = 5
_THIN, _BROADER = 1.1, 1.5  # line width in points, and how much broader the first line is
TASKS_MAX = 10  # jobs whose training is drawn
_ROW_INCHES = 1.95
_SMOOTHED_SHARE = 25  # a loss is the mean over so great a part of the steps
_FAR = 4.0  # ratio of values that need a logarithmic axis
_DECADES_CLOSE = 1.7
"""A logarithmic axis of fewer decades has more on it than powers of ten."""
_OFF = 1.3  # times the greatest first loss: what is higher is off the figure


class Row(NamedTuple):
    """Panels of one quantity of one task."""

    title: str
    column: str  # loss or test_score
    curves: pl.DataFrame  # the task's, all steps
    is_last: bool
    metric: str = ""
    """The metric of the score, where the row shows one."""
    targets: tuple[float, ...] = ()  # scores to reach


_Line = tuple[pl.Series, pl.Series]  # across and up
Looks = dict[str, dict[str, Any]]
"""Styles by variant."""


def _bytes_text(value: float) -> str:
    factor, prefix = words.prefix(value)
    return f"{value / factor:g} {prefix}B"


def _time_text(value_us: float) -> str:
    factor, unit = words.time_unit(value_us)
    return f"{value_us / factor:g} {unit}"


class _Axis(NamedTuple):
    """What a column of panels is drawn against."""

    label: str
    before: str  # column of `curves`, where a step's loss belongs
    after: str
    """Column of `curves`, where the test that follows the step belongs."""
    text: Callable[[float], str]
    """Writes a value of the axis."""


_STEPS = _Axis("steps", "step", "steps", lambda value: f"{value:.0f}")
TIME = _Axis("simulated time", "time_before_us", "time_us", _time_text)
_AXES = (
    _STEPS,
    _Axis("sent and received by a worker", "bytes_before", "bytes", _bytes_text),
    TIME,
)


def curves(run: RunFolder) -> pl.DataFrame:
    """One row per step of every variant and job that is trained, with totals since its first step.

    `steps`, `bytes` and `time_us` count up to the end of the step, `bytes_before` and `time_before_us` up to
    its beginning. Bytes are those on the wire, up and down, mean over workers. A `loss` belongs to the
    beginning of its step, a `test_score` to its end.
    """
    workers = {entry["name"]: entry["metrics"]["workers"] for entry in run.summary["variants"]}
    wire_bytes = run.rounds.group_by("variant", "step").agg(
        (pl.col("wire_bytes_up") + pl.col("wire_bytes_down")).sum().alias("wire_bytes")
    )
    start_ps = pl.col("start_ps").first().over("variant")
    of_step = pl.col("wire_bytes") / pl.col("variant").replace_strict(workers, return_dtype=pl.Int64)
    return (
        run.steps.filter(pl.col("loss").is_not_null())
        .join(wire_bytes, on=["variant", "step"], how="left", maintain_order="left")
        .with_columns(of_step.cum_sum().over("variant").alias("bytes"))
        .select(
            "variant",
            "step",
            "loss",
            "test_metric",
            "test_score",
            (pl.col("step") + 1).alias("steps"),
            "bytes",
            (pl.col("bytes") - of_step).alias("bytes_before"),
            ((pl.col("end_ps") - start_ps) / PS_PER_US).alias("time_us"),
            ((pl.col("start_ps") - start_ps) / PS_PER_US).alias("time_before_us"),
        )
    )


def learning(run: RunFolder) -> Figure | None:
    """Lines of all variants: a row per task and quantity, against steps, bytes and simulated time.

    None if no variant was trained for at least two steps.
    """
    points = curves(run)
    if points["step"].n_unique() < 2:
        return None
    rows = _rows(run, points)
    everyone = looks_of(run)
    trained = {*map(_line, points["variant"].to_list())}
    figure = style.new_figure(0.75 + _ROW_INCHES * len(rows) * (len(_AXES) if style.is_narrow() else 1))
    grid = _panels(figure, len(rows))
    for row, panels in zip(rows, grid, strict=True):
        for axis, axes in zip(_AXES, panels, strict=True):
            draw_panel(axes, row, axis, everyone)
            if row.is_last or style.is_narrow():
                axes.set_xlabel(axis.label)
        panels[0].set_title(row.title)
        for axes in panels if style.is_narrow() else panels[:1]:
            scale_up(axes, row)
    names = [name for name in everyone if name in trained]
    style.legend_below(figure, [Line2D([], [], **everyone[name]) for name in names], names)
    return figure


def looks_of(run: RunFolder) -> Looks:
    """The style of the line of each variant, by its name without a job, in every figure.

    Lines of variants that agree coincide: broad lines go below thin dashed ones.
    """
    names = list(dict.fromkeys(_line(entry["name"]) for entry in run.summary["variants"]))
    cycles = zip(itertools.cycle(style.VARIANT_COLOURS), itertools.cycle(_DASHES), itertools.cycle(_MARKS))
    return {
        name: {
            **{"color": colour, "linestyle": dashes, "marker": mark, "markersize": 4},
            "linewidth": _THIN + _BROADER * (len(names) - number) / max(1, len(names) - 1),
        }
        for number, (name, (colour, dashes, mark)) in enumerate(zip(names, cycles, strict=False), start=1)
    }


def draw_panel(axes: Axes, row: Row, axis: _Axis, looks: Looks) -> None:
    """Draw the lines of a row against one axis, its targets, and what is read off under the pointer."""
    _draw(axes, {label: _points(row, axis, label) for label in _labels(row)}, looks)
    for label in _labels(row):
        _mark(axes, row, axis, label)
    for target in row.targets:
        axes.axhline(target, color=style.BLACK, linewidth=0.8, linestyle=":")
    axes.grid(color=style.LIGHT_GREY, linewidth=0.6)
    _scale_across(axes, row, axis)


def _panels(figure: Figure, rows_count: int) -> Any:
    """Axes by row of the figure: beside each other, or below where it is narrow."""
    if style.is_narrow():
        return figure.subplots(rows_count * len(_AXES), squeeze=False).reshape(rows_count, len(_AXES))
    return figure.subplots(rows_count, len(_AXES), sharey="row", squeeze=False)


def _rows(run: RunFolder, steps: pl.DataFrame) -> list[Row]:
    """Rows of the figure: of each task its loss, and its score if it was tested."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for entry in run.summary["variants"]:
        points = steps.filter(variant=entry["name"])
        if not points.is_empty():
            job = entry["name"].partition("/")[2]
            tasks.setdefault((job, _task(entry)), []).append(entry["name"])
    rows: list[Row] = []
    for (job, task), labels in list(tasks.items())[:TASKS_MAX]:
        points = steps.filter(pl.col("variant").is_in(labels))
        is_only = [task_name for _, task_name in tasks].count(task) == 1
        name = task if task and is_only else ", ".join(part for part in (job, task) if part)
        which = f"{name}: " if len(tasks) > 1 else ""
        if not rows and len(tasks) > TASKS_MAX:
            which = f"The first {TASKS_MAX} of {len(tasks)} jobs. {which}"
        smoothed = _smoothed_steps(points)
        mean = f", mean of {smoothed} steps" if smoothed > 1 else ""
        metrics = points["test_metric"].drop_nulls()
        rows.append(Row(f"{which}training loss{mean}", "loss", points, metrics.is_empty()))
        if not metrics.is_empty():
            title = f"{which}{metrics[0]} on held-out data"
            rows.append(Row(title, "test_score", points, True, metrics[0], _targets(run, labels)))
    return rows


def _targets(run: RunFolder, labels: list[str]) -> tuple[float, ...]:
    """The scores that some of these variants are to reach, each once."""
    targets = (entry["metrics"].get("target") for entry in run.summary["variants"] if entry["name"] in labels)
    return tuple(sorted({target for target in targets if target is not None}))


def _task(entry: dict[str, Any]) -> str:
    """What is trained on what, as a scenario says it."""
    workload = entry.get("setup", {}).get("workload", {})
    return " on ".join(format_value(workload[key]) for key in ("model", "data") if key in workload)


def _draw(axes: Axes, lines: dict[str, _Line], looks: Looks) -> None:
    """Draw the lines of a panel, by label."""
    for label, (across, up) in lines.items():
        distance = max(1, len(across) // _MARKS_COUNT)
        first = list(looks).index(_line(label)) * distance // len(looks)  # no two marks coincide
        axes.plot(across, up, markevery=(first, distance), **looks[_line(label)])


def _mark(axes: Axes, row: Row, axis: _Axis, label: str) -> None:
    across, up = _points(row, axis, label)
    points = [(x, y) for x, y in zip(across, up, strict=True) if math.isfinite(y)]
    column = axis.after if row.column == "test_score" else axis.before
    marks = [{"variant": label, row.metric or "loss": y, column: x} for x, y in points]
    mark_points(axes, points, marks, len(_labels(row)))


def _labels(row: Row) -> list[str]:
    labels: list[str] = row.curves["variant"].unique(maintain_order=True).to_list()
    return labels


def _points(row: Row, axis: _Axis, label: str) -> _Line:
    """Where a line goes: a loss lies at the beginning of its step, a score at its end."""
    points = row.curves.filter(variant=label)
    if row.column == "test_score":
        points = points.filter(pl.col("test_score").is_not_null())
        return points[axis.after], points["test_score"]
    smoothed = _smoothed_steps(row.curves)
    return points[axis.before], points["loss"].rolling_mean(smoothed, min_samples=1)


def _smoothed_steps(steps: pl.DataFrame) -> int:
    return max(1, steps["step"].n_unique() // _SMOOTHED_SHARE)


def _scale_across(axes: Axes, row: Row, axis: _Axis) -> None:
    """Scale the level axis of a panel, alike in all rows of a task: logarithmic if lines end far apart."""
    ends = row.curves.group_by("variant").agg(pl.col(axis.after).max())[axis.after].to_list()
    if axis is not _STEPS and _is_far(ends):
        first = row.curves.filter(step=row.curves["step"].min())[axis.after]
        axes.set_xscale("log", nonpositive="mask")
        axes.set_xlim(min((value for value in first if value > 0), default=min(ends)), 1.1 * max(ends))
        plain_ticks(axes.xaxis, axes.get_xlim())
    else:
        axes.set_xlim(0, max(1.02 * max(ends), 1e-6))
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=axis is _STEPS))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: axis.text(value)))


def scale_up(axes: Axes, row: Row) -> None:
    """Scale the upright axis of a row; losses that grow without limit leave it."""
    if row.column == "test_score":
        _scale_score(axes, row)
        return
    lines = [_points(row, _STEPS, label)[1].to_list() for label in _labels(row)]
    most = _OFF * max((line[0] for line in lines if math.isfinite(line[0])), default=0.0)
    losses = [loss for line in lines for loss in line if 0 < loss <= most]
    if not losses:
        return
    low, high = min(losses), max(losses)
    if _is_far(losses):
        axes.set_yscale("log", nonpositive="mask")
        axes.set_ylim(0.9 * low, 1.1 * high)
        plain_ticks(axes.yaxis, (low, high))
    else:
        margin = max(0.08 * (high - low), 0.001 * high)
        axes.set_ylim(low - margin, high + margin)


def _scale_score(axes: Axes, row: Row) -> None:
    """Scale the upright axis of scores: shares in percent, perplexities by their logarithm if far apart."""
    scores = row.curves["test_score"].drop_nulls().to_list()
    shown = [score for score in (*scores, *row.targets) if math.isfinite(score)]
    if not shown:
        return
    if metric_named(row.metric).is_share:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f} %"))
        margin = max(0.08 * (max(shown) - min(shown)), 0.005)
    elif _is_far(shown) and min(shown) > 0:
        axes.set_yscale("log", nonpositive="mask")
        axes.set_ylim(0.9 * min(shown), 1.1 * max(shown))
        plain_ticks(axes.yaxis, (min(shown), max(shown)))
        return
    else:
        margin = max(0.08 * (max(shown) - min(shown)), 0.005 * max(map(abs, shown)), 1e-6)
    axes.set_ylim(min(shown) - margin, max(shown) + margin)


def plain_ticks(axis: Axis, limits: tuple[float, float]) -> None:
    """Plain numbers on a logarithmic axis: 1, 2, 5, 10 …, or powers of ten, or of a thousand."""
    decades = math.log10(limits[1] / limits[0])
    subs = (1.0, 2.0, 5.0) if decades < _DECADES_CLOSE else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=6 if decades < _DECADES_CLOSE else 5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _line(label: str) -> str:
    # The legend has variants: jobs, "variant/job", have rows of their own.
    return label.partition("/")[0]


def _is_far(values: Iterable[float]) -> bool:
    """Whether positive values are too far apart for a linear axis."""
    positives = [value for value in values if value > 0]
    return bool(positives) and max(positives) > _FAR * min(positives)
