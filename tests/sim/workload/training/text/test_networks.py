"""Networks of text against plain NumPy in float64, and against PyTorch's own transformer layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from netfold.sim.workload.training.networks.bert import BertQuestions
from netfold.sim.workload.training.networks.gpt import GptNetwork
from netfold.sim.workload.training.networks.lstm import LstmLanguageModel, SampledLstm

Floats = NDArray[np.float64]


def weights(module: nn.Module, name: str) -> Floats:
    return module.get_parameter(name).detach().numpy().astype(np.float64)


def sigmoid(values: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-values))
    return found


def lstm_states(module: nn.Module, inputs: Floats, layers: int) -> Floats:
    """Hochreiter's cell with a forget gate: inputs `(time, size)`, states `(time, hidden)`."""
    for layer in range(layers):
        own = {
            part: weights(module, f"lstm.{part}_l{layer}")
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        }
        state = cell = np.zeros(own["weight_hh"].shape[1])
        states = []
        for row in inputs:
            gates = own["weight_ih"] @ row + own["bias_ih"] + own["weight_hh"] @ state + own["bias_hh"]
            enter, forget, candidate, leave = np.split(gates, 4)
            cell = sigmoid(forget) * cell + sigmoid(enter) * np.tanh(candidate)
            state = sigmoid(leave) * np.tanh(cell)
            states.append(state)
        inputs = np.array(states)
    return inputs


@pytest.mark.parametrize("layers", [1, 2])
def test_lstm(layers: int) -> None:
    torch.manual_seed(2)
    module = LstmLanguageModel(20, 6, 5, layers)
    nn.init.normal_(module.output.bias)
    words = torch.tensor([[3, 19, 0, 3], [7, 7, 1, 2]])
    found = module(words).detach().numpy()
    for row, own in zip(words.tolist(), found, strict=True):
        states = lstm_states(module, weights(module, "embedding.weight")[row], layers)
        logits = states @ weights(module, "output.weight").T + weights(module, "output.bias")

        np.testing.assert_allclose(own, logits, rtol=1e-5, atol=1e-6)


def projected(module: nn.Module, words: list[int]) -> Floats:
    states = lstm_states(module, weights(module, "embedding.weight")[words], 1)
    return states @ weights(module, "projection.weight").T + weights(module, "projection.bias")


def sampled(vocabulary: int) -> SampledLstm:
    torch.manual_seed(3)
    module = SampledLstm(vocabulary, 4, 5)
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
    table, biases = weights(module, "softmax.weight"), weights(module, "softmax_bias.weight")[:, 0]
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
    logits = hidden @ weights(module, "softmax.weight").T + weights(module, "softmax_bias.weight")[:, 0]
    expected = np.log(np.exp(logits).sum(1)) - logits[np.arange(4), targets]
    with torch.no_grad():
        found = module.losses(words, targets)

    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def copied(target: nn.TransformerEncoderLayer, own: Any, qkv: tuple[Any, Any]) -> None:
    """Give PyTorch's layer the weights of one of ours."""
    pairs = {
        "self_attn.in_proj_weight": qkv[0],
        "self_attn.in_proj_bias": qkv[1],
        "self_attn.out_proj.weight": own.project.weight,
        "self_attn.out_proj.bias": own.project.bias,
        "linear1.weight": own.expand.weight,
        "linear1.bias": own.expand.bias,
        "linear2.weight": own.contract.weight,
        "linear2.bias": own.contract.bias,
        **{
            f"norm{n}.{part}": getattr(getattr(own, f"norm{n}"), part)
            for n in (1, 2)
            for part in ("weight", "bias")
        },
    }
    with torch.no_grad():
        for name, value in pairs.items():
            target.get_parameter(name).copy_(value)


def randomised(module: nn.Module) -> nn.Module:
    """With large weights, so that attention is uneven and biases count."""
    torch.manual_seed(4)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def test_bert_is_pytorchs_encoder() -> None:
    module: Any = randomised(BertQuestions(30, 10, (2, 2, 8, 12), 0.0))
    tokens, segments = torch.tensor([[3, 29, 0, 3, 7], [1, 2, 3, 4, 5]]), torch.tensor([[0, 0, 1, 1, 1]] * 2)
    hidden = module.tokens.weight[tokens] + module.positions.weight[:5] + module.segments.weight[segments]
    hidden = functional.layer_norm(hidden, (8,), module.norm.weight, module.norm.bias, 1e-12)
    for own in module.layers:
        layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", 1e-12, batch_first=True)
        parts = own.query, own.key, own.value
        copied(layer, own, (torch.cat([one.weight for one in parts]), torch.cat([one.bias for one in parts])))
        hidden = layer(hidden)
    expected = hidden @ module.answer.weight.T + module.answer.bias

    torch.testing.assert_close(module(tokens, segments), expected, rtol=1e-4, atol=1e-5)


def test_gpt_is_pytorchs_decoder() -> None:
    module: Any = randomised(GptNetwork(30, 6, (2, 2, 8), 0.0, has_bias=True))
    tokens = torch.tensor([[3, 29, 0, 3, 7], [1, 2, 3, 4, 5]])
    hidden = module.tokens.weight[tokens] + module.positions.weight[:5]
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    for own in module.blocks:
        layer = nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", 1e-5, batch_first=True, norm_first=True)
        copied(layer, own, (own.attend.weight, own.attend.bias))
        hidden = layer(hidden, src_mask=mask)
    hidden = functional.layer_norm(hidden, (8,), module.norm.weight, module.norm.bias)

    torch.testing.assert_close(module(tokens), hidden @ module.tokens.weight.T, rtol=1e-4, atol=1e-5)


def test_new_weights_are_as_published() -> None:
    """BERT: σ 0.02; GPT-2: that of layers that add to the residual is less, 0.02 / √(2 · layers)."""
    torch.manual_seed(1)
    bert, gpt = BertQuestions(2000, 10, (1, 2, 64, 128), 0.1), GptNetwork(2000, 10, (8, 2, 64), 0.1, True)

    assert weights(bert, "tokens.weight").std() == pytest.approx(0.02, rel=0.02)
    assert weights(bert, "layers.0.project.weight").std() == pytest.approx(0.02, rel=0.05)
    assert weights(gpt, "tokens.weight").std() == pytest.approx(0.02, rel=0.02)
    assert weights(gpt, "blocks.0.expand.weight").std() == pytest.approx(0.02, rel=0.05)
    for name in ("project", "contract"):
        assert weights(gpt, f"blocks.3.{name}.weight").std() == pytest.approx(0.005, rel=0.05)
    assert not weights(gpt, "blocks.3.attend.bias").any()
    assert not weights(bert, "answer.bias").any()
