"""Training over the network is training without one; and runs that cannot go on end in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import netfold.sim.workload.pool
from netfold.homomorphic.fold import fold
from netfold.homomorphic.round import Round
from netfold.sim.plan.plan import JobPlan, VariantPlan
from netfold.sim.resolve.plan import Plan
from netfold.sim.results import summarize
from netfold.sim.run.outcome import JobResult
from netfold.sim.run.run import run_variant
from netfold.sim.units import PS_PER_US
from netfold.sim.workload import TrainingSpec, Workload, training_workload
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.sim.scenes import DENSE, RING, plan, run
from tests.sim.workload.training.loop.given import made, totals, weights_of
from tests.sim.workload.training.loop.test_arena import DENSE as DENSE_TABLE
from tests.sim.workload.training.loop.test_arena import TABLE

LOSS = "faults=[{{kind: loss, rate: {}%}}]"
MLP = "workload={kind: training, model: mlp, batch: 32, steps: 6, learning_rate: 1.0, bucket: 8KiB}"


def weights(workload: Workload) -> NDArray[np.float32]:
    assert isinstance(workload, TrainingWorkload)
    return np.concatenate([one.detach().numpy().reshape(-1) for one in workload.model.parameters()])


def train_without_a_network(job: JobPlan, seed: int) -> NDArray[np.float32]:
    assert isinstance(job.workload, TrainingSpec)
    workers, codec = len(job.hosts), job.codec
    workload = training_workload(job.workload, workers, seed)
    encoders = [codec.worker(rank, workers, seed) for rank in range(workers)]
    for step in range(job.steps):
        gradients = workload.gradients(step)
        sums = [
            fold(encoders, [own[bucket.index] for own in gradients], Round(step, bucket.index, workers, seed))
            for bucket in workload.buckets
        ]
        workload.apply(step, [one.decoded[0] for one in sums])
    return weights(workload)


@pytest.mark.parametrize(
    "sets",
    [
        ("codec={kind: fixed_point}", "collective.frame=roce-1024", LOSS.format(1)),
        ("codec={kind: lossless}", RING, LOSS.format(1)),
    ],
)
def test_training_over_the_network_is_training_without(
    tmp_path: Path, trained: list[Workload], sets: tuple[str, ...]
) -> None:
    """Exact codecs: the same weights bit for bit after six steps, regardless of lost packets."""
    resolved = plan(tmp_path, MLP, *sets)
    (variant,) = resolved.variants
    (job,) = variant.jobs
    result = run_variant(resolved, variant)

    expected = train_without_a_network(job, seed=7)
    assert expected.tobytes() == weights(trained[0]).tobytes()
    assert {"pass"} == {check.verdict for check in result.checks}
    losses = [record.loss for record in result.steps if record.loss is not None]
    assert len(losses) == 6
    assert losses[-1] < 0.9 * losses[0]


def test_tests_are_recorded_and_take_no_simulated_time(tmp_path: Path, trained: list[Workload]) -> None:
    untested, tested = [
        run_variant(resolved, resolved.variants[0])
        for resolved in (
            plan(tmp_path, MLP, RING, DENSE),
            plan(tmp_path, MLP, RING, DENSE, "workload.evaluate={every: 4}"),
        )
    ]
    metrics = summarize(tested.facts, tested.records)["variants"][0]["metrics"]
    last = trained[1].score(5, is_last=True)

    assert last is not None
    assert [one.test_score for one in untested.steps] == [None] * 6
    assert [one.test_metric for one in tested.steps] == [None, None, None, "accuracy", None, "accuracy"]
    assert [one.test_score is not None for one in tested.steps] == [False, False, False, True, False, True]
    assert (metrics["test_metric"], metrics["test_score"]) == last
    assert tested.steps[-1].test_score == last.value
    assert [one.end_ps for one in tested.steps] == [one.end_ps for one in untested.steps]


def test_gradients_that_explode_fail_in_words(tmp_path: Path) -> None:
    outcome = run(tmp_path, MLP, "workload.learning_rate=1e30", "codec={kind: lossless}")

    (variant,) = outcome.summary["variants"]
    assert variant["checks"][0] == {
        "name": "finishes",
        "verdict": "fail",
        "detail": "gradient[0] is nan: only finite values can be carried; "
        "lower the learning rate, or skip such steps (worker 0, step 1, bucket 0, operation 0)",
    }
    assert (outcome.summary["verdict"], variant["metrics"]["steps"]) == ("fail", 1)
    assert "diagnosis" not in variant


def test_gradients_that_explode_fail_the_check_of_a_codec_that_carries_them(tmp_path: Path) -> None:
    outcome = run(tmp_path, MLP, "workload.learning_rate=1e30", "workload.steps=2", DENSE, RING)

    (variant,) = outcome.summary["variants"]
    assert outcome.summary["verdict"] == "fail"
    assert [check["name"] for check in variant["checks"] if check["verdict"] == "fail"] == ["sum_is_right"]
    assert variant["metrics"]["max_abs_error"] is None  # JSON has no infinity


# Local steps, and gradients of rows: how long steps take, and what is trained.

LOCAL = """\
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
    found = plan(tmp_path, f"workload.local_steps={local}", text=LOCAL)
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
    found = plan(tmp_path, *sets, text=LOCAL)
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
    for task in (TABLE, DENSE_TABLE):

        def workload(spec: TrainingSpec, workers: int, seed: int, task: object = task) -> TrainingWorkload:
            made_by.append(made(task, workers, spec.learning_rate))  # type: ignore[arg-type]
            return made_by[-1]

        monkeypatch.setattr(netfold.sim.workload.pool, "training_workload", workload)
        found = plan(tmp_path, "overlap={buckets_in_flight: 2}", text=LOCAL)
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
