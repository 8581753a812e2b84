"""Ranked bars: the aggregation time of variants, split by what bounds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from netfold.sim.report import style, words
from netfold.sim.report.answer.bounds import Parts, cause_name, short

CAUSE_COLOURS: dict[str, str | None] = {  # None: hatched
    "link": style.BLUE,
    "loopback": style.SKY,
    "window": style.ORANGE,
    "timer": style.VERMILION,
    "latency": style.YELLOW,
    "device": style.GREEN,
    "straggler": style.PURPLE,
    "merging": style.DARK_GREY,
    "unexplained": None,
}
_LABEL_CHARACTERS = 44


class Bar(NamedTuple):
    """One variant: its name, its time, what is said of it, and the parts of its time."""

    name: str
    time_us: float
    note: str  # its ratio
    parts: Parts
    is_sound: bool = True  # its checks hold


def ranked_bars(bars: Sequence[Bar], title: str) -> Figure | None:
    """Bars from top to bottom in the given order; None if none took time."""
    if not any(bar.time_us for bar in bars):
        return None
    longest_us = max(bar.time_us for bar in bars)
    factor_us, unit = words.time_unit(longest_us)
    causes = [
        cause
        for cause in CAUSE_COLOURS
        if any(part["cause"] == cause and part["share"] > 0 for bar in bars for part in bar.parts)
    ]
    figure = style.new_figure(1.25 + 0.42 * len(bars))
    axes = figure.add_subplot(xlabel=unit)
    style.bars_axes(axes, [bar.name for bar in bars], title)
    for row, bar in enumerate(bars):
        left = 0.0
        for cause in causes:
            time = sum(part["time_us"] for part in bar.parts if part["cause"] == cause) / factor_us
            if time:
                axes.barh(row, time, left=left, height=0.62, **_filled(cause, bar.is_sound))
                left += time
        if not bar.parts:
            axes.barh(row, bar.time_us / factor_us, height=0.62, color=style.LIGHT_GREY)
        style.beside(axes, row, _label(bar))
    axes.set_xlim(left=0, right=1.02 * longest_us / factor_us)
    handles = [Patch(**_filled(cause)) for cause in causes]
    if handles:
        style.legend_below(figure, handles, [cause_name(cause) for cause in causes])
    return figure


def _label(bar: Bar) -> str:
    bound = short(bar.parts) if bar.parts else ""
    texts = [words.time(bar.time_us), bar.note, bound, "" if bar.is_sound else "a check failed"]
    text = " · ".join(one for one in texts if one)
    return text if len(text) <= _LABEL_CHARACTERS else f"{text[: _LABEL_CHARACTERS - 1]}…"


def _filled(cause: str, is_sound: bool = True) -> dict[str, Any]:
    """Style of a part of a bar: its colour, or hatched without one; pale if a check failed."""
    colour = CAUSE_COLOURS[cause]
    alpha = 1.0 if is_sound else 0.35
    if colour is None:
        return {"facecolor": "white", "edgecolor": style.MIDDLE_GREY, "hatch": "////", "alpha": alpha}
    return {"facecolor": colour, "alpha": alpha}
