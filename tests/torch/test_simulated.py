"""Training in real processes is simulated training, bit for bit, with every kind of merge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netfold.sim.workload.pool
from netfold.sim.run.run import run_variant
from netfold.sim.workload import TrainingSpec, Workload, training_workload
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.sim.scenes import plan
from tests.torch.processes import returned
from tests.torch.trainings import train_as_simulated, weights_of

WORKERS, STEPS, SEED = 3, 20, 7
ONE, TWO = 1 << 20, 8 << 10  # bytes of a bucket: all layers in one, each in its own
MLP = f"workload={{kind: training, model: mlp, batch: 16, steps: {STEPS}, learning_rate: 0.5, bucket: "
RING, GATHER = "collective={kind: ring}", "collective={kind: all_gather}"
SWITCH = "collective={kind: in_network, frame: udp-256}"
CASES = [  # codec, bytes of a bucket, collective that it is compared with, its merges
    ("packed:values=exact", TWO, RING),  # ADD, MAX, OR
    ("exact", ONE, SWITCH),
    ("lossless:values=exact", ONE, RING),
    ("none", TWO, GATHER),  # FLOAT_ADD
    ("topk:share=0.05", TWO, GATHER),  # GATHER, with error feedback
    ("topk:share=0.05", ONE, "collective={kind: parameter_server}"),
    ("count_sketch:ratio=0.5,share=0.05", ONE, RING),
    ("majority", TWO, SWITCH),  # ADD in lanes of 4 bits
    ("bird_shared:share=0.5", ONE, RING),  # rows of layers
    ("cascaded_sign", ONE, GATHER),  # HOST
    ("marsit:every=5,eta_s=0.001", TWO, GATHER),  # SIGN, updates
    ("sasg:alpha=0,share=0.05", ONE, GATHER),  # GATHER with a server's part, updates
]


def scenario_of(codec: str) -> str:
    kind, _, options = codec.partition(":")
    return f"codec={{kind: {kind}, {options.replace('=', ': ')}}}"


def simulated(
    folder: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, int, str]
) -> tuple[TrainingSpec, Any, Any]:
    """The spec of the workload, the weights after the run, and the records of its rounds and notes."""
    made: list[Workload] = []

    def make(*arguments: Any) -> Workload:
        made.append(training_workload(*arguments))
        return made[-1]

    monkeypatch.setattr(netfold.sim.workload.pool, "training_workload", make)
    codec, bucket, collective = case
    sets = (f"workers={WORKERS}", f"{MLP}{bucket}B}}", scenario_of(codec), collective)
    resolved = plan(folder, *sets)
    (variant,) = resolved.variants
    result = run_variant(resolved, variant)
    spec = variant.jobs[0].workload
    assert isinstance(spec, TrainingSpec)
    assert isinstance(made[0], TrainingWorkload)
    return spec, weights_of(made[0].model), result.records


@pytest.mark.slow
@pytest.mark.processes
def test_training_in_processes_is_simulated_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [simulated(tmp_path, monkeypatch, case) for case in CASES]
    codecs = [case[:2] for case in CASES]

    every = returned(WORKERS, tmp_path, train_as_simulated, runs[0][0], WORKERS, SEED, STEPS, codecs)

    start = weights_of(_model(runs[0][0]))
    for case, (_, weights, records), trained in zip(CASES, runs, zip(*every, strict=True), strict=True):
        payload = [sum(sent) for sent in zip(*(one.payload_bytes for one in trained), strict=True)]
        for one in trained:
            np.testing.assert_array_equal(one.weights.view(np.int32), weights.view(np.int32), str(case))
            assert one.notes == [(note.step, note.bucket, note.kind, note.count) for note in records.notes]
        assert payload == [round.payload_bytes_up for round in records.rounds], case
        assert not np.array_equal(weights, start)


def _model(spec: TrainingSpec) -> Any:
    workload = training_workload(spec, WORKERS, SEED)
    assert isinstance(workload, TrainingWorkload)
    return workload.model
