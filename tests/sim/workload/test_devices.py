"""Devices: their keys, what a roofline says of a layer, what encoding costs, how times vary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.merge import Work
from netfold.homomorphic.message import Tensor
from netfold.sim.run.named_files import input_paths
from netfold.sim.scenario.load import load
from netfold.sim.workload.device_rooflines import (
    CONVOLUTION,
    FORMAT,
    HARDWARE,
    KINDS,
    LINKS,
    MATMUL,
    OTHER,
    STEADY,
    Curve,
    Device,
    Jitter,
    KernelCost,
    Passes,
    PeakDevice,
    RooflineDevice,
    Stage,
    StepCost,
    Variation,
    charge_ps,
    constant,
    peak_device,
    roofline_device,
)
from netfold.sim.workload.devices import NOTE, FixedDevice, HostCodec, NoDevice
from tests.sim.scenes import TINY, job_plan, only, plan, refused, write

CPU: Mapping[str, Any] = {
    "format": FORMAT,
    "name": "mine",
    "launch_ns": 2,
    "arithmetic": {"matmul": [[10, 5]], "convolution": [[10, 6]], "convolution_backward": [[10, 7]]},
    "memory": [[100, 1], [1000, 20.5]],
    "codec": {"launch_ns": 3, "arithmetic": [[10, 1]], "memory": [[10, 4]]},
}
TRACE: Mapping[str, Any] = {
    "res": {"fwd_ms": 2.5, "bwd_ms": 4.5, "layer_density1": {}},
    "order": [["fc.bias", 1.0, 10], ["fc.weight", 1.25, 200], ["conv.weight", 4.0, 90]],
}
FIXED = "{kind: fixed, forward: 1us, backward: 1us,"
TENSORS = (
    'workload={kind: synthetic, elements: null, tensors: ["fc.bias=10", "fc.weight=10x20", "conv.weight=90"]}'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cpu.json").write_text(json.dumps(CPU))
    (tmp_path / "none.json").write_text("{")
    (tmp_path / "trace.json").write_text(json.dumps(TRACE))
    return tmp_path


def device(folder: Path, *sets: str) -> Device:
    return job_plan(only(folder, *sets)).device


@pytest.mark.parametrize("name", HARDWARE)
def test_a_name_alone_is_a_device_of_the_table(folder: Path, name: str) -> None:
    found = roofline_device(HARDWARE[name], "fp32")

    assert device(folder, f"device={name}") == found
    assert device(folder, "device.kind=roofline", f"device.name={name}") == found


def test_options_of_a_device_of_the_table(folder: Path) -> None:
    keys = "precision: tf32, efficiency: 50%, memory_efficiency: 0.25, launch: 3us"
    found = device(folder, f"device={{kind: roofline, name: a100, {keys}}}")
    workload = "workload={kind: training, model: mlp, batch: 4}"

    assert found == roofline_device(HARDWARE["a100"], "tf32", 0.5, 0.25, 3_000_000)
    assert NOTE in job_plan(only(folder, workload, "device={kind: measured}")).warnings
    assert NOTE not in job_plan(only(folder, workload, "device=a100")).warnings


def test_short_forms(folder: Path) -> None:
    calibrated = device(folder, "device=cpu.json")

    assert device(folder, "device=none") == device(folder) == NoDevice()
    assert isinstance(calibrated, RooflineDevice)
    assert calibrated == device(folder, "device={kind: roofline, file: cpu.json}")
    assert calibrated.kernel_ps(KernelCost(MATMUL, 10, 100)) == 2000 + 5000 + 1000  # one after the other
    assert (calibrated.launch_ps, calibrated.work_ps(5, 5)) == (3000, 4000)


def test_variants_replace_the_device_whatever_its_key(folder: Path) -> None:
    text = TINY + "device: v100\nvariants:\n  - {name: a, device: cpu.json}\n  - {name: b, device: none}\n"
    text += "  - {name: c, device: {kind: roofline, model: t4}}\n  - {name: d, device: {precision: fp16}}\n"
    found = [job_plan(one).device for one in plan(folder, text=text).variants]

    assert found == [
        device(folder, "device=cpu.json"),
        NoDevice(),
        peak_device(HARDWARE["t4"], 0),
        roofline_device(HARDWARE["v100"], "fp16"),
    ]


def test_a_codec_on_the_host(folder: Path) -> None:
    a100 = roofline_device(HARDWARE["a100"], "fp32")
    plain = "device={kind: roofline, name: a100, codec: host}"
    other = "device={kind: roofline, name: a100, codec: host, host: cpu.json, link: pcie3}"
    files = "device={kind: roofline, file: cpu.json, codec: host, host: trace.json, link: pcie3}"

    assert device(folder, plain) == HostCodec(
        a100, roofline_device(HARDWARE["cpu_socket"], "fp32"), LINKS["pcie4"]
    )
    assert device(folder, other) == HostCodec(a100, device(folder, "device=cpu.json"), LINKS["pcie3"])
    assert "overlap.encode" in refused(folder, plain, "overlap.encode=on_device")  # it runs in one place
    assert input_paths(load(write(folder), (files,))) == {"cpu.json", "trace.json"}


def test_a_recording_gives_the_times_of_tensors(folder: Path) -> None:
    found = device(folder, TENSORS, "device={kind: trace, path: trace.json, optimizer: 1us}")
    ready = {"fc.bias": 10**9, "fc.weight": 1_250_000_000, "conv.weight": 4 * 10**9}

    assert found.passes(StepCost()) == Passes(2_500_000_000, 4_500_000_000, ready)
    assert found.update_ps(StepCost()) == 10**6
    given = device(folder, TENSORS, "device={kind: trace, path: trace.json, forward: 7ns}")
    assert given.passes(StepCost()).forward_ps == 7000


def test_stragglers_and_jitter(folder: Path) -> None:
    keys = "jitter: {kind: gamma, spread: 10%}, slow: [{worker: 2, factor: 1.5}]"
    found = job_plan(only(folder, f"device={FIXED} {keys}}}")).variation

    assert found.jitter is not None
    assert (found.jitter.kind, found.jitter.spread, found.slow) == ("gamma", 0.1, ((2, 1.5),))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("{kind: roofline}", "the key 'name' is missing"),
        ("{kind: roofline, name: a100, model: v100}", "name and model are given"),
        ("{kind: roofline, name: a1000}", "'a1000'"),
        ("{kind: roofline, model: v100, precision: fp16}", "precision is given with model"),
        ("{kind: roofline, name: v100, precision: tf32}", "NVIDIA V100, SXM2 has no rate for tf32"),
        ("{kind: roofline, name: v100, efficiency: 0}", "efficiency"),
        ("{kind: roofline, name: v100, host: cpu_core}", "the codec runs on the device"),
        ("{kind: roofline, name: cpu_core, codec: host}", "runs on the host already"),
        ("{kind: roofline, name: v100, codec: host, host: t4}", "NVIDIA T4, 16 GB is no host"),
        ("{kind: roofline, name: v100, codec: host, host: cpu_cor}", "cpu_cor"),
        ("missing.json", "there is no such file"),
        ("trace.json", "is no device file"),
        ("{kind: measured}", "nothing is trained"),
        ("{kind: trace, path: cpu.json}", "has no list 'order'"),
        ("{kind: trace, path: nope.json}", "cannot read 'nope.json': there is no such file"),
        ("{kind: trace, path: none.json}", "none.json: is not JSON"),
        ("{kind: trace, path: trace.json}", "has no tensor 'part0'"),
        (f"{FIXED} slow: [{{worker: 3, factor: 2}}]}}", "there is no worker 3"),
        (f"{FIXED} slow: [{{worker: 1, factor: 0.5}}]}}", "factor"),
        (
            f"{FIXED} slow: [{{worker: 1, factor: 2}}, {{worker: 1, factor: 3}}]}}",
            "slow names worker 1 twice",
        ),
    ],
)
def test_mistakes_are_told(folder: Path, keys: str, says: str) -> None:
    found = refused(folder, f"device={keys}")

    assert says in found
    assert "device" in found


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"order": []}, "has no list 'order'"),
        ({"order": [["fc.bias", 1.0]]}, "tensor 0: cannot read"),
        ({"order": [["fc.bias", 1.0, 10], ["fc.bias", 2.0, 10]]}, "appears twice"),
        ({"order": [["fc.bias", 1.0, 10], ["fc.weight", 0.5, 200]]}, "ready before the tensor before it"),
        ({"order": [["fc.bias", -1, 10]]}, "tensor 0: cannot read"),
        ({"order": [["fc.bias", 1, 11], *TRACE["order"][1:]]}, "fc.bias has 11 elements, in the workload 10"),
        ({"res": {"bwd_ms": 3}}, "has no time of the forward pass"),
        ({"res": {"fwd_ms": 1e300}}, "res.fwd_ms: must be milliseconds, 0 to 1e+09"),
        ({"res": {"fwd_ms": "2"}}, "res.fwd_ms: must be milliseconds"),
    ],
)
def test_broken_recordings_are_told(folder: Path, change: dict[str, Any], says: str) -> None:
    (folder / "trace.json").write_text(json.dumps({**TRACE, **change}))

    assert says in refused(folder, TENSORS, "device={kind: trace, path: trace.json}")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "other"}, "'format' must be"),
        ({"memory": []}, "'memory' must be a list"),
        ({"memory": [[100, 2], [100, 3]]}, "sizes must rise"),
        ({"memory": [[100, 2], [200, 1]]}, "times not fall"),
        ({"memory": [[100, 0]]}, "must take some time"),
        ({"memory": [[0, 1]]}, "a point is written"),
        ({"launch_ns": -1}, "0 to 1e+15, found -1"),
        ({"launch_ns": 1e306}, "a time is a number"),
        ({"launch_ns": 10**400}, "a time is a number"),
        ({"memory": [[10**400, 1]]}, "a point is written"),
        ({"launch_ns": True}, "a time is a number"),
        ({"arithmetic": {"matmul": [[1, 1]]}}, "'arithmetic.convolution' must be a list"),
        ({"codec": None}, "must be objects"),
        ({"name": 5}, "'name' must be text"),
    ],
)
def test_broken_device_files_are_told(folder: Path, change: dict[str, Any], says: str) -> None:
    (folder / "cpu.json").write_text(json.dumps({**CPU, **change}))

    assert says in refused(folder, "device=cpu.json")


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
        (KernelCost(OTHER, 0, 40), 100 + 40),
        (KernelCost(MATMUL, 80, 40), 100 + 40),  # as long as its bytes
        (KernelCost(MATMUL, 81, 40), 100 + 41),  # rounded up
        (KernelCost(CONVOLUTION, 81, 40), 100 + 81),
        (KernelCost(OTHER, 0, 0), 100),
    ],
)
def test_a_kernel_takes_its_start_and_the_longer_of_arithmetic_and_memory(
    kernel: KernelCost, time_ps: int
) -> None:
    assert FAST.kernel_ps(kernel) == time_ps
    assert charge_ps(FAST, Work(10, 20, 80, launches=2)) == 2 * 30 + 60  # codecs have rates of their own
    assert charge_ps(FAST, Work(10, 20, 400)) == 30 + 100


def test_a_gradient_is_ready_when_the_kernels_up_to_it_are_done() -> None:
    cost = StepCost(
        forward=(KernelCost(OTHER, 0, 10), KernelCost(MATMUL, 100, 0)),
        backward=(
            Stage("last", (KernelCost(MATMUL, 200, 0), KernelCost(OTHER, 0, 7))),
            Stage("bias", ()),
            Stage("first", (KernelCost(OTHER, 0, 50),)),
            Stage("", (KernelCost(OTHER, 0, 3),)),
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
    kernel = KernelCost(OTHER, 0, 1555 * GIGA)

    assert single.kernel_ps(kernel) == 2 * half.kernel_ps(kernel) == 10**12
    update = StepCost(update_bytes=1555 * GIGA)
    assert single.update_ps(update) == half.update_ps(update) == 10**12
    assert single.work_ps(1555 * GIGA, 0) == half.work_ps(1555 * GIGA, 0) == 10**12


def test_codecs_on_processors_reach_a_share_of_the_memory_rate() -> None:
    core = roofline_device(HARDWARE["cpu_core"], "fp32")

    assert core.work_ps(10**9, 0) == pytest.approx(1e12 / (204.8 * 0.1 * 0.4))
    assert core.memory.ps(10**9) == pytest.approx(1e12 / (204.8 * 0.1))


def test_shares_of_the_table_and_of_the_scenario() -> None:
    device, product = partial(roofline_device, HARDWARE["a100"]), KernelCost(MATMUL, 312 * 10**12, 0)

    assert device("bf16", launch_ps=0).kernel_ps(product) == pytest.approx(1e12 / 0.87)
    assert device("bf16", 0.5, launch_ps=0).kernel_ps(product) == 2 * 10**12
    copied = KernelCost(OTHER, 0, 1555 * GIGA)
    assert device("bf16", 0.5, 0.25, 0).kernel_ps(copied) == 2 * 4 * 10**12 // 4
    assert device("fp32").kernel_ps(KernelCost(OTHER, 0, 0)) == 5_000_000


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
    device = HostCodec(
        FAST, FixedDevice(forward_ps=0, backward_ps=0, memory_bps=8 * GIGA, launch_ps=7), LINKS["pcie4"]
    )

    assert charge_ps(device, Work(1, 1)) == 7 + 2000
    assert device.passes(StepCost(forward=(KernelCost(OTHER, 0, 10),))).forward_ps == 110
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


COST = StepCost(forward_flops=10**9, backward_flops=2 * 10**9, forward_bytes=10**8, backward_bytes=10**9)


def test_fixed_times_do_not_depend_on_the_model() -> None:
    assert NoDevice().passes(COST) == Passes(0, 0)
    assert NoDevice().work_ps(10**9, 10**9) == NoDevice().update_ps(StepCost(update_bytes=9)) == 0
    assert (
        FixedDevice(forward_ps=7, backward_ps=9).passes(COST)
        == FixedDevice(forward_ps=7, backward_ps=9).passes(StepCost())
        == Passes(7, 9)
    )
    assert FixedDevice(forward_ps=7, backward_ps=9).update_ps(StepCost(update_bytes=10**9)) == 0
    assert FixedDevice(forward_ps=7, backward_ps=9, optimizer_ps=5).update_ps(StepCost()) == 5


def test_fixed_device_charges_other_work_to_memory_only() -> None:
    limited = FixedDevice(forward_ps=7, backward_ps=9, memory_bps=7 * 10**12)

    assert (
        FixedDevice(forward_ps=7, backward_ps=9).work_ps(10**9, 10**9)
        == FixedDevice(forward_ps=7, backward_ps=9).compute_ps(10**12, 10**9)
        == 0
    )
    # 3 bytes at 7 bits/ps: 24/7 ps, rounded up
    assert limited.work_ps(1, 2) == limited.compute_ps(10**12, 3) == 4
    assert (
        charge_ps(
            FixedDevice(forward_ps=0, backward_ps=0, memory_bps=10**12, launch_ps=10),
            Work(1, 1, flops=10**15),
        )
        == 10 + 16
    )
    assert (
        charge_ps(FixedDevice(forward_ps=0, backward_ps=0, memory_bps=None, launch_ps=10), Work(1, 1)) == 10
    )
    assert charge_ps(NoDevice(), Work(1, 1, 1, 1)) == 0


def test_peak_is_the_larger_of_arithmetic_and_memory() -> None:
    v100 = peak_device(HARDWARE["v100"], 0)

    # 1 GFLOP at 15.7 TFLOPS is 63.7 µs, 100 MB at 900 GB/s is 111.1 µs
    assert v100.compute_ps(10**9, 0) == -(-(10**9) * 10**12 // (157 * 10**11))
    assert v100.compute_ps(0, 10**8) == -(-(10**8) * 10**12 // (900 * 10**9))
    assert v100.compute_ps(0, 10**8) == v100.compute_ps(10**9, 10**8) == v100.work_ps(4 * 10**7, 6 * 10**7)
    assert v100.passes(COST) == Passes(v100.compute_ps(10**9, 10**8), v100.compute_ps(2 * 10**9, 10**9))
    assert v100.passes(COST).ready_ps == {}
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


@pytest.mark.parametrize(("kind", "skewness"), [("lognormal", 1.625), ("gamma", 1.0)])
def test_factors_have_the_moments_of_their_distribution(
    kind: Literal["lognormal", "gamma"], skewness: float
) -> None:
    """Skewness of a lognormal is (e^{s²} + 2)·√(e^{s²} − 1), of a gamma twice the spread."""
    variation = Variation(Jitter(kind=kind, spread=0.5))
    found = np.array(
        [float(variation.factor(3, worker, step)) for worker in range(4) for step in range(2500)]
    )
    few = [float(Variation(Jitter(kind=kind, spread=0.1)).factor(7, 0, step)) for step in range(1000)]

    assert found.min() > 0
    assert found.mean() == pytest.approx(1, abs=4 * 0.5 / 10_000**0.5)
    assert found.std() == pytest.approx(0.5, rel=0.05)
    assert ((found - found.mean()) ** 3).mean() / found.std() ** 3 == pytest.approx(skewness, rel=0.18)
    assert (np.mean(few), np.std(few)) == (pytest.approx(1, abs=0.015), pytest.approx(0.1, rel=0.1))


def test_draws_are_keyed_by_seed_job_worker_and_step() -> None:
    variation = Variation(Jitter(kind="gamma", spread=0.3))
    keys = [(seed, worker, step) for seed in range(3) for worker in range(3) for step in range(3)]
    found = [variation.factor(*key) for key in keys]

    assert len(set(found)) == len(keys)
    assert found == [variation.factor(*key) for key in keys]
    assert variation.factor(1, 1, 1) != Variation(Jitter(kind="gamma", spread=0.3), job=1).factor(1, 1, 1)
    small, large = (Variation(Jitter(kind="lognormal", spread=one)).factor(1, 1, 1) for one in (0.1, 0.2))
    assert (small > 1) == (large > 1) or abs(small - 1) < Fraction(1, 50)


def test_slow_workers_are_slower_in_every_step() -> None:
    variation = Variation(None, ((2, 1.5), (0, 4.0)))

    assert [variation.factor(1, worker, 5) for worker in range(4)] == [4, 1, Fraction(3, 2), 1]
    assert STEADY.factor(1, 2, 3) == 1
    assert Variation(Jitter(kind="gamma", spread=0.0)).factor(1, 2, 3) == 1
