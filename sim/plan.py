"""The plan: a scenario resolved to integers and objects; `sim.resolve` makes it."""

from __future__ import annotations

from dataclasses import dataclass

from homomorphic.codec import Codec
from sim.engine.flow import BACKOFF_MAX
from sim.engine.model import Frame, Job
from sim.fault_plan import FaultPlan
from sim.results.summary import Reference
from sim.scenario import Scenario
from sim.workload import SyntheticSpec, TrainingSpec
from sim.workload.device import Device
from topologies.routing import Network


@dataclass(frozen=True)
class RingPlan:
    """A ring all-reduce over reliable messages."""

    frame: Frame
    window: int  # packets
    timeout_ps: int
    ack_every: int


@dataclass(frozen=True)
class VariantPlan:
    """One variant, resolved. Holding one means that:

    - every node and link is a row of `network`, whose delays into switches include their pass latency;
    - every worker has a host of its own;
    - every switch profile exists;
    - an in-network job's switch fits its program, its slots are whole messages, and it can do the codec's
    merges;
    - a ring's window holds at least one acknowledgement's worth of packets.
    """

    name: str
    network: Network
    faults: FaultPlan
    hosts: tuple[int, ...]  # node of each worker
    workload: TrainingSpec | SyntheticSpec
    steps: int
    device: Device
    codec: Codec
    collective: RingPlan | Job
    references: tuple[Reference, ...]  # published results, and the bound of the wire

    @property
    def timeout_max_ps(self) -> int:
        """Longest that its traffic ever waits before it sends again."""
        plan = self.collective
        return plan.timeout_max_ps if isinstance(plan, Job) else plan.timeout_ps << BACKOFF_MAX


@dataclass(frozen=True)
class Plan:
    """A scenario ready to run."""

    scenario: Scenario
    variants: tuple[VariantPlan, ...]
