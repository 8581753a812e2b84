"""Aggregation in switches, as a collective."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netfold.sim.collectives.in_network.resolve import resolve
from netfold.sim.collectives.in_network.section import InNetwork
from netfold.sim.collectives.spec import CollectiveSpec
from netfold.sim.plan.collective import CollectivePlan

if TYPE_CHECKING:
    from netfold.sim.collectives.collective import Collective, Stage


def _start(plan: CollectivePlan, stage: Stage) -> Collective:
    from netfold.sim.collectives.in_network.run import InNetwork  # late: it needs the engine

    assert plan.aggregation is not None
    return InNetwork(stage.fabric, plan.aggregation, stage.job)


IN_NETWORK = CollectiveSpec("in_network", InNetwork, resolve, _start)
