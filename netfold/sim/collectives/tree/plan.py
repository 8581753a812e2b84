"""The plan of a job's trees."""

from __future__ import annotations

from dataclasses import dataclass

from netfold.sim.collectives.between_hosts import ChunkedPlan


@dataclass(frozen=True, kw_only=True)
class TreePlan(ChunkedPlan):
    """Workers in one binary tree or two."""

    trees: int
