"""Devices without a model of the hardware: no time, or times that the scenario gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from netfold.sim.keys.fields import Rate, Time
from netfold.sim.workload.devices.cost import StepCost
from netfold.sim.workload.devices.device import Device, Passes, Place, TimedPasses
from netfold.sim.workload.devices.section import DeviceSection, VariedSection


@dataclass(frozen=True)
class NoDevice(Device):
    """A device on which compute takes no time: only the network counts."""

    launch_ps: ClassVar[int] = 0  # type: ignore[misc]  # read-only there, too

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        """Return 0."""
        return 0

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        """Return 0."""
        return 0

    def passes(self, cost: StepCost) -> Passes:
        """No time."""
        return Passes()


class NoDeviceSection(DeviceSection):
    """Compute takes no time."""

    kind: Literal["none"] = "none"

    def device(self, place: Place) -> Device:
        """No time."""
        return NoDevice()


@dataclass(frozen=True)
class FixedDevice(TimedPasses):
    """Measured or assumed forward and backward times, for any model."""

    forward_ps: int
    backward_ps: int
    memory_bps: int | None = None
    launch_ps: int = 0
    optimizer_ps: int = 0

    def passes(self, cost: StepCost) -> Passes:
        """The given times; nothing is known of tensors."""
        return Passes(self.forward_ps, self.backward_ps)


class FixedDeviceSection(VariedSection):
    """Compute takes fixed times."""

    kind: Literal["fixed"]
    forward: Time
    """Forward pass of one step."""
    backward: Time
    """Backward pass of one step."""
    optimizer: Time = 0
    """Update of the weights, after the last bucket is decoded."""
    memory_rate: Rate | None = None
    """Memory bandwidth for encoding and decoding; by default it takes no time to move their bytes."""
    launch: Time = 0
    """Time to start one kernel of an encoding, a decoding or a merge on a host."""

    def device(self, place: Place) -> Device:
        """The times."""
        return FixedDevice(self.forward, self.backward, self.memory_rate, self.launch, self.optimizer)
