"""Layers of a workload and rules of fusion, before anything is run; codecs that need more than is known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import netfold
from netfold.homomorphic import codec as codecs
from netfold.homomorphic.codec import register
from netfold.homomorphic.codecs.dense.kinds import Dense
from netfold.homomorphic.round import StepFact
from netfold.sim.memory.available import Footprint
from netfold.sim.resolve.memory import JobSize
from netfold.sim.resolve.sections import summed_at_once
from netfold.sim.workload import SyntheticSpec, synthetic_workload
from tests.sim.scenes import RING, job_plan, only, refused

TENSORS = "tensors: [conv.weight=8x3x3x3, norm.weight=8, fc.weight=10x8, fc.bias=10]"
LISTED = "layers, in gradient-ready order: 0 is 'conv', 1 is 'norm', 2 is 'fc'"


def synthetic(fusion: str) -> str:
    return f"workload={{kind: synthetic, {TENSORS}, fusion: {fusion}}}"


def training(fusion: str) -> str:
    return f"workload={{kind: training, model: mlp, fusion: {fusion}}}"


@pytest.mark.parametrize(
    ("fusion", "message"),
    [
        (
            "{kind: partition, buckets: [[conv, norm], [fcc]]}",
            f"there is no layer 'fcc'\n  did you mean 'fc'? {LISTED}",
        ),
        ("{kind: partition, buckets: [[conv, norm], [fc, 0]]}", "the layer 'conv' is in the buckets 0 and 1"),
        ("{kind: partition, buckets: [[conv, norm]]}", "layer 'fc' in no bucket\n  name every layer once"),
        ("{kind: partition, buckets: [[3]]}", f"there is no layer 3, the last of 3 is 2\n  {LISTED}"),
    ],
)
def test_layers_that_do_not_fit_are_refused(tmp_path: Path, fusion: str, message: str) -> None:
    assert f"workload.fusion.buckets: {message}" in refused(tmp_path, synthetic(fusion))


def test_layers_of_a_model_and_of_a_file_are_known_without_reading_them(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "g.npz", **{"a.weight": np.ones((3, 2, 2), np.float32), "b": np.ones((3, 2), np.float32)}
    )
    of_file = "workload={kind: file, path: g.npz, fusion: {kind: partition, buckets: [[a], [c]]}}"

    assert "there is no layer 'fc'\n  layers, in gradient-ready order: 0 is '2', 1 is '0'" in refused(
        tmp_path, training("{kind: partition, buckets: [[fc], [0, 1]]}")
    )
    assert "there is no layer 'c'\n  layers, in gradient-ready order: 0 is 'a', 1 is 'b'" in refused(
        tmp_path, of_file
    )


@pytest.mark.parametrize(
    ("workload", "elements"),
    [
        (training("{kind: none}"), 8320),
        (training("{kind: size, bytes: 4KB}"), 1000),
        (synthetic("{kind: none}"), 216),
        (synthetic("{kind: partition, buckets: [[conv, norm], [fc]]}"), 224),
        ("workload={kind: synthetic, elements: 1001, bucket: 4KB}", 1000),
        ("workload={kind: synthetic, elements: 1001}", 1001),
    ],
)
def test_what_is_summed_at_once_is_a_full_bucket(tmp_path: Path, workload: str, elements: int) -> None:
    """Timeouts and the number of slots follow from it."""
    assert summed_at_once(job_plan(only(tmp_path, workload)).workload) == elements


def test_gradients_of_layers_that_lie_apart_are_held_twice(tmp_path: Path) -> None:
    def held(fusion: str) -> float:
        job = job_plan(only(tmp_path, synthetic(fusion)))
        sized = JobSize(None, job.workload, 3, job.codec, job.collective)  # type: ignore[arg-type]  # no error is raised
        return sized.bytes(Footprint(0.0, 0.0), records=False)

    beside = held("{kind: partition, buckets: [[conv, norm], [fc]]}")
    apart = held("{kind: partition, buckets: [[conv, fc], [norm]]}")
    elements = 216 + 8 + 80 + 10
    assert apart - beside == pytest.approx(4 * 3 * elements, abs=8 * elements)  # buckets differ in size too


@dataclass(frozen=True)
class Needy(Dense):
    """A dense codec that would look at a step."""

    kind: ClassVar[str] = "needy"
    wants: str = "LEARNING_RATE"

    @property
    def needs(self) -> frozenset[StepFact]:
        """The facts that a test names."""
        return frozenset(StepFact[name] for name in self.wants.split())


@pytest.fixture
def needy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its codec is registered for a test."""
    monkeypatch.setattr(codecs, "_registry", dict(codecs._registry))
    register(Needy)


@pytest.mark.usefixtures("needy")
def test_a_codec_that_needs_a_training_step_is_refused_without_one(tmp_path: Path) -> None:
    wants = "codec={kind: needy, wants: KEPT_WEIGHTS ALL_BUCKETS}"
    trained = "workload={kind: training, model: mlp}"

    assert refused(tmp_path, RING, wants) == (
        "--set: codec: needy needs gradients at weights that a worker has kept, a workload of the kind "
        "synthetic does not know it\n  use a scenario whose workload has the kind training, or another codec"
    )
    assert job_plan(only(tmp_path, RING, wants, trained)).codec.kind == "needy"
    assert job_plan(only(tmp_path, RING, "codec={kind: needy, wants: ALL_BUCKETS}")).codec.kind == "needy"


@pytest.mark.usefixtures("needy")
def test_weights_that_workers_keep_are_counted(tmp_path: Path) -> None:
    """A copy of the weights for each worker, and the gradients at them."""

    def held(wants: str) -> float:
        codec = f"codec={{kind: needy, wants: {wants}}}"
        job = job_plan(only(tmp_path, RING, codec, "workload={kind: training, model: mlp}"))
        sized = JobSize(None, job.workload, 3, job.codec, job.collective)  # type: ignore[arg-type]  # no error is raised
        return sized.bytes(Footprint(0.0, 0.0), records=False)

    assert held("KEPT_WEIGHTS") - held("LEARNING_RATE") == 2 * 4 * 3 * 9610


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
        ("profile: layers.json, elements: 7", "workload: elements and profile are both given"),
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
