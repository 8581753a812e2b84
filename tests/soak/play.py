"""Resolve, run and judge one drawn scenario."""

from __future__ import annotations

import json
import re
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import netfold.sim.checks.rounds
import netfold.sim.run.job
import netfold.sim.workload.pool
from netfold.sim.engine.interface import Overflow
from netfold.sim.errors import NetfoldError
from netfold.sim.plan.plan import VariantPlan
from netfold.sim.resolve import resolve
from netfold.sim.run.outcome import VariantResult
from netfold.sim.run.run import run_variant
from netfold.sim.scenario import load
from tests.sim.run.test_random_scenarios import has_wrong_words
from tests.soak.draw import Drawn
from tests.soak.judge import LARGEST, is_exact, wrong_elements

# Acceptable outcomes …
EXACT, WITHIN, APPROXIMATE = "exact", "within the bound", "approximate, and reported"
STUCK, FAIL, GIVEN_UP, REFUSED = (
    "stuck, with the cause",
    "fail, with the place",
    "codec gives up",
    "refused with a message",
)
# … and findings.
SILENT, FALSE_ALARM, TRACEBACK, HUNG = "SILENT WRONG", "FALSE ALARM", "TRACEBACK", "HUNG"
UNREPORTED = "UNREPORTED"  # an outcome without its reason
FINE = (EXACT, WITHIN, APPROXIMATE, STUCK, FAIL, GIVEN_UP, REFUSED)
FINDINGS = (SILENT, HUNG, TRACEBACK, FALSE_ALARM, UNREPORTED)

FAR = (" estimates, at most 0.001 is allowed", "all totals are zero", "workers is beyond float32")
OF_SUMS = ("sum_is_right", "merges_are_exact", "merges_are_right", "replicas_agree", "decodes")
HARMLESS = ("loss", "burst_loss", "link_rate", "worker_pause", "start_skew", "slow_host")  # cost time alone
PLACES = ("slot", "unit", "message", "partial sums")
LOSING = ("loss", "corruption")
SURVIVED = 0.05  # on every link: with more losses a message of several packets may never arrive complete


@dataclass
class Verdict:
    """The outcome of a scenario, and the reason as text."""

    kind: str
    text: str = ""

    def as_dict(self) -> dict[str, str]:
        """For a line of JSON."""
        return {"kind": self.kind, "text": self.text}


@dataclass
class Witness:
    """Judges every round of every job when it is closed."""

    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by job: where
    rounds: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    exact: dict[str, bool] = field(default_factory=lambda: defaultdict(lambda: True))
    label: str = ""

    def __call__(
        self, codec: Any, gradients: Any, decoded: Any, operations: Any, exempt: Any, *rest: Any
    ) -> Any:
        label = self.label
        self.rounds[label] += 1
        known = np.concatenate([exempt.estimates, exempt.infinities]).astype(np.int64)
        totals = [one.total for one in decoded]
        for worker, own in enumerate(totals):
            wrong = wrong_elements(codec, gradients, own, _holds(operations, worker, gradients), known)
            if wrong.any():
                first = int(np.argmax(wrong))
                where = f"worker {worker}: {int(wrong.sum())} elements, the first {first}: {own[first]!r}"
                where += f" of {[float(one[first]) for one in gradients]}"
                self.wrong[label].append(where)
        largest = max(float(np.abs(one).max(initial=0.0)) for one in gradients)
        are_words_judged = rest == (Overflow.WRAP,) and largest * len(gradients) < LARGEST
        if are_words_judged and any(map(has_wrong_words, operations)):
            self.wrong[label].append("a merged word is not the sum of the words sent")
        self.exact[label] &= is_exact(gradients, totals)
        return _examine(codec, gradients, decoded, operations, exempt, *rest)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Judge the rounds that are closed in this context."""

        def close(job: Any, *arguments: Any) -> Any:
            self.label = job._parts.label
            return _close(job, *arguments)

        with (
            mock.patch.object(netfold.sim.run.job, "examine", self),
            mock.patch.object(netfold.sim.run.job.TrainingJob, "_close", close),
        ):
            yield


_examine, _close = netfold.sim.checks.rounds.examine, netfold.sim.run.job.TrainingJob._close


def _holds(operations: Any, worker: int, gradients: Any) -> Any:
    """The workers in each element of a partial sum, `(workers, elements)`; None: all."""
    if not operations or not operations[0].sent[0]:
        return None
    holders = operations[0].received[worker][0].holders
    if holders is None:
        return None
    bitmaps = np.repeat(holders.bitmaps, holders.unit_words)[: len(gradients[0])]
    return np.array([(bitmaps >> np.uint32(rank)) & 1 for rank in range(len(gradients))], bool)


class _Transformed:
    """A workload whose gradients are denormal, huge, cancelling, or of very different size."""

    def __init__(self, workload: Any, how: str) -> None:
        self._workload, self._how = workload, how

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)

    def gradients(self, step: int) -> Any:
        found = self._workload.gradients(step)
        changed = [
            [self._change(part.copy(), worker, found[0][i]) for i, part in enumerate(parts)]
            for worker, parts in enumerate(found)
        ]
        return [[np.ascontiguousarray(part, np.float32) for part in parts] for parts in changed]

    def _change(self, part: Any, worker: int, first: Any) -> Any:
        with np.errstate(over="ignore", under="ignore"):
            match self._how:
                case "denormal":
                    return part * np.float32(1e-42)
                case "huge":
                    return np.clip(part * np.float32(3e37), -3e38, 3e38)
                case "cancelling":
                    return (first if worker % 2 == 0 else -first) + part * np.float32(1e-6)
                case "wide":
                    return part * np.exp2((np.arange(part.size) * 7919 % 80 - 40).astype(np.float32))
                case "zero":
                    return part * np.float32(0)
                case "spike":
                    part[: 1 if worker == 0 else 0] = np.float32(1e30)
        return part


def play(drawn: Drawn) -> Verdict:
    """Run one scenario; never raises."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _played(drawn, Path(folder))
    except Exception:
        return Verdict(TRACEBACK, traceback.format_exc(limit=-6))


def _played(drawn: Drawn, folder: Path) -> Verdict:
    for name, text in drawn.files.items():
        (folder / name).write_text(text)
    file = folder / "soak.yaml"
    file.write_text(json.dumps(drawn.scenario))
    try:
        plan = resolve(load(file))
    except NetfoldError as error:
        kind = REFUSED if error.exit_code == 2 and len(str(error)) > 20 else TRACEBACK
        return Verdict(kind, str(error).replace(f"{folder}/", ""))
    witness, made = Witness(), netfold.sim.workload.pool.synthetic_workload

    def transformed(*given: Any) -> _Transformed:
        return _Transformed(made(*given), drawn.transform)

    with witness.watching(), mock.patch.object(netfold.sim.workload.pool, "synthetic_workload", transformed):
        result = run_variant(plan, plan.variants[0])
    return _worst(
        [*_of_network(result), *(_of_job(job, plan.variants[0], witness, drawn) for job in result.jobs)]
    )


def _worst(verdicts: list[Verdict]) -> Verdict:
    order = [*FINDINGS, FAIL, GIVEN_UP, STUCK, APPROXIMATE, WITHIN, EXACT]
    return min(verdicts, key=lambda one: order.index(one.kind))


def _of_network(result: VariantResult) -> list[Verdict]:
    """Check that packets on links add up, with any fault."""
    found = []
    for link in result.links:
        for unit in ("packets", "bytes"):
            sent = getattr(link, unit)
            parts = {what: getattr(link, f"{what}_{unit}") for what in ("delivered", "lost", "in_flight")}
            if sent != sum(parts.values()):
                found.append(Verdict(SILENT, f"{link.link}: {unit}: sent {sent}, accounted for {parts}"))
    bad = [
        one
        for one in result.checks
        if one.name in ("conservation", "switches_add_up") and one.verdict == "fail"
    ]
    return found[:1] + [Verdict(FALSE_ALARM, f"{one.name}: {one.detail}") for one in bad[:1]]


def _of_job(job: Any, variant: VariantPlan, witness: Witness, drawn: Drawn) -> Verdict:
    checks = {one.name: one for one in job.checks}
    failed = {name: one.detail for name, one in checks.items() if one.verdict not in ("pass", "stuck")}
    plan = next(one for one in variant.jobs if one.label == job.label)
    finishes = checks["finishes"]
    wrong = witness.wrong.get(job.label, [])
    if wrong:
        text = " ".join(failed.get(name, "") for name in OF_SUMS)
        if not text.strip():
            return Verdict(SILENT, f"{wrong[0]}; verdicts {_verdicts(checks)}")
        return Verdict(FAIL if any(place in text for place in PLACES) else UNREPORTED, text)
    if finishes.verdict == "stuck":
        if not _may_be_stuck(drawn, plan):
            return Verdict(FALSE_ALARM, f"stuck, and no fault explains it: {finishes.detail}")
        has_cause = any(word in finishes.detail.lower() for word in ("cause", "crash"))
        return Verdict(STUCK if has_cause and job.facts.diagnosis else UNREPORTED, finishes.detail)
    if finishes.verdict == "fail":
        explained = not all(map(is_harmless, drawn.faults)) or _is_too_large(finishes.detail)
        return Verdict(
            GIVEN_UP if explained and finishes.detail else FALSE_ALARM, f"finishes: {finishes.detail}"
        )
    if failed:
        explained = _explains(drawn, plan, failed)
        return Verdict(FAIL if explained else FALSE_ALARM, "; ".join(f"{n}: {d}" for n, d in failed.items()))
    if witness.rounds[job.label] == 0:
        return Verdict(SILENT, "it passed, but no round was closed")
    estimates = sum(one.estimated_elements for one in job.journal.rounds)
    if estimates:
        return Verdict(APPROXIMATE, f"{estimates} elements")
    return Verdict(EXACT if witness.exact[job.label] else WITHIN)


def is_harmless(fault: dict[str, Any]) -> bool:
    """Whether a fault only costs time: packets stay in order, and no data changes."""
    if fault["kind"] == "duplicate":
        return bool(fault["delay"] == "0us")
    if fault["kind"] == "corruption":
        return bool(fault["detected"])
    return fault["kind"] in HARMLESS or (fault["kind"] == "link_down" and "for" in fault)


def _may_be_stuck(drawn: Drawn, plan: Any) -> bool:
    """Whether a fault can cause a stall: any except those that timers recover from, if there are timers."""
    lost = any(fault.get("rate", 0) > SURVIVED for fault in drawn.faults if fault["kind"] in LOSING)
    lost |= any(fault["kind"] == "burst_loss" for fault in drawn.faults)
    has_timers = plan.collective.timeout_max_ps > 0
    return bool(drawn.faults) and (lost or not has_timers or not all(map(is_harmless, drawn.faults)))


def _explains(drawn: Drawn, plan: Any, failed: dict[str, str]) -> bool:
    """Whether an injected fault may fail a check although all sums are within their bounds.

    So may adders that do not wrap, with a codec whose sums have to: words of a sketch that nobody reads may
    have left int32. Without any fault, an estimate may be far off, and values may be too small or too large.
    """
    if set(failed) == {"sum_is_right"} and any(words in failed["sum_is_right"] for words in FAR):
        return True
    if not all(map(is_harmless, drawn.faults)):
        return True  # a flipped bit within the bound, replicas that differ, slots that a reboot leaves …
    if plan.codec.wrap_reason and plan.collective.overflow is not Overflow.WRAP:
        return set(failed) <= {"merges_are_exact"} and "left int32" in failed["merges_are_exact"]
    program = plan.collective.aggregation.program.name if plan.collective.aggregation else ""
    return program == "TIMED" and bool(drawn.faults) and set(failed) <= {"replicas_agree"}


def _is_too_large(detail: str) -> bool:
    """Whether a codec reports an element as too large, and the numbers in the text agree."""
    numbers = re.search(r"gradient\[\d+\] is (\S+):.* (?:up to|below) (\S+?)[;,]", detail)
    return numbers is not None and abs(float(numbers[1])) >= float(numbers[2])


def _verdicts(checks: dict[str, Any]) -> str:
    return ", ".join(f"{name} {one.verdict}" for name, one in checks.items())
