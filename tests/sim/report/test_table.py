"""The terminal's table: no name is cut, however narrow the terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.console import Console

from netfold.sim.report.table import results_table
from netfold.sim.report.warnings import warnings
from netfold.sim.results import Reference
from tests.sim.results.builders import LOSSLESS, RING, Fake, summary


def test_terminal_table_fits_a_hundred_columns() -> None:
    long = replace(LOSSLESS, name="lossless-with-a-name-that-goes-on", verdict="fail")
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(results_table({"scenario": "quick", "seed": 7, **summary(RING, long)}))
    lines = capture.get().splitlines()

    assert max(map(len, lines)) <= 100
    assert long.name in capture.get()
    assert re.search(r"ring .* 128 µs .* 168 µs .* 15\.6 M .* pass", capture.get())
    assert re.search(r"48\.0 µs .* 88\.0 µs .* 41\.7 M .* fail", capture.get())
    assert re.search(r"ring +│ +8\.20 kB .* yes", capture.get())
    assert re.search(r"lossless-with-a-name-that-goes-on │ +1\.80 kB │ +5\.00 × │ yes ", capture.get())


def printed(width: int, *fakes: Fake) -> list[str]:
    """Lines of the terminal's table."""
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(results_table({"scenario": "quick", "seed": 7, **summary(*fakes)}), crop=False)
    return capture.get().splitlines()


def headings(lines: list[str]) -> list[str]:
    return [heading.strip() for heading in lines[2].strip("┃").split("┃")]


def all_headings(lines: list[str]) -> list[list[str]]:
    """Headings of each table, one below the other."""
    return [
        [heading.strip() for heading in line.strip("┃").split("┃")] for line in lines if line.startswith("┃")
    ]


@pytest.mark.parametrize(
    ("width", "tables"),
    [
        (
            112,
            [
                [
                    "aggregation",
                    "elements/s",
                    "× baseline",
                    "bytes/worker",
                    "compression",
                    "bit-exact",
                    "verdict",
                ]
            ],
        ),
        (
            63,
            [
                ["aggregation", "verdict"],
                ["elements/s", "× baseline", "bytes/worker"],
                ["compression", "bit-exact"],
            ],
        ),
    ],
)
def test_a_narrow_terminal_breaks_the_table_and_leaves_out_nothing(
    width: int, tables: list[list[str]]
) -> None:
    alone = {"forward_us": 0, "backward_us": 0}  # the network takes all of a step
    lines = printed(width, replace(RING, name="lossless-x", **alone), replace(LOSSLESS, **alone))

    assert all_headings(lines) == [["variant", *table] for table in tables]
    assert sum(line.startswith("│ lossless-x ") for line in lines) == len(tables)
    assert max(map(len, lines)) <= width
    assert not any(line.endswith(" ") for line in lines)


def test_steps_have_a_column_where_compute_takes_time() -> None:
    alone = replace(LOSSLESS, forward_us=0, backward_us=0)  # the network takes all of a step
    lines = printed(200, RING, alone)

    assert headings(lines)[1:4] == ["aggregation", "iteration", "elements/s"]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert [row[1:3] for row in cells] == [["128 µs", "168 µs"], ["28.0 µs", "28.0 µs"]]
    assert "iteration" not in headings(printed(200, alone))


def test_a_lossy_variant_has_its_error_in_the_table_and_an_exact_one_says_so() -> None:
    lines = printed(250, replace(RING, bit_exact=None), replace(LOSSLESS, bit_exact=False))

    at = headings(lines).index("bit-exact")
    assert headings(lines)[at : at + 3] == ["bit-exact", "nmse", "cosine"]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert [row[at : at + 3] for row in cells] == [
        ["n/a", "2.50e-01", "0.5000"],
        ["no", "2.50e-01", "0.5000"],
    ]
    assert "nmse" not in headings(printed(250, RING, LOSSLESS))


def test_held_out_data_has_a_column_where_there_were_tests() -> None:
    lines = printed(200, replace(RING, losses=(2.3, 1.87), accuracies=(0.5, 0.942)), LOSSLESS)

    assert headings(lines)[-3:] == ["training loss", "held-out data", "verdict"]
    assert sum("accuracy 94.2 %" in line for line in lines) == 1


def test_time_is_broken_down_in_the_order_of_a_round() -> None:
    """Whatever came first in the records. Of 48 µs: 3, 2 · 16, 4 and 2 · 4; the last worker begins 1 late."""
    found = summary(LOSSLESS)
    found["variants"][0]["metrics"]["breakdown"].reverse()
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(results_table({"scenario": "quick", "seed": 7, **found}))

    assert "time of lossless: encode 6 %, values 67 %, index 8 %, decode 17 %, rank skew 2 %" in capture.get()


def test_published_figures_stand_below_the_table() -> None:
    references = (
        Reference("published", 2.82e9, "a paper, figure 4"),
        Reference("wire bound, dense", 3e9, "–"),
    )
    lines = printed(100, replace(RING, references=references), LOSSLESS)

    assert lines[-1] == "published for ring: 2.82 G elements/s, a paper, figure 4"
    assert not any("bound" in line for line in lines)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], []),
        (["a: slow"], ["a: slow"]),
        (["a: slow", "b: slow"], ["a, b: slow"]),
        (["a: slow", "b: late", "c: slow"], ["a, c: slow", "b: late"]),
        ([f"{name}: slow" for name in "abcd"], ["a, b, c, d: slow"]),
        ([f"{name}: slow" for name in "abcde"], ["a, b, c and 2 more: slow"]),
        ([f"{name}: slow" for name in "abcdef"], ["all variants: slow"]),
        (["the run was stopped"], ["the run was stopped"]),
        (["a: 8: too many", "elsewhere: b: slow"], ["a: 8: too many", "elsewhere: b: slow"]),
    ],
)
def test_each_text_is_there_once_with_those_that_have_it(given: list[str], told: list[str]) -> None:
    variants = [{"name": name} for name in "abcdef"]

    assert warnings({"variants": variants, "warnings": given}) == told


def test_of_one_variant_the_name_stays() -> None:
    assert warnings({"variants": [{"name": "a"}], "warnings": ["a: slow"]}) == ["a: slow"]
