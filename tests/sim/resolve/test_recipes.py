"""Optimizers, schedules and local steps in a scenario: what they become, what is refused, what it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold.sim.memory.available import Footprint
from netfold.sim.resolve.memory import JobSize
from netfold.sim.workload import TrainingSpec
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.optimizers.adam import Adam
from netfold.sim.workload.training.optimizers.adamw import AdamW
from netfold.sim.workload.training.optimizers.sgd import Sgd
from netfold.sim.workload.training.schedules.cosine import Cosine
from netfold.sim.workload.training.schedules.linear import Linear
from netfold.sim.workload.training.schedules.step import Step
from tests.sim.scenes import job_plan, only, refused

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
        sized = JobSize(None, job.workload, 3, job.codec, job.collective)  # type: ignore[arg-type]  # no error
        return sized.bytes(Footprint(0.0, 0.0)) / job.workload.elements

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
        return JobSize(None, job.workload, 3, job.codec, job.collective).at_once  # type: ignore[arg-type]

    assert at_once("[8000, 3000x1, 500x1]", "4KB") == 11500  # all there is
    assert at_once("[1000x1, 8000x1, 3000x1, 500x1, 900x9]", "4KB") == 2 * (500 + 8100)
    assert at_once("[1000x1, 800x1, 300x1, 500x1, 900x1]", "4KB") == 2 * (500 + 900)


def test_local_steps_leave_nothing_to_overlap(tmp_path: Path) -> None:
    """All differences are ready at the end, so rules of fusion see layers that are ready then."""
    local, plain = (job_plan(only(tmp_path, *sets, text=TEXT)).workload for sets in ((LOCAL,), ()))

    assert {layer.ready_share for layer in local.layers} == {1.0}
    assert len({layer.ready_share for layer in plain.layers}) == 2
