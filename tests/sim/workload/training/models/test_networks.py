"""Forward passes of the networks against plain function calls on the same weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  as everywhere

from netfold.sim.workload.training.models.cnn import CnnModel
from netfold.sim.workload.training.models.resnet import ResNet18, ResNet20, ResNet50
from netfold.sim.workload.training.models.vgg import Vgg19, Vgg19Small
from netfold.sim.workload.training.networks.neumf import NeuMF
from tests.examples import nightly

Weights = dict[str, Tensor]


def weights_of(model: nn.Module) -> Weights:
    """All weights and statistics, moved away from their simple starts."""
    torch.manual_seed(2)
    for one in model.state_dict().values():
        if one.dtype == torch.float32 and one.dim() == 1:
            one.add_(torch.rand_like(one) * 0.1)
    return {name: one.clone() for name, one in model.state_dict().items()}


def floats(model: nn.Module, name: str) -> NDArray[np.float64]:
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
    model = NeuMF(users=5, items=7)
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
    ("model", "blocks", "kernels"), [(ResNet18(), (2, 2, 2, 2), 2), (ResNet50(), (3, 4, 6, 3), 3)]
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
    names = iter(
        sorted((name for name in of if of[name].dim() == 4), key=lambda name: int(name.split(".")[1]))
    )
    for count in CONFIGURATION_E:
        for _ in range(count):
            name = next(names).removesuffix(".weight")
            x = conv(of, name, x)
            if has_norms:
                x = norm(of, f"features.{int(name.split('.')[1]) + 1}", x)
            x = x.clamp(min=0)
        x = F.max_pool2d(x, 2)
    assert next(names, None) is None
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
