"""A rate that falls along half a cosine, as `torch.optim.lr_scheduler.CosineAnnealingLR`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from netfold.sim.keys.fields import Share
from netfold.sim.workload.training.schedules.rule import Schedule, ScheduleSection


@dataclass(frozen=True)
class Cosine(Schedule):
    """From the rate to `floor` of it, which would be reached one step after the last.

    Loshchilov and Hutter, SGDR, ICLR 2017, equation 5, without restarts.
    """

    floor: float = 0.0

    def after_warmup(self, step: int, steps: int) -> float:
        """Return floor + (1 − floor) · (1 + cos(π · step / steps)) / 2; from `steps` on it is the floor."""
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * min(step, steps) / steps)) / 2


class CosineSection(ScheduleSection):
    """A rate that falls along half a cosine over all steps of the workload."""

    kind: Literal["cosine"]
    floor: Share = 0.0
    """Share of the rate that it falls to."""

    def schedule(self) -> Cosine:
        """The schedule."""
        return Cosine(self.floor, warmup=self.warmup)
