"""What exact codecs train: the same weights, bit for bit, as the true sums of the gradients, rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec, Promise, codec_kinds
from netfold.homomorphic.fold import fold
from netfold.homomorphic.round import Round, Step
from netfold.sim.run.variant import run_variant
from netfold.sim.workload import TrainingSpec, training_workload
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.models.registry import model_named
from netfold.sim.workload.training.optimizers.adam import Adam
from netfold.sim.workload.training.optimizers.adamw import AdamW
from netfold.sim.workload.training.optimizers.sgd import Sgd
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.examples import PROFILE
from tests.sim.scenes import plan
from tests.sim.workload.training.loop.given import bytes_of

Parts = Sequence[NDArray[np.float32]]
WORKERS, SEED = 4, 5


STEPS = 100 if PROFILE == "nightly" else 10
CASES: dict[str, tuple[str, Recipe]] = {  # by kind of codec: each optimizer once at least
    "exact": ("mlp", Recipe(Sgd())),
    "dense": ("mlp", Recipe(Sgd(0.9, nesterov=True, weight_decay=1e-4))),
    "packed": ("mlp", Recipe(Adam())),
    "lossless": ("mlp", Recipe(AdamW())),
    "block_sparse": ("mlp", Recipe(Sgd(0.9), local_steps=3)),
    "auto": ("ncf", Recipe(Sgd(0.9))),
}


def codec_of(kind: str) -> Codec:
    made = codec_kinds()[kind]
    codec = made() if kind == "exact" else made(values="exact")
    assert codec.promise is Promise.EXACT
    return codec


def true_sums(parts: Parts) -> NDArray[np.float32]:
    """In the longest floats that there are, which hold the sum of four float32 values of like size."""
    return np.sum([part.astype(np.longdouble) for part in parts], axis=0).astype(np.float32)


NETWORKS = """\
name: same-weights
topology: {kind: star, hosts: 4, rate: 10Gbps, switch: ideal}
workers: 4
workload: {kind: training, model: mlp, batch: 8, steps: 6, learning_rate: 0.05, bucket: 8KB,
           optimizer: {kind: sgd, momentum: 0.9}, schedule: {kind: cosine, warmup: 2}}
codec: {kind: packed, values: exact}
collective: {kind: in_network}
variants:
  - name: switch
  - name: ring
    codec: {kind: exact}
    collective: {kind: ring}
  - name: two-in-flight
    overlap: {buckets_in_flight: 2}
    collective: {kind: all_gather}
"""


def test_networks_train_the_same_model_as_a_loop(tmp_path: Path) -> None:
    """Losses of all steps, bit for bit: of the simulated network and of a loop of true sums."""
    found = plan(tmp_path, text=NETWORKS)
    losses = []
    for variant in found.variants:
        (job,) = run_variant(found, variant).jobs
        losses.append([step.loss for step in job.journal.steps])
    spec = found.variants[0].jobs[0].workload
    assert isinstance(spec, TrainingSpec)
    workload = training_workload(spec, WORKERS, found.scenario.seed)
    expected = []
    for step in range(6):
        gradients = workload.gradients(step)
        expected.append(workload.loss)
        workload.apply(step, [true_sums(parts) for parts in zip(*gradients, strict=True)])

    assert losses == [expected] * 3
    assert len(set(expected)) == 6


@pytest.mark.parametrize("kind", [one for one in CASES if one != "auto" or PROFILE == "nightly"])
def test_steps_with_an_exact_codec_are_those_of_true_sums(kind: str) -> None:
    """The recommender takes half a minute."""
    (model, recipe), codec = CASES[kind], codec_of(kind)
    spec = TrainingSpec(
        model_named(model), 8, 0.002 if recipe.optimizer.state_floats == 2 else 0.1, recipe=recipe
    )
    plain, workload = (training_workload(spec, WORKERS, SEED) for _ in range(2))
    encoders = [codec.worker(rank, WORKERS, SEED) for rank in range(WORKERS)]
    for step in range(STEPS):
        plain.apply(step, [true_sums(parts) for parts in zip(*plain.gradients(step), strict=True)])
        gradients = workload.gradients(step)
        for rank, encoder in enumerate(encoders):
            encoder.begin(Step(step, workload.learning_rate, workload.update_norm, gradients[rank]))
        totals = []
        for bucket in workload.buckets:
            own = [one[bucket.index] for one in gradients]
            round = Round(step, bucket.index, WORKERS, SEED, tensors=bucket.tensors)
            totals.append(fold(encoders, own, round).decoded[0])
        workload.apply(step, totals)

    assert isinstance(plain, TrainingWorkload)
    assert isinstance(workload, TrainingWorkload)
    assert bytes_of(workload) == bytes_of(plain)
