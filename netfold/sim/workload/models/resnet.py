"""Residual networks, for small and for large images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.model import Data, Density
from netfold.sim.workload.models.images import LARGE_IMAGES, SMALL_IMAGES, ImageModel

_SOURCE = "He et al., Deep Residual Learning for Image Recognition, CVPR 2016"
_EXPANSION = 4
"""Outputs of a bottleneck for each channel of its 3 x 3 convolution."""


class ResidualStage(NamedTuple):
    """Blocks of a residual network with the same number of channels."""

    width: int
    """Channels of the convolutions 3 x 3."""
    blocks: int
    stride: int
    """Stride of the first block."""
    is_bottleneck: bool = False
    pads: bool = False
    """Whether shortcuts have no parameters (option A)."""

    @property
    def outputs(self) -> int:
        """Channels of its result."""
        return self.width * _EXPANSION if self.is_bottleneck else self.width


class _ResNet(ImageModel):
    """What residual networks have in common."""

    stages: ClassVar[tuple[ResidualStage, ...]]
    classes: ClassVar[int]
    channels: ClassVar[int] = 3

    def module(self) -> nn.Module:
        """Its network; for large images the first convolution is 7 x 7, and pooled."""
        return ResNet(self.stages, self.classes, is_large=self.side > 32)


@dataclass(frozen=True)
class ResNet20(_ResNet):
    """ResNet-20 for images of 32 by 32 pixels and 10 classes: 269,722 parameters (Idelbayev's table)."""

    kind: ClassVar[str] = "resnet20"

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


@dataclass(frozen=True)
class ResNet18(_ResNet):
    """ResNet-18 for images of 224 by 224 pixels and 1000 classes: 11,689,512 parameters (torchvision's)."""

    kind: ClassVar[str] = "resnet18"

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


@dataclass(frozen=True)
class ResNet50(_ResNet):
    """ResNet-50 for images of 224 by 224 pixels and 1000 classes: 25,557,032 parameters (torchvision's)."""

    kind: ClassVar[str] = "resnet50"

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


# The network.


class Basic(nn.Module):
    """Two convolutions 3 x 3, and what they are added to."""

    def __init__(self, stage: ResidualStage, inputs: int, stride: int) -> None:
        super().__init__()
        width = stage.width
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(stage, inputs, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Channels `(batch, width, …)`."""
        hidden = functional.relu(self.bn1(self.conv1(images)))
        hidden = self.bn2(self.conv2(hidden))
        return functional.relu(hidden + self.downsample(images))


class Bottleneck(nn.Module):
    """A convolution 3 x 3 between two of 1 x 1, and what they are added to."""

    def __init__(self, stage: ResidualStage, inputs: int, stride: int) -> None:
        super().__init__()
        width = stage.width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, stage.outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(stage.outputs)
        self.downsample = _shortcut(stage, inputs, stride)

    def forward(self, images: Tensor) -> Tensor:
        """Channels `(batch, outputs, …)`."""
        hidden = functional.relu(self.bn1(self.conv1(images)))
        hidden = functional.relu(self.bn2(self.conv2(hidden)))
        hidden = self.bn3(self.conv3(hidden))
        return functional.relu(hidden + self.downsample(images))


class Padded(nn.Module):
    """A shortcut without parameters: every second row and column, and channels of zeros (option A)."""

    def __init__(self, more: int, stride: int) -> None:
        super().__init__()
        self._more, self._stride = more, stride

    def forward(self, images: Tensor) -> Tensor:
        """Half of the new channels come before the old ones, half after them."""
        before = self._more // 2
        strided = images[:, :, :: self._stride, :: self._stride]
        return functional.pad(strided, (0, 0, 0, 0, before, self._more - before))


class ResNet(nn.Module):
    """Images `(batch, 3, side, side)` to logits `(batch, classes)`; parameters as torchvision names them.

    Convolutions start from a normal distribution (He et al., fan out), as in torchvision.
    """

    def __init__(self, stages: tuple[ResidualStage, ...], classes: int, is_large: bool) -> None:
        super().__init__()
        inputs = stages[0].width
        self.conv1 = nn.Conv2d(3, inputs, 7, 2, 3, bias=False) if is_large else _first(inputs)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.pool = nn.MaxPool2d(3, 2, 1) if is_large else nn.Identity()
        self._stages = []
        for number, stage in enumerate(stages, 1):
            block = Bottleneck if stage.is_bottleneck else Basic
            blocks = []
            for index in range(stage.blocks):
                blocks.append(block(stage, inputs, stage.stride if index == 0 else 1))
                inputs = stage.outputs
            self._stages.append(f"layer{number}")
            self.add_module(f"layer{number}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        hidden = self.pool(functional.relu(self.bn1(self.conv1(images))))
        for name in self._stages:
            hidden = cast(nn.Module, getattr(self, name))(hidden)
        logits: Tensor = self.fc(hidden.mean((2, 3)))
        return logits


def _first(outputs: int) -> nn.Conv2d:
    return nn.Conv2d(3, outputs, 3, 1, 1, bias=False)


def _shortcut(stage: ResidualStage, inputs: int, stride: int) -> nn.Module:
    """What is added: the inputs as they are where the shape stays."""
    if stride == 1 and inputs == stage.outputs:
        return nn.Identity()
    if stage.pads:
        return Padded(stage.outputs - inputs, stride)
    return nn.Sequential(
        nn.Conv2d(inputs, stage.outputs, 1, stride, bias=False), nn.BatchNorm2d(stage.outputs)
    )
