"""A rate that falls in steps, as `torch.optim.lr_scheduler.StepLR`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from netfold.sim.keys.fields import Count
from netfold.sim.workload.training.schedules.rule import Schedule, ScheduleSection


@dataclass(frozen=True)
class Step(Schedule):
    """The rate is multiplied by `by` after every so many steps."""

    every: int
    by: float = 0.1

    def after_warmup(self, step: int, steps: int) -> float:
        """Return by^⌊step / every⌋."""
        return float(self.by ** (step // self.every))


class StepSection(ScheduleSection):
    """A rate that is multiplied by a factor after every so many steps."""

    kind: Literal["step"]
    every: Count
    """Steps from one change to the next."""
    by: Annotated[float, Field(gt=0)] = 0.1
    """What the rate is multiplied by."""

    def schedule(self) -> Step:
        """The schedule."""
        return Step(self.every, self.by, warmup=self.warmup)
