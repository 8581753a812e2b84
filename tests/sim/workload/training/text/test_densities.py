"""Densities of gradients at the first step, of a worker and of the union of eight, beside the known ones.

The known ones were measured with another implementation of the models, on words of the same books.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from netfold.sim.workload.training.models.ncf import Ncf
from netfold.sim.workload.training.models.registry import MODELS
from netfold.sim.workload.training.models.spec import Density, Model, TaskSettings
from netfold.sim.workload.training.models.text.bert import BertQa
from netfold.sim.workload.training.models.text.lstm import LstmBillion, LstmModel
from netfold.sim.workload.training.workload import one_thread
from tests.examples import nightly
from tests.sim.workload.training.text.given import backward, module_of

WORKERS = 8
POINTS = 0.02

CASES = [
    (LstmModel(), 4, 0.726, 0.735),
    *(
        pytest.param(*case, marks=nightly)
        for case in (
            (LstmBillion(), 16, 0.0506, 0.0737),  # 40 s and 3 GB
            (BertQa(sequence=64), 1, 0.7819, 0.7831),  # 20 s and 1.5 GB
            (Ncf(expand=(147, 16), sparse=True), 4096, 0.0293, 0.147),  # 3 s
        )
    ),
]


def places_of(gradient: torch.Tensor) -> np.ndarray:
    """Flat places of the non-zero elements."""
    if not gradient.is_sparse:
        return np.flatnonzero(gradient.numpy())
    found = gradient.coalesce()
    rows = found.indices()[0].numpy()
    width = gradient.numel() // gradient.shape[0]
    values = found.values().reshape(len(rows), width).numpy()
    row, column = np.nonzero(values)
    return np.asarray(rows[row] * width + column)


def densities(model: Model, batch: int) -> tuple[float, float]:
    """Of a worker (the mean), and of the union; workers take turns."""
    task = model.task(TaskSettings(model.data[0].name, batch, WORKERS, 1))
    module = module_of(task)
    masks = {tensor.name: np.zeros(tensor.elements, np.bool_) for tensor in model.tensors}
    own = 0
    for worker in range(WORKERS):
        with one_thread():
            gradients = backward(task, module, 0, worker)
        for name in list(gradients):
            places = places_of(gradients.pop(name))
            masks[name][places] = True
            own += len(places)
    union = sum(int(mask.sum()) for mask in masks.values())
    return own / WORKERS / model.elements, union / model.elements


@pytest.mark.parametrize(
    ("model", "batch", "own", "union"), CASES, ids=lambda one: getattr(one, "kind", None)
)
def test_densities_are_the_known_ones(model: Model, batch: int, own: float, union: float) -> None:
    assert densities(model, batch) == (pytest.approx(own, abs=POINTS), pytest.approx(union, abs=POINTS))


def test_known_densities_are_of_models_with_these_options() -> None:
    found = [(model, known) for kind in MODELS for model, known in kind.known()]

    assert {model.kind for model, _ in found} >= {"lstm", "lstm_1b", "bert_qa"}
    for model, known in found:
        assert isinstance(known, Density)
        assert 0 < known.own <= known.union <= 1
        assert model.data_named(known.data)
