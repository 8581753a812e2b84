"""The table of devices against the vendors' data sheets."""

from __future__ import annotations

import pytest

from netfold.sim.workload.devices.hardware import HARDWARE, LINKS

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
