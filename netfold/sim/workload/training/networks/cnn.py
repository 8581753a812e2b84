"""A small convolutional network."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from netfold.sim.workload.training.models.cnn import CLASSES, CONVOLUTIONS, HIDDEN, SIDE


class Cnn(nn.Module):
    """Images `(batch, 1, 28, 28)` to logits `(batch, 10)`: two convolutions and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        first, second = CONVOLUTIONS
        self.conv1 = nn.Conv2d(1, first, 3, padding=1)
        self.conv2 = nn.Conv2d(first, second, 3, padding=1)
        self.fc1 = nn.Linear(second * (SIDE // 4) ** 2, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        found = functional.max_pool2d(functional.relu(self.conv1(images)), 2)
        found = functional.max_pool2d(functional.relu(self.conv2(found)), 2)
        logits: Tensor = self.fc2(functional.relu(self.fc1(found.flatten(1))))
        return logits
