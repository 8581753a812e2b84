"""Style of figures: a palette for colour-blind readers, no clutter, and the same bytes every time."""

from __future__ import annotations

import colorsys
import io
import itertools
import logging
import math
import textwrap
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.text import Text

from netfold.sim.report.hover_text import number_marks, write_marks
from netfold.sim.report.result_display import Svg

# M. Okabe and K. Ito, "Color Universal Design" (2008), https://jfly.uni-koeln.de/color/
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, YELLOW, BLACK = "#56B4E9", "#CC79A7", "#F0E442", "#1a1a1a"
SLATE = "#64798c"  # of bars that all mean the same
LIGHT_GREY, MIDDLE_GREY, DARK_GREY = "#d4d4d4", "#9a9a9a", "#5c5c5c"
ON_DARK, ON_LIGHT = "#fefefe", "#1b1b1b"
"""Texts on a colour, which stay as they are where the page is dark."""
FALLBACK_SLATE = "#b3c7d6"
VARIANT_COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)
"""Of variants in the order of the scenario, in every figure; no phase, message or cause has one of them."""

WIDTH_INCHES = 9.0
"""The width of figures of a page."""
PAPER_INCHES = 3.3
"""The width of a column of a paper; its text is 7 inches wide."""
NARROW_INCHES = 5.0
"""Figures that are narrower have panels below each other, and shorter texts."""
_FONT_POINTS, _PAPER_POINTS = 9.0, (7.0, 9.0)
"""The size of fonts on a page, and the least and most in a paper."""
_PNG_DOTS_PER_INCH = 300
MARKERS = "os^Dv<>P"  # as many as colours of variants, and one for grey
_HATCHES = (
    *("", "....", "xxxx", "----", 4 * "\\"),
    *("++++", "oooo", "||||", "xx..", "--oo", "||.."),
)
"""Of the colours of a paper's figure, told apart in grey by them; "////" is what has none."""
PHASE_COLOURS = {
    "forward": LIGHT_GREY,
    "backward": MIDDLE_GREY,
    "more passes": DARK_GREY,
    "update": "#7b6f5d",
    "encode": "#c3d94e",
    "wait": "#e7d4e8",
    "decode": "#4f9430",
}
KNOWN_LABELS = {
    "values": "#9a8cf0",
    "values exponents": "#f4a582",
    "index": "#ffaabb",
    "exponents": "#b2772a",
    "index + exponents": "#c9efc0",
    "fallback": "#e07bea",
}
_OTHER_LABELS = (
    *("#8c6bb1", "#8b5a2b", "#7fbf7b", "#c51b7d", "#80cdc1"),
    *("#003c6b", "#c9b18b", "#a50f15"),
)
_BUSY = LinearSegmentedColormap.from_list("busy", ["#dcdcdc", "#f3d28a", ORANGE, VERMILION, "#6b1700"])
_LEGEND_CHARACTERS_PER_INCH = 125 / WIDTH_INCHES
"""Characters in a row of a legend below a figure; a coloured patch is as wide as 8."""
_SCALE_INCHES, _SCALE_PAD_INCHES = 0.15, 0.2
_LEGEND_ROW_INCHES = 0.19
_NARROW_TITLE_CHARACTERS = 32
_NAME_CHARACTERS, _NARROW_NAME_CHARACTERS, _NAME_LINES = 26, 14, 3
"""The size of a variant's name beside a bar: characters in a line, and lines."""
_SETTINGS: Any = {
    "svg.fonttype": "none",  # text stays text: searchable, small, and no font is copied into the file
    "svg.hashsalt": "netfold",  # element ids would be random without it
    "text.parse_math": False,  # a name may hold a dollar sign
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": _FONT_POINTS,
    "pdf.fonttype": 42,  # TrueType: text stays text; publishers refuse type 3
    "axes.titlesize": 11.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titley": 1.0,  # no figure has ticks on top, for which matplotlib would look again and again
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": DARK_GREY,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9.0,
}
_PAPER_SETTINGS: Any = {
    "font.size": 7.0,
    "axes.titlesize": 8.0,
    "legend.fontsize": 7.0,
    "hatch.linewidth": 0.4,
}

_DRAWING = threading.RLock()


@contextmanager
def house_style(width_inches: float = WIDTH_INCHES) -> Iterator[None]:
    """The settings of figures of this width."""
    # The settings are the whole process's, so one thread draws at a time, and leaves them as they were.
    with _DRAWING, matplotlib.rc_context():
        matplotlib.rcdefaults()  # not the user's configuration
        matplotlib.rcParams.update(_SETTINGS)
        if width_inches < WIDTH_INCHES:
            matplotlib.rcParams.update(_PAPER_SETTINGS)
        matplotlib.rcParams["figure.figsize"] = width_inches, width_inches
        yield


def width_inches() -> float:
    # In the style that is in force.
    return float(matplotlib.rcParams["figure.figsize"][0])


def is_narrow() -> bool:
    return width_inches() < NARROW_INCHES


def new_figure(height_inches: float) -> Figure:
    return Figure(figsize=(width_inches(), height_inches), layout="constrained")


def to_svg(figure: Figure) -> Svg:
    """SVG with the numbers of its marks, and without a date or a program version.

    `Figure.savefig` would draw all of it once more, for the layout alone.
    """
    marks = number_marks(figure)
    canvas: Any = FigureCanvasSVG(figure)
    buffer = io.BytesIO()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        if not axis.get_label_text():
            axis.set_label_coords(0, 0)  # otherwise its place is worked out from the texts of all ticks
    layout = figure.get_layout_engine()
    if layout is not None:
        dots_per_inch = figure.dpi  # which asking for sizes changes
        layout.execute(figure)
        figure.set_layout_engine("none")
        figure.dpi = dots_per_inch
    canvas.print_svg(buffer, metadata={"Date": None, "Creator": None})
    return Svg(write_marks(buffer.getvalue().decode(), marks).encode())


def to_pdf(figure: Figure) -> bytes:
    """PDF for a paper, without a date: fonts of 7 to 9 points, colours that hatches tell apart in grey."""
    for text in figure.findobj(Text):
        text.set_fontsize(min(max(text.get_fontsize(), _PAPER_POINTS[0]), _PAPER_POINTS[1]))
    if is_narrow():
        for axes in figure.axes:
            axes.set_title("\n".join(textwrap.wrap(axes.get_title("left"), _NARROW_TITLE_CHARACTERS)))
    _hatch(figure)
    buffer = io.BytesIO()
    logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells of every font
    canvas: Any = FigureCanvasPdf(figure)
    canvas.print_pdf(buffer, metadata=dict.fromkeys(("Creator", "Producer", "CreationDate")))
    return buffer.getvalue()


def to_png(figure: Figure) -> bytes:
    """PNG for slides, without a program version."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_PNG_DOTS_PER_INCH, metadata={"Software": None})
    return buffer.getvalue()


def _hatch(figure: Figure) -> None:
    """Give all areas of one colour one hatch, in axes and legends, where there are few colours."""
    areas: list[Patch | PolyCollection] = []
    for axes in figure.axes:
        for bars in [drawn for drawn in axes.collections if isinstance(drawn, PolyCollection)]:
            areas += _by_colour(axes, bars)
        areas += [patch for patch in axes.patches if patch.get_transform().contains_branch(axes.transData)]
    areas += [
        handle for legend in figure.legends for handle in legend.legend_handles if isinstance(handle, Patch)
    ]
    by_colour: dict[str, list[Patch | PolyCollection]] = {}
    for area in areas:
        colour = to_hex(tuple(np.reshape(np.asarray(area.get_facecolor()), (-1, 4))[0]))
        if colour != "#ffffff":  # which says that it is hatched already
            by_colour.setdefault(colour, []).append(area)
    if 1 < len(by_colour) <= len(_HATCHES):
        for alike, hatch in zip(by_colour.values(), _HATCHES, strict=False):
            for area in alike:
                area.set(hatch=hatch or None, edgecolor=BLACK, linewidth=0.3)


def _by_colour(axes: Axes, bars: PolyCollection) -> list[PolyCollection]:
    """The bars as one collection for each colour: a collection has one hatch."""
    corners = [path.vertices for path in bars.get_paths()]
    colours = [to_hex(tuple(colour)) for colour in np.asarray(bars.get_facecolor())]
    parts = []
    for colour in dict.fromkeys(colours):
        alike = [corner for corner, other in zip(corners, colours, strict=True) if other == colour]
        part = PolyCollection(alike, facecolors=colour, zorder=bars.get_zorder(), closed=False)
        part.set_transform(bars.get_transform())
        axes.add_collection(part, autolim=False)
        parts.append(part)
    bars.remove()
    return parts


def label_colours(labels: Iterable[str]) -> dict[str, str]:
    """Colour of each message label; no two are alike.

    A known label has the same colour in every report. So has another label, unless a hash collision with one
    more label in the report moves it to the next free colour.
    """
    present = dict.fromkeys(labels)
    colours = {label: KNOWN_LABELS[label] for label in present if label in KNOWN_LABELS}
    for label in sorted(present.keys() - colours.keys()):
        start = zlib.crc32(label.encode()) % len(_OTHER_LABELS)
        free = itertools.chain(_OTHER_LABELS[start:], _OTHER_LABELS[:start], _more_colours())
        colours[label] = next(colour for colour in free if colour not in colours.values())
    return {label: colours[label] for label in present}


def _more_colours() -> Iterator[str]:
    """Endless colours, each far from the one before: hues by the golden ratio."""
    for number in itertools.count(1):
        red, green, blue = colorsys.hsv_to_rgb(number * 0.618034 % 1, 0.5, 0.8)
        yield f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def busy_colour(share: float) -> str:
    return to_hex(_BUSY(min(1.0, share)))


def busy_scale(figure: Figure, axes: Sequence[Axes]) -> None:
    """Draw the scale of `busy_colour` below axes."""
    height = figure.get_figheight()  # inches, of which the scale takes as much in tall figures as in low ones
    scale = figure.colorbar(
        ScalarMappable(Normalize(0, 100), _BUSY),
        ax=list(axes),
        location="bottom",
        shrink=0.4,
        fraction=_SCALE_INCHES / height,
        pad=_SCALE_PAD_INCHES / height,
    )
    scale.set_label("% of the time busy, the busier direction")
    scale.outline.set_visible(False)


def phase_colours(names: Iterable[str], labels: Mapping[str, str]) -> dict[str, str]:
    """Colour of each phase by its name in a legend, in the order in which a step goes through them.

    `labels` are the colours of the messages.
    """
    present = dict.fromkeys(names)
    network = [name for name in present if name.startswith("network: ")]
    order = [*PHASE_COLOURS, *network]
    order += [order.pop(order.index(name)) for name in ("wait", "decode")]
    colours = PHASE_COLOURS | {f"network: {label}": colour for label, colour in labels.items()}
    return {name: colours[name] for name in order if name in present}


def bars_axes(axes: Axes, names: list[str], title: str) -> None:
    """Turn axes into a list of horizontal bars, the first name on top."""
    axes.set_title(title)
    axes.set_yticks(range(len(names)), [_in_lines(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=LIGHT_GREY, linewidth=0.6)
    axes.spines["left"].set_visible(False)


def _in_lines(name: str) -> str:
    width = _NARROW_NAME_CHARACTERS if is_narrow() else _NAME_CHARACTERS
    return "\n".join(textwrap.wrap(name, width, max_lines=_NAME_LINES, placeholder="…"))


def legend_below(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Draw the legend below the figure, in as few rows as fit.

    The figure has space for one row; it grows by the others.
    """
    row_characters = (
        _LEGEND_CHARACTERS_PER_INCH * width_inches() * _FONT_POINTS / matplotlib.rcParams["legend.fontsize"]
    )
    columns_count = next(
        count
        for count in range(len(names), 0, -1)
        if count == 1 or _legend_characters(names, count) <= row_characters
    )
    more_rows = math.ceil(len(names) / columns_count) - 1
    figure.set_figheight(figure.get_figheight() + _LEGEND_ROW_INCHES * more_rows)
    figure.legend(handles, names, loc="outside lower left", ncols=columns_count)


def _legend_characters(names: Sequence[str], columns_count: int) -> int:
    """Width of a legend; matplotlib fills its columns in order, and the first ones get one entry more."""
    rows_count, longer_count = divmod(len(names), columns_count)
    names_left = iter(names)
    columns = [
        list(itertools.islice(names_left, rows_count + (column < longer_count)))
        for column in range(columns_count)
    ]
    return sum(max(map(len, column)) + 8 for column in columns)


def beside(axes: Axes, row: int, text: str, colour: str = BLACK) -> None:
    # 1 is the right end of the axes, so that the text covers no bars or marks.
    text = text.partition(" · ")[0] if is_narrow() else text
    axes.text(1.015, row, text, transform=axes.get_yaxis_transform(), va="center", color=colour)
