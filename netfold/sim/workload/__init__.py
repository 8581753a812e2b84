"""Sources of gradients (training, synthetic, files, recordings), and devices: how long compute takes.

    spec ─ training_workload or synthetic_workload → Workload:
        gradients(step) → [worker][bucket];  apply(step, totals);  score(step, is_last) on held-out data

`layers` finds the layers of tensors and reads those that were measured, `fusion` divides layers into buckets
and cuts gradients. `models` has the models, `data_sets` the data; `devices` say how long compute takes.
PyTorch is imported only when something is trained.
"""

from __future__ import annotations

from dataclasses import dataclass

from netfold.homomorphic.message import StepFact, Tensor
from netfold.sim.workload.fusion import DDP_BYTES, Bucket, BySize, Fusion
from netfold.sim.workload.gradient_files import FileSpec
from netfold.sim.workload.hardware import StepCost
from netfold.sim.workload.layers import Layer, layers_of
from netfold.sim.workload.model import Model, TaskSettings
from netfold.sim.workload.models.registry import model_named
from netfold.sim.workload.recipe import Recipe
from netfold.sim.workload.synthetic import SyntheticSpec, SyntheticWorkload
from netfold.sim.workload.workload import Workload

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

_DDP_FUSION, _PLAIN_SGD = BySize(DDP_BYTES), Recipe()


@dataclass(frozen=True)
class TrainingSpec:
    """A model and its training settings."""

    model: Model  # a name is short for the model with its default options
    batch: int = 256  # samples per worker and step
    learning_rate: float = 0.01
    fusion: Fusion = _DDP_FUSION
    data: str | None = None  # one of the model's data sets; None: the first
    test_every: int | None = None  # steps between tests on held-out data; None: none is held out
    recipe: Recipe = _PLAIN_SGD  # optimizer, schedule, local steps

    def __post_init__(self) -> None:
        if isinstance(self.model, str):
            object.__setattr__(self, "model", model_named(self.model))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.model.tensors

    @property
    def stands_in_for(self) -> str:
        # Empty where data are the benchmark's own.
        return self.model.data_named(self.data).stands_in_for

    @property
    def elements(self) -> int:
        return self.model.elements

    @property
    def held_elements(self) -> int:
        # Fewer than all where some are kept as rows.
        return self.model.held_elements(self.batch)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Its layers, in gradient-ready order; their operations are counted when it is built."""
        tensors = self.tensors
        return layers_of(tensors, ready_shares=[1.0] * len(tensors) if self.recipe.is_local else ())

    @property
    def facts(self) -> frozenset[StepFact]:
        return self.recipe.facts


def training_workload(spec: TrainingSpec, workers: int, seed: int) -> Workload:
    # The data set is fetched on first use.
    from netfold.sim.workload.training import TrainingWorkload

    data, holds_out = spec.model.data_named(spec.data).name, spec.test_every is not None
    task = spec.model.task(TaskSettings(data, spec.batch, workers, seed, holds_out))
    settings = workers, spec.learning_rate, spec.fusion, seed, spec.test_every, spec.recipe
    return TrainingWorkload(task, *settings, is_ours=not spec.model.code)


def synthetic_workload(spec: SyntheticSpec, workers: int, seed: int) -> Workload:
    return SyntheticWorkload(spec, workers, seed)


def file_workload(spec: FileSpec, workers: int) -> Workload:
    return spec.workload(workers)
