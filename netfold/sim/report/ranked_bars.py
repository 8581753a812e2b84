"""Ranked bars: the aggregation time of variants, split by what bounds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

from netfold.sim.report import style, words
from netfold.sim.report.bottleneck_text import Parts, cause_name, short
from netfold.sim.report.hover_text import mark

# P. Tol, "Colour schemes" (2021), "muted", https://personal.sron.nl/~pault/: none is the colour of a phase.
CAUSE_COLOURS: dict[str, str | None] = {  # None: hatched
    "link": "#332288",
    "loopback": "#88ccee",
    "host": "#4b2e14",
    "window": "#ddcc77",
    "timer": "#882255",
    "latency": "#999933",
    "device": "#44aa99",
    "straggler": "#aa4499",
    "merging": "#cc6677",
    "unexplained": None,
}
_LABEL_CHARACTERS = 44
_LINEAR_MAX = 15.0  # longest over shortest time
_SHARE_MIN = 0.001  # smaller parts are not in the legend


class VariantBar(NamedTuple):
    """One variant: its name, its time, what is said of it, and the parts of its time."""

    name: str
    time_us: float
    note: str  # its ratio
    parts: Parts
    is_sound: bool = True  # its checks hold


def ranked_bars(bars: Sequence[VariantBar], title: str) -> Figure | None:
    """Bars from top to bottom in the given order: the time, and its parts of 100 %; None if none took time.

    The bar of the time has the colour of its largest part. Its axis is logarithmic if some bars would be too
    short to see otherwise.
    """
    times_us = [bar.time_us for bar in bars if bar.time_us]
    if not times_us:
        return None
    factor_us, unit = words.time_unit(max(times_us))
    causes = [
        cause
        for cause in CAUSE_COLOURS
        if any(part["cause"] == cause and part["share"] >= _SHARE_MIN for bar in bars for part in bar.parts)
    ]
    figure = style.new_figure(1.45 + 0.36 * len(bars))
    figure.suptitle(title, x=0.01, ha="left", size=11, weight="bold")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    style.bars_axes(left, [bar.name for bar in bars], "")
    left.set_xlabel(unit)
    style.bars_axes(right, [""] * len(bars), "")
    right.set_xlabel("% of the time")
    if max(times_us) > _LINEAR_MAX * min(times_us):
        left.set_xscale("log")
        left.set_xlim(min(times_us) / factor_us / 2, max(times_us) / factor_us * 1.1)
        left.xaxis.set_minor_formatter(
            NullFormatter()
        )  # otherwise it labels them with formulas where few fit
        left.xaxis.set_major_formatter(lambda value, _: _tick(value * factor_us))
        left.set_xlabel("time, logarithmic")
    else:
        left.set_xlim(0, 1.02 * max(times_us) / factor_us)
    for row, bar in enumerate(bars):
        _draw(left, right, row, bar, factor_us)
    right.set_xlim(0, 100)
    if causes:
        handles = [Patch(**_fill(cause)) for cause in causes]
        style.legend_below(figure, handles, [cause_name(cause) for cause in causes])
    return figure


def _draw(left: Axes, right: Axes, row: int, bar: VariantBar, factor_us: float) -> None:
    """One row: the time, its parts, and the text to its right."""
    first = bar.parts[0]["cause"] if bar.parts else ""
    (whole,) = left.barh(row, bar.time_us / factor_us, height=0.62, **_fill(first, bar.is_sound))
    mark(whole, {"variant": bar.name, "part": "all", "time_us": bar.time_us})
    at = 0.0
    for cause in CAUSE_COLOURS:
        share = 100 * sum(part["share"] for part in bar.parts if part["cause"] == cause)
        if share:
            (part,) = right.barh(row, share, left=at, height=0.62, **_fill(cause, bar.is_sound))
            time_us = bar.time_us * share / 100
            mark(part, {"variant": bar.name, "part": cause_name(cause), "time_us": time_us})
            at += share
    style.beside(right, row, _label(bar))


def _tick(time_us: float) -> str:
    """A tick of a logarithmic axis: "10 µs"."""
    factor_us, unit = words.time_unit(time_us * (1 + 1e-9))
    return f"{time_us / factor_us:.0f} {unit}"


def _label(bar: VariantBar) -> str:
    bound = short(bar.parts) if bar.parts else ""
    texts = [words.time(bar.time_us), bar.note, bound, "" if bar.is_sound else "a check failed"]
    text = " · ".join(part for part in texts if part)
    return text if len(text) <= _LABEL_CHARACTERS else f"{text[: _LABEL_CHARACTERS - 1]}…"


def _fill(cause: str, is_sound: bool = True) -> dict[str, Any]:
    """Style of a part of a bar: its colour, or hatched without one; pale if a check failed."""
    colour = CAUSE_COLOURS.get(cause, style.LIGHT_GREY)
    alpha = 1.0 if is_sound else 0.35
    if colour is None:
        return {"facecolor": "white", "edgecolor": style.MIDDLE_GREY, "hatch": "////", "alpha": alpha}
    return {"facecolor": colour, "alpha": alpha}
