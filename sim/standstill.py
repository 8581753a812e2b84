"""What the fabric knows when nothing moves any more, and what it may ask the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sim.engine.model import Job, Outstanding, SlotState
from sim.evidence import LinkFate
from topologies.routing import Network

Child = tuple[str, int]  # ("worker", rank) or ("point", number)
Point = tuple[int, Sequence[Child]]  # a switch of a job's tree, and what hangs on it


class Observed(Protocol):
    """What an engine tells of the inside of its switches and workers."""

    def outstanding(self, job: int) -> list[Outstanding]:
        """Units that workers wait for."""
        ...

    def slot_state(self, job: int, point: int, slot: int, version: int) -> SlotState:
        """One version of a slot at a point of the job's tree; 0 is the root."""
        ...

    def job_points(self, job: int) -> Sequence[Point]:
        """Every point's switch and its children, the root first."""
        ...


class WaitingFlow(NamedTuple):
    """A message that has not been delivered."""

    source: int  # node
    target: int
    route: int
    opened_ps: int
    packet_bytes: int


class Note(NamedTuple):
    """Something that was done to the network, as a fault tells it."""

    time_ps: int
    node: int
    what: str  # "crashed", "registers cleared"


class Opened(NamedTuple):
    """A worker's aggregation streams."""

    streams_count: int
    last_ps: int


@dataclass(frozen=True)
class Scene:
    """What the fabric knows when nothing moves any more."""

    network: Network
    jobs: Sequence[Job]
    time_ps: int
    quiet_ps: int
    fates: Sequence[LinkFate]  # of each link, over the last part of the quiet
    opened: Mapping[tuple[int, int], Opened]  # by job and worker
    flows: Sequence[WaitingFlow]
    notes: Sequence[Note]
    doing: Mapping[tuple[int, int], str]  # what a worker of a job is at, by job and worker
