"""A rate that falls linearly, as `torch.optim.lr_scheduler.LinearLR`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from netfold.sim.keys.fields import Share
from netfold.sim.workload.training.schedules.rule import Schedule, ScheduleSection


@dataclass(frozen=True)
class Linear(Schedule):
    """From the rate to `floor` of it, which would be reached one step after the last."""

    floor: float = 0.0

    def after_warmup(self, step: int, steps: int) -> float:
        """Return 1 − (1 − floor) · step / steps; from `steps` on it is the floor."""
        return 1 - (1 - self.floor) * min(step, steps) / steps


class LinearSection(ScheduleSection):
    """A rate that falls linearly over all steps of the workload."""

    kind: Literal["linear"]
    floor: Share = 0.0
    """Share of the rate that it falls to."""

    def schedule(self) -> Linear:
        """The schedule."""
        return Linear(self.floor, warmup=self.warmup)
