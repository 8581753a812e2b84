"""Times of counted kernels against sums by hand, and the table of devices against data sheets."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.message import Work
from netfold.homomorphic.round import Tensor
from netfold.sim.workload.devices.cost import CONVOLUTION, KINDS, MATMUL, OTHER, Kernel, Stage, StepCost
from netfold.sim.workload.devices.device import Passes, charge_ps
from netfold.sim.workload.devices.hardware import HARDWARE, LINKS
from netfold.sim.workload.devices.host_codec import HostCodec
from netfold.sim.workload.devices.kinds.fixed import FixedDevice
from netfold.sim.workload.devices.roofline import Curve, RooflineDevice, constant, roofline_device

GIGA = 10**9
FAST = RooflineDevice(  # 2 operations and 1 byte a picosecond; convolutions half as fast; 100 ps a kernel
    "test",
    tuple((kind, constant(10**12 if kind == CONVOLUTION else 2 * 10**12)) for kind in KINDS),
    constant(10**12),
    100,
    constant(4 * 10**12),
    constant(5 * 10**11),
    30,
)


@pytest.mark.parametrize(
    ("kernel", "time_ps"),
    [
        (Kernel(OTHER, 0, 40), 100 + 40),
        (Kernel(MATMUL, 80, 40), 100 + 40),  # as long as its bytes
        (Kernel(MATMUL, 81, 40), 100 + 41),  # rounded up
        (Kernel(CONVOLUTION, 81, 40), 100 + 81),
        (Kernel(OTHER, 0, 0), 100),
    ],
)
def test_a_kernel_takes_its_start_and_the_longer_of_arithmetic_and_memory(
    kernel: Kernel, time_ps: int
) -> None:
    assert FAST.kernel_ps(kernel) == time_ps
    assert charge_ps(FAST, Work(10, 20, 80, launches=2)) == 2 * 30 + 60  # codecs have rates of their own
    assert charge_ps(FAST, Work(10, 20, 400)) == 30 + 100


def test_a_gradient_is_ready_when_the_kernels_up_to_it_are_done() -> None:
    cost = StepCost(
        forward=(Kernel(OTHER, 0, 10), Kernel(MATMUL, 100, 0)),
        backward=(
            Stage("last", (Kernel(MATMUL, 200, 0), Kernel(OTHER, 0, 7))),
            Stage("bias", ()),
            Stage("first", (Kernel(OTHER, 0, 50),)),
            Stage("", (Kernel(OTHER, 0, 3),)),
        ),
        update_bytes=24,
    )
    found = FAST.passes(cost)

    assert found.forward_ps == 110 + 150
    assert found.ready_ps == {"last": 307, "bias": 307, "first": 457}
    assert found.backward_ps == 457 + 103
    assert FAST.update_ps(cost) == 124
    assert FAST.update_ps(StepCost()) == 0


def test_half_precision_moves_half_the_bytes_of_passes_and_whole_weights() -> None:
    single, half = (roofline_device(HARDWARE["a100"], one, 1, 1, 0) for one in ("tf32", "bf16"))
    kernel = Kernel(OTHER, 0, 1555 * GIGA)

    assert single.kernel_ps(kernel) == 2 * half.kernel_ps(kernel) == 10**12
    update = StepCost(update_bytes=1555 * GIGA)
    assert single.update_ps(update) == half.update_ps(update) == 10**12
    assert single.work_ps(1555 * GIGA, 0) == half.work_ps(1555 * GIGA, 0) == 10**12


def test_codecs_on_processors_reach_a_share_of_the_memory_rate() -> None:
    core = roofline_device(HARDWARE["cpu_core"], "fp32")

    assert core.work_ps(10**9, 0) == pytest.approx(1e12 / (204.8 * 0.1 * 0.4))
    assert core.memory.ps(10**9) == pytest.approx(1e12 / (204.8 * 0.1))


def test_shares_of_the_table_and_of_the_scenario() -> None:
    product = Kernel(MATMUL, 312 * 10**12, 0)

    assert roofline_device(HARDWARE["a100"], "bf16", launch_ps=0).kernel_ps(product) == pytest.approx(
        1e12 / 0.87
    )
    assert roofline_device(HARDWARE["a100"], "bf16", 0.5, launch_ps=0).kernel_ps(product) == 2 * 10**12
    copied = Kernel(OTHER, 0, 1555 * GIGA)
    assert roofline_device(HARDWARE["a100"], "bf16", 0.5, 0.25, 0).kernel_ps(copied) == 2 * 4 * 10**12 // 4
    assert roofline_device(HARDWARE["a100"], "fp32").kernel_ps(Kernel(OTHER, 0, 0)) == 5_000_000


points = st.lists(st.tuples(st.integers(1, 10**12), st.integers(0, 10**12)), min_size=1, max_size=6)


@given(points, st.integers(0, 2 * 10**12), st.integers(0, 2 * 10**12))
def test_more_never_takes_less_and_points_are_exact(raw: list[tuple[int, int]], one: int, other: int) -> None:
    sizes, times = sorted({size for size, _ in raw}), sorted(time_ps for _, time_ps in raw)
    curve = Curve(tuple(zip(sizes, times, strict=False)))

    assert curve.ps(0) == 0
    line = Curve(((10, 100), (20, 120)))  # beyond the last point, its rate
    assert [line.ps(size) for size in (5, 10, 11, 15, 20, 40)] == [50, 100, 102, 110, 120, 240]
    assert all(curve.ps(size) == time_ps for size, time_ps in curve.points)
    low, high = sorted((one, other))
    assert curve.ps(low) <= curve.ps(high) + (high > curve.points[-1][0] > low)


def test_a_codec_on_the_host_pays_copies_and_the_rates_of_the_host() -> None:
    device = HostCodec(FAST, FixedDevice(0, 0, 8 * GIGA, 7), LINKS["pcie4"])

    assert charge_ps(device, Work(1, 1)) == 7 + 2000
    assert device.passes(StepCost(forward=(Kernel(OTHER, 0, 10),))).forward_ps == 110
    assert device.update_ps(StepCost(update_bytes=10)) == 110
    rate = Fraction(31_508_000_000 * 4, 5)
    assert device.copy_ps(10**9) == 10**7 + -(-(10**9) * 10**12 // round(rate))
    assert FAST.copy_ps(10**9) == 0


def test_a_bucket_is_ready_with_its_last_tensor() -> None:
    tensors = [Tensor("a", (1,), "a"), Tensor("b", (1,), "b")]

    assert Passes(0, 100, {"a": 40, "b": 30, "c": 90}).bucket_ps(tensors, 0.99) == 40
    assert Passes(0, 100, {"a": 40}).bucket_ps(tensors, 0.55) == 55
    assert Passes(0, 100).bucket_ps(tensors, 0.999) == 99
    assert Passes(0, 100).bucket_ps([], 0.5) == 50


def test_shares_of_layers() -> None:
    tensors = [Tensor("1.bias", (1,), "1"), Tensor("1.weight", (1,), "1"), Tensor("alone", (1,), "")]
    passes = Passes(7, 200, {"1.bias": 50, "1.weight": 40, "alone": 200})

    assert passes.layer_shares(tensors) == (("1", 0.25), ("alone", 1.0))
    assert Passes(7, 200).layer_shares(tensors) == ()
    assert Passes(7, 0, {"alone": 0}).layer_shares(tensors) == ()


# TFLOPS in FP32, TF32, BF16 and FP16 (dense), GB/s, PCIe generation
SHEETS = {
    "p100": (10.6, None, None, 21.2, 732, 3),
    "t4": (8.1, None, None, 65, 300, 3),
    "v100": (15.7, None, None, 125, 900, 3),
    "a100": (19.5, 156, 312, 312, 1555, 4),
    "h100": (67, 494.7, 989.4, 989.4, 3350, 5),
    "b200": (80, 1125, 2250, 2250, 8000, 5),
    "cpu_core": (0.112, None, None, None, 204.8, None),  # 3.5 GHz · 2 · 8 · 2 operations
    "cpu_socket": (5.0176, None, None, None, 204.8, None),  # 2.45 GHz · 64 cores
}


@pytest.mark.parametrize("name", HARDWARE)
def test_peaks_are_those_of_the_data_sheet_and_every_number_has_its_source(name: str) -> None:
    device = HARDWARE[name]
    *tera_flops, gigabytes_per_s, generation = SHEETS[name]

    found = [device.arithmetic.get(precision) for precision in ("fp32", "tf32", "bf16", "fp16")]
    assert [rate and rate.peak / 1e12 for rate in found] == pytest.approx(tera_flops)
    assert device.memory.peak / 1e9 == gigabytes_per_s
    assert device.link == (f"pcie{generation}" if generation else None)
    assert name == device.name
    for rate in (*device.arithmetic.values(), device.memory):
        assert 0 < rate.share <= 1
        assert rate.source.startswith(("measured: ", "assumed"))
    assert device.launch_ps > 0
    assert device.launch_source.startswith("assumed")
    assert device.source.startswith(("NVIDIA ", "AMD "))


@pytest.mark.parametrize(("name", "giga_transfers"), [("pcie3", 8), ("pcie4", 16), ("pcie5", 32)])
def test_links_have_sixteen_lanes_with_128_of_130_bits(name: str, giga_transfers: int) -> None:
    assert LINKS[name].bytes_per_s == pytest.approx(16 * giga_transfers * 1e9 / 8 * 128 / 130, rel=1e-4)


@pytest.mark.parametrize(("name", "reached"), [("a100", 271.2), ("h100", 792.1), ("b200", 1745)])
def test_published_products_of_matrices(name: str, reached: float) -> None:
    """TFLOPS in BF16 that were measured: the share is theirs, to one percent of the peak."""
    rate = HARDWARE[name].arithmetic["bf16"]

    assert rate.peak * rate.share / 1e12 == pytest.approx(reached, abs=0.01 * rate.peak / 1e12)
