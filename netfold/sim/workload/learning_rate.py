"""Schedules of the learning rate, with the bits of PyTorch's: their keys, their rules, and the registry."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from netfold.sim.keys import Count, Section, Share, count_of

# The contract of a schedule of the learning rate, and the warm-up that all of them may begin with.


@dataclass(frozen=True, kw_only=True)
class RateSchedule(ABC):
    """A frozen dataclass whose fields are the options.

    With a warm-up of n steps the rate rises linearly: step s < n has (s + 1) / (n + 1) of it (Goyal et al.,
    "Accurate, Large Minibatch SGD", 2017, §2.2), and the schedule proper begins with step n.
    """

    warmup: int = 0  # steps

    def factor(self, step: int, steps: int) -> float:
        """What the rate is multiplied by at an optimizer step, of a training of so many; both from 0."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        return self.after_warmup(step - self.warmup, max(1, steps - self.warmup))

    @abstractmethod
    def after_warmup(self, step: int, steps: int) -> float:
        """The factor at a step after the warm-up, which is number 0, of so many."""


class ScheduleSection(Section, ABC):
    """The keys of a schedule in a scenario; the first is `kind`, a literal."""

    kind: str
    warmup: count_of(0) = 0  # type: ignore[valid-type]
    """Steps in which the rate rises linearly, before the schedule proper begins."""

    @abstractmethod
    def schedule(self) -> RateSchedule:
        """The schedule with these options."""


# The same rate at every step.


@dataclass(frozen=True)
class Constant(RateSchedule):
    """The learning rate as it is given."""

    def after_warmup(self, step: int, steps: int) -> float:
        return 1.0


class ConstantSection(ScheduleSection):
    """The same rate at every step."""

    kind: Literal["constant"] = "constant"

    def schedule(self) -> Constant:
        return Constant(warmup=self.warmup)


# A rate that falls along half a cosine, as `torch.optim.lr_scheduler.CosineAnnealingLR`.


@dataclass(frozen=True)
class Cosine(RateSchedule):
    """From the rate to `floor` of it, which would be reached one step after the last.

    Loshchilov and Hutter, SGDR, ICLR 2017, equation 5, without restarts.
    """

    floor: float = 0.0

    def after_warmup(self, step: int, steps: int) -> float:
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * min(step, steps) / steps)) / 2


class CosineSection(ScheduleSection):
    """A rate that falls along half a cosine over all steps of the workload."""

    kind: Literal["cosine"]
    floor: Share = 0.0
    """Share of the rate that it falls to."""

    def schedule(self) -> Cosine:
        return Cosine(self.floor, warmup=self.warmup)


# A rate that falls linearly, as `torch.optim.lr_scheduler.LinearLR`.


@dataclass(frozen=True)
class Linear(RateSchedule):
    """From the rate to `floor` of it, which would be reached one step after the last."""

    floor: float = 0.0

    def after_warmup(self, step: int, steps: int) -> float:
        return 1 - (1 - self.floor) * min(step, steps) / steps


class LinearSection(ScheduleSection):
    """A rate that falls linearly over all steps of the workload."""

    kind: Literal["linear"]
    floor: Share = 0.0
    """Share of the rate that it falls to."""

    def schedule(self) -> Linear:
        return Linear(self.floor, warmup=self.warmup)


# A rate that falls in steps, as `torch.optim.lr_scheduler.StepLR`.


@dataclass(frozen=True)
class StepDecay(RateSchedule):
    """The rate is multiplied by `by` after every so many steps."""

    every: int
    by: float = 0.1

    def after_warmup(self, step: int, steps: int) -> float:
        return float(self.by ** (step // self.every))


class StepSection(ScheduleSection):
    """A rate that is multiplied by a factor after every so many steps."""

    kind: Literal["step"]
    every: Count
    """Steps from one change to the next."""
    by: Annotated[float, Field(gt=0)] = 0.1
    """What the rate is multiplied by."""

    def schedule(self) -> StepDecay:
        return StepDecay(self.every, self.by, warmup=self.warmup)


# All schedules of the learning rate.


SECTIONS: tuple[type[ScheduleSection], ...] = (ConstantSection, StepSection, CosineSection, LinearSection)
