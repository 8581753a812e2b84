"""What netfold's own models have in common: facts that follow from their modules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor, nn

from netfold.homomorphic.message import Tensor as Described
from netfold.sim.keys import keys, written
from netfold.sim.workload.layers import place_tensors
from netfold.sim.workload.model import Data, Density, Model, ModelFacts, Parts, Rows, TaskSettings
from netfold.sim.workload.model_probe import probe
from netfold.sim.workload.task import ModelTask
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
            tensors=tensors_of(self),
        )

    def task(self, settings: TaskSettings) -> ModelTask:
        """The model with its data, for a number of workers."""
        with drawing(settings.seed, "weights"):
            parts = self.make(settings)
        return ModelTask(parts, self.metric, self.module, settings)


@lru_cache(maxsize=64)
def _facts(model: BuiltIn) -> ModelFacts:
    return model.known()


def tensors_of(model: BuiltIn) -> tuple[Described, ...]:
    """The parameters in gradient-ready order, from a pass without values, which takes no memory."""
    with torch.device("meta"):
        module = model.module()
        probed = probe(module, lambda: module(*model.inputs()).sum())
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    places = {name: position for position, name in enumerate(probed.order)}
    for name, part in module.named_modules():
        if isinstance(part, nn.LSTM):
            places |= _fused(part, name, places)
    return place_tensors(
        Described(name, shapes[name], probed.layers[name]) for name in sorted(places, key=places.__getitem__)
    )


def _fused(lstm: nn.LSTM, name: str, places: Mapping[str, int]) -> dict[str, int]:
    """The order on a CPU, where a layer of an LSTM is one operator: it gives all of its gradients at once."""
    names = [
        f"{name}.{part}_l{layer}"
        for layer in reversed(range(lstm.num_layers))
        for part in ("weight_ih", "weight_hh", "bias_hh", "bias_ih")
    ]
    return dict(zip(names, sorted(places[parameter] for parameter in names), strict=True))
