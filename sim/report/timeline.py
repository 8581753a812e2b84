"""The time line of one step: the phases of each worker, one panel per variant on a common clock."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from netfold.sim.report import style, words
from netfold.sim.results.reader import Run

LANES_MAX = 8
_COMPUTE_BUCKET = -1  # bucket of forward and backward in a PhaseRecord
_LANE_FILL = 0.84  # of a lane's height; the rest separates workers
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


def timeline(run: Run) -> Figure | None:
    """Gantt chart of every variant's last finished step, workers as lanes; None if nothing took time."""
    panels = [
        _panel(run, variant["name"]) for variant in run.summary["variants"] if variant["metrics"]["steps"]
    ]
    colours = style.phase_colours(bar.name for panel in panels for bar in panel.bars)
    if not colours:
        return None
    lanes = max(len({bar.worker for bar in panel.bars}) for panel in panels)
    span_us = 1.01 * max(panel.end_us for panel in panels)
    factor_us, unit = words.time_unit(span_us)
    panel_inches = 0.27 * max(2, lanes)
    figure = style.new_figure(1.2 + len(panels) * (0.4 + panel_inches))
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(grid, panels, strict=True):
        _draw(axes, panel.bars, colours, factor_us)
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
    title = f"What each worker did in {f'step {panels[0].step}' if same else 'its last step'}"
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
        if row["end_ps"] > row["start_ps"]
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


def _draw(axes: Axes, bars: Sequence[Bar], colours: dict[str, str], factor_us: float) -> None:
    """Draw lanes from top to bottom: in each, compute is the first track, and buckets in flight are below."""
    workers = sorted({bar.worker for bar in bars})
    rectangles, filled = [], []
    for lane, worker in enumerate(workers):
        own = [bar for bar in bars if bar.worker == worker]
        buckets = _by_bucket(own)
        tracks = _tracks(buckets)
        height = _LANE_FILL / (1 + max(tracks.values()))
        # Longest first: of two messages in flight at once, the shorter is drawn over the longer and lower.
        for bar in sorted(own, key=lambda bar: bar.start_us - bar.end_us):
            corner = (bar.start_us / factor_us, lane - _LANE_FILL / 2 + height * tracks[bar.bucket])
            width = (bar.end_us - bar.start_us) / factor_us
            rectangles.append(
                Rectangle(corner, width, height / (1 + _longer_at_once(bar, buckets[bar.bucket])))
            )
            filled.append(colours[bar.name])
    axes.add_collection(PatchCollection(rectangles, facecolors=filled, linewidth=0, zorder=2))
    axes.set_yticks(range(len(workers)), [f"worker {worker}" for worker in workers])
    axes.set_ylim(max(1, len(workers)) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=style.LIGHT_GREY, linewidth=0.6)


def _by_bucket(bars: Sequence[Bar]) -> dict[int, list[Bar]]:
    buckets: dict[int, list[Bar]] = {}
    for bar in bars:
        buckets.setdefault(bar.bucket, []).append(bar)
    return buckets


def _tracks(buckets: Mapping[int, Sequence[Bar]]) -> dict[int, int]:
    """Track of each bucket of one worker: the first that is free when it begins; compute has its own."""
    spans = {
        bucket: (min(bar.start_us for bar in bars), max(bar.end_us for bar in bars))
        for bucket, bars in buckets.items()
    }
    if _COMPUTE_BUCKET in spans:
        spans[_COMPUTE_BUCKET] = (-math.inf, math.inf)
    free_at_us: list[float] = []
    tracks = {}
    for bucket, (start_us, end_us) in sorted(spans.items(), key=lambda item: (item[1], item[0])):
        track = next((track for track, free in enumerate(free_at_us) if free <= start_us), len(free_at_us))
        free_at_us[track : track + 1] = [end_us]
        tracks[bucket] = track
    return tracks


def _longer_at_once(bar: Bar, bars: Sequence[Bar]) -> int:
    """How many longer phases of the same bucket overlap this one."""
    duration_us = bar.end_us - bar.start_us
    return sum(
        other.start_us < bar.end_us
        and bar.start_us < other.end_us
        and (other.end_us - other.start_us, other.name) > (duration_us, bar.name)
        for other in bars
    )


def _magnify(axes: Axes, panel: Panel, colours: dict[str, str], span_us: float) -> Axes:
    """Draw a short step again, magnified, in the free space to its right; returns those axes."""
    left = panel.end_us / span_us + 0.1
    inset = axes.inset_axes((left, 0.04, 1 - left, 0.92), facecolor="#f4f4f4")
    _draw(inset, panel.bars, colours, 1.0)
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
