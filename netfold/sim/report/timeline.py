"""The time line of one step: device and network of each worker, one panel per variant on a common clock."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from netfold.sim.report import style, words
from netfold.sim.report.jobs.chart import ROWS_MAX
from netfold.sim.results.folder import Run

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


def _draw(axes: Axes, bars: Sequence[Bar], colours: dict[str, str], factor_us: float) -> None:
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
