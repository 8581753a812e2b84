"""The models: sizes and forward passes against plain NumPy in float64."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from netfold.sim.workload.training.models.registry import model_named
from netfold.sim.workload.training.networks.neumf import NeuMF


def weights(model: nn.Module, name: str) -> NDArray[np.float64]:
    return model.get_parameter(name).detach().numpy().astype(np.float64)


@pytest.mark.parametrize(
    ("user_copies", "item_copies", "parameters"),
    [(1, 1, 611_073), (147, 16, 31_889_409), (587, 254, 188_414_721)],
)
def test_neumf_size(user_copies: int, item_copies: int, parameters: int) -> None:
    with torch.device("meta"):
        model = NeuMF(943 * user_copies, 1682 * item_copies)

    assert parameters == sum(parameter.numel() for parameter in model.parameters())


def test_neumf_forward() -> None:
    model = NeuMF(users=5, items=7)
    users, items = torch.tensor([0, 4, 4]), torch.tensor([6, 0, 3])
    factors = weights(model, "factors_user.weight")[users] * weights(model, "factors_item.weight")[items]
    hidden = np.hstack((weights(model, "mlp_user.weight")[users], weights(model, "mlp_item.weight")[items]))
    for layer in range(3):
        matrix, bias = weights(model, f"mlp.{layer}.0.weight"), weights(model, f"mlp.{layer}.0.bias")
        hidden = np.maximum(hidden @ matrix.T + bias, 0)
    logits = np.hstack((factors, hidden)) @ weights(model, "output.weight")[0] + weights(model, "output.bias")

    np.testing.assert_allclose(model(users, items).detach().numpy(), logits, rtol=1e-5, atol=1e-7)


def test_embeddings_start_small() -> None:
    torch.manual_seed(1)
    table = weights(NeuMF(500, 1), "mlp_user.weight")

    assert table.std() == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize(
    ("model", "layers", "parameters"),
    [("mlp", [64, 128, 10], 64 * 128 + 128 + 128 * 10 + 10), ("mlp_784", [784, 512, 10], 407_050)],
)
def test_perceptron_size(model: str, layers: list[int], parameters: int) -> None:
    built = model_named(model).module()
    assert isinstance(built, nn.Sequential)
    modules = [module for module in built if isinstance(module, nn.Linear)]

    assert layers == [modules[0].in_features, *(module.out_features for module in modules)]
    assert parameters == sum(parameter.numel() for parameter in built.parameters())
