"""The question of a run and its answer: which variant comes first, how far, at what cost, and why.

Variants are compared within a group: of equal workload, and of the same job. Outside of it a ratio says
nothing. The order of the variants changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from netfold.errors import NAMES_SHOWN
from netfold.sim.report import words
from netfold.sim.report.bottleneck_text import because, sentence, short
from netfold.sim.report.words import format_value
from netfold.sim.results.metrics import has_target, is_lossy
from netfold.sim.results.summary import GOOD, kind, worst
from netfold.sim.workload.training_keys import ScoreMetric, metric_named
from netfold.sim.workload.workload_keys import CHOICES

Entry = Mapping[str, Any]
"""A variant of a summary, or one of its jobs."""

AS_GIVEN = "given"
GROUPS_MAX = 4
"""The most groups that are answered in words."""
CONDITIONS_MAX = 8
"""The most values of a grid's axis whose winners are named one by one."""
SKEW_MIN = 0.1
"""A replay whose rank skew is a larger share of the aggregation time is ranked without it."""
MODEL_ERROR = 0.02
"""How far simulated rates are from a published one, of long messages (scenarios/papers/switchml-rate)."""
_LONG_BYTES = 1 << 20
"""Payload of a worker's step above which rates matter more than latencies, which were not compared."""
GUESSING_POINTS = 0.03
"""A score so close to that of guessing has not been learned."""


class Question(NamedTuple):
    """What a run is asked, and how its answer is worded."""

    name: str
    metric: str  # what ratios divide
    by: str  # that in words
    wins: str  # what the first one does
    ties: str  # what several first ones do
    alone: str  # what a variant does that is compared with none
    more_is_better: bool = False


TIME_TO_TARGET = Question(
    name="time_to_target",
    metric="time_to_target_us",
    by="time to the target",
    wins="reaches {goal} first: after {value}",
    ties="reach {goal} first, together: after {value}",
    alone="reaches {goal} after {value}",
)
STEP_TIME = Question(
    name="step_time",
    metric="iteration_time_us",
    by="time of a step",
    wins="has the shortest step: {value}",
    ties="tie for the shortest step: {value}",
    alone="takes {value} a step",
)
SINCE_LAST_RANK = Question(
    name="step_time",
    metric="since_last_rank_us",
    by="time since the last rank arrived, as recorded skew takes much more",
    wins="is the fastest once the last rank has arrived: {value}",
    ties="tie once the last rank has arrived: {value}",
    alone="takes {value} once the last rank has arrived",
)
"""The question about the time of a step, of ranks that replay a recording and arrive far apart."""
THROUGHPUT = Question(
    name="throughput",
    metric="aggregation_elements_per_s",
    by="elements per second",
    wins="sums the most elements a second: {value}",
    ties="tie for the most elements a second: {value}",
    alone="sums {value} elements a second",
    more_is_better=True,
)
MAKESPAN = Question(
    name="makespan",
    metric="makespan_us",
    by="time until all jobs are done",
    wins="finishes all {jobs} jobs first: after {value}",
    ties="tie to finish all {jobs} jobs first: after {value}",
    alone="finishes all {jobs} jobs after {value}",
)
SCORE_AT_TIME = Question(
    name="score_at_time",
    metric="iteration_time_us",
    by="time of a step",
    wins="has the best {metric} after {time}, when {first} ends: {value}",
    ties="tie for the best {metric} after {time}, when {first} ends: {value}",
    alone="ends after {time} with {a_metric} of {value}",
    more_is_better=True,
)
QUESTIONS = {
    question.name: question for question in (TIME_TO_TARGET, STEP_TIME, THROUGHPUT, MAKESPAN, SCORE_AT_TIME)
}


@dataclass(frozen=True)
class Group:
    """Variants that may be compared; `label` tells them from other groups, and is empty if there are none."""

    label: str
    members: tuple[Entry, ...]
    named: str | None = None
    """The variant that is wanted as the baseline."""
    asked: str | None = None
    """The question that a scenario gives; by default it follows from what the variants have."""

    @cached_property
    def question(self) -> Question:
        """What is given; or else the target, if all have it; or else the score, if all are tested."""
        question = QUESTIONS[self.asked] if self.asked else self._derived
        if (
            question is TIME_TO_TARGET and not any(has_target(variant["metrics"]) for variant in self.members)
        ) or (question is SCORE_AT_TIME and not any(variant.get("scores") for variant in self.members)):
            question = self._derived  # of another job: this one has nothing of the kind
        return SINCE_LAST_RANK if question is STEP_TIME and self.has_skew else question

    @property
    def _derived(self) -> Question:
        metrics = [variant["metrics"] for variant in self.members]
        if all("makespan_us" in figures for figures in metrics):
            return MAKESPAN
        if len({figures.get("target") for figures in metrics}) == 1 and has_target(metrics[0]):
            return TIME_TO_TARGET
        if self.sound and all(len(variant.get("scores", ())) > 1 for variant in self.sound):
            return SCORE_AT_TIME
        return STEP_TIME

    @cached_property
    def sound(self) -> list[Entry]:
        # No others are ranked.
        return [variant for variant in self.members if kind(variant["verdict"]) in GOOD]

    @property
    def has_skew(self) -> bool:
        """Whether its ranks replay a recording, and arrive so far apart that it matters."""
        return all(variant.get("replays_times") for variant in self.members) and any(
            (variant["metrics"].get("aggregation_time_us") or 0) * (1 - SKEW_MIN)
            > (variant["metrics"].get("since_last_rank_us") or 0)
            for variant in self.members
        )

    @cached_property
    def first_to_end(self) -> tuple[float, str]:
        """When the first sound variant had its last test, in µs, and its name."""
        ends = [
            (variant["scores"][-1]["time_us"], self.name(variant))
            for variant in self.sound
            if variant.get("scores")
        ]
        return min(ends, default=(0.0, ""))

    @property
    def score_metric(self) -> ScoreMetric:
        names = [variant["metrics"].get("test_metric") for variant in self.members]
        return metric_named(next((name for name in names if name), ""))

    @property
    def more_is_better(self) -> bool:
        is_score = self.question is SCORE_AT_TIME
        return self.score_metric.more_is_better if is_score else self.question.more_is_better

    def name(self, variant: Entry) -> str:
        name, axes = str(variant["name"]).removesuffix(f"/{self.label}"), variant.get("axes")
        return name.removeprefix(f"{self.label}-") if axes and axes[0][1] == self.label else name

    def value(self, variant: Entry) -> float | None:
        """What answers the question: a sound variant's metric, or its score when the first variant ends."""
        if kind(variant["verdict"]) not in GOOD:
            return None
        if self.question is not SCORE_AT_TIME:
            return self.pace(variant)
        tests = [test for test in variant.get("scores", ()) if test["time_us"] <= self.first_to_end[0]]
        return tests[-1]["score"] if tests else None

    def pace(self, variant: Entry) -> float | None:
        return variant["metrics"].get(self.question.metric) if kind(variant["verdict"]) in GOOD else None

    def shown(self, value: float | None) -> str:
        """A value in words."""
        if self.question is SCORE_AT_TIME and value is not None:
            return words.score(self.score_metric.name, value)
        return words.scaled(value, "") if self.question is THROUGHPUT else words.time(value)

    def whole(self, variant: Entry) -> Entry | None:
        """The variant that has the same network before links or switches of it failed; None without one."""
        intact = [other for other in self.members if failures(variant) and not failures(other)]
        return next((other for other in intact if _settings(other) == _settings(variant)), None)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The keys of the grid that its variants are, in the order of the file; empty if they are none.

        A first key that is the group's label is left out.
        """
        keys = {tuple(key for key, _ in variant.get("axes", ())) for variant in self.members}
        if len(keys) != 1:
            return ()
        (axes,) = keys
        return axes[1:] if axes and self.members[0]["axes"][0][1] == self.label else axes

    @property
    def chance(self) -> float | None:
        """The score of guessing, where all variants' models say it."""
        scores = {variant.get("chance") for variant in self.members}
        return scores.pop() if len(scores) == 1 else None

    @cached_property
    def has_learned(self) -> bool:
        """Whether some score is better than guessing; so too where nothing is known of either."""
        last = [variant["scores"][-1]["score"] for variant in self.sound if variant.get("scores")]
        return not last or self.chance is None or max(last) > self.chance + GUESSING_POINTS

    @cached_property
    def ranked(self) -> list[Entry]:
        """Sound variants that have what is asked, the best first; by name, where they are equal.

        A network after a failure (`without`) is no alternative to the same one before it, and is not ranked.
        """
        if self.question is SCORE_AT_TIME and not self.has_learned:
            return []
        return self._sorted(self.value, self.more_is_better)

    def _sorted(self, value: Callable[[Entry], float | None], is_more_better: bool) -> list[Entry]:
        known = [
            (figure, variant)
            for variant in self.members
            if (figure := value(variant)) is not None and self.whole(variant) is None
        ]
        sign = -1 if is_more_better else 1
        return [variant for _, variant in sorted(known, key=lambda pair: (sign * pair[0], pair[1]["name"]))]

    @cached_property
    def baseline(self) -> Entry | None:
        """What is named; or else the slowest that is not compressed; or else the slowest."""
        for variant in self.members:
            if self.named is not None and variant["name"].partition("/")[0] == self.named.partition("/")[0]:
                return variant
        by_pace = self._sorted(self.pace, self.question is THROUGHPUT)
        plain = [candidate for candidate in by_pace if candidate.get("is_uncompressed")]
        return next(reversed(plain or by_pace), None)

    def times(self, variant: Entry, metric: str = "") -> float | None:
        """How many times as fast as the baseline, by a metric; by default by that of the question."""
        metric = metric or self.question.metric
        if self.baseline is None or not {kind(self.baseline["verdict"]), kind(variant["verdict"])} <= {*GOOD}:
            return None
        base, value = self.baseline["metrics"].get(metric), variant["metrics"].get(metric)
        return words.ratio(value, base) if metric == THROUGHPUT.metric else words.ratio(base, value)

    def span(self, variant: Entry) -> tuple[float, float] | None:
        """The least and the greatest value over several seeds; None if there is one, or all are equal."""
        if self.question is not SCORE_AT_TIME:
            span = variant.get("spread", {}).get(self.question.metric)
        else:
            tests = [test for test in variant.get("scores", ()) if test["time_us"] <= self.first_to_end[0]]
            span = tests[-1].get("range") if tests else None
        return (span[0], span[1]) if span else None

    def tie(self, variant: Entry, other: Entry) -> bool:
        """Whether two variants' values are shown alike, or their ranges over seeds overlap."""
        spans = []
        for each in (variant, other):
            value = self.value(each) or 0.0
            spans.append(self.span(each) or (value, value))
        (low, high), (other_low, other_high) = spans
        return _alike(self.value(variant)) == _alike(self.value(other)) or (
            low <= other_high and other_low <= high
        )

    @cached_property
    def _ranks(self) -> dict[int, int]:
        """Ranks of the ranked variants, by identity; those shown alike or not distinguishable share one."""
        ranks: dict[int, int] = {}
        leader, rank = None, 1
        for number, variant in enumerate(self.ranked, start=1):
            if leader is None or not self.tie(leader, variant):
                leader, rank = variant, number
            ranks[id(variant)] = rank
        return ranks

    def rank(self, variant: Entry) -> int | None:
        return self._ranks.get(id(variant))


def failures(variant: Entry) -> list[str]:
    # The links and switches that its network is without.
    return [*variant.get("setup", {}).get("topology", {}).get("without", ())]


def _settings(variant: Entry) -> dict[str, Any]:
    """All but what has failed, and but what follows from it."""
    setup = variant.get("setup", {})
    return {
        **setup,
        "topology": {**setup.get("topology", {}), "without": None},
        "collective": {**setup.get("collective", {}), "timeout": None, "switch": None},
    }


def rank(value: float, ordered: Sequence[float | None]) -> int:
    # Values that show the same three digits share the rank of the first of them.
    return 1 + [_alike(other) for other in ordered].index(_alike(value))


def _alike(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def groups_of(variants: Sequence[Entry], named: str | None = None, asked: str | None = None) -> list[Group]:
    """The variants of a summary in groups, by label; `named` is the variant wanted as the baseline."""
    by_key: dict[Hashable, list[Entry]] = {}
    for variant in variants:
        by_key.setdefault(_key(variant), []).append(variant)
    in_order = _first_values(list(by_key.values()))
    labels = in_order or _labels([members[0] for members in by_key.values()])
    groups = [
        Group(label, tuple(members), named, asked)
        for label, members in zip(labels, by_key.values(), strict=True)
    ]
    return groups if in_order else sorted(groups, key=lambda group: group.label)


def _first_values(groups: Sequence[Sequence[Entry]]) -> list[str]:
    """The values of a grid's first key, in the order of the file, if each is that of one group; else none."""
    values = [{str(each["axes"][0][1]) for each in members if each.get("axes")} for members in groups]
    is_label = len(groups) > 1 and len(set().union(*values)) == sum(map(len, values)) == len(groups)
    return [value for (value,) in values] if is_label else []


def groups_in(summary: Mapping[str, Any]) -> list[Group]:
    """The groups of a run, whose variants its tables compare."""
    asked = summary.get("question")
    return groups_of(summary["variants"], summary.get("baseline"), None if asked == MAKESPAN.name else asked)


def answered_in(summary: Mapping[str, Any]) -> list[Group]:
    """The groups that the answer is about: of jobs that come and go, all of a variant together.

    Such variants are compared where they have the same jobs.
    """
    if not summary.get("jobs"):
        return groups_in(summary)
    by_jobs: dict[Hashable, list[Entry]] = {}
    others = list(summary["variants"])
    for overview in summary["jobs"]:
        jobs = [job for job in others if job["name"].partition("/")[0] == overview["variant"]]
        others = [entry for entry in others if entry not in jobs]
        by_jobs.setdefault(tuple(sorted(map(_key, jobs))), []).append(
            {
                "name": overview["variant"],
                "verdict": worst(job["verdict"] for job in jobs),
                "metrics": {
                    "makespan_us": overview["makespan_us"],
                    "jobs": overview["jobs"],
                    "workers": jobs[0]["metrics"]["workers"],
                },
                "is_uncompressed": all(job.get("is_uncompressed") for job in jobs),
                "spread": overview.get("spread", {}),
                "seeds": summary.get("seeds", ()),
            }
        )
    groups = [
        Group(
            "" if len(by_jobs) == 1 and not others else f"the jobs of {members[0]['name']}",
            tuple(members),
            summary.get("baseline"),
            MAKESPAN.name,
        )
        for members in by_jobs.values()
    ]
    return [*groups, *groups_in({**summary, "variants": others})]


def _traits(variant: Entry) -> dict[str, str]:
    """What variants of a group have in common."""
    workload = variant.get("setup", {}).get("workload", {})
    settings = {key: format_value(value) for key, value in workload.items() if key not in CHOICES}
    return {"job": variant["name"].partition("/")[2], **settings}


def _key(variant: Entry) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(_traits(variant).items()))


def _labels(firsts: Sequence[Entry]) -> list[str]:
    """A label for every group, by one of its variants: as few of its traits as tell it from the others."""
    traits = [_traits(variant) for variant in firsts]
    names = dict.fromkeys(("job", "model", *(name for trait_set in traits for name in trait_set)))
    telling_names: list[str] = []
    told = 1  # groups that are told apart
    for name in names:
        tried = [*telling_names, name]
        if (count := len({tuple(map(trait_set.get, tried)) for trait_set in traits})) > told:
            telling_names, told = tried, count
    if telling_names == ["job"]:
        return [trait_set["job"] for trait_set in traits]
    return [
        ", ".join(f"{name} {trait_set[name]}" for name in telling_names if trait_set.get(name))
        for trait_set in traits
    ]


def with_answer(summary: Mapping[str, Any]) -> dict[str, Any]:
    """A summary with its `answer`; each variant with its group, its rank there, and its time as a ratio."""
    rankings = {
        variant["name"]: {
            "group": group.label,
            "by": group.question.metric,
            "baseline": group.baseline["name"] if group.baseline else None,
            "times_baseline": group.times(variant),
            "rank": group.rank(variant),
            "bottleneck": short(variant.get("bounds", ())),
        }
        for group in groups_in(summary)
        for variant in group.members
    }
    variants = [variant | {"ranking": rankings[variant["name"]]} for variant in summary["variants"]]
    return {**summary, "variants": variants, "answer": [_answered(group) for group in answered_in(summary)]}


def _answered(group: Group) -> dict[str, Any]:
    """An answer as plain data."""
    first, following = _first(group), _following(group)
    return {
        "group": group.label,
        "question": group.question.name,
        "winners": [variant["name"] for variant in first],
        "value": group.value(first[0]) if first else None,
        "next": [variant["name"] for variant in following],
        "next_value": group.value(following[0]) if following else None,
        "baseline": group.baseline["name"] if group.baseline else None,
        "times_baseline": group.times(first[0]) if first else None,
        "has_learned": group.has_learned,
        "text": answer(group),
        "details": details(group),
    }


def times_baseline(groups: Sequence[Group], metric: str = "") -> dict[str, str]:
    return {
        variant["name"]: words.times(group.times(variant, metric))
        for group in groups
        for variant in group.members
    }


def legend(groups: Sequence[Group]) -> str:
    """What "× baseline" divides."""
    named = [
        f"{group.baseline['name']}{f' ({group.label})' if group.label else ''}"
        for group in groups
        if group.baseline is not None
    ]
    if not named:
        return "× baseline: there is none"
    names = f"{', '.join(named[:GROUPS_MAX])}{', …' if len(named) > GROUPS_MAX else ''}"
    by = " or ".join(dict.fromkeys(group.question.by for group in groups))
    within = ", within variants of equal workload" if len(groups) > 1 else ""
    return f"× baseline: speedup over {names}, by {by}{within}"


def spreads(groups: Sequence[Group]) -> list[str]:
    """How far the values of several seeds are apart, of each group."""
    texts = []
    for group in groups:
        are_many = len(group.members) > NAMES_SHOWN
        told = [
            f"{group.name(variant)} {group.shown(span[0])} to {group.shown(span[1])}"
            for variant in (group.ranked[:NAMES_SHOWN] if are_many else group.members)
            if (span := group.span(variant)) is not None
        ]
        if told:
            label = f"{group.label}: " if group.label else ""
            told += ["…"] * are_many
            texts.append(f"{label}numbers are means over seeds; {group.question.by}: {', '.join(told)}")
    return texts


def answers(groups: Sequence[Group]) -> list[str]:
    """The answer to the question of every group."""
    texts = [text for group in groups if (text := answer(group))]
    if (more := len(texts) - GROUPS_MAX) > 0:
        texts[GROUPS_MAX:] = [f"and {words.format_count(more, 'more group')} of variants of equal workload"]
    return texts


def answer(group: Group) -> str:
    """Which variants come first, with what, how far before the baseline and the next; which miss a target.

    Further lines say what is best where in a grid, and what networks cost.
    """
    texts = [_outcome(group), _best_of_each(group), _costs(group)] if _first(group) else [_nobody(group)]
    label = f"{group.label}: " if group.label else ""
    return "\n".join(f"{label}{text}" for text in texts if text)


def _outcome(group: Group) -> str:
    first, question = _first(group), group.question
    fields = {
        "goal": _goal(group),
        "jobs": first[0]["metrics"].get("jobs"),
        "metric": group.score_metric.name,
        "time": words.time(group.first_to_end[0]),
        "first": group.first_to_end[1],
        "a_metric": _with_article(group.score_metric.name),
        "value": group.shown(group.value(first[0])),
    }
    verb = question.wins if len(first) == 1 else question.ties
    if len(group.members) == 1:
        verb = question.alone
    text = f"{_names(group, first)} {verb.format(**fields)}"
    baseline, seeds = _other_baseline(group), len(first[0].get("seeds", ()))
    is_blurred = len(first) > 1 and any(group.span(variant) for variant in first)
    if is_blurred:
        values = listed([group.shown(group.value(variant)) for variant in first])
        what = group.score_metric.name if question is SCORE_AT_TIME else question.by
        text = f"{_names(group, first)} are not distinguishable over {seeds} seeds ({what}: {values})"
    elif (span := group.span(first[0])) is not None:
        text += f" (mean of {seeds} seeds, {group.shown(span[0])} to {group.shown(span[1])})"
    elif seeds > 1:
        text += f" (with each of {seeds} seeds)"
    if baseline is not None:
        text += f"; {group.name(first[0])} is " if is_blurred else ", "
        text += _gain(group, first[0], baseline)
    following = _following(group)
    if following and following != [baseline]:
        verb = "is" if len(following) == 1 else "are"
        text += f"; next {verb} {_names(group, following)}, {_behind(group, first[0], following[0])}"
    return text + _left_out(group)


def _costs(group: Group) -> str:
    """What networks of different prices cost."""
    costs = [variant["metrics"].get("cost_usd") for variant in group.sound]
    if None in costs or len(set(costs)) < 2:
        return ""
    prices: dict[str, list[str]] = {}
    for variant in _first(group):
        prices.setdefault(words.money(variant["metrics"]["cost_usd"]), []).append(group.name(variant))
    texts = [f"{listed(names)} cost{'s' * (len(names) == 1)} {price}" for price, names in prices.items()]
    return f"{', '.join(texts)}, {span_of_prices(costs)}"


def span_of_prices(costs_usd: Sequence[float]) -> str:
    return f"all networks {words.money(min(costs_usd))} to {words.money(max(costs_usd))}"


def _left_out(group: Group) -> str:
    """Who is not ranked, and why, and what makes variants less alike."""
    text = ""
    missing = sorted(group.name(variant) for variant in group.sound if group.value(variant) is None)
    if missing and group.question is TIME_TO_TARGET:
        text += f"; {listed(missing)} {'does' if len(missing) == 1 else 'do'} not reach it"
    if missing and group.question is SCORE_AT_TIME:
        text += f"; {listed(missing)} {'has' if len(missing) == 1 else 'have'} not been tested by then"
    if failed := _failed(group):
        text += f"; not ranked: {failed}"
    if len(workers := {variant["metrics"]["workers"] for variant in group.members}) > 1:
        text += f"; variants have {words.span(workers)} workers"
    return text


def _failed(group: Group) -> str:
    """Variants whose numbers are not to be relied on, with their verdicts."""
    failed = [variant for variant in group.members if kind(variant["verdict"]) not in GOOD]
    return ", ".join(sorted(f"{group.name(variant)} ({variant['verdict']})" for variant in failed))


def _nobody(group: Group) -> str:
    """What there is to say where no variant is first."""
    if not group.sound:
        return f"no variant is ranked: {_failed(group)}"
    if not group.has_learned and group.chance is not None:
        metric = group.score_metric
        return (
            f"no variant has learned: every {metric.name} is within three points of guessing "
            f"({words.score(metric.name, group.chance)})"
        )
    if group.question is TIME_TO_TARGET:
        return f"no variant reaches {_goal(group)}"
    return ""


def _first(group: Group) -> list[Entry]:
    """The variants in the first place, those on the cheapest network first."""
    first = [variant for variant in group.ranked if group.rank(variant) == 1]
    return sorted(first, key=lambda variant: variant["metrics"].get("cost_usd") or 0.0)


def _following(group: Group) -> list[Entry]:
    """The variants that share the place after the first."""
    rest = group.ranked[len(_first(group)) :]
    return [variant for variant in rest if group.rank(variant) == group.rank(rest[0])]


def _other_baseline(group: Group) -> Entry | None:
    """The baseline, if it is not among the first, and has what is asked."""
    baseline = group.baseline
    is_first = any(baseline is variant for variant in _first(group))
    return None if baseline is None or is_first or group.value(baseline) is None else baseline


def _goal(group: Group) -> str:
    target, metric = group.members[0]["metrics"].get("target"), group.score_metric.name
    if target is None:
        return "its target"
    return f"{_with_article(metric)} of {words.score(metric, target)}"


def _with_article(metric: str) -> str:
    is_spelt_with_a_vowel = metric[:1].lower() in "aeiou" or metric.startswith("HR")  # "an HR@10"
    return f"{'an' if is_spelt_with_a_vowel else 'a'} {metric}"


def _gain(group: Group, first: Entry, baseline: Entry) -> str:
    """How far the first is before the baseline."""
    other = f"{group.name(baseline)} ({group.shown(group.value(baseline))})"
    if group.question is SCORE_AT_TIME:
        side = "above" if group.score_metric.more_is_better else "below"
        return f"{_apart(group, first, baseline)} {side} {other}"
    as_much = "as much as" if group.more_is_better else "as fast as"
    return f"{words.times(group.times(first))} {as_much} {other}"


def _behind(group: Group, first: Entry, following: Entry) -> str:
    """How far the next is behind the first."""
    if group.question is SCORE_AT_TIME:
        side = "below" if group.score_metric.more_is_better else "above"
        return f"{_apart(group, first, following)} {side} {group.name(first)}"
    ratio = words.ratio(group.value(following), group.value(first))
    if ratio is None:
        return "behind"
    if group.more_is_better:
        return f"{words.digits(100 * (1 - ratio))} % less"
    return f"{words.times(ratio)} as long" if ratio >= 2 else f"{words.digits(100 * (ratio - 1))} % slower"


def _apart(group: Group, first: Entry, other: Entry) -> str:
    """How far two scores are apart."""
    distance = abs((group.value(first) or 0.0) - (group.value(other) or 0.0))
    if group.score_metric.is_share:
        return f"{words.digits(100 * distance)} points"
    return words.digits(distance)


def _best_of_each(group: Group) -> str:
    """Which value of a grid's last axis is best with each value of the others; empty if it is no grid."""
    if len(group.axes) < 2:
        return ""
    *conditions, chosen = group.axes
    rows: dict[str, list[Entry]] = {}
    for variant in group.members:
        rows.setdefault(place(group, variant)[0], []).append(variant)
    if len(rows) == 1:  # of a group of equal workload: the others are in other groups
        return ""
    wins: dict[str, dict[str, Group]] = {}
    """Of every winner the rows of the grid where it wins, by condition."""
    for condition, members in rows.items():
        row = Group("", tuple(members), None, group.question.name)
        if first := _first(row):
            best = " or ".join(place(group, variant)[1] for variant in first)
            wins.setdefault(best, {})[condition] = row
    told = [
        f"{best} for {_where(list(won), len(rows))}{_gains(list(won.values()))}" for best, won in wins.items()
    ]
    superlative = "best" if group.question is SCORE_AT_TIME else "fastest"
    of_what = f"{superlative} {chosen} by {' and '.join(conditions)}: {', '.join(told)}"
    return of_what if told else ""


def place(group: Group, variant: Entry) -> tuple[str, str]:
    """Where a variant is in a grid: its values of all keys but the last, and that of the last."""
    *conditions, (_, chosen) = variant["axes"][-len(group.axes) :]
    return "-".join(value for _, value in conditions), chosen


def _where(conditions: Sequence[str], count: int) -> str:
    if len(conditions) == count:
        return "each"
    return listed(conditions) if count <= CONDITIONS_MAX else f"{len(conditions)} of {count}"


def _gains(rows: Sequence[Group]) -> str:
    """How many times as fast the winners of rows are as the rows' baselines."""
    ratios = sorted(ratio for row in rows if (ratio := row.times(_first(row)[0])) is not None)
    if not ratios or words.digits(ratios[-1]) == words.digits(1.0):
        return ""
    least, most = words.times(ratios[0]), words.times(ratios[-1])
    baselines = dict.fromkeys(row.baseline["axes"][-1][1] for row in rows if row.baseline is not None)
    as_much = "as much as" if rows[0].more_is_better else "as fast as"
    range_of_gains = least if least == most else f"{words.digits(ratios[0])} to {most}"
    return f" ({range_of_gains} {as_much} {' or '.join(baselines)})"


def _names(group: Group, variants: Sequence[Entry]) -> str:
    return listed([group.name(variant) for variant in variants])


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: "a, b and c"; of many, the first three and how many more."""
    if len(names) > NAMES_SHOWN:
        names = [*names[:3], f"{len(names) - 3} others"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def details(group: Group, *, is_brief: bool = False) -> str:
    """What the first variant costs in quality, why it is first and, unless brief, what holds it back."""
    first = next(iter(_first(group)), None)
    if first is None:
        return ""
    baseline, parts = _other_baseline(group), [_quality(group, first, is_brief), _within_error(group, first)]
    if kind(first["verdict"]) != "pass":
        parts.insert(0, first["verdict"])
    if baseline is not None and group.question is STEP_TIME:
        parts.append(
            because(first.get("bounds", ()), baseline.get("bounds", ()), other_name=group.name(baseline))
        )
    if not is_brief:
        parts.append(sentence(first.get("bounds", ())))
    told = "; ".join(part for part in parts if part)
    return f"{first['name']}: {told}" if told else ""


def _within_error(group: Group, first: Entry) -> str:
    """That the margin before the next variant is smaller than what is known of the simulator's error."""
    following = next(iter(_following(group)), None)
    if following is None or group.question is SCORE_AT_TIME:
        return ""
    values = sorted((group.value(first) or 0.0, group.value(following) or 0.0))
    if values[1] > values[0] * (1 + MODEL_ERROR):
        return ""
    is_long = (first["metrics"].get("payload_bytes_up") or 0) >= _LONG_BYTES
    error = f"{100 * MODEL_ERROR:g} %"
    text = f"its margin is below {error}, by which simulated rates differ from a published one"
    return text + ("" if is_long else " (of long messages; short ones were not compared)")


def _last_scores(group: Group, first: Entry) -> str:
    """The score of the first variant at the end, and those of the others, equal ones together."""
    names: dict[str, list[str]] = {}
    for variant in (first, *group.sound):
        if (score := variant["metrics"].get("test_score")) is not None:
            names.setdefault(words.score(group.score_metric.name, score), []).append(group.name(variant))
    mine, *others = names
    alike = [name for name in names[mine] if name != group.name(first)]
    told = f", as {listed(alike) if others else 'all others'}" if alike else ""
    text = f"{group.score_metric.name} at the end: {mine}{told}"
    return "; ".join([text, *(f"{listed(names[score])}: {score}" for score in others[:NAMES_SHOWN])])


_ROUNDING = 1e-13
"""NMSE below which sums are as near the exact ones as float32 sums: one rounding by 2⁻²⁴ is 3.6e-15."""


def _quality(group: Group, first: Entry, is_brief: bool) -> str:
    """What the sums and the score of the first variant lack; not that sums are rounded, if brief."""
    metrics, parts = first["metrics"], []
    if "bit_exact" in metrics and is_lossy(metrics):
        error = metrics["nmse"]
        is_rounded = error is not None and error < _ROUNDING
        text = "its sums are rounded, as float32 sums are" if is_rounded else "its sums are not exact"
        if not (is_brief and is_rounded):
            parts.append(text + ("" if error is None else f", NMSE {words.error(error)}"))
    if metrics.get("test_score") is not None and group.question is not SCORE_AT_TIME:
        parts.append(_last_scores(group, first))
    return "; ".join(parts)
