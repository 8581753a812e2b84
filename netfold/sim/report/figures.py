"""The figures of a run, each answering one question: how fast, how many bytes, when, and did it learn."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from netfold.sim.report import style, words
from netfold.sim.report.answer import VariantBar, groups_of, order_key, ranked_bars, times_baseline
from netfold.sim.report.learning import learning
from netfold.sim.report.network_drawing import utilisation
from netfold.sim.report.words import fairness
from netfold.sim.results.folder import Run
from netfold.sim.results.summary import GOOD, RANK_SKEW, kind

# The time line of jobs that come and go: when each waited and ran, a panel per variant, one clock.


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


# The time line of one step: device and network of each worker, one panel per variant on a common clock.


LANES_MAX = 8
PANELS_MAX = ROWS_MAX  # variants and jobs
_COMPUTE_BUCKET = -1  # bucket of forward and backward in a PhaseRecord
_LANE_FILL = 0.84  # of a lane's height; the rest separates workers
_TRACK_INCHES = 0.135
_TITLE_CHARACTERS = 110  # of a panel
_INSET_TITLE_INCHES = 0.2  # space above the lanes of a magnified step
_MAGNIFY_BELOW = 0.25  # of the time axis: a step shorter than this is drawn a second time, magnified


class Bar(NamedTuple):
    """One phase of one worker; times in µs since the step began."""

    worker: int
    bucket: int
    name: str  # as in the legend: "backward", "network: values"
    start_us: float
    end_us: float


class Panel(NamedTuple):
    """One step of one variant; its bars are those of the workers shown."""

    variant: str
    step: int
    end_us: float
    note: str  # how many of its workers are shown; empty if all are
    bars: list[Bar]


def timeline(run: Run, labels: Mapping[str, str]) -> Figure | None:
    """Gantt chart of every variant's last finished step, workers as lanes; None if nothing took time.

    `labels` are the colours of the messages.
    """
    names = [variant["name"] for variant in run.summary["variants"] if variant["metrics"]["steps"]]
    panels = [_panel(run, name) for name in names[:PANELS_MAX]]
    colours = style.phase_colours((bar.name for panel in panels for bar in panel.bars), labels)
    if not colours:
        return None
    lanes = max(len({bar.worker for bar in panel.bars}) for panel in panels)
    tracks = max(_tracks_max(panel.bars) for panel in panels)
    span_us = 1.01 * max(panel.end_us for panel in panels)
    factor_us, unit = words.time_unit(span_us)
    panel_inches = _TRACK_INCHES * max(2, tracks) * max(2, lanes)
    figure = style.new_figure(1.2 + len(panels) * (0.4 + panel_inches))
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(grid, panels, strict=True):
        _draw_phases(axes, panel.bars, colours, factor_us)
        title = f"{panel.variant} · {words.time(panel.end_us)}{panel.note}"
        axes.set_title(textwrap.shorten(title, _TITLE_CHARACTERS, placeholder="…"), fontsize=9.5, pad=4)
        axes.axvline(panel.end_us / factor_us, color=style.BLACK, linewidth=1)
        axes.set_xlim(0, span_us / factor_us)
        if 0 < panel.end_us < _MAGNIFY_BELOW * span_us:
            inset = _magnify(axes, panel, colours, span_us)
            bottom, top = inset.get_ylim()
            inset.set_ylim(bottom, top - (bottom - top) * _INSET_TITLE_INCHES / panel_inches)
    grid[-1].set_xlabel(f"{unit} since the step began")
    same = len({panel.step for panel in panels}) == 1
    more = f", in the first {len(panels)} of {len(names)}" if len(panels) < len(names) else ""
    title = f"What each worker did in {f'step {panels[0].step}' if same else 'its last step'}{more}"
    figure.suptitle(title, x=0.01, ha="left", size=11, weight="bold")
    style.legend_below(figure, [Patch(color=colour) for colour in colours.values()], list(colours))
    return figure


def _panel(run: Run, variant: str) -> Panel:
    step = run.steps.filter(pl.col("variant") == variant).sort("step").row(-1, named=True)
    own = run.phases.filter((pl.col("variant") == variant) & (pl.col("step") == step["step"]))
    workers = own["worker"].unique().sort().to_list()
    shown = _chosen(workers, own.sort("end_ps", maintain_order=True)["worker"][-1]) if workers else []
    began_ps = step["start_ps"]
    bars = [
        Bar(
            worker=row["worker"],
            bucket=row["bucket"],
            name=words.phase_name(row),
            start_us=(row["start_ps"] - began_ps) / 1e6,
            end_us=(row["end_ps"] - began_ps) / 1e6,
        )
        for row in own.filter(pl.col("worker").is_in(shown)).iter_rows(named=True)
        if row["end_ps"] > row["start_ps"] and row["phase"] != "wait"
    ]
    note = f" ({len(shown)} of {len(workers)} workers shown)" if len(shown) < len(workers) else ""
    return Panel(variant, step["step"], (step["end_ps"] - began_ps) / 1e6, note, bars)


def _chosen(workers: Sequence[int], slowest: int) -> list[int]:
    """At most `LANES_MAX` of the sorted workers, evenly spread; the slowest replaces its neighbour."""
    if len(workers) <= LANES_MAX:
        return list(workers)
    spread = [workers[lane * (len(workers) - 1) // (LANES_MAX - 1)] for lane in range(LANES_MAX)]
    neighbour = min(spread, key=lambda worker: abs(worker - slowest))
    return sorted({*spread} - {neighbour} | {slowest})


def _draw_phases(axes: Axes, bars: Sequence[Bar], colours: dict[str, str], factor_us: float) -> None:
    """Draw lanes from top to bottom: in each, the tracks of the device are above those of the network."""
    workers = sorted({bar.worker for bar in bars})
    rectangles, filled = [], []
    for lane, worker in enumerate(workers):
        tracks = _tracks([bar for bar in bars if bar.worker == worker])
        height = _LANE_FILL / len(tracks)
        for number, track in enumerate(tracks):
            for bar in track:
                corner = (bar.start_us / factor_us, lane - _LANE_FILL / 2 + height * number)
                rectangles.append(Rectangle(corner, (bar.end_us - bar.start_us) / factor_us, height))
                filled.append(colours[bar.name])
    axes.add_collection(PatchCollection(rectangles, facecolors=filled, linewidth=0, zorder=2))
    axes.set_yticks(range(len(workers)), [f"worker {worker}" for worker in workers])
    axes.set_ylim(max(1, len(workers)) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=style.LIGHT_GREY, linewidth=0.6)


def _tracks(bars: Sequence[Bar]) -> list[list[Bar]]:
    """One worker's bars as tracks whose bars do not overlap.

    First its device; encoding and decoding are on a second track if they run beside the passes. Then the
    network, on as many tracks as operations are under way at once.
    """
    network = [bar for bar in bars if bar.name.startswith(words.NETWORK)]
    at_device = [bar for bar in bars if not bar.name.startswith(words.NETWORK)]
    passes = [bar for bar in at_device if bar.bucket == _COMPUTE_BUCKET]
    codec = [bar for bar in at_device if bar.bucket != _COMPUTE_BUCKET]
    device = _stacked(at_device)
    if len(device) > 1:
        device = [*_stacked(passes), *_stacked(codec)]
    return [*device, *_stacked(network)]


def _tracks_max(bars: Sequence[Bar]) -> int:
    """Most tracks of a worker."""
    workers = {bar.worker for bar in bars}
    return max((len(_tracks([bar for bar in bars if bar.worker == one])) for one in workers), default=0)


def _stacked(bars: Sequence[Bar]) -> list[list[Bar]]:
    """Bars on as few tracks as their overlaps allow, each on the first that is free."""
    tracks: list[list[Bar]] = []
    for bar in sorted(bars, key=lambda bar: (bar.start_us, bar.end_us)):
        track = next((track for track in tracks if track[-1].end_us <= bar.start_us), None)
        if track is None:
            tracks.append([bar])
        else:
            track.append(bar)
    return tracks


def _magnify(axes: Axes, panel: Panel, colours: dict[str, str], span_us: float) -> Axes:
    """Draw a short step again, magnified, in the free space to its right; returns those axes."""
    left = panel.end_us / span_us + 0.1
    inset = axes.inset_axes((left, 0.04, 1 - left, 0.92), facecolor="#f4f4f4")
    _draw_phases(inset, panel.bars, colours, 1.0)
    inset.set_xlim(0, panel.end_us)
    inset.grid(visible=False)
    inset.set(xticks=[], yticks=[])
    inset.spines[:].set(visible=True, color=style.MIDDLE_GREY)
    magnified = words.times((1 - left) * span_us / panel.end_us)
    inset.text(
        *(0.99, 0.97, f"the same, magnified {magnified}"),
        transform=inset.transAxes,
        horizontalalignment="right",
        verticalalignment="top",
    )
    return inset


_MARKS = ("|", "D", "s", "^")


def figures(run: Run) -> dict[str, bytes]:
    """SVG of each figure that has something to show, by file name, in reading order."""
    labels = style.label_colours(run.phases.filter(pl.col("phase") == "network")["label"])
    draw: dict[str, Callable[[Run], Figure | None]] = {
        "throughput.svg": throughput,
        "bounds.svg": bound_times,
        "breakdown.svg": partial(time_spent, labels=labels),
        "bytes.svg": partial(bytes_sent, labels=labels),
        "jobs.svg": job_chart,
        "timeline.svg": partial(timeline, labels=labels),
        "utilisation.svg": utilisation,
        "training.svg": learning,
    }
    drawn: dict[str, bytes] = {}
    with style.house_style():
        for name, function in draw.items():
            figure = function(run)
            if figure is not None:
                drawn[name] = style.to_svg(figure)
    return drawn


def throughput(run: Run) -> Figure:
    """Bars: dense gradient elements aggregated per second, with published rates and bounds beside them."""
    variants = run.summary["variants"]
    rates = [variant["metrics"]["aggregation_elements_per_s"] or 0.0 for variant in variants]
    groups = groups_of(variants, run.summary.get("baseline"))
    times = times_baseline(groups)
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
        axes.barh(row, rate / factor, height=0.62, color=style.LIGHT_GREY if failed else style.BLUE)
        name = variant["name"]
        compared = "" if failed or name in baselines else f" · {times[name]}"
        estimated = " · approximate" if verdict == "approximate" else ""
        style.beside(axes, row, f"{words.scaled(rate, '/s')}{compared}{estimated}")
        if failed:
            why = "stuck" if verdict == "stuck" else "a check failed"
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
    for (label, points), mark in zip(rows.items(), itertools.cycle(_MARKS)):
        rates, on_rows = zip(*points, strict=True)
        size, edge = (18, 2) if mark == "|" else (7, 1)
        axes.plot(
            rates,
            on_rows,
            mark,
            label=label,
            color=style.BLACK,
            markerfacecolor="white",
            markersize=size,
            markeredgewidth=edge,
        )
    if rows:
        axes.figure.legend(loc="outside lower left", ncols=4, markerscale=0.6)


def bound_times(run: Run) -> Figure | None:
    """Bars: aggregation time by what takes it, by group, the fastest first; None if it is not recorded."""
    groups = groups_of(run.summary["variants"], run.summary.get("baseline"))
    times, key = times_baseline(groups), order_key("aggregation")
    ranked = [
        variant
        for group in groups
        for variant in sorted(group.members, key=lambda one: key(one["verdict"], one["metrics"]))
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


def time_spent(run: Run, labels: Mapping[str, str]) -> Figure | None:
    """Bars: mean aggregation time of a step by phase; None if nothing took time.

    `labels` are the colours of the messages.
    """
    variants = [variant for variant in run.summary["variants"] if variant["metrics"]["aggregation_time_us"]]
    if not variants:
        return None
    rows = [words.parts(variant["metrics"]) for variant in variants]
    fullest_first = sorted(rows, key=len, reverse=True)  # it has most of the order in which a round goes
    names = [words.phase_name(part) for parts in fullest_first for part in parts if part["time_us"]]
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
                axes.barh(row, time, left=left, height=0.62, **_filled(colours[name]))
                left += time
        style.beside(axes, row, words.time(total_us))
    axes.set_xlim(left=0)
    style.legend_below(figure, [Patch(**_filled(colour)) for colour in colours.values()], list(colours))
    return figure


def _filled(colour: str | None) -> dict[str, Any]:
    """Style of a part of a bar: its colour, or hatched without one."""
    if colour is None:
        return {"facecolor": "white", "edgecolor": style.MIDDLE_GREY, "hatch": "////"}
    return {"facecolor": colour}


def bytes_sent(run: Run, labels: Mapping[str, str]) -> Figure | None:
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
            style.beside(axes, row, "stuck in its first step")
            continue
        for label, size_bytes in parts.filter(variant=variant["name"]).select("label", "bytes").rows():
            size = size_bytes / metrics["steps"] / factor
            legend[label] = axes.barh(row, size, left=left, height=0.62, color=labels[label])
            left += size
        rest = max(0.0, metrics["wire_bytes_up"] / metrics["workers"] / factor - left)
        hatched = axes.barh(
            row, rest, left=left, height=0.62, color="white", edgecolor=style.MIDDLE_GREY, hatch="////"
        )
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


def _payload_parts(run: Run) -> pl.DataFrame:
    """Bytes of worker 0's messages over all finished steps by variant and label, in order of appearance."""
    finished = run.steps.select("variant", "step")
    return (
        run.phases.join(finished, on=["variant", "step"], how="semi", maintain_order="left")
        .filter((pl.col("phase") == "network") & (pl.col("worker") == 0) & (pl.col("payload_bytes") > 0))
        .group_by("variant", "label", maintain_order=True)
        .agg(pl.col("payload_bytes").sum().alias("bytes"))
    )
