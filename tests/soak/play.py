"""Resolve, run and judge one drawn scenario."""

from __future__ import annotations

import json
import math
import random
import re
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import netfold.sim.checks.round_checks
import netfold.sim.run.job
import netfold.sim.run.run
from netfold.errors import NetfoldError, RunError
from netfold.sim.engine.engine_data import Overflow
from netfold.sim.plan.plan import VariantPlan
from netfold.sim.report.html_report import build_report
from netfold.sim.run.run import run_scenario, run_variant
from netfold.sim.run.variant import VariantResult
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.workload import data_sets as data_fetch
from netfold.sim.workload.synthetic import SyntheticSpec
from tests.soak.draw import Drawn
from tests.soak.judge import (
    LARGEST,
    broken_promise,
    broken_vote,
    has_documented_bound,
    is_exact,
    is_sum,
    nmse,
    wrong_elements,
)
from tests.soak.mend import ROUNDS_MAX, mended
from tests.soak.merges import has_wrong_words

NEVER_CAME = "never got hosts and slots"
# Acceptable outcomes …
EXACT, WITHIN, APPROXIMATE = "exact", "within the bound", "approximate, and reported"
STUCK, FAIL, GIVEN_UP, REFUSED = (
    "stalled, with the cause",
    "fail, with the place",
    "codec gives up",
    "refused with a message",
)
LARGE = "too large to run here"  # it is resolved: all rules are checked, and nothing is simulated
ELEMENTS_MAX = 300_000  # of all workers and steps of a variant
VARIANTS_MAX = 3  # that are run
REPORTED = 0.04  # share of scenarios whose run folder and report are written
# … and findings.
SILENT, FALSE_ALARM, TRACEBACK, HUNG = "SILENT WRONG", "FALSE ALARM", "TRACEBACK", "HUNG"
UNREPORTED = "UNREPORTED"  # an outcome without its reason
ACCEPTED = "ACCEPTED"  # a scenario that breaks a rule
FINE = (EXACT, WITHIN, APPROXIMATE, STUCK, FAIL, GIVEN_UP, REFUSED, LARGE)
FINDINGS = (SILENT, HUNG, TRACEBACK, FALSE_ALARM, UNREPORTED, ACCEPTED)

FAR = "at most 0.001 is allowed"
LOST = ("all totals are zero", "workers is beyond float32")
OF_SUMS = ("sum_is_right", "merges_are_exact", "merges_are_right", "replicas_agree", "decodes")
HARMLESS = ("loss", "burst_loss", "link_rate", "worker_pause", "start_skew", "slow_host")  # cost time alone
PLACES = ("slot", "unit", "message", "partial sums")
LOSING = ("loss", "corruption")
NMSE_MAX = 1e-3  # of totals to which whole gradients were contributed: netfold's documents allow no more
SURVIVED = 0.05  # on every link: with more losses a message of several packets may never arrive complete


@dataclass
class Verdict:
    """The outcome of a scenario, and the reason as text."""

    kind: str
    text: str = ""
    ran: dict[str, Any] | None = None  # what was run, without what was refused
    refusals: int = 0  # before it ran

    def as_dict(self) -> dict[str, Any]:
        """For a line of JSON."""
        return asdict(self)


@dataclass
class Witness:
    """Judges every round of every job when it is closed."""

    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))  # by job: where
    rounds: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    elements: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    exact: dict[str, bool] = field(default_factory=lambda: defaultdict(lambda: True))
    nmse: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # the largest of its rounds
    label: str = ""

    def __call__(
        self, codec: Any, gradients: Any, decoded: Any, operations: Any, exempt: Any, *rest: Any
    ) -> Any:
        label = self.label
        self.rounds[label] += 1
        self.elements[label] += gradients[0].size
        known = np.concatenate([exempt.estimates, exempt.infinities]).astype(np.int64)
        totals = [one.total for one in decoded]
        given = gradients
        if not has_documented_bound(codec):
            # What the codec says to have contributed is judged: it may keep some of a gradient back.
            given = [one.contribution for one in decoded]
            if fault := broken_promise(codec, gradients, totals) or broken_vote(codec, given, totals):
                self.wrong[label].append(fault)
        for worker, own in enumerate(totals):
            if not has_documented_bound(codec) and not is_sum(codec, decoded):
                break
            wrong = wrong_elements(codec, given, own, _holds(operations, worker, gradients), known)
            if wrong.any():
                first = int(np.argmax(wrong))
                where = f"worker {worker}: {int(wrong.sum())} elements, the first {first}: {own[first]!r}"
                where += f" of {[float(one[first]) for one in given]}"
                self.wrong[label].append(where)
        largest = max(float(np.abs(one).max(initial=0.0)) for one in gradients)
        are_words_judged = rest == (Overflow.WRAP,) and largest * len(gradients) < LARGEST
        for operation in operations if are_words_judged else ():
            if has_wrong_words(operation):
                names = ", ".join(f"{one.label} ({one.merge.name})" for one in operation.sent[0])
                self.wrong[label].append(
                    f"{label}: a merged word of {names} is not the sum of the words sent"
                )
        self.exact[label] &= is_exact(gradients, totals)
        self.nmse[label] = max(self.nmse[label], nmse(gradients, totals[0]))
        return _examine(codec, gradients, decoded, operations, exempt, *rest)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Judge the rounds that are closed in this context."""

        def close(job: Any, *arguments: Any) -> Any:
            self.label = job.label
            return _close(job, *arguments)

        with (
            mock.patch.object(netfold.sim.run.job, "examine", self),
            mock.patch.object(netfold.sim.run.job.RunningJob, "_close", close),
        ):
            yield


_examine, _close = netfold.sim.checks.round_checks.examine, netfold.sim.run.job.RunningJob._close


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
        with tempfile.TemporaryDirectory() as folder, fetched_once():
            return _played(drawn, Path(folder))
    except Exception:
        return Verdict(TRACEBACK, traceback.format_exc(limit=-8))


@contextmanager
def fetched_once() -> Iterator[None]:
    """Data that could not be fetched once is not asked for again: every attempt takes seconds."""

    def fetch(item: Any, package: Any, files: Any) -> None:
        if package.name in _ABSENT:
            raise _ABSENT[package.name]
        try:
            _fetch(item, package, files)
        except NetfoldError as error:
            _ABSENT[package.name] = error
            raise

    with mock.patch.object(data_fetch, "_fetch", fetch):
        yield


_fetch = data_fetch._fetch
_ABSENT: dict[str, NetfoldError] = {}  # by package


def _played(drawn: Drawn, folder: Path) -> Verdict:
    for name, content in drawn.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    file = folder / "soak.yaml"
    scenario: dict[str, Any] = drawn.scenario
    refusals = []
    while True:
        file.write_text(json.dumps(scenario))
        try:
            plan = _resolved(file)
            break
        except NetfoldError as error:
            refusals.append(verdict_of(error, folder))
            rest = None if drawn.broken or len(refusals) > ROUNDS_MAX else mended(scenario, error)
            if refusals[-1].kind != REFUSED or rest is None:
                return refusals[-1]
            scenario = rest
    if drawn.broken:
        return Verdict(ACCEPTED, drawn.broken)
    found = _run(replace(drawn, scenario=scenario), plan, file)
    return replace(found, ran=scenario, refusals=len(refusals))


def verdict_of(error: NetfoldError, folder: Path) -> Verdict:
    """What a refusal comes to: it has to be in words, and of the user's making."""
    text = str(error).replace(f"{folder}/", "")
    # What a rule of fusion weighs is measured with the gradients themselves.
    if isinstance(error, RunError) and _is_too_large(text):
        return Verdict(GIVEN_UP, text)
    return Verdict(REFUSED if error.exit_code == 2 and len(text) > 20 else TRACEBACK, text)


def _resolved(file: Path) -> Any:
    """The plan of a scenario; of a sweep, that of its last point."""
    scenario = load(file)
    if scenario.sweep is not None:
        scenario = scenario.point([axis.values[-1] for axis in scenario.sweep.axes], scenario.seed)
    return resolve(scenario)


def _run(drawn: Drawn, plan: Any, file: Path) -> Verdict:
    """Run the first variants, and write some run folders."""
    variants = [one for one in plan.variants if elements_of(one) <= ELEMENTS_MAX][:VARIANTS_MAX]
    if not variants:
        return Verdict(LARGE, f"{elements_of(plan.variants[0])} elements")
    results: dict[str, VariantResult] = {}
    found = []
    for variant in variants:
        try:
            found.append(_of_variant(drawn, plan, variant, results))
        except NetfoldError as error:
            found.append(verdict_of(error, file.parent))  # data and a user's model are read when a run begins
    is_whole = len(results) == len(plan.variants) and "sweep" not in drawn.scenario
    if is_whole and random.Random(file.read_text()).random() < REPORTED:
        found.append(_reported(file, results, worst(found)))
    return worst(found)


def elements_of(variant: VariantPlan) -> int:
    """Elements that all workers of all jobs send in all steps."""
    return sum(
        len(job.hosts) * job.steps * sum(math.prod(one.shape) for one in tensors_of(job))
        for job in variant.jobs
    )


def tensors_of(job: Any) -> Any:
    """The tensors of a job's gradient."""
    return job.workload.tensors


def _of_variant(drawn: Drawn, plan: Any, variant: VariantPlan, results: dict[str, VariantResult]) -> Verdict:
    """Run a variant and judge it."""
    witness, made = Witness(), SyntheticSpec.workload

    def transformed(*given: Any) -> _Transformed:
        return _Transformed(made(*given), drawn.transform)

    with (
        witness.watching(),
        mock.patch.object(SyntheticSpec, "workload", transformed),
    ):
        result = results[variant.name] = run_variant(plan, variant)
    return worst([*of_network(result), *(of_job(job, variant, witness, drawn) for job in result.jobs)])


def _reported(file: Path, results: dict[str, VariantResult], verdict: Verdict) -> Verdict:
    """Write the run folder from results that are there; and its report, which loads it again."""
    with mock.patch.object(
        netfold.sim.run.run, "run_variant", lambda plan, variant, *_: results[variant.name]
    ):
        outcome = run_scenario(file, (), None, file.parent / "runs", lambda *_: None)
    if outcome.stopped is not None or outcome.run_dir is None:
        return Verdict(TRACEBACK, f"the run folder: {outcome.stopped!r}")
    try:
        build_report(outcome.run_dir)
    except Exception as error:
        return Verdict(TRACEBACK, f"the report: {error!r}")
    return verdict


def worst(verdicts: list[Verdict]) -> Verdict:
    order = [*FINDINGS, FAIL, GIVEN_UP, STUCK, APPROXIMATE, WITHIN, EXACT, LARGE, REFUSED]
    return min(verdicts, key=lambda one: order.index(one.kind))


def of_network(result: VariantResult) -> list[Verdict]:
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


def of_job(job: Any, variant: VariantPlan, witness: Witness, drawn: Drawn) -> Verdict:
    checks = {one.name: one for one in job.checks}
    failed = {name: one.detail for name, one in checks.items() if one.verdict not in ("pass", "stalled")}
    plan = next(one for one in variant.jobs if one.label == job.label)
    finishes = checks["finishes"]
    wrong = witness.wrong.get(job.label, [])
    if wrong:
        text = " ".join(failed.get(name, "") for name in OF_SUMS)
        if not text.strip():
            return Verdict(SILENT, f"{wrong[0]}; verdicts {_verdicts(checks)}")
        return Verdict(FAIL if any(place in text for place in PLACES) else UNREPORTED, text)
    if finishes.verdict == "stalled":
        if not _may_be_stalled(drawn, plan):
            return Verdict(FALSE_ALARM, f"stalled, and no fault explains it: {finishes.detail}")
        if NEVER_CAME in finishes.detail:  # the job that it waits for says why
            return Verdict(STUCK, finishes.detail)
        has_cause = any(word in finishes.detail.lower() for word in ("cause", "crash"))
        return Verdict(STUCK if has_cause and job.facts.diagnosis else UNREPORTED, finishes.detail)
    if finishes.verdict == "fail":
        explained = not all(map(is_harmless, drawn.faults)) or _is_too_large(finishes.detail)
        return Verdict(
            GIVEN_UP if explained and finishes.detail else FALSE_ALARM, f"finishes: {finishes.detail}"
        )
    if failed:
        explained = _explains(drawn, plan, failed, witness.nmse[job.label])
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
        return fault.get("delay", "0us") in ("0us", "0ps")
    if fault["kind"] == "corruption":
        return bool(fault.get("detected", True))
    is_short = fault.get("for") is not None and fault.get("reroute", "never") == "never"
    return fault["kind"] in HARMLESS or (fault["kind"] == "link_down" and is_short)


def share_of(value: Any) -> float:
    """A share, which may be written in percent."""
    return float(value.rstrip("% ")) / 100 if isinstance(value, str) else float(value or 0)


def _may_be_stalled(drawn: Drawn, plan: Any) -> bool:
    """Whether a fault can cause a stall: any except those that timers recover from, if there are timers."""
    lost = any(share_of(fault.get("rate")) > SURVIVED for fault in drawn.faults if fault["kind"] in LOSING)
    lost |= any(fault["kind"] == "burst_loss" for fault in drawn.faults)
    has_timers = plan.collective.sender.timeout_max_ps > 0 and not plan.collective.needs_lossless
    return bool(drawn.faults) and (lost or not has_timers or not all(map(is_harmless, drawn.faults)))


def _explains(drawn: Drawn, plan: Any, failed: dict[str, str], nmse: float) -> bool:
    """Whether an injected fault may fail a check although all sums are within their bounds.

    So may adders that do not wrap, with a codec whose sums have to: words of a sketch that nobody reads may
    have left int32. Without any fault, totals within the bound of estimates, of a coarse factor or of a small
    sketch may be far off (`nmse` is the largest of the rounds), and values may be too small or too large.
    """
    if set(failed) == {"sum_is_right"}:
        detail = failed["sum_is_right"]
        if any(words in detail for words in LOST) or (FAR in detail and nmse > NMSE_MAX):
            return True
    if not all(map(is_harmless, drawn.faults)):
        return True  # a flipped bit within the bound, replicas that differ, slots that a reboot leaves …
    if plan.codec.wrap_reason and plan.collective.overflow is not Overflow.WRAP:
        return set(failed) <= {"merges_are_exact"} and "left int32" in failed["merges_are_exact"]
    has_timers = plan.collective.aggregation is not None and plan.collective.aggregation.program.has_timers
    return has_timers and bool(drawn.faults) and set(failed) <= {"replicas_agree"}


def _is_too_large(detail: str) -> bool:
    """Whether a codec reports an element or scale as too large, and the numbers in the text agree."""
    place = r"(?:gradient\[\d+\]|the scale of the rows of \S+) is (\S+)"
    numbers = re.search(place + r":.* (?:up to|below) (\S+?)(?: fits)?[;,]", detail)
    return numbers is not None and abs(float(numbers[1])) >= float(numbers[2])


def _verdicts(checks: dict[str, Any]) -> str:
    return ", ".join(f"{name} {one.verdict}" for name, one in checks.items())
