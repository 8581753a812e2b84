"""Every codec on every collective: it runs and keeps its promise, or it is refused with advice that works."""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from netfold.homomorphic.codecs import codec_kinds
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.matrix import cells
from netfold.sim.matrix.cells import REFUSED, STEPS, Cell
from netfold.sim.matrix.make import Matrix, Wanted, columns_of, make_matrix, rows_of
from netfold.sim.matrix.table import PAGE_COMMAND, matrix_page
from netfold.sim.results.verdicts import GOOD, kind
from tests import ROOT
from tests.examples import nightly
from tests.sim.matrix.advice import ignored

PAGE = ROOT / "docs" / "matrix.md"
ROWS = [row.name for row in rows_of()]
ELEMENTS = 64 * 128 + 128 + 128 * 10 + 10  # of the classifier: two layers, each with a bias


# One row for each way of merging: sums of integers and of floats in switches, lists between hosts.
OF_ALL_DAYS = ("fixed_point:factor=1e6", "none", "topk")


@functools.cache
def matrix_of(codec: str, collective: str = "") -> Matrix:
    """One row."""
    kinds = (collective,) if collective else ()
    return make_matrix(Wanted((codec,), kinds), lambda *_: None)


@functools.cache
def planned(codec: str, collective: str = "") -> Matrix:
    """One row, in which what can be planned is taken to run and to pass."""
    with pytest.MonkeyPatch.context() as patch:
        nothing = SimpleNamespace(facts=None, records=None, jobs=[SimpleNamespace(journal=None)])
        patch.setattr(cells, "run_variant", lambda *_, **__: nothing)
        patch.setattr(cells, "summarize", lambda *_: {"variants": [None]})
        times_us = itertools.count(1.0)  # a page shows times that are the same once
        patch.setattr(
            cells, "_outcome", lambda entry: {"verdict": "pass", "aggregation_time_us": next(times_us)}
        )
        patch.setattr(cells, "_checked", lambda journal: {})
        return matrix_of.__wrapped__(codec, collective)


@pytest.fixture(
    scope="module", params=[pytest.param(row, marks=() if row in OF_ALL_DAYS else nightly) for row in ROWS]
)
def row(request: pytest.FixtureRequest) -> Matrix:
    """One codec's cells; all tests of a codec run one after the other, so it is made once."""
    return matrix_of(request.param)


def told(page: str) -> dict[str, list[str]]:
    """The cells of every row of a page, by its codec, with reasons instead of their numbers."""
    reasons = dict(re.findall(r"^\* \[(\d+)\] (.*)$", page, re.MULTILINE))
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", page, re.MULTILINE)
    return {
        codec: [re.sub(r"\[(\d+)\]", lambda found: reasons[found[1]], cell) for cell in cells.split(" | ")]
        for codec, cells in rows
    }


@pytest.mark.slow
def test_what_runs_keeps_its_promise(row: Matrix) -> None:
    assert [(cell.column, cell.loss) for cell in row.cells] == [
        (column.name, loss) for column in columns_of() for loss in ("", "1%")
    ]
    assert [cell for cell in row.cells if cell.verdict == REFUSED] == [
        cell for cell in planned(row.rows[0]).cells if cell.verdict == REFUSED
    ]
    for cell in row.cells:
        if cell.verdict != REFUSED:
            assert kind(cell.verdict) in GOOD, cell
            assert_was_checked(cell)
    assert any(cell.packets_lost for cell in row.cells)


@pytest.mark.parametrize("codec", ROWS)
def test_what_is_refused_is_advised_well(codec: str) -> None:
    """Each row runs somewhere, and what a refusal names can be planned."""
    found = planned(codec).cells

    assert any(cell.verdict != REFUSED for cell in found)
    for cell in found:
        if cell.verdict == REFUSED:
            assert cell.reason, cell
            assert ignored(cell, found, lambda *of: planned(*of).cells) == [], cell


def assert_was_checked(cell: Cell) -> None:
    """The checks of a cell have compared what was carried, and what was decoded."""
    assert cell.checked_words, cell
    assert cell.checked_elements, cell
    assert cell.wire_bytes_up, cell
    estimates = int(cell.verdict.split()[1]) if kind(cell.verdict) == "approximate" else 0
    assert cell.checked_elements == STEPS * ELEMENTS - estimates, cell
    if not cell.loss:
        assert (cell.packets_lost, cell.packets_retransmitted) == (0, 0), cell


@pytest.mark.parametrize("codec", ROWS)
def test_the_page_says_what_runs(codec: str) -> None:
    """Which cells run and which are refused, and why: the page without its numbers."""
    shown, found = (told(page)[codec] for page in (PAGE.read_text("utf-8"), matrix_page(planned(codec))))

    assert [without_numbers(cell) for cell in shown] == [without_numbers(cell) for cell in found], (
        PAGE_COMMAND
    )


def test_the_page_has_the_numbers(row: Matrix) -> None:
    (codec,) = row.rows

    assert told(PAGE.read_text("utf-8"))[codec] == told(matrix_page(row))[codec], PAGE_COMMAND


def without_numbers(cell: str) -> str:
    return re.sub(r"[\d.]+ [µmk]?[sB]\b|–", "#", cell)


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
    found = planned("topk").cells
    refused = next(cell for cell in found if cell.column == "in_network atp")

    assert refused.verdict == REFUSED
    assert ignored(replace(refused, hint=hint), found, lambda *of: planned(*of).cells) == fails
