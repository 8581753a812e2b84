"""Resolves the sections of a job that do not depend on others: workload and device."""

from __future__ import annotations

from pathlib import Path

from netfold.errors import DataError, shown
from netfold.homomorphic.codec import Codec
from netfold.sim.files.foreign import UnreadableError, read_text
from netfold.sim.keys.location import Location
from netfold.sim.plan.plan import Overlap
from netfold.sim.scenario import models
from netfold.sim.workload import FileSpec, SyntheticSpec, TrainingSpec
from netfold.sim.workload import workload_keys as sections
from netfold.sim.workload.device_model import Device, DeviceError, Place, Variation
from netfold.sim.workload.devices import DeviceSection
from netfold.sim.workload.fusion import FusionError
from netfold.sim.workload.layers import LayerProfile, elements_of, read_profile, read_tensors
from netfold.sim.workload.models.model import Model, TaskSettings
from netfold.sim.workload.recording import ChakraTrace, Trace
from netfold.sim.workload.workload import refusal_of_needs

PROFILE_BYTES_MAX = 2**22


def workload_of(
    section: sections.AnyWorkload, workers: int, location: Location
) -> TrainingSpec | SyntheticSpec | FileSpec:
    """The source of gradients.

    Raises
    ------
    ScenarioError
        A file of gradients cannot be used, or the rule of fusion does not fit the layers.
    """
    found = _spec_of(section, workers, location)
    try:
        found.fusion.outline.partition(found.layers)
    except FusionError as error:
        raise location.job_error(f"workload.fusion.{error.key}", error.message, error.hint) from None
    return found


def _spec_of(
    section: sections.AnyWorkload, workers: int, location: Location
) -> TrainingSpec | SyntheticSpec | FileSpec:
    if isinstance(section, sections.GradientFile | Trace | ChakraTrace):
        try:
            return _read_spec(section, workers, Path(location.scenario.file).parent / section.path)
        except DataError as error:
            raise location.job_error("workload.path", error.message, error.hint) from None
    fusion = section.fusion.rule()
    if isinstance(section, sections.Training):
        return TrainingSpec(
            _model_of(section, workers, location),
            section.batch,
            section.learning_rate,
            fusion,
            section.data,
            section.evaluate.every if section.evaluate else None,
            section.recipe(),
        )
    if section.profile is not None:
        profile = _profile_of(section.profile, section.shrink, location)
    else:
        profile = LayerProfile(read_tensors(section.tensors or ()), ())
    return SyntheticSpec(
        section.elements or elements_of(profile.tensors),
        section.density,
        section.pattern,
        section.row_elements,
        section.overlap,
        section.distribution,
        *profile,
        fusion,
    )


def _model_of(section: sections.Training, workers: int, location: Location) -> Model:
    """The model; a user's own is read and tried."""
    settings = TaskSettings(
        section.data or "", section.batch, workers, location.scenario.seed, section.evaluate is not None
    )
    try:
        return section.whole_model().located(Path(location.scenario.file).parent, settings)
    except DataError as error:
        raise location.job_error("workload.model", error.message, error.hint) from None


def _read_spec(
    section: sections.GradientFile | Trace | ChakraTrace, workers: int, path: Path
) -> SyntheticSpec | FileSpec:
    """The source of gradients that a file or a recording is."""
    if isinstance(section, ChakraTrace):
        from netfold.sim.workload.chakra import chakra_spec

        return chakra_spec(path, section)
    if isinstance(section, Trace):
        from netfold.sim.workload.recording import trace_spec

        fusion = section.fusion.rule() if section.fusion else None
        return trace_spec(path, section.path, workers, fusion, section.times == "recorded")
    from netfold.sim.workload.gradient_files import file_spec

    return file_spec(path, section.path, workers, section.per_step, section.fusion.rule())


def _profile_of(given: str, shrink: int, location: Location) -> LayerProfile:
    """The profile in a file, whose path is relative to the scenario."""
    hint = "give the path of a JSON file of layers, relative to the scenario file"
    try:
        text = read_text(Path(location.scenario.file).parent / given, PROFILE_BYTES_MAX)
    except UnreadableError as error:
        message = f"cannot read {shown(given)}: {error.message}"
        raise location.job_error("workload.profile", message, hint) from None
    try:
        return read_profile(text, shrink)
    except ValueError as error:
        message, _, hint = str(error).partition("\n")
        raise location.job_error("workload.profile", f"{given}: {message}", hint) from None


def summed_at_once(workload: TrainingSpec | SyntheticSpec | FileSpec) -> int:
    """Elements that one operation sums: those of a full bucket or of the whole gradient."""
    return workload.fusion.outline.full_elements(workload.layers)


def check_needs(
    codec: Codec, workload: TrainingSpec | SyntheticSpec | FileSpec, kind: str, location: Location
) -> None:
    """Refuse a codec that needs facts of a step that the workload, of this kind, does not know.

    Raises
    ------
    ScenarioError
        It does, with the facts and a workload that knows them.
    """
    if isinstance(workload, TrainingSpec) and (reason := workload.recipe.refusal(codec.kind, codec.needs)):
        raise location.job_error(f"workload.{reason.key}", reason.message, reason.hint)
    if refusal := refusal_of_needs(codec, workload.facts, f"a workload of the kind {kind}"):
        raise location.job_error("codec", *refusal)


def device_of(
    section: DeviceSection, workload: TrainingSpec | SyntheticSpec | FileSpec, location: Location
) -> Device:
    """How long compute takes.

    Raises
    ------
    ScenarioError
        A file of the device cannot be used, or the device does not fit the workload.
    """
    folder = Path(location.scenario.file).parent
    place = Place(folder, workload.tensors, isinstance(workload, TrainingSpec))
    try:
        return section.device(place)
    except DeviceError as error:
        raise location.job_error(f"device.{error.key}", error.message, error.hint) from None


def variation_of(section: DeviceSection, workers: int, location: Location) -> Variation:
    """How the devices of workers differ.

    Raises
    ------
    ScenarioError
        It names a worker that there is not.
    """
    found = section.variation
    if wrong := next((worker for worker, _ in found.slow if worker >= workers), None):
        raise location.job_error(
            "device.slow", f"there is no worker {wrong}", f"workers are numbered from 0 to {workers - 1}"
        )
    return found


def overlap_of(section: models.OverlapSection, device: Device, location: Location) -> Overlap:
    """What a worker does at the same time.

    Raises
    ------
    ScenarioError
        The codec is to run on the device and on the host.
    """
    if section.encode == "on_device" and device.copy_ps(1):
        raise location.job_error(
            "overlap.encode",
            "device.codec puts encoding on the host, encode: on_device on the device",
            "leave out one of the two",
        )
    return Overlap(
        section.buckets_in_flight,
        section.order,
        section.encode == "on_device",
        section.decode == "last",
        section.network == "in_turn",
    )


def steps_of(section: sections.AnyWorkload, workload: TrainingSpec | SyntheticSpec | FileSpec) -> int:
    """Optimizer steps: the configured number, or that of the file."""
    held = None
    if isinstance(workload, FileSpec):
        held = workload.steps
    elif isinstance(workload, SyntheticSpec):
        held = workload.held_steps
    return section.steps or held or 1


def workload_warnings(
    workload: TrainingSpec | SyntheticSpec | FileSpec, workers: int, codec: Codec
) -> tuple[str, ...]:
    """Warnings about gradients."""
    if isinstance(workload, TrainingSpec):
        told = workload.recipe.warnings(codec.kind, getattr(codec, "momentum", 0.0))
        if workload.stands_in_for:
            data = workload.model.data_named(workload.data).name
            told += (f"the data of {workload.model.title} are {data}, in place of {workload.stands_in_for}",)
        return told
    if isinstance(workload, FileSpec) and workers < workload.rows:
        return (
            f"the first {workers} of the {workload.rows} workers' gradients in {workload.given} are used",
        )
    return workload.notes if isinstance(workload, SyntheticSpec) else ()
