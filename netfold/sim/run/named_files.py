"""What a run records of its scenario: the files that it names, and the settings of every variant."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from netfold.errors import DataError
from netfold.homomorphic.codec import Codec
from netfold.sim.capture.recording_files import NAME as LAYOUT
from netfold.sim.capture.recording_files import read_trace
from netfold.sim.files import UnreadableError, open_regular
from netfold.sim.keys import AnySection, written
from netfold.sim.plan.host_profiles import HostProfile
from netfold.sim.plan.plan import VariantPlan
from netfold.sim.results.repeats import first_name, with_means
from netfold.sim.results.summary import ONLY_CODECS
from netfold.sim.scenario import variant_keys
from netfold.sim.scenario.load import Scenario
from netfold.sim.scenario.run_limits import Plan
from netfold.sim.scenario.sweep_keys import axes_of
from netfold.sim.scenario.yaml_tree import COMMAND_LINE
from netfold.sim.workload.gradient_files import GradientFile
from netfold.sim.workload.recording import Trace
from netfold.sim.workload.synthetic import Synthetic
from netfold.sim.workload.workload import GradientSource
from netfold.sim.workload.workload_keys import ChakraTrace, Training
from netfold.units import TIME

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
                new_state = _state(path.stat())
            except OSError:
                continue
            if new_state != state:
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
    contents: dict[str, bytes] = {}
    inputs: list[dict[str, Any]] = []
    states: dict[Path, _State] = {}
    recorded = _recorded_paths(plan.scenario)
    gradients |= recorded.keys()
    for path_text in sorted(input_paths(plan.scenario) | _profile_paths(plan.scenario, folder)):
        path, is_gradient = folder / path_text, path_text in gradients
        is_kept, digest, size_bytes = is_free_name(path_text), hashlib.sha256(), 0
        try:
            with open_regular(path) as file:
                state = os.fstat(file.fileno())
                together = recorded.get(path_text, state.st_size)
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
            contents[path_text] = b"".join(blocks)
        if is_gradient or path_text in models:
            states[path] = _state(state)
        inputs.append({"path": path_text, "kept": is_kept, "bytes": size_bytes, "sha256": digest.hexdigest()})
    return NamedFiles(contents, inputs, states)


def input_paths(scenario: Scenario) -> set[str]:
    """The files that the variants of a scenario name, but profiles, which are part of it."""
    path_finders = (_gradient_paths, _layer_paths, _model_paths, _device_paths, _graph_paths, _recorded_paths)
    return set().union(*(paths(scenario) for paths in path_finders))


def _state(status: os.stat_result) -> _State:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _plain(path: str) -> str:
    # Without "." and doubled slashes, as run folders have it.
    return PurePosixPath(path).as_posix()


def _gradient_paths(scenario: Scenario) -> set[str]:
    sections = [job.workload for variant in scenario.variants for job in variant.jobs or (variant,)]
    return {_plain(section.path) for section in sections if isinstance(section, GradientFile | ChakraTrace)}


def _recorded_paths(scenario: Scenario) -> dict[str, int]:
    """The files of the recorded folders that variants name, each with the bytes of its whole folder."""
    folder = Path(scenario.file).parent
    sections = [job.workload for variant in scenario.variants for job in variant.jobs or (variant,)]
    sizes_bytes: dict[str, int] = {}
    for trace in {_plain(section.path) for section in sections if isinstance(section, Trace)}:
        files = [LAYOUT, *(rank.file for step in read_trace(folder / trace).steps for rank in step.ranks)]
        size_bytes = sum((folder / trace / name).stat().st_size for name in files)
        sizes_bytes |= {f"{trace}/{name}": size_bytes for name in files}
    return sizes_bytes


def _layer_paths(scenario: Scenario) -> set[str]:
    sections = [job.workload for variant in scenario.variants for job in variant.jobs or (variant,)]
    profiles = [section.profile for section in sections if isinstance(section, Synthetic)]
    return {_plain(profile) for profile in profiles if profile is not None}


def _model_paths(scenario: Scenario) -> set[str]:
    folder = Path(scenario.file).parent
    sections = [job.workload for variant in scenario.variants for job in variant.jobs or (variant,)]
    models = [section.model for section in sections if isinstance(section, Training)]
    return {_plain(path) for model in models for path in model.files(folder)}


def _device_paths(scenario: Scenario) -> set[str]:
    sections = [job.device for variant in scenario.variants for job in variant.jobs or (variant,)]
    return {_plain(path) for section in sections for path in section.files}


def _graph_paths(scenario: Scenario) -> set[str]:
    sections = [variant.topology for variant in scenario.variants]
    return {_plain(section.file) for section in sections if section.file is not None}


def _profile_paths(scenario: Scenario, folder: Path) -> set[str]:
    """Files of profiles and prices, by their nodes; relative to the scenario's folder if they are in it."""
    listed = scenario.document.children.get("profiles")
    items = listed.value if listed is not None and isinstance(listed.value, tuple) else ()
    if (price_node := scenario.document.children.get("prices")) is not None:
        items = (*items, price_node)
    files = [Path(item.file) for item in items if item.file not in (scenario.file, COMMAND_LINE)]
    return {(path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix() for path in files}


# The settings of every variant, or of each of its jobs, as plain data with a scenario's keys.


# Shown even with their default value, as readers look for them first.
_TOPOLOGY = ("hosts", "rate", "delay", "switch")
_WORKLOAD = ("model", "elements", "density", "steps")


def with_setups(summary: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """A run's summary with the scenario's description, baseline and question, its answer, and `chosen`.

    Every variant gets its `setup`, its `ranking`, and in a grid its `axes`. `chosen` are the variants that
    `--variant` named, none where all were to run. Repeats with further seeds are joined.

    A `setup` holds the sections `topology`, `workers`, `workload`, `device`, `hosts` and `overlap` (if they
    are not the default), `codec`, `collective` and `faults` (a list), each with what differs from its default
    and a few keys that are always shown; `timeout` and `switch` of the collective are those of the resolved
    scenario.
    """
    from netfold.sim.report.answer import with_answer  # late: validating a sweep need not read it

    settings = setups(plan)
    axes = axes_of(plan.scenario.document)
    variants = [
        _with_compute(entry | {"setup": _as_run(settings[entry["name"]], entry.get("stay"))})
        | ({"axes": axes[name]} if (name := first_name(entry["name"]).partition("/")[0]) in axes else {})
        for entry in summary["variants"]
    ]
    names = {first_name(variant.name) for variant in plan.variants}
    chosen = [variant.name for variant in plan.scenario.variants if variant.name in names]
    shown = {
        "description": plan.scenario.description,
        "baseline": plan.scenario.baseline,
        "question": plan.scenario.question,
        "variants": variants,
        "chosen": chosen if len(chosen) < len(plan.scenario.variants) else [],
    }
    whole, scenario = {**summary, **shown}, plan.scenario
    return with_answer(whole if scenario.seeds == 1 else with_means(whole, scenario.each_seed()))


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
        job.label: _setup(written[first_name(variant.name)], variant, index)
        for variant in plan.variants
        for index, job in enumerate(variant.jobs)
    }


def _setup(written: variant_keys.Variant, variant: VariantPlan, index: int) -> dict[str, Any]:
    sections: variant_keys.JobSections = written.jobs[variant.sections[index]] if written.jobs else written
    job, collective = variant.jobs[index], sections.collective
    start = {"start": TIME.format(job.start_ps)} if job.start_ps else {}
    overlap = _section(sections.overlap)
    hosts = {} if sections.hosts == HostProfile() else {"hosts": _section(sections.hosts)}
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


def _data(workload: GradientSource) -> dict[str, str]:
    """What the data of a trained model take the place of, if they do."""
    stands_in_for = workload.stands_in_for if isinstance(workload, Training) else ""
    return {"stands_in_for": stands_in_for} if stands_in_for else {}


def _section(section: AnySection, recorded_always: Sequence[str] = ()) -> dict[str, Any]:
    """The settings of a section that differ from its defaults, `kind` first; a section in it is whole."""
    whole, differs = written(section), written(section, exclude_defaults=True)
    diff = {key: _given(whole[key]) if isinstance(value, dict) else value for key, value in differs.items()}
    always = {key: whole[key] for key in recorded_always if whole.get(key) is not None}
    kind = {"kind": whole["kind"]} if "kind" in whole else {}
    return {**kind, **always, **diff}


def _given(value: Any) -> Any:
    """A value, a mapping without the keys that it leaves open."""
    if not isinstance(value, dict):
        return value
    return {key: _given(setting) for key, setting in value.items() if setting is not None}


def _codec(codec: Codec) -> dict[str, Any]:
    """A codec's kind and its options beyond the defaults, including those that the network decided."""
    known: tuple[Field[Any], ...] = fields(codec) if is_dataclass(codec) else ()
    defaults: dict[str, Any] = {
        field.name: None if field.default is MISSING else field.default for field in known
    }
    values = {name: getattr(codec, name) for name in defaults}
    options = {
        name: value
        for name, value in values.items()
        if value != defaults[name] and isinstance(value, str | int | float)
    }
    return {"kind": codec.kind, **options}
