"""VGG19, for large and for small images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from netfold.homomorphic.message import Tensor
from netfold.sim.workload.model import Data, Density, convolution, in_ready_order, linear, norm
from netfold.sim.workload.models.images import LARGE_IMAGES, SMALL_IMAGES, ImageModel

if TYPE_CHECKING:
    from torch import nn


BLOCKS = ((64,) * 2, (128,) * 2, (256,) * 4, (512,) * 4, (512,) * 4)  # channels of the convolutions
HIDDEN = 4096
POOLED = 7  # pixels of a side before the linear layers


class Vgg19(ImageModel):
    """VGG19 for images of 224 by 224 pixels and 1000 classes, without batch norm."""

    kind: Literal["vgg19"] = "vgg19"

    title: ClassVar[str] = "VGG19"
    source: ClassVar[str] = (
        "Simonyan and Zisserman, Very Deep Convolutional Networks, ICLR 2015, table 1 (E); as in torchvision"
    )
    data: ClassVar[tuple[Data, ...]] = LARGE_IMAGES
    densities: ClassVar[tuple[Density, ...]] = (Density(1, 0.237, 0.481),)
    channels: ClassVar[int] = 3
    side: ClassVar[int] = 224
    sample_bytes: ClassVar[int] = 85_000_000

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """From the last layer to the first."""
        head = [
            linear("classifier.0", BLOCKS[-1][-1] * POOLED**2, HIDDEN),
            linear("classifier.3", HIDDEN, HIDDEN),
            linear("classifier.6", HIDDEN, 1000),
        ]
        return in_ready_order([*_features(batch_norm=False), *head])

    def module(self) -> nn.Module:
        """A Vgg."""
        from netfold.sim.workload.networks import Vgg

        return Vgg(BLOCKS, HIDDEN, POOLED, classes=1000, has_head=True, batch_norm=False)


class Vgg19Small(ImageModel):
    """VGG19 for images of 32 by 32 pixels and 10 classes, with one linear layer."""

    kind: Literal["vgg19_32"] = "vgg19_32"
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

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """From the last layer to the first."""
        return in_ready_order([*_features(self.batch_norm), linear("classifier.0", BLOCKS[-1][-1], 10)])

    def module(self) -> nn.Module:
        """A Vgg."""
        from netfold.sim.workload.networks import Vgg

        return Vgg(BLOCKS, HIDDEN, POOLED, classes=10, has_head=False, batch_norm=self.batch_norm)


def _features(batch_norm: bool) -> Iterator[tuple[Tensor, ...]]:
    """The convolutions, each with its norm, numbered as the modules in between are."""
    inputs, index = 3, 0
    for block in BLOCKS:
        for outputs in block:
            name = f"features.{index}"
            yield convolution(name, inputs, outputs, 3)
            if batch_norm:
                yield norm(f"features.{index + 1}", outputs, layer=name)
            index += 3 if batch_norm else 2
            inputs = outputs
        index += 1
