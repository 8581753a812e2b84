"""Densities of gradients: how they are counted, and that models have the known ones."""

from __future__ import annotations

import numpy as np
import pytest

from netfold.sim.workload import TrainingSpec, training_workload
from netfold.sim.workload.training.densities import measure
from netfold.sim.workload.training.models.cnn import CnnModel
from netfold.sim.workload.training.models.ncf import Ncf
from netfold.sim.workload.training.models.registry import model_named
from netfold.sim.workload.training.models.resnet import ResNet18, ResNet20, ResNet50
from netfold.sim.workload.training.models.spec import Model, TaskSettings
from netfold.sim.workload.training.models.text.bert import BertQa
from netfold.sim.workload.training.models.text.lstm import LstmBillion, LstmModel
from netfold.sim.workload.training.models.vgg import Vgg19, Vgg19Small
from tests.examples import nightly
from tests.sim.workload.training.text.given import SPARSE_NCF

WORKERS = 8
POINTS = 0.02

# Model, batch, density of one worker, and of the union of eight, as another implementation measured them.
KNOWN = [
    (Ncf(), 256, 0.180, 0.549),
    (CnnModel(), 16, 0.693, 0.802),
]
LARGE = [
    (ResNet20(), 2, 1.0, 1.0),
    (ResNet18(), 1, 1.0, 1.0),
    (ResNet50(), 1, 1.0, 1.0),
    (LstmModel(), 4, 0.726, 0.735),  # this and the next two: on words of the same books
    (LstmBillion(), 16, 0.0506, 0.0737),  # 40 s and 3 GB
    (BertQa(sequence=64), 1, 0.7819, 0.7831),  # 20 s and 1.5 GB
    (Ncf(expand=(147, 16), sparse=True), 4096, 0.0293, 0.147),
    (Ncf(expand=(147, 16)), 4096, 0.029, 0.147),  # 5 s
    (Vgg19Small(), 4, 0.643, 0.740),  # 6 s
    (Vgg19(), 1, 0.237, 0.481),  # 100 s and 2.8 GB
]


@pytest.mark.parametrize(
    ("model", "batch", "own", "union"),
    [*KNOWN, *(pytest.param(*one, marks=nightly) for one in LARGE)],
    ids=lambda one: str(one.written) if isinstance(one, Model) else None,
)
def test_densities_are_the_known_ones(model: Model, batch: int, own: float, union: float) -> None:
    found = measure(model, TaskSettings(model.data[0].name, batch, WORKERS, 1))

    assert (found.own, found.union) == (pytest.approx(own, abs=POINTS), pytest.approx(union, abs=POINTS))


@pytest.mark.parametrize("model", [model_named("mlp"), SPARSE_NCF], ids=lambda one: one.kind)
def test_densities_are_those_of_a_run(model: Model) -> None:
    """Counted from the gradients of a workload with the same seed, which holds all of them."""
    workload = training_workload(TrainingSpec(model, 4, 0.1), WORKERS, 3)
    gradients = [np.concatenate(own[:]) != 0 for own in workload.gradients(0)]
    found = measure(model, TaskSettings(model.data[0].name, 4, WORKERS, 3))

    assert found.own == pytest.approx(np.mean(gradients), abs=1e-12)
    assert found.union == np.any(gradients, axis=0).mean()
    assert found.common == np.all(gradients, axis=0).mean()
    assert 0 < found.common < found.own < found.union < 1
