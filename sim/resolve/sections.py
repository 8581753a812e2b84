"""Resolves the sections of a job that do not depend on others: workload and device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from netfold.sim.errors import DataError
from netfold.sim.keys.location import Location
from netfold.sim.plan.overlap import Overlap
from netfold.sim.scenario import models
from netfold.sim.workload import FileSpec, SyntheticSpec, TrainingSpec, training_elements
from netfold.sim.workload.device import DEVICES, Device, FixedDevice, NoDevice
from netfold.sim.workload.workload import FLOAT_BYTES


def workload_of(
    section: models.Training | models.Synthetic | models.GradientFile, workers: int, location: Location
) -> TrainingSpec | SyntheticSpec | FileSpec:
    """The source of gradients.

    Raises
    ------
    ScenarioError
        A file of gradients cannot be used.
    """
    if isinstance(section, models.GradientFile):
        from netfold.sim.workload.files.workload import file_spec

        path = Path(location.scenario.file).parent / section.path
        try:
            return file_spec(path, section.path, workers, section.per_step, section.bucket)
        except DataError as error:
            raise location.job_error("workload.path", error.message, error.hint) from None
    if isinstance(section, models.Training):
        return TrainingSpec(
            section.model, section.batch, section.learning_rate, section.bucket, section.expand
        )
    return SyntheticSpec(
        section.elements,
        section.density,
        section.pattern,
        section.row_elements,
        section.overlap,
        section.distribution,
        section.bucket,
    )


def summed_at_once(workload: TrainingSpec | SyntheticSpec | FileSpec) -> int:
    """Elements that one operation sums: those of a full bucket or of the whole gradient."""
    elements = training_elements(workload) if isinstance(workload, TrainingSpec) else workload.elements
    if workload.bucket_bytes is None:
        return elements
    return min(elements, -(-workload.bucket_bytes // FLOAT_BYTES))


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
    return Overlap(section.buckets_in_flight, section.order, section.encode == "on_device")


def steps_of(
    section: models.Training | models.Synthetic | models.GradientFile,
    workload: TrainingSpec | SyntheticSpec | FileSpec,
) -> int:
    """Optimizer steps: the configured number, or that of the file."""
    held = workload.steps if isinstance(workload, FileSpec) else None
    return section.steps or held or 1


def workload_warnings(workload: TrainingSpec | SyntheticSpec | FileSpec, workers: int) -> tuple[str, ...]:
    """Warnings about gradients."""
    if isinstance(workload, FileSpec) and workers < workload.rows:
        return (
            f"the first {workers} of the {workload.rows} workers' gradients in {workload.given} are used",
        )
    return ()
