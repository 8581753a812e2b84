"""The time line of jobs that come and go: when each waited and ran, a panel per variant, one clock."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from netfold.sim.report import style, words
from netfold.sim.report.jobs.lines import fairness
from netfold.sim.results.folder import Run
from netfold.sim.results.summary import GOOD, kind

ROWS_MAX = 60  # jobs of a variant
_ROW_INCHES = 0.17
_NAMES_MAX = 30  # rows of a panel that are named one by one


def job_chart(run: Run) -> Figure | None:
    """Bars by job in the order of arrival; None if no variant has jobs that come and go."""
    overviews = run.summary.get("jobs", [])
    panels = [(one, _jobs(run, one["variant"])) for one in overviews]
    times = [_last_us(job) for _, jobs in panels for job in jobs]
    if not any(times):
        return None
    span_us = 1.02 * max(times)
    factor_us, unit = words.time_unit(span_us)
    heights = [max(3, len(jobs)) * _ROW_INCHES for _, jobs in panels]
    figure = style.new_figure(1.1 + sum(heights) + 0.45 * len(panels))
    grid = figure.subplots(
        len(panels), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    for axes, (one, jobs) in zip(grid, panels, strict=True):
        for row, job in enumerate(jobs):
            _draw(axes, row, job, factor_us, span_us)
        shown = "" if len(jobs) == one["jobs"] else f", the first {len(jobs)} of {one['jobs']}"
        axes.set_title(f"{one['variant']} · {fairness(one)}{shown}", fontsize=9.5, pad=4)
        names = [job["name"].partition("/")[2] or job["name"] for job in jobs]
        step = -(-len(jobs) // _NAMES_MAX)
        axes.set_yticks(range(0, len(jobs), step), names[::step])
        axes.set_ylim(len(jobs) - 0.4, -0.6)
        axes.set_xlim(0, span_us / factor_us)
    grid[-1].set_xlabel(unit)
    figure.suptitle("When each job waited and ran", x=0.01, ha="left", size=11, weight="bold")
    shown_names = {"waits": style.ORANGE, "runs": style.BLUE, "runs with its fallback": style.SKY}
    if not any(job["stay"]["fallback"] for _, jobs in panels for job in jobs):
        del shown_names["runs with its fallback"]
    if any(kind(job["verdict"]) not in GOOD for _, jobs in panels for job in jobs):
        shown_names["a check failed, or it is stuck"] = style.VERMILION
    style.legend_below(figure, [Patch(color=colour) for colour in shown_names.values()], list(shown_names))
    return figure


def _jobs(run: Run, variant: str) -> list[dict[str, Any]]:
    """The first jobs of a variant, in the order of arrival."""
    found = [
        one
        for one in run.summary["variants"]
        if one.get("stay") is not None and one["name"].partition("/")[0] == variant
    ]
    return sorted(found, key=lambda job: job["metrics"]["arrival_us"])[:ROWS_MAX]


def _last_us(job: dict[str, Any]) -> float:
    stay = job["stay"]
    return float(max(job["metrics"]["arrival_us"], stay["admitted_us"] or 0.0, stay["end_us"] or 0.0))


def _draw(axes: Any, row: int, job: dict[str, Any], factor_us: float, span_us: float) -> None:
    """A job's bars; one that did not end goes on to the edge."""
    arrival_us, stay = job["metrics"]["arrival_us"], job["stay"]
    admitted_us = span_us if stay["admitted_us"] is None else stay["admitted_us"]
    end_us = span_us if stay["end_us"] is None else stay["end_us"]
    colour = style.SKY if stay["fallback"] else style.BLUE
    colour = colour if kind(job["verdict"]) in GOOD else style.VERMILION
    for start_us, until_us, what in (
        (arrival_us, admitted_us, style.ORANGE),
        (admitted_us, end_us, colour),
    ):
        if until_us > start_us:
            axes.barh(
                row, (until_us - start_us) / factor_us, left=start_us / factor_us, height=0.7, color=what
            )
