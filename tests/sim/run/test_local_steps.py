"""Local steps and gradients of rows in a whole run: how long steps take, and what is trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import netfold.sim.workload.pool
from netfold.sim.plan.plan import VariantPlan
from netfold.sim.resolve.plan import Plan
from netfold.sim.run.outcome import JobResult
from netfold.sim.run.run import run_variant
from netfold.sim.units import PS_PER_US
from netfold.sim.workload import TrainingSpec
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.sim.scenes import plan
from tests.sim.workload.training.loop.given import made, totals, weights_of
from tests.sim.workload.training.loop.test_arena import DENSE, TABLE

TEXT = """\
name: local
topology: {kind: star, hosts: 4, rate: 10Gbps, switch: ideal}
workers: 3
workload: {kind: training, model: mlp, batch: 8, steps: 3, learning_rate: 0.1, bucket: 4KB}
device: {kind: fixed, forward: 30us, backward: 50us}
codec: {kind: exact}
collective: {kind: in_network}
"""


def job_of(found: Plan, variant: VariantPlan) -> JobResult:
    (job,) = run_variant(found, variant).jobs
    assert {check.verdict for check in job.checks} == {"pass"}
    return job


@pytest.mark.parametrize("local", [1, 4])
def test_steps_are_computed_one_after_the_other_before_anything_is_sent(tmp_path: Path, local: int) -> None:
    """k passes of 30 + 50 µs; without local steps a bucket leaves while backward goes on."""
    found = plan(tmp_path, f"workload.local_steps={local}", text=TEXT)
    journal = job_of(found, found.variants[0]).journal
    for step in journal.steps:
        assert step.backward_end_ps - step.start_ps == local * 80 * PS_PER_US
        assert step.forward_end_ps - step.start_ps == (local * 80 - 50) * PS_PER_US
        if local == 1:
            assert step.aggregation_start_ps < step.backward_end_ps
        else:
            assert step.aggregation_start_ps == step.backward_end_ps
    spans = [
        (row.phase, (row.end_ps - row.start_ps) // PS_PER_US)
        for row in journal.phases
        if (row.step, row.worker, row.bucket) == (1, 0, -1)
    ]
    assert spans == [("forward", 30), ("backward", 50)] * local


@pytest.mark.parametrize("codec", ["marsit, every: 2", "sasg, staleness: 1", "count_sketch, momentum: 0.5"])
def test_codecs_that_know_weights_carry_local_steps(tmp_path: Path, codec: str) -> None:
    """With a step of rate 1; of passes at kept weights each has k."""
    collective = "ring" if "marsit" in codec else "parameter_server"
    sets = (
        "workload.local_steps=3",
        f"codec={{kind: {codec}}}",
        f"collective={{kind: {collective}}}",
        "workload.learning_rate=0.01",
    )
    found = plan(tmp_path, *sets, text=TEXT)
    job = job_of(found, found.variants[0])
    again = [row for row in job.journal.phases if row.phase == "more passes"]

    assert all(np.isfinite(step.loss) for step in job.journal.steps if step.loss is not None)
    assert bool(again) == ("sasg" in codec)
    assert {row.end_ps - row.start_ps for row in again} <= {3 * 80 * PS_PER_US}


def test_gradients_of_rows_are_trained_as_dense_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a sparse table; what the run trains is what a loop of exact sums trains."""
    made_by: list[TrainingWorkload] = []
    for task in (TABLE, DENSE):

        def workload(spec: TrainingSpec, workers: int, seed: int, task: object = task) -> TrainingWorkload:
            made_by.append(made(task, workers, spec.learning_rate))  # type: ignore[arg-type]
            return made_by[-1]

        monkeypatch.setattr(netfold.sim.workload.pool, "training_workload", workload)
        found = plan(tmp_path, "overlap={buckets_in_flight: 2}", text=TEXT)
        job = job_of(found, found.variants[0])
        assert all(record.merges_verified for record in job.journal.rounds)
    loop = made(TABLE, 3, 0.1)
    for step in range(3):
        loop.apply(step, totals(loop, step))
    rows, dense = made_by
    assert rows.rows(0)
    assert not dense.rows(0)
    for name, own in weights_of(rows).items():
        np.testing.assert_allclose(own, weights_of(dense)[name], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(own, weights_of(loop)[name], rtol=1e-5, atol=1e-7)
