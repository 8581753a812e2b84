"""Optimizers, with the bits of PyTorch's: their keys and their rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from netfold.kinds import family, register
from netfold.sim.keys import Option

# The contract of an optimizer.
#
# PyTorch does the arithmetic wherever an optimizer has state: the functions of `torch.optim` that its classes
# call. (The classes themselves import PyTorch's compiler, which takes seconds and 70 MB.) PyTorch is imported
# when the first step is made.


if TYPE_CHECKING:
    from torch import Tensor

    TensorState = dict[str, Tensor]
    """State of one tensor of weights, by PyTorch's name: momentum_buffer, exp_avg …"""


NonNegative = Annotated[float, Field(ge=0)]
Beta = Annotated[float, Field(ge=0, lt=1)]


@family("optimizers")
class Optimizer(Option, ABC):
    """How the mean of the workers' gradients moves the weights."""

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


# Stochastic gradient descent, plain or with momentum and weight decay, as in `torch.optim.SGD`.


_BUFFER = "momentum_buffer"


@register
@dataclass(frozen=True)
class Sgd(Optimizer):
    """Stochastic gradient descent.

    v ← momentum · v + gradient; weights −= rate · v, with Nesterov's rate · (gradient + momentum · v).

    Weight decay adds weight_decay · weights to the gradient. PyTorch's convention: the first v is the first
    gradient, and the rate is outside v (Sutskever et al., ICML 2013, have it inside).
    """

    kind: ClassVar[str] = "sgd"
    momentum: Beta = 0.0
    """What remains of past gradients after a step; 0.9 is usual, 0 is none."""
    nesterov: bool = False
    """Nesterov's momentum, as PyTorch has it."""
    weight_decay: NonNegative = 0.0
    """This times the weights is added to the gradient."""

    def __post_init__(self) -> None:
        if self.nesterov and not self.momentum:
            raise ValueError(
                "nesterov is given without momentum\ngive a momentum, such as 0.9, or remove nesterov"
            )

    @property
    def is_plain(self) -> bool:
        return not self.momentum and not self.weight_decay

    @property
    def state_floats(self) -> int:
        return int(bool(self.momentum))

    def step(self, weights: Tensor, gradient: Tensor, rate: float, state: TensorState) -> None:
        """One step of `torch.optim.SGD`."""
        from torch.optim.sgd import sgd

        buffers = [state.get(_BUFFER)]
        sgd(
            [weights],
            [gradient],
            buffers,
            lr=rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            dampening=0,
            maximize=False,
            foreach=False,
        )
        if buffers[0] is not None:
            state[_BUFFER] = buffers[0]


# Adam, as in `torch.optim.Adam`.


_MEAN, _SQUARE, _STEP = "exp_avg", "exp_avg_sq", "step"


@register
@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam: steps of the size of the rate, whatever that of gradients (Kingma and Ba, ICLR 2015).

    m and v are running means of gradients and of their squares, each freed from its start at 0; weights −=
    rate · m / (√v + eps). Weight decay adds weight_decay · weights to the gradient.
    """

    kind: ClassVar[str] = "adam"
    betas: tuple[Beta, Beta] = (0.9, 0.999)  # PyTorch's and the paper's, as eps
    """What remains of the running means of gradients and of their squares after a step."""
    eps: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the squares, against division by 0."""
    weight_decay: NonNegative = 0.0
    """This times the weights is added to the gradient."""

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


@register
@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay, which goes around the means (Loshchilov and Hutter, ICLR 2019).

    Each step first takes rate · weight_decay · weights off the weights, as in PyTorch.
    """

    kind: ClassVar[str] = "adamw"
    weight_decay: NonNegative = 0.01  # PyTorch's
    """This times the rate times the weights is taken off the weights."""

    def step(self, weights: Tensor, gradient: Tensor, rate: float, state: TensorState) -> None:
        """One step of `torch.optim.AdamW`."""
        from torch.optim.adamw import adamw

        self.step_by(adamw, weights, gradient, rate, state)
