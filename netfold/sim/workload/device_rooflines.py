"""Rooflines of devices: the contract, counted costs, the table of hardware with sources, times by it.

Peaks are those of vendors' data sheets, dense (without sparsity). A share is what the best published or usual
measurement of large matrix products, and of streams through memory, reached. Real layers reach less: small
matrices, odd shapes and short kernels are not in these shares. Where no measurement is named, the share is an
assumption, and says so.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np

from netfold.homomorphic.merge import Work
from netfold.homomorphic.message import Tensor
from netfold.kernels import rng_streams
from netfold.kernels.keyed_random import mix_plain
from netfold.sim.keys import Option, Share
from netfold.units import PS_PER_S, PS_PER_US, transmit_time_ps

# What one step of one worker costs: kernels with arithmetic and memory traffic, counted on the model.


MATMUL, CONVOLUTION, CONVOLUTION_BACKWARD, OTHER = "matmul", "convolution", "convolution_backward", "other"
KINDS = (MATMUL, CONVOLUTION, CONVOLUTION_BACKWARD)
"""Kinds of kernels whose arithmetic is counted."""


class KernelCost(NamedTuple):
    """One operator of PyTorch that computes something; a GPU starts a kernel for it."""

    kind: str  # one of KINDS, or OTHER: no arithmetic is counted
    flops: int
    size_bytes: int  # read and written


class Stage(NamedTuple):
    """A part of the backward pass, up to the instant at which a tensor's gradient is ready."""

    tensor: str  # empty: what follows the last gradient
    kernels: tuple[KernelCost, ...]


@dataclass(frozen=True)
class StepCost:
    """Arithmetic and memory traffic of one step of one worker, which a device turns into time.

    The totals estimate bytes from what autograd saves; `forward` and `backward` have those of every kernel.
    """

    forward_flops: int = 0
    backward_flops: int = 0
    forward_bytes: int = 0
    backward_bytes: int = 0
    forward: tuple[KernelCost, ...] = ()
    backward: tuple[Stage, ...] = ()
    """Stages in the order in which gradients are ready."""
    update_bytes: int = 0
    """Bytes that the optimizer reads and writes: weights, gradients and its state."""
    passes: int = 1
    """Forward and backward passes, each of this work, before gradients are exchanged."""


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
        shares: dict[str, float] = {}
        for tensor in tensors if self.backward_ps else ():
            if tensor.name in self.ready_ps:
                share, name = self.ready_ps[tensor.name] / self.backward_ps, tensor.layer or tensor.name
                shares[name] = max(share, shares.get(name, 0.0))
        return tuple(shares.items())


class Timed(Protocol):
    """A workload whose passes can be timed on this machine."""

    def timed_passes(self) -> tuple[Passes, int]:
        # Wall times in picoseconds: those of real passes, and that of an update of the weights.
        ...


class Device(ABC):
    """Turns counted work into time, int picoseconds rounded up."""

    launch_ps: int
    """Time to start one kernel of an encoding, a decoding or a merge."""
    is_reproducible: ClassVar[bool] = True
    """Whether times are the same in every run."""

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
        return 0

    def copy_ps(self, size_bytes: int) -> int:
        # Of a gradient to where the codec runs, or of its sum back; 0: they are at the same place.
        return 0

    def on(self, workload: Any) -> Device:
        # The device for a workload that has been built.
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        # What a reader of its times has to know.
        return ()


class TimedPasses(Device):
    """A device whose passes take times that are given or measured.

    Other work is charged by memory traffic alone, and is free if `memory_bps` (bits per second) is None.
    """

    memory_bps: int | None
    optimizer_ps: int

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        return moved_ps(size_bytes, self.memory_bps)

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        return moved_ps(read_bytes + written_bytes, self.memory_bps)

    def update_ps(self, cost: StepCost) -> int:
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
    # Without a rate, in bits per second, it takes no time.
    return 0 if memory_bps is None else transmit_time_ps(size_bytes, memory_bps)


class Place(NamedTuple):
    """What a section of a device is read beside."""

    folder: Path
    """Folder of the scenario file."""
    tensors: tuple[Tensor, ...]
    is_trained: bool
    """Whether the workload has a model."""


# Jitter and stragglers: how many times as long as usual a worker's device takes in a step.


_USUAL = Fraction(1)
_PARTS = 1 << 20  # factors are whole multiples of 1 / _PARTS, so that machines agree on them


@dataclass(frozen=True, kw_only=True)
class Jitter(Option):
    """Random differences of compute times: each worker draws a factor of mean 1 in every step."""

    kind: Literal["lognormal", "gamma"] = "lognormal"
    """Distribution of the factor. Gamma has the lighter tail."""
    spread: Share
    """Its standard deviation, as a share of the mean."""

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
        factor = next((slowdown for slow, slowdown in self.slow if slow == worker), 1.0)
        if self.jitter is not None:
            key = mix_plain(seed, rng_streams.DEVICE_JITTER, self.job, worker, step)
            factor *= self.jitter.draw(np.random.Generator(np.random.PCG64(key)))
        return Fraction(round(factor * _PARTS), _PARTS)


STEADY = Variation()


def scaled_ps(time_ps: int, factor: Fraction) -> int:
    return time_ps if factor == 1 else math.ceil(time_ps * factor)


Precision = Literal["fp32", "tf32", "bf16", "fp16"]

_ASSUMED = "assumed"
_MAMF = (
    "measured: BF16 matrix products, Bekman, Machine Learning Engineering, 'Maximum Achievable Matmul FLOPS'"
)
_AS_BF16 = "assumed to be that of BF16"
_VOLTA = "measured: Jia et al., Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking, 2018"
_TURING = "measured: Jia et al., Dissecting the NVIDIA Turing T4 GPU via Microbenchmarking, 2019"
_LAUNCH = (
    "assumed; Gray, Getting Started with CUDA Graphs, 2019, has 3.8 µs from one short kernel to the next on "
    "a V100, to which PyTorch's operators add"
)
_STREAMS = "assumed: kernels of a codec are streams through memory"
_CODECS = (
    "measured: `netfold calibrate` on one core of an Intel Xeon: netfold's own codecs pass 5.5 counted bytes "
    "a nanosecond where a copy passes 14: bits are packed and numbers rounded one by one"
)
_CALLS = "assumed: an operator of PyTorch on a processor, backward included"


class Rate(NamedTuple):
    """A peak rate, and what of it programs reach."""

    peak: int
    """Operations or bytes per second."""
    share: float
    """Share of the peak that is reached."""
    source: str
    """Where the share comes from."""


class HardwareLink(NamedTuple):
    """The link between a device and its host."""

    name: str
    bytes_per_s: int
    """Rate in one direction, line codes taken off."""
    share: float
    """Share of the rate that copies of pinned memory reach."""
    start_ps: int
    """Time to start a copy."""
    source: str


_COPIES = (
    "share: Neugebauer et al., Understanding PCIe Performance for End Host Networking, SIGCOMM 2018: headers "
    "and flow control leave about 4/5; start: assumed"
)
LINKS = {
    link.name: link
    for link in (
        HardwareLink("pcie3", 15_754_000_000, 0.8, 10 * PS_PER_US, _COPIES),  # 16 lanes · 8 GT/s · 128/130
        HardwareLink("pcie4", 31_508_000_000, 0.8, 10 * PS_PER_US, _COPIES),
        HardwareLink("pcie5", 63_015_000_000, 0.8, 10 * PS_PER_US, _COPIES),
    )
}


@dataclass(frozen=True)
class Hardware:
    """A device of the table."""

    name: str
    title: str
    source: str
    """Where the peaks come from."""
    arithmetic: Mapping[Precision, Rate]
    """Floating-point operations per second."""
    memory: Rate
    """Bytes per second."""
    launch_ps: int
    """Time from one short kernel to the next."""
    launch_source: str
    link: str | None
    """A name in `LINKS`; None: it is the host."""
    codec_share: float
    """Share of the memory bandwidth that is reached, for what codecs count as read and written."""
    codec_source: str


def _tera(count: float) -> int:
    # TFLOPS have three decimals at most.
    return round(count * 1000) * 10**9


def _gpu(
    name: str,
    title: str,
    source: str,
    *,
    arithmetic: Mapping[Precision, tuple[float, float, str]],
    memory: Rate,
    link: str,
) -> Hardware:
    """A row of the table, its arithmetic in TFLOPS."""
    rates: dict[Precision, Rate] = {
        precision: Rate(_tera(peak), share, of) for precision, (peak, share, of) in arithmetic.items()
    }
    return Hardware(name, title, source, rates, memory, 5 * PS_PER_US, _LAUNCH, link, 1.0, _STREAMS)


HARDWARE = {
    row.name: row
    for row in (
        _gpu(
            "p100",
            "NVIDIA Tesla P100, SXM2, 16 GB",
            "NVIDIA Tesla P100 data sheet (2016): SXM2, 16 GB",
            arithmetic={"fp32": (10.6, 0.9, _ASSUMED), "fp16": (21.2, 0.85, _ASSUMED)},
            memory=Rate(732_000_000_000, 0.70, _VOLTA),
            link="pcie3",
        ),
        _gpu(
            "t4",
            "NVIDIA T4, 16 GB",
            "NVIDIA T4 data sheet (2019)",
            arithmetic={
                "fp32": (8.1, 0.6, f"{_ASSUMED}: at 70 W its clock falls under load"),
                "fp16": (65, 0.5, f"{_ASSUMED}: at 70 W its clock falls under load"),
            },
            memory=Rate(300_000_000_000, 0.73, f"{_TURING}: 220 GB/s"),
            link="pcie3",
        ),
        _gpu(
            "v100",
            "NVIDIA V100, SXM2",
            "NVIDIA V100 data sheet (2020): SXM2",
            arithmetic={
                "fp32": (15.7, 0.9, _ASSUMED),
                "fp16": (
                    125,
                    0.66,
                    "measured: Markidis et al., NVIDIA Tensor Core Programmability, Performance & Precision, "
                    "2018: 83 TFLOPS",
                ),
            },
            memory=Rate(900_000_000_000, 0.83, f"{_VOLTA}: 750 GB/s"),
            link="pcie3",
        ),
        _gpu(
            "a100",
            "NVIDIA A100, SXM, 40 GB",
            "NVIDIA A100 data sheet (2020): SXM, 40 GB",
            arithmetic={
                "fp32": (19.5, 0.9, _ASSUMED),
                "tf32": (156, 0.87, _AS_BF16),
                "bf16": (312, 0.87, f"{_MAMF}: 271.2 TFLOPS"),
                "fp16": (312, 0.87, _AS_BF16),
            },
            memory=Rate(1_555_000_000_000, 0.9, f"{_ASSUMED}: usual for streams through HBM2"),
            link="pcie4",
        ),
        _gpu(
            "h100",
            "NVIDIA H100, SXM, 80 GB",
            "NVIDIA H100 data sheet (2023): SXM, 80 GB",
            arithmetic={
                "fp32": (67, 0.8, _ASSUMED),
                "tf32": (494.7, 0.8, _AS_BF16),
                "bf16": (989.4, 0.8, f"{_MAMF}: 792.1 TFLOPS"),
                "fp16": (989.4, 0.8, _AS_BF16),
            },
            memory=Rate(3_350_000_000_000, 0.9, f"{_ASSUMED}: usual for streams through HBM3"),
            link="pcie5",
        ),
        _gpu(
            "b200",
            "NVIDIA B200, SXM, 1000 W",
            "NVIDIA Blackwell Architecture Technical Brief (2024): HGX B200",
            arithmetic={
                "fp32": (80, 0.8, _ASSUMED),
                "tf32": (1125, 0.776, _AS_BF16),
                "bf16": (2250, 0.776, f"{_MAMF}: 1745 TFLOPS"),
                "fp16": (2250, 0.776, _AS_BF16),
            },
            memory=Rate(8_000_000_000_000, 0.9, f"{_ASSUMED}: usual for streams through HBM3e"),
            link="pcie5",
        ),
        Hardware(
            "cpu_core",
            "one core of an AMD EPYC 7763",
            "AMD EPYC 7003 data sheet (2021): 3.5 GHz boost, 32 float32 operations a cycle; 8 channels of "
            "DDR4-3200, which a core shares",
            {"fp32": Rate(112 * 10**9, 0.8, _ASSUMED)},
            Rate(204_800_000_000, 0.1, f"{_ASSUMED}: what one core keeps in flight is about 20 GB/s"),
            4 * PS_PER_US,
            _CALLS,
            None,
            0.4,
            _CODECS,
        ),
        Hardware(
            "cpu_socket",
            "an AMD EPYC 7763, 64 cores",
            "AMD EPYC 7003 data sheet (2021): 2.45 GHz, 64 cores of 32 float32 operations a cycle; 8 "
            "channels of DDR4-3200",
            {"fp32": Rate(5_017_600_000_000, 0.7, _ASSUMED)},
            Rate(204_800_000_000, 0.8, f"{_ASSUMED}: usual for STREAM on this processor"),
            8 * PS_PER_US,
            f"{_CALLS}, on many threads",
            None,
            0.4,
            _CODECS,
        ),
    )
}


# Devices of the table, or calibrated ones: every kernel takes the longer of its arithmetic and its traffic.
#
#     time of a kernel = launch + max(operations / rate of arithmetic, bytes / rate of memory)
#
# Williams, Waterman and Patterson, Roofline: An Insightful Visual Performance Model, CACM 52(4), 2009. A pass
# takes the sum over its kernels; a tensor's gradient is ready when the kernels up to it are done.


_HALF: tuple[Precision, ...] = ("bf16", "fp16")


@dataclass(frozen=True)
class Curve:
    """Time by size, operations or bytes: a line between points, and from 0 to the first; beyond, its rate."""

    points: tuple[tuple[int, int], ...]  # (size, picoseconds), both rising

    def ps(self, size: int) -> int:
        """Time for a size, rounded up."""
        point_index = bisect_left(self.points, (size, 0))
        if point_index == len(self.points):  # beyond: the rate of the last point
            last, last_ps = self.points[-1]
            return -(-size * last_ps // last)
        end, end_ps = self.points[point_index]
        start, start_ps = self.points[point_index - 1] if point_index else (0, 0)
        return start_ps - (-(size - start) * (end_ps - start_ps) // (end - start))


def constant(per_s: int) -> Curve:
    # It is exact to a picosecond in a second.
    return Curve(((per_s, PS_PER_S),))


@dataclass(frozen=True)
class RooflineDevice(Device):
    """Rates of a device; encoding, decoding and merging have their own, since they are other kernels."""

    name: str
    arithmetic: tuple[tuple[str, Curve], ...]
    """A curve for each kind of kernel whose operations are counted."""
    memory: Curve
    operator_ps: int
    """Time to start a kernel of the passes."""
    codec_arithmetic: Curve
    codec_memory: Curve
    launch_ps: int
    """Time to start a kernel of an encoding, a decoding or a merge."""
    is_serial: bool = False
    """Whether arithmetic waits for memory, so that their times add up."""
    is_half: bool = False
    """Whether tensors of the passes have two bytes an element; weights and sums have four."""

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        return max(self.codec_arithmetic.ps(flops), self.codec_memory.ps(size_bytes))

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        return self.codec_memory.ps(read_bytes + written_bytes)

    def kernel_ps(self, kernel: KernelCost) -> int:
        """Time of one kernel of the passes, its start included."""
        size_bytes = kernel.size_bytes // 2 if self.is_half else kernel.size_bytes
        time_ps = self.memory.ps(size_bytes)
        if kernel.kind != OTHER:
            own_ps = dict(self.arithmetic)[kernel.kind].ps(kernel.flops)
            time_ps = time_ps + own_ps if self.is_serial else max(time_ps, own_ps)
        return self.operator_ps + time_ps

    def passes(self, cost: StepCost) -> Passes:
        """The sums over the kernels."""
        now_ps, ready_ps = 0, {}
        for stage in cost.backward:
            now_ps += self._sum_ps(stage.kernels)
            if stage.tensor:
                ready_ps[stage.tensor] = now_ps
        return Passes(self._sum_ps(cost.forward), now_ps, ready_ps)

    def update_ps(self, cost: StepCost) -> int:
        # One kernel passes over weights, gradients and the optimizer's state, all in float32.
        return self.operator_ps + self.memory.ps(cost.update_bytes) if cost.update_bytes else 0

    def _sum_ps(self, kernels: Sequence[KernelCost]) -> int:
        return sum(map(self.kernel_ps, kernels))


@dataclass(frozen=True)
class PeakDevice(Device):
    """The peak rates of an accelerator, for the passes as wholes: a lower bound, as in the first versions.

    Backward is taken to produce gradient bytes at an even rate, and the optimizer takes no time.
    """

    name: str
    flops_per_s: int  # float32
    memory_bytes_per_s: int
    launch_ps: int = 0

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        return max(-(-flops * PS_PER_S // self.flops_per_s), self.work_ps(size_bytes, 0))

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        return -(-(read_bytes + written_bytes) * PS_PER_S // self.memory_bytes_per_s)

    def passes(self, cost: StepCost) -> Passes:
        """The larger of arithmetic and memory time of each pass; nothing is known of tensors."""
        return Passes(
            self.compute_ps(cost.forward_flops, cost.forward_bytes),
            self.compute_ps(cost.backward_flops, cost.backward_bytes),
        )


def peak_device(hardware: Hardware, launch_ps: int) -> PeakDevice:
    return PeakDevice(hardware.name, hardware.arithmetic["fp32"].peak, hardware.memory.peak, launch_ps)


def roofline_device(
    hardware: Hardware,
    precision: Precision,
    efficiency: float | None = None,
    memory_efficiency: float | None = None,
    launch_ps: int | None = None,
) -> RooflineDevice:
    """A device of the table, with the shares of its peaks that are reached or others.

    A codec's arithmetic is float32, without tensor cores.
    """

    def reached(peak: int, share: float) -> Curve:
        return constant(max(1, round(peak * share)))

    rate, vector, memory = hardware.arithmetic[precision], hardware.arithmetic["fp32"], hardware.memory
    curve = reached(rate.peak, rate.share if efficiency is None else efficiency)
    share = memory.share if memory_efficiency is None else memory_efficiency
    return RooflineDevice(
        name=hardware.name,
        arithmetic=tuple((kind, curve) for kind in KINDS),
        memory=reached(memory.peak, share),
        operator_ps=hardware.launch_ps if launch_ps is None else launch_ps,
        launch_ps=hardware.launch_ps if launch_ps is None else launch_ps,
        codec_arithmetic=reached(vector.peak, vector.share if efficiency is None else efficiency),
        codec_memory=reached(memory.peak, share * hardware.codec_share),
        is_half=precision in _HALF,
    )


# Device files: what a processor was measured to do, as `netfold calibrate` writes it.
#
# A JSON object; sizes are operations or bytes, times nanoseconds, both rising within a list:
#
#     {"format": "netfold device 1", "name": "…", "threads": 1, "launch_ns": 2100,
#      "arithmetic": {"matmul": [[16384, 900], …], "convolution": […], "convolution_backward": […]},
#      "memory": [[4096, 150], …],
#      "codec": {"launch_ns": 3000, "arithmetic": […], "memory": […]}}
#
# A kernel of PyTorch takes `launch_ns`, its memory traffic and its arithmetic, each by a line between
# points: a core does one after the other, so their times add up. `codec` has the rates of encoding and
# decoding, whose traffic codecs count themselves. Other keys say how it was measured, and are not read.


FORMAT = "netfold device 1"
_HINT = "netfold calibrate writes a device file of this machine"
_PS_PER_NS, _NS_MAX = 1000, 10**15  # 11 days
POINTS_MAX = 1000
"""Most points of a list."""


def read_device(text: str) -> RooflineDevice:
    """The device in a file.

    Raises
    ------
    ValueError
        The text is no device file; a hint is on the second line.
    """
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"is not JSON\n{_HINT}") from None
    if not isinstance(parsed, dict) or parsed.get("format") != FORMAT:
        raise ValueError(f"is no device file: its 'format' must be {FORMAT!r}\n{_HINT}")
    arithmetic, codec = parsed.get("arithmetic"), parsed.get("codec")
    if not isinstance(arithmetic, dict) or not isinstance(codec, dict):
        raise ValueError(f"'arithmetic' and 'codec' must be objects\n{_HINT}")
    name = parsed.get("name")
    if not isinstance(name, str):
        raise ValueError(f"'name' must be text\n{_HINT}")
    return RooflineDevice(
        name=name,
        arithmetic=tuple((kind, _curve(arithmetic.get(kind), f"arithmetic.{kind}")) for kind in KINDS),
        memory=_curve(parsed.get("memory"), "memory"),
        operator_ps=_ps(parsed.get("launch_ns"), "launch_ns"),
        codec_arithmetic=_curve(codec.get("arithmetic"), "codec.arithmetic"),
        codec_memory=_curve(codec.get("memory"), "codec.memory"),
        launch_ps=_ps(codec.get("launch_ns"), "codec.launch_ns"),
        is_serial=True,
    )


def _curve(value: Any, key: str) -> Curve:
    """The points of a list, in picoseconds."""
    if not isinstance(value, list) or not 0 < len(value) <= POINTS_MAX:
        raise ValueError(f"{key!r} must be a list of 1 to {POINTS_MAX} points [size, nanoseconds]\n{_HINT}")
    points = []
    for point in value:
        if not isinstance(point, list) or len(point) != 2 or not _is_size(point[0]):
            raise ValueError(f"{key!r}: a point is written [size, nanoseconds], found {point!r:.40}\n{_HINT}")
        points.append((point[0], _ps(point[1], key)))
    for previous, other in pairwise(points):
        if not (previous[0] < other[0] and previous[1] <= other[1]):
            raise ValueError(f"{key!r}: sizes must rise, and times not fall, from point to point\n{_HINT}")
    if points[-1][1] <= 0:
        raise ValueError(f"{key!r}: the largest size must take some time\n{_HINT}")
    return Curve(tuple(points))


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63


def _ps(value: Any, key: str) -> int:
    """Nanoseconds of a file as picoseconds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _NS_MAX:
        raise ValueError(
            f"{key!r}: a time is a number of nanoseconds, 0 to {_NS_MAX:g}, found {value!r:.40}\n{_HINT}"
        )
    return int(value * _PS_PER_NS + 0.5)
