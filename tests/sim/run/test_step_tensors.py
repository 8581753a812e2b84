"""In a run: encoders see the tensors of their bucket, and an update is applied as it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import netfold.sim.workload.pool
from netfold.homomorphic import codec as codecs
from netfold.homomorphic.codec import Decoded, Encoder, Exchange, register
from netfold.homomorphic.codecs.dense.kinds import Dense
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.round import Round, Tensor
from netfold.sim.workload import Workload, training_workload
from netfold.sim.workload.training.workload import TrainingWorkload
from tests.sim.scenes import RING, simulate

MLP = "workload={{kind: training, model: mlp, batch: 8, learning_rate: 0.5, fusion: {}}}"
UPDATE = np.float32(0.125)
SEEN: set[tuple[int, tuple[Tensor, ...]]] = set()


class Looking(Encoder):
    """An encoder that notes the tensors of its buckets; it may return an update instead of the sum."""

    def __init__(self, encoder: Encoder, updated: int) -> None:
        self._encoder, self._updated = encoder, updated

    def exchange(self, gradient: Gradient, round: Round) -> Exchange:
        """The wrapped encoder's, or an update of the bucket that a test names."""
        SEEN.add((round.bucket, round.tensors))
        decoded = yield from self._encoder.exchange(gradient, round)
        if round.bucket != self._updated:
            return decoded
        return Decoded(np.full_like(gradient, UPDATE), decoded.contribution, is_update=True)


@dataclass(frozen=True)
class LookingCodec(Dense):
    """A codec with such encoders."""

    kind: ClassVar[str] = "looking"
    updated: int = -1

    def worker(self, rank: int, workers: int, seed: int) -> Encoder:
        """A dense encoder that looks."""
        return Looking(super().worker(rank, workers, seed), self.updated)


@pytest.fixture(autouse=True)
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The codec is registered for a test."""
    SEEN.clear()
    monkeypatch.setattr(codecs, "_registry", dict(codecs._registry))
    register(LookingCodec)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[Workload]:
    """The workloads that runs train."""
    workloads: list[Workload] = []

    def make(*arguments: Any) -> Workload:
        workloads.append(training_workload(*arguments))
        return workloads[-1]

    monkeypatch.setattr(netfold.sim.workload.pool, "training_workload", make)
    return workloads


def weights_of(workload: Workload) -> dict[str, NDArray[np.float32]]:
    assert isinstance(workload, TrainingWorkload)
    return {name: one.detach().numpy().copy() for name, one in workload.model.named_parameters()}


def test_encoders_see_the_tensors_of_their_bucket(tmp_path: Path) -> None:
    simulate(tmp_path, MLP.format("{kind: none}"), RING, "codec={kind: looking}", "workload.steps=2")

    assert {bucket: [tuple(tensor) for tensor in tensors] for bucket, tensors in SEEN} == {
        0: [("2.bias", (10,), "2", 0), ("2.weight", (10, 128), "2", 10)],
        1: [("0.bias", (128,), "0", 0), ("0.weight", (128, 64), "0", 128)],
    }
    assert len(SEEN) == 2


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
    assert {bucket: [tensor.name for tensor in tensors] for bucket, tensors in SEEN} == {
        0: ["b"],
        1: ["a.weight", "a.bias", "c.weight", "c.bias"],
    }
