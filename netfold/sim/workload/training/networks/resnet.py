"""Residual networks."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.training.shapes import ResidualStage


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
        found = functional.relu(self.bn1(self.conv1(images)))
        found = self.bn2(self.conv2(found))
        return functional.relu(found + self.downsample(images))


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
        found = functional.relu(self.bn1(self.conv1(images)))
        found = functional.relu(self.bn2(self.conv2(found)))
        found = self.bn3(self.conv3(found))
        return functional.relu(found + self.downsample(images))


class Padded(nn.Module):
    """A shortcut without parameters: every second row and column, and channels of zeros (option A)."""

    def __init__(self, more: int, stride: int) -> None:
        super().__init__()
        self._more, self._stride = more, stride

    def forward(self, images: Tensor) -> Tensor:
        """Half of the new channels come before the old ones, half after them."""
        before = self._more // 2
        kept = images[:, :, :: self._stride, :: self._stride]
        return functional.pad(kept, (0, 0, 0, 0, before, self._more - before))


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
        found = self.pool(functional.relu(self.bn1(self.conv1(images))))
        for name in self._stages:
            found = cast(nn.Module, getattr(self, name))(found)
        logits: Tensor = self.fc(found.mean((2, 3)))
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
