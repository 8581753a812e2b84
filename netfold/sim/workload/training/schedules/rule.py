"""The contract of a schedule of the learning rate, and the warm-up that all of them may begin with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from netfold.sim.keys.fields import count_of
from netfold.sim.keys.section import Section


@dataclass(frozen=True, kw_only=True)
class Schedule(ABC):
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
    def schedule(self) -> Schedule:
        """The schedule with these options."""
