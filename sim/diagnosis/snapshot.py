"""What the fabric knows when nothing moves any more, and what it may ask the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from netfold.sim.diagnosis.links import LinkFate
from netfold.sim.engine.interface import Disturbance, Job, Outstanding, PointView, SlotState
from netfold.topologies.routing import Network

CRASHED, CLEARED = "crashed", "registers cleared"  # what notes say
HAS_CRASHED = "has crashed"  # what a worker is told to be at
Child = tuple[str, int]  # ("worker", rank) or ("point", number)


class Observed(Protocol):
    """What an engine tells of the inside of its switches and workers."""

    def outstanding(self, job: int) -> list[Outstanding]:
        """Units that workers wait for."""
        ...

    def slot_state(self, job: int, point: int, slot: int, version: int) -> SlotState:
        """One version of a slot at a point of the job's tree; 0 is the root."""
        ...

    def job_points(self, job: int) -> Sequence[PointView]:
        """Every point's switch and its children, the root first."""
        ...


class WaitingFlow(NamedTuple):
    """A message that has not been delivered."""

    source: int  # node
    target: int
    route: int
    opened_ps: int
    packet_bytes: int
    owner: int = 0  # job of the variant


class Tenant(NamedTuple):
    """A job on switches."""

    owner: int  # job of the variant: its rings have no place on switches, and no number there
    job: Job


class Note(NamedTuple):
    """Something that was done to the network, as a fault tells it."""

    time_ps: int
    node: int
    what: str  # CRASHED or CLEARED


class Opened(NamedTuple):
    """A worker's aggregation streams."""

    streams_count: int
    last_ps: int


@dataclass(frozen=True)
class Scene:
    """What the fabric knows when nothing moves any more."""

    network: Network
    names: Sequence[str]  # of the variant's jobs where there are several, else one that is empty
    tenants: Sequence[Tenant]  # by the engine's number
    time_ps: int
    quiet_ps: int
    fates: Sequence[LinkFate]  # of each link, over the last part of the quiet
    totals: Sequence[LinkFate]  # of each link, since the start
    disturbances: Sequence[Disturbance]  # since the start
    opened: Mapping[tuple[int, int], Opened]  # by the engine's number and worker
    flows: Sequence[WaitingFlow]
    notes: Sequence[Note]
    doing: Mapping[tuple[int, int], str]  # what a worker is at, by job of the variant and worker
