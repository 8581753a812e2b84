"""Variants that are run with several seeds: what is the mean, and what is of one seed."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

import netfold
from netfold.errors import ScenarioError
from netfold.sim.results.repeats import with_means

SCENARIO = {
    "name": "repeated",
    "topology": {"kind": "star", "hosts": 2, "rate": "25Gbps"},
    "workers": 2,
    "workload": {"kind": "synthetic", "elements": 20_000},
    "collective": {"kind": "ring"},
    "faults": [{"kind": "loss", "rate": "2%"}],
    "variants": [{"name": "dense", "codec": {"kind": "none"}}, {"name": "half", "codec": {"kind": "fp16"}}],
}


def test_a_seed_of_several_gives_what_it_gives_alone(tmp_path: Path) -> None:
    """The mean of runs with one seed each, which know nothing of each other, is the mean of one run."""
    seeds = (1, 5, 9)
    joined = netfold.run({**SCENARIO, "seeds": list(seeds)}, out=tmp_path)
    alone = [netfold.run(SCENARIO, seed=seed, out=tmp_path).summary["variants"] for seed in seeds]

    for index, variant in enumerate(joined.summary["variants"]):
        times = [run[index]["metrics"]["iteration_time_us"] for run in alone]
        assert len(set(times)) == 3
        assert variant["metrics"]["iteration_time_us"] == pytest.approx(fmean(times))
        assert variant["spread"]["iteration_time_us"] == [min(times), max(times)]
    repeats = joined.summary["repeats"]
    assert [row["name"] for row in repeats] == ["dense", "dense@5", "dense@9", "half", "half@5", "half@9"]
    assert [row["metrics"] for row in repeats] == [run[index]["metrics"] for index in (0, 1) for run in alone]
    assert set(joined.steps["variant"]) == {row["name"] for row in repeats}
    assert list(joined.variants["name"]) == ["dense", "half"]


@pytest.mark.slow
def test_jobs_that_wait_and_a_training_are_repeated_and_reported(tmp_path: Path) -> None:
    """Jobs take their names when they are admitted; figures are those of the first seed."""
    jobs = [{"name": "a", "count": 2, "arrivals": {"kind": "poisson", "mean_gap": "10us"}}]
    queue = netfold.run({**SCENARIO, "seeds": 2, "jobs": jobs, "admission": "fifo"}, out=tmp_path)
    training = {"workload": {"kind": "training", "model": "mlp", "batch": 8, "steps": 2}, "seeds": 2}
    trained = netfold.run({**SCENARIO, **training}, out=tmp_path)

    assert list(queue.variants["name"]) == ["dense/a-1", "dense/a-2", "half/a-1", "half/a-2"]
    assert len(queue.summary["repeats"]) == 8
    assert queue.summary["answer"][0]["question"] == "makespan"
    for run in (queue, trained):
        page = run.report().read_text("utf-8")
        assert f"seeds 1, {run.summary['seeds'][1]}" in page
        assert "@" not in "".join(path.read_text("utf-8") for path in (run.path / "figures").iterdir())


def test_what_has_no_mean_is_that_of_the_first_seed_and_the_verdict_that_of_the_worst() -> None:
    def entry(name: str, verdict: str, **metrics: object) -> dict[str, object]:
        return {"name": name, "verdict": verdict, "checks": [verdict], "metrics": metrics}

    summary = {
        "variants": [
            entry("a", "pass", aggregation_time_us=1.0, steps=2, bit_exact=True, time_to_target_us=5.0),
            entry("a@7", "fail", aggregation_time_us=2.5, steps=3, bit_exact=False, time_to_target_us=None),
        ],
        "warnings": [
            "a: slow",
            "a: link 1 of 5",
            "a: link 2 of 5",
            "a@7: slow",
            "a@7: link 3 of 4",
            "a@7: late",
        ],
        "injected": [{"variant": "a"}, {"variant": "a@7"}],
    }

    joined = with_means(summary, (1, 7))

    (variant,) = joined["variants"]
    assert (variant["verdict"], variant["checks"]) == ("fail", ["fail"])
    assert variant["metrics"] == {
        "aggregation_time_us": 1.75,
        "steps": 2,  # 2.5, rounded to a whole even number
        "bit_exact": False,
        "time_to_target_us": None,
    }
    assert variant["spread"] == {"aggregation_time_us": [1.0, 2.5], "steps": [2, 3]}
    assert joined["warnings"] == [
        "a: slow",
        "a: link 1 of 5",
        "a: link 2 of 5",
        "a: late",
        "a: does not pass with seed 7 (fail)",
    ]
    assert joined["injected"] == [{"variant": "a"}]


def test_a_list_of_one_seed_is_explained_with_a_command_that_runs(tmp_path: Path) -> None:
    run = netfold.run(
        {**SCENARIO, "seeds": [3], "variants": [{"name": "dense"}], "codec": {"kind": "none"}}, out=tmp_path
    )
    explanation = netfold.explain(run)

    assert (run.summary["seeds"], [row["seed"] for row in run.summary["repeats"]]) == ([3], [3])
    command = explanation.command(explanation.all_tried[0])
    assert "--set seeds=1" in command
    assert command.endswith("--seed 3")


def test_seeds_that_a_run_cannot_have(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"seeds: lists the seeds, so --seed changes nothing"):
        netfold.run({**SCENARIO, "seeds": [3]}, seed=1, out=tmp_path)
    with pytest.raises(ScenarioError, match=r"seeds: lists the seed 3 twice"):
        netfold.validate({**SCENARIO, "seeds": [3, 3]})
    with pytest.raises(ScenarioError, match=r"seeds: the points of a sweep have seeds of their own"):
        netfold.validate({**SCENARIO, "seeds": 2, "sweep": {"workers": [1, 2]}})


def test_scores_are_means_of_the_tests_that_all_seeds_had() -> None:
    def entry(name: str, *scores: float) -> dict[str, object]:
        tests = [
            {"steps": 10 * (1 + at), "time_us": 5.0 * (1 + at), "score": s} for at, s in enumerate(scores)
        ]
        return {"name": name, "verdict": "pass", "checks": [], "metrics": {}, "scores": tests}

    summary = {
        "variants": [entry("a", 0.5, 0.75, 0.8), entry("a@7", 0.5, 0.25)],
        "warnings": [],
        "injected": [],
    }

    (variant,) = with_means(summary, (1, 7))["variants"]

    assert variant["scores"] == [
        {"steps": 10, "time_us": 5.0, "score": 0.5},
        {"steps": 20, "time_us": 10.0, "score": 0.5, "range": [0.25, 0.75]},
    ]
