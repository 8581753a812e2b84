"""A convolutional network of LeNet's size."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from netfold.homomorphic.message import Tensor
from netfold.sim.workload.model import Data, Density, convolution, in_ready_order, linear
from netfold.sim.workload.models.images import ImageModel

if TYPE_CHECKING:
    from torch import nn


CONVOLUTIONS = (32, 64)  # channels
HIDDEN, CLASSES, SIDE = 128, 10, 28


class CnnModel(ImageModel):
    """A small convolutional network: two convolutions 3 x 3 and two linear layers."""

    kind: Literal["cnn"] = "cnn"

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

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """From the last layer to the first."""
        first, second = CONVOLUTIONS
        return in_ready_order(
            [
                convolution("conv1", 1, first, 3),
                convolution("conv2", first, second, 3),
                linear("fc1", second * (SIDE // 4) ** 2, HIDDEN),
                linear("fc2", HIDDEN, CLASSES),
            ]
        )

    def module(self) -> nn.Module:
        """A Cnn."""
        from netfold.sim.workload.networks import Cnn

        return Cnn(CONVOLUTIONS, HIDDEN, CLASSES, SIDE)
