"""Every codec on every collective: it runs and keeps its promise, or it is refused with advice that works."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace

import polars as pl
import pytest
from ruamel.yaml import YAML
from typer.testing import Result

import netfold
from netfold.homomorphic.codec import codec_kinds
from netfold.sim.collectives.collective import collectives
from netfold.sim.results.summary import GOOD, kind
from netfold.sim.studies import matrix as cells
from netfold.sim.studies.matrix import (
    PAGE_COMMAND,
    REFUSED,
    STEPS,
    Bench,
    Cell,
    MatrixResult,
    columns_of,
    matrix,
    rows_of,
)
from tests import ROOT
from tests.command_line import run_command
from tests.examples import nightly
from tests.registry import registered
from tests.sim.studies.matrix_toys import HasSetting, NeedsScale, damaged

Run = Callable[[str, str], Iterable[Cell]]  # the cells of a codec on a collective
# Where a hint names programs of in_network: `tree` is a program there, and elsewhere a collective.
_PROGRAMS = re.compile(r"(?<=\bin_network )\w+|\bprograms?\b(?:(?!\bcollective)[^;])*")
_CHOICES = {choice: kind for kind, spec in collectives().items() for choice in spec.choices() if choice}


def ignored(cell: Cell, others: Sequence[Cell], run: Run) -> list[str]:
    """Parts of a refusal's advice that do not work; that there is no advice is one, too.

    `others` are all cells of the codec. What is refused without loss, too, has advice for a network without
    loss; with loss some of it has to work.
    """
    found = _advised(cell, others, run)
    if not found:
        return [f"nothing that works is named: {cell.hint!r}"]
    refused = {one.loss for one in others if one.column == cell.column and one.verdict == REFUSED}
    failed = [name for name, losses in found.items() if min(refused) not in losses]
    if not any(cell.loss in losses for losses in found.values()):
        failed.append(f"nothing of it works with loss {cell.loss}")
    return failed


def _advised(cell: Cell, others: Sequence[Cell], run: Run) -> dict[str, set[str]]:
    """What a hint names: collectives, their choices and codecs; and the losses with which each works.

    A collective works if one of its choices does.
    """
    codecs = re.findall(r"\{kind: [^}]*\}", cell.hint)
    text = re.sub(r"\{kind: [^}]*\}", "", cell.hint)
    programs = set(re.findall(r"\w+", " ".join(_PROGRAMS.findall(text))))
    words = set(re.findall(r"\w+", _PROGRAMS.sub(" ", text)))
    ran = [one for one in others if one.verdict != REFUSED]
    found = {
        f"choice {name}": {one.loss for one in ran if (one.collective, one.choice) == (kind, name)}
        for name, kind in _CHOICES.items()
        if name in programs or (name in words and name not in collectives())
    }
    for used in words & collectives().keys():
        found[f"collective {used}"] = {one.loss for one in ran if one.collective == used}
    for codec in codecs:
        cells = [one for one in run(_named(codec), cell.collective) if one.choice == cell.choice]
        found[f"codec {codec}"] = {one.loss for one in cells if one.verdict == "pass"}
    return found


def _named(text: str) -> str:
    """KIND:OPTION=VALUE,… of a codec as a scenario writes it."""
    section = YAML(typ="safe").load(text)
    options = ",".join(f"{key}={value}" for key, value in section.items() if key != "kind")
    return f"{section['kind']}:{options}" if options else str(section["kind"])


PAGE = ROOT / "docs" / "matrix.md"
ROWS = [row.name for row in rows_of()]
some_rows = pytest.mark.parametrize(
    "codec", [pytest.param(row, marks=() if index % 8 == 0 else nightly) for index, row in enumerate(ROWS)]
)
ELEMENTS = 64 * 128 + 128 + 128 * 10 + 10  # of the classifier: two layers, each with a bias


OF_ALL_DAYS = ("none",)  # `tests/pairs` runs all codecs


@functools.cache
def matrix_of(codec: str, collective: str = "") -> MatrixResult:
    """One row."""
    return matrix([codec], collectives=[collective] if collective else ())


@functools.cache
def planned(codec: str, collective: str = "") -> MatrixResult:
    """One row, in which what can be planned is taken to run and to pass."""
    with pytest.MonkeyPatch.context() as patch:
        nothing = SimpleNamespace(facts=None, records=None, jobs=[SimpleNamespace(journal=None)])
        patch.setattr(cells, "run_variant", lambda *_, **__: nothing)
        patch.setattr(cells, "summarize", lambda *_: {"variants": [None]})
        times_us = itertools.count(1.0)  # a page shows times that are the same once
        patch.setattr(
            cells, "_outcome", lambda entry: {"verdict": "pass", "aggregation_time_us": next(times_us)}
        )
        patch.setattr(cells, "_count_checked", lambda journal: {})
        return matrix_of.__wrapped__(codec, collective)


@pytest.fixture(
    scope="module", params=[pytest.param(row, marks=() if row in OF_ALL_DAYS else nightly) for row in ROWS]
)
def row(request: pytest.FixtureRequest) -> MatrixResult:
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
def test_what_runs_keeps_its_promise(row: MatrixResult) -> None:
    assert [(cell.column, cell.loss) for cell in row.records] == [
        (column.name, loss) for column in columns_of() for loss in ("", "1%")
    ]
    assert [cell for cell in row.records if cell.verdict == REFUSED] == [
        cell for cell in planned(row.records[0].codec).records if cell.verdict == REFUSED
    ]
    for cell in row.records:
        if cell.verdict != REFUSED:
            assert kind(cell.verdict) in GOOD, cell
            assert_was_checked(cell)
    assert any(cell.packets_lost for cell in row.records)


@some_rows
def test_what_is_refused_is_advised_well(codec: str) -> None:
    """Each row runs somewhere, and what a refusal names can be planned."""
    found = planned(codec).records

    assert any(cell.verdict != REFUSED for cell in found)
    for cell in found:
        if cell.verdict == REFUSED:
            assert cell.reason, cell
            assert ignored(cell, found, lambda *of: planned(*of).records) == [], cell


def assert_was_checked(cell: Cell) -> None:
    """The checks of a cell have compared what was carried, and what was decoded."""
    assert cell.checked_words, cell
    assert cell.checked_elements, cell
    assert cell.wire_bytes_up, cell
    estimates = int(cell.verdict.split()[1]) if kind(cell.verdict) == "approximate" else 0
    assert cell.checked_elements == STEPS * ELEMENTS - estimates, cell
    if not cell.loss:
        assert (cell.packets_lost, cell.packets_retransmitted) == (0, 0), cell


@some_rows
def test_the_page_says_what_runs(codec: str) -> None:
    """Which cells run and which are refused, and why: the page without its numbers."""
    shown, found = (told(page)[codec] for page in (PAGE.read_text("utf-8"), planned(codec).page()))

    assert [without_numbers(cell) for cell in shown] == [without_numbers(cell) for cell in found], (
        PAGE_COMMAND
    )


def test_the_page_has_the_numbers(row: MatrixResult) -> None:
    codec = row.records[0].codec

    assert told(PAGE.read_text("utf-8"))[codec] == told(row.page())[codec], PAGE_COMMAND


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
    assert {column.collective for column in columns_of()} == set(collectives())


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
    found = planned("topk").records
    refused = next(cell for cell in found if cell.column == "in_network atp")

    assert refused.verdict == REFUSED
    assert ignored(replace(refused, hint=hint), found, lambda *of: planned(*of).records) == fails


@pytest.mark.parametrize("kind", sorted(codec_kinds()))
def test_a_wrong_total_breaks_the_promise_of_every_codec(kind: str) -> None:
    twin = damaged(codec_kinds()[kind])
    with registered(twin):
        found = matrix([twin.kind], collectives=["parameter_server"], loss="0%")

    (cell,) = found.records
    assert (cell.verdict, cell.reason.partition(":")[0]) == ("fail", "sum_is_right")
    assert found.failed == [cell]


def test_a_codec_that_needs_an_option_is_a_row() -> None:
    with registered(NeedsScale, HasSetting):
        rows = {row.name: row for row in rows_of()}
        setting, refused = (
            cell
            for name in ("has_setting:scale=2", "needs_scale")
            for cell in Bench(4, ("plain",), "", 1).cells(rows[name], *columns_of(["ring"]))
        )
        given = netfold.matrix("needs_scale:scale=4", collectives=["ring", "in_network"], loss="0%")

    assert rows["has_setting:scale=2"].section == {"kind": "has_setting", "scale": 2.0}
    assert (setting.codec, setting.verdict) == ("has_setting:scale=2", "pass")
    assert (refused.verdict, refused.reason, refused.hint) == (
        REFUSED,
        "needs_scale: the key 'scale' is missing",
        "name it with its options, needs_scale:OPTION=VALUE, or give its class `settings`",
    )
    ran = given.cells.filter(pl.col("verdict") == "pass")
    assert ran.select("collective", "choice", "switch").rows() == [
        ("ring", "", "plain"),
        ("in_network", "switchml", "fpga"),
        ("in_network", "tree", "sharp"),
    ]
    assert given.passes


def test_the_switch_is_the_one_that_can_do_least() -> None:
    found = netfold.matrix(["none", "majority"], collectives="in_network", loss="0%").cells
    ran = found.filter(pl.col("verdict") == "pass").select("codec", "choice", "switch")

    assert ran.rows() == [
        ("none", "switchml", "fpga"),  # the first that adds floats and runs the program
        ("none", "tree", "sharp"),
        ("none", "timed", "ideal"),
        ("majority", "switchml", "tofino1"),
        ("majority", "tree", "sharp"),
    ]


def test_more_workers_than_lanes_are_told_first() -> None:
    found = netfold.matrix("majority", workers=16, loss="0%").cells

    assert set(found["reason"]) == {"majority has room for 15 workers, found 16"}
    assert set(found["hint"]) == {"use at most 15 workers, or another codec"}


def printed(*words: str) -> Result:
    """What the command says."""
    return run_command("codecs", "matrix", *words)


def test_a_cell_that_stalls_fails() -> None:
    result = printed("topk", "--collective", "all_gather", "--loss", "100%")

    assert result.exit_code == 1
    assert "stalled [1]" in result.output
    assert "[1] finishes: likely cause: link h0->s0 loses every packet" in result.output


def test_table_json_and_page_have_the_same_cells() -> None:
    words = ("topk", "--collective", "ring", "--collective", "all_gather", "--loss", "10%")
    table, page, text = (printed(*words, *more).stdout for more in ([], ["--markdown"], ["--json"]))
    told = json.loads(text)
    refused, clean, lossy = told["cells"][0], *told["cells"][2:]

    assert (told["workers"], told["steps"], told["seed"]) == (4, 3, 1)
    assert (clean["verdict"], lossy["verdict"], lossy["loss"]) == ("pass", "pass", "10%")
    assert lossy["packets_retransmitted"] > clean["packets_retransmitted"] == 0
    reason = refused["reason"].replace("codec 'topk'", "the codec")
    for shown in (table, page):
        assert f"{clean['aggregation_time_us']:.2f} µs, {lossy['aggregation_time_us']:.3g} µs" in shown
        assert f"[1] {reason}; {refused['hint']}" in shown


def test_codecs_that_are_refused_alike_share_a_note() -> None:
    page = printed("topk", "sasg", "fp16", "--collective", "in_network", "--loss", "0%", "--markdown").stdout

    assert [line.partition(", ")[0] for line in page.splitlines() if line.startswith("* [")] == [
        "* [1] the codec needs gather",
        "* [2] the codec needs host",
    ]
    assert page.count("refused [1]") == 2 * page.count("refused [2]") > 0


@pytest.mark.parametrize(("workers", "told"), [(1, "1 worker on a star"), (2, "2 workers on a star")])
def test_the_title_counts_workers(workers: int, told: str) -> None:
    page = printed("topk", "--collective", "ring", "--workers", str(workers), "--markdown").stdout
    assert f"* {told}, 100 Gbps" in page


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["topkk"], "topkk: cannot use 'topkk' as a kind\n  did you mean 'topk'? allowed: auto, "),
        (["topk:share=2"], "topk:share=2: share is 2.0: must be above 0 and at most 1, "),
        (["--collective", "rng"], "there is no collective 'rng'\n  did you mean 'ring'? known: ring, "),
        (["--switch", "tofino3"], "there is no switch profile 'tofino3'\n  did you mean 'tofino2'? known: "),
        (["--loss", "half"], "loss: "),
        (["--json", "--markdown"], "--json and --markdown are both given; leave out one"),
    ],
)
def test_mistakes_are_told_before_anything_runs(words: list[str], told: str) -> None:
    result = printed(*words)

    assert result.exit_code == 2
    assert told in result.stderr
