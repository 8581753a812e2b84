"""What exact codecs train: the same weights, bit for bit, as the true sums of the gradients, rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from netfold.sim.run.variant import run_variant
from netfold.sim.workload import TrainingSpec, training_workload
from tests.sim.scenes import plan

Parts = Sequence[NDArray[np.float32]]
WORKERS, SEED = 4, 5


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
  - {name: lossless, codec: {kind: lossless, values: exact}, collective: {kind: ring}}
  - {name: block-sparse, codec: {kind: block_sparse, values: exact}, collective: {kind: ring}}
  - {name: dense, codec: {kind: dense, values: exact}}
  - {name: auto, codec: {kind: auto, values: exact}}
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

    assert losses == [expected] * 7
    assert len(set(expected)) == 6
