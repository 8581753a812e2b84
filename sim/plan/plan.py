"""The plan of a variant: all in integers and objects; `sim.resolve` makes it."""

from __future__ import annotations

from dataclasses import dataclass

from netfold.homomorphic.codec import Codec
from netfold.sim.plan.collective import CollectivePlan
from netfold.sim.plan.faults import FaultPlan
from netfold.sim.plan.reference import Reference
from netfold.sim.workload import FileSpec, SyntheticSpec, TrainingSpec
from netfold.sim.workload.device import Device
from netfold.topologies.routing import Network


@dataclass(frozen=True)
class JobPlan:
    """One job of a variant, resolved. Holding one means that:

    - every worker has a host of its own, which no other job uses;
    - its collective can do the codec's merges;
    - switches that aggregate fit its program beside the jobs that share them; its slots are whole messages
    and nobody else's;
    - a window of messages between hosts holds at least one acknowledgement's worth of packets.
    """

    label: str  # in results: the variant's name, and the job's after a "/" where there are several
    hosts: tuple[int, ...]  # node of each worker
    workload: TrainingSpec | SyntheticSpec | FileSpec
    steps: int
    device: Device
    codec: Codec
    collective: CollectivePlan
    references: tuple[Reference, ...]  # published results, and the bound of the wire
    start_ps: int = 0
    warnings: tuple[str, ...] = ()


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
        return max(job.collective.timeout_max_ps for job in self.jobs)
