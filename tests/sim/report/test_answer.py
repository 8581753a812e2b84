"""The first sentence, comparisons and tables of a report."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netfold.errors import DataError
from netfold.sim.plan.plan import Reference
from netfold.sim.report.answer import (
    Group,
    answers,
    details,
    groups_of,
    legend,
    spreads,
    times_baseline,
    with_answer,
)
from netfold.sim.report.bottleneck_text import because, sentence, short
from netfold.sim.report.compare import compare
from netfold.sim.report.words import warnings
from netfold.sim.results.folder import write_run
from netfold.sim.results.metrics import SORTS
from tests.sim.results.builders import LOSSLESS, RING, SCENARIO, Fake, printed, run_data, summary, terminal

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
    text = " ".join(printed(comparison.table(), 250))
    assert "50.0 % in 1 step, 168 µs, 16.6 kB" in text
    assert "50.0 % missed" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"sort": "agregation"},
            "--sort agregation: there is no such order\n  did you mean 'aggregation'? orders: "
            f"{', '.join(SORTS)}, given",
        ),
        (
            {"baseline": Path("slwo")},
            "--baseline slwo: there is no run folder and no variant of this name\n"
            "  did you mean 'slow'? variants: ring, slow",
        ),
        *(
            (
                {"baseline": Path(number)},
                f"--baseline {number}: there is no run of this number\n  give 1 to 2, or a run folder",
            )
            for number in ("0", "3")
        ),
        ({"runs": []}, "no run to compare\n  give one or more run folders, such as runs/latest"),
    ],
)
def test_what_cannot_be_compared(write: Callable[..., Path], options: dict[str, Any], text: str) -> None:
    runs = [write(RING), write(SLOW)]
    with pytest.raises(DataError) as caught:
        compare(**({"runs": runs} | options))

    assert str(caught.value) == text


def test_bounds_are_kept_and_read_back(write: Callable[..., Path]) -> None:
    parts = [part("window", 0.75, faster=1.6), part("link", 0.25, where="h0->s0", busy=0.5, alike=3, hosts=2)]
    found = run_data(RING).summary
    found["variants"][0]["bounds"] = parts  # type: ignore[index]
    row = compare([write(RING, summary=found)]).rows[0]

    assert [dict(one) for one in row.parts] == parts
    assert row.bottleneck == "window, 75 %"


def test_a_bound_in_words() -> None:
    busy = part(
        *("link", 0.97), **{"where": "leaf0->spine1", "busy": 0.98, "alike": 3, "hosts": 16, "faster": 1.94}
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

    assert because(quick, slow, other_name="slow") == (
        "it never waits for packets on their way, against 200 µs for slow"
    )
    assert because(quick, [part("link", 2.0)], other_name="slow") == (
        "its links are the bottleneck for 90.0 µs, against 200 µs for slow"
    )
    assert because([part("link", 0.1)], [part("timer", 1.0)], other_name="slow") == (
        "it never waits for a retransmission, against 100 µs for slow"
    )
    assert because(slow, quick, other_name="quick") == ""
    assert because([], slow, other_name="slow") == ""


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


NEUMF = {"kind": "training", "model": "ncf", "batch": 64}
MLP = {"kind": "training", "model": "mlp", "batch": 64}


def entry(name: str, time_us: float | None, workload: Mapping[str, Any] = MLP, **more: Any) -> dict[str, Any]:
    """A variant of a summary; `plain` is uncompressed, on hosts."""
    metrics = {
        **{"workers": 4, "buckets": 1, "bit_exact": True, "merges_verified": True, "nmse": 0.0},
        **{"aggregation_time_us": time_us, "iteration_time_us": time_us, "since_last_rank_us": time_us},
    }
    return {
        **{"name": name, "verdict": more.pop("verdict", "pass"), "bounds": more.pop("bounds", [])},
        **{"is_uncompressed": more.pop("plain", False), "replays_times": more.pop("replays", False)},
        **({"stay": {}} if more.pop("stays", False) else {}),
        **{key: more.pop(key) for key in ("scores", "chance", "axes", "seeds", "spread") if key in more},
        "setup": {"workload": {**workload, **more.pop("choices", {})}, "topology": more.pop("topology", {})},
        "metrics": metrics | more,
    }


def reaching(name: str, time_us: float, target_us: float | None, **more: Any) -> dict[str, Any]:
    """A variant that has a target, and reaches it at a time or not at all."""
    return entry(name, time_us, target=0.9, time_to_target_us=target_us, test_metric="accuracy", **more)


FIVE = [  # chapter 8: two jobs with two models, of very different speeds
    *(entry("dense/digits", 900.0, plain=True), entry("dense/films", 1600.0, NEUMF, plain=True)),
    *(entry("bird/digits", 60.0), entry("bird/films", 20.0, NEUMF)),
]
OWN_MODEL = [  # chapter 17: the fastest to aggregate is not the first to reach the target
    reaching("dense", 67.0, 37_700.0, plain=True),
    reaching("bird-shared", 21.2, 71_700.0),
    reaching("top", 40.0, None),
]
JOBS = [
    entry(f"{wait}/small-{job}", 10.0 * job, stays=True)
    for wait, job in itertools.product(("wait", "fall-back"), (1, 8))
]
TOPOLOGIES = [
    entry(name, time, plain="ring" in name) for name, time in (("star-ring", 362.0), ("star-in", 60.0))
]
OVERLAP = [  # chapter 16: buckets differ, and two whole steps are equal
    entry("one-bucket", 5.0, iteration_time_us=12_000.0, plain=True),
    entry("switchml", 9.0, iteration_time_us=8_931.0, buckets=12),
    entry("switchml-udp", 8.0, iteration_time_us=8_932.0, buckets=12),
]
LOSS = [
    entry("clean", 2_000.0, bounds=[{"cause": "link", "time_us": 2_000.0}]),
    entry(
        "flaps", 23_400.0, bounds=[{"cause": "timer", "time_us": 21_400.0}, {"cause": "link", "time_us": 2e3}]
    ),
]


@pytest.mark.parametrize(
    ("variants", "told"),
    [
        (
            FIVE,
            [
                "digits: bird has the shortest step: 60.0 µs, 15.0 × as fast as dense (900 µs)",
                "films: bird has the shortest step: 20.0 µs, 80.0 × as fast as dense (1.60 ms)",
            ],
        ),
        (
            OWN_MODEL,
            [
                "dense reaches an accuracy of 90.0 % first: after 37.7 ms; "
                "next is bird-shared, 90.2 % slower; top does not reach it"
            ],
        ),
        (TOPOLOGIES, ["star-in has the shortest step: 60.0 µs, 6.03 × as fast as star-ring (362 µs)"]),
        (
            OVERLAP,
            [
                "switchml and switchml-udp tie for the shortest step: 8.93 ms, 1.34 × as fast as one-bucket "
                "(12.0 ms)"
            ],
        ),
        (LOSS, ["clean has the shortest step: 2.00 ms, 11.7 × as fast as flaps (23.4 ms)"]),
    ],
    ids=["08", "17", "11", "16", "loss"],
)
def test_the_order_of_the_variants_changes_nothing(
    variants: Sequence[dict[str, Any]], told: Sequence[str]
) -> None:
    """Neither what is said, nor what is divided."""
    for order in itertools.permutations(variants):
        groups = groups_of(order)
        assert answers(groups) == told
        assert times_baseline(groups) == times_baseline(groups_of(variants)), order
        assert legend(groups) == legend(groups_of(variants))


def ratios(variants: Sequence[dict[str, Any]], named: str | None = None) -> dict[str, Any]:
    summary = with_answer({"variants": list(variants), "baseline": named})
    return {one["name"]: one["ranking"]["times_baseline"] for one in summary["variants"]}


def test_nothing_is_divided_by_another_model_or_job() -> None:
    assert ratios(FIVE) == {"dense/digits": 1, "dense/films": 1, "bird/digits": 15, "bird/films": 80}
    assert set(ratios(JOBS).values()) == {1}
    densities = [
        entry(name, time, {"density": share}) for name, time, share in (("a", 4, 0.1), ("b", 1, 0.5))
    ]
    assert ratios(densities) == {"a": 1, "b": 1}
    named_alike = Group("ring", (entry("ring-x/ring", 4),))
    assert named_alike.name(named_alike.members[0]) == "ring-x"  # which begins with the job's name by chance
    assert [group.label for group in groups_of(densities)] == ["density 0.1", "density 0.5"]
    assert answers(groups_of(densities)) == [  # each is alone in its group
        "density 0.1: a takes 4.00 µs a step",
        "density 0.5: b takes 1.00 µs a step",
    ]


def test_how_something_is_trained_or_cut_leaves_the_workload_the_same() -> None:
    other = entry("other", 2.0, choices={"learning_rate": 0.1, "steps": 3, "fusion": {"kind": "one"}})

    assert len(groups_of([entry("one", 1.0), other])) == 1
    assert len(groups_of([entry("one", 1.0), entry("other", 2.0, MLP | {"batch": 8})])) == 2


def test_the_baseline_is_named_or_the_slowest_uncompressed_or_the_slowest() -> None:
    variants = [
        entry("tree", 3.0, plain=True),
        entry("ring", 4.0, plain=True),
        entry("slow", 8.0),
        entry("a", 1.0),
    ]

    assert ratios(variants) == {"tree": 4 / 3, "ring": 1, "slow": 0.5, "a": 4}
    assert ratios(variants, "slow") == {"tree": 8 / 3, "ring": 2, "slow": 1, "a": 8}
    assert ratios(variants[2:]) == {"slow": 1, "a": 8}
    assert ratios(FIVE, "bird")["dense/films"] == 20 / 1600  # its jobs


def test_a_variant_that_failed_has_no_ratio_and_is_no_baseline() -> None:
    variants = [
        entry("ring", 9.0, plain=True, verdict="fail"),
        *(entry("tree", 4.0, plain=True), entry("stalled", 1.0, verdict="stalled"), entry("quick", 2.0)),
    ]

    assert ratios(variants) == {"ring": None, "tree": 1, "stalled": None, "quick": 2}
    assert set(ratios(variants, "ring").values()) == {None}
    assert answers(groups_of(variants)) == [
        "quick has the shortest step: 2.00 µs, 2.00 × as fast as tree (4.00 µs); "
        "not ranked: ring (fail), stalled (stalled)"
    ]
    assert times_baseline(groups_of(variants))["ring"] == "–"


def test_a_group_whose_target_nobody_reaches_is_not_ranked() -> None:
    variants = [reaching("a", 1.0, None), reaching("b", 2.0, None)]

    assert answers(groups_of(variants)) == ["no variant reaches an accuracy of 90.0 %"]
    assert ratios(variants) == {"a": None, "b": None}


def test_many_variants_are_named_in_part() -> None:
    """Eight are named, of nine three; of spreads the eight that come first."""
    missed = [reaching(f"late-{number}", 1.0, None) for number in range(9)]
    (nine,), (eight,) = (answers(groups_of([reaching("a", 1.0, 1.0), *missed[n:]])) for n in (0, 1))

    assert nine.endswith("; late-0, late-1, late-2 and 6 others do not reach it")
    assert eight.endswith("late-6, late-7 and late-8 do not reach it")
    few = [repeated(f"v{number}", 9.0 - number, 1.0, 2.0) for number in range(8)]
    (all_spreads,), (first_spreads,) = (
        spreads(groups_of(variants)) for variants in (few, [*few, repeated("slow", 99.0, 98.0, 99.5)])
    )
    assert all_spreads.endswith(", v7 1.00 µs to 2.00 µs")
    assert ": v7 1.00 µs to 2.00 µs, v6" in first_spreads
    assert first_spreads.endswith(", v0 1.00 µs to 2.00 µs, …")


def test_a_replay_with_skew_is_ranked_since_the_last_rank_arrived() -> None:
    """Of 16 ms, 15.9 are the skew that was recorded: without it one is twice as fast as the other."""
    replays = [
        entry(name, 16_300.0 + since, replays=True, plain=plain, since_last_rank_us=since)
        for name, since, plain in (("ring", 100.0, True), ("packed", 50.0, False))
    ]

    assert ratios(replays) == {"ring": 1, "packed": 2}
    assert answers(groups_of(replays)) == [
        "packed is the fastest once the last rank has arrived: 50.0 µs, 2.00 × as fast as ring (100 µs)"
    ]
    assert "by time since the last rank arrived" in legend(groups_of(replays))
    same = [one | {"replays_times": False} for one in replays]
    assert ratios(same)["packed"] == pytest.approx(1.003, abs=1e-3)
    even = [entry("a", 100.0, replays=True, since_last_rank_us=95.0)]
    assert not groups_of(even)[0].has_skew


@pytest.mark.parametrize(
    ("nmse", "told"),
    [
        (0.25, "a: its sums are not exact, NMSE 2.50e-01"),
        (1.1e-13, "a: its sums are not exact, NMSE 1.10e-13"),
        (9e-14, "a: its sums are rounded, as float32 sums are, NMSE 9.00e-14"),
        (None, "a: its sums are not exact"),
    ],
)
def test_a_lossy_winner_says_so(nmse: float | None, told: str) -> None:
    lossy = [entry("a", 1.0, bit_exact=False, nmse=nmse), entry("b", 2.0, plain=True)]

    assert details(groups_of(lossy)[0]) == told


LINK = {"cause": "link", "where": "h0->s0", "alike": 0, "share": 0.9, "time_us": 1.0, "busy": 0.9, "hosts": 0}
LINK |= {"faster": None, "following_busy": None}


def test_in_brief_neither_rounding_nor_the_bottleneck_is_told() -> None:
    """The table has the bottleneck, and what is rounded as float32 sums are is no loss."""
    rounded = [entry("a", 1.0, bit_exact=False, nmse=9e-14, bounds=[LINK]), entry("b", 2.0, plain=True)]
    (group,) = groups_of(rounded)

    assert details(group, is_brief=True) == ""
    assert details(group).startswith(
        "a: its sums are rounded, as float32 sums are, NMSE 9.00e-14; bottleneck:"
    )


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        ((0.8, 0.9, 0.7), "accuracy at the end: 80.0 %; b: 90.0 %; c: 70.0 %"),
        ((0.8, 0.9, 0.9), "accuracy at the end: 80.0 %; b and c: 90.0 %"),
        ((0.8, 0.8, 0.9), "accuracy at the end: 80.0 %, as b; c: 90.0 %"),
        ((0.8, 0.8, 0.8), "accuracy at the end: 80.0 %, as all others"),
        ((0.8, 0.8, None), "accuracy at the end: 80.0 %, as all others"),
    ],
)
def test_beside_the_winner_the_scores_of_the_others_are_told(
    scores: tuple[float | None, ...], told: str
) -> None:
    trained = [
        reaching(name, 10.0, target_us, test_score=score)
        for name, target_us, score in zip("abc", (1.0, 2.0, 3.0), scores, strict=True)
    ]

    assert details(groups_of(trained)[0]) == f"a: {told}"


@pytest.mark.parametrize(("slower_us", "sent"), [(102.0, 2e6), (101.0, 2e6), (101.0, 1e5), (102.1, 2e6)])
def test_a_margin_below_the_known_error_of_the_model_is_called_so(slower_us: float, sent: float) -> None:
    near = [entry("a", 100.0, payload_bytes_up=sent), entry("b", slower_us), entry("c", 300.0, plain=True)]

    told = details(groups_of(near)[0])

    assert ("its margin is below 2 %, by which simulated rates differ" in told) == (slower_us <= 102.0)
    assert ("short ones were not compared" in told) == (sent < 1e6)


SLOWER = replace(RING, messages=(("values", 228, 4000),))  # 256 µs of aggregation instead of 128 µs


def test_variants_are_compared_by_name(write: Callable[..., Path]) -> None:
    first, second = write(RING, LOSSLESS), write(SLOWER, LOSSLESS)
    found = compare([first, second])

    assert found.answers == (
        "lossless of run 1 and lossless of run 2 tie for the shortest step: 88.0 µs, 3.36 × as fast as "
        "ring of run 2 (296 µs); next is ring of run 1, 90.9 % slower",
    )

    assert found.baseline == "quick/2026-11-21T19-12-51-seed7"
    assert [(row.run[-1], row.variant, row.ratios["aggregation_elements_per_s"]) for row in found.rows] == [
        ("7", "ring", 1.0),
        ("7", "lossless", 1.0),
        ("2", "ring", 0.5),
        ("2", "lossless", 1.0),
    ]
    assert found.rows[2].against == "quick/2026-11-21T19-12-51-seed7 ring"
    assert found.rows[2].ratios["aggregation_time_us"] == 2.0
    assert found.notes == ()


def repeated(name: str, time_us: float, low: float, high: float) -> dict[str, Any]:
    return entry(name, time_us, seeds=[1, 2, 3], spread={"iteration_time_us": [low, high]})


def test_variants_whose_ranges_over_seeds_overlap_are_not_distinguished() -> None:
    near = [repeated("a", 10.0, 9.0, 11.0), repeated("b", 12.0, 11.0, 13.0), repeated("c", 40.0, 39.0, 41.0)]
    apart = [near[0], repeated("b", 12.0, 11.01, 13.0), near[2]]

    (told,), (clear,) = answers(groups_of(near)), answers(groups_of(apart))

    assert told.startswith("a and b are not distinguishable over 3 seeds (time of a step: 10.0 µs and 12.0")
    assert "; a is 4.00 × as fast as c (40.0 µs)" in told
    assert clear.startswith("a has the shortest step: 10.0 µs (mean of 3 seeds, 9.00 µs to 11.0 µs), 4.00 ×")
    assert [group.rank(member) for group in groups_of(near) for member in group.members] == [1, 1, 3]


def test_another_run_can_be_the_baseline(write: Callable[..., Path]) -> None:
    first, second = write(RING), write(SLOWER)

    assert [row.ratios["aggregation_time_us"] for row in compare([first, second], second).rows] == [0.5, 1.0]
    assert [row.run[-1] for row in compare([first], baseline=second).rows] == ["2", "7"]
    assert compare([first, second], Path("2")) == compare([first, second], second)


def test_folders_of_one_name_are_named_by_their_paths(tmp_path: Path) -> None:
    """Of runs that began within a second, or of one that was copied."""
    first, second = (write_run(tmp_path / name, run_data(RING)) for name in ("here", "there"))
    assert first.name == second.name

    comparison = compare([first, second], second)
    assert [row.run for row in comparison.rows] == [str(first), str(second)]
    assert (comparison.baseline, comparison.rows[0].against) == (str(second), f"{second} ring")


def test_what_makes_runs_less_comparable_is_said(write: Callable[..., Path]) -> None:
    first = write(RING)
    second = write(
        *(replace(LOSSLESS, verdict="fail"), replace(RING, name="other"), SLOWER),
        scenario_text=b"name: other",
        seed=8,
        sets=("seed=8",),
    )
    name = "quick/2026-11-21T19-12-51-seed8"

    def digest(text: bytes) -> str:
        return hashlib.sha256(text).hexdigest()[:12]

    assert compare([first, second]).notes == (
        f"{name}: seed 8, the baseline has 7",
        f"{name}: scenario file with sha256 {digest(b'name: other')}, the baseline has {digest(SCENARIO)}",
        f"{name}: --set seed=8, the baseline has nothing",
        f"{name}: the baseline has no variants 'lossless', 'other', compared with its own baseline",
        f"{name}: a check failed, do not rely on its numbers",
    )


def summary_with(*digests: str, **more: Any) -> dict[str, Any]:
    """A summary of the ring, and of files that it was run with."""
    named = [
        {"path": f"{name}.npy", "kept": True, "bytes": 4, "sha256": digest * 32}
        for name, digest in zip("gh", digests, strict=False)
    ]
    return {**run_data(RING).summary, "inputs": named, **more}


def test_files_that_hold_something_else_are_said(write: Callable[..., Path]) -> None:
    first = write(RING, summary=summary_with("ab", "cd"))
    second, third = write(RING, summary=summary_with("ab", "ef")), write(RING, summary=summary_with("ab"))
    name = "quick/2026-11-21T19-12-51-seed7"

    assert compare([first, second, third]).notes == (
        f"{name}-2: h.npy with sha256 efefefefefef, the baseline has cdcdcdcdcdcd",
    )


def test_a_run_that_is_not_finished_is_said_so(write: Callable[..., Path]) -> None:
    first, second = write(RING), write(RING, summary=summary_with(unfinished=["b", "c"]))
    note = "quick/2026-11-21T19-12-51-seed7-2: unfinished, 'b', 'c' did not run to the end"

    assert compare([first, second]).notes == (note,)
    assert compare([second, first]).notes == (note,)


def test_another_scenario_is_said_in_one_note(write: Callable[..., Path]) -> None:
    first = write(RING)
    second = write(LOSSLESS, replace(RING, name="other"), scenario_name="other", seed=8)
    name = "other/2026-11-21T19-12-51-seed8"

    assert compare([first, second]).notes == (
        f"{name}: another scenario; variants that the baseline lacks are compared with its own "
        "baseline, if that has an equal workload",
    )


def rows_of(lines: list[str], bar: str = "│") -> list[list[str]]:
    """Cells of the rows of tables, or with another bar their headings."""
    return [[cell.strip() for cell in line.strip(bar).split(bar)] for line in lines if line.startswith(bar)]


def headings(lines: list[str]) -> list[str]:
    """Of the first table."""
    return rows_of(lines, "┃")[0]


def test_ratios_are_of_the_numbers_beside_them(write: Callable[..., Path]) -> None:
    """A worker's link carries (4000 + 100 B) × 2 buckets = 8.20 kB a step, of 2 or of 4 workers.

    Aggregation lasts 128 and 256 µs for 2000 elements. Ready after 40 of 60 µs, the iterations are 168 and
    296 µs.
    """
    found = compare([write(RING), write(replace(SLOWER, workers=4))])

    assert [" | ".join(row) for row in rows_of(printed(found.table(), 200))] == [
        "1 | 1 | ring | 128 µs | – | 15.6 M | 1.00 × | 168 µs | 1.00 × | 8.20 kB | 1.00 × | yes | pass",
        "2 | 2 | ring | 256 µs | – | 7.81 M | 0.500 × | 296 µs | 1.76 × | 8.20 kB | 1.00 × | yes | pass",
    ]
    assert found.rows[1].ratios == {
        "aggregation_elements_per_s": 0.5,
        "aggregation_time_us": 2.0,
        "iteration_time_us": 296 / 168,
        "wire_bytes_up_per_worker": 1.0,
        "wire_bytes_up": 2.0,  # of all workers
        "wire_bytes_down": 2.0,
        "compression_ratio": 1.0,
    }
    assert found.notes == (
        "quick/2026-11-21T19-12-51-seed7-2: other numbers of workers: 'ring' has 4, 'ring' of the baseline 2",
    )


@pytest.mark.parametrize(("cost_usd", "headings"), [(41e3, ["cost"]), (27.6e3, [])])
def test_prices_are_compared_where_they_differ(
    write: Callable[..., Path], cost_usd: float, headings: list[str]
) -> None:
    whole = run_data(RING, LOSSLESS).summary
    for variant, price in zip(whole["variants"], (27.6e3, cost_usd), strict=True):
        variant["metrics"]["cost_usd"] = price
    columns = compare([write(RING, LOSSLESS, summary=whole)]).columns()

    assert [column.heading for column in columns if column.heading == "cost"] == headings


def test_terminal_table_fits_a_hundred_columns() -> None:
    long = replace(LOSSLESS, name="lossless-with-a-name-that-goes-on", verdict="fail")
    lines = terminal(100, summary(RING, long))

    assert max(map(len, lines)) <= 100
    for words in (
        r"ring .* 128 µs .* 168 µs .* 15\.6 M .* pass",
        r"48\.0 µs .* 88\.0 µs .* 41\.7 M .* fail",
        r"ring +│ +8\.20 kB .* yes",
        r"lossless-with-a-name-that-goes-on │ +1\.80 kB │ +5\.00 × │ yes ",
    ):
        assert re.search(words, "\n".join(lines))


def test_the_columns_answer_the_question_and_give_way_to_long_names() -> None:
    inexact = replace(LOSSLESS, bit_exact=False)
    told = summary(RING, inexact)
    long = summary(RING, replace(inexact, name="lossless-with-a-name-that-goes-on-and-on", nmse=(0.0,)))
    lines = terminal(200, told, columns="", is_verbose=False)
    chosen = terminal(200, told, columns="steps,payload_bytes_up", is_verbose=False)

    assert headings(lines)[1:] == [
        *("aggregation", "iteration", "× baseline", "bytes/worker", "nmse", "verdict")
    ]
    assert [row[5] for row in rows_of(lines)] == ["exact", "2.50e-01"]
    assert headings(terminal(200, long, columns=""))[1:] == [
        *("iteration", "× baseline", "bytes/worker", "verdict")
    ]
    assert headings(chosen) == ["variant", "steps", "× baseline", "payload_bytes_up", "verdict"]
    assert not any(line.startswith("time of") for line in lines)
    for table, hidden in (
        (lines, ["1 more column"]),
        (terminal(200, long, columns=""), ["3 more columns"]),
        (chosen, []),
    ):
        assert re.findall(r"(\d+ more columns?): --columns all$", "\n".join(table), re.MULTILINE) == hidden


def test_every_column_is_explained_on_request() -> None:
    trained = replace(RING, losses=(2.3, 1.87), accuracies=(0.5, 0.942), target=0.9)
    told = summary(trained, replace(LOSSLESS, bit_exact=False))
    lines = terminal(1000, told, columns="all", is_verbose=True)
    explained = next(line for line in lines if "× baseline: " in line)

    assert [name for name in headings(lines)[1:] if f"{name}: " not in explained] == []


@pytest.mark.parametrize(
    ("width", "tables"),
    [
        (112, ["aggregation, elements/s, × baseline, bytes/worker, compression, bit-exact, verdict"]),
        (63, ["aggregation, verdict", "elements/s, × baseline, bytes/worker", "compression, bit-exact"]),
    ],
)
def test_a_narrow_terminal_breaks_the_table_and_leaves_out_nothing(width: int, tables: list[str]) -> None:
    alone = {"forward_us": 0, "backward_us": 0}  # the network takes all of a step
    told = summary(replace(RING, name="lossless-x", **alone), replace(LOSSLESS, **alone))
    lines = terminal(width, told)

    assert [", ".join(names) for names in rows_of(lines, "┃")] == [f"variant, {table}" for table in tables]
    assert sum(line.startswith("│ lossless-x ") for line in lines) == len(tables)
    assert max(map(len, lines)) <= width
    assert not any(line.endswith(" ") for line in lines)


def test_steps_have_a_column_where_compute_takes_time() -> None:
    alone = replace(LOSSLESS, forward_us=0, backward_us=0)  # the network takes all of a step
    lines = terminal(200, summary(RING, alone))

    assert headings(lines)[1:5] == ["aggregation", "iteration", "× baseline", "elements/s"]
    assert [row[1:3] for row in rows_of(lines)] == [["128 µs", "168 µs"], ["28.0 µs", "28.0 µs"]]
    assert "iteration" not in headings(terminal(200, summary(alone)))


def test_a_lossy_variant_has_its_error_in_the_table_and_an_exact_one_says_so() -> None:
    lines = terminal(250, summary(replace(RING, bit_exact=None), replace(LOSSLESS, bit_exact=False)))

    at = headings(lines).index("bit-exact")
    assert headings(lines)[at : at + 3] == ["bit-exact", "nmse", "cosine"]
    cells = [row[at : at + 3] for row in rows_of(lines)]
    assert cells == [["n/a", "2.50e-01", "0.5000"], ["no", "2.50e-01", "0.5000"]]
    assert "nmse" not in headings(terminal(250, summary(RING, LOSSLESS)))


def test_held_out_data_has_a_column_where_there_were_tests() -> None:
    lines = terminal(200, summary(replace(RING, losses=(2.3, 1.87), accuracies=(0.5, 0.942)), LOSSLESS))

    assert headings(lines)[-3:] == ["training loss", "held-out data", "verdict"]
    assert sum("accuracy 94.2 %" in line for line in lines) == 1


def test_time_is_broken_down_in_the_order_of_a_round() -> None:
    """Whatever came first in the records. Of 48 µs: 3, 2 · 16, 4 and 2 · 4; the last worker begins 1 late."""
    found = summary(LOSSLESS)
    found["variants"][0]["metrics"]["breakdown"].reverse()

    told = "time of lossless: encode 6 %, values 67 %, index 8 %, decode 17 %, rank skew 2 %"
    assert told in terminal(200, found)


def test_published_figures_stand_below_the_table() -> None:
    references = (
        Reference("published", 2.82e9, "a paper, figure 4"),
        Reference("wire bound, dense", 3e9, "–"),
    )
    lines = terminal(100, summary(replace(RING, references=references), LOSSLESS))

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
    assert warnings({"variants": [{"name": "a"}], "warnings": ["a: slow"]}) == ["a: slow"]
