"""The figures of a sweep: what is on which axis, and that the same table gives the same bytes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest

from netfold.sim.report import style
from netfold.sim.sweep.figures import draw, sweep_figures
from netfold.sim.sweep.grid import Grid, metrics_of
from netfold.sim.sweep.page import fastest

METRIC = "aggregation_time_us"


def grid(keys: Mapping[str, Sequence[Any]], seeds: int = 3, change: Mapping[str, Any] | None = None) -> Grid:
    """A table in which a variant's time is a thousand times its place, plus the seed, times the first key."""
    rows: list[dict[str, Any]] = [
        {
            **dict(zip(keys, values, strict=True)),
            **{"seed": seed, "variant": variant, "status": "done", "verdict": "pass"},
            **{METRIC: (1000.0 * place + seed) * (values[0] if values and values[0] != "x" else 1)},
            **{"iteration_time_us": 1.0 * place, "packets": 5, "bit_exact": True},
            **{"group": "", "by": METRIC, "baseline": "switch", "times_baseline": 2.0 / place},
            **(change or {}),
        }
        for values in itertools.product(*keys.values())
        for seed in range(seeds)
        for place, variant in enumerate(("ring", "switch"), 1)
    ]
    return Grid(pl.DataFrame(rows), tuple((name, name) for name in keys))


def test_a_line_is_the_mean_of_the_seeds_and_a_band_their_range() -> None:
    with style.house_style():
        (axes,) = draw(grid({"workers": [4, 8, 64]}), METRIC).axes

    assert [line.get_xydata().tolist() for line in axes.lines] == [  # type: ignore[union-attr]
        [[workers, (1000 * place + 1) * workers] for workers in (4.0, 8.0, 64.0)] for place in (1, 2)
    ]
    band = axes.collections[0].get_paths()[0].vertices  # type: ignore[union-attr]
    assert {(4.0, 4000.0), (4.0, 4008.0), (64.0, 64000.0), (64.0, 64128.0)} <= set(map(tuple, band))
    assert axes.get_xlabel() == "workers"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["4", "8", "64"]


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([1, 9], "linear"),
        ([1, 10], "log"),
        ([4, 16, 39], "linear"),
    ],
)
def test_an_axis_is_logarithmic_from_a_decade_on(values: list[int], scale: str) -> None:
    with style.house_style():
        (axes,) = draw(grid({"workers": values}), METRIC).axes

    assert axes.get_xscale() == scale


def test_the_first_number_is_on_the_axis_and_others_make_columns_and_rows() -> None:
    keys = {"codec": ["x"], "workers": [4, 8], "b": [1, 2, 3]}
    with style.house_style():
        figure = draw(grid(keys), METRIC)
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", "workers"]
    assert [axes.get_title("left") for axes in figure.axes] == [f"codec = x, b = {b}" for b in (1, 2, 3)]
    with style.house_style():
        figure = draw(grid({"workers": [4, 8], "a": [1, 2], "b": [1, 2], "c": [5, 6]}), METRIC)
    assert len(figure.axes) == 4
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [f"{variant}, c = {c}" for variant in ("ring", "switch") for c in (5, 6)]


def test_points_whose_checks_failed_are_marked() -> None:
    with style.house_style():
        figure = draw(grid({"workers": [4, 8]}, change={"verdict": "stuck"}), METRIC)

    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "ring",
        "switch",
        "failed or stuck",
    ]


def test_metrics_that_never_differ_and_points_without_results_have_no_figure() -> None:
    found = grid({"workers": [4, 8]})
    assert metrics_of(found) == [METRIC, "iteration_time_us"]
    assert metrics_of(grid({"workers": [4, 8]}, change={"status": "failed"})) == []
    drawn = sweep_figures(found)
    assert list(drawn) == [f"{METRIC}.svg", "iteration_time_us.svg"]
    assert drawn == sweep_figures(found)


def test_the_fastest_is_one_whose_checks_hold() -> None:
    found = grid({"workers": [4, 8]})
    wrong = found.frame.with_columns(
        verdict=pl.when((pl.col("variant") == "ring") & (pl.col("workers") == 8))
        .then(pl.lit("fail"))
        .otherwise("verdict")
    )

    assert [(row["key"], row["variant"], row["times"]) for row in fastest(found)] == [
        (["4"], "ring", "2.00 ×"),
        (["8"], "ring", "2.00 ×"),
    ]
    assert [(row["variant"], row["times"]) for row in fastest(Grid(wrong, found.keys))] == [
        ("ring", "2.00 ×"),
        ("switch", "1.00 ×"),
    ]
