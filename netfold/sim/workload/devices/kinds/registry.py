"""All kinds of devices."""

from __future__ import annotations

from netfold.sim.workload.devices.kinds.fixed import FixedDeviceSection, NoDeviceSection
from netfold.sim.workload.devices.kinds.measured import MeasuredDeviceSection
from netfold.sim.workload.devices.kinds.roofline import RooflineDeviceSection
from netfold.sim.workload.devices.kinds.trace import TraceDeviceSection

SECTIONS = (
    NoDeviceSection,
    FixedDeviceSection,
    RooflineDeviceSection,
    TraceDeviceSection,
    MeasuredDeviceSection,
)
