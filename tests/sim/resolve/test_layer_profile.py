"""A workload whose layers are in a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import netfold
from netfold.sim.workload import SyntheticSpec, synthetic_workload
from tests.sim.scenes import job_plan, only, refused

LAYERS = [["fc", 1000, 1.0], ["conv", 501, 4.0]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "layers.json").write_text(json.dumps({"layers": LAYERS}))
    return tmp_path


def workload(keys: str) -> str:
    elements = "" if "elements" in keys else "elements: null, "  # in place of those of the scenario
    return f"workload={{kind: synthetic, {elements}{keys}}}"


def test_a_profile_gives_layers_and_when_they_are_ready(folder: Path) -> None:
    spec = job_plan(only(folder, workload("profile: layers.json, shrink: 2, fusion: {kind: none}"))).workload

    assert isinstance(spec, SyntheticSpec)
    assert spec.elements == 751
    assert [(one.name, one.elements, one.ready_share) for one in spec.layers] == [
        ("fc", 500, 0.25),
        ("conv", 251, 1.0),
    ]
    buckets = synthetic_workload(spec, 2, seed=1).buckets
    assert [(one.elements, one.ready_share) for one in buckets] == [(500, 0.25), (251, 1.0)]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("profile: none.json", "workload.profile: cannot read 'none.json': there is no such file"),
        ("profile: layers.json, elements: 7", "workload: elements and profile are both given"),
        ("profile: layers.json, tensors: [7]", "workload: tensors and profile are both given"),
        ("elements: 7, shrink: 2", "workload: shrink is given without a profile"),
        (
            "profile: layers.json, fusion: {kind: partition, buckets: [[fc]]}",
            "workload.fusion.buckets: layer 'conv' in no bucket",
        ),
    ],
)
def test_mistakes_are_reported_where_they_are(folder: Path, keys: str, message: str) -> None:
    (folder / "text.json").write_text("layers")

    assert message in refused(folder, workload(keys))


def test_a_run_keeps_the_profile(folder: Path) -> None:
    (folder / "scenario.yaml").write_text(
        "name: kept\nseed: 1\ntopology: {kind: star, hosts: 2, rate: 1Gbps, delay: 1us}\nworkers: 2\n"
        "workload: {kind: synthetic, profile: layers.json}\ncodec: {kind: none}\ncollective: {kind: ring}\n"
    )

    run = netfold.run(folder / "scenario.yaml", out=folder / "runs")

    assert (run.path / "layers.json").read_bytes() == (folder / "layers.json").read_bytes()
    assert [one["path"] for one in run.summary["inputs"]] == ["layers.json"]
    assert (
        netfold.run(run.path / "scenario.yaml", out=folder / "again").summary["tables"]
        == run.summary["tables"]
    )
