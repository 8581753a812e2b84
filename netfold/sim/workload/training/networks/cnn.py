"""A small convolutional network."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Cnn(nn.Module):
    """Images `(batch, 1, side, side)` to logits `(batch, classes)`: two convolutions, two linear layers."""

    def __init__(self, channels: tuple[int, int], hidden: int, classes: int, side: int) -> None:
        super().__init__()
        first, second = channels
        self.conv1 = nn.Conv2d(1, first, 3, padding=1)
        self.conv2 = nn.Conv2d(first, second, 3, padding=1)
        self.fc1 = nn.Linear(second * (side // 4) ** 2, hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        found = functional.max_pool2d(functional.relu(self.conv1(images)), 2)
        found = functional.max_pool2d(functional.relu(self.conv2(found)), 2)
        logits: Tensor = self.fc2(functional.relu(self.fc1(found.flatten(1))))
        return logits
