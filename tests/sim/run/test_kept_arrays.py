"""Arrays that a run keeps, beside sums by NumPy, a training loop of PyTorch, and the same run resumed."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

import netfold
from netfold.errors import DataError, ScenarioError
from netfold.sim.results import kept_arrays
from netfold.sim.scenario.load import scenario_of
from netfold.sim.studies.sweep import sweep_of
from netfold.sim.studies.sweep_points import points_of
from netfold.sim.studies.sweep_workers import own_versions, work
from tests.sim.run.test_checkpoint import require_same
from tests.sim.scenario.files import write

SCENARIO: dict[str, Any] = {
    "name": "kept",
    "topology": {"kind": "star", "hosts": 4, "rate": "25Gbps"},
    "workers": 3,
    "workload": {"kind": "synthetic", "tensors": ["20x10", "30x10"], "steps": 2},
    "codec": {"kind": "none"},
    "collective": {"kind": "ring"},
    "keep": ["gradients", "contributions", "totals"],
}
TRAINING = {"kind": "training", "model": "mlp", "batch": 8, "steps": 3, "learning_rate": 0.1}
MODEL = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

def make():
    inputs = torch.linspace(-1, 1, 15).reshape(3, 5)
    targets = torch.tensor([[0.5], [-1.0], [2.0]])
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
    return module, TensorDataset(inputs, targets), nn.MSELoss()
"""


@pytest.mark.parametrize(
    "aggregation",
    [
        {"codec": {"kind": "none"}, "collective": {"kind": "ring"}},
        {"codec": {"kind": "exact"}, "collective": {"kind": "in_network"}},
    ],
)
def test_totals_are_the_sums_of_the_gradients(aggregation: dict[str, Any], tmp_path: Path) -> None:
    """Over a ring, which adds floats in some order, and over a switch, whose sums are rounded once."""
    run = netfold.run({**SCENARIO, **aggregation}, set={"workload.bucket": "800B"}, out=tmp_path)

    assert run.rounds.filter(step=0).sort("bucket")["elements"].to_list() == [200, 300]
    for step in range(2):
        gradients, totals = run.gradients(step), run.totals(step)
        assert (gradients.shape, totals.shape) == ((3, 500), (500,))
        assert gradients.any(axis=1).all()
        np.testing.assert_array_equal(run.contributions(step), gradients)
        np.testing.assert_array_equal(run.gradients(step, 1, 2), gradients[2, 200:])
        np.testing.assert_array_equal(run.totals(step, 0), totals[:200])
        exact = gradients.astype(np.float64).sum(axis=0)
        if aggregation["codec"]["kind"] == "exact":
            np.testing.assert_array_equal(totals, exact.astype(np.float32))
        np.testing.assert_allclose(totals, exact, rtol=1e-5, atol=1e-5)
    assert (run.gradients(0) != run.gradients(-1)).any()


def test_contributions_are_the_largest_of_gradients_and_what_was_held_back(tmp_path: Path) -> None:
    """Top-k with error feedback: each worker sends half of the elements of its gradient and residual."""
    topk = {"codec": {"kind": "topk", "share": 0.5, "of": "bucket"}, "collective": {"kind": "all_gather"}}
    run = netfold.run({**SCENARIO, **topk}, set={"workload.steps": 3}, out=tmp_path)

    residual = np.zeros((3, 500), np.float32)
    for step in range(3):
        wanted, sent = residual + run.gradients(step), run.contributions(step)
        assert (np.count_nonzero(sent, axis=1) == 250).all()
        np.testing.assert_array_equal(sent[sent != 0], wanted[sent != 0])
        for row, chosen in zip(np.abs(wanted), sent != 0, strict=True):
            assert row[~chosen].max() <= row[chosen].min()
        np.testing.assert_allclose(run.totals(step), sent.sum(axis=0), rtol=1e-5, atol=1e-6)
        residual = wanted - sent


def flat(weights: dict[str, Any]) -> Any:
    return np.concatenate([array.ravel() for array in weights.values()])


def test_weights_move_by_the_mean_of_the_total(tmp_path: Path) -> None:
    """Plain SGD; several buckets, and several variants, which begin alike."""
    changed = {**SCENARIO, "workload": {**TRAINING, "bucket": "2KiB"}, "keep": ["totals", "weights"]}
    variants = [{"name": "ring"}, {"name": "tree", "collective": {"kind": "tree"}, "keep": ["weights"]}]
    run = netfold.run({**changed, "variants": variants}, out=tmp_path)

    assert set(run.rounds["bucket"]) == {0, 1}
    for step in range(3):
        before, after = (flat(run.weights(steps, variant="ring")) for steps in (step, step + 1))
        total = run.totals(step, variant="ring")
        moved = np.float32(0.1) * (total / np.float32(3))
        assert moved.any()
        np.testing.assert_allclose(after, before - moved, rtol=1e-6, atol=1e-8)
    start, last = run.weights(0, variant="tree"), run.weights(variant="tree")
    np.testing.assert_array_equal(flat(start), flat(run.weights(0, variant="ring")))
    np.testing.assert_array_equal(flat(last), flat(run.weights(3, variant="tree")))
    with pytest.raises(
        DataError, match=r"there are no totals\n  keep: \[totals\] in the scenario keeps them"
    ):
        run.totals(0, variant="tree")


def test_weights_are_those_of_a_loop_of_pytorch(tmp_path: Path) -> None:
    """Three workers have one sample each: together they take steps of gradient descent on all three."""
    file = tmp_path / "own.py"
    file.write_text(MODEL, "utf-8")
    training = {**TRAINING, "model": f"{file}:make"}
    run = netfold.run({**SCENARIO, "workload": training, "keep": ["weights", "gradients"]}, out=tmp_path)

    source: dict[str, Any] = {}
    exec(MODEL, source)
    model, data, loss = source["make"]()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in run.weights(0).items()})
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        loss(model(data.tensors[0]), data.tensors[1]).backward()
        optimizer.step()
        mean = np.concatenate([parameters[name].grad.numpy().ravel() for name in run.weights()])
        np.testing.assert_allclose(run.gradients(step).mean(axis=0), mean, rtol=1e-4, atol=1e-6)
        for name, after in run.weights(step + 1).items():
            assert after.shape == parameters[name].shape
            np.testing.assert_allclose(after, parameters[name].detach().numpy(), rtol=1e-4, atol=1e-6)


RESUMED = """\
name: kept
seed: 3
topology: {kind: star, hosts: 2, rate: 100Gbps, delay: 1us}
workers: 2
workload: {kind: training, model: mlp, batch: 4, steps: 3}
codec: {kind: fixed_point}
collective: {kind: ring}
keep: [gradients, contributions, totals, weights]
variants:
  - {name: a}
  - {name: b, collective: {kind: in_network}, workload: {steps: 2}}
"""


def test_a_resumed_run_keeps_the_same_arrays(tmp_path: Path) -> None:
    """All files have the same bytes, and so have those of two runs of the same."""
    assert require_same(write(tmp_path, RESUMED), tmp_path) == [0, 0, 1]
    (folder,) = (path for path in (tmp_path / "stopped-2" / "kept").iterdir() if path.is_dir())
    run = netfold.load(folder)
    assert run.summary["arrays"].keys() == {"a", "b"}
    assert run.weights(2, variant="b").keys() == run.weights(3, variant="a").keys()


def test_jobs_and_seeds_have_arrays_of_their_own(tmp_path: Path) -> None:
    jobs = [{"name": "left"}, {"name": "right", "keep": [], "workers": 1}]
    run = netfold.run({**SCENARIO, "jobs": jobs, "seeds": [4, 5], "keep": ["gradients"]}, out=tmp_path)

    first, second = (run.gradients(0, variant=name) for name in ("kept/left", "kept@5/left"))
    assert (first != second).any()
    assert [path.name for path in (run.path / "arrays").rglob("*.*")] == ["left.safetensors"] * 2
    with pytest.raises(DataError, match="there are no gradients"):
        run.gradients(0, variant="kept/right")
    with pytest.raises(DataError, match=r"variant: the run has 4, name one of them\n  .*kept/left, kept"):
        run.gradients(0)


def test_a_job_that_ends_early_has_the_steps_that_ended(tmp_path: Path) -> None:
    explodes = {**TRAINING, "learning_rate": 1e30}
    changes = {"workload": explodes, "codec": {"kind": "lossless"}, "keep": ["totals", "weights"]}
    run = netfold.run({**SCENARIO, **changes}, out=tmp_path)

    assert run.verdict == "fail"
    assert run.totals(0).any()
    assert (flat(run.weights(0)) != flat(run.weights(1))).any()
    with pytest.raises(DataError, match=r"totals: there is no 1\n  allowed: 0 to 0"):
        run.totals(1)


def test_of_a_step_that_did_not_end_nothing_is_kept(tmp_path: Path) -> None:
    """The second bucket of the second step stalls: that step has the first one alone."""
    whole = netfold.run(SCENARIO, set={"workload.bucket": "800B"}, out=tmp_path)
    (last_ps,) = whole.rounds.filter(step=1, bucket=1)["start_ps"].to_list()
    crash = {"kind": "worker_crash", "worker": 1, "at": f"{last_ps // 1000 + 1}ns"}
    run = netfold.run({**SCENARIO, "faults": [crash]}, set={"workload.bucket": "800B"}, out=tmp_path)

    assert run.verdict == "stalled"
    assert run.rounds.select("step", "bucket").rows() == [(0, 0), (0, 1), (1, 0)]
    np.testing.assert_array_equal(run.totals(-1), whole.totals(0))
    with pytest.raises(DataError, match=r"totals: there is no 1\n  allowed: 0 to 0"):
        run.totals(1)


def test_mistakes_when_arrays_are_read(tmp_path: Path) -> None:
    run = netfold.run(SCENARIO, out=tmp_path)
    for call, text in (
        (lambda: run.totals(2), r"totals: there is no 2\n  allowed: 0 to 1"),
        (lambda: run.totals(-3), "totals: there is no -3"),
        (lambda: run.totals(0, 1), r"bucket: there is no 1\n  allowed: 0 to 0"),
        (lambda: run.gradients(0, 0, 3), r"worker: there is no 3\n  allowed: 0 to 2"),
        (lambda: run.totals(0, variant="kent"), r"variant: there is no 'kent'\n  did you mean 'kept'\?"),
        (run.weights, r"no weights\n  keep: \[weights\] in the scenario keeps them, of the steps that end"),
    ):
        with pytest.raises(DataError, match=text):
            call()
    file = run.path / "arrays" / "kept.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"kept\.safetensors: missing or damaged"):
        run.totals(0)
    file.unlink()
    with pytest.raises(DataError, match=r"kept\.safetensors: missing or damaged"):
        run.totals(0)


@pytest.mark.parametrize(
    ("keep", "text"),
    [
        (
            ["total"],
            "keep.0: cannot use 'total'\n  did you mean 'totals'? allowed: gradients, contributions, ",
        ),
        ("totals", "keep: must be a list, found 'totals'"),
        (
            ["weights"],
            "keep: there are no weights: nothing is trained\n  use a workload of the kind training",
        ),
    ],
)
def test_mistakes_in_a_scenario(keep: Any, text: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        netfold.validate({**SCENARIO, "keep": keep})
    assert text in str(caught.value)


def test_a_run_keeps_as_much_as_the_limit_and_no_more() -> None:
    """Two variants, two seeds, two steps of 500 elements: 3 workers' gradients twice, and the total."""
    size_bytes = 2 * 2 * 2 * 500 * 4 * (3 + 3 + 1)
    several = {**SCENARIO, "seeds": 2, "variants": [{"name": "a"}, {"name": "b"}]}
    with mock.patch.object(kept_arrays, "BYTES_MAX", size_bytes):
        netfold.validate(several)
    with mock.patch.object(kept_arrays, "BYTES_MAX", size_bytes - 1), pytest.raises(ScenarioError) as caught:
        netfold.validate(several)
    assert "use fewer workload.steps, leave out gradients, or write keep below" in str(caught.value)
    large = {**SCENARIO, "workload": {"kind": "synthetic", "elements": 2**20, "steps": 64}}
    problem = r"keep: the arrays of all variants take 1\.0 GiB, gradients alone 768 MiB; a run keeps 1\.0 GiB"
    netfold.validate({**large, "keep": ["gradients"]})
    netfold.validate({**large, "keep": ["gradients", "totals"]})
    with pytest.raises(ScenarioError, match=problem):
        netfold.validate({**large, "keep": ["gradients", "totals"]}, set={"workload.elements": 2**20 + 1})


def test_a_sweep_keeps_arrays_with_run_folders_only(tmp_path: Path) -> None:
    swept = {**SCENARIO, "sweep": {"workers": [2, 3]}}
    with pytest.raises(ScenarioError, match=r"keep: a sweep has no run folders to .*\n  add --keep-runs"):
        netfold.sweep(swept, out=tmp_path, jobs=1)
    scenario = sweep_of(scenario_of(swept), (), None)
    first, _ = points_of(scenario, own_versions(), True)
    assert first.task is not None
    outcome = work(first.task)
    assert outcome.error == ""
    assert "arrays/kept.safetensors" in zipfile.ZipFile(io.BytesIO(outcome.archive)).namelist()
