"""A resolved scenario."""

from __future__ import annotations

from dataclasses import dataclass

from netfold.sim.plan.plan import VariantPlan
from netfold.sim.scenario import Scenario


@dataclass(frozen=True)
class Plan:
    """A scenario ready to run."""

    scenario: Scenario
    variants: tuple[VariantPlan, ...]
