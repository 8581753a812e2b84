"""The jobs of a variant on its network, in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import simpy

from netfold.sim.checks.finding import Ending, leak_warnings
from netfold.sim.collectives.collective import Collective, RunContext
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.network.fabric import Fabric, HostTimes
from netfold.sim.plan.idle_network import overflow_warnings, vain_warnings
from netfold.sim.plan.plan import JobPlan, VariantPlan
from netfold.sim.results.records import LinkRecord, passes_count, results_count
from netfold.sim.results.summary import VariantFacts
from netfold.sim.run.costs.facts import fusion_facts
from netfold.sim.run.job import TrainingJob
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.step.parts import JobParts
from netfold.sim.workload import FileSpec, TrainingSpec, Workload
from netfold.sim.workload.device_model import Device
from netfold.sim.workload.workload_keys import Workloads


@dataclass(frozen=True)
class Running:
    """A running job."""

    training: TrainingJob
    collective: Collective
    process: simpy.Process


@dataclass(frozen=True)
class Simulation:
    """What the jobs of a variant share while they run."""

    environment: simpy.Environment
    fabric: Fabric
    variant: VariantPlan
    seed: int
    reporter: ProgressReporter
    workloads: Workloads

    def start(
        self, index: int, admitted: JobPlan | None = None, after_step: Callable[[], None] = lambda: None
    ) -> Running:
        """Start a job by its number, as planned or as `admitted`.

        Its first step begins at the time in its plan, or now if that is over.
        """
        job = admitted or self.variant.jobs[index]
        hosts = HostTimes(self.environment, self.variant.faults.conditions(index, len(job.hosts)))
        workload = self.workloads.get((index, job.workload, len(job.hosts)))
        device = job.device.on(workload)
        collective = self._collective(index, job, hosts, workload, device)
        parts = JobParts(
            label=job.label,
            seed=self.seed,
            workload=workload,
            codec=job.codec,
            collective=collective,
            device=device,
            hosts=hosts,
            host_links=host_links(self.variant, job),
            reporter=self.reporter,
            set_activity=partial(self.fabric.set_activity, index),
            overlap=job.overlap,
            variation=replace(job.variation, job=index),
            after_step=after_step,
        )
        training = TrainingJob(self.environment, self.fabric.engine, parts)
        start_ps = max(job.start_ps, int(self.environment.now))
        process = self.environment.process(training.steps(job.steps, start_ps))
        return Running(training, collective, process)

    def _collective(
        self, index: int, job: JobPlan, hosts: HostTimes, workload: Workload, device: Device
    ) -> Collective:
        context = RunContext(
            self.environment,
            self.fabric,
            hosts,
            job.hosts,
            device,
            self.seed,
            index,
            partial(job.codec.server, len(job.hosts), self.seed),
            [bucket.tensors for bucket in workload.buckets],
        )
        return COLLECTIVES[job.collective.kind].start(job.collective, context)

    def _reordering(self, job: JobPlan) -> tuple[int, int] | None:
        """Of packets between hosts, where they are sprayed over paths."""
        if not self.variant.network.policy.is_sprayed:
            return None
        index = next(index for index, one in enumerate(self.variant.jobs) if one is job)
        return self.fabric.engine.flow_reordering(index)

    def _switch_names(self, job: JobPlan) -> list[str]:
        """The switches of its trees, each with the root first, then the splits of its results."""
        nodes = self.variant.network.nodes
        return [nodes[switch] for tree in job.collective.aggregations for switch in tree.switches]

    def facts(self, job: JobPlan, job_run: Running, links: list[LinkRecord], ending: Ending) -> VariantFacts:
        """Facts for the summary of a job, after the end of the simulation."""
        collective, workload = job_run.collective, job_run.training.workload
        points = collective.switch_counters()
        trees = job.collective.aggregations
        roots = [points[sum(len(other.switches) for other in trees[:i])] for i in range(len(trees))]
        sent = sum(links[up].packets for up, _ in host_links(self.variant, job))
        again = collective.retransmitted_packets()
        lost = sum(link.lost_packets + link.dropped_packets for link in links)
        reordering = self._reordering(job)
        return VariantFacts(
            workers=len(job.hosts),
            packets_sent=sent,
            packets_retransmitted=again,
            reordering=reordering,
            references=job.references,
            variant=self.variant.name,
            warnings=(
                *job.warnings,
                *workload.notes,
                *overflow_warnings(job, points),
                *vain_warnings(job, sent, again, lost, reordering),
                *leak_warnings(ending),
            ),
            passes=passes_count(job.collective.passes, points) if points else None,
            results=sum(results_count(root) for root in roots),
            switches=tuple(
                {"switch": name, **counters}
                for name, counters in zip(self._switch_names(job), points, strict=True)
            ),
            duration_ps=int(self.environment.now),
            diagnosis=ending.diagnosis,
            trace=ending.trace,
            target=job.workload.recipe.target if isinstance(job.workload, TrainingSpec) else None,
            is_uncompressed=job.codec.is_uncompressed and job.collective.aggregation is None,
            replays_times=isinstance(job.workload, FileSpec) and job.workload.longest_ps > 0,
            fusion=fusion_facts(job),
        )


def host_links(variant: VariantPlan, job: JobPlan) -> list[tuple[int, int]]:
    """Link rows out of and into each worker's host, which has one link."""
    network = variant.network
    return [
        (
            int(np.flatnonzero(network.link_source == host)[0]),
            int(np.flatnonzero(network.link_target == host)[0]),
        )
        for host in job.hosts
    ]
