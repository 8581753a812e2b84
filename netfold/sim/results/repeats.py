"""Repeats of variants with further seeds, named NAME@SEED: their means, and how far apart they are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from netfold.sim.results.metrics import BY_NAME
from netfold.sim.results.summary import GOOD, kind

MARK = "@"
_BAD = ("fail", "stalled", *reversed(GOOD))
"""Kinds of verdicts, the worst first."""
_OF_THE_WORST = ("verdict", "checks", "diagnosis", "trace")


def repeat_name(variant: str, seed: int) -> str:
    return f"{variant}{MARK}{seed}"


def first_name(name: str) -> str:
    """The name that a variant, or a job of one, has with the first seed: "dense/a" of "dense@7/a"."""
    variant, slash, job = name.partition("/")
    return variant.partition(MARK)[0] + slash + job


def with_means(summary: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
    """A summary in which every variant, and every overview of jobs, has the means over its seeds.

    A variant's `spread` has the least and the greatest value of each metric that differs, and its `seeds`
    those that it ran with. What has no mean (a time line, a bottleneck, a choice) is that of the first seed;
    a metric that one seed has no value of has none. The verdict and the checks are those of the worst seed.
    `repeats` has every seed's verdict and metrics. Faults that are listed are those of the first seed.
    """
    by_name: dict[str, list[dict[str, Any]]] = {}
    for entry in summary["variants"]:
        by_name.setdefault(first_name(entry["name"]), []).append(entry)
    variants = [_joined(entries, seeds) for entries in by_name.values()]
    overviews: dict[str, list[dict[str, Any]]] = {}
    for overview in summary.get("jobs", ()):
        overviews.setdefault(first_name(overview["variant"]), []).append(overview)
    return {
        **summary,
        "seeds": list(seeds),
        "variants": variants,
        "repeats": [
            {**{key: entry[key] for key in ("name", "verdict", "metrics")}, "seed": seed}
            for entries in by_name.values()
            for seed, entry in zip(seeds, entries, strict=False)
        ],
        **({"jobs": [_overview(repeats) for repeats in overviews.values()]} if overviews else {}),
        "warnings": [*_only_first(summary["warnings"]), *_worse_seeds(by_name, seeds)],
        "injected": [fault for fault in summary["injected"] if MARK not in fault["variant"]],
    }


def _joined(entries: Sequence[dict[str, Any]], seeds: Sequence[int]) -> dict[str, Any]:
    """A variant's entry of all its seeds."""
    first, worst = entries[0], min(entries, key=lambda entry: _BAD.index(kind(entry["verdict"])))
    if kind(worst["verdict"]) == kind(first["verdict"]):
        worst = first
    metrics = {
        name: _mean([entry["metrics"].get(name) for entry in entries], BY_NAME[name].unit.type is int)
        for name in first["metrics"]
    }
    return {
        **{key: value for key, value in first.items() if key not in _OF_THE_WORST},
        **{key: worst[key] for key in _OF_THE_WORST if key in worst},
        "metrics": metrics,
        "seeds": list(seeds[: len(entries)]),
        "spread": _spread([entry["metrics"] for entry in entries]),
        **({"scores": _scores(entries)} if "scores" in first else {}),
    }


def _overview(repeats: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """An overview of jobs that come and go: the time until all are done is a mean."""
    makespans = [repeat["makespan_us"] for repeat in repeats]
    return {**repeats[0], "makespan_us": _mean(makespans), "spread": _spread(repeats)}


def _mean(values: Sequence[Any], is_whole: bool = False) -> Any:
    if any(value is None for value in values):
        return None
    first = values[0]
    if isinstance(first, bool):
        return all(values)
    if not isinstance(first, int | float) or len(set(values)) == 1:
        return first
    mean = sum(values) / len(values)
    return round(mean) if is_whole else mean


def _spread(repeats: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """The least and the greatest of every number that all have and that differs."""
    spread = {}
    for name in repeats[0]:
        values: list[Any] = [repeat.get(name) for repeat in repeats]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            low, high = min(values), max(values)
            if low < high:
                spread[name] = [low, high]
    return spread


def _scores(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tests that all seeds had, with mean times and scores."""
    tests_by_steps = [{test["steps"]: test for test in entry.get("scores", ())} for entry in entries]
    scores = []
    for steps in tests_by_steps[0]:
        if all(steps in tests for tests in tests_by_steps):
            alike = [tests[steps] for tests in tests_by_steps]
            means = {key: _mean([test[key] for test in alike]) for key in ("steps", "time_us", "score")}
            score_range = _spread(alike).get("score")
            scores.append(means | ({"range": score_range} if score_range else {}))
    return scores


def _only_first(warnings: Sequence[str]) -> list[str]:
    """Warnings, each about a variant once: of further seeds those that differ in more than numbers."""
    named = [text.partition(": ") for text in warnings]
    wordings = {(name, _without_numbers(text)) for name, _, text in named}
    return list(
        dict.fromkeys(
            f"{first_name(name)}{colon}{text}"
            for name, colon, text in named
            if MARK not in name or (first_name(name), _without_numbers(text)) not in wordings
        )
    )


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "", text)


def _worse_seeds(by_name: Mapping[str, Sequence[Mapping[str, Any]]], seeds: Sequence[int]) -> list[str]:
    """Which seeds of a variant do not pass while another does."""
    texts = []
    for name, entries in by_name.items():
        bad = [
            f"{seed} ({entry['verdict']})"
            for seed, entry in zip(seeds, entries, strict=False)
            if kind(entry["verdict"]) not in GOOD
        ]
        if 0 < len(bad) < len(entries):
            texts.append(f"{name}: does not pass with seed {', '.join(bad)}")
    return texts
