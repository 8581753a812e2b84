"""Every registered model: what it says of itself without PyTorch is what the built module has."""

from __future__ import annotations

import pytest
import torch

from netfold.sim.workload import TrainingSpec, training_workload
from netfold.sim.workload.fusion.none import NoFusion
from netfold.sim.workload.layers import layers_of, placed
from netfold.sim.workload.training.data.catalogue import DATA_SETS
from netfold.sim.workload.training.models.ncf import Ncf
from netfold.sim.workload.training.models.perceptrons import Mlp784
from netfold.sim.workload.training.models.registry import MODELS, model_kinds, model_named
from netfold.sim.workload.training.models.spec import Model
from netfold.sim.workload.training.models.text.bert import BertQa
from netfold.sim.workload.training.models.text.gpt import Gpt
from netfold.sim.workload.training.models.text.lstm import LstmModel
from netfold.sim.workload.training.models.vgg import Vgg19Small
from tests.examples import nightly
from tests.sim.workload.training.text.given import BERT, GPT, LSTM, SAMPLED

PUBLISHED = {  # parameters
    "ncf": 611_073,
    "mlp": 64 * 128 + 128 + 128 * 10 + 10,
    "mlp_784": 784 * 512 + 512 + 512 * 10 + 10,
    "cnn": 320 + 18_496 + 401_536 + 1_290,
    "resnet20": 269_722,  # Idelbayev's table of option A on CIFAR-10
    "resnet18": 11_689_512,  # this and the next ones: torchvision's table of models
    "resnet50": 25_557_032,
    "vgg19_32": 20_024_384 + 512 * 10 + 10,  # torchvision's features of VGG19
    "vgg19": 143_667_240,
    "lstm": 10_000 * 256 + 4 * 512 * (256 + 512 + 2) + 513 * 10_000,
    "lstm_1b": 426_465_919,  # 426.47 M: OmniReduce's shape of the One Billion Word benchmark
    "bert_qa": 109_482_240 - 769 * 768 + 769 * 2,  # BERT-base of Hugging Face, without pooler, with head
    "gpt": 10_646_784 + 256 * 384,  # 10.65 M as nanoGPT counts: without positions
}
GPT2 = Gpt(unit="words", vocabulary=50_257, context=1024, layers=12, heads=12, width=768, bias=True)
OPTIONS: dict[Model, int] = {
    Ncf(expand=(2, 3)): 64 * 3 * (2 * 943 + 3 * 1682) + 611_073 - 64 * 3 * (943 + 1682),
    Ncf(expand=(147, 16)): 31_889_409,
    Mlp784(hidden=(256, 128)): 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10,
    Vgg19Small(batch_norm=True): 20_024_384 + 512 * 10 + 10 + 2 * 5504,
    Ncf(expand=(7, 3), sparse=True): 2_343_297,
    Ncf(expand=(587, 254)): 188_414_721,
    LstmModel(embedding=1500, hidden=1500, layers=2): 66_034_000,  # 66 M: Zaremba et al., large
    LstmModel(embedding=650, hidden=650, layers=2): 19_780_400,  # 20 M: Zaremba et al., medium
    BertQa(layers=24, heads=16, width=1024, inner=4096): 335_141_888 - 1025 * 1024 + 1025 * 2,  # BERT-large
    GPT2: 124_439_808,  # GPT-2 of Hugging Face
}
SMALL: list[Model] = [
    *map(model_named, ("ncf", "mlp", "mlp_784", "cnn", "resnet20", "vgg19_32")),
    Ncf(expand=(2, 3)),
    Mlp784(hidden=(256, 128)),
    Vgg19Small(batch_norm=True),
    Ncf(expand=(2, 3), sparse=True),
    *(LSTM, SAMPLED, BERT, GPT),
    Gpt(unit="words", vocabulary=500, context=24, layers=2, heads=2, width=16, bias=True),
]
LARGE: list[Model] = [
    pytest.param(model_named(kind), marks=nightly)
    for kind in ("resnet18", "resnet50", "vgg19", "lstm", "lstm_1b", "bert_qa", "gpt")
]


pytestmark = pytest.mark.usefixtures("short_text")


def shown(model: Model) -> str:
    return str(model.written)


@pytest.mark.parametrize("model", [*map(model_named, model_kinds()), *OPTIONS], ids=shown)
def test_tensors_are_the_parameters_of_the_module_and_as_many_as_published(model: Model) -> None:
    with torch.device("meta"):
        built = model.module()
    parameters = {name: tuple(parameter.shape) for name, parameter in built.named_parameters()}

    assert {tensor.name: tensor.shape for tensor in model.tensors} == parameters
    assert len(model.tensors) == len(parameters)
    assert placed(model.tensors) == model.tensors
    assert model.elements == sum(parameter.numel() for parameter in built.parameters())
    assert model.elements == (OPTIONS[model] if model in OPTIONS else PUBLISHED[model.kind])


@pytest.mark.parametrize("model", [*SMALL, *LARGE], ids=shown)
def test_tensors_are_in_the_order_of_their_gradients(model: Model) -> None:
    """The resolver checks fusion by this list, without building the model."""
    buckets = training_workload(TrainingSpec(model, 1, 0.1, NoFusion()), 1, 1).buckets
    layers = layers_of(model.tensors)

    assert [bucket.tensors[0].layer for bucket in buckets] == [layer.name for layer in layers]
    assert [[tensor.name for tensor in bucket.tensors] for bucket in buckets] == [
        [model.tensors[index].name for index in layer.members] for layer in layers
    ]
    assert [tensor._replace(start=0) for bucket in buckets for tensor in bucket.tensors] == [
        model.tensors[index]._replace(start=0) for layer in layers for index in layer.members
    ]


@pytest.mark.parametrize("model", MODELS)
def test_a_model_says_what_it_is(model: type[Model]) -> None:
    assert all((model.title, model.source, model.metric, model.__doc__, model.data))
    assert {data.name for data in model.data} <= set(DATA_SETS)
    assert model().written == model.name() == model().kind
    assert Ncf(expand=(7, 3)).written == {"kind": "ncf", "expand": [7, 3]}  # options are beside the kind
    for options, known in model.known():
        assert 0 < known.own <= known.union <= 1
        assert options.data_named(known.data)
