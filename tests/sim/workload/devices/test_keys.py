"""What a scenario may say of a device, and what it becomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from netfold.sim.run.named_files import input_paths
from netfold.sim.scenario import load
from netfold.sim.workload.devices.calibrated import FORMAT
from netfold.sim.workload.devices.cost import MATMUL, Kernel, StepCost
from netfold.sim.workload.devices.device import Device, Passes
from netfold.sim.workload.devices.hardware import HARDWARE, LINKS
from netfold.sim.workload.devices.host_codec import HostCodec
from netfold.sim.workload.devices.kinds.fixed import NoDevice
from netfold.sim.workload.devices.kinds.measured import NOTE
from netfold.sim.workload.devices.roofline import RooflineDevice, peak_device, roofline_device
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
    assert calibrated.kernel_ps(Kernel(MATMUL, 10, 100)) == 2000 + 5000 + 1000  # one after the other
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
