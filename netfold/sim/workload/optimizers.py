"""Optimizers, with the bits of PyTorch's: their keys, their rules, and the registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from netfold.sim.keys import Section

if TYPE_CHECKING:
    from torch import Tensor


# The contract of an optimizer.
#
# PyTorch does the arithmetic wherever an optimizer has state: the functions of `torch.optim` that its classes
# call. (The classes themselves import PyTorch's compiler, which takes seconds and 70 MB.) PyTorch is imported
# when the first step is made.


if TYPE_CHECKING:
    from torch import Tensor

    TensorState = dict[str, Tensor]
    """State of one tensor of weights, by PyTorch's name: momentum_buffer, exp_avg …"""


class Optimizer(ABC):
    """A frozen dataclass whose fields are the options."""

    kind: ClassVar[str]

    @property
    def is_plain(self) -> bool:
        # A step is weights −= rate · gradient and nothing else.
        return False

    @property
    def momentum(self) -> float:
        # What remains of past gradients after a step: 0 (none) to below 1.
        return 0.0

    @property
    @abstractmethod
    def state_floats(self) -> int:
        """Numbers that it remembers per weight."""

    @abstractmethod
    def step(self, weights: Tensor, gradient: Tensor, rate: float, state: TensorState) -> None:
        """Move one tensor of weights in place.

        Parameters
        ----------
        weights, gradient
            float32, of the same shape; the gradient may be overwritten.
        rate
            The learning rate of this step.
        state
            What it remembers of this tensor: empty before the first step, changed by every one.
        """


class OptimizerSection(Section, ABC):
    """The keys of an optimizer in a scenario; the first is `kind`, a literal."""

    kind: str

    @abstractmethod
    def optimizer(self) -> Optimizer:
        """The optimizer with these options."""


# Adam, as in `torch.optim.Adam`.


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
        return self.betas[0]

    @property
    def state_floats(self) -> int:
        # m and v.
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
        return Adam(self.betas, self.eps, self.weight_decay)


# AdamW: Adam with decoupled weight decay, as in `torch.optim.AdamW`.


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
        return AdamW(self.betas, self.eps, self.weight_decay)


# Stochastic gradient descent, plain or with momentum and weight decay, as in `torch.optim.SGD`.


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
        return not self.momentum_share and not self.weight_decay

    @property
    def momentum(self) -> float:
        return self.momentum_share

    @property
    def state_floats(self) -> int:
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
        return Sgd(self.momentum, self.nesterov, self.weight_decay)


# All optimizers.


SECTIONS: tuple[type[OptimizerSection], ...] = (SgdSection, AdamSection, AdamWSection)
