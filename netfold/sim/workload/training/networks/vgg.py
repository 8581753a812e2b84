"""VGG networks."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class Vgg(nn.Module):
    """Images `(batch, 3, side, side)` to logits `(batch, classes)`; parameters as torchvision names them.

    Convolutions start from a normal distribution (He et al., fan out), linear layers from one with σ 0.01,
    biases from 0, as in torchvision.

    Parameters
    ----------
    blocks
        Outputs of the convolutions, block by block.
    hidden, pooled
        Width of the linear layers of the head, and side of the images that it is given.
    classes
        How many logits.
    has_head
        Whether three linear layers with dropout follow, as for ImageNet; otherwise one.
    batch_norm
        Whether a norm follows each convolution.
    """

    def __init__(
        self,
        blocks: Sequence[Sequence[int]],
        hidden: int,
        pooled: int,
        *,
        classes: int,
        has_head: bool,
        batch_norm: bool,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*_features(blocks, batch_norm))
        channels = blocks[-1][-1]
        self.pool = nn.AdaptiveAvgPool2d(pooled if has_head else 1)
        self.classifier = (
            nn.Sequential(
                *(nn.Linear(channels * pooled**2, hidden), nn.ReLU(inplace=True), nn.Dropout()),
                *(nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout()),
                nn.Linear(hidden, classes),
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


def _features(blocks: Sequence[Sequence[int]], batch_norm: bool) -> list[nn.Module]:
    """Convolutions with ReLUs; each block ends with a pooling that halves the sides."""
    modules: list[nn.Module] = []
    inputs = 3
    for block in blocks:
        for outputs in block:
            modules.append(nn.Conv2d(inputs, outputs, 3, padding=1))
            modules += [nn.BatchNorm2d(outputs)] if batch_norm else []
            modules.append(nn.ReLU(inplace=True))
            inputs = outputs
        modules.append(nn.MaxPool2d(2))
    return modules
