"""The plan of a job's hierarchy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from netfold.sim.collectives.between_hosts import ChunkedPlan
from netfold.sim.collectives.closed_form import Cut
from netfold.sim.collectives.hierarchical.groups import Groups


@dataclass(frozen=True, kw_only=True)
class HierarchicalPlan(ChunkedPlan):
    """Workers in groups; `chunk_words` is the size of a block."""

    groups: Groups
    inner: Callable[[int], Cut]  # the schedule of a group of some size
    outer: Cut  # the schedule across groups
