"""The contract of devices, which say how long compute takes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from netfold.errors import NetfoldError
from netfold.homomorphic.message import Work
from netfold.homomorphic.round import Tensor
from netfold.sim.workload.devices.cost import StepCost
from netfold.units import PS_PER_S, transmit_time_ps

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

    def layer_shares(self, tensors: Iterable[Tensor]) -> tuple[tuple[str, float], ...]:
        """Share of backward after which each layer of the tensors is ready; empty where nothing is known."""
        found: dict[str, float] = {}
        for tensor in tensors if self.backward_ps else ():
            if tensor.name in self.ready_ps:
                share, name = self.ready_ps[tensor.name] / self.backward_ps, tensor.layer or tensor.name
                found[name] = max(share, found.get(name, 0.0))
        return tuple(found.items())


class Timed(Protocol):
    """A workload whose passes can be timed on this machine."""

    def timed_passes(self) -> tuple[Passes, int]:
        """Wall times of real passes and of an update of the weights, picoseconds."""
        ...


class Device(ABC):
    """Turns counted work into time, int picoseconds rounded up."""

    launch_ps: int  # to start one kernel of an encoding, a decoding or a merge
    is_reproducible: ClassVar[bool] = True  # the same times in every run

    @abstractmethod
    def compute_ps(self, flops: int, size_bytes: int) -> int:
        """Time of arithmetic that touches `size_bytes` of memory, in an encoding, a decoding or a merge."""

    @abstractmethod
    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        """Time of memory-bound work such as encoding."""

    @abstractmethod
    def passes(self, cost: StepCost) -> Passes:
        """Times of the forward and the backward pass."""

    def update_ps(self, cost: StepCost) -> int:
        """Time of the optimizer's update of the weights."""
        return 0

    def copy_ps(self, size_bytes: int) -> int:
        """Time to copy a gradient to where the codec runs, or its sum back; 0: they are at the same place."""
        return 0

    def on(self, workload: Any) -> Device:
        """The device for a workload that has been built."""
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of its times has to know."""
        return ()


class TimedPasses(Device):
    """A device whose passes take times that are given or measured.

    Other work is charged by memory traffic alone, and is free if `memory_bps` (bits per second) is None.
    """

    memory_bps: int | None
    optimizer_ps: int

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        """Time to move `size_bytes`; arithmetic outside the passes is not charged."""
        return moved_ps(size_bytes, self.memory_bps)

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        """Time to move the bytes through memory."""
        return moved_ps(read_bytes + written_bytes, self.memory_bps)

    def update_ps(self, cost: StepCost) -> int:
        """The given or measured time."""
        return self.optimizer_ps


def charge_ps(device: Device, work: Work) -> int:
    """Time of an encoding, a decoding or a merge on a host; no work takes no time, and starts no kernel."""
    if work.is_free:
        return 0
    size_bytes = work.read_bytes + work.written_bytes
    return work.launches * device.launch_ps + device.compute_ps(work.flops, size_bytes)


def memory_bps(device: Device) -> int | None:
    """Rate at which a device passes over memory, in bits per second; None if that takes no time."""
    time_ps = device.work_ps(_SAMPLE_BYTES, 0)
    return 8 * _SAMPLE_BYTES * PS_PER_S // time_ps if time_ps else None


def moved_ps(size_bytes: int, memory_bps: int | None) -> int:
    """Time to move bytes through memory of a rate in bits per second; None: no time."""
    return 0 if memory_bps is None else transmit_time_ps(size_bytes, memory_bps)


class DeviceError(NetfoldError):
    """A device that cannot be used; `key` is the key of its section that is at fault."""

    def __init__(self, key: str, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.args = (key, message, hint)  # what pickle calls __init__ with
        self.key = key


class Place(NamedTuple):
    """What a section of a device is read beside."""

    folder: Path  # of the scenario file
    tensors: tuple[Tensor, ...]  # of the workload
    is_trained: bool  # whether the workload has a model
