"""What exact codecs train: the same weights, bit for bit, as the true sums of the gradients, rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec, Promise, codec_kinds
from netfold.homomorphic.codecs.dense.kinds import Uncompressed
from netfold.homomorphic.fold import fold
from netfold.homomorphic.round import Round, Step
from netfold.sim.run.variant import run_variant
from netfold.sim.workload import TrainingSpec, training_workload
from netfold.sim.workload.training.loop.recipe import Recipe
from netfold.sim.workload.training.optimizers.adam import Adam
from netfold.sim.workload.training.optimizers.adamw import AdamW
from netfold.sim.workload.training.optimizers.rule import Optimizer
from netfold.sim.workload.training.optimizers.sgd import Sgd
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.examples import nightly
from tests.sim.scenes import plan

Parts = Sequence[NDArray[np.float32]]
WORKERS, SEED = 4, 5
EXACT = ("exact", "dense", "packed", "lossless", "block_sparse", "auto")
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Sgd(),
    "momentum": Sgd(0.9, nesterov=True, weight_decay=1e-4),
    "adam": Adam(),
    "adamw": AdamW(),
}


def codec_of(kind: str) -> Codec:
    made = codec_kinds()[kind]
    codec = made() if kind == "exact" else made(values="exact")
    assert codec.promise is Promise.EXACT
    return codec


def true_sums(parts: Parts) -> NDArray[np.float32]:
    """In the longest floats that there are, which hold the sum of four float32 values of like size."""
    return np.sum([part.astype(np.longdouble) for part in parts], axis=0).astype(np.float32)


def sums_by_rank(parts: Parts) -> NDArray[np.float32]:
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def spec_of(model: str, recipe: Recipe, batch: int = 8) -> TrainingSpec:
    rate = 0.002 if recipe.optimizer.state_floats == 2 else 0.1
    return TrainingSpec(model, batch, rate, recipe=recipe)  # type: ignore[arg-type]


def trained(spec: TrainingSpec, steps: int, summed: Callable[[Parts], NDArray[np.float32]]) -> list[bytes]:
    workload = training_workload(spec, WORKERS, SEED)
    for step in range(steps):
        gradients = workload.gradients(step)
        workload.apply(step, [summed(parts) for parts in zip(*gradients, strict=True)])
    return bytes_of(workload)


def encoded(spec: TrainingSpec, steps: int, codec: Codec) -> list[bytes]:
    workload = training_workload(spec, WORKERS, SEED)
    encoders = [codec.worker(rank, WORKERS, SEED) for rank in range(WORKERS)]
    for step in range(steps):
        gradients = workload.gradients(step)
        for rank, encoder in enumerate(encoders):
            encoder.begin(Step(step, workload.learning_rate, workload.update_norm, gradients[rank]))
        totals = [
            fold(
                encoders,
                [own[bucket.index] for own in gradients],
                Round(step, bucket.index, WORKERS, SEED, tensors=bucket.tensors),
            ).decoded[0]
            for bucket in workload.buckets
        ]
        workload.apply(step, totals)
    return bytes_of(workload)


def bytes_of(workload: object) -> list[bytes]:
    assert isinstance(workload, TrainingWorkload)
    return [one.detach().numpy().tobytes() for one in workload.model.parameters()]


@pytest.fixture(scope="module")
def references() -> dict[str, list[bytes]]:
    """Weights after 100 steps of true sums, by optimizer."""
    return {name: trained(spec_of("mlp", Recipe(one)), 100, true_sums) for name, one in OPTIMIZERS.items()}


@pytest.mark.parametrize("kind", EXACT)
def test_100_steps_with_an_exact_codec_are_those_of_true_sums(
    kind: str, references: dict[str, list[bytes]]
) -> None:
    """Each codec with one optimizer, each optimizer with one codec at least."""
    name = list(OPTIMIZERS)[EXACT.index(kind) % len(OPTIMIZERS)]

    assert encoded(spec_of("mlp", Recipe(OPTIMIZERS[name])), 100, codec_of(kind)) == references[name]


def test_optimizers_train_different_weights(references: dict[str, list[bytes]]) -> None:
    assert len({tuple(one) for one in references.values()}) == len(OPTIMIZERS)


def test_100_steps_uncompressed_are_those_of_float_sums_by_rank() -> None:
    spec = spec_of("mlp", Recipe(Adam()))

    assert encoded(spec, 100, Uncompressed()) == trained(spec, 100, sums_by_rank)


def test_local_steps_with_an_exact_codec_are_those_of_true_sums() -> None:
    spec = spec_of("mlp", Recipe(Sgd(0.9), local_steps=3))

    assert encoded(spec, 20, codec_of("packed")) == trained(spec, 20, true_sums)


@nightly
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_100_steps_of_the_recommender_are_those_of_true_sums(name: str) -> None:
    """Half a minute each."""
    spec = spec_of("ncf", Recipe(OPTIMIZERS[name]), batch=64)
    expected = trained(spec, 100, true_sums)
    for kind in ("packed", "lossless"):
        assert encoded(spec, 100, codec_of(kind)) == expected


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
