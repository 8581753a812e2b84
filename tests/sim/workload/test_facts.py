"""Workloads without training: what they know of a step, and what is said of codecs that need more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from netfold.homomorphic.round import StepFact, Tensor
from netfold.sim.workload import SyntheticSpec, synthetic_workload
from netfold.sim.workload.facts import refusal_of_needs
from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.fusion.partition import AsGiven
from netfold.sim.workload.layers import read_tensors


def codec(*needs: StepFact) -> Any:
    return SimpleNamespace(kind="lazy", needs=frozenset(needs))


@pytest.mark.parametrize(
    ("needs", "known", "message"),
    [
        ((), (), None),
        ((StepFact.ALL_BUCKETS,), (StepFact.ALL_BUCKETS,), None),
        (
            (StepFact.LEARNING_RATE,),
            (StepFact.ALL_BUCKETS,),
            "lazy needs the learning rate, a study does not know it",
        ),
        (
            (StepFact.KEPT_WEIGHTS, StepFact.LEARNING_RATE, StepFact.UPDATE_NORM, StepFact.ALL_BUCKETS),
            (StepFact.ALL_BUCKETS,),
            "lazy needs the learning rate, the norm of the last update and gradients at weights that a "
            "worker has kept, a study does not know them",
        ),
    ],
)
def test_a_codec_that_needs_more_is_refused(
    needs: tuple[StepFact, ...], known: tuple[StepFact, ...], message: str | None
) -> None:
    refusal = refusal_of_needs(codec(*needs), frozenset(known), "a study")

    assert (refusal and refusal.message) == message
    if refusal:
        assert refusal.hint == "use a scenario whose workload has the kind training, or another codec"


def test_without_training_there_are_no_weights() -> None:
    workload = synthetic_workload(SyntheticSpec(6), 2, seed=1)

    assert workload.facts == SyntheticSpec(6).facts == {StepFact.ALL_BUCKETS}
    assert (workload.learning_rate, workload.update_norm) == (None, None)
    with pytest.raises(RuntimeError, match="nothing is trained: there are no weights to keep"):
        workload.keep_weights(0)
    with pytest.raises(RuntimeError, match="nothing is trained: there are no gradients at kept weights"):
        workload.kept_gradients(0, 0)


def test_a_state_without_training_is_the_next_step() -> None:
    first, second = (synthetic_workload(SyntheticSpec(6), 2, seed=1) for _ in range(2))
    first.apply(4, [np.zeros(6, np.float32)], [True])
    second.restore(first.state())

    assert second.next_step == first.next_step == 5
    second.restart()
    assert second.next_step == 0
    with pytest.raises(ValueError, match="nothing is trained, found a state of step, weights"):
        second.restore({**first.state(), "weights": np.zeros(3)})


def test_synthetic_tensors_are_views_of_the_same_gradient() -> None:
    """Tensors and buckets change the cut and not the values."""
    tensors = read_tensors(["a.weight=4x3", "a.bias=4", "b.weight=2x4", "c=5"])
    whole = np.concatenate(synthetic_workload(SyntheticSpec(29), 2, seed=1).gradients(3)[1])
    for fusion, buckets in (
        (NoFusion(), [["a.weight", "a.bias"], ["b.weight"], ["c"]]),
        (AsGiven((("c", "a"), ("b",))), [["b.weight"], ["a.weight", "a.bias", "c"]]),
    ):
        workload = synthetic_workload(SyntheticSpec(29, shapes=tensors, fusion=fusion), 2, seed=1)
        assert [[one.name for one in bucket.tensors] for bucket in workload.buckets] == buckets
        for step in (0, 3):  # the call for a step overwrites what is in the arrays of another
            found = workload.gradients(step)[1]
        for bucket, part in zip(workload.buckets, found, strict=True):
            for tensor in bucket.tensors:
                (source,) = [one for one in tensors if one.name == tensor.name]
                assert part[tensor.place].tobytes() == whole[source.place].tobytes()


def test_elements_alone_are_one_vector() -> None:
    (bucket,) = synthetic_workload(SyntheticSpec(29), 2, seed=1).buckets

    assert bucket.tensors == (Tensor("part0", (29,), ""),)
