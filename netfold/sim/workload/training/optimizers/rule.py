"""The contract of an optimizer.

PyTorch does the arithmetic wherever an optimizer has state: the functions of `torch.optim` that its classes
call. (The classes themselves import PyTorch's compiler, which takes seconds and 70 MB.) PyTorch is imported
when the first step is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from netfold.sim.keys.section import Section

if TYPE_CHECKING:
    from torch import Tensor

    TensorState = dict[str, Tensor]  # of one tensor of weights, by PyTorch's name: momentum_buffer, exp_avg …


class Optimizer(ABC):
    """A frozen dataclass whose fields are the options."""

    kind: ClassVar[str]

    @property
    def is_plain(self) -> bool:
        """Whether a step is weights −= rate · gradient and nothing else."""
        return False

    @property
    def momentum(self) -> float:
        """What remains of past gradients after a step: 0 (none) to below 1."""
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
