"""The figures of a run, each answering one question: how fast, how many bytes, when, and did it learn."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.transforms import Affine2D

from netfold.sim.report import style, words
from netfold.sim.report.answer import groups_in, times_baseline
from netfold.sim.report.columns import order_key
from netfold.sim.report.heat_map import heat_map
from netfold.sim.report.hover_text import Row, mark
from netfold.sim.report.network_drawing import utilisation
from netfold.sim.report.over_time import message_times, over_time, scores_over_time
from netfold.sim.report.ranked_bars import VariantBar, ranked_bars
from netfold.sim.report.sizes import message_sizes
from netfold.sim.report.trade_off import cost_and_time, trade_off
from netfold.sim.report.training_curves import learning
from netfold.sim.report.words import fairness
from netfold.sim.results.breakdown import RANK_SKEW
from netfold.sim.results.folder import RunFolder
from netfold.sim.results.records import NO_BUCKET
from netfold.sim.results.summary import GOOD, kind

# The time line of jobs that come and go: when each waited and ran, a panel per variant, one clock.


ROWS_MAX = 60  # jobs of a variant
_JOB_ROW_INCHES = 0.17
_NAMES_MAX = 30  # rows of a panel that are named one by one


def job_chart(run: RunFolder) -> Figure | None:
    """Bars by job in the order of arrival; None if no variant has jobs that come and go."""
    overviews = run.summary.get("jobs", [])
    panels = [(totals, _jobs(run, totals["variant"])) for totals in overviews]
    times = [_last_us(job) for _, jobs in panels for job in jobs]
    if not any(times):
        return None
    span_us = 1.02 * max(times)
    factor_us, unit = words.time_unit(span_us)
    heights = [max(3, len(jobs)) * _JOB_ROW_INCHES for _, jobs in panels]
    figure = style.new_figure(1.1 + sum(heights) + 0.45 * len(panels))
    grid = figure.subplots(
        len(panels), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )[:, 0]
    for axes, (overview, jobs) in zip(grid, panels, strict=True):
        for row, job in enumerate(jobs):
            _draw_job(axes, row, job, factor_us, span_us)
        shown = "" if len(jobs) == overview["jobs"] else f", the first {len(jobs)} of {overview['jobs']}"
        axes.set_title(f"{overview['variant']} · {fairness(overview)}{shown}", fontsize=9.5, pad=4)
        names = [job["name"].partition("/")[2] or job["name"] for job in jobs]
        step = -(-len(jobs) // _NAMES_MAX)
        axes.set_yticks(range(0, len(jobs), step), names[::step])
        axes.set_ylim(len(jobs) - 0.4, -0.6)
        axes.set_xlim(0, span_us / factor_us)
    grid[-1].set_xlabel(unit)
    figure.suptitle("When each job waited and ran", x=0.01, ha="left", size=11, weight="bold")
    waits = style.PHASE_COLOURS["wait"]
    shown_names = {"waits": waits, "runs": style.SLATE, "runs with its fallback": style.FALLBACK_SLATE}
    if not any(job["stay"]["fallback"] for _, jobs in panels for job in jobs):
        del shown_names["runs with its fallback"]
    if any(kind(job["verdict"]) not in GOOD for _, jobs in panels for job in jobs):
        shown_names["a check failed, or it is stalled"] = style.VERMILION
    style.legend_below(figure, [Patch(color=colour) for colour in shown_names.values()], list(shown_names))
    return figure


def _jobs(run: RunFolder, variant: str) -> list[dict[str, Any]]:
    """The first jobs of a variant, in the order of arrival."""
    jobs = [
        job
        for job in run.summary["variants"]
        if job.get("stay") is not None and job["name"].partition("/")[0] == variant
    ]
    return sorted(jobs, key=lambda job: job["metrics"]["arrival_us"])[:ROWS_MAX]


def _last_us(job: dict[str, Any]) -> float:
    stay = job["stay"]
    return float(max(job["metrics"]["arrival_us"], stay["admitted_us"] or 0.0, stay["end_us"] or 0.0))


def _draw_job(axes: Any, row: int, job: dict[str, Any], factor_us: float, span_us: float) -> None:
    """A job's bars; one that did not end goes on to the edge."""
    arrival_us, stay = job["metrics"]["arrival_us"], job["stay"]
    admitted_us = span_us if stay["admitted_us"] is None else stay["admitted_us"]
    end_us = span_us if stay["end_us"] is None else stay["end_us"]
    colour = style.FALLBACK_SLATE if stay["fallback"] else style.SLATE
    colour = colour if kind(job["verdict"]) in GOOD else style.VERMILION
    for part, start_us, until_us, what in (
        ("waits", arrival_us, admitted_us, style.PHASE_COLOURS["wait"]),
        ("runs", admitted_us, end_us, colour),
    ):
        if until_us > start_us:
            (bar,) = axes.barh(
                row, (until_us - start_us) / factor_us, left=start_us / factor_us, height=0.7, color=what
            )
            mark(bar, {"job": job["name"], "part": part, "start_us": start_us, "end_us": until_us})


# The time line of one step: device and network of each worker, one panel per variant on a common clock.


LANES_MAX = 8
PANELS_MAX = ROWS_MAX  # variants and jobs
_LANE_FILL = 0.84
"""The share of a lane's height that bars fill; the rest separates workers."""
_TRACK_INCHES = 0.135
_TITLE_CHARACTERS = 110
"""Characters of a panel's title at most."""
_PANEL_TITLE_INCHES, _TITLE_ABOVE_INCHES = 0.4, 0.06
"""The space above a step's lanes, and the distance of its title from them."""
_INSET_TITLE_INCHES = 0.2  # space above the lanes of a magnified step
_MAGNIFY_BELOW = 0.25
"""A step shorter than this share of the time axis is drawn a second time, magnified."""


class Bar(NamedTuple):
    """One phase of one worker; times in µs since the step began."""

    worker: int
    bucket: int
    name: str
    """The phase as the legend has it, such as "backward" or "network: values"."""
    start_us: float
    end_us: float


class Panel(NamedTuple):
    """One step of one variant; its bars are those of the workers shown."""

    variant: str
    step: int
    end_us: float
    note: str  # how many of its workers are shown; empty if all are
    bars: list[Bar]
    alike: dict[int, list[int]]
    """The workers that a lane stands for, by the one that is drawn."""


def timeline(run: RunFolder, labels: Mapping[str, str]) -> Figure | None:
    """Gantt chart of every variant's last finished step, workers as lanes; None if nothing took time.

    `labels` are the colours of the messages.
    """
    names = [variant["name"] for variant in run.summary["variants"] if variant["metrics"]["steps"]]
    panels = [_panel(run, name) for name in names[:PANELS_MAX]]
    colours = style.phase_colours((bar.name for panel in panels for bar in panel.bars), labels)
    if not colours:
        return None
    tracks = max(_tracks_max(panel.bars) for panel in panels)
    span_us = 1.01 * max(panel.end_us for panel in panels)
    factor_us, unit = words.time_unit(span_us)
    heights = [_TRACK_INCHES * max(2, tracks) * max(2, len(_workers(panel.bars))) for panel in panels]
    tall_inches = sum(heights) + _PANEL_TITLE_INCHES * len(panels)
    figure = style.new_figure(1.2 + tall_inches)
    axes = figure.add_subplot(xlabel=f"{unit} since the step began")
    axes.set(xlim=(0, span_us / factor_us), ylim=(tall_inches, 0), yticks=[])
    axes.grid(axis="x", color=style.LIGHT_GREY, linewidth=0.6)
    axes.spines["left"].set_visible(False)
    top = 0.0
    for panel, height in zip(panels, heights, strict=True):
        top += _PANEL_TITLE_INCHES
        _draw_panel(axes, panel, colours, (top, height), factor_us)
        top += height
    same = len({panel.step for panel in panels}) == 1
    more = f", in the first {len(panels)} of {len(names)}" if len(panels) < len(names) else ""
    title = f"What each worker did in {f'step {panels[0].step}' if same else 'its last step'}{more}"
    figure.suptitle(title, x=0.01, ha="left", size=11, weight="bold")
    style.legend_below(figure, [Patch(color=colour) for colour in colours.values()], list(colours))
    return figure


def _panel(run: RunFolder, variant: str) -> Panel:
    step = run.steps.filter(pl.col("variant") == variant).sort("step").row(-1, named=True)
    phases = run.phases.filter((pl.col("variant") == variant) & (pl.col("step") == step["step"]))
    workers = phases["worker"].unique().sort().to_list()
    slowest = phases.sort("end_ps", maintain_order=True)["worker"][-1] if workers else 0
    began_ps = step["start_ps"]
    alike = {
        slowest if slowest in members else members[0]: members
        for members in _alike(phases, began_ps, max(1, step["end_ps"] - began_ps))
    }
    sample = _choose(sorted(alike), slowest)
    bars = [
        Bar(
            worker=row["worker"],
            bucket=row["bucket"],
            name=words.phase_name(row),
            start_us=(row["start_ps"] - began_ps) / 1e6,
            end_us=(row["end_ps"] - began_ps) / 1e6,
        )
        for row in phases.filter(pl.col("worker").is_in(sample)).iter_rows(named=True)
        if row["end_ps"] > row["start_ps"] and row["phase"] != "wait"
    ]
    alike = {worker: alike[worker] for worker in sample}
    count = sum(map(len, alike.values()))
    note = f" ({count} of {len(workers)} workers shown)" if count < len(workers) else ""
    return Panel(variant, step["step"], (step["end_ps"] - began_ps) / 1e6, note, bars, alike)


def _alike(phases: pl.DataFrame, began_ps: int, step_ps: int) -> list[list[int]]:
    """Workers whose phases are the same, and at the same time to a hundredth of the step, in their order."""
    hundredth_ps = max(1, step_ps // 100)
    ends = [((pl.col(end) - began_ps + hundredth_ps // 2) // hundredth_ps) for end in ("start_ps", "end_ps")]
    keys = phases.select("worker", "phase", "label", "bucket", *ends)
    workers: dict[tuple[Any, ...], list[int]] = {}
    by_worker: dict[int, list[Any]] = {}
    for worker, *phase in keys.rows():
        by_worker.setdefault(worker, []).append(tuple(phase))
    for worker, rows in sorted(by_worker.items()):
        workers.setdefault(tuple(sorted(rows)), []).append(worker)
    return list(workers.values())


def _lane_name(members: list[int]) -> str:
    if len(members) == 1:
        return f"worker {members[0]}"
    if members[-1] - members[0] == len(members) - 1:
        return f"workers {members[0]}–{members[-1]}"
    return f"worker {members[0]} and {len(members) - 1} alike"


def _choose(workers: Sequence[int], slowest: int) -> list[int]:
    """At most `LANES_MAX` of the sorted workers, evenly spread; the slowest replaces its neighbour."""
    if len(workers) <= LANES_MAX:
        return list(workers)
    spread = [workers[lane * (len(workers) - 1) // (LANES_MAX - 1)] for lane in range(LANES_MAX)]
    neighbour = min(spread, key=lambda worker: abs(worker - slowest))
    return sorted({*spread} - {neighbour} | {slowest})


def _draw_panel(
    axes: Axes, panel: Panel, colours: dict[str, str], extent_inches: tuple[float, float], factor_us: float
) -> None:
    """Draw a step below a height.

    All panels are in the same axes, of which y counts inches downwards: with axes and ticks of their own they
    would take four times as long.
    """
    top, height = extent_inches
    title = f"{panel.variant} · {words.time(panel.end_us)}{panel.note}"
    title = textwrap.shorten(title, _TITLE_CHARACTERS, placeholder="…")
    across = axes.get_yaxis_transform()  # from the left end to the right end
    free = (0, top - _PANEL_TITLE_INCHES + 0.01), 1, _PANEL_TITLE_INCHES - 0.01
    axes.add_patch(Rectangle(*free, facecolor="white", transform=across, zorder=1, in_layout=False))
    axes.text(0, top - _TITLE_ABOVE_INCHES, title, transform=across, fontsize=9.5, weight="bold")
    workers = _workers(panel.bars)
    lane_inches = height / max(1, len(workers))
    to_lanes = Affine2D().scale(1, lane_inches).translate(0, top + lane_inches / 2)
    rectangles = _rectangles(panel.bars, colours, factor_us)
    mark(rectangles, *_rows_of(panel))
    rectangles.set_transform(to_lanes + axes.transData)
    axes.add_collection(rectangles, autolim=False)
    end = panel.end_us / factor_us
    axes.plot([end, end], [top, top + height], color=style.BLACK, linewidth=1)
    axes.plot(
        [0, 1], [top + height] * 2, color=style.DARK_GREY, linewidth=0.8, transform=across, clip_on=False
    )
    right = axes.get_xlim()[1]
    if 0 < end < _MAGNIFY_BELOW * right:
        _magnify(axes, panel, colours, extent_inches, right / end)
    for lane, worker in enumerate(workers):
        middle = top + lane_inches * (lane + 0.5)
        axes.text(-0.006, middle, _lane_name(panel.alike[worker]), transform=across, ha="right", va="center")


def _workers(bars: Sequence[Bar]) -> list[int]:
    return sorted({bar.worker for bar in bars})


def _placed(bars: Sequence[Bar]) -> Iterator[tuple[Bar, float, float]]:
    """The bars in the order in which they are drawn, each with its top and height; a lane is 1 high."""
    for lane, worker in enumerate(_workers(bars)):
        tracks = _tracks([bar for bar in bars if bar.worker == worker])
        height = _LANE_FILL / len(tracks)
        for number, track in enumerate(tracks):
            for bar in track:
                yield bar, lane - _LANE_FILL / 2 + height * number, height


def _rows_of(panel: Panel) -> list[Row]:
    return [
        {
            **{"variant": panel.variant, "phase": bar.name, "worker": bar.worker},
            **({"bucket": bar.bucket} if bar.bucket != NO_BUCKET else {}),
            **{"start_us": bar.start_us, "end_us": bar.end_us},
        }
        for bar, _, _ in _placed(panel.bars)
    ]


def _rectangles(bars: Sequence[Bar], colours: dict[str, str], factor_us: float) -> PolyCollection:
    """The bars; lane 0 has its middle at height 0, and the next ones follow downwards."""
    corners, filled = [], []
    for bar, top, height in _placed(bars):
        begin, end = bar.start_us / factor_us, bar.end_us / factor_us
        corners.append([(begin, top), (end, top), (end, top + height), (begin, top + height)])
        filled.append(colours[bar.name])
    return PolyCollection(corners, facecolors=filled, linewidth=0, zorder=2)


def _tracks(bars: Sequence[Bar]) -> list[list[Bar]]:
    """One worker's bars as tracks whose bars do not overlap.

    First its device; encoding and decoding are on a second track if they run beside the passes. Then the
    network, on as many tracks as operations are under way at once.
    """
    network = [bar for bar in bars if bar.name.startswith(words.NETWORK)]
    at_device = [bar for bar in bars if not bar.name.startswith(words.NETWORK)]
    passes = [bar for bar in at_device if bar.bucket == NO_BUCKET]
    codec = [bar for bar in at_device if bar.bucket != NO_BUCKET]
    device = _stack(at_device)
    if len(device) > 1:
        device = [*_stack(passes), *_stack(codec)]
    return [*device, *_stack(network)]


def _tracks_max(bars: Sequence[Bar]) -> int:
    """Most tracks of a worker."""
    workers = {bar.worker for bar in bars}
    return max((len(_tracks([bar for bar in bars if bar.worker == worker])) for worker in workers), default=0)


def _stack(bars: Sequence[Bar]) -> list[list[Bar]]:
    """Bars on as few tracks as their overlaps allow, each on the first that is free."""
    tracks: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: (bar.start_us, bar.end_us)):
        track = next((track for track in tracks if track[-1].end_us <= bar.start_us), None)
        if track is None:
            tracks.append([bar])
        else:
            track.append(bar)
    return tracks


def _magnify(
    axes: Axes, panel: Panel, colours: dict[str, str], extent_inches: tuple[float, float], span: float
) -> None:
    """Draw a short step again, magnified, to its right; the axis is `span` times as long."""
    top, height = extent_inches[0] + 0.04 * extent_inches[1], 0.92 * extent_inches[1]
    left = 1 / span + 0.1
    width, title_inches = 1 - left, _INSET_TITLE_INCHES * height / (extent_inches[1] + _INSET_TITLE_INCHES)
    lane_inches = (height - title_inches) / max(1, len(_workers(panel.bars)))
    to_lanes = Affine2D().scale(width / panel.end_us, lane_inches)
    to_lanes.translate(left, top + title_inches + lane_inches / 2)
    across = axes.get_yaxis_transform()
    rectangles = _rectangles(panel.bars, colours, 1.0)
    rectangles.set(transform=to_lanes + across, zorder=4)
    frame: dict[str, Any] = {"facecolor": "#f4f4f4", "edgecolor": style.MIDDLE_GREY, "linewidth": 0.8}
    axes.add_patch(Rectangle((left, top), width, height, transform=across, zorder=3, **frame))
    axes.add_collection(rectangles, autolim=False)
    axes.text(
        *(left + 0.99 * width, top + 0.03 * height, f"the same, magnified {words.times(width * span)}"),
        transform=across,
        horizontalalignment="right",
        verticalalignment="top",
        zorder=5,
    )


_LINE_MARKS = ("|", "D", "s", "^")


def drawers(run: RunFolder) -> dict[str, Callable[[], Figure | None]]:
    """What draws each figure, by its name, in reading order; None if it has nothing to show."""
    labels = style.label_colours(run.phases.filter(pl.col("phase") == "network")["label"])
    return {
        "grid": partial(heat_map, run),
        "sizes": partial(message_sizes, run),
        "cost": partial(cost_and_time, run),
        "accuracy": partial(scores_over_time, run),
        "throughput": partial(throughput, run),
        "bounds": partial(bound_times, run),
        "breakdown": partial(time_spent, run, labels=labels),
        "bytes": partial(bytes_sent, run, labels=labels),
        "tradeoff": partial(trade_off, run),
        "jobs": partial(job_chart, run),
        "network": partial(over_time, run),
        "messages": partial(message_times, run),
        "timeline": partial(timeline, run, labels=labels),
        "utilisation": partial(utilisation, run),
        "training": partial(learning, run),
    }


def figures(run: RunFolder) -> dict[str, bytes]:
    """SVG of each figure that has something to show, by file name, in reading order."""
    svgs: dict[str, bytes] = {}
    with style.house_style():
        for name, draw in drawers(run).items():
            figure = draw()
            if figure is not None:
                svgs[f"{name}.svg"] = style.to_svg(figure)
    return svgs


def throughput(run: RunFolder) -> Figure:
    """Bars: dense gradient elements aggregated per second, with published rates and bounds beside them."""
    variants = run.summary["variants"]
    rates = [variant["metrics"]["aggregation_elements_per_s"] or 0.0 for variant in variants]
    groups = groups_in(run.summary)
    times = times_baseline(groups, "aggregation_time_us")
    baselines = [group.baseline["name"] for group in groups if group.baseline is not None]
    references = [entry for variant in variants for entry in variant["references"]]
    factor, prefix = words.prefix(max([*rates, *(entry["elements_per_s"] for entry in references)]))
    figure = style.new_figure(0.85 + 0.42 * len(variants) + 0.3 * bool(references))
    axes = figure.add_subplot(xlabel=f"{prefix} elements/s".strip())
    style.bars_axes(
        axes, [variant["name"] for variant in variants], "Gradient elements aggregated per second"
    )
    for row, (variant, rate) in enumerate(zip(variants, rates, strict=True)):
        verdict = kind(variant["verdict"])
        failed = verdict not in GOOD
        (bar,) = axes.barh(row, rate / factor, height=0.62, color=style.LIGHT_GREY if failed else style.SLATE)
        name = variant["name"]
        mark(bar, {"variant": name, "elements_per_s": rate})
        compared = "" if failed or name in baselines else f" · {times[name]}"
        estimated = " · approximate" if verdict == "approximate" else ""
        style.beside(axes, row, f"{words.scaled(rate, '/s')}{compared}{estimated}")
        if failed:
            why = "stalled" if verdict == "stalled" else "a check failed"
            axes.text(0.01, row, why, transform=axes.get_yaxis_transform(), va="center")
    _mark_references(axes, variants, factor)
    axes.set_xlim(left=0)
    return figure


def _mark_references(axes: Axes, variants: list[dict[str, Any]], factor: float) -> None:
    """One mark per kind of reference, on the rows of the variants that have one."""
    rows: dict[str, list[tuple[float, int]]] = {}
    for row, variant in enumerate(variants):
        for entry in variant["references"]:
            rows.setdefault(entry["label"], []).append((entry["elements_per_s"] / factor, row))
    for (label, points), shape in zip(rows.items(), itertools.cycle(_LINE_MARKS)):
        rates, on_rows = zip(*points, strict=True)
        size, edge = (18, 2) if shape == "|" else (7, 1)
        axes.plot(
            rates,
            on_rows,
            shape,
            label=label,
            color=style.BLACK,
            markerfacecolor="white",
            markersize=size,
            markeredgewidth=edge,
        )
    if rows:
        axes.figure.legend(loc="outside lower left", ncols=4, markerscale=0.6)


def bound_times(run: RunFolder) -> Figure | None:
    """Bars: aggregation time by what takes it, by group, the fastest first; None if it is not recorded."""
    groups = groups_in(run.summary)
    times, key = times_baseline(groups, "aggregation_time_us"), order_key("aggregation")
    ranked = [
        variant
        for group in groups
        for variant in sorted(group.members, key=lambda member: key(member["verdict"], member["metrics"]))
        if variant["bounds"]
    ]
    bars = [
        VariantBar(
            name=variant["name"],
            time_us=variant["metrics"]["aggregation_time_us"],
            note=times[variant["name"]],
            parts=variant["bounds"],
            is_sound=kind(variant["verdict"]) in GOOD,
        )
        for variant in ranked
    ]
    return ranked_bars(bars, "What the aggregation waits for") if bars else None


def time_spent(run: RunFolder, labels: Mapping[str, str]) -> Figure | None:
    """Bars: mean aggregation time of a step by phase; None if all time goes into one.

    `labels` are the colours of the messages.
    """
    variants = [variant for variant in run.summary["variants"] if variant["metrics"]["aggregation_time_us"]]
    if not variants:
        return None
    rows = [words.parts(variant["metrics"]) for variant in variants]
    fullest_first = sorted(rows, key=len, reverse=True)  # it has most of the order in which a round goes
    names = [words.phase_name(part) for parts in fullest_first for part in parts if part["time_us"]]
    if len({*names}) < 2:
        return None
    colours = style.phase_colours(names, labels) | ({RANK_SKEW: None} if RANK_SKEW in names else {})
    totals_us = [sum(part["time_us"] for part in parts) for parts in rows]
    factor_us, unit = words.time_unit(max(totals_us))
    figure = style.new_figure(1.25 + 0.42 * len(variants))
    axes = figure.add_subplot(xlabel=unit)
    style.bars_axes(
        axes, [variant["name"] for variant in variants], "Where the aggregation time of a step goes"
    )
    for row, (parts, total_us) in enumerate(zip(rows, totals_us, strict=True)):
        left = 0.0
        for part in parts:
            name, time = words.phase_name(part), part["time_us"] / factor_us
            if time and name in colours:
                (bar,) = axes.barh(row, time, left=left, height=0.62, **_fill(colours[name]))
                left += time
                mark(bar, {"variant": variants[row]["name"], "phase": name, "time_us": part["time_us"]})
        style.beside(axes, row, words.time(total_us))
    axes.set_xlim(left=0)
    style.legend_below(figure, [Patch(**_fill(colour)) for colour in colours.values()], list(colours))
    return figure


def _fill(colour: str | None) -> dict[str, Any]:
    """Style of a part of a bar: its colour, or hatched without one."""
    if colour is None:
        return {"facecolor": "white", "edgecolor": style.MIDDLE_GREY, "hatch": "////"}
    return {"facecolor": colour}


def bytes_sent(run: RunFolder, labels: Mapping[str, str]) -> Figure | None:
    """Bars: bytes that one worker sends per step, by message, beside those of the dense gradient.

    `labels` are the colours of the messages.
    """
    variants = run.summary["variants"]
    if run.steps.is_empty():
        return None
    parts = _payload_parts(run)
    dense_bytes = [4.0 * (variant["metrics"]["elements"] or 0.0) for variant in variants]
    factor, prefix = words.prefix(max(dense_bytes))
    figure = style.new_figure(1.25 + 0.42 * len(variants))
    axes = figure.add_subplot(xlabel=f"{prefix}B")
    style.bars_axes(axes, [variant["name"] for variant in variants], "Bytes that one worker sends per step")
    legend: dict[str, Any] = {}
    for row, variant in enumerate(variants):
        metrics = variant["metrics"]
        left = 0.0
        if not metrics["steps"]:
            style.beside(axes, row, "stalled in its first step")
            continue
        for label, size_bytes in parts.filter(variant=variant["name"]).select("label", "bytes").rows():
            size = size_bytes / metrics["steps"] / factor
            legend[label] = axes.barh(row, size, left=left, height=0.62, color=labels[label])
            left += size
            row_bytes = size_bytes / metrics["steps"]
            mark(legend[label][0], {"variant": variant["name"], "part": label, "size_bytes": row_bytes})
        other_bytes = max(0.0, metrics["wire_bytes_up"] / metrics["workers"] / factor - left)
        hatched = axes.barh(
            row, other_bytes, left=left, height=0.62, color="white", edgecolor=style.MIDDLE_GREY, hatch="////"
        )
        mark(hatched[0], {"variant": variant["name"], "part": "other", "size_bytes": other_bytes * factor})
        compression = words.times(metrics["compression_ratio"])
        style.beside(
            axes, row, f"{words.scaled(metrics['payload_bytes_up'], 'B')} payload · compression {compression}"
        )
    legend["headers, exponents ahead, forwarding, retransmissions"] = hatched
    legend["dense float32 gradient"] = axes.vlines(
        [size / factor for size in dense_bytes],
        [row - 0.5 for row in range(len(variants))],
        [row + 0.5 for row in range(len(variants))],
        color=style.BLACK,
        linestyle="--",
    )
    axes.set_xlim(left=0)
    style.legend_below(figure, list(legend.values()), list(legend))
    return figure


def _payload_parts(run: RunFolder) -> pl.DataFrame:
    """Bytes of worker 0's messages over all finished steps by variant and label, in order of appearance."""
    finished = run.steps.select("variant", "step")
    return (
        run.phases.join(finished, on=["variant", "step"], how="semi", maintain_order="left")
        .filter((pl.col("phase") == "network") & (pl.col("worker") == 0) & (pl.col("payload_bytes") > 0))
        .group_by("variant", "label", maintain_order=True)
        .agg(pl.col("payload_bytes").sum().alias("bytes"))
    )
