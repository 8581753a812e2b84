"""A convolutional network of LeNet's size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.model import Data, Density
from netfold.sim.workload.models.images import ImageModel

CONVOLUTIONS = (32, 64)  # channels
HIDDEN, CLASSES, SIDE = 128, 10, 28


@dataclass(frozen=True)
class CnnModel(ImageModel):
    """A small network: two convolutions 3 x 3 and two linear layers, 421,642 parameters."""

    kind: ClassVar[str] = "cnn"

    title: ClassVar[str] = "CNN"
    source: ClassVar[str] = (
        "of the size of LeNet-5's modern copies (Y. LeCun et al., Proceedings of the IEEE 86(11), 1998)"
    )
    data: ClassVar[tuple[Data, ...]] = (
        Data("mnist-5k", "MNIST: 5,000 of its images"),
        Data("digits", "MNIST: digits of 8 by 8 pixels, enlarged"),
        Data("fashion-mnist"),
    )
    densities: ClassVar[tuple[Density, ...]] = (Density(16, 0.693, 0.802),)
    channels: ClassVar[int] = 1
    side: ClassVar[int] = SIDE
    sample_bytes: ClassVar[int] = 650_000

    def module(self) -> nn.Module:
        """Its network."""
        return Cnn()


class Cnn(nn.Module):
    """Images `(batch, 1, 28, 28)` to logits `(batch, 10)`: two convolutions, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        first, second = CONVOLUTIONS
        self.conv1 = nn.Conv2d(1, first, 3, padding=1)
        self.conv2 = nn.Conv2d(first, second, 3, padding=1)
        self.fc1 = nn.Linear(second * (SIDE // 4) ** 2, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        hidden = functional.max_pool2d(functional.relu(self.conv1(images)), 2)
        hidden = functional.max_pool2d(functional.relu(self.conv2(hidden)), 2)
        logits: Tensor = self.fc2(functional.relu(self.fc1(hidden.flatten(1))))
        return logits
