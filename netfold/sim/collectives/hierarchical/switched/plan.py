"""The plan of a job's hierarchy with switches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from netfold.sim.collectives.between_hosts import ChunkedPlan
from netfold.sim.collectives.closed_form import Cut
from netfold.sim.collectives.hierarchical.groups import Groups
from netfold.sim.collectives.hierarchical.switched.halves import Lane
from netfold.sim.plan.plan import CollectivePlan


@dataclass(frozen=True, kw_only=True)
class SwitchedPlan(ChunkedPlan):
    """Workers in groups that aggregate in switches, inside or across; `chunk_words` is the
    size of a block."""

    groups: Groups
    lanes: tuple[Lane, ...]
    inner: Callable[[int], Cut]  # of a group of some size; only its second half if switches do the first
    outer: Cut | None  # None: switches do it
    inside: tuple[CollectivePlan | None, ...]  # by group, what switches do; None: nothing
    across: tuple[CollectivePlan | None, ...]  # by lane
