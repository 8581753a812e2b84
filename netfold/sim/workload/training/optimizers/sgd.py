"""Stochastic gradient descent, plain or with momentum and weight decay, as in `torch.optim.SGD`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from netfold.sim.workload.training.optimizers.rule import Optimizer, OptimizerSection

if TYPE_CHECKING:
    from torch import Tensor

    from netfold.sim.workload.training.optimizers.rule import TensorState

_BUFFER = "momentum_buffer"


@dataclass(frozen=True)
class Sgd(Optimizer):
    """v ← momentum · v + gradient; weights −= rate · v, with Nesterov's rate · (gradient + momentum · v).

    Weight decay adds weight_decay · weights to the gradient. PyTorch's convention: the first v is the first
    gradient, and the rate is outside v (Sutskever et al., ICML 2013, have it inside).
    """

    kind: ClassVar[str] = "sgd"
    momentum_share: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Without momentum and weight decay."""
        return not self.momentum_share and not self.weight_decay

    @property
    def momentum(self) -> float:
        """What remains of v after a step."""
        return self.momentum_share

    @property
    def state_floats(self) -> int:
        """V, if there is momentum."""
        return int(bool(self.momentum_share))

    def step(self, weights: Tensor, gradient: Tensor, rate: float, state: TensorState) -> None:
        """One step of `torch.optim.SGD`."""
        from torch.optim.sgd import sgd

        buffers = [state.get(_BUFFER)]
        sgd(
            [weights],
            [gradient],
            buffers,
            lr=rate,
            momentum=self.momentum_share,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            dampening=0,
            maximize=False,
            foreach=False,
        )
        if buffers[0] is not None:
            state[_BUFFER] = buffers[0]


class SgdSection(OptimizerSection):
    """Stochastic gradient descent."""

    kind: Literal["sgd"] = "sgd"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """What remains of past gradients after a step; 0.9 is usual, 0 is none."""
    nesterov: bool = False
    """Nesterov's momentum, as PyTorch has it."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """This times the weights is added to the gradient."""

    @model_validator(mode="after")
    def _nesterov_has_momentum(self) -> SgdSection:
        if self.nesterov and not self.momentum:
            raise ValueError(
                "nesterov is given without momentum\ngive a momentum, such as 0.9, or remove nesterov"
            )
        return self

    def optimizer(self) -> Sgd:
        """The optimizer."""
        return Sgd(self.momentum, self.nesterov, self.weight_decay)
