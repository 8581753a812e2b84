"""VGG19, for large and for small images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from netfold.sim.workload.model import Data, Density
from netfold.sim.workload.models.images import LARGE_IMAGES, SMALL_IMAGES, ImageModel

BLOCKS = ((64,) * 2, (128,) * 2, (256,) * 4, (512,) * 4, (512,) * 4)  # channels of the convolutions
HIDDEN = 4096
POOLED = 7  # pixels of a side before the linear layers


@dataclass(frozen=True)
class Vgg19(ImageModel):
    """VGG19 for images of 224 by 224 pixels, without batch norm: 143,667,240 parameters (torchvision's)."""

    kind: ClassVar[str] = "vgg19"

    title: ClassVar[str] = "VGG19"
    source: ClassVar[str] = (
        "Simonyan and Zisserman, Very Deep Convolutional Networks, ICLR 2015, table 1 (E); as in torchvision"
    )
    data: ClassVar[tuple[Data, ...]] = LARGE_IMAGES
    densities: ClassVar[tuple[Density, ...]] = (Density(1, 0.237, 0.481),)
    channels: ClassVar[int] = 3
    side: ClassVar[int] = 224
    sample_bytes: ClassVar[int] = 85_000_000

    def module(self) -> nn.Module:
        """Its network."""
        return Vgg(classes=1000, has_head=True, batch_norm=False)


@dataclass(frozen=True)
class Vgg19Small(ImageModel):
    """VGG19 for images of 32 by 32 pixels and 10 classes, with one linear layer: 20,029,514 parameters."""

    kind: ClassVar[str] = "vgg19_32"
    batch_norm: bool = False
    """Whether a batch norm follows each convolution: with it, gradients are dense."""

    title: ClassVar[str] = "VGG19 (32 x 32)"
    source: ClassVar[str] = (
        "the convolutions of VGG19 (Simonyan and Zisserman, ICLR 2015) and one linear layer, as for CIFAR-10"
    )
    data: ClassVar[tuple[Data, ...]] = SMALL_IMAGES
    densities: ClassVar[tuple[Density, ...]] = (Density(4, 0.643, 0.740),)
    channels: ClassVar[int] = 3
    side: ClassVar[int] = 32
    sample_bytes: ClassVar[int] = 6_000_000

    def module(self) -> nn.Module:
        """Its network."""
        return Vgg(classes=10, has_head=False, batch_norm=self.batch_norm)


# The network.


class Vgg(nn.Module):
    """Images `(batch, 3, side, side)` to logits `(batch, classes)`; parameters as torchvision names them.

    Convolutions start from a normal distribution (He et al., fan out), linear layers from one with σ 0.01,
    biases from 0, as in torchvision.

    Parameters
    ----------
    classes
        How many logits.
    has_head
        Whether three linear layers with dropout follow, as for ImageNet; otherwise one.
    batch_norm
        Whether a norm follows each convolution.
    """

    def __init__(self, *, classes: int, has_head: bool, batch_norm: bool) -> None:
        super().__init__()
        self.features = nn.Sequential(*_features(batch_norm))
        channels = BLOCKS[-1][-1]
        self.pool = nn.AdaptiveAvgPool2d(POOLED if has_head else 1)
        self.classifier = (
            nn.Sequential(
                *(nn.Linear(channels * POOLED**2, HIDDEN), nn.ReLU(inplace=True), nn.Dropout()),
                *(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(inplace=True), nn.Dropout()),
                nn.Linear(HIDDEN, classes),
            )
            if has_head
            else nn.Sequential(nn.Linear(channels, classes))
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
            if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.classifier(self.pool(self.features(images)).flatten(1))
        return logits


def _features(batch_norm: bool) -> list[nn.Module]:
    """Convolutions with ReLUs; each block ends with a pooling that halves the sides."""
    modules: list[nn.Module] = []
    inputs = 3
    for block in BLOCKS:
        for outputs in block:
            modules.append(nn.Conv2d(inputs, outputs, 3, padding=1))
            modules += [nn.BatchNorm2d(outputs)] if batch_norm else []
            modules.append(nn.ReLU(inplace=True))
            inputs = outputs
        modules.append(nn.MaxPool2d(2))
    return modules
