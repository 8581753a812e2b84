"""Sections of a job that need nothing but themselves: workload and device."""

from __future__ import annotations

from sim.scenario import models as written
from sim.workload import SyntheticSpec, TrainingSpec
from sim.workload.device import DEVICES, Device, FixedDevice, NoDevice


def workload_of(section: written.Training | written.Synthetic) -> TrainingSpec | SyntheticSpec:
    """Where gradients come from."""
    if isinstance(section, written.Training):
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


def device_of(section: written.NoDevice | written.FixedDevice | written.RooflineDevice) -> Device:
    """How long compute takes."""
    if isinstance(section, written.FixedDevice):
        return FixedDevice(section.forward, section.backward, section.memory_rate)
    if isinstance(section, written.RooflineDevice):
        return DEVICES[section.model]
    return NoDevice()
