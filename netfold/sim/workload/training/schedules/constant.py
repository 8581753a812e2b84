"""The same rate at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from netfold.sim.workload.training.schedules.rule import Schedule, ScheduleSection


@dataclass(frozen=True)
class Constant(Schedule):
    """The learning rate as it is given."""

    def after_warmup(self, step: int, steps: int) -> float:
        """Return 1."""
        return 1.0


class ConstantSection(ScheduleSection):
    """The same rate at every step."""

    kind: Literal["constant"] = "constant"

    def schedule(self) -> Constant:
        """The schedule."""
        return Constant(warmup=self.warmup)
