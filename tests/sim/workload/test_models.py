"""Models that come with netfold: their shapes, their networks, the density of their gradients."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  as everywhere

from netfold.sim.workload.data_readers import Ratings
from netfold.sim.workload.data_sets import DATA_SETS
from netfold.sim.workload.fusion import NoFusion
from netfold.sim.workload.layers import layers_of, place_tensors
from netfold.sim.workload.model import Model, TaskSettings
from netfold.sim.workload.model_probe import measure
from netfold.sim.workload.models.bert import BertQa
from netfold.sim.workload.models.cnn import CnnModel
from netfold.sim.workload.models.gpt import Gpt
from netfold.sim.workload.models.lstm import LstmBillion, LstmModel, SampledLstm
from netfold.sim.workload.models.mlp import Mlp784
from netfold.sim.workload.models.ncf import Ncf, NeuMF
from netfold.sim.workload.models.registry import classes, known_densities, model_kinds, model_named
from netfold.sim.workload.models.resnet import ResNet18, ResNet20, ResNet50
from netfold.sim.workload.models.vgg import Vgg19, Vgg19Small
from netfold.sim.workload.workload_keys import Training
from tests.examples import examples, nightly
from tests.sim.workload.given import BERT, GPT, LSTM, SAMPLED, SPARSE_NCF, ratings_task

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
    *map(model_named, ("ncf", "mlp", "mlp_784", "cnn")),
    Ncf(expand=(2, 3)),
    Mlp784(hidden=(256, 128)),
    Ncf(expand=(2, 3), sparse=True),
    *(LSTM, SAMPLED, BERT, GPT),
    Gpt(unit="words", vocabulary=500, context=24, layers=2, heads=2, width=16, bias=True),
]
LARGE: list[Model] = [
    pytest.param(model, marks=nightly)
    for model in (
        Vgg19Small(batch_norm=True),
        *map(model_named, ("resnet20", "resnet18", "resnet50", "vgg19_32", "vgg19")),
        *map(model_named, ("lstm", "lstm_1b", "bert_qa", "gpt")),
    )
]


def shown(case: object) -> str | None:
    return str(case.written) if isinstance(case, Model) else None


@pytest.mark.usefixtures("short_text")
@pytest.mark.parametrize("model", [*map(model_named, model_kinds()), *OPTIONS], ids=shown)
def test_tensors_are_the_parameters_of_the_module_and_as_many_as_published(model: Model) -> None:
    with torch.device("meta"):
        built = model.module()
    parameters = {name: tuple(parameter.shape) for name, parameter in built.named_parameters()}

    assert {tensor.name: tensor.shape for tensor in model.tensors} == parameters
    assert len(model.tensors) == len(parameters)
    assert place_tensors(model.tensors) == model.tensors
    (published,) = re.findall(r"([\d,]+) parameters", model.facts.meaning)
    assert model.elements == OPTIONS.get(model, int(published.replace(",", "")))


@pytest.mark.usefixtures("short_text")
@pytest.mark.parametrize("model", [*SMALL, *LARGE], ids=shown)
def test_tensors_are_in_the_order_of_their_gradients(model: Model) -> None:
    """The resolver checks fusion by this list, without building the model."""
    buckets = Training(model, batch=1, learning_rate=0.1, fusion=NoFusion()).workload(1, 1).buckets

    assert [[tensor._replace(start=0) for tensor in bucket.tensors] for bucket in buckets] == [
        [model.tensors[index]._replace(start=0) for index in layer.members]
        for layer in layers_of(model.tensors)
    ]


@pytest.mark.usefixtures("short_text")
@pytest.mark.parametrize("kind", model_kinds())
def test_a_model_says_what_it_is(kind: str) -> None:
    model, whole = model_named(kind), classes()[kind]()
    facts = model.facts
    assert all((facts.title, facts.source, facts.metric, facts.meaning, facts.data))
    assert {data.name for data in facts.data} <= set(DATA_SETS)
    assert model.written == whole.written == model.kind == kind
    assert whole.facts.model_dump(mode="json") == facts.model_dump(mode="json")
    assert Ncf(expand=(7, 3)).written == {"kind": "ncf", "expand": [7, 3]}  # options are beside the kind
    for options, known in known_densities(kind):
        assert 0 < known.own <= known.union <= 1
        assert options.data_named(known.data)


Weights = dict[str, Tensor]
Floats = NDArray[np.float64]


def weights_of(model: nn.Module) -> Weights:
    """All weights and statistics, moved away from their simple starts."""
    torch.manual_seed(2)
    for one in model.state_dict().values():
        if one.dtype == torch.float32 and one.dim() == 1:
            one.add_(torch.rand_like(one) * 0.1)
    return {name: one.clone() for name, one in model.state_dict().items()}


def floats(model: nn.Module, name: str) -> Floats:
    return model.get_parameter(name).detach().numpy().astype(np.float64)


def conv(of: Weights, name: str, x: Tensor, stride: int = 1) -> Tensor:
    weight = of[f"{name}.weight"]
    return F.conv2d(x, weight, of.get(f"{name}.bias"), stride, weight.shape[-1] // 2)


def norm(of: Weights, name: str, x: Tensor) -> Tensor:
    mean, variance, weight, bias = (
        of[f"{name}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


def linear(of: Weights, name: str, x: Tensor) -> Tensor:
    return x @ of[f"{name}.weight"].T + of[f"{name}.bias"]


def test_neumf_forward() -> None:
    model = NeuMF(5, 7)
    users, items = torch.tensor([0, 4, 4]), torch.tensor([6, 0, 3])
    factors = floats(model, "factors_user.weight")[users] * floats(model, "factors_item.weight")[items]
    hidden = np.hstack((floats(model, "mlp_user.weight")[users], floats(model, "mlp_item.weight")[items]))
    for layer in range(3):
        matrix, bias = floats(model, f"mlp.{layer}.0.weight"), floats(model, f"mlp.{layer}.0.bias")
        hidden = np.maximum(hidden @ matrix.T + bias, 0)
    logits = np.hstack((factors, hidden)) @ floats(model, "output.weight")[0] + floats(model, "output.bias")

    np.testing.assert_allclose(model(users, items).detach().numpy(), logits, rtol=1e-5, atol=1e-7)


def test_cnn() -> None:
    model = CnnModel().module()
    of, x = weights_of(model), torch.randn(2, 1, 28, 28)
    hidden = x
    for name in ("conv1", "conv2"):
        hidden = F.max_pool2d(conv(of, name, hidden).clamp(min=0), 2)
    expected = linear(of, "fc2", linear(of, "fc1", hidden.reshape(2, -1)).clamp(min=0))

    torch.testing.assert_close(model(x), expected)


def test_resnet20_with_option_a() -> None:
    model = ResNet20().module().eval()
    of, x = weights_of(model), torch.randn(2, 3, 32, 32)
    hidden = norm(of, "bn1", conv(of, "conv1", x)).clamp(min=0)
    for stage, width in ((1, 16), (2, 32), (3, 64)):
        for index in range(3):
            name, stride = f"layer{stage}.{index}", 2 if stage > 1 and index == 0 else 1
            found = norm(of, f"{name}.bn1", conv(of, f"{name}.conv1", hidden, stride)).clamp(min=0)
            found = norm(of, f"{name}.bn2", conv(of, f"{name}.conv2", found))
            kept = torch.zeros_like(found)
            spare = (width - hidden.shape[1]) // 2
            kept[:, spare : spare + hidden.shape[1]] = hidden[:, :, ::stride, ::stride]
            hidden = (found + kept).clamp(min=0)
    expected = linear(of, "fc", hidden.mean((2, 3)))

    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "blocks", "kernels"),
    [(ResNet18(), (2, 2, 2, 2), 2), pytest.param(ResNet50(), (3, 4, 6, 3), 3, marks=nightly)],
)
def test_large_resnets(model: ResNet18 | ResNet50, blocks: tuple[int, ...], kernels: int) -> None:
    """On 64 pixels: the network does not depend on the number of pixels. Strides are in the 3 x 3."""
    built = model.module().eval()
    of, x = weights_of(built), torch.randn(1, 3, 64, 64)
    hidden = F.max_pool2d(norm(of, "bn1", conv(of, "conv1", x, 2)).clamp(min=0), 3, 2, 1)
    for stage, count in enumerate(blocks, 1):
        for index in range(count):
            name, stride = f"layer{stage}.{index}", 2 if stage > 1 and index == 0 else 1
            kept, found = hidden, hidden
            for number in range(1, kernels + 1):
                strided = stride if number == (1 if kernels == 2 else 2) else 1
                found = norm(of, f"{name}.bn{number}", conv(of, f"{name}.conv{number}", found, strided))
                found = found.clamp(min=0) if number < kernels else found
            if f"{name}.downsample.0.weight" in of:
                kept = norm(of, f"{name}.downsample.1", conv(of, f"{name}.downsample.0", kept, stride))
            hidden = (found + kept).clamp(min=0)
    expected = linear(of, "fc", hidden.mean((2, 3)))

    torch.testing.assert_close(built(x), expected, rtol=1e-4, atol=1e-4)


CONFIGURATION_E = [2, 2, 4, 4, 4]  # Simonyan and Zisserman, table 1


def features(of: Weights, x: Tensor, has_norms: bool) -> Tensor:
    places = iter(sorted(int(name.split(".")[1]) for name in of if of[name].dim() == 4))
    for count in CONFIGURATION_E:
        for _ in range(count):
            place = next(places)
            x = conv(of, f"features.{place}", x)
            if has_norms:
                x = norm(of, f"features.{place + 1}", x)
            x = x.clamp(min=0)
        x = F.max_pool2d(x, 2)
    assert next(places, None) is None
    return x


@pytest.mark.parametrize("batch_norm", [False, True])
def test_small_vgg19(batch_norm: bool) -> None:
    model = Vgg19Small(batch_norm=batch_norm).module().eval()
    of, x = weights_of(model), torch.randn(2, 3, 32, 32)
    expected = linear(of, "classifier.0", features(of, x, batch_norm).reshape(2, 512))

    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)


@nightly  # 15 s and 1.5 GB
def test_vgg19() -> None:
    model = Vgg19().module().eval()
    of, x = weights_of(model), torch.randn(1, 3, 224, 224)
    hidden = features(of, x, has_norms=False).reshape(1, 512 * 7 * 7)
    for name in ("classifier.0", "classifier.3"):
        hidden = linear(of, name, hidden).clamp(min=0)

    torch.testing.assert_close(model(x), linear(of, "classifier.6", hidden), rtol=1e-3, atol=1e-4)


def test_embeddings_start_small_and_convolutions_as_he_et_al_say() -> None:
    """Normal with the variance 2 / (outputs · kernel²), here of 512 · 9: a third convolution of a stage."""
    torch.manual_seed(1)
    assert floats(NeuMF(500, 1), "mlp_user.weight").std() == pytest.approx(0.01, rel=0.02)
    for model in (ResNet18(), Vgg19Small()):
        for name, weight in model.module().named_parameters():
            if weight.shape == (512, 512, 3, 3):
                assert weight.std().item() == pytest.approx(math.sqrt(2 / (512 * 9)), rel=0.01), name


WORKERS = 8

# Model, batch, density of one worker, and of the union of eight, as another implementation measured them.
KNOWN = [(Ncf(), 256, 0.180, 0.549), (CnnModel(), 16, 0.693, 0.802)]
DENSITIES_LARGE = [
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
    [*KNOWN, *(pytest.param(*one, marks=nightly) for one in DENSITIES_LARGE)],
    ids=shown,
)
def test_densities_are_the_known_ones(model: Model, batch: int, own: float, union: float) -> None:
    found = measure(model, TaskSettings(model.data_named(None).name, batch, WORKERS, 1))

    assert found[:2] == pytest.approx((own, union), abs=0.02)


@pytest.mark.parametrize("model", [model_named("mlp"), SPARSE_NCF], ids=lambda one: one.kind)
def test_densities_are_those_of_a_run(model: Model) -> None:
    """Counted from the gradients of a workload with the same seed, which holds all of them."""
    workload = Training(model, batch=4, learning_rate=0.1).workload(WORKERS, 3)
    gradients = [np.concatenate(own[:]) != 0 for own in workload.gradients(0)]
    own, union, common = measure(model, TaskSettings(model.data_named(None).name, 4, WORKERS, 3))

    assert own == pytest.approx(np.mean(gradients), abs=1e-12)
    assert union == np.any(gradients, axis=0).mean()
    assert common == np.all(gradients, axis=0).mean()
    assert 0 < common < own < union < 1


def sigmoid(values: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-values))
    return found


def lstm_states(module: nn.Module, inputs: Floats, layers: int) -> Floats:
    """Hochreiter's cell with a forget gate: inputs `(time, size)`, states `(time, hidden)`."""
    for layer in range(layers):
        matrix, of_state = (floats(module, f"lstm.weight_{part}_l{layer}") for part in ("ih", "hh"))
        biases = floats(module, f"lstm.bias_ih_l{layer}") + floats(module, f"lstm.bias_hh_l{layer}")
        state = cell = np.zeros(of_state.shape[1])
        states = []
        for row in inputs:
            gates = matrix @ row + of_state @ state + biases
            enter, forget, candidate, leave = np.split(gates, 4)
            cell = sigmoid(forget) * cell + sigmoid(enter) * np.tanh(candidate)
            state = sigmoid(leave) * np.tanh(cell)
            states.append(state)
        inputs = np.array(states)
    return inputs


@pytest.mark.parametrize("layers", [1, 2])
def test_lstm(layers: int) -> None:
    torch.manual_seed(2)
    module: Any = LstmModel(vocabulary=20, embedding=6, hidden=5, layers=layers).module()
    nn.init.normal_(module.output.bias)
    words = torch.tensor([[3, 19, 0, 3], [7, 7, 1, 2]])
    found = module(words).detach().numpy()
    for row, own in zip(words.tolist(), found, strict=True):
        states = lstm_states(module, floats(module, "embedding.weight")[row], layers)
        logits = states @ floats(module, "output.weight").T + floats(module, "output.bias")

        np.testing.assert_allclose(own, logits, rtol=1e-5, atol=1e-6)


def projected(module: nn.Module, words: list[int]) -> Floats:
    states = lstm_states(module, floats(module, "embedding.weight")[words], 1)
    return states @ floats(module, "projection.weight").T + floats(module, "projection.bias")


def sampled(vocabulary: int) -> SampledLstm:
    torch.manual_seed(3)
    module = SampledLstm(LstmBillion(vocabulary=vocabulary, embedding=4, hidden=5, samples=4))
    nn.init.normal_(module.softmax_bias.weight)
    return module


def test_sampled_softmax() -> None:
    """Word 9 is the successor of the first word and a sample, too."""
    module = sampled(30)
    words, targets, samples = [1, 8, 29], [9, 0, 4], [9, 11, 2, 25]
    log_counts = np.linspace(-3, 0, 7)
    found = module(
        torch.tensor([words]),
        torch.tensor(targets + samples),
        torch.from_numpy(log_counts.astype(np.float32)),
    )
    hidden = projected(module, words)
    table, biases = floats(module, "softmax.weight"), floats(module, "softmax_bias.weight")[:, 0]
    logits = hidden @ table.T + biases
    expected = np.empty((3, 5))
    for row, target in enumerate(targets):
        expected[row, 0] = logits[row, target] - log_counts[row]
        for column, word in enumerate(samples):
            is_hit = word == target
            expected[row, 1 + column] = -np.inf if is_hit else logits[row, word] - log_counts[3 + column]

    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_in_tests_the_softmax_is_over_the_whole_vocabulary() -> None:
    """Which is larger than one part of it."""
    module = sampled(33_000)
    words, targets = torch.tensor([[1, 32_999], [5, 32_768]]), torch.tensor([7, 32_999, 32_768, 0])
    hidden = np.concatenate([projected(module, row) for row in words.tolist()])
    logits = hidden @ floats(module, "softmax.weight").T + floats(module, "softmax_bias.weight")[:, 0]
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(4), targets]
    with torch.no_grad():
        found = module.losses(words, targets)

    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def copied(target: nn.TransformerEncoderLayer, own: Any, qkv: tuple[Any, Any]) -> None:
    """Give PyTorch's layer the weights of one of ours."""
    pairs = {
        "self_attn.out_proj": own.project,
        "linear1": own.expand,
        "linear2": own.contract,
        "norm1": own.norm1,
        "norm2": own.norm2,
    }
    with torch.no_grad():
        for value, part in zip(qkv, ("weight", "bias"), strict=True):
            target.get_parameter(f"self_attn.in_proj_{part}").copy_(value)
            for name, layer in pairs.items():
                target.get_parameter(f"{name}.{part}").copy_(layer.get_parameter(part))


def randomised(module: nn.Module) -> nn.Module:
    """With large weights, so that attention is uneven and biases count."""
    torch.manual_seed(4)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def small_bert(vocabulary: int, **options: Any) -> BertQa:
    return BertQa(vocabulary=vocabulary, sequence=16, positions=16, heads=2, **options)


def small_gpt(vocabulary: int, **options: Any) -> Gpt:
    return Gpt(vocabulary=vocabulary, context=10, heads=2, bias=True, **options)


def test_bert_is_pytorchs_encoder() -> None:
    module: Any = randomised(small_bert(1000, layers=2, width=8, inner=12, dropout=0.0).module())
    tokens, segments = torch.tensor([[3, 29, 0, 3, 7], [1, 2, 3, 4, 5]]), torch.tensor([[0, 0, 1, 1, 1]] * 2)
    hidden = module.tokens.weight[tokens] + module.positions.weight[:5] + module.segments.weight[segments]
    hidden = F.layer_norm(hidden, (8,), module.norm.weight, module.norm.bias, 1e-12)
    for own in module.layers:
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", 1e-12, batch_first=True)
        parts = own.query, own.key, own.value
        copied(layer, own, (torch.cat([one.weight for one in parts]), torch.cat([one.bias for one in parts])))
        hidden = layer(hidden)
    expected = hidden @ module.answer.weight.T + module.answer.bias

    torch.testing.assert_close(module(tokens, segments), expected, rtol=1e-4, atol=1e-5)


def test_gpt_is_pytorchs_decoder() -> None:
    module: Any = randomised(small_gpt(30, layers=2, width=8, dropout=0.0).module())
    tokens = torch.tensor([[3, 29, 0, 3, 7], [1, 2, 3, 4, 5]])
    hidden = module.tokens.weight[tokens] + module.positions.weight[:5]
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    for own in module.blocks:
        layer = nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", 1e-5, batch_first=True, norm_first=True)
        copied(layer, own, (own.attend.weight, own.attend.bias))
        hidden = layer(hidden, src_mask=mask)
    hidden = F.layer_norm(hidden, (8,), module.norm.weight, module.norm.bias)

    torch.testing.assert_close(module(tokens), hidden @ module.tokens.weight.T, rtol=1e-4, atol=1e-5)


def test_new_weights_are_as_published() -> None:
    """BERT: σ 0.02; GPT-2: that of layers that add to the residual is less, 0.02 / √(2 · layers)."""
    torch.manual_seed(1)
    bert = small_bert(2000, layers=1, width=64, inner=128).module()
    gpt = small_gpt(2000, layers=8, width=64).module()

    assert floats(bert, "tokens.weight").std() == pytest.approx(0.02, rel=0.02)
    assert floats(bert, "layers.0.project.weight").std() == pytest.approx(0.02, rel=0.05)
    assert floats(gpt, "tokens.weight").std() == pytest.approx(0.02, rel=0.02)
    assert floats(gpt, "blocks.0.expand.weight").std() == pytest.approx(0.02, rel=0.05)
    for name in ("project", "contract"):
        assert floats(gpt, f"blocks.3.{name}.weight").std() == pytest.approx(0.005, rel=0.05)
    assert not floats(gpt, "blocks.3.attend.bias").any()
    assert not floats(bert, "answer.bias").any()


@st.composite
def small_ratings(draw: st.DrawFn) -> Ratings:
    """A few users who each leave at least three items unrated."""
    users_count, items_count = draw(st.integers(1, 6)), draw(st.integers(4, 9))
    chosen = draw(
        st.lists(
            st.sets(st.integers(0, items_count - 1), max_size=items_count - 3),
            min_size=users_count,
            max_size=users_count,
        ).filter(any)
    )
    pairs = np.array([(user, item) for user, items in enumerate(chosen) for item in sorted(items)])
    return Ratings(pairs[:, 0], pairs[:, 1], np.arange(len(pairs)), users_count, items_count)


def expanded(ratings: Ratings, copies: tuple[int, int]) -> NDArray[np.bool_]:
    """The whole expanded table, copies outermost: small copy ⊗ ratings."""
    table = np.zeros((ratings.users_count, ratings.items_count), bool)
    blocks = np.zeros(copies, bool)
    for user, item in zip(ratings.users, ratings.items, strict=True):
        table[user, item] = True
        blocks[user * copies[0] // ratings.users_count, item * copies[1] // ratings.items_count] = True
    return np.kron(blocks, table)


@examples(30)
@given(
    small_ratings(), st.tuples(st.integers(1, 4), st.integers(1, 4)), st.integers(1, 40), st.integers(0, 99)
)
def test_samples_are_rated_and_unrated_pairs(
    ratings: Ratings, copies: tuple[int, int], batch: int, seed: int
) -> None:
    """By the Kronecker product of the small copy and the ratings."""
    task = ratings_task(ratings, copies, batch=batch, seed=seed)
    (users, items), labels = task.samples(step=3, worker=0)
    table = expanded(ratings, copies)

    assert ([1.0, 0, 0, 0, 0] * batch)[:batch] == labels.tolist()
    assert table[users.numpy(), items.numpy()].tolist() == (labels == 1).tolist()
    assert torch.int64 == users.dtype == items.dtype
    assert torch.float32 == labels.dtype
    for start in range(0, batch, 5):
        assert len(set(users[start : start + 5].tolist())) == 1
    assert np.array_equal(table, task._parts.data.is_rated(*np.indices(table.shape)))


def test_copies_keep_popularity_uneven(movielens: Ratings) -> None:
    """Blocks of a fractal expansion are as uneven as the ratings, in the frequencies of the small copy."""
    task = ratings_task(movielens, (1, 4), batch=100_000, seed=2)
    (_, items), _ = task.samples(step=0, worker=0)
    small = np.bincount(movielens.items * 4 // 1682) / 100_000
    drawn = np.bincount(items[::5] // 1682) / 20_000

    np.testing.assert_allclose(drawn, small, atol=5 * np.sqrt(0.25 / 20_000))
