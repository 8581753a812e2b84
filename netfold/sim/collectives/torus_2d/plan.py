"""The plan of a job's torus."""

from __future__ import annotations

from dataclasses import dataclass

from netfold.sim.collectives.between_hosts import HostPlan
from netfold.sim.collectives.torus_2d.grid import Grid


@dataclass(frozen=True, kw_only=True)
class TorusPlan(HostPlan):
    """Workers in the rows of a grid."""

    grid: Grid
