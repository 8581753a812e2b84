"""The figures of a study over density, with a line per codec: compression and recovery, and speeds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from netfold.sim.report import style
from netfold.sim.study.measure import Study

_COLOURS = (
    *(style.BLUE, style.VERMILION, style.GREEN, style.ORANGE),
    *(style.PURPLE, style.SKY, style.BLACK, style.MIDDLE_GREY),
)
_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))  # one per pattern
_MARKS = "os^D"
_HEIGHT_INCHES = 3.6
_FEW_DECADES = 1000.0
_TICKS_MAX = 12

STUDY_FIGURE, SPEED_FIGURE = "study.svg", "speed.svg"


class _Panel(NamedTuple):
    """One of a figure's two panels: a value for every row of the study."""

    title: str
    unit: str
    values: Sequence[float | None]
    level: float | None = None  # a horizontal line to compare with, on a logarithmic axis


def study_figures(study: Study) -> dict[str, bytes]:
    """SVGs by file name: results that depend on codecs and gradients alone, and speeds of this machine."""
    wire = [record.wire_ratio for record in study.records]
    recovery = [100 * record.recovery for record in study.records]
    encode = [speed.encode_gb_per_s for speed in study.speeds]
    decode = [speed.decode_gb_per_s for speed in study.speeds]
    copy = study.copy_gb_per_s
    with style.house_style():
        bytes_and_sums = _figure(
            study,
            "dense float32",
            _Panel("Compression of what a worker sends", "dense / sent bytes", wire, 1.0),
            _Panel("Sums that are not estimates", "% of the union", recovery),
        )
        speeds = _figure(
            study,
            "copying memory",
            _Panel("Encoding on this machine", "dense GB/s of CPU time", encode, copy),
            _Panel("Decoding on this machine", "dense GB/s of CPU time", decode, copy),
        )
        return {STUDY_FIGURE: style.to_svg(bytes_and_sums), SPEED_FIGURE: style.to_svg(speeds)}


def _figure(study: Study, level_name: str, left: _Panel, right: _Panel) -> Figure:
    figure = style.new_figure(_HEIGHT_INCHES)
    legend: dict[str, Any] = {}
    for place, panel in enumerate((left, right), 1):
        axes = figure.add_subplot(1, 2, place, title=panel.title, xlabel="density, %", ylabel=panel.unit)
        legend |= _lines(axes, study, panel.values)
        axes.grid(color=style.LIGHT_GREY, linewidth=0.6)
        if all(record.density > 0 for record in study.records):
            _logarithmic(axes, "x")
        if panel.level is None:
            axes.set_ylim(max(0.0, min(value or 0.0 for value in panel.values) - 5), 101)
        else:
            legend[level_name] = axes.axhline(panel.level, color=style.DARK_GREY, linestyle="--", linewidth=1)
            _logarithmic(axes, "y")
    style.legend_below(figure, list(legend.values()), list(legend))
    return figure


def _lines(axes: Axes, study: Study, values: Sequence[float | None]) -> dict[str, Any]:
    """Draw a line per codec (its colour) and pattern (its dashes and marks); returns lines by legend name."""
    codecs = dict(zip(dict.fromkeys(record.codec for record in study.records), itertools.cycle(_COLOURS)))
    patterns = dict(
        zip(
            dict.fromkeys(record.pattern for record in study.records),
            itertools.cycle(zip(_DASHES, _MARKS, strict=True)),
        )
    )
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for record, value in zip(study.records, values, strict=True):
        own = points.setdefault((record.codec, record.pattern), [])
        if value is not None:
            own.append((100 * record.density, value))
    drawn = {}
    for number, ((codec, pattern), own) in enumerate(points.items()):
        dashes, mark = patterns[pattern]
        x, y = zip(*sorted(own), strict=True) if own else ((), ())
        width = 1.5 + 2.5 * (len(points) - 1 - number) / len(points)  # equal lines stay visible
        name = f"{codec}, {pattern}" if len(patterns) > 1 else codec
        (drawn[name],) = axes.plot(
            x, y, color=codecs[codec], linestyle=dashes, linewidth=width, marker=mark, markersize=3 + width
        )
    return drawn


def _logarithmic(axes: Axes, which: str) -> None:
    """Set a logarithmic axis with plain numbers: 0.1, 1, 10; or 1, 2, 5, 10 if there is space."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_data_interval()
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    digits = (1.0, 2.0, 5.0) if high < _FEW_DECADES * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=digits, numticks=_TICKS_MAX))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
