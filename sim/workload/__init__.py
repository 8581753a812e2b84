"""Sources of gradients (training, synthetic, files, recordings), and devices: how long compute takes.

    spec ─ training_workload or synthetic_workload → Workload:
        gradients(step) → [worker][bucket];  apply(step, totals);  score(step, is_last) on held-out data

`layers` finds the layers of tensors, `profile` reads those that were measured, `fusion` divides layers into
buckets, and `buckets` cuts gradients.
`data` holds the data sets, `device` the device models. PyTorch is imported only when something is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from netfold.homomorphic.round import StepFact, Tensor
from netfold.sim.workload.buckets import Bucket
from netfold.sim.workload.files.workload import FileSpec
from netfold.sim.workload.fusion.rule import Fusion
from netfold.sim.workload.fusion.size import DDP_BYTES, BySize
from netfold.sim.workload.layers import Layer, elements_of, layers_of
from netfold.sim.workload.synthetic import SyntheticSpec, SyntheticWorkload
from netfold.sim.workload.training.sizes import (
    DATA,
    MOVIELENS_ITEMS,
    MOVIELENS_USERS,
    PERCEPTRONS,
    ncf_tensors,
    perceptron_tensors,
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

    model: Literal["ncf", "mlp", "mlp_784"]
    batch: int = 256  # samples per worker and step
    learning_rate: float = 0.01
    fusion: Fusion = _DDP_FUSION
    expand: tuple[int, int] = (
        1,
        1,
    )  # ncf only: copies of users and items; (147, 16) has the size of MovieLens-20M
    data: str | None = None  # a name in DATA[model]; None: the first
    test_every: int | None = None  # steps between tests on held-out data; None: none is held out

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The weights of the model, in gradient-ready order."""
        if self.model in PERCEPTRONS:
            return perceptron_tensors(PERCEPTRONS[self.model])
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

    `ncf` is NeuMF on MovieLens-100K; `mlp` is a perceptron 64-128-10 on handwritten digits of 8 by 8 pixels,
    `mlp_784` one of 784-512-10 on the same digits enlarged to 28 by 28 or on a part of MNIST.

    Raises
    ------
    DataError
        The data set is not available, or has fewer samples than there are workers.
    """
    from netfold.sim.workload.training.images import load_images
    from netfold.sim.workload.training.ratings import load_movielens
    from netfold.sim.workload.training.recommender import RecommenderTask
    from netfold.sim.workload.training.tasks import DigitsTask, Task
    from netfold.sim.workload.training.workload import TrainingWorkload

    task: Task
    holds_out = spec.test_every is not None
    if spec.model == "ncf":
        task = RecommenderTask(load_movielens(), spec.expand, spec.batch, workers, seed, holds_out)
    else:
        sizes = PERCEPTRONS[spec.model]
        images = load_images(spec.data or DATA[spec.model][0], sizes[0])
        task = DigitsTask(images, sizes, spec.batch, workers, seed, holds_out)
    return TrainingWorkload(task, workers, spec.learning_rate, spec.fusion, seed, spec.test_every)


def synthetic_workload(spec: SyntheticSpec, workers: int, seed: int) -> Workload:
    """Gradients with chosen density, pattern, overlap between workers and range of values."""
    return SyntheticWorkload(spec, workers, seed)


def file_workload(spec: FileSpec, workers: int) -> Workload:
    """Gradients from a user's file, or from a recording.

    Raises
    ------
    DataError
        The file has changed since its spec was read.
    """
    return spec.workload(workers)
