"""A device whose codec runs on its host: gradients and sums are copied between the two."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from netfold.sim.workload.devices.cost import StepCost
from netfold.sim.workload.devices.device import Device, Passes
from netfold.sim.workload.devices.hardware import Link
from netfold.units import PS_PER_S


@dataclass(frozen=True)
class HostCodec(Device):
    """Passes and updates on a device; encoding, decoding and merging on its host, at the host's rates.

    What is on the wire leaves from the host, and arrives there. A copy takes the codec's time on the
    host: the two do not overlap.
    """

    device: Device
    host: Device
    link: Link

    @property
    def launch_ps(self) -> int:  # type: ignore[override]  # read-only
        """Of the host."""
        return self.host.launch_ps

    @property
    def is_reproducible(self) -> bool:  # type: ignore[override]  # of an instance
        """As both are."""
        return self.device.is_reproducible and self.host.is_reproducible

    @property
    def notes(self) -> tuple[str, ...]:
        """Of both."""
        return (*self.device.notes, *self.host.notes)

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        """Of the host."""
        return self.host.compute_ps(flops, size_bytes)

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        """Of the host."""
        return self.host.work_ps(read_bytes, written_bytes)

    def passes(self, cost: StepCost) -> Passes:
        """Of the device."""
        return self.device.passes(cost)

    def update_ps(self, cost: StepCost) -> int:
        """Of the device."""
        return self.device.update_ps(cost)

    def copy_ps(self, size_bytes: int) -> int:
        """One copy of pinned memory over the link."""
        rate = round(self.link.bytes_per_s * self.link.share)
        return self.link.start_ps - (-size_bytes * PS_PER_S // rate)

    def on(self, workload: Any) -> Device:
        """The device and the host for a workload that has been built."""
        return replace(self, device=self.device.on(workload), host=self.host.on(workload))
