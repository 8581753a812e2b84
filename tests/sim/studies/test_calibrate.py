"""Calibration of this machine: what does not depend on its speed, and how well it predicts real steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import netfold
from netfold.errors import NetfoldError
from netfold.sim.studies import calibrate as kernels
from netfold.sim.studies import calibrate as timing
from netfold.sim.studies.calibrate import AGREES, Calibration, CodecRate, mean_bytes_per_ns
from netfold.sim.workload.device_rooflines import KINDS, MATMUL, OTHER, KernelCost, read_device
from tests.command_line import run_command
from tests.examples import nightly
from tests.sim.scenes import job_plan, only


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A device file of this machine, of few sizes."""
    path, threads = tmp_path_factory.mktemp("calibrated") / "cpu.json", torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "_BUDGET_NS", 1_000_000)
        for name in ("_PRODUCTS", "_CONVOLUTIONS", "_STREAMED"):
            patch.setattr(kernels, name, getattr(kernels, name)[:4])
        for _ in range(5):  # other tests run meanwhile, and a machine that is too busy is refused
            result = run_command("calibrate", path)
            if "calibrate while nothing else runs" not in result.output:
                break
    assert result.exit_code == 0, result.output
    assert f"Device file: {path}" in result.output
    assert result.output.count("predicted") == 3
    assert torch.get_num_threads() == threads
    return path


@pytest.mark.slow  # it measures real steps of three models
def test_the_file_is_a_device(file: Path) -> None:
    found = json.loads(file.read_text())
    device = job_plan(only(file.parent, "device=cpu.json")).device

    assert device == read_device(file.read_text())
    assert found["threads"] == 1
    assert found["torch"] == torch.__version__
    codecs = {one.partition(",")[0] for one in found["codecs"]}
    assert codecs == {"fixed_point", "packed", "lossless", "topk", "fp16"}
    assert set(found["arithmetic"]) == set(KINDS)


def test_rates_are_those_of_a_processor(file: Path) -> None:
    """Wide limits: a core does 1 to 1000 operations a nanosecond, and moves 0.5 to 500 bytes."""
    device = read_device(file.read_text())
    product, stream = KernelCost(MATMUL, 2 * 10**8, 0), KernelCost(OTHER, 0, 3 * 10**7)

    assert 1 < product.flops * 1000 / device.kernel_ps(product) < 1000
    assert 0.5 < stream.size_bytes * 1000 / device.kernel_ps(stream) < 500
    assert 100_000 < device.kernel_ps(KernelCost(OTHER, 0, 0)) < 10**9  # a call: 0.1 µs to 1 ms


@nightly  # on a busy machine calibration is repeated
def test_predictions_of_real_steps_are_near(tmp_path: Path) -> None:
    """Within the share that the command states, at best of three: others use the same cores and caches."""
    from netfold.sim.studies.calibrate import calibrate

    found = []
    for _ in range(3):
        checks = calibrate(1, lambda what: None).checks
        found.append({one.model: one.ratio for one in checks})
        if all(abs(one.ratio - 1) <= AGREES for one in checks):
            return
    pytest.fail(f"predicted over measured: {found}")


def test_python_writes_the_same_kind_of_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Calibration("{}\n", [], [])
    monkeypatch.setattr("netfold.sim.studies.calibrate.calibrate", lambda threads, report: found)

    assert netfold.calibrate(tmp_path / "cpu.json", threads=2) == tmp_path / "cpu.json"
    assert (tmp_path / "cpu.json").read_text() == "{}\n"
    with pytest.raises(netfold.NetfoldError, match=r"device files end in \.json"):
        netfold.calibrate(tmp_path / "cpu.yaml")
    result = run_command("calibrate", "cpu.yaml")
    assert (result.exit_code, "device files end in .json" in result.output) == (2, True)


def test_the_least_time_of_calls_that_take_known_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that a call moves on by 50 µs, every seventh time by much more: batches of 4 meet the rest."""
    now_ns, calls = 0, 0

    def clock() -> int:
        return now_ns

    def call() -> None:
        nonlocal now_ns, calls
        calls += 1
        now_ns += 50_000 if calls % 7 else 10_000_000

    monkeypatch.setattr("netfold.sim.studies.calibrate.time.thread_time_ns", clock)
    monkeypatch.setattr("netfold.sim.studies.calibrate.time.perf_counter_ns", clock)

    assert timing.least_ns(call) == 50_000


def test_rules_of_a_calibration() -> None:
    """Points that do not rise are left out, times are calls and memory, and time weighs a codec."""
    points = [(30, 5.0), (10, 2.0), (20, 1.5), (5, 0.0), (40, 6.0), (40, 7.0)]
    both = [KernelCost(OTHER, 0, 50), KernelCost(MATMUL, 10**9, 100)]

    assert kernels.rising(points) == [(10, 2.0), (30, 5.0), (40, 6.0)]
    with pytest.raises(NetfoldError, match="cannot be measured now"):  # other work made the calls slow
        kernels.rising([(10, 0.0), (20, 0.0)])
    assert kernels.known_ns(both, 3.0, kernels.curve([(100, 10.0)])) == 3 + 5 + 3 + 10
    assert mean_bytes_per_ns([CodecRate("a", 1, 900, 100.0), CodecRate("b", 1, 100, 900.0)]) == 1.0
