"""Devices, which say how long compute takes: no time, fixed times, or a real accelerator's roofline.

A roofline time is the larger of arithmetic at peak rate and memory traffic at peak rate, so it is a lower
bound: real kernels reach a part of either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from netfold.homomorphic.message import Work
from netfold.homomorphic.round import Tensor
from netfold.sim.units import PS_PER_S, transmit_time_ps
from netfold.sim.workload.workload import StepCost

_SAMPLE_BYTES = 10**9


@dataclass(frozen=True)
class Passes:
    """Times of the two passes of one step, int picoseconds, on a host without faults."""

    forward_ps: int = 0
    backward_ps: int = 0
    ready_ps: Mapping[str, int] = field(default_factory=dict)
    """When each tensor's gradient is ready, from the start of backward; empty: not known."""

    def bucket_ps(self, tensors: Sequence[Tensor], ready_share: float) -> int:
        """When all tensors of a bucket are ready; by its share of backward where nothing is known of them."""
        times_ps = [self.ready_ps.get(tensor.name, -1) for tensor in tensors]
        if not times_ps or min(times_ps) < 0:
            return int(ready_share * self.backward_ps)
        return max(times_ps)


class Device(Protocol):
    """Turns counted work into time, int picoseconds rounded up."""

    @property
    def launch_ps(self) -> int:
        """Time to start one kernel of an encoding, a decoding or a merge."""
        ...

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        """Time of arithmetic that touches `size_bytes` of memory."""
        ...

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        """Time of memory-bound work such as encoding."""
        ...


@dataclass(frozen=True)
class NoDevice:
    """A device on which compute takes no time: only the network counts."""

    launch_ps: ClassVar[int] = 0

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        """Return 0."""
        return 0

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        """Return 0."""
        return 0


@dataclass(frozen=True)
class FixedDevice:
    """Measured or assumed forward and backward times, for any model.

    Other work is charged by memory traffic alone, and is free if `memory_bps` (bits per second) is None.
    """

    forward_ps: int
    backward_ps: int
    memory_bps: int | None = None
    launch_ps: int = 0

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        """Time to move `size_bytes`; arithmetic outside forward and backward is not charged."""
        return self.work_ps(size_bytes, 0)

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        """Time to move the bytes through memory."""
        return 0 if self.memory_bps is None else transmit_time_ps(read_bytes + written_bytes, self.memory_bps)


@dataclass(frozen=True)
class RooflineDevice:
    """Peak rates of an accelerator, from its vendor's data sheet."""

    name: str
    flops_per_s: int  # fp32, without tensor cores
    memory_bps: int  # bits per second
    source: str
    launch_ps: int = 0

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        """Return the larger of the arithmetic time and the memory time."""
        return max(-(-flops * PS_PER_S // self.flops_per_s), self.work_ps(size_bytes, 0))

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        """Time to move the bytes through memory."""
        return transmit_time_ps(read_bytes + written_bytes, self.memory_bps)


def charge_ps(device: Device, work: Work) -> int:
    """Time of an encoding, a decoding or a merge on a host; no work takes no time, and starts no kernel."""
    size_bytes = work.read_bytes + work.written_bytes
    if not (size_bytes or work.flops):
        return 0
    return work.launches * device.launch_ps + device.compute_ps(work.flops, size_bytes)


def memory_bps(device: Device) -> int | None:
    """Rate at which a device passes over memory, in bits per second; None if that takes no time."""
    time_ps = device.work_ps(_SAMPLE_BYTES, 0)
    return 8 * _SAMPLE_BYTES * PS_PER_S // time_ps if time_ps else None


def step_times(device: Device, cost: StepCost) -> tuple[int, int]:
    """Forward and backward time of one step of one worker, in picoseconds."""
    if isinstance(device, FixedDevice):
        return device.forward_ps, device.backward_ps
    return (
        device.compute_ps(cost.forward_flops, cost.forward_bytes),
        device.compute_ps(cost.backward_flops, cost.backward_bytes),
    )


def _sheet(name: str, tera_flops: float, gigabytes_per_s: int, source: str) -> RooflineDevice:
    """Device from the units that data sheets use; TFLOPS have one decimal at most."""
    return RooflineDevice(name, round(tera_flops * 10) * 10**11, gigabytes_per_s * 8 * 10**9, source)


DEVICES = {
    device.name: device
    for device in (
        _sheet("p100", 10.6, 732, "NVIDIA Tesla P100 data sheet (2016): SXM2, 16 GB"),
        _sheet("v100", 15.7, 900, "NVIDIA V100 data sheet (2020): SXM2"),
        _sheet("t4", 8.1, 300, "NVIDIA T4 data sheet (2019)"),
        _sheet("a100", 19.5, 1555, "NVIDIA A100 data sheet (2020): SXM, 40 GB"),
        _sheet("h100", 67, 3350, "NVIDIA H100 data sheet (2023): SXM, 80 GB"),
    )
}
