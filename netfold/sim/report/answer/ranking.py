"""Which variants may be compared, by what, and with which of them as the baseline.

Variants are compared within a group: of equal workload, and of the same job. Outside of it a ratio says
nothing. The order of the variants changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from netfold.errors import DataError
from netfold.sim.report import words
from netfold.sim.report.answer.bounds import because
from netfold.sim.report.setup import shown
from netfold.sim.results.summary import GOOD, kind
from netfold.sim.workload.recipe import metric_named
from netfold.sim.workload.workload_keys import CHOICES
from netfold.spelling import names_hint

Entry = Mapping[str, Any]  # a variant of a summary

AS_GIVEN = "given"
SORTS = {  # metrics by the name that `--sort` takes, and whether more is better
    "aggregation": ("aggregation_time_us", False),
    "iteration": ("iteration_time_us", False),
    "elements": ("aggregation_elements_per_s", True),
    "wire": ("wire_bytes_up_per_worker", False),
    "compression": ("compression_ratio", True),
    "nmse": ("nmse", False),
    "cosine": ("cosine", True),
    "error": ("max_abs_error", False),
    "loss": ("loss", False),
    "score": ("test_score", True),  # of a metric of which less is better, the least
    "target": ("time_to_target_us", False),
}
BY = {  # what a group is ranked by, in words
    "time_to_target_us": "time to the target",
    "iteration_time_us": "time of whole steps, as buckets differ",
    "since_last_rank_us": "time since the last rank arrived, as recorded skew takes much of the rest",
    "aggregation_time_us": "aggregation time",
}
GROUPS_MAX = 4  # that lines below a table name
SKEW_MIN = 0.1  # of the aggregation time: a replay with more is ranked without it


@dataclass(frozen=True)
class Group:
    """Variants that may be compared; `label` tells them from other groups, and is empty if there are none."""

    label: str
    members: tuple[Entry, ...]
    named: str | None  # the variant that is wanted as the baseline

    @cached_property
    def by(self) -> str:
        """The metric that ranks the group: a time, less of it is better."""
        metrics = [one["metrics"] for one in self.members]
        if len({one.get("target") for one in metrics}) == 1 and words.has_target(metrics[0]):
            return "time_to_target_us"
        if len({_cut(one) for one in self.members if kind(one["verdict"]) in GOOD}) > 1:
            return "iteration_time_us"
        return "since_last_rank_us" if self.has_skew else "aggregation_time_us"

    @property
    def has_skew(self) -> bool:
        """Whether its ranks replay a recording, and arrive so far apart that it matters."""
        return all(one.get("replays_times") for one in self.members) and any(
            (one["metrics"]["aggregation_time_us"] or 0) * (1 - SKEW_MIN)
            > (one["metrics"].get("since_last_rank_us") or 0)
            for one in self.members
        )

    @cached_property
    def ranked(self) -> list[Entry]:
        """Sound variants that have the metric, the best first; by name, where they are equal."""
        having = [one for one in self.members if self.value(one) is not None]
        return sorted(having, key=lambda one: (self.value(one), one["name"]))

    @cached_property
    def baseline(self) -> Entry | None:
        """What is named; or else the slowest that is not compressed; or else the slowest."""
        names = (self.named, f"{self.named}/")
        for one in self.members:
            if self.named is not None and (one["name"] == names[0] or one["name"].startswith(names[1])):
                return one
        plain = [one for one in self.ranked if one.get("is_uncompressed")]
        return next(reversed(plain or self.ranked), None)

    def value(self, one: Entry) -> float | None:
        """What ranks a variant; None if a check failed."""
        return one["metrics"].get(self.by) if kind(one["verdict"]) in GOOD else None

    def times(self, one: Entry) -> float | None:
        """How many times as fast as the baseline a variant is; None if one of them has no such time."""
        return words.ratio(self.value(self.baseline), self.value(one)) if self.baseline else None

    def rank(self, one: Entry) -> int | None:
        """From 1; variants whose times are shown alike share it."""
        value = self.value(one)
        return None if value is None else rank(value, [self.value(other) for other in self.ranked])


def rank(value: float, ordered: Sequence[float | None]) -> int:
    """The rank of a value among all, the best first: that of the first which has the same three digits."""
    return 1 + [_alike(other) for other in ordered].index(_alike(value))


def _alike(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def groups_of(variants: Sequence[Entry], named: str | None = None) -> list[Group]:
    """The variants of a summary in groups, by label; `named` is the variant wanted as the baseline."""
    found: dict[Hashable, list[Entry]] = {}
    for one in variants:
        found.setdefault(_key(one), []).append(one)
    labels = _labels([members[0] for members in found.values()])
    groups = [Group(label, tuple(own), named) for label, own in zip(labels, found.values(), strict=True)]
    return sorted(groups, key=lambda group: group.label)


def _traits(one: Entry) -> dict[str, str]:
    """What variants of a group have in common."""
    workload = one.get("setup", {}).get("workload", {})
    own = {key: shown(value) for key, value in workload.items() if key not in CHOICES}
    return {"job": one["name"].partition("/")[2], **own}


def _key(one: Entry) -> Hashable:
    return tuple(sorted(_traits(one).items()))


def _labels(firsts: Sequence[Entry]) -> list[str]:
    """A label for every group, by one of its variants: those of its traits in which groups differ."""
    traits = [_traits(one) for one in firsts]
    names = dict.fromkeys(name for own in traits for name in own)
    differing = [name for name in names if len({own.get(name) for own in traits}) > 1]
    if "job" in differing and len({own["job"] for own in traits}) == len(traits):
        differing = ["job"]
    return [", ".join(f"{name} {own[name]}" for name in differing if own.get(name)) for own in traits]


def with_ranking(variants: Sequence[dict[str, Any]], named: str | None) -> list[dict[str, Any]]:
    """Variants of a summary, each with its group, its rank there, and its time relative to the baseline."""
    found = {
        one["name"]: {
            "group": group.label,
            "by": group.by,
            "baseline": group.baseline["name"] if group.baseline else None,
            "times_baseline": group.times(one),
            "rank": group.rank(one),
        }
        for group in groups_of(variants, named)
        for one in group.members
    }
    return [one | {"ranking": found[one["name"]]} for one in variants]


def times_baseline(groups: Sequence[Group]) -> dict[str, str]:
    """ "3.21 ×" of every variant, by name."""
    return {one["name"]: words.times(group.times(one)) for group in groups for one in group.members}


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
    by = " or ".join(dict.fromkeys(BY[group.by] for group in groups))
    within = ", within variants of equal workload" if len(groups) > 1 else ""
    return f"× baseline: how many times as fast as {names}, by {by}{within}"


def answers(groups: Sequence[Group]) -> list[str]:
    """A sentence on every group with several variants; none on jobs that come and go."""
    several = [
        group
        for group in groups
        if len(group.members) > 1 and not any(one.get("stay") is not None for one in group.members)
    ]
    more = len(several) - GROUPS_MAX
    return [
        *(text for group in several[:GROUPS_MAX] if (text := _answer(group))),
        *([f"and {words.counted(more, 'more group')} of variants of equal workload"] if more > 0 else []),
    ]


def _answer(group: Group) -> str:
    """Which variants are first, by what, how far, and why; which miss the target."""
    missing = [
        one["name"] for one in group.members if kind(one["verdict"]) in GOOD and group.value(one) is None
    ]
    is_target = group.by == "time_to_target_us"
    of = f" of {group.label}" if group.label else ""
    if not group.ranked:
        return f"no variant{of} reaches its target" if is_target and missing else ""
    best = [one for one in group.ranked if group.rank(one) == 1]
    names = " and ".join(one["name"] for one in best)
    tie = ", a tie" if len(best) > 1 else ""
    text = f"first{of} by {BY[group.by]}: {names}{tie}, {words.time(group.value(best[0]))}"
    other = group.baseline
    if other is None or other in best:
        other = group.ranked[len(best)] if len(best) < len(group.ranked) else None
        text += f"; next: {other['name']}, {words.time(group.value(other))}" if other is not None else ""
    elif (times := group.times(best[0])) is not None:
        text += f", {words.times(times)} baseline ({other['name']})"
    if best[0]["verdict"] != "pass":
        text += f" ({best[0]['verdict']})"
    if words.is_lossy(best[0]["metrics"]):
        error = best[0]["metrics"]["nmse"]
        text += "; its sums are not exact" + ("" if error is None else f", NMSE {words.error(error)}")
    if other is not None and group.value(other) and not tie and group.by == "aggregation_time_us":
        why = because(best[0].get("bounds", ()), (other["name"], other.get("bounds", ())))
        text += f"; {why}" if why else ""
    if len(workers := {one["metrics"]["workers"] for one in group.members}) > 1:
        text += f"; variants have {words.span(workers)} workers"
    if is_target and missing:
        text += f"; {', '.join(sorted(missing))} {'misses' if len(missing) == 1 else 'miss'} it"
    return text


def check_sort(sort: str) -> str:
    """The name of an order.

    Raises
    ------
    DataError
        There is no such order.
    """
    known = [*SORTS, AS_GIVEN]
    if sort not in known:
        raise DataError(f"--sort {sort}: there is no such order", names_hint(sort, known, "orders"))
    return sort


def order_key(sort: str) -> Callable[[str, Mapping[str, Any]], tuple[bool, bool, float]]:
    """A key of a variant's verdict and metrics, best first; bad verdicts and missing values come last.

    `sort` is the name of an order, or what a group is ranked by.
    """
    metric, usually = SORTS.get(sort, (sort, False))

    def key(verdict: str, metrics: Mapping[str, Any]) -> tuple[bool, bool, float]:
        value = metrics.get(metric)
        more_is_better = usually
        if metric == "test_score" and value is not None:
            more_is_better = metric_named(metrics["test_metric"]).more_is_better
        signed = 0.0 if value is None else -value if more_is_better else value
        return kind(verdict) not in GOOD, value is None, signed

    return key


def _cut(one: Entry) -> tuple[float | None, str]:
    """How a variant's gradient is cut: the number of its buckets, and the rule of fusion."""
    fusion = one.get("setup", {}).get("workload", {}).get("fusion")
    return one["metrics"].get("buckets"), str(fusion)
