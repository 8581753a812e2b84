"""Every codec on every collective: it runs and keeps its promise, or it is refused with advice that works."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import pytest

from netfold.homomorphic.codecs import codec_kinds
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.matrix.cells import REFUSED, STEPS, Cell
from netfold.sim.matrix.make import Matrix, Wanted, columns_of, make_matrix, rows_of
from netfold.sim.matrix.table import PAGE_COMMAND, matrix_page
from netfold.sim.results.verdicts import GOOD, kind
from tests import ROOT
from tests.sim.matrix.advice import ignored

PAGE = ROOT / "docs" / "matrix.md"
ROWS = [row.name for row in rows_of()]
ELEMENTS = 64 * 128 + 128 + 128 * 10 + 10  # of the classifier: two layers, each with a bias


@pytest.fixture(scope="module", params=ROWS)
def row(request: pytest.FixtureRequest) -> Matrix:
    """One codec's cells; all tests of a codec run one after the other, so it is made once."""
    return matrix_of(request.param)


@functools.cache
def matrix_of(codec: str, collective: str = "") -> Matrix:
    """One row."""
    kinds = (collective,) if collective else ()
    return make_matrix(Wanted((codec,), kinds), lambda *_: None)


def cells_of(codec: str, collective: str) -> tuple[Cell, ...]:
    return matrix_of(codec, collective).cells


def told(page: str) -> dict[str, list[str]]:
    """The cells of every row of a page, by its codec, with reasons instead of their numbers."""
    reasons = dict(re.findall(r"^\* \[(\d+)\] (.*)$", page, re.MULTILINE))
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", page, re.MULTILINE)
    return {
        codec: [re.sub(r"\[(\d+)\]", lambda found: reasons[found[1]], cell) for cell in cells.split(" | ")]
        for codec, cells in rows
    }


def test_a_codec_on_every_collective(row: Matrix) -> None:
    cells = row.cells

    assert [(cell.column, cell.loss) for cell in cells] == [
        (column.name, loss) for column in columns_of() for loss in ("", "1%")
    ]
    for cell in cells:
        if cell.verdict == REFUSED:
            assert cell.reason, cell
            assert ignored(cell, cells, cells_of) == [], cell
        else:
            assert kind(cell.verdict) in GOOD, cell
            assert_was_checked(cell)
    assert any(cell.verdict != REFUSED for cell in cells)
    assert any(cell.packets_lost for cell in cells)


def assert_was_checked(cell: Cell) -> None:
    """The checks of a cell have compared what was carried, and what was decoded."""
    assert cell.checked_words, cell
    assert cell.checked_elements, cell
    assert cell.wire_bytes_up, cell
    estimates = int(cell.verdict.split()[1]) if kind(cell.verdict) == "approximate" else 0
    assert cell.checked_elements == STEPS * ELEMENTS - estimates, cell
    if not cell.loss:
        assert (cell.packets_lost, cell.packets_retransmitted) == (0, 0), cell


def test_the_page_says_what_runs(row: Matrix) -> None:
    """Which cells run and which are refused, and why: the page without its numbers."""
    (codec,) = row.rows
    shown, found = (told(page)[codec] for page in (PAGE.read_text("utf-8"), matrix_page(row)))

    assert [without_numbers(cell) for cell in shown] == [without_numbers(cell) for cell in found], (
        PAGE_COMMAND
    )


def test_the_page_has_the_numbers(row: Matrix) -> None:
    (codec,) = row.rows

    assert told(PAGE.read_text("utf-8"))[codec] == told(matrix_page(row))[codec], PAGE_COMMAND


def without_numbers(cell: str) -> str:
    return re.sub(r"[\d.]+ [µmk]?[sB]\b", "#", cell)


def test_the_page_has_every_row_and_column() -> None:
    text = PAGE.read_text("utf-8")
    heading = ["codec", "promise", *(column.name for column in columns_of())]

    assert list(told(text)) == ROWS
    assert f"| {' | '.join(heading)} |\n" in text
    assert PAGE_COMMAND in text


def test_rows_and_columns_are_those_of_the_registries() -> None:
    assert {row.codec.kind for row in rows_of() if row.codec} == set(codec_kinds())
    assert {column.collective for column in columns_of()} == set(COLLECTIVES)


@pytest.mark.parametrize(
    ("hint", "fails"),
    [
        ("use collective.kind: ring or all_gather", ["collective ring"]),
        ("use program switchml", ["choice switchml", "nothing of it works with loss "]),
        ("use {kind: topk, share: 0.1} or all_gather", ["codec {kind: topk, share: 0.1}"]),
        ("think again", ["nothing that works is named: 'think again'"]),
        ("use collective.kind: all_gather", []),
        ("use {kind: fixed_point, factor: 1e6}", []),
    ],
)
def test_advice_that_does_not_work_is_noticed(hint: str, fails: list[str]) -> None:
    cells = matrix_of("topk").cells
    refused = next(cell for cell in cells if cell.column == "in_network atp")

    assert refused.verdict == REFUSED
    assert ignored(replace(refused, hint=hint), cells, cells_of) == fails
