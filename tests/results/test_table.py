"""The terminal's table: no name is cut, however narrow the terminal."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.console import Console

from sim.report.table import results_table
from sim.results import Reference
from tests.results.builders import LOSSLESS, RING, Fake, summary


def test_terminal_table_fits_a_hundred_columns() -> None:
    long = replace(LOSSLESS, name="lossless-with-a-name-that-goes-on", verdict="fail")
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(results_table({"scenario": "quick", "seed": 7, **summary(RING, long)}))
    lines = capture.get().splitlines()

    assert max(map(len, lines)) <= 100
    assert long.name in capture.get()
    assert re.search(r"ring .* 128 µs .* 15\.6 M .* 8\.20 kB .* yes .* pass", capture.get())
    assert re.search(r"48\.0 µs .* 41\.7 M .* 1\.80 kB .* no .* fail", capture.get())


def printed(width: int, *fakes: Fake) -> list[str]:
    """Lines of the terminal's table."""
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(results_table({"scenario": "quick", "seed": 7, **summary(*fakes)}))
    return capture.get().splitlines()


def headings(lines: list[str]) -> list[str]:
    return [heading.strip() for heading in lines[2].strip("┃").split("┃")]


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (100, set()),
        (90, {"compression"}),
        (80, {"compression", "× first"}),
        (64, {"compression", "× first", "wire/worker"}),
        (40, {"compression", "× first", "wire/worker", "exact", "aggregation"}),
    ],
)
def test_a_narrow_terminal_loses_columns_but_no_name(width: int, left_out: set[str]) -> None:
    lines = printed(width, replace(RING, name="lossless-x"), LOSSLESS)
    everything = headings(printed(200, RING))

    assert set(everything) - set(headings(lines)) == left_out
    assert "lossless-x" in lines[4]
    assert max(map(len, lines)) <= width
    assert not any(line.endswith(" ") for line in lines)


def test_training_loss_has_a_column_where_something_was_trained() -> None:
    lines = printed(200, replace(RING, losses=(2.3, 1.87)), LOSSLESS)

    assert headings(lines)[-2:] == ["training loss", "verdict"]
    assert "2.30 → 1.87" in lines[4]
    assert "│ – " in lines[5]


def test_published_figures_stand_below_the_table() -> None:
    references = (
        Reference("published", 2.82e9, "a paper, figure 4"),
        Reference("wire bound, dense", 3e9, "–"),
    )
    lines = printed(100, replace(RING, references=references), LOSSLESS)

    assert lines[-1] == "published for ring: 2.82 G elements/s, a paper, figure 4"
    assert not any("bound" in line for line in lines)
