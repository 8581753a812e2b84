"""The picture of the way of a gradient through netfold, which `make generated` writes."""

from __future__ import annotations

from html import escape
from typing import NamedTuple

from netfold.sim.report.style import BLACK, BLUE, GREEN, MIDDLE_GREY, ORANGE, SLATE

_COLUMN, _ROW, _WIDTH, _HEIGHT, _MARGIN = 186, 104, 158, 70, 16


class Box(NamedTuple):
    """What happens to a gradient at one place, and the folder of netfold/ that does it."""

    column: int
    row: int
    name: str
    text: str
    folder: str
    colour: str = SLATE


BOXES = (
    Box(0, 0, "Workload", "a gradient per worker", "sim/workload"),
    Box(1, 0, "Codec", "encodes it as words", "homomorphic", ORANGE),
    Box(2, 0, "Collective", "who sends what to whom", "sim/collectives"),
    Box(3, 0, "Network", "links, queues, losses", "sim/engine, topologies", BLUE),
    Box(4, 0, "Switch", "merges words in registers", "switch", BLUE),
    Box(4, 1, "Network", "brings the merged words", "sim/engine, topologies", BLUE),
    Box(3, 1, "Codec", "decodes their sum", "homomorphic", ORANGE),
    Box(0, 1, "Optimizer", "takes the step", "sim/workload"),
    Box(3, 2, "Checks", "are all sums right?", "sim/checks", GREEN),
    Box(2, 2, "Run folder", "tables of every step", "sim/results", GREEN),
    Box(1, 2, "Report", "answer, figures, verdict", "sim/report", GREEN),
)
ARROWS = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 0), (6, 8), (8, 9), (9, 10))


def picture() -> str:
    """An SVG of 5 columns and 3 rows, on white, so that it can be read on dark pages too."""
    width, height = 5 * _COLUMN - (_COLUMN - _WIDTH) + 2 * _MARGIN, 2 * _ROW + _HEIGHT + 2 * _MARGIN
    drawn = "\n".join([*(_arrow(BOXES[begin], BOXES[end]) for begin, end in ARROWS), *map(_box, BOXES)])
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size}
 font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="11" fill="{BLACK}" text-anchor="middle">
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>
<rect width="100%" height="100%" rx="8" fill="#ffffff"/>
{drawn}
</svg>
"""


def _box(box: Box) -> str:
    x, y = _corner(box)
    middle = x + _WIDTH // 2
    return f"""<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#ffffff"
 stroke="{box.colour}" stroke-width="2"/>
<text x="{middle}" y="{y + 22}" font-size="14" font-weight="bold">{escape(box.name)}</text>
<text x="{middle}" y="{y + 41}">{escape(box.text)}</text>
<text x="{middle}" y="{y + 58}" font-size="10" fill="#5c5c5c">{escape(box.folder)}</text>"""


def _arrow(begin: Box, end: Box) -> str:
    """From the middle of a side to the middle of the facing side."""
    (x, y), (to_x, to_y) = _corner(begin), _corner(end)
    if begin.column == end.column:
        x, to_x = x + _WIDTH // 2, to_x + _WIDTH // 2
        y, to_y = (y + _HEIGHT, to_y) if begin.row < end.row else (y, to_y + _HEIGHT)
    else:
        y, to_y = y + _HEIGHT // 2, to_y + _HEIGHT // 2
        x, to_x = (x + _WIDTH, to_x) if begin.column < end.column else (x, to_x + _WIDTH)
    return (
        f'<path d="M {x} {y} L {to_x} {to_y}" fill="none" stroke="{MIDDLE_GREY}" stroke-width="2" '
        'marker-end="url(#head)"/>'
    )


def _corner(box: Box) -> tuple[int, int]:
    return _MARGIN + box.column * _COLUMN, _MARGIN + box.row * _ROW
