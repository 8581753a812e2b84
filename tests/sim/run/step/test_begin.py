"""Encoders look at a step before its first bucket, and at tensors: what they see, when, at which cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import netfold
import netfold.sim.workload.pool
from netfold.homomorphic import codec as codecs
from netfold.homomorphic.codec import Decoded, Encoder, Exchange, register
from netfold.homomorphic.codecs.dense.kinds import Dense
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Round, Step, StepFact, Tensor
from netfold.sim.workload import Workload
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.sim.scenes import RING, simulate

US = 10**6
SEEN: list[tuple[int, Step, list[Gradient]]] = []  # worker, step, gradients at the kept weights
TENSORS: set[tuple[int, tuple[Tensor, ...]]] = set()  # of each bucket
UPDATE = np.float32(0.125)


class Looking(Encoder):
    """Keeps the weights of the first step, and asks for gradients at them from then on.

    Of the bucket that a test names it returns an update instead of the sum.
    """

    def __init__(self, encoder: Encoder, rank: int, codec: LookingCodec) -> None:
        self._encoder, self._rank, self._codec = encoder, rank, codec

    def begin(self, step: Step) -> None:
        kept: list[Gradient] = []
        if self._codec.wrong and step.number == 1 and self._rank == 1:
            raise ValueError("it does not begin")
        if StepFact.KEPT_WEIGHTS in self._codec.needs:
            if step.number == 0:
                step.keep_weights()
            else:
                kept = list(step.kept_gradients())
        copied = [one.copy() for one in step.gradients]
        SEEN.append((self._rank, Step(step.number, step.learning_rate, step.update_norm, copied), kept))

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        TENSORS.add((round.bucket, round.tensors))
        decoded = yield from self._encoder.exchange(gradient, round)
        if round.bucket != self._codec.updated:
            return decoded
        return Decoded(np.full_like(gradient, UPDATE), decoded.contribution, is_update=True)


@dataclass(frozen=True)
class LookingCodec(Dense):
    """Dense values whose encoders look."""

    kind: ClassVar[str] = "looking"

    facts: tuple[str, ...] = ()
    wrong: bool = False
    updated: int = -1

    @property
    def needs(self) -> frozenset[StepFact]:
        return frozenset(StepFact[name] for name in self.facts)

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        return Looking(super().worker(rank, workers, seed), rank, self)


@pytest.fixture(autouse=True)
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    TENSORS.clear()
    monkeypatch.setattr(codecs, "_registry", dict(codecs._registry))
    register(LookingCodec)


def run(folder: Path, *facts: str, sections: dict[str, Any] | None = None, **more: Any) -> netfold.Run:
    scenario = {
        "name": "looking",
        "topology": {"kind": "star", "hosts": 2},
        "workers": 2,
        "workload": {
            **{"kind": "training", "model": "mlp", "batch": 4, "learning_rate": 0.5, "steps": 3},
            "fusion": {"kind": "none"},
        },
        "device": {"kind": "fixed", "forward": "20us", "backward": "30us"},
        "codec": {"kind": "looking", "facts": list(facts), **more},
        "collective": {"kind": "ring"},
        **(sections or {}),
    }
    return netfold.run(scenario, out=folder)


def phases(run: netfold.Run, step: int) -> list[tuple[str, int, int]]:
    """Kind, start and end of worker 0's passes in a step, from the step's start on, in µs."""
    start = run.steps.row(step, named=True)["start_ps"]
    return [
        (row["phase"], (row["start_ps"] - start) // US, (row["end_ps"] - start) // US)
        for row in run.phases.iter_rows(named=True)
        if (row["step"], row["worker"], row["bucket"]) == (step, 0, -1)
    ]


def first_sent_us(run: netfold.Run, step: int) -> int:
    row = run.steps.row(step, named=True)
    return int(row["aggregation_start_ps"] - row["start_ps"]) // US


def test_without_needs_nothing_waits(tmp_path: Path) -> None:
    found = run(tmp_path, "LEARNING_RATE", "UPDATE_NORM")

    assert found.verdict == "pass"
    assert phases(found, 1) == [("forward", 0, 20), ("backward", 20, 50)]
    assert first_sent_us(found, 1) < 50
    assert {step.learning_rate for _, step, _ in SEEN} == {0.5}
    norms = [step.update_norm for rank, step, _ in SEEN if rank == 0]
    assert norms[0] is None
    assert all(norm is not None and norm > 0 for norm in norms[1:])
    assert all(not step.gradients for _, step, _ in SEEN)


def test_all_gradients_are_there_when_backward_has_ended(tmp_path: Path) -> None:
    found = run(tmp_path, "ALL_BUCKETS")

    assert found.verdict == "pass"
    assert phases(found, 1) == [("forward", 0, 20), ("backward", 20, 50)]
    assert first_sent_us(found, 1) == 50
    assert [len(step.gradients) for _, step, _ in SEEN] == [2] * 6
    assert [one.size for one in SEEN[0][1].gradients] == [1290, 8320]  # the last layer is ready first


def test_gradients_at_kept_weights_take_a_second_pass(tmp_path: Path) -> None:
    """In step 0 the weights are kept, and nothing is asked for."""
    found = run(tmp_path, "ALL_BUCKETS", "KEPT_WEIGHTS")

    assert found.verdict == "pass"
    assert phases(found, 0) == [("forward", 0, 20), ("backward", 20, 50)]
    assert phases(found, 1) == [("forward", 0, 20), ("backward", 20, 50), ("more passes", 50, 100)]
    assert [first_sent_us(found, step) for step in range(3)] == [50, 100, 100]
    last = found.steps.row(1, named=True)
    assert last["backward_end_ps"] - last["start_ps"] == 50 * US
    for _, step, kept in SEEN[2:]:
        assert [one.size for one in kept] == [1290, 8320]
        assert any(not np.array_equal(a, b) for a, b in zip(kept, step.gradients, strict=True))


def test_weights_that_did_not_move_give_the_same_gradients(tmp_path: Path) -> None:
    """A learning rate so small that float32 weights stay as they are."""
    still = {"kind": "training", "model": "mlp", "batch": 4, "learning_rate": 1e-30, "steps": 2}
    found = run(tmp_path, "ALL_BUCKETS", "KEPT_WEIGHTS", sections={"workload": still})

    assert found.verdict == "pass"
    for _, step, kept in SEEN[2:]:
        assert [one.tobytes() for one in kept] == [one.tobytes() for one in step.gradients]


@pytest.mark.parametrize("facts", [(), ("ALL_BUCKETS",)])
def test_an_encoder_that_cannot_begin_ends_its_variant(tmp_path: Path, facts: tuple[str, ...]) -> None:
    found = run(tmp_path, *facts, wrong=True)
    checks = {one["name"]: one for one in found.summary["variants"][0]["checks"]}

    assert found.verdict == "fail"
    assert checks["finishes"]["detail"].startswith("worker 1, step 1: `begin`: ValueError: it does not begin")


# What they see of a bucket, and what becomes of an update.


MLP = "workload={{kind: training, model: mlp, batch: 8, learning_rate: 0.5, fusion: {}}}"


def weights_of(workload: Workload) -> dict[str, NDArray[np.float32]]:
    assert isinstance(workload, TrainingWorkload)
    return {name: one.detach().numpy().copy() for name, one in workload.model.named_parameters()}


def test_encoders_see_the_tensors_of_their_bucket(tmp_path: Path) -> None:
    simulate(tmp_path, MLP.format("{kind: none}"), RING, "codec={kind: looking}", "workload.steps=2")

    assert {bucket: [tuple(tensor) for tensor in tensors] for bucket, tensors in TENSORS} == {
        0: [("2.bias", (10,), "2", 0), ("2.weight", (10, 128), "2", 10)],
        1: [("0.bias", (128,), "0", 0), ("0.weight", (128, 64), "0", 128)],
    }
    assert len(TENSORS) == 2


@pytest.mark.parametrize("updated", [-1, 0, 1])
def test_an_update_is_subtracted_as_it_is(tmp_path: Path, trained: list[Workload], updated: int) -> None:
    codec = f"codec={{kind: looking, values: float32, updated: {updated}}}"
    simulate(tmp_path, MLP.format("{kind: none}"), RING, codec)
    (workload,) = trained
    after = weights_of(workload)
    workload.restart()
    before = weights_of(workload)

    for bucket in workload.buckets:
        for tensor in bucket.tensors:
            as_it_is = np.array_equal(before[tensor.name] - UPDATE, after[tensor.name])
            assert as_it_is == (bucket.index == updated)
            assert not np.array_equal(before[tensor.name], after[tensor.name])


def test_layers_that_lie_apart_may_share_a_bucket(tmp_path: Path) -> None:
    """Two buckets of three layers: the first and the last together are ready when the last is."""
    tensors = "[a.weight=10x20, a.bias=10, b=30x30, c.weight=5x5, c.bias=5]"
    fusion = "{kind: partition, buckets: [[a, c], [b]]}"
    workload = f"workload={{kind: synthetic, tensors: {tensors}, fusion: {fusion}}}"
    result = simulate(tmp_path, workload, RING, "codec={kind: looking}")

    assert {check.verdict for check in result.checks} == {"pass"}
    assert [record.elements for record in result.rounds] == [900, 240]
    assert {bucket: [tensor.name for tensor in tensors] for bucket, tensors in TENSORS} == {
        0: ["b"],
        1: ["a.weight", "a.bias", "c.weight", "c.bias"],
    }
