"""Which variants are compared, by what, with which baseline: small summaries like those of the guide."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from netfold.sim.report.answer.ranking import answers, groups_of, legend, times_baseline, with_ranking

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
        "setup": {"workload": {**workload, **more.pop("choices", {})}},
        "metrics": metrics | more,
    }


def reaching(name: str, time_us: float, target_us: float | None, **more: Any) -> dict[str, Any]:
    """A variant that has a target, and reaches it at a time or not at all."""
    return entry(name, time_us, target=0.9, time_to_target_us=target_us, **more)


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
                "first of digits by aggregation time: bird/digits, 60.0 µs, 15.0 × baseline (dense/digits)",
                "first of films by aggregation time: bird/films, 20.0 µs, 80.0 × baseline (dense/films)",
            ],
        ),
        (
            OWN_MODEL,
            ["first by time to the target: dense, 37.7 ms; next: bird-shared, 71.7 ms; top misses it"],
        ),
        (JOBS, []),
        (TOPOLOGIES, ["first by aggregation time: star-in, 60.0 µs, 6.03 × baseline (star-ring)"]),
        (
            OVERLAP,
            [
                "first by time of whole steps, as buckets differ: switchml and switchml-udp, a tie, 8.93 ms, "
                "1.34 × baseline (one-bucket)"
            ],
        ),
        (
            LOSS,
            [
                "first by aggregation time: clean, 2.00 ms, 11.7 × baseline (flaps); "
                "it never waits for a retransmission, against 21.4 ms for flaps"
            ],
        ),
    ],
    ids=["08", "17", "18", "11", "16", "loss"],
)
def test_the_order_of_the_variants_changes_nothing(
    variants: Sequence[dict[str, Any]], told: Sequence[str]
) -> None:
    """Neither what is said, nor what is divided."""
    for order in itertools.permutations(variants):
        groups = groups_of(order)
        assert [line.replace("of job ", "of ") for line in answers(groups)] == told
        assert times_baseline(groups) == times_baseline(groups_of(variants)), order
        assert legend(groups) == legend(groups_of(variants))


def ratios(variants: Sequence[dict[str, Any]], named: str | None = None) -> dict[str, Any]:
    return {one["name"]: one["ranking"]["times_baseline"] for one in with_ranking(list(variants), named)}


def test_nothing_is_divided_by_another_model_or_job() -> None:
    assert ratios(FIVE) == {"dense/digits": 1, "dense/films": 1, "bird/digits": 15, "bird/films": 80}
    assert set(ratios(JOBS).values()) == {1}
    densities = [
        entry(name, time, {"density": share}) for name, time, share in (("a", 4, 0.1), ("b", 1, 0.5))
    ]
    assert ratios(densities) == {"a": 1, "b": 1}
    assert [group.label for group in groups_of(densities)] == ["density 0.1", "density 0.5"]


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
        *(entry("tree", 4.0, plain=True), entry("stalled", 1.0, verdict="stuck"), entry("quick", 2.0)),
    ]

    assert ratios(variants) == {"ring": None, "tree": 1, "stalled": None, "quick": 2}
    assert set(ratios(variants, "ring").values()) == {None}
    assert "quick, 2.00 µs, 2.00 × baseline (tree)" in answers(groups_of(variants))[0]
    assert times_baseline(groups_of(variants))["ring"] == "–"


def test_a_group_whose_target_nobody_reaches_is_not_ranked() -> None:
    variants = [reaching("a", 1.0, None), reaching("b", 2.0, None)]

    assert answers(groups_of(variants)) == ["no variant reaches its target"]
    assert ratios(variants) == {"a": None, "b": None}


def test_a_replay_with_skew_is_ranked_since_the_last_rank_arrived() -> None:
    """Of 16 ms, 15.9 are the skew that was recorded: without it one is twice as fast as the other."""
    replays = [
        entry(name, 16_300.0 + since, replays=True, plain=plain, since_last_rank_us=since)
        for name, since, plain in (("ring", 100.0, True), ("packed", 50.0, False))
    ]

    assert ratios(replays) == {"ring": 1, "packed": 2}
    assert answers(groups_of(replays))[0].startswith("first by time since the last rank arrived")
    same = [one | {"replays_times": False} for one in replays]
    assert ratios(same)["packed"] == pytest.approx(1.003, abs=1e-3)
    even = [entry("a", 100.0, replays=True, since_last_rank_us=95.0)]
    assert not groups_of(even)[0].has_skew


@pytest.mark.parametrize(
    ("nmse", "told"), [(0.25, "; its sums are not exact, NMSE 2.50e-01"), (None, "exact")]
)
def test_a_lossy_winner_says_so(nmse: float | None, told: str) -> None:
    lossy = [entry("a", 1.0, bit_exact=False, nmse=nmse), entry("b", 2.0, plain=True)]

    assert answers(groups_of(lossy))[0].endswith(told)
