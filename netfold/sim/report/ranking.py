"""What ranks first, and why: what bounds each variant, in words and as a figure; order by a metric."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from netfold.errors import DataError, names_hint
from netfold.sim.processor import note_of, recorded
from netfold.sim.report import words
from netfold.sim.report.words import format_value
from netfold.sim.results.folder import RunFolder, load
from netfold.sim.results.metrics import BY_NAME, SORTS, has_target, is_lossy
from netfold.sim.results.summary import GOOD, kind
from netfold.sim.workload.recipe import metric_named
from netfold.sim.workload.workload_keys import CHOICES

# What bounds a variant, in words; `sim/checks/bottleneck.py` says how it is found.


Parts = Sequence[Mapping[str, Any]]

CLOSE = 0.5
"""A part of at least this share of the largest one is named beside it."""
NEARLY = 0.8
"""The next busiest link is named beside a link if it is at least this share as busy."""
_LEAST_FASTER = 1.05  # a remedy that gives less is not worth a word
_NAMES = {
    "link": "links",
    "loopback": "loopback ports",
    "host": "what hosts do for packets",
    "window": "slots and windows",
    "timer": "retransmission timers",
    "latency": "latency",
    "device": "the workers' devices",
    "straggler": "stragglers",
    "merging": "merging on hosts",
    "unexplained": "something that was not recorded",
}
_COSTS = {  # what a cause costs a variant, and that it costs it nothing
    "link": ("its links are the bottleneck", "its links are never the bottleneck"),
    "loopback": ("its loopback ports are the bottleneck", "its loopback ports are never the bottleneck"),
    "host": ("its hosts work on packets", "its hosts never hold packets up"),
    "window": ("it waits for slots and windows", "it never waits for slots or windows"),
    "timer": ("it waits for retransmissions", "it never waits for a retransmission"),
    "latency": ("it waits for packets on their way", "it never waits for packets on their way"),
    "device": ("its workers' devices are the bottleneck", "its workers' devices are never the bottleneck"),
    "straggler": ("it waits for stragglers", "it never waits for a straggler"),
    "merging": ("it waits for merging on hosts", "it never waits for merging on hosts"),
    "unexplained": ("its time is not explained", "all of its time is explained"),
}
_REMEDIES = {
    "link": "with twice the rate",
    "loopback": "with twice the rate",
    "host": "with hosts of twice the speed",
    "window": "with twice the slots or window",
    "timer": "with half the timeout",
    "latency": "with half the delays",
    "device": "with twice the speed there",
    "straggler": "if it were like the others",
    "merging": "with twice the speed there",
}


def cause_name(cause: str) -> str:
    return _NAMES.get(cause, cause)


def short(parts: Parts) -> str:
    # The largest part is the first: "h0->s0 +15, 96 %".
    return f"{place(parts[0])}, {_percent(parts[0]['share'])}" if parts else words.NOTHING


def place(part: Mapping[str, Any]) -> str:
    """Where a part is, as short as it can be said: "h0->s0 +15", "encode", "window"."""
    match part["cause"]:
        case "link" | "host":
            return f"{part['where']}{_more(part)}"
        case "loopback":
            return f"loopback {part['where']}{_more(part)}"
        case "device":
            return str(part["stage"])
        case "straggler":
            return f"{part['where'] or 'a straggler'}: {part['stage']}" if part["stage"] else "straggler"
        case cause:
            return str(cause)


def _more(part: Mapping[str, Any]) -> str:
    return f" +{part['alike']}" if part["alike"] else ""


def sentence(parts: Parts) -> str:
    """What bounds a variant, what is close to it, and what would help; empty if nothing is known."""
    if not parts:
        return ""
    first, *others = parts
    close = [part for part in others if part["share"] >= CLOSE * first["share"]]
    text = f"bottleneck: {_describe(first)}"
    if close:
        text += f"; close to it: {', '.join(_describe(part) for part in close)}"
    return f"{text}{_following(first)}{_remedy(first)}"


def _describe(part: Mapping[str, Any]) -> str:
    """A part with its share: "link h0->s0 (15 more are as busy), 96 % of the aggregation"."""
    share = f"{_percent(part['share'])} of the aggregation"
    match part["cause"]:
        case "link" | "loopback" | "host" as cause:
            what = "the loopback port" if cause == "loopback" else cause
            alike = f" ({part['alike']} more as busy)" if part["alike"] else ""
            busy = f", busy {_percent(part['busy'])}" if part["busy"] is not None else ""
            hosts = f", shared by {part['hosts']} hosts" if part["hosts"] > 1 else ""
            return f"{what} {part['where']}{alike}{hosts}: {share}{busy}"
        case "window":
            return f"slots or windows, which are full while no link is: {share}"
        case "timer":
            return f"retransmission timers, while nothing is on its way: {share}"
        case "latency":
            return f"latency, while packets are on their way and no link is busy: {share}"
        case "device":
            return f"'{part['stage']}' on the workers' devices: {share}"
        case "straggler":
            return f"the straggler {part['where']} ({part['stage'] or 'late'}): {share}"
        case cause:
            return f"{cause_name(cause)}: {share}"


def _following(part: Mapping[str, Any]) -> str:
    """The next busiest link, if it is nearly as busy."""
    busy = part["following_busy"]
    if busy is None or part["busy"] is None or busy < NEARLY * part["busy"]:
        return ""
    return f"; nearly as busy: {part['following']}, {_percent(busy)}"


def _remedy(part: Mapping[str, Any]) -> str:
    faster = part["faster"]
    if faster is None or faster < _LEAST_FASTER or part["cause"] not in _REMEDIES:
        return ""
    them = " of all of them" if part["alike"] else ""
    return f"; at most {words.times(faster)} as fast {_REMEDIES[part['cause']]}{them}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def because(mine: Parts, other: Parts, *, other_name: str) -> str:
    """Why a variant is faster than another: the cause that costs it least in comparison; may be empty."""
    times, others = _by_cause(mine), _by_cause(other)
    saved = {cause: time_us - times.get(cause, 0.0) for cause, time_us in others.items()}
    if not times or not saved or max(saved.values()) <= 0:
        return ""
    cause = max(saved, key=lambda name: saved[name])
    waits, never = _COSTS.get(cause, (f"{cause_name(cause)} take time", f"{cause_name(cause)} take no time"))
    text = f"{waits} for {words.time(times[cause])}" if cause in times else never
    return f"{text}, against {words.time(others[cause])} for {other_name}"


def _by_cause(parts: Parts) -> dict[str, float]:
    times: dict[str, float] = defaultdict(float)
    for part in parts:
        times[part["cause"]] += part["time_us"]
    return dict(times)


# Which variants may be compared, by what, and with which of them as the baseline.
#
# Variants are compared within a group: of equal workload, and of the same job. Outside of it a ratio says
# nothing. The order of the variants changes nothing.


Entry = Mapping[str, Any]  # a variant of a summary

AS_GIVEN = "given"
BY = {  # what a group is ranked by, in words
    "time_to_target_us": "time to the target",
    "iteration_time_us": "time of whole steps, as buckets differ",
    "since_last_rank_us": "time since the last rank arrived, as recorded skew takes much of the rest",
    "aggregation_time_us": "aggregation time",
}
GROUPS_MAX = 4
"""The most groups that lines below a table name."""
SKEW_MIN = 0.1
"""A replay whose rank skew is a larger share of the aggregation time is ranked without it."""


@dataclass(frozen=True)
class Group:
    """Variants that may be compared; `label` tells them from other groups, and is empty if there are none."""

    label: str
    members: tuple[Entry, ...]
    named: str | None  # the variant that is wanted as the baseline

    @cached_property
    def by(self) -> str:
        """The metric that ranks the group: a time, less of it is better."""
        metrics = [variant["metrics"] for variant in self.members]
        if len({figures.get("target") for figures in metrics}) == 1 and has_target(metrics[0]):
            return "time_to_target_us"
        if len({_cut(variant) for variant in self.members if kind(variant["verdict"]) in GOOD}) > 1:
            return "iteration_time_us"
        return "since_last_rank_us" if self.has_skew else "aggregation_time_us"

    @property
    def has_skew(self) -> bool:
        """Whether its ranks replay a recording, and arrive so far apart that it matters."""
        return all(variant.get("replays_times") for variant in self.members) and any(
            (variant["metrics"]["aggregation_time_us"] or 0) * (1 - SKEW_MIN)
            > (variant["metrics"].get("since_last_rank_us") or 0)
            for variant in self.members
        )

    @cached_property
    def ranked(self) -> list[Entry]:
        """Sound variants that have the metric, the best first; by name, where they are equal."""
        having = [variant for variant in self.members if self.value(variant) is not None]
        return sorted(having, key=lambda variant: (self.value(variant), variant["name"]))

    @cached_property
    def baseline(self) -> Entry | None:
        """What is named; or else the slowest that is not compressed; or else the slowest."""
        names = (self.named, f"{self.named}/")
        for variant in self.members:
            if self.named is not None and (
                variant["name"] == names[0] or variant["name"].startswith(names[1])
            ):
                return variant
        plain = [candidate for candidate in self.ranked if candidate.get("is_uncompressed")]
        return next(reversed(plain or self.ranked), None)

    def value(self, entry: Entry) -> float | None:
        return entry["metrics"].get(self.by) if kind(entry["verdict"]) in GOOD else None

    def times(self, entry: Entry) -> float | None:
        # How many times as fast as the baseline.
        return words.ratio(self.value(self.baseline), self.value(entry)) if self.baseline else None

    def rank(self, entry: Entry) -> int | None:
        """From 1; variants whose times are shown alike share it."""
        value = self.value(entry)
        return None if value is None else rank(value, [self.value(other) for other in self.ranked])


def rank(value: float, ordered: Sequence[float | None]) -> int:
    # Values that show the same three digits share the rank of the first of them.
    return 1 + [_alike(other) for other in ordered].index(_alike(value))


def _alike(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def groups_of(variants: Sequence[Entry], baseline_name: str | None = None) -> list[Group]:
    """The variants of a summary in groups, by label; `named` is the variant wanted as the baseline."""
    by_key: dict[Hashable, list[Entry]] = {}
    for variant in variants:
        by_key.setdefault(_key(variant), []).append(variant)
    labels = _labels([members[0] for members in by_key.values()])
    groups = [
        Group(label, tuple(members), baseline_name)
        for label, members in zip(labels, by_key.values(), strict=True)
    ]
    return sorted(groups, key=lambda group: group.label)


def _traits(entry: Entry) -> dict[str, str]:
    """What variants of a group have in common."""
    workload = entry.get("setup", {}).get("workload", {})
    settings = {key: format_value(value) for key, value in workload.items() if key not in CHOICES}
    return {"job": entry["name"].partition("/")[2], **settings}


def _key(entry: Entry) -> Hashable:
    return tuple(sorted(_traits(entry).items()))


def _labels(firsts: Sequence[Entry]) -> list[str]:
    """A label for every group, by one of its variants: those of its traits in which groups differ."""
    traits = [_traits(variant) for variant in firsts]
    names = dict.fromkeys(name for trait_set in traits for name in trait_set)
    differing = [name for name in names if len({trait_set.get(name) for trait_set in traits}) > 1]
    if "job" in differing and len({trait_set["job"] for trait_set in traits}) == len(traits):
        differing = ["job"]
    return [
        ", ".join(f"{name} {trait_set[name]}" for name in differing if trait_set.get(name))
        for trait_set in traits
    ]


def with_ranking(variants: Sequence[dict[str, Any]], baseline_name: str | None) -> list[dict[str, Any]]:
    """Variants of a summary, each with its group, its rank there, and its time relative to the baseline."""
    rankings = {
        variant["name"]: {
            "group": group.label,
            "by": group.by,
            "baseline": group.baseline["name"] if group.baseline else None,
            "times_baseline": group.times(variant),
            "rank": group.rank(variant),
        }
        for group in groups_of(variants, baseline_name)
        for variant in group.members
    }
    return [variant | {"ranking": rankings[variant["name"]]} for variant in variants]


def times_baseline(groups: Sequence[Group]) -> dict[str, str]:
    return {
        variant["name"]: words.times(group.times(variant)) for group in groups for variant in group.members
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
    by = " or ".join(dict.fromkeys(BY[group.by] for group in groups))
    within = ", within variants of equal workload" if len(groups) > 1 else ""
    return f"× baseline: how many times as fast as {names}, by {by}{within}"


def answers(groups: Sequence[Group]) -> list[str]:
    """A sentence on every group with several variants; none on jobs that come and go."""
    several = [
        group
        for group in groups
        if len(group.members) > 1 and not any(variant.get("stay") is not None for variant in group.members)
    ]
    more = len(several) - GROUPS_MAX
    return [
        *(text for group in several[:GROUPS_MAX] if (text := _answer(group))),
        *(
            [f"and {words.format_count(more, 'more group')} of variants of equal workload"]
            if more > 0
            else []
        ),
    ]


def _answer(group: Group) -> str:
    """Which variants are first, by what, how far, and why; which miss the target."""
    missing = [
        variant["name"]
        for variant in group.members
        if kind(variant["verdict"]) in GOOD and group.value(variant) is None
    ]
    is_target = group.by == "time_to_target_us"
    of = f" of {group.label}" if group.label else ""
    if not group.ranked:
        return f"no variant{of} reaches its target" if is_target and missing else ""
    best = [variant for variant in group.ranked if group.rank(variant) == 1]
    names = " and ".join(variant["name"] for variant in best)
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
    if is_lossy(best[0]["metrics"]):
        error = best[0]["metrics"]["nmse"]
        text += "; its sums are not exact" + ("" if error is None else f", NMSE {words.error(error)}")
    if other is not None and group.value(other) and not tie and group.by == "aggregation_time_us":
        why = because(best[0].get("bounds", ()), other.get("bounds", ()), other_name=other["name"])
        text += f"; {why}" if why else ""
    if len(workers := {variant["metrics"]["workers"] for variant in group.members}) > 1:
        text += f"; variants have {words.span(workers)} workers"
    if is_target and missing:
        text += f"; {', '.join(sorted(missing))} {'misses' if len(missing) == 1 else 'miss'} it"
    return text


def check_sort(sort: str) -> str:
    known = [*SORTS, AS_GIVEN]
    if sort not in known:
        raise DataError(f"--sort {sort}: there is no such order", names_hint(sort, known, "orders"))
    return sort


def order_key(sort: str) -> Callable[[str, Mapping[str, Any]], tuple[bool, bool, float]]:
    """A key of a variant's verdict and metrics, best first; bad verdicts and missing values come last.

    `sort` is the name of an order, or what a group is ranked by.
    """
    metric = SORTS.get(sort) or BY_NAME[sort]

    def key(verdict: str, metrics: Mapping[str, Any]) -> tuple[bool, bool, float]:
        value = metrics.get(metric.name)
        is_more_better = metric.better == "higher"
        if metric.name == "test_score" and value is not None:
            is_more_better = metric_named(metrics["test_metric"]).more_is_better
        signed = 0.0 if value is None else -value if is_more_better else value
        return kind(verdict) not in GOOD, value is None, signed

    return key


def _cut(entry: Entry) -> tuple[float | None, str]:
    """How a variant's gradient is cut: the number of its buckets, and the rule of fusion."""
    fusion = entry.get("setup", {}).get("workload", {}).get("fusion")
    return entry["metrics"].get("buckets"), str(fusion)


# The baseline of a comparison, and what makes runs less comparable with it.


@dataclass(frozen=True)
class Baseline:
    """A run; with `variant`, that variant of it for all of its group."""

    run: RunFolder
    variant: str = ""
    is_only: bool = False  # there is no other run

    @property
    def name(self) -> str:
        return f"{name_of(self.run)} {self.variant}".rstrip()

    def against(self, variant: Entry, group: Group) -> Entry | None:
        # The variant to divide by: the wanted one; if none is wanted, that of the same name; or else the
        # group's baseline in this run.
        mine = [
            member
            for member in self.run.summary["variants"]
            if any(member is other for other in group.members)
        ]
        wanted = self.variant or ("" if self.is_only else variant["name"])
        same = next((member for member in mine if member["name"] == wanted), None)
        baseline_name = self.run.summary.get("baseline")
        return same or (Group(group.label, tuple(mine), baseline_name).baseline if mine else None)


def baseline_of(folder: Path | None, loaded: Sequence[RunFolder]) -> Baseline:
    """The baseline that is given: a folder, which wins; a run's number in the table; or a variant's name.

    Of a single run it is the baseline of each group, by default.

    Raises
    ------
    DataError
        There is no such folder, number or variant.
    """
    only = Baseline(loaded[0], is_only=len(loaded) == 1)
    if folder is None:
        return only
    text = str(folder)
    if not folder.exists():
        for run in loaded:
            if text in _variants(run):
                return Baseline(run, text)
        if text.isdecimal():
            return replace(only, run=_run_numbered(text, loaded))
    if not folder.exists() and folder.name == text and text not in ("latest", "latest.txt"):
        names = list(dict.fromkeys(name for run in loaded for name in _variants(run)))
        raise DataError(
            f"--baseline {text}: there is no run folder and no variant of this name",
            names_hint(text, names, "variants"),
        )
    run = load(folder)
    return only if run.path == loaded[0].path else Baseline(run)


def _variants(run: RunFolder) -> list[str]:
    return [variant["name"] for variant in run.summary["variants"]]


def _run_numbered(text: str, loaded: Sequence[RunFolder]) -> RunFolder:
    if len(text) > 9 or not 1 <= int(text) <= len(loaded):
        raise DataError(
            f"--baseline {text}: there is no run of this number",
            f"give 1{f' to {len(loaded)}' if len(loaded) > 1 else ''}, or a run folder",
        )
    return loaded[int(text) - 1]


def name_of(run: RunFolder) -> str:
    return run.label or f"{run.summary['scenario']}/{run.path.name}"


def require_comparable(runs: Sequence[RunFolder], base: RunFolder) -> None:
    """Require that all runs computed with the same instructions, where that is known.

    Raises
    ------
    DataError
        One has not.
    """
    right = recorded(base.circumstances)
    for run in runs:
        instruction_set = recorded(run.circumstances)
        if instruction_set is not None and right is not None and instruction_set.isa != right.isa:
            raise DataError(
                f"cannot compare {name_of(run)}, computed with {instruction_set.isa}, "
                f"with {name_of(base)}, computed with {right.isa}",
                "their results differ by the processor: run both on one processor, and without --native",
            )


def notes_on(run: RunFolder, base: Baseline) -> list[str]:
    """Differences from the baseline's circumstances, and reasons not to rely on the results."""
    run_circumstances, base_circumstances = _circumstances(run), _circumstances(base.run)
    notes = [
        f"{name_of(run)}: {what} {run_circumstances[what]}, the baseline has {base_circumstances[what]}"
        for what in run_circumstances
        if run_circumstances[what] != base_circumstances[what]
    ]
    if run_circumstances["scenario"] != base_circumstances["scenario"]:
        notes = [
            f"{name_of(run)}: another scenario; variants that the baseline lacks are compared with its own "
            "baseline, if that has an equal workload"
        ]
    else:
        notes += [*_other_inputs(run, base.run), *([] if base.variant else _list_unmatched(run, base.run))]
    notes += _other_workers(run, base)
    notes += [f"{name_of(run)}: {note}" for note in note_of(run.circumstances)]
    if unfinished := ", ".join(f"'{name}'" for name in run.summary.get("unfinished", ())):
        notes.append(f"{name_of(run)}: unfinished, {unfinished} did not run to the end")
    kinds = {variant["name"]: kind(variant["verdict"]) for variant in run.summary["variants"]}
    if set(kinds.values()) - {*GOOD, "stalled"}:
        notes.append(f"{name_of(run)}: a check failed, do not rely on its numbers")
    for outcome, meaning in (
        ("stalled", "stalled, the numbers are those of the finished steps"),
        ("approximate", "approximate, some elements are estimates without an error bound"),
    ):
        names = ", ".join(f"'{name}'" for name, verdict in kinds.items() if verdict == outcome)
        notes += [f"{name_of(run)}: {names} {meaning}"] if names else []
    return notes


def _other_inputs(run: RunFolder, base: RunFolder) -> list[str]:
    """One note for every named file whose content differs in the baseline."""
    run_inputs, base_inputs = (
        {file["path"]: file["sha256"] for file in both.summary.get("inputs", ())} for both in (run, base)
    )
    return [
        f"{name_of(run)}: {path} with sha256 {run_inputs[path][:12]}, "
        f"the baseline has {base_inputs[path][:12]}"
        for path in run_inputs
        if run_inputs[path] != base_inputs.get(path, run_inputs[path])
    ]


def _list_unmatched(run: RunFolder, base: RunFolder) -> list[str]:
    """One note on all variants that the baseline lacks."""
    names = [variant["name"] for variant in base.summary["variants"]]
    missing = [f"'{entry['name']}'" for entry in run.summary["variants"] if entry["name"] not in names]
    if not missing:
        return []
    what = f"variant{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return [f"{name_of(run)}: the baseline has no {what}, compared with its own baseline"]


def _other_workers(run: RunFolder, base: Baseline) -> list[str]:
    """One note on all variants that have other workers than the baseline's of the same name."""
    base_workers = {entry["name"]: entry["metrics"]["workers"] for entry in base.run.summary["variants"]}
    differing = [
        f"'{name}' has {workers}, '{name}' of the baseline {base_workers[name]}"
        for entry in run.summary["variants"]
        if (workers := entry["metrics"]["workers"]) != base_workers.get(name := entry["name"], workers)
    ]
    return [f"{name_of(run)}: other numbers of workers: {'; '.join(differing)}"] if differing else []


def _circumstances(run: RunFolder) -> dict[str, str]:
    """Properties that two runs must share for their ratios to mean something, by their names in a note."""
    return {
        "scenario": run.summary["scenario"],
        "seed": str(run.summary["seed"]),
        "scenario file with sha256": hashlib.sha256(run.scenario_text).hexdigest()[:12],
        "--set": ", ".join(run.summary["sets"]) or "nothing",
        "netfold version": run.circumstances["version"],
    }
