"""Sources of gradients (training, synthetic tensors, files), and devices, which say how long compute takes.

    spec ─ training_workload or synthetic_workload → Workload:
        gradients(step) → [worker][bucket];  apply(step, totals)

`layers` finds the layers of tensors, `profile` reads those that were measured, `fusion` divides layers into
buckets, and `buckets` cuts gradients.
`data` holds the data sets, `device` the device models. PyTorch is imported only when something is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from netfold.homomorphic.round import StepFact, Tensor
from netfold.sim.workload.buckets import Bucket
from netfold.sim.workload.files.workload import FileSpec, FileWorkload
from netfold.sim.workload.fusion.rule import Fusion
from netfold.sim.workload.fusion.size import DDP_BYTES, BySize
from netfold.sim.workload.layers import Layer, elements_of, layers_of
from netfold.sim.workload.synthetic import SyntheticSpec, SyntheticWorkload
from netfold.sim.workload.training.sizes import (
    MOVIELENS_ITEMS,
    MOVIELENS_USERS,
    digits_tensors,
    ncf_tensors,
)
from netfold.sim.workload.workload import ALL_FACTS, StepCost, Workload

__all__ = [
    "Bucket",
    "FileSpec",
    "StepCost",
    "SyntheticSpec",
    "TrainingSpec",
    "Workload",
    "file_workload",
    "synthetic_workload",
    "training_workload",
]

_DDP_FUSION = BySize(DDP_BYTES)


@dataclass(frozen=True)
class TrainingSpec:
    """A model and its training settings."""

    model: Literal["ncf", "mlp"]
    batch: int = 256  # samples per worker and step
    learning_rate: float = 0.01
    fusion: Fusion = _DDP_FUSION
    expand: tuple[int, int] = (
        1,
        1,
    )  # ncf only: copies of users and items; (147, 16) has the size of MovieLens-20M

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The weights of the model, in gradient-ready order."""
        if self.model == "mlp":
            return digits_tensors()
        return ncf_tensors(MOVIELENS_USERS * self.expand[0], MOVIELENS_ITEMS * self.expand[1])

    @property
    def elements(self) -> int:
        """Number of weights."""
        return elements_of(self.tensors)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers, in gradient-ready order; their operations are counted when it is built."""
        return layers_of(self.tensors)

    @property
    def facts(self) -> frozenset[StepFact]:
        """What its workload knows of a step."""
        return ALL_FACTS


def training_workload(spec: TrainingSpec, workers: int, seed: int) -> Workload:
    """Real gradients of a model in training; its data set is fetched on first use.

    `ncf` is NeuMF on MovieLens-100K, `mlp` a small perceptron on handwritten digits.

    Raises
    ------
    DataError
        The data set is not available, or has fewer samples than there are workers.
    """
    from netfold.sim.workload.training.data import load_digits, load_movielens
    from netfold.sim.workload.training.tasks import DigitsTask, RecommenderTask, Task
    from netfold.sim.workload.training.workload import TrainingWorkload

    task: Task
    if spec.model == "ncf":
        task = RecommenderTask(load_movielens(), spec.expand, spec.batch, workers, seed)
    else:
        task = DigitsTask(load_digits(), spec.batch, workers, seed)
    return TrainingWorkload(task, workers, spec.learning_rate, spec.fusion, seed)


def synthetic_workload(spec: SyntheticSpec, workers: int, seed: int) -> Workload:
    """Gradients with chosen density, pattern, overlap between workers and range of values."""
    return SyntheticWorkload(spec, workers, seed)


def file_workload(spec: FileSpec, workers: int) -> Workload:
    """Gradients from a user's file.

    Raises
    ------
    DataError
        The file has changed since its spec was read.
    """
    return FileWorkload(spec, workers)
