"""Adam, as in `torch.optim.Adam`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from netfold.sim.workload.training.optimizers.rule import Optimizer, OptimizerSection

if TYPE_CHECKING:
    from torch import Tensor

    from netfold.sim.workload.training.optimizers.rule import TensorState

BETAS, EPS = (0.9, 0.999), 1e-8  # PyTorch's, and the paper's
Beta = Annotated[float, Field(ge=0, lt=1)]
_MEAN, _SQUARE, _STEP = "exp_avg", "exp_avg_sq", "step"


@dataclass(frozen=True)
class Adam(Optimizer):
    """Steps of the size of the rate, whatever that of gradients (Kingma and Ba, ICLR 2015).

    m and v are running means of gradients and of their squares, each freed from its start at 0; weights −=
    rate · m / (√v + eps). Weight decay adds weight_decay · weights to the gradient.
    """

    kind: ClassVar[str] = "adam"
    betas: tuple[float, float] = BETAS
    eps: float = EPS
    weight_decay: float = 0.0

    @property
    def momentum(self) -> float:
        """What remains of m after a step."""
        return self.betas[0]

    @property
    def state_floats(self) -> int:
        """Both means."""
        return 2

    def step(self, weights: Tensor, gradient: Tensor, rate: float, state: TensorState) -> None:
        """One step of `torch.optim.Adam`."""
        from torch.optim.adam import adam

        self.step_by(adam, weights, gradient, rate, state)

    def step_by(
        self, function: Any, weights: Tensor, gradient: Tensor, rate: float, state: TensorState
    ) -> None:
        """One step by PyTorch's function for this optimizer."""
        import torch

        if not state:
            state[_STEP] = torch.tensor(0.0)
            state[_MEAN], state[_SQUARE] = torch.zeros_like(weights), torch.zeros_like(weights)
        function(
            [weights],
            [gradient],
            [state[_MEAN]],
            [state[_SQUARE]],
            [],
            [state[_STEP]],
            lr=rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            eps=self.eps,
            weight_decay=self.weight_decay,
            amsgrad=False,
            maximize=False,
            foreach=False,
        )


class AdamSection(OptimizerSection):
    """Adam."""

    kind: Literal["adam"] = "adam"
    betas: tuple[Beta, Beta] = BETAS
    """What remains of the running means of gradients and of their squares after a step."""
    eps: Annotated[float, Field(gt=0)] = EPS
    """Added to the root of the squares, against division by 0."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """This times the weights is added to the gradient."""

    def optimizer(self) -> Adam:
        """The optimizer."""
        return Adam(self.betas, self.eps, self.weight_decay)
