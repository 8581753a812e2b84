"""Where the time of a step goes, and what would shorten it: each change is simulated, none is guessed.

The first part is read from the tables of a run. For the second one, the variant runs again with one change at
a time, with the same seed and as many of its first steps as `_steps` allows, and so does the variant as it
is: a gain is a ratio of two simulations of the same length.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from rich.table import Table
from rich.text import Text

from netfold.errors import DataError, MistakesError, NetfoldError, names_hint
from netfold.kernels.processor import pin
from netfold.sim.checks.checks import covered_ps
from netfold.sim.files import one_run
from netfold.sim.report import words
from netfold.sim.report.answer import (
    MAKESPAN,
    MODEL_ERROR,
    THROUGHPUT,
    TIME_TO_TARGET,
    Question,
    answered_in,
    groups_in,
)
from netfold.sim.report.bottleneck_text import described
from netfold.sim.report.result_display import VerbResult
from netfold.sim.results import folder
from netfold.sim.results.file_formats import frame
from netfold.sim.results.records import TimePart
from netfold.sim.results.summary import GOOD, kind
from netfold.sim.run.compiling import compiling
from netfold.sim.run.progress import Progress, ProgressReporter, silent
from netfold.sim.run.variant import run_variant
from netfold.sim.scenario.load import load, running_code
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.run_limits import Plan
from netfold.sim.scenario.variant_keys import JobSections
from netfold.sim.studies.remedies import COMPUTE, REMEDIES, Patch, Price, Remedy, Subject
from netfold.sim.workload.workload_keys import Workloads
from netfold.units import PS_PER_US

LEAST_SHARE = 0.01
"""The share of a step that a job waits for a cause from which on its remedies are tried."""
LEAST_GAIN = MODEL_ERROR
"""Share of the time that a change saves at least, to be advice."""
STEPS_MAX = 8
"""The most steps of a simulation …"""
HOPS_MAX = 4_000_000
"""… of which all but the first have to fit so many packet hops …"""
ELEMENTS_MAX = 1 << 25
"""… and so many elements of all workers' gradients."""
SEPARATOR = " and "
"""Between the arguments of `--set` that are one change."""
LOSSY_MAX = 3
"""The most changes of the sums that are advice."""
SHOWN_SHARE = 0.005
"""Smaller parts are added up in the text."""
_ROUNDING = 1e-12  # NMSE below which sums are those of the gradients, rounded to float32 in some order
_LOST = 0.5  # NMSE from which more of a sum is missing, or wrong, than there
_WORSE = 1.01  # times the error without a change: larger errors are due to it
MEASURED = {THROUGHPUT.metric: "aggregation_time_us", TIME_TO_TARGET.metric: "iteration_time_us"}
"""The times that are simulated in place of other metrics."""
SUBJECTS = {
    "iteration_time_us": "step",
    "aggregation_time_us": "aggregation of a step",
    "since_last_rank_us": "step, since its last rank arrived,",
    "makespan_us": "all jobs",
}


# Where the time of a step goes, from the tables of a run.


def parts_of(entry: Mapping[str, Any], steps: pl.DataFrame, rounds: pl.DataFrame) -> tuple[TimePart, ...]:
    """The parts of the time of finished steps, the largest first; their shares of the step add up to 1.

    `entry` is the job in a run's summary; the tables have its rows alone.
    """
    whole_us = entry["metrics"]["iteration_time_us"]
    if not whole_us:
        return ()
    parts = [TimePart(**{**part, "share": part["time_us"] / whole_us}) for part in entry.get("bounds", ())]
    for stage, time_ps in outside_ps(steps, rounds).items():
        time_us = time_ps / steps.height / PS_PER_US
        parts.append(TimePart(COMPUTE, "", stage, time_us, time_us / whole_us))
    return tuple(sorted((part for part in parts if part.time_us > 0), key=lambda part: -part.time_us))


def _text(part: TimePart) -> str:
    return (
        f"'{part.stage}', while nothing is aggregated" if part.cause == COMPUTE else described(asdict(part))
    )


def outside_ps(steps: pl.DataFrame, rounds: pl.DataFrame) -> dict[str, int]:
    """Time of all steps in which no round is in progress, by what the workers do then."""
    times_ps: dict[str, int] = defaultdict(int)
    for step, start_ps, end_ps, stage in _stretches(steps):
        spans = [(max(start_ps, begin), min(end_ps, end)) for begin, end in _spans(rounds, step)]
        covered = covered_ps([span for span in spans if span[0] < span[1]])
        times_ps[stage] += end_ps - start_ps - covered
    return dict(times_ps)


def beside_us(steps: pl.DataFrame, rounds: pl.DataFrame) -> float:
    """Time of a step, the mean, in which its passes are not over and some round is in progress."""
    times_ps = 0
    for row in steps.iter_rows(named=True):
        spans = [(start, min(end, row["backward_end_ps"])) for start, end in _spans(rounds, row["step"])]
        times_ps += covered_ps([span for span in spans if span[0] < span[1]])
    return times_ps / max(1, steps.height) / PS_PER_US


def _stretches(steps: pl.DataFrame) -> list[tuple[int, int, int, str]]:
    """Step, start, end and stage of all passes: one after the other, as the slowest worker ends them."""
    return [
        (row["step"], row[start], row[end], stage)
        for row in steps.iter_rows(named=True)
        for stage, start, end in (
            ("forward", "start_ps", "forward_end_ps"),
            ("backward", "forward_end_ps", "backward_end_ps"),
            ("update", "backward_end_ps", "end_ps"),
        )
    ]


def _spans(rounds: pl.DataFrame, step: int) -> list[tuple[int, int]]:
    return rounds.filter(pl.col("step") == step).select("start_ps", "end_ps").rows()


# Changes, each simulated.


class Timing(NamedTuple):
    """What a simulation came to."""

    time_us: float
    nmse: float | None
    bit_exact: bool | None

    def has_other_sums(self, before: Timing) -> bool:
        """Whether its sums are worse than before, by more than the order of additions explains."""
        if before.bit_exact and not self.bit_exact:
            return True
        if self.nmse is None or before.nmse is None:
            return self.nmse is not before.nmse
        return self.nmse > max(_ROUNDING, _WORSE * before.nmse)


@dataclass(frozen=True)
class Tried:
    """A change that was simulated, or refused."""

    remedy: str
    change: str
    """Values by path, as `--set` takes them, with "and" between two."""
    price: str
    """What it costs: see `remedies.Price`."""
    time_us: float | None
    """With the change; None: refused, or the run does not pass its checks."""
    gain: float | None
    """Share of the time that it saves."""
    nmse: float | None
    reason: str = ""
    """Why it has no time."""


def _sets(patch: Patch) -> tuple[str, ...]:
    """A patch as `--set` takes it, each mapping as a file has it: "codec={kind: packed}"."""
    texts = {
        path: f"{{{', '.join(f'{key}: {part}' for key, part in value.items())}}}"
        for path, value in patch.items()
        if isinstance(value, dict)
    }
    return tuple(
        f"{path}={'null' if value is None else texts.get(path, value)}" for path, value in patch.items()
    )


class _Trial:
    """One variant of a run, simulated again with changes."""

    def __init__(self, run: folder.RunFolder, variant: str, job: str, question: Question) -> None:
        self._run, self._variant, self._job = run, variant, job
        self.metric = MEASURED.get(question.metric, question.metric)
        self.is_queue = question is MAKESPAN
        summary = run.summary
        absent = [entry["path"] for entry in summary.get("inputs", ()) if not entry["kept"]]
        absent = [path for path in absent if not (run.path / path).is_file()]
        if absent:
            raise DataError(
                f"{run.path}: the run cannot be simulated again, as {absent[0]} is not kept in it",
                f"copy it to {run.path / absent[0]}",
            )
        self.prefix = ""
        self.original = self._plan({})
        if "variants" in self.original.scenario.document.children:
            self.prefix = f"variants.{variant}."
        self.steps_count = self.original.variants[0].steps // len(self.original.variants[0].jobs)
        self.steps = self._steps()
        self._workloads = Workloads()

    def _plan(self, patch: Patch) -> Plan:
        summary = self._run.summary
        sets = (*_sets_of(self._run), *(f"{self.prefix}{text}" for text in _sets(patch)))
        scenario = load(self._run.path / "scenario.yaml", sets, summary["seed"])
        chosen = tuple(variant for variant in scenario.variants if variant.name == self._variant)
        return resolve(replace(scenario, variants=chosen))

    def _steps(self) -> int:
        """How many steps are simulated: all, where a shorter run would be another one."""
        variant = self.original.variants[0]
        if self.is_queue or variant.faults.last_change_ps or len({job.steps for job in variant.jobs}) > 1:
            return self.steps_count
        links = self._run.links.filter(pl.col("variant") == self._variant)
        hops = max(1, int(links["packets"].sum()) // self.steps_count)
        elements = max(1, sum(job.workload.elements * len(job.hosts) for job in variant.jobs))
        steps = min(self.steps_count, STEPS_MAX, max(1, min(HOPS_MAX // hops, ELEMENTS_MAX // elements)))
        try:
            self._plan({"workload.steps": steps})
        except NetfoldError:  # such as a schedule that needs more of them
            return self.steps_count
        return steps

    def simulate(self, patch: Patch, reporter: ProgressReporter) -> Timing:
        """The time with a change.

        Raises
        ------
        NetfoldError
            The scenario cannot have it, or its run does not pass all checks.
        """
        shorter = {} if self.steps == self.steps_count else {"workload.steps": self.steps}
        plan = self._plan({**shorter, **patch})
        has_own_workload = any(path.startswith("workload") for path in patch)
        result = run_variant(plan, plan.variants[0], reporter, None if has_own_workload else self._workloads)
        for entry in result.summary["variants"]:
            if kind(entry["verdict"]) not in GOOD:
                failed = next(check for check in entry["checks"] if check["verdict"] != "pass")
                raise NetfoldError(f"{failed['name']}: {failed['verdict']}: {failed['detail']}")
        entry = next(entry for entry in result.summary["variants"] if entry["name"] == self._job)
        measured = result.summary["jobs"][0] if self.is_queue else entry["metrics"]
        return Timing(measured[self.metric], entry["metrics"]["nmse"], entry["metrics"]["bit_exact"])

    def of_job(self, patch: Patch) -> Patch:
        """A patch of the variant as one of the explained job alone, if it is one of several."""
        variant = self.original.scenario.variants[0]
        index = [job.label for job in self.original.variants[0].jobs].index(self._job)
        if not variant.jobs:
            return patch
        name = variant.jobs[self.original.variants[0].sections[index]].name
        paths = {path: path.partition(".")[0] in JobSections.model_fields for path in patch}
        return {f"jobs.{name}.{path}" if is_own else path: patch[path] for path, is_own in paths.items()}

    def subject(self, parts: Sequence[Mapping[str, Any]]) -> Subject:
        """What remedies look at."""
        plan, written = self.original.variants[0], self.original.scenario.variants[0]
        index = [job.label for job in plan.jobs].index(self._job)
        sections = written.jobs[plan.sections[index]] if written.jobs else written
        return Subject(
            sections, written.topology, written.routing.kind, plan.jobs[index], plan.network, parts
        )


@dataclass(frozen=True, repr=False)
class Explanation(VerbResult):
    """Where the time of a variant goes, and what would shorten it.

    Attributes
    ----------
    parts
        A row for every part of the time of a step, the largest first: cause, where, stage, time_us, share.
    advice
        A row for every change that saves 2 % or more, the best first: remedy, change (arguments of `--set`),
        price, time_us, gain (share of the time), nmse. Settings come first, then what needs other hardware,
        then what changes the sums: that may cost accuracy, which the time of a step does not show.
    tried
        A row for every change, with the reason why it was refused.
    """

    run: Path
    name: str
    metric: str
    time_us: float
    """Of the variant as it is, in a simulation of `steps` of its `steps_count` steps."""
    steps: int
    steps_count: int
    seed: int
    sets: tuple[str, ...]
    prefix: str
    """Of paths that mean this variant alone."""
    question: str
    beside_us: float
    all_parts: tuple[TimePart, ...]
    all_tried: tuple[Tried, ...]
    others: tuple[str, ...] = ()
    """Winners of other groups."""
    device_notes: tuple[str, ...] = ()
    """What has to be known of the devices' times, such as that each simulation measures them anew."""
    is_verbose: bool = field(default=False, compare=False)

    @property
    def parts(self) -> pl.DataFrame:
        return frame(TimePart, self.all_parts)

    @property
    def advice(self) -> pl.DataFrame:
        return frame(Tried, self.advised)

    @property
    def tried(self) -> pl.DataFrame:
        return frame(Tried, self.all_tried)

    @cached_property
    def advised(self) -> tuple[Tried, ...]:
        """Of each remedy the change that saves most, of about equal ones the smallest; and what it costs.

        Of those that change the sums, each saves more than all with a smaller error.
        """
        useful = [tried for tried in self.all_tried if _gain(tried) >= LEAST_GAIN]
        best: dict[str, Tried] = {}
        for tried in useful:
            is_better = tried.remedy not in best or _gain(tried) >= _gain(best[tried.remedy]) + LEAST_GAIN
            if tried.price != Price.SUMS and is_better:
                best[tried.remedy] = tried
        lossy: list[Tried] = []
        for tried in sorted(useful, key=lambda tried: math.inf if tried.nmse is None else tried.nmse):
            is_better = not lossy or _gain(tried) >= _gain(lossy[-1]) + LEAST_GAIN
            if tried.price == Price.SUMS and is_better:
                lossy.append(tried)
        kept = [*best.values(), *lossy[:LOSSY_MAX]]
        prices = [price.value for price in Price]
        return tuple(sorted(kept, key=lambda tried: (prices.index(tried.price), -_gain(tried))))

    def command(self, tried: Tried) -> str:
        """The command that runs the variant with a change."""
        arguments = ["netfold", "run", str(self.run / "scenario.yaml")]
        arguments += ["--variant", self.name.partition("/")[0]] if self.prefix else []
        sets = (*self.sets, *(f"{self.prefix}{text}" for text in tried.change.split(SEPARATOR)))
        arguments += [argument for text in sets for argument in ("--set", text)]
        return shlex.join([*arguments, "--seed", str(self.seed)])

    def as_dict(self) -> dict[str, Any]:
        """The object that `netfold explain --json` prints."""
        return {
            "run": str(self.run),
            "variant": self.name,
            "question": self.question,
            "metric": self.metric,
            "time_us": self.time_us,
            "steps": self.steps,
            "of_steps": self.steps_count,
            "beside_us": self.beside_us,
            "parts": [asdict(part) for part in self.all_parts],
            "advice": [asdict(tried) | {"command": self.command(tried)} for tried in self.advised],
            "tried": [asdict(tried) for tried in self.all_tried],
        }

    def table(self) -> Table:
        table = Table(box=None, show_header=False)
        for line in self.lines():
            table.add_row(Text(line))
        return table

    def tables(self) -> Sequence[Table]:
        return ()

    def lines(self) -> Sequence[str]:
        return [*self._where(), *self._advice(), *self._notes()]

    def _where(self) -> list[str]:
        whole_us = sum(part.time_us for part in self.all_parts)
        lines = [f"{self.name}: a step takes {words.time(whole_us)}. Of that:"]
        shown = [part for part in self.all_parts if part.share >= SHOWN_SHARE]
        lines += [f"  {_percent(part.share)} ({words.time(part.time_us)}): {_text(part)}" for part in shown]
        if rest := self.all_parts[len(shown) :]:
            share = sum(part.share for part in rest)
            lines.append(f"  {_percent(share)}: {words.format_count(len(rest), 'smaller part')}")
        if self.beside_us:
            together = f"{_percent(self.beside_us / whole_us)} ({words.time(self.beside_us)})"
            lines.append(f"For {together} of the step, devices compute while buckets are aggregated.")
        return lines

    def _advice(self) -> list[str]:
        what, simulated = SUBJECTS[self.metric], words.format_count(self.steps, "step")
        if not self.advised:
            count = sum(tried.time_us is not None for tried in self.all_tried)
            changes = f"{words.format_count(count, 'change')} simulated for {simulated}"
            return [f"Nothing found that shortens it by 2 %: {changes}."]
        of = f"{simulated} of {self.steps_count}" if self.steps < self.steps_count else simulated
        lines = [f"What would shorten it, each change simulated for {of}:"]
        for rank, tried in enumerate(self.advised, start=1):
            times = f"{words.time(self.time_us)} → {words.time(tried.time_us)} (−{_percent(_gain(tried))})"
            lines += [f"{rank}. {tried.change}: {what} {times}: {tried.remedy}{_price(tried)}"]
            lines += [f"   {self.command(tried)}"]
        return lines

    def _notes(self) -> list[str]:
        lines = []
        if len({tried.price for tried in self.advised}) > 1:
            lines.append("Settings come first, then what needs other hardware, then what changes the sums.")
        if self.question == TIME_TO_TARGET.name:
            lines.append(
                "Only the time of a step is simulated: other sums may need more steps to the target."
            )
        refused = sum(tried.time_us is None for tried in self.all_tried)
        if rest := len(self.all_tried) - refused - len(self.advised):
            lines.append(f"{words.format_count(rest, 'other change')} would save less, or cost time.")
        if refused:
            hint = "" if self.is_verbose else "; -v says why"
            lines.append(f"{words.format_count(refused, 'change')} cannot be made{hint}.")
        if self.is_verbose:
            lines += [f"  {tried.change}: {_result(tried)}" for tried in self.all_tried]
        lines += [f"Note: {note}." for note in self.device_notes]
        if self.others:
            lines.append(f"Other variants that come first, which can be named: {', '.join(self.others)}.")
        return lines


def _gain(tried: Tried) -> float:
    return tried.gain or 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= SHOWN_SHARE else "less than 1 %"


def _price(tried: Tried) -> str:
    """What a change costs, in words; empty if nothing."""
    error = f", NMSE {words.error(tried.nmse)}" if tried.price == Price.SUMS else ""
    error += ": most of each step's sum is missing" * (bool(error) and (tried.nmse or 0.0) >= _LOST)
    return "" if tried.price == Price.SETTING else f" ({tried.price}{error})"


def _result(tried: Tried) -> str:
    if tried.time_us is None:
        return tried.reason
    return f"{words.time(tried.time_us)}, {-100 * _gain(tried):+.1f} %{_price(tried)}"


# The verb.


def explain_run(
    path: Path, variant: str = "", *, progress: Progress = silent, code: bool = True, is_verbose: bool = False
) -> Explanation:
    # See `api.explain`.
    pin()
    run = folder.load(path)
    names = [entry["name"] for entry in run.summary["variants"]]
    name, question, others = _chosen(run, variant)
    entry = next(entry for entry in run.summary["variants"] if entry["name"] == name)
    steps, rounds = (table.filter(pl.col("variant") == name) for table in (run.steps, run.rounds))
    if kind(entry["verdict"]) not in GOOD or not steps.height:
        raise DataError(
            f"{path}: {name}: its verdict is {entry['verdict']}, so its times say nothing",
            f"`netfold report {path}` says why; variants: {', '.join(names)}",
        )
    rounds = rounds.filter(pl.col("step").is_in(steps["step"].implode()))
    parts = parts_of(entry, steps, rounds)
    with one_run(), running_code(code):
        trial = _Trial(run, name.partition("/")[0], name, question)
        with compiling(progress, trial.original.variants[0].jobs):
            before, tried = _try_all(trial, entry.get("bounds", ()), parts, progress)
    here = Path.cwd()
    return Explanation(
        run.path.relative_to(here) if run.path.is_relative_to(here) else run.path,
        name,
        trial.metric,
        before.time_us,
        trial.steps,
        trial.steps_count,
        run.summary["seed"],
        _sets_of(run),
        trial.prefix,
        question.name,
        beside_us(steps, rounds),
        parts,
        tuple(tried),
        others,
        tuple(dict.fromkeys(note for job in trial.original.variants[0].jobs for note in job.device.notes)),
        is_verbose,
    )


def _sets_of(run: folder.RunFolder) -> tuple[str, ...]:
    # Of several seeds the first alone is simulated again.
    return (*run.summary["sets"], *(["seeds=1"] if run.summary.get("seeds") else []))


def _chosen(run: folder.RunFolder, variant: str) -> tuple[str, Question, tuple[str, ...]]:
    """The job to explain, its question, and the winners of other groups."""
    groups = answered_in(run.summary)
    names = [entry["name"] for entry in run.summary["variants"]]
    others: tuple[str, ...] = ()
    if not variant:
        winners = [str(group.ranked[0]["name"]) for group in groups if group.ranked]
        if not winners:
            raise DataError(f"{run.path}: no variant is ranked", f"name one: {', '.join(names)}")
        variant, *rest = winners
        others = tuple(rest)
    jobs = [name for name in names if name == variant or name.startswith(f"{variant}/")]
    if not jobs:
        raise DataError(
            f"{run.path}: there is no variant {variant!r}", names_hint(variant, names, "variants")
        )
    ends_ps = {name: run.steps.filter(pl.col("variant") == name)["end_ps"].max() or 0 for name in jobs}
    name = max(jobs, key=lambda job: (ends_ps[job], job))
    for group in (*groups, *groups_in(run.summary)):
        if any(member["name"] in (name, name.partition("/")[0]) for member in group.members):
            return name, group.question, others
    raise DataError(f"{run.path}: {name} is in no group", "run the scenario again")


def _try_all(
    trial: _Trial, bounds: Sequence[Mapping[str, Any]], parts: Sequence[TimePart], progress: Progress
) -> tuple[Timing, list[Tried]]:
    """The variant as it is, and every change that makes sense for its critical path."""
    shares: dict[str, float] = defaultdict(float)
    for part in parts:
        shares[part.cause] += part.share
    subject = trial.subject(bounds)
    changes: dict[str, tuple[Remedy, Patch]] = {}
    for remedy in REMEDIES:
        if sum(shares[cause] for cause in sorted(remedy.causes)) >= LEAST_SHARE:
            for patch in remedy.changes(subject):
                changes.setdefault(SEPARATOR.join(_sets(patch)), (remedy, patch))
    total = trial.steps * (1 + len(changes))
    before = trial.simulate({}, ProgressReporter(progress, "as it is", 0, total))
    tried = []
    for number, (remedy, patch) in enumerate(changes.values(), start=1):
        reporter = ProgressReporter(progress, remedy.name, number * trial.steps, total)
        tried.append(_try(trial, remedy, patch, before, reporter))
        alone = trial.of_job(patch)
        if tried[-1].time_us is None and alone != patch:  # other jobs may be unlike it
            again = _try(trial, remedy, alone, before, reporter)
            tried[-1] = tried[-1] if again.time_us is None else again
    return before, tried


def _try(trial: _Trial, remedy: Remedy, patch: Patch, before: Timing, reporter: ProgressReporter) -> Tried:
    text = SEPARATOR.join(_sets(patch))
    try:
        after = trial.simulate(patch, reporter)
    except NetfoldError as error:
        return Tried(remedy.name, text, remedy.price, None, None, None, _first_line(error))
    price = Price.SUMS if after.has_other_sums(before) else remedy.price
    gain = 1 - after.time_us / before.time_us if before.time_us else 0.0
    return Tried(remedy.name, text, price, after.time_us, gain, after.nmse)


def _first_line(error: NetfoldError) -> str:
    first = error.mistakes[0] if isinstance(error, MistakesError) else error
    return first.message.partition("\n")[0]
