"""Residual networks, for small and for large images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from netfold.homomorphic.message import Tensor
from netfold.sim.workload.model import Data, Density, ResidualStage, convolution, in_ready_order, linear, norm
from netfold.sim.workload.models.images import LARGE_IMAGES, SMALL_IMAGES, ImageModel

if TYPE_CHECKING:
    from torch import nn


_SOURCE = "He et al., Deep Residual Learning for Image Recognition, CVPR 2016"


class _ResNet(ImageModel):
    """What residual networks have in common."""

    stages: ClassVar[tuple[ResidualStage, ...]]
    classes: ClassVar[int]
    channels: ClassVar[int] = 3

    @property
    def _is_large(self) -> bool:
        # The first convolution is 7 x 7, and pooled.
        return self.side > 32

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """From the last layer to the first."""
        inputs = self.stages[0].width
        layers = [*_normed("conv1", "bn1", 3, inputs, 7 if self._is_large else 3)]
        for number, stage in enumerate(self.stages, 1):
            for index in range(stage.blocks):
                layers += _block(f"layer{number}.{index}", stage, inputs)
                inputs = stage.outputs
        return in_ready_order([*layers, linear("fc", inputs, self.classes)])

    def module(self) -> nn.Module:
        """A ResNet."""
        from netfold.sim.workload.networks import ResNet

        return ResNet(self.stages, self.classes, self._is_large)


class ResNet20(_ResNet):
    """ResNet-20 for images of 32 by 32 pixels and 10 classes."""

    kind: Literal["resnet20"] = "resnet20"

    title: ClassVar[str] = "ResNet-20"
    source: ClassVar[str] = f"{_SOURCE}, §4.2, option A"
    data: ClassVar[tuple[Data, ...]] = SMALL_IMAGES
    densities: ClassVar[tuple[Density, ...]] = (Density(4, 1.0, 1.0),)
    side: ClassVar[int] = 32
    sample_bytes: ClassVar[int] = 3_000_000
    stages: ClassVar[tuple[ResidualStage, ...]] = tuple(
        ResidualStage(width, 3, stride, pads=True) for width, stride in ((16, 1), (32, 2), (64, 2))
    )
    classes: ClassVar[int] = 10


class ResNet18(_ResNet):
    """ResNet-18 for images of 224 by 224 pixels and 1000 classes."""

    kind: Literal["resnet18"] = "resnet18"

    title: ClassVar[str] = "ResNet-18"
    source: ClassVar[str] = f"{_SOURCE}, table 1; as in torchvision"
    data: ClassVar[tuple[Data, ...]] = LARGE_IMAGES
    densities: ClassVar[tuple[Density, ...]] = (Density(4, 1.0, 1.0),)
    side: ClassVar[int] = 224
    sample_bytes: ClassVar[int] = 40_000_000
    stages: ClassVar[tuple[ResidualStage, ...]] = (
        *(ResidualStage(64, 2, 1), ResidualStage(128, 2, 2)),
        *(ResidualStage(256, 2, 2), ResidualStage(512, 2, 2)),
    )
    classes: ClassVar[int] = 1000


class ResNet50(_ResNet):
    """ResNet-50 for images of 224 by 224 pixels and 1000 classes."""

    kind: Literal["resnet50"] = "resnet50"

    title: ClassVar[str] = "ResNet-50"
    source: ClassVar[str] = f"{_SOURCE}, table 1; strides as in torchvision (v1.5)"
    data: ClassVar[tuple[Data, ...]] = LARGE_IMAGES
    densities: ClassVar[tuple[Density, ...]] = (Density(1, 1.0, 1.0),)
    side: ClassVar[int] = 224
    sample_bytes: ClassVar[int] = 115_000_000
    stages: ClassVar[tuple[ResidualStage, ...]] = (
        *(ResidualStage(64, 3, 1, is_bottleneck=True), ResidualStage(128, 4, 2, is_bottleneck=True)),
        *(ResidualStage(256, 6, 2, is_bottleneck=True), ResidualStage(512, 3, 2, is_bottleneck=True)),
    )
    classes: ClassVar[int] = 1000


def _block(name: str, stage: ResidualStage, inputs: int) -> Iterator[tuple[Tensor, ...]]:
    """The layers of a block in the order in which they run, a shortcut's last."""
    kernels = (1, 3, 1) if stage.is_bottleneck else (3, 3)
    channels = [inputs, *(stage.width for _ in kernels[1:]), stage.outputs]
    for index, kernel in enumerate(kernels):
        conv, bn = f"{name}.conv{index + 1}", f"{name}.bn{index + 1}"
        yield from _normed(conv, bn, channels[index], channels[index + 1], kernel)
    if inputs != stage.outputs and not stage.pads:
        yield from _normed(f"{name}.downsample.0", f"{name}.downsample.1", inputs, stage.outputs, 1)


def _normed(name: str, bn: str, inputs: int, outputs: int, kernel: int) -> Iterator[tuple[Tensor, ...]]:
    """A convolution without bias, and its norm."""
    yield convolution(name, inputs, outputs, kernel, bias=False)
    yield norm(bn, outputs, layer=name)
