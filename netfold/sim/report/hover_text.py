"""What a figure shows as numbers: a text under the pointer for each of its marks, and a table in its SVG.

`mark(bar, {"variant": "ring", "time_us": 12.5})` says what a bar is. In the SVG the bar then has the title
"ring · time 12.5 µs", and the figure's metadata is a CSV table with a row for every mark, which the page
offers as a file. So the numbers stay with the figure, and neither needs a script.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from netfold.sim.report import words

Row = Mapping[str, str | float | None]
"""Values by the name of their column, which ends with their unit; None: unknown."""
_ROWS = "rows_of_mark"
POINTS_MAX = 30
"""The most points of a line that have a mark of their own."""
_POINTS_OF_ALL = 150
"""So too of all lines of some axes together, but at least a tenth of that for each."""
_UNSEEN = 0.004  # opacity of a mark that is only found by a pointer; without any it would not be drawn
_UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_us", words.time),
    ("_bytes", lambda value: words.scaled(value, "B")),
    ("_per_s", lambda value: words.scaled(value, "/s")),
    ("_share", words.percent),
    ("", lambda value: f"{value}" if isinstance(value, int) else words.digits(value)),
)
_GROUP = re.compile(r'<g id="mark-(\d+)">')
_SHAPE = re.compile(r"<(path|use) (?!id=)([^>]*)/>")
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def mark(artist: Artist, *rows: Row) -> None:
    vars(artist)[_ROWS] = rows


def mark_points(
    axes: Axes, points: Sequence[tuple[float, float]], rows: Sequence[Row], lines_count: int = 1
) -> None:
    """Marks on one of several lines, which are not seen, at some of its points."""
    most = min(POINTS_MAX, max(_POINTS_OF_ALL // max(1, lines_count), _POINTS_OF_ALL // 10))
    step = -(-len(points) // most)
    if points:
        xs, ys = zip(*points[::step], strict=True)
        mark(axes.scatter(xs, ys, s=90, color="#000000", alpha=_UNSEEN, linewidth=0), *rows[::step])


def number_marks(figure: Figure) -> list[Sequence[Row]]:
    """Give marks the ids by which `write_marks` finds them; returns their rows."""
    marks: list[Sequence[Row]] = []
    for artist in (artist for axes in figure.axes for artist in axes.get_children()):
        if rows := vars(artist).get(_ROWS):
            artist.set_gid(f"mark-{len(marks)}")
            marks.append(rows)
    return marks


def write_marks(svg: str, marks: Sequence[Sequence[Row]]) -> str:
    """The SVG with a title in every mark, and the table of all of them as its metadata."""
    head, *rest = _GROUP.split(svg)
    written = [head]
    for number, group in zip(rest[::2], rest[1::2], strict=True):
        rows = marks[int(number)]
        written += ["<g>", _SHAPE.sub(partial(_titled, iter(rows)), group, count=len(rows))]
    table = html.escape(to_csv([row for rows in marks for row in rows]), quote=False)
    return _METADATA.sub(lambda _: f"<metadata>{table}</metadata>", "".join(written), count=1)


def _titled(rows: Iterator[Row], shape: re.Match[str]) -> str:
    name, attributes = shape.groups()
    return f"<{name} {attributes}><title>{html.escape(row_text(next(rows)), quote=False)}</title></{name}>"


def row_text(row: Row) -> str:
    """A row for people: texts as they are, numbers with their name and unit."""
    return " · ".join(
        value if isinstance(value, str) else _number_text(name, value)
        for name, value in row.items()
        if value is not None and value != ""
    )


def _number_text(name: str, value: float) -> str:
    suffix, text = next((suffix, text) for suffix, text in _UNITS if name.endswith(suffix))
    return f"{name.removesuffix(suffix).replace('_', ' ')} {text(value)}"


def to_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV (RFC 4180, lines end with a line feed), with the columns of all of them.

    A text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
    return target.getvalue() if rows else ""


def _cell(value: str | float | None) -> str | float:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value
