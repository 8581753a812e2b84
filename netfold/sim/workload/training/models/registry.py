"""All models."""

from __future__ import annotations

from netfold.sim.workload.training.models.cnn import CnnModel
from netfold.sim.workload.training.models.ncf import Ncf
from netfold.sim.workload.training.models.perceptrons import Mlp, Mlp784
from netfold.sim.workload.training.models.resnet import ResNet18, ResNet20, ResNet50
from netfold.sim.workload.training.models.spec import Model
from netfold.sim.workload.training.models.text.bert import BertQa
from netfold.sim.workload.training.models.text.gpt import Gpt
from netfold.sim.workload.training.models.text.lstm import LstmBillion, LstmModel
from netfold.sim.workload.training.models.vgg import Vgg19, Vgg19Small

MODELS: tuple[type[Model], ...] = (
    Ncf,
    Mlp,
    Mlp784,
    CnnModel,
    ResNet20,
    ResNet18,
    ResNet50,
    Vgg19Small,
    Vgg19,
    LstmModel,
    LstmBillion,
    BertQa,
    Gpt,
)


def model_kinds() -> dict[str, type[Model]]:
    """All models by kind, in the order in which they are listed."""
    return {one.name(): one for one in MODELS}


def model_named(kind: str) -> Model:
    """The model of a kind, with its default options.

    Raises
    ------
    KeyError
        There is no such model.
    """
    return model_kinds()[kind].default()


def data_names() -> tuple[str, ...]:
    """The data sets that some model can be trained on."""
    return tuple(sorted({data.name for model in MODELS for data in model.data}))
