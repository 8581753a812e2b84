"""The plan: a scenario resolved to integers and objects; `sim.resolve` makes it."""

from __future__ import annotations

from dataclasses import dataclass

from netfold.homomorphic.codec import Codec
from netfold.sim.engine.interface import BACKOFF_MAX, Frame, Job
from netfold.sim.plan.faults import FaultPlan
from netfold.sim.plan.reference import Reference
from netfold.sim.scenario import Scenario
from netfold.sim.workload import FileSpec, SyntheticSpec, TrainingSpec
from netfold.sim.workload.device import Device
from netfold.topologies.routing import Network


@dataclass(frozen=True)
class RingPlan:
    """A ring all-reduce over reliable messages."""

    frame: Frame
    window: int  # packets
    timeout_ps: int
    ack_every: int


@dataclass(frozen=True)
class Passes:
    """Trips through a switch's pipelines: of a packet that it adds up, and of a result on its way out."""

    packet: int = 1
    result: int = 0


@dataclass(frozen=True)
class JobPlan:
    """One job of a variant, resolved. Holding one means that:

    - every worker has a host of its own, which no other job uses;
    - an in-network job's switches fit its program beside the jobs that share them, and can do the codec's
    merges; its slots are whole messages and nobody else's;
    - a ring's window holds at least one acknowledgement's worth of packets.
    """

    label: str  # in results: the variant's name, and the job's after a "/" where there are several
    hosts: tuple[int, ...]  # node of each worker
    workload: TrainingSpec | SyntheticSpec | FileSpec
    steps: int
    device: Device
    codec: Codec
    collective: RingPlan | Job
    references: tuple[Reference, ...]  # published results, and the bound of the wire
    start_ps: int = 0
    passes: Passes = Passes()
    warnings: tuple[str, ...] = ()

    @property
    def timeout_max_ps(self) -> int:
        """Longest that its traffic ever waits before it sends again."""
        plan = self.collective
        return plan.timeout_max_ps if isinstance(plan, Job) else plan.timeout_ps << BACKOFF_MAX


@dataclass(frozen=True)
class VariantPlan:
    """One variant, resolved: a network and the jobs on it. Holding one means that:

    - every node and link is a row of `network`, whose delays into switches include their pass latency;
    - every switch profile exists;
    - what the fault plan promises holds on this network.
    """

    name: str
    network: Network
    faults: FaultPlan
    jobs: tuple[JobPlan, ...]  # one or more

    @property
    def job_names(self) -> tuple[str, ...]:
        """What its jobs are called where there are several; an only job has an empty name."""
        return tuple(job.label.removeprefix(self.name).removeprefix("/") for job in self.jobs)

    @property
    def steps(self) -> int:
        """Optimizer steps of all jobs together."""
        return sum(job.steps for job in self.jobs)

    @property
    def timeout_max_ps(self) -> int:
        """Longest that its traffic ever waits before it sends again."""
        return max(job.timeout_max_ps for job in self.jobs)


@dataclass(frozen=True)
class Plan:
    """A scenario ready to run."""

    scenario: Scenario
    variants: tuple[VariantPlan, ...]
