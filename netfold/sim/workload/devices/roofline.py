"""Devices of the table, or calibrated ones: every kernel takes the longer of its arithmetic and its traffic.

    time of a kernel = launch + max(operations / rate of arithmetic, bytes / rate of memory)

Williams, Waterman and Patterson, Roofline: An Insightful Visual Performance Model, CACM 52(4), 2009. A pass
takes the sum over its kernels; a tensor's gradient is ready when the kernels up to it are done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from netfold.sim.workload.devices.cost import KINDS, OTHER, Kernel, StepCost
from netfold.sim.workload.devices.device import Device, Passes
from netfold.sim.workload.devices.hardware import Hardware, Precision
from netfold.units import PS_PER_S

_HALF: tuple[Precision, ...] = ("bf16", "fp16")


@dataclass(frozen=True)
class Curve:
    """Time by size, operations or bytes: a line between points, and from 0 to the first; beyond, its rate."""

    points: tuple[tuple[int, int], ...]  # (size, picoseconds), both rising

    def ps(self, size: int) -> int:
        """Time for a size, rounded up."""
        place = bisect_left(self.points, (size, 0))
        if place == len(self.points):  # beyond: the rate of the last point
            last, last_ps = self.points[-1]
            return -(-size * last_ps // last)
        end, end_ps = self.points[place]
        start, start_ps = self.points[place - 1] if place else (0, 0)
        return start_ps - (-(size - start) * (end_ps - start_ps) // (end - start))


def constant(per_s: int) -> Curve:
    """The times of one rate for all sizes, exact to a picosecond in a second."""
    return Curve(((per_s, PS_PER_S),))


@dataclass(frozen=True)
class RooflineDevice(Device):
    """Rates of a device; encoding, decoding and merging have their own, since they are other kernels."""

    name: str
    arithmetic: tuple[tuple[str, Curve], ...]  # of each kind of kernel whose operations are counted
    memory: Curve
    operator_ps: int  # to start a kernel of the passes
    codec_arithmetic: Curve
    codec_memory: Curve
    launch_ps: int  # and one of an encoding, a decoding or a merge
    is_serial: bool = False  # arithmetic waits for memory, so that their times add up
    is_half: bool = False  # tensors of the passes have two bytes an element, weights and sums four

    def compute_ps(self, flops: int, size_bytes: int) -> int:
        """The larger of the arithmetic time and the memory time."""
        return max(self.codec_arithmetic.ps(flops), self.codec_memory.ps(size_bytes))

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        """Time to move the bytes through memory."""
        return self.codec_memory.ps(read_bytes + written_bytes)

    def kernel_ps(self, kernel: Kernel) -> int:
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
        """One kernel that passes over weights, gradients and the optimizer's state, all in float32."""
        return self.operator_ps + self.memory.ps(cost.update_bytes) if cost.update_bytes else 0

    def _sum_ps(self, kernels: Sequence[Kernel]) -> int:
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
        """The larger of the arithmetic time and the memory time."""
        return max(-(-flops * PS_PER_S // self.flops_per_s), self.work_ps(size_bytes, 0))

    def work_ps(self, read_bytes: int, written_bytes: int) -> int:
        """Time to move the bytes through memory."""
        return -(-(read_bytes + written_bytes) * PS_PER_S // self.memory_bytes_per_s)

    def passes(self, cost: StepCost) -> Passes:
        """The larger of arithmetic and memory time of each pass; nothing is known of tensors."""
        return Passes(
            self.compute_ps(cost.forward_flops, cost.forward_bytes),
            self.compute_ps(cost.backward_flops, cost.backward_bytes),
        )


def peak_device(hardware: Hardware, launch_ps: int) -> PeakDevice:
    """A device at its peak rates in float32."""
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
