"""What devices without a model of hardware charge, and those of peak rates."""

from __future__ import annotations

import pytest

from netfold.homomorphic.message import Work
from netfold.sim.workload import StepCost
from netfold.sim.workload.devices.device import Passes, charge_ps
from netfold.sim.workload.devices.hardware import HARDWARE
from netfold.sim.workload.devices.kinds.fixed import FixedDevice, NoDevice
from netfold.sim.workload.devices.roofline import PeakDevice, peak_device

COST = StepCost(forward_flops=10**9, backward_flops=2 * 10**9, forward_bytes=10**8, backward_bytes=10**9)


def test_fixed_times_do_not_depend_on_the_model() -> None:
    assert NoDevice().passes(COST) == Passes(0, 0)
    assert NoDevice().work_ps(10**9, 10**9) == NoDevice().update_ps(StepCost(update_bytes=9)) == 0
    assert FixedDevice(7, 9).passes(COST) == FixedDevice(7, 9).passes(StepCost()) == Passes(7, 9)
    assert FixedDevice(7, 9).update_ps(StepCost(update_bytes=10**9)) == 0
    assert FixedDevice(7, 9, optimizer_ps=5).update_ps(StepCost()) == 5


def test_fixed_device_charges_other_work_to_memory_only() -> None:
    limited = FixedDevice(7, 9, memory_bps=7 * 10**12)

    assert FixedDevice(7, 9).work_ps(10**9, 10**9) == FixedDevice(7, 9).compute_ps(10**12, 10**9) == 0
    # 3 bytes at 7 bits/ps: 24/7 ps, rounded up
    assert limited.work_ps(1, 2) == limited.compute_ps(10**12, 3) == 4
    assert charge_ps(FixedDevice(0, 0, 10**12, 10), Work(1, 1, flops=10**15)) == 10 + 16
    assert charge_ps(FixedDevice(0, 0, None, 10), Work(1, 1)) == 10
    assert charge_ps(NoDevice(), Work(1, 1, 1, 1)) == 0


def test_peak_is_the_larger_of_arithmetic_and_memory() -> None:
    v100 = peak_device(HARDWARE["v100"], 0)

    # 1 GFLOP at 15.7 TFLOPS is 63.7 µs, 100 MB at 900 GB/s is 111.1 µs
    assert v100.compute_ps(10**9, 0) == -(-(10**9) * 10**12 // (157 * 10**11))
    assert v100.compute_ps(0, 10**8) == -(-(10**8) * 10**12 // (900 * 10**9))
    assert v100.compute_ps(0, 10**8) == v100.compute_ps(10**9, 10**8) == v100.work_ps(4 * 10**7, 6 * 10**7)
    passes = v100.passes(COST)
    assert (passes.forward_ps, passes.backward_ps) == (
        v100.compute_ps(10**9, 10**8),
        v100.compute_ps(2 * 10**9, 10**9),
    )
    assert passes.ready_ps == {}
    assert v100.update_ps(StepCost(update_bytes=10**9)) == 0


@pytest.mark.parametrize(
    ("work", "time_ps"),
    [
        (Work(), 0),  # nothing, whatever it would launch
        (Work(launches=4), 0),
        (Work(1, 0), 1000 + 8),  # a launch, and a byte at a terabit per second
        (Work(3, 4, launches=5), 5 * 1000 + 56),
        (Work(3, 4, flops=112, launches=2), 2 * 1000 + 56),  # as long as its bytes
        (Work(3, 4, flops=113, launches=2), 2 * 1000 + 57),  # at two per picosecond, rounded up
        (Work(flops=1, launches=0), 1),
    ],
)
def test_charged_work_is_launches_and_the_longer_of_arithmetic_and_memory(work: Work, time_ps: int) -> None:
    device = PeakDevice("test", 2 * 10**12, 10**12 // 8, launch_ps=1000)

    assert charge_ps(device, work) == time_ps
