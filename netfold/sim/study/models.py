"""Models as the command line names, describes and measures them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from netfold.errors import DataError, ScenarioError
from netfold.sim.keys.section import Section, keys
from netfold.sim.processor import pin
from netfold.sim.scenario.explain import explain
from netfold.sim.scenario.node import Node
from netfold.sim.study.defaults import WORKERS
from netfold.sim.study.options import read_kind
from netfold.sim.workload.layers import layers_of
from netfold.sim.workload.models.model import Density, Model, TaskSettings
from netfold.sim.workload.models.registry import MODELS, AnyModel, model_kinds

_BATCH = 16  # where none is known
_EXAMPLE = "use MODEL:OPTION=VALUE,OPTION=VALUE, for example ncf:expand=[147,16]"


class _Holder(Section):
    """The section that a scenario file would have for a model."""

    model: AnyModel


class Row(NamedTuple):
    """Densities of a model that were measured, beside the known ones."""

    model: Model
    data: str
    batch: int
    workers: int
    own: float
    union: float
    common: float
    known: Density | None  # None: not known for this model, batch and number of workers


class Wanted(NamedTuple):
    """What is to be measured."""

    model: Model
    batch: int
    data: str


def read_model(text: str) -> Model:
    """The model of "MODEL" or "MODEL:OPTION=VALUE,…"; values are YAML and mean what they do in a scenario.

    Raises
    ------
    ScenarioError
        There is no such model or option, the model refuses a value, or it is one of the user's own.
    """
    if ".py:" in text or text.partition(":")[0] == "user":
        hint = "give it to a scenario, workload: {kind: training, model: ./mine.py:make}"
        raise ScenarioError(text, 0, "", "only models of netfold's own are known here", hint)
    tree = Node({"model": read_kind(text, _options_of, _EXAMPLE)}, text, 0, "")
    try:
        return _Holder.model_validate(tree.plain).model
    except ValidationError as error:
        raise explain(error, tree, _Holder) from None


def _options_of(kind: str) -> list[str] | None:
    known = model_kinds().get(kind)
    return [key for key in keys(known) if key != "kind"] if known else None


def described(model: Model) -> dict[str, Any]:
    """What is known of a model, as JSON values; layers in gradient-ready order."""
    tensors = model.tensors
    return {
        "kind": model.kind,
        "title": model.title,
        "meaning": (type(model).__doc__ or "").strip(),
        "source": model.source,
        "parameters": model.elements,
        "metric": model.metric,
        "data": [{"name": one.name, "stands_in_for": one.stands_in_for or None} for one in model.data],
        "options": {
            key: {"default": model.default().model_dump(mode="json")[key], "meaning": one.description}
            for key, one in keys(type(model)).items()
            if key != "kind"
        },
        "layers": [
            {"name": layer.name, "parameters": layer.elements, "ready_share": layer.ready_share}
            for layer in layers_of(tensors)
        ],
    }


def wanted(texts: Sequence[str], batch: int | None, data: str | None) -> list[Wanted]:
    """What to measure: the models that are named, or all whose densities are known.

    Without a batch or data, each model has those for which its densities are known, or 16 and its first
    data set.

    Raises
    ------
    ScenarioError
        As `read_model`.
    DataError
        A model is not trained on this data.
    """
    if not texts:
        return [_wanted(model, batch, data, known) for kind in MODELS for model, known in kind.known()]
    models = [read_model(text) for text in texts]
    return [
        _wanted(model, batch, data, next((known for one, known in model.known() if one == model), None))
        for model in models
    ]


def _wanted(model: Model, batch: int | None, data: str | None, known: Density | None) -> Wanted:
    names = [one.name for one in model.data]
    if data is not None and data not in names:
        raise DataError(f"model {model.kind} is not trained on {data}", f"use {' or '.join(names)}")
    chosen = model.data_named(data or (known.data if known else None))
    return Wanted(model, batch or (known.batch if known else _BATCH), chosen.name)


def measured(
    items: Sequence[Wanted], workers: int, seed: int, progress: Callable[[str], None]
) -> Iterator[Row]:
    """Densities at the first step of each model, one after the other.

    Raises
    ------
    DataError
        A data set is not available, or has fewer samples than there are workers.
    """
    from netfold.sim.workload.model_probe import measure  # late: it imports PyTorch

    pin()
    for model, batch, data in items:
        progress(f"{model.title}, batch {batch}")
        found = measure(model, TaskSettings(data, batch, workers, seed))
        yield Row(model, data, batch, workers, *found, _known(model, batch, data, workers))


def _known(model: Model, batch: int, data: str, workers: int) -> Density | None:
    for one, known in model.known():
        if (one, known.batch, model.data_named(known.data).name, WORKERS) == (model, batch, data, workers):
            return known
    return None
