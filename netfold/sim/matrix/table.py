"""The matrix as a terminal's table and as a page: a row for every codec, a column for every collective."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from rich.table import Table
from rich.text import Text

from netfold.sim.matrix.cells import REFUSED, STEPS, Cell
from netfold.sim.matrix.make import Matrix
from netfold.sim.report import words
from netfold.sim.report.compare import FittingTable
from netfold.sim.results.summary import GOOD, kind
from netfold.switch.profiles import PROFILES

PAGE_COMMAND = "netfold codecs matrix --markdown > docs/matrix.md"
_KEYS = ("codec", "promise")  # columns left of the collectives

Reasons = Mapping[tuple[str, str], int]  # reason and hint, to their number


def matrix_table(matrix: Matrix) -> Table:
    """Times, bytes and switch of every cell, and below them what was refused and why."""
    reasons = _reasons(matrix)
    notes = [*_legend(matrix), *(f"[{number}] {_sentence(*why)}" for why, number in reasons.items())]
    table = FittingTable(_title(matrix), notes, keys_count=len(_KEYS))
    for name in (*_KEYS, *matrix.columns):
        table.add_column(name)
    for codec, promise, cells in _rows(matrix):
        lines = ["\n".join(_lines(own, reasons)) for own in cells]
        table.add_row(*map(Text, (codec, promise, *lines)))  # Text: brackets are no markup
    return table


def matrix_page(matrix: Matrix) -> str:
    """The page `docs/matrix.md`."""
    reasons = _reasons(matrix)
    heading = (*_KEYS, *matrix.columns)
    rows = [
        (f"`{codec}`", promise, *("<br>".join(_lines(own, reasons)) for own in cells))
        for codec, promise, cells in _rows(matrix)
    ]
    return "\n".join(
        [
            "# Codecs and collectives: the matrix",
            "",
            f"Written by `{PAGE_COMMAND}`. Every codec that is registered, with the settings that it",
            "declares, on every collective; `in_network` has a column for each switch program.",
            "",
            *(f"* {line}" for line in [_title(matrix), *_legend(matrix)]),
            "",
            _row(heading),
            "|" + "---|" * len(heading),
            *map(_row, rows),
            "",
            "## Why some are refused, and what works",
            "",
            *(f"* [{number}] {_sentence(*why)}" for why, number in reasons.items()),
            "",
        ]
    )


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def _title(matrix: Matrix) -> str:
    wanted = matrix.wanted
    return (
        f"{words.counted(wanted.workers, 'worker')} on a star, 100 Gbps, 1 µs links; {STEPS} steps of the "
        f"small classifier of digits, 16 samples per worker; seed {wanted.seed}"
    )


def _legend(matrix: Matrix) -> list[str]:
    """What the lines of a cell are."""
    with_loss = (
        f", and with {matrix.wanted.loss} of the packets lost on every link" if matrix.wanted.loss else ""
    )
    return [
        f"first line: time of a step's aggregation{with_loss}; second line: bytes on a worker's link, up and "
        "down, per step, without loss; third line: the switch profile, the least capable one that can run "
        "the cell; without it, the switch only forwards",
        "a time means that all checks hold: every merged word is right, and every total keeps the codec's "
        "promise; ≈: some elements are estimates, which have no bound; [n]: refused or failed, see below",
    ]


def _rows(matrix: Matrix) -> list[tuple[str, str, list[list[Cell]]]]:
    """Codec, promise, and for every column the cells without and with loss."""
    found = []
    for codec, group in groupby(matrix.cells, lambda cell: cell.codec):
        own = list(group)
        by_column = [[cell for cell in own if cell.column == name] for name in matrix.columns]
        found.append((codec, own[0].promise, by_column))
    return found


def _reasons(matrix: Matrix) -> dict[tuple[str, str], int]:
    """Every reason and hint once, numbered from 1."""
    found = dict.fromkeys(map(_why, (cell for cell in matrix.cells if not _is_good(cell))))
    return {why: number for number, why in enumerate(found, start=1)}


def _why(cell: Cell) -> tuple[str, str]:
    """Reason and hint of a cell without the name of its codec, so that codecs share them."""
    kind_of_codec = cell.codec.partition(":")[0]
    return cell.reason.replace(f"codec {kind_of_codec!r}", "the codec"), cell.hint


def _sentence(reason: str, hint: str) -> str:
    return "; ".join(part.replace("\n", " ") for part in (reason, hint) if part)


def _is_good(cell: Cell) -> bool:
    return kind(cell.verdict) in GOOD


def _lines(cells: list[Cell], reasons: Reasons) -> list[str]:
    """The lines of a cell; two runs that end alike without a time are said once."""
    times = list(dict.fromkeys(_time(cell, reasons) for cell in cells))
    first = cells[0]
    if not _is_good(first):
        return [", ".join(times)]
    sizes = [words.scaled(size, "B") for size in (first.wire_bytes_up, first.wire_bytes_down)]
    lines = [", ".join(times), ", ".join(sizes)]
    return [*lines, first.switch] if PROFILES[first.switch].merges else lines


def _time(cell: Cell, reasons: Reasons) -> str:
    """The time of a cell; a verdict with the number of its reason, if it did not pass."""
    if _is_good(cell):
        return ("≈ " if kind(cell.verdict) != "pass" else "") + words.time(cell.aggregation_time_us)
    what = REFUSED if cell.verdict == REFUSED else kind(cell.verdict)
    return f"{what} [{reasons[_why(cell)]}]"
