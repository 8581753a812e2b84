"""What a run is asked, and the sentence that answers it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import netfold
from netfold.errors import ScenarioError
from netfold.sim.report.answer import QUESTIONS, answered_in, answers, groups_of, with_answer
from netfold.sim.report.network_answer import details_of
from netfold.sim.report.over_time import telling
from netfold.sim.report.predictions import answers_and_outlook, size_lines
from netfold.sim.report.several_runs import joined
from netfold.sim.report.words import digits, money, percent, time
from netfold.sim.results.file_formats import TABLES, frame
from netfold.sim.results.folder import RunFolder
from netfold.sim.scenario.variant_keys import QuestionName
from tests import ROOT
from tests.command_line import run_command
from tests.examples import nightly
from tests.sim.report.test_answer import MLP, NEUMF, entry, reaching

SENTENCES: Mapping[str, Sequence[str]] = yaml.safe_load(
    Path(__file__).with_name("first_sentences.yaml").read_text("utf-8")
)


def scored(name: str, *scores: float, time_us: float = 10.0, **more: Any) -> dict[str, Any]:
    """A variant that is tested after every step, and ends with its last test."""
    tests = [
        {"steps": step, "time_us": step * time_us, "score": score}
        for step, score in enumerate(scores, start=1)
    ]
    metric = {"test_metric": more.pop("metric", "accuracy"), "test_score": scores[-1]}
    return entry(name, time_us, scores=tests, **metric, **more)


def only(variants: Sequence[dict[str, Any]], asked: str | None = None) -> str:
    (text,) = answers(groups_of(variants, asked=asked))
    return text


def test_every_question_of_a_scenario_has_words() -> None:
    assert tuple(QUESTIONS) == get_args(QuestionName)


def test_scores_are_those_at_the_time_when_the_first_variant_ends() -> None:
    """quick ends after 30 µs; slow has had one test by then, and its later ones do not count."""
    quick = scored("quick", 0.2, 0.5, 0.6)
    slow = scored("slow", 0.7, 0.9, 0.95, time_us=20.0, plain=True)

    assert only([quick, slow]) == (
        "slow has the best accuracy after 30.0 µs, when quick ends: 70.0 %; "
        "next is quick, 10.0 points below slow"
    )
    assert only([scored("quick", 0.2, 0.5, 0.75), slow]) == (
        "quick has the best accuracy after 30.0 µs, when quick ends: 75.0 %, 5.00 points above slow (70.0 %)"
    )


def test_of_perplexity_less_is_better() -> None:
    variants = [
        scored("a", 90.0, 60.0, metric="perplexity"),
        scored("b", 80.0, 50.0, metric="perplexity"),
        scored("c", 99.0, 75.0, metric="perplexity", plain=True),
    ]

    assert only(variants) == (
        "b has the best perplexity after 20.0 µs, when a ends: 50.0, 25.0 below c (75.0); "
        "next is a, 10.0 above b"
    )


@pytest.mark.parametrize(("score", "is_ranked"), [(0.13, False), (0.131, True)])
def test_what_has_not_been_learned_is_not_ranked(score: float, is_ranked: bool) -> None:
    """Guessing gives 10 %; three points more are not learned."""
    variants = [scored("a", 0.1, score, chance=0.1), scored("b", 0.1, 0.1, chance=0.1)]

    told = "no variant has learned: every accuracy is within three points of guessing (10.0 %)"
    assert (only(variants) != told) == is_ranked
    ranks = [variant["ranking"]["rank"] for variant in with_answer({"variants": variants})["variants"]]
    assert (ranks != [None, None]) == is_ranked


def test_one_variant_is_told_without_a_comparison() -> None:
    assert only([entry("a", 4.0)]) == "a takes 4.00 µs a step"
    assert only([reaching("a", 4.0, 80.0)]) == "a reaches an accuracy of 90.0 % after 80.0 µs"
    assert only([scored("a", 0.5, 0.6)]) == "a ends after 20.0 µs with an accuracy of 60.0 %"


def test_a_scenario_can_ask_something_else() -> None:
    variants = [
        reaching("a", 4.0, 80.0, aggregation_elements_per_s=1e9),
        reaching("b", 2.0, 90.0, aggregation_elements_per_s=2.5e9, plain=True),
    ]

    assert only(variants).startswith("a reaches an accuracy of 90.0 % first: after 80.0 µs")
    assert only(variants, "step_time").startswith("b has the shortest step: 2.00 µs")
    assert only(variants, "throughput") == (
        "b sums the most elements a second: 2.50 G; next is a, 60.0 % less"
    )
    plain_a = [variants[0] | {"is_uncompressed": True}, variants[1] | {"is_uncompressed": False}]
    assert only(plain_a, "throughput") == (
        "b sums the most elements a second: 2.50 G, 2.50 × as much as a (1.00 G)"
    )


def test_jobs_that_come_and_go_are_asked_when_all_are_done() -> None:
    jobs = [entry(f"{name}/{job}", 1.0, stays=True) for name in ("wait", "share") for job in ("x", "y")]
    overviews = [
        {"variant": name, "jobs": 2, "makespan_us": makespan_us}
        for name, makespan_us in (("wait", 300.0), ("share", 120.0))
    ]

    assert answers(answered_in({"variants": jobs, "jobs": overviews})) == [
        "share finishes all 2 jobs first: after 120 µs, 2.50 × as fast as wait (300 µs)"
    ]
    unfinished = [overviews[0], overviews[1] | {"makespan_us": None}]
    assert answers(answered_in({"variants": jobs, "jobs": unfinished})) == [
        "wait finishes all 2 jobs first: after 300 µs"
    ]


def grid(times: Mapping[tuple[str, str], float]) -> list[dict[str, Any]]:
    """A grid of networks and collectives."""
    return [
        entry("-".join(names), time_us, axes=[["topology", names[0]], ["collective", names[1]]])
        for names, time_us in times.items()
    ]


def test_a_grid_says_what_is_best_where() -> None:
    times = {("star", "ring"): 60.0, ("star", "tree"): 20.0, ("mesh", "ring"): 50.0, ("mesh", "tree"): 30.0}
    best = "\nfastest collective by topology: "

    assert only(grid(times)) == (
        "star-tree has the shortest step: 20.0 µs, 3.00 × as fast as star-ring (60.0 µs); next is mesh-tree, "
        f"50.0 % slower{best}tree for each (1.67 to 3.00 × as fast as ring)"
    )
    assert only(grid(times | {("mesh", "tree"): 60.0})).endswith(
        f"{best}tree for star (3.00 × as fast as ring), ring for mesh (1.20 × as fast as tree)"
    )
    assert only(grid(times | {("mesh", "tree"): 50.0})).endswith(
        f"{best}tree for star (3.00 × as fast as ring), ring or tree for mesh"
    )


def sized(size: str, elements: int, times: Mapping[str, float], **more: Any) -> list[dict[str, Any]]:
    """A grid of messages and networks; the closed form grows by 2 or 3 µs a kB, and lacks 4 or 5 µs."""
    costs = {"star": 27_600.0, "mesh": 41_000.0, "lost": 41_000.0}
    lost = {"kind": "mesh", "without": ["s0"]}
    return [
        entry(
            f"{size}-{name}",
            time_us,
            MLP | {"elements": elements},
            **{
                "axes": [["workload", size], ["topology", name]],
                "cost_usd": costs[name],
                "elements": elements,
            },
            **{"predicted_time_us": time_us - (4 if elements < 1000 else 5)},
            **{"bounds": [{**LINK, "where": f"{name}-link", "time_us": 0.5 * time_us}]},
            **{"topology": lost if name == "lost" else {"kind": name}},
            **more,
        )
        | {
            "predictions": [
                [kilobytes * 1e3, (3.0 if name == "star" else 2.0) * kilobytes] for kilobytes in (1, 10, 100)
            ]
        }
        for name, time_us in times.items()
    ]


LINK = {"cause": "link", "alike": 2, "share": 0.5, "busy": None, "hosts": 0, "faster": None}
LINK |= {"following_busy": None}


def test_networks_of_several_prices_are_compared_once_for_all_sizes() -> None:
    """Of those that tie the cheapest is named first; a network after a failure does not compete."""
    variants = sized("small", 250, {"mesh": 4.0, "star": 4.0}, seeds=[1, 2, 3])
    variants += sized("large", 2500, {"mesh": 20.0, "star": 22.0, "lost": 19.0}, seeds=[1, 2, 3])
    variants[2]["spread"] = {"iteration_time_us": [19.8, 20.2]}
    groups = groups_of(variants)

    # 100 kB take 2 or 3 µs a kilobyte by the closed form; with 10 kB, it is 5 µs too short.
    assert answers_and_outlook(groups) == [
        "small: star and mesh tie for the shortest step: 4.00 µs",
        "large: mesh has the shortest step: 20.0 µs; next: star, 10.0 % slower",
        "100 kB, predicted: mesh, 205 µs; next: star, 305 µs; "
        "10.0 kB, predicted in the same way from 1.00 kB, is at most 5.00 % off",  # 1 of 20 us, or of 22
    ]
    assert details_of(groups) == [
        "cost: star $27.6k, mesh $41.0k; all networks $27.6k to $41.0k",
        "failure: without s0, mesh takes 5.00 % less",
        "why mesh (large): its links are the bottleneck for 10.0 µs, against 11.0 µs for star, "
        "whose bottleneck is star-link +2",
        "how sure: 3 seeds, whose times differ by up to 2.00 %; the next is 10.0 % slower or more, while "
        "simulated rates of long messages are within 2 % of a published one",
    ]
    ranks = {
        entry["name"]: entry["ranking"]["rank"] for entry in with_answer({"variants": variants})["variants"]
    }
    assert ranks["large-lost"] is None


def test_networks_with_the_same_winners_share_a_sentence() -> None:
    variants = sized("small", 250, {"mesh": 4.0, "star": 5.0}) + sized(
        "large", 2500, {"mesh": 20.0, "star": 21.0}
    )

    assert answers_and_outlook(groups_of(variants))[:-1] == [
        "small and large: mesh has the shortest step: 4.00 µs and 20.0 µs; next: star, 5.00 to 25.0 % slower"
    ]


def test_networks_of_which_a_check_failed_are_answered_one_by_one() -> None:
    variants = sized("small", 250, {"mesh": 4.0, "star": 5.0}) + sized(
        "large", 2500, {"mesh": 20.0, "star": 21.0}
    )
    variants[0]["verdict"] = "fail"

    assert "not ranked: mesh (fail)" in answers_and_outlook(groups_of(variants))[0]


def test_messages_of_several_runs_have_a_line_for_each_variant_of_each_run() -> None:
    variants = sized("small", 250, {"mesh": 4.0, "star": 5.0})
    variants += sized("large", 2500, {"mesh": 20.0, "star": 21.0})
    both = joined([folder_of(*variants), folder_of(*variants)])
    lines = size_lines(answered_in(both.summary))

    assert {(line.name, line.place) for line in lines} == {
        (f"{name} of run {run}", (run, name)) for name in ("mesh", "star") for run in ("1", "2")
    }
    assert all([point.size_bytes for point in line.simulated] == [1000.0, 10_000.0] for line in lines)


def test_what_is_not_predicted_or_far_off_is_named() -> None:
    """With 10 kB, the closed form lacks 5 µs of 20 for mesh, and 20 of 100 for star; with 1 kB, 4."""
    variants = sized("small", 250, {"mesh": 4.0, "star": 5.0})
    variants += sized("large", 2500, {"mesh": 20.0, "star": 100.0})
    variants[3]["metrics"]["predicted_time_us"] = 80.0
    told = (
        "100 kB, predicted: mesh, 205 µs; not predicted: star; "
        "10.0 kB, predicted in the same way from 1.00 kB, is at most 5.00 % off"
    )

    assert answers_and_outlook(groups_of(variants))[-1] == told
    variants[3]["metrics"]["predicted_time_us"] = 95.0
    del variants[3]["predictions"]
    assert answers_and_outlook(groups_of(variants))[-1] == told


def test_of_what_trains_nothing_is_predicted() -> None:
    """Two jobs that train two models have messages of two sizes."""
    times = {"mesh": 4.0, "star": 4.0}
    trained = [*sized("small", 250, times, loss=0.5), *sized("large", 2500, times, loss=0.4)]

    assert not any("predicted" in text for text in answers_and_outlook(groups_of(trained)))


def test_of_one_size_nothing_is_predicted() -> None:
    assert answers_and_outlook(groups_of(sized("small", 250, {"mesh": 4.0, "star": 5.0}))) == [
        "small-mesh has the shortest step: 4.00 µs, 1.25 × as fast as small-star (5.00 µs)\n"
        "small-mesh costs $41.0k, all networks $27.6k to $41.0k",
    ]


def test_what_failed_is_not_ranked_and_said() -> None:
    variants = [entry("a", 4.0), entry("b", 2.0, verdict="stalled"), entry("c", 1.0, verdict="fail")]

    assert only(variants) == "a has the shortest step: 4.00 µs; not ranked: b (stalled), c (fail)"
    assert only(variants[1:]) == "no variant is ranked: b (stalled), c (fail)"


def test_a_grid_over_workloads_has_nothing_to_say_of_each() -> None:
    """Each density is a group of its own, in which the grid has one row."""
    variants = [
        entry(
            f"{density}-{name}",
            time_us,
            MLP | {"density": density},
            axes=[["workload", density], ["codec", name]],
        )
        for density, name, time_us in (
            ("low", "x", 1.0),
            ("low", "y", 2.0),
            ("high", "x", 3.0),
            ("high", "y", 4.0),
        )
    ]

    assert [text.count(";") for text in answers(groups_of(variants))] == [0, 0]


def test_a_question_that_one_job_cannot_answer_is_not_asked_of_it() -> None:
    trained = [scored("a/x", 0.5, 0.6), scored("b/x", 0.5, 0.7)]
    plain = [entry("a/y", 4.0, NEUMF), entry("b/y", 2.0, NEUMF)]

    texts = answers(groups_of([*trained, *plain], asked="score_at_time"))
    assert texts[0].startswith("x: b has the best accuracy after 20.0 µs")
    assert texts[1] == "y: b has the shortest step: 2.00 µs, 2.00 × as fast as a (4.00 µs)"


NAMES = st.text("abcdefgh", min_size=1, max_size=4)


@given(
    times=st.lists(st.floats(1.0, 1e6), min_size=1, max_size=7),
    models=st.lists(st.sampled_from(["mlp", "ncf"]), min_size=7, max_size=7),
    batches=st.lists(st.sampled_from([8, 64]), min_size=7, max_size=7),
    jobs=st.lists(st.sampled_from(["", "/x", "/y"]), min_size=7, max_size=7),
    asked=st.sampled_from([None, "step_time"]),
)
def test_no_ratio_is_between_unlike_workloads(
    times: list[float], models: list[str], batches: list[int], jobs: list[str], asked: str | None
) -> None:
    """Every ratio that is said or recorded is of two variants with one workload and one job, and is right."""
    variants = [
        entry(f"v{index}{jobs[index]}", time_us, {"model": models[index], "batch": batches[index]})
        for index, time_us in enumerate(times)
    ]
    like = {one["name"]: (one["setup"]["workload"], one["name"].partition("/")[2]) for one in variants}
    time_of = {one["name"]: one["metrics"]["iteration_time_us"] for one in variants}
    summary = with_answer({"variants": variants, "question": asked})

    check_ratios(summary, like, time_of)


def check_ratios(summary: Mapping[str, Any], like: Mapping[str, Any], time_of: Mapping[str, float]) -> None:
    """`like` is what variants have to have in common, by name."""
    for one in summary["variants"]:
        base = one["ranking"]["baseline"]
        assert like[base] == like[one["name"]]
        assert one["ranking"]["times_baseline"] == time_of[base] / time_of[one["name"]]
    for group in summary["answer"]:
        names = {*group["winners"], *group["next"], group["baseline"]}
        assert len({str(like[name]) for name in names}) == 1
        for ratio, base in re.findall(r"([\d.]+) × as fast as (.+?) \(", group["text"]):
            name = base if base in time_of else f"{base}/{group['group']}"
            assert ratio == digits(time_of[name] / min(time_of[winner] for winner in group["winners"]))


@given(
    times=st.lists(st.floats(1.0, 1e6), min_size=3, max_size=7),
    models=st.lists(st.sampled_from(["mlp", "ncf"]), min_size=7, max_size=7),
    jobs=st.lists(st.sampled_from(["", "/x", "/y"]), min_size=7, max_size=7),
    runs=st.lists(st.integers(0, 2), min_size=7, max_size=7),
)
def test_no_ratio_of_several_runs_is_between_unlike_workloads(
    times: list[float], models: list[str], jobs: list[str], runs: list[int]
) -> None:
    by_run: dict[int, list[dict[str, Any]]] = {}
    for index, time_us in enumerate(times):
        named = f"v{index}{jobs[index]}"
        by_run.setdefault(runs[index], []).append(entry(named, time_us, {"model": models[index]}))
    summary = with_answer(joined([folder_of(*variants) for variants in by_run.values()]).summary)
    variants = summary["variants"]
    like = {one["name"]: (one["setup"]["workload"], one["name"].partition("/")[2]) for one in variants}

    check_ratios(summary, like, {one["name"]: one["metrics"]["iteration_time_us"] for one in variants})
    assert sorted(one["metrics"]["iteration_time_us"] for one in variants) == sorted(times)


def folder_of(*variants: dict[str, Any], **more: Any) -> RunFolder:
    """A run without tables."""
    tables: dict[str, Any] = {name: frame(record, ()) for name, record in TABLES.items()}
    summary = {"scenario": "quick", "seed": 1, "verdict": "pass", "variants": list(variants), **more}
    lists = {"warnings": [], "approximations": []}
    return RunFolder(Path(), b"", lists | summary, checks=[], circumstances={}, **tables)


def test_jobs_of_runs_are_compared_where_they_are_the_same() -> None:
    """Runs 1 and 2 have the jobs x and y; in run 3, x trains another model."""
    folders = [
        folder_of(
            *(entry(f"wait/{job}", 1.0, workload if job == "x" else MLP, stays=True) for job in ("x", "y")),
            jobs=[{"variant": "wait", "jobs": 2, "makespan_us": makespan_us}],
            baseline="wait",
        )
        for makespan_us, workload in ((300.0, MLP), (100.0, MLP), (1.0, NEUMF))
    ]

    assert answers(answered_in(joined(folders).summary)) == [
        "the jobs of wait of run 1: wait of run 2 finishes all 2 jobs first: after 100 µs, "
        "3.00 × as fast as wait of run 1 (300 µs)",
        "the jobs of wait of run 3: wait of run 3 finishes all 2 jobs after 1.00 µs",
    ]


def test_grids_of_runs_are_one_grid_with_the_run_as_its_first_key() -> None:
    folders = [
        folder_of(*grid({("star", "ring"): 100.0, ("star", "tree"): tree_us})) for tree_us in (50.0, 400.0)
    ]

    (text,) = answers(answered_in(joined(folders).summary))
    assert text.endswith(
        "\nfastest collective by run and topology: tree for 1-star (2.00 × as fast as ring), "
        "ring for 2-star (4.00 × as fast as tree)"
    )


def test_of_many_variants_the_most_telling_are_chosen() -> None:
    """a wins, b is next, f is the baseline; z is stalled; then e is farthest from these, and c from all."""
    times = {"f": 100.0, "c": 3.0, "d": 2.2, "b": 2.0, "e": 20.0, "a": 1.0}
    variants = [entry(name, time_us, plain=name == "f") for name, time_us in times.items()]
    variants.append(entry("z", 1.0, verdict="stalled"))

    assert [telling({"variants": variants}, count) for count in range(1, 8)] == [
        *(["a"], ["b", "a"], ["f", "b", "a"], ["f", "b", "a", "z"], ["f", "b", "e", "a", "z"]),
        ["f", "c", "b", "e", "a", "z"],
        ["f", "c", "d", "b", "e", "a", "z"],
    ]


@given(st.permutations(range(4)), st.lists(NAMES, min_size=4, max_size=4, unique=True))
def test_other_names_and_another_order_change_the_names_alone(order: Sequence[int], names: list[str]) -> None:
    """Not what is compared, nor a number."""
    given_names, times = ("one", "two", "three", "four"), (40.0, 10.0, 30.0, 20.0)
    text = only([entry(name, time_us) for name, time_us in zip(given_names, times, strict=True)])
    renamed = only([entry(f"{names[index]}-", times[index]) for index in order])

    for name, new in zip(given_names, names, strict=True):
        text = re.sub(rf"\b{name}\b", f"{new}-", text)
    assert renamed == text


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("time_to_target", "no variant has a target"),
        ("score_at_time", "no variant is tested on held-out data"),
        ("makespan", "no variant has jobs that come and go"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(question: str, told: str, tmp_path: Path) -> None:
    scenario = {
        "name": "asked",
        "question": question,
        "topology": {"kind": "star", "hosts": 2},
        "workers": 2,
        "workload": {"kind": "synthetic", "elements": 8},
        "codec": {"kind": "none"},
        "collective": {"kind": "ring"},
        "variants": [{"name": "a"}],
    }
    with pytest.raises(ScenarioError, match=rf"question: .*{told}"):
        netfold.validate(scenario)


TIES = {
    "has the shortest step": "tie for the shortest step",
    "finishes all 11 jobs first": "tie to finish all 11 jobs first",
}
"""How a sentence goes on if several variants are first."""


def listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def places(values: Mapping[str, float], *, more_is_better: bool = False) -> list[list[str]]:
    """Names by their values, best first; those that show the same three digits together."""
    ordered = sorted(values, key=lambda name: (-values[name] if more_is_better else values[name], name))
    return [list(names) for _, names in itertools.groupby(ordered, key=lambda name: f"{values[name]:.3g}")]


def fill(template: str, values: Mapping[str, float], baseline: str | None, **more: str) -> str:
    """A sentence about times: of each variant, those of the first, the next and the baseline."""
    first, following, *_ = places(values)
    best, behind = values[first[0]], values[following[0]] / values[first[0]]
    text = template
    for alone, together in TIES.items():
        text = text.replace(alone, together) if len(first) > 1 else text
    if len(following) > 1:
        text = text.replace("next is", "next are")
    if following == [baseline]:  # which is named already
        text = re.sub(r"; next [^;\n]*", "", text)
    if baseline is not None:
        more |= {"gain": f"{digits(values[baseline] / best)} ×", "baseline_time": time(values[baseline])}
        more |= {"slowest": baseline, "slowest_uncompressed": baseline}
    text = text.replace(
        "{behind} slower", f"{digits(behind)} × as long" if behind >= 2 else "{behind} % slower"
    )
    return text.format(
        winner=listed(first),
        time=time(best),
        next=listed(following),
        behind=digits(100 * (behind - 1)),
        **more,
    )


def step_times(run: netfold.Run) -> dict[str, float]:
    """Microseconds of a step of each variant, from the table of steps."""
    means = run.steps.group_by("variant", maintain_order=True).agg(
        ((pl.col("end_ps") - pl.col("start_ps")).mean() / 1e6).alias("us")
    )
    return dict(means.iter_rows())


def best_of_each(times: Mapping[str, float]) -> str:
    """Of variants network-collective; a network's slowest is what its collectives are compared with."""
    run_of: dict[str, dict[str, float]] = {}
    collectives = ("ring", "tree", "hierarchical", "in-network", "racks-first", "one-switch")
    for name, value in times.items():
        collective = next(ending for ending in collectives if name.endswith(f"-{ending}"))
        run_of.setdefault(name.removesuffix(f"-{collective}"), {})[collective] = value
    gains: dict[str, dict[str, float]] = {}
    slowest: dict[str, list[str]] = {}
    for network, row in run_of.items():
        best = min(row, key=row.__getitem__)
        gains.setdefault(best, {})[network] = max(row.values()) / row[best]
        slowest.setdefault(best, []).append(max(row, key=row.__getitem__))
    parts = []
    for best, by_network in gains.items():
        least, most = digits(min(by_network.values())), digits(max(by_network.values()))
        where = "each" if len(by_network) == len(run_of) else listed(list(by_network))
        others = " or ".join(dict.fromkeys(slowest[best]))
        gain = f"{f'{least} to ' if least != most else ''}{most} ×"
        parts.append(f"{best} for {where} ({gain} as fast as {others})")
    return ", ".join(parts)


def target_times(run: netfold.Run, job: str, target: float) -> dict[str, float]:
    """Microseconds until a variant's job reached the target, of those that did."""
    times = {}
    for (name,), steps in run.steps.group_by(["variant"], maintain_order=True):
        reached = steps.filter(pl.col("test_score") >= target)
        if str(name).endswith(job) and len(reached):
            times[str(name).removesuffix(job)] = (reached["end_ps"][0] - steps["start_ps"][0]) / 1e6
    return times


def makespans(run: netfold.Run) -> dict[str, float]:
    """Microseconds from the first job's start, which does not wait, to the end of the last."""
    variant = pl.col("variant").str.split("/").list.first()
    spans = run.steps.group_by(variant).agg(
        ((pl.col("end_ps").max() - pl.col("start_ps").min()) / 1e6).alias("us")
    )
    return dict(spans.iter_rows())


def scores(run: netfold.Run, job: str) -> tuple[dict[str, float | None], float, str]:
    """The score of each variant's job when the first of them ends, when that is, and which it is."""
    tests: dict[str, list[tuple[float, float]]] = {}
    for (name,), steps in run.steps.group_by(["variant"], maintain_order=True):
        if str(name).endswith(job):
            start_ps, rows = steps["start_ps"][0], steps.filter(pl.col("test_score").is_not_null())
            tests[str(name).removesuffix(job)] = [
                ((end_ps - start_ps) / 1e6, score)
                for end_ps, score in rows.select("end_ps", "test_score").iter_rows()
            ]
    end_us, first = min((rows[-1][0], name) for name, rows in tests.items())
    known = {name: [score for us, score in rows if us <= end_us] for name, rows in tests.items()}
    return {name: tested[-1] if tested else None for name, tested in known.items()}, end_us, first


def expected(number: str, run: netfold.Run) -> list[str]:
    """The sentences of a chapter, with what the tables of its run say."""
    templates = SENTENCES[number]
    match number:
        case "01":
            return [fill(templates[0], step_times(run), "ring-fp32")]
        case "11":
            lines = []
            for size in ("1kb", "32kb", "1mb", "8mb"):
                means: dict[str, list[float]] = {}
                for name, value in step_times(run).items():
                    if name.startswith(f"{size}-"):
                        means.setdefault(name.removeprefix(f"{size}-").partition("@")[0], []).append(value)
                times = {name: sum(values) / len(values) for name, values in means.items()}
                # A failure is not compared with the network before it.
                ranked = {name: value for name, value in times.items() if not name.startswith("spine-lost")}
                slowest = max(ranked, key=ranked.__getitem__)
                line = fill(
                    templates[0],
                    ranked,
                    slowest,
                    size=size,
                    best_of_each=best_of_each(times),
                )
                # Of those that tie, the one on the dearest network is the last.
                first = ("hyperx-in-network", "leaf-spine-in-network")
                lines.append(line.replace(" and ".join(first), " and ".join(reversed(first)), 1))
            return lines
        case "12":
            times = step_times(run)
            slowest = max(times, key=times.__getitem__)
            cost = {one["name"]: one["metrics"]["cost_usd"] for one in run.summary["variants"]}
            first = places(times)[0]
            winner, *tied = sorted(first, key=cost.__getitem__)
            prices: dict[str, list[str]] = {}
            for name in (winner, *tied):
                prices.setdefault(money(cost[name]), []).append(name)
            told = [
                f"{listed(names)} cost{'s' * (len(names) == 1)} {price}" for price, names in prices.items()
            ]
            least, most = money(min(cost.values())), money(max(cost.values()))
            networks = f"{', '.join(told)}, all networks {least} to {most}"
            line = fill(templates[0], times, slowest, best_of_each=best_of_each(times), networks=networks)
            return [line.replace(listed(first), listed([winner, *tied]), 1)]
        case "16":
            times = step_times(run)
            plain = [name for name in times if not name.startswith("switchml")]
            return [fill(templates[0], times, max(plain, key=times.__getitem__))]
        case "15" | "17":
            targets = {"/digits": 0.95, "/films": 0.45} if number == "15" else {"": 0.95}
            lines = []
            for template, (job, target) in zip(templates, targets.items(), strict=True):
                times = target_times(run, job, target)
                names = {str(name) for name in run.steps["variant"].unique() if str(name).endswith(job)}
                missing = sorted({name.removesuffix(job) for name in names} - set(times))
                ending = f"; {listed(missing)} {'does' if len(missing) == 1 else 'do'} not reach it"
                lines.append(fill(template, times, "dense") + (ending if missing else ""))
            return lines
        case "18":
            times = makespans(run)
            return [fill(templates[0], times, max(times, key=times.__getitem__))]
        case _:
            lines = []
            for template, job in zip(templates, ("/digits", "/films"), strict=True):
                values, end_us, first = scores(run, job)
                known = {name: score for name, score in values.items() if score is not None}
                best, following, *_ = places(known, more_is_better=True)
                missing = sorted(set(values) - set(known))
                lines.append(
                    template.format(
                        winner=listed(best),
                        time=time(end_us),
                        first=first,
                        score=percent(known[best[0]]),
                        next=listed(following),
                        behind=digits(100 * (known[best[0]] - known[following[0]])),
                        missing=f"{listed(missing)} {'has' if len(missing) == 1 else 'have'} not",
                    )
                )
            return lines


@nightly
@pytest.mark.parametrize("number", list(SENTENCES))
def test_shipped_scenarios_begin_with_their_answers(number: str, tmp_path: Path) -> None:
    (file,) = (ROOT / "scenarios").glob(f"{number}-*.yaml")
    run = netfold.run(file, out=tmp_path)

    assert [group["text"] for group in run.summary["answer"]] == expected(number, run)


def test_the_command_answers_the_question_of_its_scenario(tmp_path: Path) -> None:
    file = tmp_path / "asked.yaml"
    file.write_text(
        "name: asked\nquestion: throughput\ntopology: {kind: star, hosts: 2}\nworkers: 2\n"
        "workload: {kind: synthetic, elements: 8}\ncodec: {kind: none}\ncollective: {kind: ring}\n"
        "variants: [{name: a}]\n"
    )
    done = run_command("run", str(file), "--no-report", "--out", str(tmp_path / "runs"))

    assert re.match(r"a sums [\d.]+ M elements a second\nasked, seed 1\n", done.stdout)
