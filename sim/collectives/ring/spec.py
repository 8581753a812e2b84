"""The ring: its keys and the numbers of its schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from netfold.homomorphic.message import MERGEABLE, Merge
from netfold.sim.collectives.best import best_by
from netfold.sim.collectives.between_hosts import HostPlan, HostSection, Schedule, Steps
from netfold.sim.collectives.spec import CollectiveSpec

if TYPE_CHECKING:
    from netfold.sim.collectives.collective import Collective, RunContext


class RingSection(HostSection):
    """Ring all-reduce between the hosts: reduce-scatter, then all-gather."""

    kind: Literal["ring"]


def _steps(workers: int) -> Steps:
    """Every worker sends one n-th of the words to the next, 2 (n − 1) times; half of these are merged."""
    following = [(worker, (worker + 1) % workers) for worker in range(workers)]
    return Steps(following, hops=2 * (workers - 1), chunks=workers, merges=workers - 1)


def _start(plan: HostPlan, context: RunContext) -> Collective:
    from netfold.sim.collectives.ring.run import Ring  # late: it needs the engine

    return Ring(plan, context)


SCHEDULE = Schedule("ring", _steps)
RING = CollectiveSpec(
    "ring",
    MERGEABLE | {Merge.HOST},
    RingSection,
    SCHEDULE.resolve,
    _start,
    carries_absence=True,
    best=best_by(lambda section, workers: _steps(workers)),
)
