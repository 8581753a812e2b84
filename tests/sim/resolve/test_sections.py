"""Workloads before anything is run: layers, fusion, optimizers; what codecs need; the memory of it all."""

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
from netfold.sim.plan.plan import JobPlan
from netfold.sim.resolve.memory import JobSize
from netfold.sim.resolve.sections import summed_at_once
from netfold.sim.workload import SyntheticSpec, TrainingSpec, synthetic_workload
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.optimizers.adam import Adam
from netfold.sim.workload.training.optimizers.adamw import AdamW
from netfold.sim.workload.training.optimizers.sgd import Sgd
from netfold.sim.workload.training.schedules.cosine import Cosine
from netfold.sim.workload.training.schedules.linear import Linear
from netfold.sim.workload.training.schedules.step import Step
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


def sized(job: JobPlan) -> JobSize:
    """What the memory of a job of three workers is counted from."""
    return JobSize(None, job.workload, 3, job.codec, job.collective)  # type: ignore[arg-type]  # no error is raised


def held_bytes(folder: Path, *sets: str) -> float:
    return sized(job_plan(only(folder, *sets))).bytes(Footprint(0.0, 0.0), records=False)


def test_gradients_of_layers_that_lie_apart_are_held_twice(tmp_path: Path) -> None:
    beside = held_bytes(tmp_path, synthetic("{kind: partition, buckets: [[conv, norm], [fc]]}"))
    apart = held_bytes(tmp_path, synthetic("{kind: partition, buckets: [[conv, fc], [norm]]}"))
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
    kept, plain = (
        held_bytes(
            tmp_path, RING, f"codec={{kind: needy, wants: {wants}}}", "workload={kind: training, model: mlp}"
        )
        for wants in ("KEPT_WEIGHTS", "LEARNING_RATE")
    )

    assert kept - plain == 2 * 4 * 3 * 9610


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


TEXT = """\
name: recipes
topology: {kind: star, hosts: 4, rate: 10Gbps}
workers: 3
workload: {kind: training, model: mlp, batch: 8, steps: 7}
codec: {kind: none}
collective: {kind: ring}
"""
UPDATES = "codec {} makes updates of weights, or decides by them, and takes an update to be learning_rate"
KEPT = "codec sasg compares what a worker sends with the same from weights that it kept"


def recipe_of(folder: Path, *sets: str) -> Recipe:
    spec = job_plan(only(folder, *sets, text=TEXT)).workload
    assert isinstance(spec, TrainingSpec)
    return spec.recipe


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (
            "workload.optimizer={kind: sgd, momentum: 0.9, nesterov: true, weight_decay: 0.1}",
            Recipe(Sgd(0.9, True, 0.1), steps=7),
        ),
        (
            "workload.optimizer={kind: adam, betas: [0.5, 0.6], eps: 0.1, weight_decay: 0.2}",
            Recipe(Adam((0.5, 0.6), 0.1, 0.2), steps=7),
        ),
        ("workload.optimizer={kind: adamw}", Recipe(AdamW((0.9, 0.999), 1e-8, 0.01), steps=7)),
        ("workload.schedule={kind: step, every: 4}", Recipe(schedule=Step(4, 0.1), steps=7)),
        ("workload.schedule={kind: cosine, floor: 10%}", Recipe(schedule=Cosine(0.1), steps=7)),
        (
            "workload.schedule={kind: linear, floor: 0.5, warmup: 1}",
            Recipe(schedule=Linear(0.5, warmup=1), steps=7),
        ),
        ("workload.evaluate={target: 95%}", Recipe(steps=7, target=0.95)),
    ],
)
def test_what_a_scenario_says(tmp_path: Path, setting: str, expected: Recipe) -> None:
    assert recipe_of(tmp_path, setting) == expected


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optimizer={kind: sgd, nesterov: true}", "optimizer: nesterov is given without momentum\n"),
        ("optimizer={kind: adam, betas: [0.9, 1]}", "optimizer.betas.1: must be less than 1.0, found 1"),
        ("optimizer={kind: adam, eps: 0}", "optimizer.eps: must be more than 0.0, found 0"),
        (
            "evaluate={target: 0}",
            "the target must be more than 0 and at most 1, found 0: accuracy is a share\n",
        ),
        ("evaluate={target: 120%}", "evaluate.target: '120%' is not a fraction from 0 to 1\n"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(tmp_path: Path, setting: str, message: str) -> None:
    assert message in refused(tmp_path, f"workload.{setting}", text=TEXT)


SERVER = "collective={kind: parameter_server}"
ADAM, MOMENTUM = "workload.optimizer={kind: adam}", "workload.optimizer={kind: sgd, momentum: 0.9}"
LOCAL = "workload.local_steps=2"


@pytest.mark.parametrize("optimizer", [ADAM, MOMENTUM, "workload.optimizer={kind: sgd, weight_decay: 0.1}"])
@pytest.mark.parametrize(
    "codec", ["codec={kind: marsit}", "codec={kind: sasg}", "codec={kind: sasg, alpha: 0}"]
)
def test_codecs_that_make_updates_need_plain_sgd(tmp_path: Path, optimizer: str, codec: str) -> None:
    """Or local steps, whose differences are averaged as they are."""
    collective = () if "marsit" in codec else (SERVER,)
    message = refused(tmp_path, optimizer, codec, *collective, text=TEXT)

    assert "workload.optimizer: " in message
    assert UPDATES.format("marsit" if "marsit" in codec else "sasg") in message
    assert only(tmp_path, codec, *collective, text=TEXT)
    assert only(tmp_path, codec, *collective, LOCAL, text=TEXT)


@pytest.mark.parametrize("codec", ["marsit", "sasg, alpha: 0", "count_sketch", "bird"])
def test_other_codecs_carry_local_steps_of_any_optimizer(tmp_path: Path, codec: str) -> None:
    collective = "ring" if codec == "marsit" else "parameter_server"
    for optimizer in (ADAM, MOMENTUM):
        assert only(
            tmp_path,
            optimizer,
            LOCAL,
            f"codec={{kind: {codec}}}",
            f"collective={{kind: {collective}}}",
            text=TEXT,
        )


def test_differences_at_kept_weights_need_an_optimizer_that_forgets(tmp_path: Path) -> None:
    codec = "codec={kind: sasg}"

    assert KEPT in refused(tmp_path, ADAM, LOCAL, codec, SERVER, text=TEXT)
    assert KEPT in refused(tmp_path, MOMENTUM, LOCAL, codec, SERVER, text=TEXT)
    decay = "workload.optimizer={kind: sgd, weight_decay: 0.1}"
    assert only(tmp_path, decay, LOCAL, codec, SERVER, text=TEXT)


def test_momentum_that_is_taken_twice_is_warned_of(tmp_path: Path) -> None:
    sketch = "codec={kind: count_sketch, momentum: 0.5}"

    def warnings(*sets: str) -> str:
        return " ".join(job_plan(only(tmp_path, *sets, "collective={kind: in_network}", text=TEXT)).warnings)

    twice = "momentum is taken twice: codec count_sketch has workers keep 0.5 of theirs, and "
    assert f"{twice}the optimizer has 0.9 (sgd)" in warnings(sketch, MOMENTUM)
    assert f"{twice}the optimizer has 0.9 (adam)" in warnings(sketch, ADAM)
    assert f"{twice}workers' optimizers have 0.9 (sgd)" in warnings(sketch, MOMENTUM, LOCAL)
    assert "momentum" not in warnings(sketch)
    assert "momentum" not in warnings("codec={kind: count_sketch}", MOMENTUM)


def test_memory_counts_what_optimizers_remember(tmp_path: Path) -> None:
    """For each weight; with local steps at every worker, beside a worker's own weights and gradient."""

    def size(*sets: str) -> float:
        job = job_plan(only(tmp_path, *sets, text=TEXT))
        return sized(job).bytes(Footprint(0.0, 0.0)) / job.workload.elements

    plain = size()
    assert size(MOMENTUM) - plain == pytest.approx(4)
    assert size(ADAM) - plain == pytest.approx(8)
    assert size(LOCAL) - plain == pytest.approx(8)
    assert size(ADAM, LOCAL) - plain == pytest.approx(8 + 3 * 8)


def test_memory_counts_a_layer_that_is_larger_than_a_full_bucket(tmp_path: Path) -> None:
    """Such as the first linear layer of VGG. Layers are put together until there are 1000 elements."""
    text = TEXT.replace("kind: training, model: mlp, batch: 8, steps: 7", "kind: synthetic, tensors: %s")

    def at_once(tensors: str, bucket: str = "") -> int:
        job = job_plan(
            only(tmp_path, *([f"workload.bucket={bucket}"] if bucket else []), text=text % tensors)
        )
        return sized(job).at_once

    assert at_once("[8000, 3000x1, 500x1]", "4KB") == 11500  # all there is
    assert at_once("[1000x1, 8000x1, 3000x1, 500x1, 900x9]", "4KB") == 2 * (500 + 8100)
    assert at_once("[1000x1, 800x1, 300x1, 500x1, 900x1]", "4KB") == 2 * (500 + 900)


def test_local_steps_leave_nothing_to_overlap(tmp_path: Path) -> None:
    """All differences are ready at the end, so rules of fusion see layers that are ready then."""
    local, plain = (job_plan(only(tmp_path, *sets, text=TEXT)).workload for sets in ((LOCAL,), ()))

    assert {layer.ready_share for layer in local.layers} == {1.0}
    assert len({layer.ready_share for layer in plain.layers}) == 2
