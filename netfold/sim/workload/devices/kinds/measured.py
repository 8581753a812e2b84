"""The device is this machine: wall times of real passes of the workload's model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from netfold.sim.keys.fields import Rate, Time
from netfold.sim.workload.devices.cost import StepCost
from netfold.sim.workload.devices.device import Device, DeviceError, Passes, Place, Timed, TimedPasses
from netfold.sim.workload.devices.section import VariedSection

NOTE = "compute times are wall times of this machine: they, and all times, differ from run to run"


@dataclass(frozen=True)
class MeasuredDevice(TimedPasses):
    """Times of this machine; those of a workload are known once it is built (`on`)."""

    memory_bps: int | None = None
    launch_ps: int = 0
    timed: Passes = field(default_factory=Passes)
    optimizer_ps: int = 0
    is_reproducible: ClassVar[bool] = False

    def passes(self, cost: StepCost) -> Passes:
        """The measured times."""
        return self.timed

    def on(self, workload: Timed) -> Device:
        """The device with the times of a workload; they are measured once for each workload."""
        return MeasuredDevice(self.memory_bps, self.launch_ps, *workload.timed_passes())

    @property
    def notes(self) -> tuple[str, ...]:
        """The times are not reproducible."""
        return (NOTE,)


class MeasuredDeviceSection(VariedSection):
    """Compute takes as long as real passes of the model on this machine, in one thread.

    They are timed before the first step: the median of several. Results differ from run to run.
    """

    kind: Literal["measured"]
    memory_rate: Rate | None = None
    """Memory bandwidth for encoding and decoding; by default it takes no time to move their bytes."""
    launch: Time = 0
    """Time to start one kernel of an encoding, a decoding or a merge on a host."""

    def device(self, place: Place) -> Device:
        """This machine.

        Raises
        ------
        DeviceError
            The workload has no model whose passes could be timed.
        """
        if not place.is_trained:
            raise DeviceError(
                "kind",
                "nothing is trained, so there are no passes to measure",
                "use a workload of the kind training, or a device of the kind fixed or trace",
            )
        return MeasuredDevice(self.memory_rate, self.launch)
