"""Resolves the sections of a job that do not depend on others: workload and device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from netfold.homomorphic.codec import Codec
from netfold.sim.errors import DataError, shown
from netfold.sim.files.foreign import UnreadableError, read_text
from netfold.sim.keys.location import Location
from netfold.sim.plan.overlap import Overlap
from netfold.sim.scenario import models
from netfold.sim.workload import FileSpec, SyntheticSpec, TrainingSpec, sections
from netfold.sim.workload.device import DEVICES, Device, FixedDevice, NoDevice
from netfold.sim.workload.facts import refusal_of_needs
from netfold.sim.workload.fusion.rule import FusionError
from netfold.sim.workload.layers import elements_of, read_tensors
from netfold.sim.workload.profile import LayerProfile, read_profile
from netfold.sim.workload.trace.sections import ChakraTrace, Trace

PROFILE_BYTES_MAX = 2**22


def workload_of(
    section: sections.Workload, workers: int, location: Location
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
    section: sections.Workload, workers: int, location: Location
) -> TrainingSpec | SyntheticSpec | FileSpec:
    if isinstance(section, sections.GradientFile | Trace | ChakraTrace):
        try:
            return _read_spec(section, workers, Path(location.scenario.file).parent / section.path)
        except DataError as error:
            raise location.job_error("workload.path", error.message, error.hint) from None
    fusion = section.fusion.rule()
    if isinstance(section, sections.Training):
        return TrainingSpec(
            section.model,
            section.batch,
            section.learning_rate,
            fusion,
            section.expand,
            section.data,
            section.evaluate.every if section.evaluate else None,
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


def _read_spec(
    section: sections.GradientFile | Trace | ChakraTrace, workers: int, path: Path
) -> SyntheticSpec | FileSpec:
    """The source of gradients that a file or a recording is."""
    if isinstance(section, ChakraTrace):
        from netfold.sim.workload.trace.chakra.spec import chakra_spec

        return chakra_spec(path, section)
    if isinstance(section, Trace):
        from netfold.sim.workload.trace.workload import trace_spec

        fusion = section.fusion.rule() if section.fusion else None
        return trace_spec(path, section.path, workers, fusion, section.times == "recorded")
    from netfold.sim.workload.files.workload import file_spec

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
    if refusal := refusal_of_needs(codec, workload.facts, f"a workload of the kind {kind}"):
        raise location.job_error("codec", *refusal)


def device_of(
    section: models.NoDeviceSection | models.FixedDeviceSection | models.RooflineDeviceSection,
) -> Device:
    """How long compute takes."""
    if isinstance(section, models.FixedDeviceSection):
        return FixedDevice(section.forward, section.backward, section.memory_rate, section.launch)
    if isinstance(section, models.RooflineDeviceSection):
        return replace(DEVICES[section.model], launch_ps=section.launch)
    return NoDevice()


def overlap_of(section: models.OverlapSection) -> Overlap:
    """What a worker does at the same time."""
    return Overlap(
        section.buckets_in_flight,
        section.order,
        section.encode == "on_device",
        section.decode == "last",
        section.network == "in_turn",
    )


def steps_of(section: sections.Workload, workload: TrainingSpec | SyntheticSpec | FileSpec) -> int:
    """Optimizer steps: the configured number, or that of the file."""
    held = None
    if isinstance(workload, FileSpec):
        held = workload.steps
    elif isinstance(workload, SyntheticSpec):
        held = workload.held_steps
    return section.steps or held or 1


def workload_warnings(workload: TrainingSpec | SyntheticSpec | FileSpec, workers: int) -> tuple[str, ...]:
    """Warnings about gradients."""
    if isinstance(workload, FileSpec) and workers < workload.rows:
        return (
            f"the first {workers} of the {workload.rows} workers' gradients in {workload.given} are used",
        )
    return workload.notes if isinstance(workload, SyntheticSpec) else ()
