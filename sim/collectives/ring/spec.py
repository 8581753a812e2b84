"""The ring: its keys, and what its schedule comes to in numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from netfold.sim.collectives.between_hosts import HostPlan, HostSection, Schedule, Steps
from netfold.sim.collectives.spec import CollectiveSpec

if TYPE_CHECKING:
    from netfold.sim.collectives.collective import Collective, Stage


class Ring(HostSection):
    """Ring all-reduce between the hosts: reduce-scatter, then all-gather."""

    kind: Literal["ring"]


def _steps(workers: int) -> Steps:
    """Every worker sends an n-th to the next, 2 (n − 1) times; half of these are merged."""
    following = [(worker, (worker + 1) % workers) for worker in range(workers)]
    return Steps(following, hops=2 * (workers - 1), chunks=workers, merges=workers - 1)


def _start(plan: HostPlan, stage: Stage) -> Collective:
    from netfold.sim.collectives.ring.run import Ring  # late: it needs the engine

    return Ring(plan, stage)


SCHEDULE = Schedule(
    "ring",
    "a ring",
    "a ring merges at every hop: use a codec whose messages can be merged",
    _steps,
)
RING = CollectiveSpec("ring", Ring, SCHEDULE.resolve, _start)
