"""The summary of a run, computed from its records: metrics, checks and a verdict per variant."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from netfold.errors import InvariantError
from netfold.sim.results.job_times import JobTimes, overview
from netfold.sim.results.metrics import Measured, VariantFacts, metrics_of
from netfold.sim.results.records import CheckRecord, LinkRecord, Records, RoundRecord, StepRecord
from netfold.units import PS_PER_US

# Verdicts: "pass", "approximate: N entries", "stalled" or "fail", from good to bad.
#
# An approximate variant passes all its checks, but its codec reports that N elements of its sums are
# estimates. That is expected of such a codec, so it is not a failure; but those elements have no error
# bound. Where packets carry no words, a variant that passes is "pass: sums not checked". Where some do, it is
# "pass: N % of sums checked": of the elements of all rounds, rounded down.


GOOD = ("pass", "approximate")  # kinds of verdict with which a run exits with 0
PATTERN = (
    r"^(pass|pass: sums not checked|pass: (<1|[1-9][0-9]?) % of sums checked|"
    r"approximate: [0-9]{1,18} entries|stalled|fail)$"
)
_APPROXIMATE = "approximate: {} entries"
_UNCHECKED = "pass: sums not checked"


def verdict_of_share(checked: int, elements: int) -> str:
    # Of a variant that passes, and of which the sums of only so many elements are checked.
    return f"pass: {100 * checked // elements or '<1'} % of sums checked" if checked else _UNCHECKED


def kind(verdict: str) -> str:
    # "approximate" for "approximate: 12 entries".
    return verdict.partition(":")[0]


def of_checks(verdicts: Iterable[str], estimates_count: int) -> str:
    """Verdict of a variant, from those of its checks and its number of estimated elements."""
    checks = worst(verdicts)
    return _APPROXIMATE.format(estimates_count) if checks == "pass" and estimates_count else checks


def worst(verdicts: Iterable[str]) -> str:
    """The worst verdict: wrong numbers (fail) are worse than none (stalled), and no verdict at all is a fail.

    The entries of approximate verdicts are added up.
    """
    all_verdicts = list(verdicts)
    kinds = {kind(verdict) for verdict in all_verdicts}
    if not kinds or not kinds <= {*GOOD, "stalled"}:
        return "fail"
    if "stalled" in kinds:
        return "stalled"
    if partly := [verdict for verdict in all_verdicts if verdict.startswith("pass: ")]:
        return min(partly, key=_checked_percent)
    return _APPROXIMATE.format(sum(map(entries, all_verdicts))) if "approximate" in kinds else "pass"


def _checked_percent(verdict: str) -> int:
    """Of a verdict "pass: …"; 0 for less than 1 %, and −1 if nothing is checked."""
    if verdict == _UNCHECKED:
        return -1
    percent = verdict.removeprefix("pass: ").partition(" ")[0]
    return 0 if percent == "<1" else int(percent)


def entries(verdict: str) -> int:
    # The number of estimated elements.
    return int(verdict.split()[1]) if kind(verdict) == "approximate" else 0


NO_COMPUTE = "compute takes no time"
"""What results say of a variant whose device is none."""
ONLY_CODECS = "devices only encode and decode, as no model is computed"
"""What results say of a variant that has a device and nothing to compute."""


PREDICTED_BYTES = (*(digit * 10**power for power in range(3, 9) for digit in (1, 2, 5)), 10**9)
"""Sizes of a worker's message for which times are predicted: 1 KB to 1 GB."""


def summarize(facts: Mapping[str, VariantFacts], records: Records) -> dict[str, Any]:
    """Verdict and warnings of the run; metrics, checks and verdict of each variant, in the order of `facts`.

    If a variant has several jobs, each has an entry, named "variant/job"; its links are the variant's.

    `injected` is the effect of every fault, all variants in one list. The result holds only what JSON can; a
    metric without a finite value is None. Means per step that are whole are ints. `loss_first` and `loss` are
    the training losses of the first and the last step, each taken before that step's update and averaged over
    workers. An unfinished variant has the means of its finished steps, or None if there are none.

    Raises
    ------
    InvariantError
        A variant that finished has no step or no round, or a record names a variant not in `facts`.
    """
    _require_known_variants(facts, [*records.steps, *records.rounds, *records.checks])
    _require_known_variants([fact.variant or name for name, fact in facts.items()], records.links)
    variants = [
        _summarize_variant(name, fact, _own_records(records, name, fact.variant or name))
        for name, fact in facts.items()
    ]
    job_times: dict[str, list[JobTimes]] = {}
    for name, fact in facts.items():
        if fact.job_times is not None:
            job_times.setdefault(fact.variant or name, []).append(fact.job_times)
    return {
        "verdict": worst(variant["verdict"] for variant in variants),
        "variants": variants,
        **({"jobs": [overview(name, jobs) for name, jobs in job_times.items()]} if job_times else {}),
        "warnings": [f"{name}: {warning}" for name, fact in facts.items() for warning in fact.warnings],
        "injected": [asdict(fault) for fault in records.faults],
    }


def _own_records(records: Records, name: str, variant: str) -> Records:
    """Records of one variant, or of one of its jobs; links are the variant's."""
    return Records(
        steps=[record for record in records.steps if record.variant == name],
        rounds=[record for record in records.rounds if record.variant == name],
        phases=[record for record in records.phases if record.variant == name],
        links=[record for record in records.links if record.variant == variant],
        checks=[record for record in records.checks if record.variant == name],
    )


def _summarize_variant(name: str, fact: VariantFacts, records: Records) -> dict[str, Any]:
    checks = records.checks
    is_unfinished = any(check.name == "finishes" and check.verdict != "pass" for check in checks)
    if not is_unfinished and not (records.steps and records.rounds):
        raise InvariantError(
            f"variant '{name}' has {len(records.steps)} step and {len(records.rounds)} round records, "
            "it needs some of both"
        )
    metrics = metrics_of(Measured(fact, records.steps, records.rounds, records.phases, records.links))
    entry: dict[str, Any] = {
        "name": name,
        "verdict": of_checks((check.verdict for check in checks), metrics["approximate_entries"]),
        "checks": [
            {"name": check.name, "verdict": check.verdict, "detail": check.detail} for check in checks
        ],
        "metrics": metrics,
        "references": [asdict(reference) for reference in fact.references],
        "switches": [dict(switch) for switch in fact.switches],
        "bounds": [dict(part) for part in fact.bounds],
        "is_uncompressed": fact.is_uncompressed,
        "replays_times": fact.replays_times,
    }
    if fact.prediction is not None and "predicted_time_us" in metrics:
        predicted_us = ((size, fact.prediction.time_ps(size / 4) / PS_PER_US) for size in PREDICTED_BYTES)
        entry["predictions"] = [list(point) for point in predicted_us]
    if scores := scores_of(records.steps):
        entry |= {"scores": scores, "chance": fact.chance}
    if metrics["compute_time_us"] == 0:
        entry["compute"] = NO_COMPUTE
    if fact.job_times is not None:
        entry["stay"] = fact.job_times.as_dict()
    if fact.fusion is not None:
        entry["fusion"] = dict(fact.fusion)
    if fact.diagnosis is not None:
        entry["diagnosis"] = dict(fact.diagnosis)
    return entry | {"trace": fact.trace} if fact.trace else entry


def scores_of(steps: Sequence[StepRecord]) -> list[dict[str, Any]]:
    """Every test with a finite score: steps and time from the start of the first step, and the score."""
    return [
        {
            "steps": done,
            "time_us": (step.end_ps - steps[0].start_ps) / PS_PER_US,
            "score": step.test_score,
        }
        for done, step in enumerate(steps, start=1)
        if step.test_score is not None and math.isfinite(step.test_score)
    ]


def _require_known_variants(
    known: Collection[str],
    records: Iterable[StepRecord | RoundRecord | LinkRecord | CheckRecord],
) -> None:
    unknown = sorted({record.variant for record in records} - set(known))
    if unknown:
        raise InvariantError(f"records of unknown variants {unknown}; this run has {list(known)}")
