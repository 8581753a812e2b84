"""What netfold's own models have in common: facts that follow from their modules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from netfold.sim.keys import keys, written
from netfold.sim.workload.model import Data, Density, Model, ModelFacts, Parts, Rows, TaskSettings
from netfold.sim.workload.model_probe import tensors_of
from netfold.sim.workload.model_task import ModelTask
from netfold.sim.workload.weights import drawing


class BuiltIn(Model):
    """A model of netfold's own. Its fields are its options, its docstring is what the reference says."""

    title: ClassVar[str]
    source: ClassVar[str]
    data: ClassVar[tuple[Data, ...]]
    metric: ClassVar[str]
    chance: ClassVar[float | None] = None
    densities: ClassVar[tuple[Density, ...]] = ()
    sample_bytes: ClassVar[int] = 0

    @abstractmethod
    def make(self, settings: TaskSettings) -> Parts:
        """The parts of a training: module, data, loss, and a score if data are to be held out."""

    @abstractmethod
    def inputs(self) -> tuple[Tensor, ...]:
        """Inputs of the module of any values: a pass on PyTorch's meta device shows its layers."""

    @property
    def rows(self) -> Mapping[str, Rows]:
        """The parameters whose gradients PyTorch gives as rows of a table."""
        return {}

    @property
    def facts(self) -> ModelFacts:
        """What is known of it with these options."""
        return _facts(self)

    def known(self) -> ModelFacts:
        """The facts, found anew."""
        defaults = written(type(self)())
        with torch.device("meta"):  # there a pass takes no memory
            module = self.module()
            tensors = tensors_of(module, lambda: module(*self.inputs()).sum())
        return ModelFacts(
            title=self.title,
            meaning=(type(self).__doc__ or "").strip(),
            source=self.source,
            metric=self.metric,
            chance=self.chance,
            data=self.data,
            densities=self.densities,
            options={
                name: (defaults[name], field.description or "")
                for name, field in keys(type(self)).items()
                if name != "kind"
            },
            sample_bytes=self.sample_bytes,
            rows=self.rows,
            tensors=tensors,
        )

    def task(self, settings: TaskSettings) -> ModelTask:
        """The model with its data, for a number of workers."""
        with drawing(settings.seed, "weights"):
            parts = self.make(settings)
        return ModelTask(parts, self.metric, self.module, settings)


@lru_cache(maxsize=64)
def _facts(model: BuiltIn) -> ModelFacts:
    return model.known()
