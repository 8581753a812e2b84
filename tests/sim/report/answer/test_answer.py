"""Ranks, baselines, and what bounds a variant in words and as a figure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from netfold.sim.errors import DataError
from netfold.sim.report.answer.bounds import because, sentence, short
from netfold.sim.report.compare import compare
from netfold.sim.results import write_run
from tests.sim.results.builders import LOSSLESS, RING, Fake, run_data

SLOW = replace(RING, name="slow", messages=(("values", 484, 4000),))  # 512 µs of aggregation, ring has 128
WRONG = replace(LOSSLESS, name="wrong", verdict="fail")  # the fastest, with wrong sums


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(*fakes: Fake, **changes: Any) -> Path:
        return write_run(tmp_path, run_data(*fakes, **changes))

    return write


def part(cause: str, share: float, **more: Any) -> dict[str, Any]:
    fields = {"where": "", "stage": "", "busy": None, "alike": 0, "hosts": 0, "faster": None, "following": ""}
    return {"cause": cause, "share": share, "time_us": 100 * share, "following_busy": None} | fields | more


def test_the_variants_of_one_run_are_compared_with_its_baseline(write: Callable[..., Path]) -> None:
    """It is uncompressed and added by hosts; the slowest variant is neither."""
    found = compare([write(replace(RING, is_uncompressed=True), SLOW, LOSSLESS)])

    assert found.baseline == "quick/2026-11-21T19-12-51-seed7 ring"
    assert [row.ratios["aggregation_time_us"] for row in found.rows] == [1.0, 4.0, 48 / 128]
    assert [row.rank for row in found.rows] == [2, 3, 1]
    assert "(baseline: ring)" in str(found)
    assert found.notes == ()


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("aggregation", ["lossless", "ring", "slow", "wrong"]),
        ("compression", ["lossless", "slow", "ring", "wrong"]),  # equal ones in the order of the run
        ("given", ["wrong", "slow", "ring", "lossless"]),
    ],
)
def test_rows_are_ranked_and_wrong_results_come_last(
    write: Callable[..., Path], sort: str, order: list[str]
) -> None:
    rows = compare([write(WRONG, SLOW, RING, LOSSLESS)], sort=sort).rows

    assert [row.variant for row in rows] == order
    assert {row.variant: row.rank for row in rows}["wrong"] is None
    ranks = [1, 2, 2] if sort in ("compression", "wire") else [1, 2, 3]  # equal ones share theirs
    assert sorted(row.rank for row in rows if row.rank) == ranks


@pytest.mark.parametrize(
    ("metric", "order"), [("accuracy", ["high", "low"]), ("perplexity", ["low", "high"])]
)
def test_scores_are_ranked_by_their_metric(write: Callable[..., Path], metric: str, order: list[str]) -> None:
    fakes = [
        replace(RING, name=name, metric=metric, losses=(2.0, 1.0), accuracies=(None, score))
        for name, score in (("low", 0.25), ("high", 0.75))
    ]

    assert [row.variant for row in compare([write(*fakes)], sort="score").rows] == order


def test_who_reaches_the_target_first_ranks_first_and_who_misses_it_last(write: Callable[..., Path]) -> None:
    late = replace(RING, name="late", target=0.5, losses=(2.0, 1.0), accuracies=(0.25, 0.75))
    early = replace(late, name="early", accuracies=(0.5, 0.25))
    missed = replace(late, name="missed", accuracies=(0.25, 0.49))
    comparison = compare([write(missed, late, early)], sort="target")

    assert [(row.variant, row.rank) for row in comparison.rows] == [
        ("early", 1),
        ("late", 2),
        ("missed", None),
    ]
    assert comparison.frame["steps_to_target"].to_list() == [1, 2, None]
    console = Console(width=250, file=StringIO())
    console.print(comparison.table())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "50.0 % in 1 step, 168 µs, 16.6 kB" in text
    assert "50.0 % missed" in text


def test_an_order_or_a_baseline_that_does_not_exist(write: Callable[..., Path]) -> None:
    run = write(RING, SLOW)
    with pytest.raises(DataError) as order:
        compare([run], sort="agregation")
    with pytest.raises(DataError) as baseline:
        compare([run], Path("slwo"))

    assert str(order.value).startswith(
        "--sort agregation: there is no such order\n  did you mean 'aggregation'? orders: aggregation, "
    )
    assert str(baseline.value) == (
        "--baseline slwo: there is no run folder and no variant of this name\n"
        "  did you mean 'slow'? variants: ring, slow"
    )


def test_bounds_are_kept_and_read_back(write: Callable[..., Path]) -> None:
    parts = [part("window", 0.75, faster=1.6), part("link", 0.25, where="h0->s0", busy=0.5, alike=3, hosts=2)]
    found = run_data(RING).summary
    found["variants"][0]["bounds"] = parts  # type: ignore[index]
    row = compare([write(RING, summary=found)]).rows[0]

    assert [dict(one) for one in row.parts] == parts
    assert row.bottleneck == "window, 75 %"


def test_a_bound_in_words() -> None:
    busy = part(
        *("link", 0.97),
        **{"where": "leaf0->spine1", "busy": 0.98, "alike": 3, "hosts": 16, "faster": 1.94},
    )

    assert short([busy]) == "leaf0->spine1 +3, 97 %"
    assert sentence([busy]) == (
        "bottleneck: link leaf0->spine1 (3 more as busy), shared by 16 hosts: 97 % of the aggregation, "
        "busy 98 %; at most 1.94 × as fast with twice the rate of all of them"
    )
    assert sentence([]) == ""
    assert short([]) == "–"


def test_what_is_close_is_named_and_what_is_not_is_left_out() -> None:
    parts = [part("device", 0.45, stage="encode"), part("straggler", 0.44, where="h3", stage="decode")]
    told = sentence([*parts, part("timer", 0.11)])

    assert told == (
        "bottleneck: 'encode' on the workers' devices: 45 % of the aggregation; "
        "close to it: the straggler h3 (decode): 44 % of the aggregation"
    )


def test_another_link_that_is_nearly_as_busy_is_named_and_a_useless_remedy_is_not() -> None:
    link = part("link", 1.0, where="a", busy=0.9, following="s0->s0", following_busy=0.89, faster=1.01)

    assert sentence([link]).endswith("busy 90 %; nearly as busy: s0->s0, 89 %")
    assert "nearly" not in sentence([link | {"following_busy": 0.5}])


@pytest.mark.parametrize("cause", ["link", "loopback", "window", "timer", "latency", "straggler", "merging"])
def test_every_cause_has_words(cause: str) -> None:
    assert f"{cause}" in sentence([part(cause, 1.0, where="h1" if cause != "window" else "")]).replace(
        "retransmission timers", "timer"
    ).replace("slots or windows", "window")


def test_why_the_fastest_is() -> None:
    """A variant is faster by the cause that takes less of its time."""
    slow = [part("latency", 2.0), part("link", 1.0)]
    quick = [part("link", 0.9)]

    assert (
        because(quick, ("slow", slow)) == "it never waits for packets on their way, against 200 µs for slow"
    )
    assert because(quick, ("slow", [part("link", 2.0)])) == (
        "its links are the bottleneck for 90.0 µs, against 200 µs for slow"
    )
    assert because([part("link", 0.1)], ("slow", [part("timer", 1.0)])) == (
        "it never waits for a retransmission, against 100 µs for slow"
    )
    assert because(slow, ("quick", quick)) == ""
    assert because([], ("slow", slow)) == ""


def test_the_figure_has_a_bar_per_variant_and_repeats(write: Callable[..., Path]) -> None:
    data = run_data(replace(RING, is_uncompressed=True), SLOW, LOSSLESS).summary
    for variant in data["variants"]:
        variant["bounds"] = [part("link", 1.0, where="h0->s0")]
    run = write(RING, SLOW, LOSSLESS, summary=data)
    drawn = compare([run]).draw()

    assert drawn is not None
    assert drawn == compare([run]).draw()
    text = drawn.decode()
    assert text.index(">lossless<") < text.index(">ring<") < text.index(">slow<")
    assert "512 µs · 0.250 ×" in text
    assert ">links<" in text
