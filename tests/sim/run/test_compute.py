"""Whole runs on devices: what they record, and what they say of compute."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from netfold.sim.report.html import build_report
from netfold.sim.report.table import results_table
from netfold.sim.results import load
from netfold.sim.workload.devices.hardware import HARDWARE
from netfold.sim.workload.devices.kinds.measured import NOTE
from tests.sim.scenes import TINY, run, simulate

TRAINED = TINY.replace(
    "  kind: synthetic\n  elements: 1000\n",
    "  {kind: training, model: mlp, batch: 8, steps: 2, bucket: 4KiB}\n",
)
NO_TIME = "compute takes no time"


def test_results_say_where_compute_takes_no_time(tmp_path: Path) -> None:
    text = TRAINED + "variants:\n  - name: none\n  - {name: some, device: a100}\n"
    outcome = run(tmp_path, text=text)
    summary = load(outcome.run_dir or tmp_path).summary
    none, some = summary["variants"]

    assert none["metrics"]["compute_time_us"] == 0
    assert none["compute"] == NO_TIME
    assert some["metrics"]["compute_time_us"] > 0
    assert "compute" not in some
    with (shown := Console(width=300)).capture() as printed:
        shown.print(results_table(summary))
    assert f"{NO_TIME} in none:" in printed.get()
    page = build_report(outcome.run_dir or tmp_path).read_text()
    assert page.count("(aggregation alone)") == 1


def test_passes_and_updates_are_recorded(tmp_path: Path) -> None:
    """The update moves 12 bytes a weight, at what is reached of the memory's rate."""
    found = simulate(tmp_path, "device=a100", text=TRAINED)
    updates = [one for one in found.phases if one.phase == "update"]
    row = HARDWARE["a100"]
    moved_ps = 12 * (64 * 128 + 128 + 128 * 10 + 10) * 1e12 / (row.memory.peak * row.memory.share)

    assert len(updates) == 3 * 2
    assert all(one.end_ps - one.start_ps == pytest.approx(row.launch_ps + moved_ps, abs=2) for one in updates)
    first, second = found.steps
    assert first.end_ps == second.start_ps == max(one.end_ps for one in updates if one.step == 0)
    assert first.end_ps > first.aggregation_end_ps


def test_layers_are_ready_after_their_kernels_and_not_by_their_bytes(tmp_path: Path) -> None:
    """The first bucket, the output layer with a seventh of the weights, takes more than half of backward."""
    found = simulate(tmp_path, "device=a100", text=TRAINED)
    step, first = found.steps[0], min(one.start_ps for one in found.rounds if one.step == 0)
    share = (first - step.forward_end_ps) / (step.backward_end_ps - step.forward_end_ps)

    assert 0.5 < share < 0.9
    even = simulate(tmp_path, "device={kind: roofline, model: a100}", text=TRAINED)
    first = min(one.start_ps for one in even.rounds if one.step == 0)
    step = even.steps[0]
    share = (first - step.forward_end_ps) / (step.backward_end_ps - step.forward_end_ps)
    assert share == pytest.approx((1280 + 10) / (8192 + 128 + 1280 + 10), abs=0.01)


def test_a_recording_sets_the_pace(tmp_path: Path) -> None:
    order = [["2.bias", 1, 10], ["2.weight", 2, 1280], ["0.bias", 10, 128], ["0.weight", 11, 8192]]
    (tmp_path / "t.json").write_text(json.dumps({"res": {"fwd_ms": 3, "bwd_ms": 12}, "order": order}))
    found = simulate(tmp_path, "device={kind: trace, path: t.json}", text=TRAINED)
    step = found.steps[0]
    starts = sorted(one.start_ps for one in found.rounds if one.step == 0)

    assert step.forward_end_ps == 3 * 10**9
    assert step.backward_end_ps == 15 * 10**9
    assert starts == [5 * 10**9, 14 * 10**9]


def test_measured_times_are_of_real_passes_and_marked(tmp_path: Path) -> None:
    text = (
        TRAINED
        + "variants:\n  - {name: a, device: {kind: measured}}\n  - name: b\n    codec: {kind: packed}\n"
    )
    text += "    device: {kind: measured}\n"
    outcome = run(tmp_path, text=text)
    found = outcome.as_dict()
    one, other = (variant["metrics"]["compute_time_us"] for variant in found["variants"])

    assert one == other > 1  # measured once for both
    assert f"a: {NOTE}" in found["warnings"]
    assert found["variants"][0]["setup"]["device"] == {"kind": "measured"}
