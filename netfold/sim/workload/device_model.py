"""What one step of one worker costs: kernels with arithmetic and memory traffic, counted on the model."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from netfold.errors import NetfoldError
from netfold.homomorphic.message import Work
from netfold.homomorphic.round import Tensor
from netfold.kernels import purposes
from netfold.kernels.keyed import mix_plain
from netfold.units import PS_PER_S, transmit_time_ps

MATMUL, CONVOLUTION, CONVOLUTION_BACKWARD, OTHER = "matmul", "convolution", "convolution_backward", "other"
KINDS = (MATMUL, CONVOLUTION, CONVOLUTION_BACKWARD)  # of kernels whose arithmetic is counted


class Kernel(NamedTuple):
    """One operator of PyTorch that computes something; a GPU starts a kernel for it."""

    kind: str  # one of KINDS, or OTHER: no arithmetic is counted
    flops: int
    size_bytes: int  # read and written


class Stage(NamedTuple):
    """A part of the backward pass, up to the instant at which a tensor's gradient is ready."""

    tensor: str  # empty: what follows the last gradient
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class StepCost:
    """Arithmetic and memory traffic of one step of one worker, which a device turns into time.

    The totals estimate bytes from what autograd saves; `forward` and `backward` have those of every kernel.
    """

    forward_flops: int = 0
    backward_flops: int = 0
    forward_bytes: int = 0
    backward_bytes: int = 0
    forward: tuple[Kernel, ...] = ()
    backward: tuple[Stage, ...] = ()  # in the order in which gradients are ready
    update_bytes: int = 0  # that the optimizer reads and writes: weights, gradients and its state
    passes: int = 1  # forward and backward passes, each of this work, before gradients are exchanged


# The contract of devices, which say how long compute takes.


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


# Jitter and stragglers: how many times as long as usual a worker's device takes in a step.


_USUAL = Fraction(1)
_PARTS = 1 << 20  # factors are whole multiples of 1 / _PARTS, so that machines agree on them


@dataclass(frozen=True)
class Jitter:
    """A factor of mean 1 for each worker and step."""

    kind: Literal["lognormal", "gamma"]
    spread: float  # its standard deviation

    def draw(self, generator: np.random.Generator) -> float:
        """A factor.

        Lognormal: exp(s z - s²/2) with s² = ln(1 + spread²) and a normal z. Gamma: shape 1 / spread², scale
        spread².
        """
        if not self.spread:
            return 1.0
        variance = self.spread**2
        if self.kind == "gamma":
            return float(generator.gamma(1 / variance, variance))
        sigma = math.sqrt(math.log1p(variance))
        return math.exp(sigma * float(generator.standard_normal()) - sigma * sigma / 2)


@dataclass(frozen=True)
class Variation:
    """How the devices of a job's workers differ, and how they vary.

    A draw is keyed by seed, job, worker and step: variants that differ in codec or collective meet the same.
    """

    jitter: Jitter | None = None
    slow: tuple[tuple[int, float], ...] = ()  # worker and factor
    job: int = 0  # its number in the variant

    def factor(self, seed: int, worker: int, step: int) -> Fraction:
        """The factor of a worker's compute times in a step, exactly 1 where nothing varies."""
        if self.jitter is None and not self.slow:
            return _USUAL
        factor = next((own for slow, own in self.slow if slow == worker), 1.0)
        if self.jitter is not None:
            key = mix_plain(seed, purposes.DEVICE_JITTER, self.job, worker, step)
            factor *= self.jitter.draw(np.random.Generator(np.random.PCG64(key)))
        return Fraction(round(factor * _PARTS), _PARTS)


STEADY = Variation()


def scaled_ps(time_ps: int, factor: Fraction) -> int:
    """A time multiplied by a factor, rounded up."""
    return time_ps if factor == 1 else math.ceil(time_ps * factor)
