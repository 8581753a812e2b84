"""What must not pass does not: totals that are wrong, codecs that cannot be used, commands with mistakes."""

from __future__ import annotations

import json

import polars as pl
import pytest
from typer.testing import CliRunner

import netfold
from netfold.homomorphic.codecs import codec_kinds
from netfold.sim.commands.main import app
from netfold.sim.matrix.cells import REFUSED, Bench
from netfold.sim.matrix.make import Wanted, columns_of, make_matrix, rows_of
from tests.sim.matrix.toys import HasSetting, NeedsScale, damaged
from tests.sim.toys import registered


@pytest.mark.parametrize("kind", sorted(codec_kinds()))
def test_a_wrong_total_breaks_the_promise_of_every_codec(kind: str) -> None:
    twin = damaged(codec_kinds()[kind])
    with registered(twin):
        found = make_matrix(Wanted((twin.kind,), ("parameter_server",), loss="0%"), lambda *_: None)

    (cell,) = found.cells
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


def test_a_cell_that_gets_stuck_fails() -> None:
    result = CliRunner().invoke(
        app, ["codecs", "matrix", "topk", "--collective", "all_gather", "--loss", "100%"]
    )

    assert result.exit_code == 1
    assert "stuck [1]" in result.output
    assert "[1] finishes: likely cause: link h0->s0 loses every packet" in result.output


def test_table_json_and_page_have_the_same_cells() -> None:
    words = ["codecs", "matrix", "topk", "--collective", "ring", "--collective", "all_gather"]
    table, page, text = (
        CliRunner().invoke(app, [*words, *more]).stdout for more in ([], ["--markdown"], ["--json"])
    )
    told = json.loads(text)
    refused, clean, lossy = told["cells"][0], *told["cells"][2:]

    assert (told["workers"], told["steps"], told["seed"]) == (4, 3, 1)
    assert (clean["verdict"], lossy["verdict"], lossy["loss"]) == ("pass", "pass", "1%")
    assert lossy["packets_retransmitted"] > clean["packets_retransmitted"] == 0
    reason = refused["reason"].replace("codec 'topk'", "the codec")
    for shown in (table, page):
        assert f"{clean['aggregation_time_us']:.2f} µs, {lossy['aggregation_time_us']:.3g} µs" in shown
        assert f"[1] {reason}; {refused['hint']}" in shown


def test_codecs_that_are_refused_alike_share_a_note() -> None:
    words = ["codecs", "matrix", "topk", "sasg", "fp16", "--collective", "in_network", "--loss", "0%"]

    page = CliRunner().invoke(app, [*words, "--markdown"]).stdout

    assert [line.partition(", ")[0] for line in page.splitlines() if line.startswith("* [")] == [
        "* [1] the codec needs gather",
        "* [2] the codec needs host",
    ]
    assert page.count("refused [1]") == 2 * page.count("refused [2]") > 0


@pytest.mark.parametrize(("workers", "told"), [(1, "1 worker on a star"), (2, "2 workers on a star")])
def test_the_title_counts_workers(workers: int, told: str) -> None:
    words = ["codecs", "matrix", "topk", "--collective", "ring", "--workers", str(workers), "--markdown"]

    assert f"* {told}, 100 Gbps" in CliRunner().invoke(app, words).stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["topkk"], "topkk: cannot use 'topkk' as a kind\n  did you mean 'topk'? allowed: auto, "),
        (["topk:share=2"], "topk:share=2: share is 2.0: must be above 0 and at most 1, "),
        (["--collective", "rng"], "there is no collective 'rng'\n  did you mean 'ring'? known: ring, "),
        (["--switch", "tofino3"], "there is no switch profile 'tofino3'\n  did you mean 'tofino2'? known: "),
        (["--json", "--markdown"], "--json and --markdown are both given; leave out one"),
    ],
)
def test_mistakes_are_told_before_anything_runs(words: list[str], told: str) -> None:
    result = CliRunner().invoke(app, ["codecs", "matrix", *words])

    assert result.exit_code == 2
    assert told in result.stderr
