"""A rule of fusion of one's own: what it is told of layers, and what becomes of its partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

from netfold.sim.workload import TrainingSpec, training_workload
from netfold.sim.workload.fusion.rule import Fusion, FusionSection, Partition
from netfold.sim.workload.layers import Layer

BATCH = 4


@dataclass(frozen=True)
class ByWork(Fusion):
    """Layers whose backward pass takes few operations wait for the next one."""

    least_flops: int

    def partition(self, layers: Sequence[Layer]) -> Partition:
        """Close a bucket after enough operations."""
        buckets: list[list[int]] = [[]]
        for index, layer in enumerate(layers):
            if sum(layers[one].backward_flops for one in buckets[-1]) >= self.least_flops > 0 and buckets[-1]:
                buckets.append([])
            buckets[-1].append(index)
            assert layer.elements > 0
            assert 0 < layer.ready_share <= 1
        return tuple(map(tuple, buckets))


class WorkSection(FusionSection):
    """Layers by their work."""

    kind: Literal["work"] = "work"
    least_flops: int

    def rule(self) -> Fusion:
        """The rule."""
        return ByWork(self.least_flops)


@pytest.mark.parametrize(
    ("least_flops", "layers"),
    [
        # The last layer of the perceptron takes two products of batch · 128 · 10, the first one of 64 · 128.
        (2 * 2 * BATCH * 128 * 10, [["2"], ["0"]]),
        (2 * 2 * BATCH * 128 * 10 + 1, [["2", "0"]]),
    ],
)
def test_a_rule_sees_the_work_of_layers(least_flops: int, layers: list[list[str]]) -> None:
    rule = WorkSection.model_validate({"least_flops": least_flops}).rule()
    workload = training_workload(TrainingSpec("mlp", BATCH, 0.1, rule), 2, 1)

    found = [list(dict.fromkeys(tensor.layer for tensor in bucket.tensors)) for bucket in workload.buckets]
    assert found == layers
    assert [part.size for part in workload.gradients(0)[1]] == [
        bucket.elements for bucket in workload.buckets
    ]
    assert np.isfinite(np.concatenate(workload.gradients(0)[1])).all()
