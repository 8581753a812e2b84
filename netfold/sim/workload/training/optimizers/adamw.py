"""AdamW: Adam with decoupled weight decay, as in `torch.optim.AdamW`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from netfold.sim.workload.training.optimizers.adam import BETAS, EPS, Adam, Beta
from netfold.sim.workload.training.optimizers.rule import OptimizerSection

if TYPE_CHECKING:
    from torch import Tensor

    from netfold.sim.workload.training.optimizers.rule import TensorState

DECAY = 0.01  # PyTorch's


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam whose weight decay goes around the means (Loshchilov and Hutter, ICLR 2019).

    Each step first takes rate · weight_decay · weights off the weights, as in PyTorch.
    """

    kind: ClassVar[str] = "adamw"
    weight_decay: float = DECAY

    def step(self, weights: Tensor, gradient: Tensor, rate: float, state: TensorState) -> None:
        """One step of `torch.optim.AdamW`."""
        from torch.optim.adamw import adamw

        self.step_by(adamw, weights, gradient, rate, state)


class AdamWSection(OptimizerSection):
    """Adam with decoupled weight decay."""

    kind: Literal["adamw"] = "adamw"
    betas: tuple[Beta, Beta] = BETAS
    """What remains of the running means of gradients and of their squares after a step."""
    eps: Annotated[float, Field(gt=0)] = EPS
    """Added to the root of the squares, against division by 0."""
    weight_decay: Annotated[float, Field(ge=0)] = DECAY
    """This times the rate times the weights is taken off the weights."""

    def optimizer(self) -> AdamW:
        """The optimizer."""
        return AdamW(self.betas, self.eps, self.weight_decay)
