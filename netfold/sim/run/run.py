"""From a scenario file to a run folder: every variant is simulated, checked and recorded."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from netfold.errors import InvariantError, NetfoldError, RunError, names_hint
from netfold.sim.files import one_run, require_writable
from netfold.sim.results.folder import RunData, Unfinished, write_run
from netfold.sim.results.repeats import first_name
from netfold.sim.run.checkpoint import Checkpoints, CheckpointStore, Identity, Keeper
from netfold.sim.run.compiling import compiling
from netfold.sim.run.encoding_costs import WarmUps
from netfold.sim.run.named_files import read_named, with_setups
from netfold.sim.run.progress import Progress, ProgressReporter
from netfold.sim.run.variant import (
    Outcome,
    VariantResult,
    engine_of,
    records_of,
    run_variant,
    summary_of,
    workload_keys,
)
from netfold.sim.scenario.load import Scenario, load
from netfold.sim.scenario.resolve import Networks, resolve
from netfold.sim.scenario.run_limits import Plan
from netfold.sim.scenario.yaml_tree import ScenarioText
from netfold.sim.workload.workload_keys import Workloads
from netfold.switch.program import names_of

__all__ = ["APPROXIMATIONS", "Progress", "run_scenario", "run_variant", "summary_of_scenario"]

APPROXIMATIONS = (
    "Hosts take no time per packet. Unless `overlap` says otherwise, a worker has one bucket in flight, and "
    "encodes it beside its device.",
    "Queues are FIFO and drop-tail; only acknowledgements have priority. No pause frames; only ATP uses ECN.",
    f"Networks that lose nothing (program {', '.join(names_of(lambda spec: spec.needs_lossless))}) have "
    "unlimited buffers: credits are not modelled.",
    "A switch's extra passes are one loopback port with its rate and delay; results are copied per receiver.",
    "A bucket is ready when its last tensor is: by the kernels of a roofline device, by a recording, a "
    "measurement or a profile; else backward is assumed to produce gradient bytes at an even rate.",
    "Compute time comes from the device model; encoding and decoding are charged the work that codecs count.",
    "Retransmission timers expire exactly, those of copies up to a quarter later; real clients poll them. "
    "With `timeout: auto` nothing is sent again while nothing was lost, however late a worker is.",
)


HOSTS_TAKE_TIME = (
    "Hosts take time per packet where `hosts` says so: sending and receiving do not share cores, and what "
    "waits in a host has no limit. Unless `overlap` says otherwise, a worker has one bucket in flight, and "
    "encodes it beside its device."
)


def approximations_of(plan: Plan) -> tuple[str, ...]:
    """What was not modelled of a plan's variants."""
    takes_time = any(variant.network.inside is not None for variant in plan.variants)
    return (HOSTS_TAKE_TIME, *APPROXIMATIONS[1:]) if takes_time else APPROXIMATIONS


def not_modelled(outcome: Outcome, is_verbose: bool) -> list[str]:
    """Lines on what was not modelled: all, or how much, and what can change the answer."""
    approximations = outcome.approximations or APPROXIMATIONS
    if is_verbose:
        return ["Not modelled:", *(f"  {text}" for text in approximations)]
    favoured = [] if approximations[0] == HOSTS_TAKE_TIME else _favoured(outcome.summary)
    if not favoured:
        return [f"Not modelled: {len(approximations)} simplifications; -v lists them"]
    return [
        "Not modelled, though it can change the answer: hosts take no time per packet (the key `hosts` gives "
        f"them one), and {' and '.join(favoured)}; -v lists all {len(approximations)} simplifications"
    ]


def _favoured(summary: Mapping[str, Any]) -> list[str]:
    """Winners that send more than the next: time per packet would cost them more."""
    sent = {entry["name"]: entry["metrics"]["wire_bytes_up_per_worker"] for entry in summary["variants"]}
    texts = []
    for answer in summary.get("answer", ()):
        pairs = [(first, other) for first in answer["winners"][:1] for other in answer["next"][:1]]
        for first, other in pairs:
            if (sent.get(first) or 0) > (sent.get(other) or math.inf):
                texts.append(f"{first} sends more than {other}")
    return texts


def run_scenario(
    path: str | Path | ScenarioText | Scenario,
    sets: tuple[str, ...],
    seed: int | None,
    out_dir: Path,
    progress: Progress,
    variants: Sequence[str] = (),
    checkpoints: Checkpoints | None = None,
) -> Outcome:
    # A scenario that is read already has its changes: `sets` are then only recorded.
    # If anything ends the run after the first variant (no memory, Ctrl-C, a full disk, a bug), the outcome
    # has the finished variants and, as `stopped`, the reason; their folder then has "unfinished" in its name.
    # What ends it earlier is raised. A stall, or a gradient that a codec cannot encode, ends only its variant
    # (`sim.checks`). Threads take turns, a whole run each.
    with one_run():
        scenario = path if isinstance(path, Scenario) else load(path, sets, seed)
        if scenario.sweep is not None:
            raise scenario.sweep.node.error(
                f"this scenario is a sweep of {scenario.sweep.size} points",
                "run it with `netfold sweep`; --set sweep=null runs the scenario without its sweep",
            )
        if seed is not None and not isinstance(scenario.seeds, int):
            raise scenario.error("seeds", "lists the seeds, so --seed changes nothing", "use --set seeds=[…]")
        run = _Run(_plan(scenario, variants), sets, out_dir)
        require_writable(out_dir, run.plan.scenario.name)
        if checkpoints is not None:
            run.keep(checkpoints)
        try:
            run.simulate(progress)
            return run.finish(progress)
        except BaseException as error:
            if not run.results:
                raise
            return run.stopped(error)


def _plan(scenario: Scenario, names: Sequence[str]) -> Plan:
    """A plan of the named variants, or of all, and then of their repeats with further seeds."""
    first_seed, *other_seeds = scenario.each_seed()
    if first_seed != scenario.seed:
        scenario = scenario.point((), first_seed)
    networks = Networks()
    plan = _choose(resolve(scenario, networks), names)
    repeats = [
        variant
        for seed in other_seeds
        for variant in resolve(scenario.repeat(seed), networks).variants
        if not names or first_name(variant.name) in names
    ]
    return replace(plan, variants=(*plan.variants, *repeats))


def _choose(plan: Plan, names: Sequence[str]) -> Plan:
    """A plan of only the named variants, in the scenario's order; of all where none is named."""
    variant_names = [variant.name for variant in plan.variants]
    for name in names:
        if name not in variant_names:
            raise NetfoldError(
                f"{plan.scenario.file}: there is no variant {name!r}",
                names_hint(name, variant_names, "variants"),
            )
    if not names:
        return plan
    return replace(plan, variants=tuple(variant for variant in plan.variants if variant.name in names))


_WRITTEN_MIN = 1 / 16
"""The share of the finished variants that are new when all are written again: of many that takes long."""


class _Run:
    """The finished variants, and the folder that they are written to."""

    def __init__(self, plan: Plan, sets: tuple[str, ...], out_dir: Path) -> None:
        self.plan, self.results = plan, list[VariantResult]()
        self._sets, self._out_dir = sets, out_dir
        self._started_at, self._started = datetime.now(UTC), time.perf_counter()
        self._unfinished = Unfinished(out_dir)
        self._files = read_named(plan)
        self._keeper: Keeper | None = None

    def keep(self, checkpoints: Checkpoints) -> None:
        """Take checkpoints, and go on from those that are there if that is wanted."""
        scenario = self.plan.scenario
        parts = {
            "the scenario file": hashlib.sha256(scenario.source_text).hexdigest(),
            "--set": json.dumps(list(self._sets)),
            "the variants": json.dumps([variant.name for variant in self.plan.variants]),
            "the files that it names": json.dumps(self._files.inputs, sort_keys=True),
        }
        store = CheckpointStore(self._out_dir, Identity(scenario.name, scenario.seed, parts))
        self._keeper = Keeper(store, checkpoints)
        if name := self._keeper.store.unfinished:
            self._unfinished.take_over(scenario.name, name)

    def simulate(self, progress: Progress) -> None:
        """Run all variants, one after the other, and write those that have ended."""
        jobs = [job for variant in self.plan.variants for job in variant.jobs]
        with compiling(progress, jobs):
            for result in _simulate(self.plan, progress, self._keeper):
                self._files.require_unchanged()
                self.results.append(result)
                done = len(self.results)
                is_due = done - self._unfinished.variants_count >= _WRITTEN_MIN * done
                if is_due and done < len(self.plan.variants):
                    self._unfinished.write(self._data(), done, len(self.plan.variants))
                    if self._keeper is not None and self._unfinished.path is not None:
                        self._keeper.store.note_unfinished(self._unfinished.path.name)

    def finish(self, progress: Progress) -> Outcome:
        """Write the run folder."""
        total = sum(variant.steps for variant in self.plan.variants)
        progress("writing the results", total, total)
        data = self._data()
        run_dir = write_run(self._out_dir, data)
        self._unfinished.remove()
        if self._keeper is not None:
            self._keeper.store.remove()
        return self._outcome(data, run_dir, None)

    def stopped(self, error: BaseException) -> Outcome:
        """The outcome of a run that `error` ended: the finished variants, and where they are."""
        if isinstance(error, MemoryError):
            error = RunError(f"not enough memory: {error}", "use fewer elements, samples or workers")
        data = self._data_of_valid()
        if self._unfinished.variants_count < len(self.results):
            with suppress(Exception):  # the previous folder stays; the results are printed
                self._unfinished.write(data, len(self.results), len(self.plan.variants))
        return self._outcome(data, self._unfinished.path, error)

    def _outcome(self, data: RunData, run_dir: Path | None, error: BaseException | None) -> Outcome:
        scenario = self.plan.scenario
        names = [variant.name for variant in self.plan.variants[: len(self.results)]]
        unwritten = tuple(names[self._unfinished.variants_count :]) if error is not None else ()
        return Outcome(
            scenario.name,
            scenario.seed,
            run_dir,
            dict(data.summary),
            dict(data.engine),
            error,
            unwritten,
            data.approximations,
        )

    def _data_of_valid(self) -> RunData:
        """The finished variants, without a last one whose summary breaks an invariant."""
        try:
            return self._data()
        except InvariantError:
            if len(self.results) == 1:
                raise
            self.results.pop()
            return self._data()

    def _data(self) -> RunData:
        scenario = self.plan.scenario
        unfinished = [variant.name for variant in self.plan.variants[len(self.results) :]]
        summary = with_setups(summary_of(self.results), self.plan)
        if self._files.inputs:
            summary["inputs"] = self._files.inputs
        if unfinished:
            summary["unfinished"] = unfinished
        return RunData(
            scenario_name=scenario.name,
            scenario_text=scenario.source_text,
            seed=scenario.seed,
            started_at=self._started_at,
            wall_s=time.perf_counter() - self._started,
            approximations=approximations_of(self.plan),
            records=records_of(self.results),
            kept={job.label: job.journal.arrays for result in self.results for job in result.jobs},
            summary=summary,
            engine=engine_of(self.results),
            sets=self._sets,
            extra_files=self._files.kept,
        )


def _simulate(plan: Plan, progress: Progress, keeper: Keeper | None = None) -> Iterator[VariantResult]:
    """The result of every variant, one after the other."""
    variants, done = plan.variants, 0
    total = sum(variant.steps for variant in variants)
    workloads = Workloads([workload_keys(variant) for variant in variants])
    warm_ups = WarmUps(plan)
    for number, variant in enumerate(variants):
        workloads.begin_variant()
        reporter = ProgressReporter(progress, variant.name, done, total)
        result = None if keeper is None else keeper.result(number)
        if result is None:
            if keeper is not None:
                keeper.begin_variant(number)
            result = run_variant(plan, variant, reporter, workloads, warm_ups, keeper)
            if keeper is not None:
                keeper.put_result(number, result)
        workloads.end_variant()
        yield result
        done += variant.steps


def summary_of_scenario(path: str | Path | ScenarioText) -> dict[str, Any]:
    # As `summary.json` has it; nothing is written.
    with one_run():
        plan = resolve(load(path))
        return with_setups(summary_of(list(_simulate(plan, lambda *_: None))), plan)
