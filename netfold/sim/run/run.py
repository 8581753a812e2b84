"""From a scenario file to a run folder: every variant is simulated, checked and recorded."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from pydantic import BaseModel

from netfold.errors import DataError, InvariantError, NetfoldError, RunError, names_hint
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.message import Merge
from netfold.sim.capture.recording_files import NAME as LAYOUT
from netfold.sim.capture.recording_files import read_trace
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Flow, Job, Segment
from netfold.sim.engine.loop import run_until
from netfold.sim.files import UnreadableError, one_run, open_regular, require_writable
from netfold.sim.network.fabric import Sampler
from netfold.sim.plan.host_profiles import HostsSection
from netfold.sim.plan.plan import VariantPlan, frame_of
from netfold.sim.report.answer import with_ranking
from netfold.sim.results.folder import RunData, Unfinished, write_run
from netfold.sim.results.summary import ONLY_CODECS
from netfold.sim.run.checkpoint import Checkpoints, Keeper
from netfold.sim.run.checkpoint_store import CheckpointStore, Identity
from netfold.sim.run.context import Progress, ProgressReporter
from netfold.sim.run.encoding_costs import WarmUps
from netfold.sim.run.variant import (
    Outcome,
    VariantResult,
    engine_of,
    records_of,
    run_variant,
    summary_of,
    workload_keys,
)
from netfold.sim.scenario import variant_keys
from netfold.sim.scenario.limits import Plan
from netfold.sim.scenario.load import Scenario, load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.scenario.yaml_tree import COMMAND_LINE, ScenarioText
from netfold.sim.workload import FileSpec, SyntheticSpec, TrainingSpec
from netfold.sim.workload.recording import ChakraTrace, Trace
from netfold.sim.workload.workload_keys import GradientFile, Synthetic, Training, Workloads
from netfold.switch.programs import names_of
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star
from netfold.topologies.network import compile_network
from netfold.units import PS_PER_S, TIME

# Files that a scenario names, read once before a run: their digests, and copies that make it repeatable.


KEPT_BYTES_MAX = 16 << 20
"""The most bytes of a gradient file or recording that is kept; of larger ones only digests are recorded."""
_BLOCK_BYTES = 1 << 22

_State = tuple[int, ...]  # differs when a file was written or replaced


@dataclass(frozen=True)
class NamedFiles:
    """The files that a plan names, as they were before its first variant."""

    kept: Mapping[str, bytes]
    """Contents for the run folder, by their path in it."""
    inputs: list[dict[str, Any]]
    """Path, whether it is kept, size and SHA-256 of every file, for the summary."""
    states: Mapping[Path, _State]
    """States of gradient and model files, which are read while the variants run."""

    def require_unchanged(self) -> None:
        """Require that no gradient or model file was changed. A missing file fails later, when it is opened.

        Raises
        ------
        DataError
            A file is no longer the one whose digest is recorded.
        """
        for path, state in self.states.items():
            try:
                found = _state(path.stat())
            except OSError:
                continue
            if found != state:
                raise DataError(
                    f"{path}: was changed while the run was using it",
                    "run again, and do not change the file until the run ends",
                )


def read_named(plan: Plan) -> NamedFiles:
    """Read all files that the scenario of a plan names, including those of variants that are not run.

    A file is kept if it is beside or below the scenario and its name is free in a run folder: not hidden, and
    not the name of a file that every run folder has.

    Raises
    ------
    DataError
        A file cannot be read.
    """
    from netfold.sim.results.folder import is_free_name  # late: it imports polars

    folder = Path(plan.scenario.file).parent
    gradients, models = _gradient_paths(plan.scenario), _model_paths(plan.scenario)
    kept: dict[str, bytes] = {}
    inputs: list[dict[str, Any]] = []
    states: dict[Path, _State] = {}
    recorded = _recorded_paths(plan.scenario)
    gradients |= recorded.keys()
    for given in sorted(input_paths(plan.scenario) | _profile_paths(plan.scenario, folder)):
        path, is_gradient = folder / given, given in gradients
        is_kept, digest, size_bytes = is_free_name(given), hashlib.sha256(), 0
        try:
            with open_regular(path) as file:
                state = os.fstat(file.fileno())
                together = recorded.get(given, state.st_size)
                is_kept = is_kept and (not is_gradient or together <= KEPT_BYTES_MAX)
                blocks = []
                while block := file.read(_BLOCK_BYTES):
                    digest.update(block)
                    size_bytes += len(block)
                    blocks += [block] if is_kept else []
        except (UnreadableError, OSError) as error:
            why = error.message if isinstance(error, UnreadableError) else error.strerror or str(error)
            raise DataError(f"{path}: cannot be read: {why}", "put the file back, and run again") from None
        if is_kept:
            kept[given] = b"".join(blocks)
        if is_gradient or given in models:
            states[path] = _state(state)
        inputs.append({"path": given, "kept": is_kept, "bytes": size_bytes, "sha256": digest.hexdigest()})
    return NamedFiles(kept, inputs, states)


def input_paths(scenario: Scenario) -> set[str]:
    """The files that the variants of a scenario name, but profiles, which are part of it."""
    named = (_gradient_paths, _layer_paths, _model_paths, _device_paths, _graph_paths, _recorded_paths)
    return set().union(*(paths(scenario) for paths in named))


def _state(found: os.stat_result) -> _State:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _plain(path: str) -> str:
    # Without "." and doubled slashes, as run folders have it.
    return PurePosixPath(path).as_posix()


def _gradient_paths(scenario: Scenario) -> set[str]:
    sections = [job.workload for one in scenario.variants for job in one.jobs or (one,)]
    return {_plain(one.path) for one in sections if isinstance(one, GradientFile | ChakraTrace)}


def _recorded_paths(scenario: Scenario) -> dict[str, int]:
    """The files of the recorded folders that variants name, each with the bytes of its whole folder."""
    folder = Path(scenario.file).parent
    sections = [job.workload for one in scenario.variants for job in one.jobs or (one,)]
    found: dict[str, int] = {}
    for given in {_plain(one.path) for one in sections if isinstance(one, Trace)}:
        files = [LAYOUT, *(one.file for step in read_trace(folder / given).steps for one in step.ranks)]
        size_bytes = sum((folder / given / name).stat().st_size for name in files)
        found |= {f"{given}/{name}": size_bytes for name in files}
    return found


def _layer_paths(scenario: Scenario) -> set[str]:
    sections = [job.workload for one in scenario.variants for job in one.jobs or (one,)]
    profiles = [one.profile for one in sections if isinstance(one, Synthetic)]
    return {_plain(one) for one in profiles if one is not None}


def _model_paths(scenario: Scenario) -> set[str]:
    folder = Path(scenario.file).parent
    sections = [job.workload for one in scenario.variants for job in one.jobs or (one,)]
    models = [one.model for one in sections if isinstance(one, Training)]
    return {_plain(path) for model in models for path in model.files(folder)}


def _device_paths(scenario: Scenario) -> set[str]:
    sections = [job.device for one in scenario.variants for job in one.jobs or (one,)]
    return {_plain(path) for one in sections for path in one.files}


def _graph_paths(scenario: Scenario) -> set[str]:
    sections = [one.topology for one in scenario.variants]
    return {_plain(one.file) for one in sections if one.file is not None}


def _profile_paths(scenario: Scenario, folder: Path) -> set[str]:
    """Profile files, by the nodes of their profiles; relative to the scenario's folder if they are in it."""
    listed = scenario.document.children.get("profiles")
    items = listed.value if listed is not None and isinstance(listed.value, tuple) else ()
    files = [Path(item.file) for item in items if item.file not in (scenario.file, COMMAND_LINE)]
    return {(one.relative_to(folder) if one.is_relative_to(folder) else one).as_posix() for one in files}


# The settings of every variant, or of each of its jobs, as plain data with a scenario's keys.


# Shown even with their default value, as readers look for them first.
_TOPOLOGY = ("hosts", "rate", "delay", "switch")
_WORKLOAD = ("model", "elements", "density", "steps")


def with_setups(summary: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """A run's summary with the scenario's description and baseline, and with `chosen`.

    Every variant gets its `setup` and its `ranking`. `chosen` are the variants that `--variant` named, none
    where all were to run.

    A `setup` holds the sections `topology`, `workers`, `workload`, `device`, `hosts` and `overlap` (if they
    are not the default), `codec`, `collective` and `faults` (a list), each with what differs from its default
    and a few keys that are always shown; `timeout` and `switch` of the collective are those of the resolved
    scenario.
    """
    found = setups(plan)
    variants = [
        _with_compute(entry | {"setup": _as_run(found[entry["name"]], entry.get("stay"))})
        for entry in summary["variants"]
    ]
    chosen = [variant.name for variant in plan.variants]
    baseline = plan.scenario.baseline
    shown = {
        "description": plan.scenario.description,
        "baseline": baseline,
        "variants": with_ranking(variants, baseline),
    }
    return {**summary, **shown, "chosen": chosen if len(chosen) < len(plan.scenario.variants) else []}


def _with_compute(entry: dict[str, Any]) -> dict[str, Any]:
    """A variant, which says what its device does where that computes no model."""
    has_device = entry["setup"]["device"] != _section(variant_keys.JobSections.model_fields["device"].default)
    return entry | {"compute": ONLY_CODECS} if "compute" in entry and has_device else entry


def _as_run(setup: dict[str, Any], stay: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings of a job, with its fallback for a collective if it had that, and without it if not."""
    fallback = setup.pop("fallback", None)
    return setup | {"collective": fallback} if stay is not None and stay["fallback"] else setup


def setups(plan: Plan) -> dict[str, dict[str, Any]]:
    """Settings by label of the job."""
    written = {variant.name: variant for variant in plan.scenario.variants}
    return {
        job.label: _setup(written[variant.name], variant, index)
        for variant in plan.variants
        for index, job in enumerate(variant.jobs)
    }


def _setup(written: variant_keys.Variant, variant: VariantPlan, index: int) -> dict[str, Any]:
    sections: variant_keys.JobSections = written.jobs[variant.sections[index]] if written.jobs else written
    job, collective = variant.jobs[index], sections.collective
    start = {"start": TIME.format(job.start_ps)} if job.start_ps else {}
    overlap = _section(sections.overlap)
    hosts = {} if sections.hosts == HostsSection() else {"hosts": _section(sections.hosts)}
    other = sections.fallback if isinstance(sections, variant_keys.JobSection) else None
    return {
        **({} if other is None else {"fallback": _section(other, other.recorded_always)}),
        "topology": _section(written.topology, _TOPOLOGY),
        "workers": {**_section(sections.workers), **start},
        **hosts,
        "workload": {**_section(sections.workload, _WORKLOAD), **_data(job.workload)},
        "device": _section(sections.device),
        **({"overlap": overlap} if overlap else {}),
        "codec": _codec(job.codec),
        "collective": {**_section(collective, collective.recorded_always), **job.collective.settled},
        "faults": [_section(fault) for fault in written.faults],
    }


def _data(workload: TrainingSpec | SyntheticSpec | FileSpec) -> dict[str, str]:
    """What the data of a trained model take the place of, if they do."""
    stands_in_for = workload.stands_in_for if isinstance(workload, TrainingSpec) else ""
    return {"stands_in_for": stands_in_for} if stands_in_for else {}


def _section(section: BaseModel, recorded_always: Sequence[str] = ()) -> dict[str, Any]:
    """The settings of a section that differ from its defaults, `kind` first; a section in it is whole."""
    whole = section.model_dump(mode="json", by_alias=True)
    differs = section.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    said = {key: _given(whole[key]) if isinstance(value, dict) else value for key, value in differs.items()}
    always = {key: whole[key] for key in recorded_always if whole.get(key) is not None}
    kind = {"kind": whole["kind"]} if "kind" in whole else {}
    return {**kind, **always, **said}


def _given(value: Any) -> Any:
    """A value, a mapping without the keys that it leaves open."""
    if not isinstance(value, dict):
        return value
    return {key: _given(one) for key, one in value.items() if one is not None}


def _codec(codec: Codec) -> dict[str, Any]:
    """A codec's kind and its options beyond the defaults, including those that the network decided."""
    known: tuple[Field[Any], ...] = fields(codec) if is_dataclass(codec) else ()
    defaults: dict[str, Any] = {one.name: None if one.default is MISSING else one.default for one in known}
    values = {name: getattr(codec, name) for name in defaults}
    options = {
        name: value
        for name, value in values.items()
        if value != defaults[name] and isinstance(value, str | int | float)
    }
    return {"kind": codec.kind, **options}


# Compile the engine's kernels before a run, if they are not on disk yet.


COMPILING = "compiling kernels (once, about a minute)"
_LOOP = "loop.run_until-*.nbi"  # the index of the event loop's compiled code


def is_cold() -> bool:
    # Numba names compiled code by the path of its source, in a folder that is named by a hash of all sources.
    loop: Any = run_until
    folder = loop.stats.cache_path
    return not folder or not any(Path(folder).glob(_LOOP))


def compile_engine() -> None:
    """Compile the packet engine by a run of two workers that send a few words; takes about a minute."""
    engine = Engine(compile_network(star(2, LinkSpec(10**11, 10**6, 1 << 20))), 0)
    frame, timeouts = frame_of("roce-1024"), (PS_PER_S, PS_PER_S, PS_PER_S)
    words = np.zeros(frame.elements, np.int32)
    engine.add_job(Job((0, 1), 2, 0, 1, 1, frame, *timeouts, routes=(0, 0)))
    for worker in range(2):
        engine.open_stream(0, worker, [Segment(words, words.copy(), Merge.ADD)])
    engine.open_flow(Flow(0, 1, words.size, words, words.copy(), frame, 2, PS_PER_S, 1, 0, 0))
    sampler = Sampler(engine, 1)
    sampler.add_job(0)
    sampler.open()
    done = 0
    while done < 3:
        done += len(engine.run(PS_PER_S))
    sampler.close()


__all__ = ["APPROXIMATIONS", "COMPILING", "Progress", "run_scenario", "run_variant", "summary_of_scenario"]

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


def run_scenario(
    path: str | Path | ScenarioText,
    sets: tuple[str, ...],
    seed: int | None,
    out_dir: Path,
    progress: Progress,
    variants: Sequence[str] = (),
    checkpoints: Checkpoints | None = None,
) -> Outcome:
    # If anything ends the run after the first variant (no memory, Ctrl-C, a full disk, a bug), the outcome
    # has the finished variants and, as `stopped`, the reason; their folder then has "unfinished" in its name.
    # What ends it earlier is raised. A stall, or a gradient that a codec cannot encode, ends only its variant
    # (`sim.checks`). Threads take turns, a whole run each.
    with one_run():
        return _run(load(path, sets, seed), sets, out_dir, progress, variants, checkpoints)


def _run(
    scenario: Scenario,
    sets: tuple[str, ...],
    out_dir: Path,
    progress: Progress,
    variants: Sequence[str],
    checkpoints: Checkpoints | None,
) -> Outcome:
    if scenario.sweep is not None:
        raise scenario.sweep.node.error(
            f"this scenario is a sweep of {scenario.sweep.size} points",
            "run it with `netfold sweep`; --set sweep=null runs the scenario without its sweep",
        )
    run = _Run(_chosen(resolve(scenario), variants), sets, out_dir)
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


def _chosen(plan: Plan, names: Sequence[str]) -> Plan:
    """A plan of only the named variants, in the scenario's order; of all where none is named."""
    known = [variant.name for variant in plan.variants]
    for name in names:
        if name not in known:
            raise NetfoldError(
                f"{plan.scenario.file}: there is no variant {name!r}", names_hint(name, known, "variants")
            )
    if not names:
        return plan
    return replace(plan, variants=tuple(one for one in plan.variants if one.name in names))


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
            "the variants": json.dumps([one.name for one in self.plan.variants]),
            "the files that it names": json.dumps(self._files.inputs, sort_keys=True),
        }
        store = CheckpointStore(self._out_dir, Identity(scenario.name, scenario.seed, parts))
        self._keeper = checkpoints.keeper(store)
        if name := self._keeper.unfinished:
            self._unfinished.take_over(scenario.name, name)

    def simulate(self, progress: Progress) -> None:
        """Run all variants, one after the other; each is written when it ends."""
        for result in _simulated(self.plan, progress, self._keeper):
            self._files.require_unchanged()
            self.results.append(result)
            if len(self.results) < len(self.plan.variants):
                self._unfinished.write(self._data(), len(self.results), len(self.plan.variants))
                if self._keeper is not None and self._unfinished.path is not None:
                    self._keeper.note_unfinished(self._unfinished.path.name)

    def finish(self, progress: Progress) -> Outcome:
        """Write the run folder."""
        total = sum(variant.steps for variant in self.plan.variants)
        progress("writing the results", total, total)
        data = self._data()
        run_dir = write_run(self._out_dir, data)
        self._unfinished.remove()
        if self._keeper is not None:
            self._keeper.finish()
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
            summary=summary,
            engine=engine_of(self.results),
            sets=self._sets,
            extra_files=self._files.kept,
        )


def _simulated(plan: Plan, progress: Progress, keeper: Keeper | None = None) -> Iterator[VariantResult]:
    """The result of every variant, one after the other."""
    variants, done = plan.variants, 0
    total = sum(variant.steps for variant in variants)
    if is_cold():
        progress(COMPILING, 0, total)
        compile_engine()
    workloads = Workloads([workload_keys(variant) for variant in variants], plan.scenario.seed)
    warm_ups = WarmUps(plan)
    for number, variant in enumerate(variants):
        workloads.begin_variant()
        reporter = ProgressReporter(progress, variant.name, done, total)
        result = None if keeper is None else keeper.result(number, VariantResult)
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
        return with_setups(summary_of(list(_simulated(plan, lambda *_: None))), plan)
