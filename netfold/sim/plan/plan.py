"""The plan of a variant, in base units; `sim.resolve` makes it."""

from __future__ import annotations

from dataclasses import dataclass, field

import networkx as nx

from netfold.homomorphic.codec import Codec
from netfold.sim.plan.admission import Admission
from netfold.sim.plan.collective import CollectivePlan
from netfold.sim.plan.faults import FaultPlan
from netfold.sim.plan.overlap import Overlap
from netfold.sim.plan.reference import Reference
from netfold.sim.workload import FileSpec, SyntheticSpec, TrainingSpec
from netfold.sim.workload.device_model import STEADY, Device, Variation
from netfold.sim.workload.fusion_weighing import Costs
from netfold.topologies.network import Network


@dataclass(frozen=True)
class JobPlan:
    """One resolved job of a variant. It guarantees that:

    - every worker has a host that no other worker uses at that time;
    - its collective supports the codec's merges;
    - its program fits its switches beside the other jobs there; its slots are whole messages and not shared;
    - a window of messages between hosts holds at least as many packets as one acknowledgement covers.
    """

    label: str  # in results: the variant's name, and "/" and the job's if there are several
    hosts: tuple[int, ...]  # node of each worker
    workload: TrainingSpec | SyntheticSpec | FileSpec
    steps: int
    device: Device
    codec: Codec
    collective: CollectivePlan
    references: tuple[Reference, ...]  # published results, and the wire bound
    start_ps: int = 0
    warnings: tuple[str, ...] = ()
    overlap: Overlap = field(default_factory=Overlap)
    variation: Variation = STEADY  # of its workers' devices
    costs: Costs | None = None  # of its buckets, where a rule of fusion asks for them; a run measures them


@dataclass(frozen=True)
class VariantPlan:
    """One resolved variant: a network and the jobs on it. It guarantees that:

    - every node and link is a row of `network`, whose delays into switches include their pass latency;
    - every switch profile exists;
    - the guarantees of the fault plan hold on this network.
    """

    name: str
    network: Network
    faults: FaultPlan
    jobs: tuple[JobPlan, ...]  # one or more
    graph: nx.Graph = field(default_factory=nx.Graph)  # the topology, as given
    can_aggregate: frozenset[str] = frozenset()  # profiles of its switches that run programs
    sections: tuple[int, ...] = ()  # of each job: its place in the scenario's list
    admission: Admission | None = field(default=None, compare=False)  # None: all jobs are there at first

    @property
    def job_names(self) -> tuple[str, ...]:
        """The names of its jobs; a single job has an empty name."""
        return tuple(job.label.removeprefix(self.name).removeprefix("/") for job in self.jobs)

    @property
    def steps(self) -> int:
        """Optimizer steps of all jobs together."""
        return sum(job.steps for job in self.jobs)

    @property
    def timeout_max_ps(self) -> int:
        """The longest timeout of its traffic."""
        others_ps = 0 if self.admission is None else self.admission.timeout_max_ps
        return max(others_ps, *(job.collective.timeout_max_ps for job in self.jobs))
