"""Snapshot of the network taken when a stall is detected, and the view of the engine that diagnosis needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from netfold.sim.diagnosis.links import LinkOutcomes
from netfold.sim.engine.interface import Disturbance, Job, Outstanding, PointView, SlotState
from netfold.topologies.network import Network

CRASHED, CLEARED = "crashed", "registers cleared"  # what happened to a node
HAS_CRASHED = "has crashed"  # activity of a crashed worker
Child = tuple[str, int]  # ("worker", rank) or ("point", number)


class InspectableEngine(Protocol):
    """An engine whose switches and workers can be inspected."""

    def outstanding(self, job: int) -> list[Outstanding]:
        """Units that the job's workers wait for."""
        ...

    def slot_state(self, job: int, point: int, slot: int, version: int) -> SlotState:
        """One version of a slot at a point of the job's tree; 0 is the root."""
        ...

    def job_points(self, job: int) -> Sequence[PointView]:
        """The switch and the children of every point, the root first."""
        ...


class WaitingFlow(NamedTuple):
    """A message that has not been delivered."""

    source: int  # node
    target: int
    route: int
    ack_route: int
    opened_ps: int
    packet_bytes: int
    owner: int = 0  # job of the variant
    what: str = ""  # of a schedule: the transfer, its operation and its flow


class JobOnSwitch(NamedTuple):
    """A job that has slots on switches."""

    owner: int  # index of the job in the variant; the engine numbers only jobs with slots
    job: Job
    ranks: tuple[int, ...] = ()  # of its workers in the job of the variant; empty: it has all of these

    def rank(self, worker: int) -> int:
        """The rank of one of its workers in the job of the variant."""
        return self.ranks[worker] if self.ranks else worker


class NodeEvent(NamedTuple):
    """A fault that struck a node."""

    time_ps: int
    node: int
    what: str  # CRASHED or CLEARED


class Opened(NamedTuple):
    """A worker's aggregation streams."""

    streams_count: int
    last_ps: int


@dataclass(frozen=True)
class Snapshot:
    """The state of the network at a stall."""

    network: Network
    names: Sequence[str]  # of the variant's jobs if there are several, else one empty name
    jobs: Sequence[JobOnSwitch]  # by the engine's number
    time_ps: int
    quiet_ps: int
    outcomes: Sequence[LinkOutcomes]  # of each link, over the last part of the stall
    total_outcomes: Sequence[LinkOutcomes]  # of each link, since the start
    disturbances: Sequence[Disturbance]  # since the start
    opened: Mapping[tuple[int, int], Opened]  # by the engine's number and worker
    flows: Sequence[WaitingFlow]
    node_events: Sequence[NodeEvent]
    activities: Mapping[tuple[int, int], str]  # of workers, by job of the variant and worker
