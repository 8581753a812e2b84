"""Schedules of the learning rate, with the bits of PyTorch's: their keys and their rules."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from netfold.kinds import family, register
from netfold.sim.keys import Count, Option, Share, count_of

# The contract of a schedule of the learning rate, and the warm-up that all of them may begin with.


@family("learning_rates")
@dataclass(frozen=True, kw_only=True)
class RateSchedule(Option, ABC):
    """How the learning rate changes from step to step.

    With a warm-up of n steps the rate rises linearly: step s < n has (s + 1) / (n + 1) of it (Goyal et al.,
    "Accurate, Large Minibatch SGD", 2017, §2.2), and the schedule proper begins with step n.
    """

    kind: ClassVar[str]
    warmup: count_of(0) = 0  # type: ignore[valid-type]
    """Steps in which the rate rises linearly, before the schedule proper begins."""

    def factor(self, step: int, steps: int) -> float:
        """What the rate is multiplied by at an optimizer step, of a training of so many; both from 0."""
        if step < self.warmup:
            return float((step + 1) / (self.warmup + 1))
        return self.after_warmup(step - self.warmup, max(1, steps - self.warmup))

    @abstractmethod
    def after_warmup(self, step: int, steps: int) -> float:
        """The factor at a step after the warm-up, which is number 0, of so many."""


@register
@dataclass(frozen=True)
class Constant(RateSchedule):
    """The same rate at every step."""

    kind: ClassVar[str] = "constant"

    def after_warmup(self, step: int, steps: int) -> float:
        return 1.0


# A rate that falls in steps, as `torch.optim.lr_scheduler.StepLR`.


@register
@dataclass(frozen=True)
class StepDecay(RateSchedule):
    """A rate that is multiplied by a factor after every so many steps."""

    kind: ClassVar[str] = "step"
    every: Count
    """Steps from one change to the next."""
    by: Annotated[float, Field(gt=0)] = 0.1
    """What the rate is multiplied by."""

    def after_warmup(self, step: int, steps: int) -> float:
        return float(self.by ** (step // self.every))


# A rate that falls along half a cosine, as `torch.optim.lr_scheduler.CosineAnnealingLR`.


@register
@dataclass(frozen=True)
class Cosine(RateSchedule):
    """A rate that falls along half a cosine over all steps of the workload.

    `floor` would be reached one step after the last (Loshchilov and Hutter, SGDR, ICLR 2017, equation 5,
    without restarts).
    """

    kind: ClassVar[str] = "cosine"
    floor: Share = 0.0
    """Share of the rate that it falls to."""

    def after_warmup(self, step: int, steps: int) -> float:
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * min(step, steps) / steps)) / 2


# A rate that falls linearly, as `torch.optim.lr_scheduler.LinearLR`.


@register
@dataclass(frozen=True)
class Linear(RateSchedule):
    """A rate that falls linearly over all steps of the workload.

    `floor` would be reached one step after the last.
    """

    kind: ClassVar[str] = "linear"
    floor: Share = 0.0
    """Share of the rate that it falls to."""

    def after_warmup(self, step: int, steps: int) -> float:
        return 1 - (1 - self.floor) * min(step, steps) / steps
