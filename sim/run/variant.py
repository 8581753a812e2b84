"""One variant in simulated time: its network, its jobs, and the results."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import simpy

from netfold.sim.checks import Ending, check_job, check_network, leak_causes, leak_warnings
from netfold.sim.collectives.collective import Collective, RunContext
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.diagnosis.report import Diagnosis, StuckError
from netfold.sim.diagnosis.snapshot import CLEARED, CRASHED, HAS_CRASHED
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import BacklogError
from netfold.sim.errors import RunError
from netfold.sim.network.fabric import Fabric
from netfold.sim.network.host_time import HostTimes
from netfold.sim.plan.faults import Change, Crash, Reboot
from netfold.sim.plan.plan import JobPlan, VariantPlan
from netfold.sim.plan.warnings import overflow_warnings
from netfold.sim.resolve.plan import Plan
from netfold.sim.results.passes import passes_count, results_count
from netfold.sim.results.records import LinkRecord
from netfold.sim.results.summary import VariantFacts
from netfold.sim.run.fault_driver import FaultDriver
from netfold.sim.run.job import TrainingJob
from netfold.sim.run.outcome import JobResult, VariantResult, link_records
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.step.parts import JobParts
from netfold.sim.units import PS_PER_MS
from netfold.sim.workload import Workload
from netfold.sim.workload.pool import Key, Workloads


def run_variant(
    plan: Plan,
    variant: VariantPlan,
    reporter: ProgressReporter | None = None,
    workloads: Workloads | None = None,
) -> VariantResult:
    """Simulate one variant from time 0 until its last job is done, or a stall is detected.

    Only the result stays in memory when this returns or raises. Given workloads stay: the caller owns them.

    Raises
    ------
    RunError
        There is not enough memory, or the backlog of a link exceeds what the clock can represent.
    """
    own = workloads or Workloads([workload_keys(variant)], plan.scenario.seed)
    environment = simpy.Environment()
    # Existing objects, modules mostly, are not searched for the garbage of this variant; garbage among them
    # waits for a later collection.
    gc.freeze()
    try:
        return _run_variant(environment, plan, variant, reporter or ProgressReporter(), own)
    except MemoryError as error:
        error.__traceback__ = None  # it holds references to what took the memory
        message = f"{plan.scenario.file}: {variant.name}: not enough memory: {str(error) or 'none is left'}"
        raise RunError(message, "use fewer elements, samples or workers") from None
    except BacklogError as error:
        message = f"{plan.scenario.file}: {variant.name}: {error}"
        hint = "use a higher rate for it (link_rate in `faults`, or the topology), fewer slots, "
        hint += "or a longer timeout"
        raise RunError(message, hint) from None
    finally:
        environment.__dict__.clear()  # it and its processes refer to each other, and to buffers
        gc.collect()
        gc.unfreeze()


def workload_keys(variant: VariantPlan) -> list[Key]:
    """Keys of a variant's workloads in `Workloads`."""
    return [(index, job.workload, len(job.hosts)) for index, job in enumerate(variant.jobs)]


def _run_variant(
    environment: simpy.Environment,
    plan: Plan,
    variant: VariantPlan,
    reporter: ProgressReporter,
    workloads: Workloads,
) -> VariantResult:
    """Build the network and the jobs, run them, and check the results."""
    engine = Engine(variant.network, plan.scenario.seed, variant.faults.rules)
    fabric = Fabric(environment, engine, variant.timeout_max_ps, variant.job_names)
    fabric.expect_change(max(variant.faults.last_change_ps, *(job.start_ps for job in variant.jobs)))
    driver = FaultDriver(
        environment, engine, variant.faults, variant.network.rate_bps, partial(_note, fabric)
    )
    simulation = _Simulation(environment, fabric, variant, plan.scenario.seed, reporter, workloads)
    running = [simulation.start(index) for index in range(len(variant.jobs))]
    fabric.on_packets(_packets_reporter(reporter, running))
    diagnosis = _finish(environment, fabric, running)
    reporter.report("is being checked")
    links, faults = link_records(variant, engine), driver.records(variant.name)
    counters = [one.collective.switch_counters() for one in running]
    results = []
    for index, (job, one) in enumerate(zip(variant.jobs, running, strict=True)):
        one.training.record_open_step()
        ending = _ending(job, one, diagnosis.of(variant.job_names[index]) if diagnosis else None)
        if ending.leaks:
            ending = ending._replace(leak_causes=leak_causes(variant, job, faults))
        checks = check_job(job, one.training.journal, links, ending, counters[index])
        checks += check_network(variant, links, faults, counters, job.label)
        facts = simulation.facts(job, one.collective, links, ending)
        results.append(JobResult(job.label, one.training.journal, checks, facts))
    return VariantResult(tuple(results), links, faults, engine.packet_hops, fabric.wall_s)


def _packets_reporter(reporter: ProgressReporter, running: list[_Running]) -> Callable[[int, int], None]:
    """A callback that reports packets in flight: simulated time, hops, and the done share of a step."""

    def report(now_ps: int, hops: int) -> None:
        share = max((one.training.share() for one in running), default=0.0)
        reporter.report(f"{now_ps / PS_PER_MS:.3f} ms simulated, {hops / 1e6:.1f} M packet hops", share)

    return report


def _note(fabric: Fabric, change: Change) -> None:
    """Note a change on the fabric that packets do not show, for the diagnosis of a stall."""
    match change:
        case Crash():
            fabric.record_node_event(change.host, CRASHED)
            fabric.set_activity(change.job, change.worker, HAS_CRASHED, change.from_ps)
        case Reboot(clears_registers=True):
            fabric.record_node_event(change.switch, CLEARED)


@dataclass(frozen=True)
class _Running:
    """A running job."""

    training: TrainingJob
    collective: Collective
    process: simpy.Process


def _finish(environment: simpy.Environment, fabric: Fabric, running: list[_Running]) -> Diagnosis | None:
    """Run all jobs and the packets in flight to their end; returns a diagnosis if they stall."""
    try:
        fabric.run_until(environment.all_of([job.process for job in running]))
    except StuckError as error:
        return error.diagnosis
    fabric.drain()
    return None


def _ending(job: JobPlan, running: _Running, diagnosis: Diagnosis | None) -> Ending:
    """How a job ended; `diagnosis` is this job's, given if any job is stuck."""
    failure = running.training.failure
    if failure is not None:
        return Ending("fail", str(failure), is_undecoded=failure.is_undecoded, trace=failure.trace)
    if running.process.is_alive:
        assert diagnosis is not None
        return Ending("stuck", str(diagnosis), diagnosis.as_dict())
    return Ending("pass", f"all {job.steps} steps are done", leaks=running.collective.leaks())


@dataclass(frozen=True)
class _Simulation:
    """What the jobs of a variant share while they run."""

    environment: simpy.Environment
    fabric: Fabric
    variant: VariantPlan
    seed: int
    reporter: ProgressReporter
    workloads: Workloads

    def start(self, index: int) -> _Running:
        """Start a job by its number; its first step begins at the time in its plan."""
        job = self.variant.jobs[index]
        hosts = HostTimes(self.environment, self.variant.faults.conditions(index, len(job.hosts)))
        workload = self.workloads.get((index, job.workload, len(job.hosts)))
        collective = self._collective(index, hosts, workload)
        parts = JobParts(
            label=job.label,
            seed=self.seed,
            workload=workload,
            codec=job.codec,
            collective=collective,
            device=job.device,
            hosts=hosts,
            host_links=_host_links(self.variant, job),
            reporter=self.reporter,
            set_activity=partial(self.fabric.set_activity, index),
            overlap=job.overlap,
        )
        training = TrainingJob(self.environment, self.fabric.engine, parts)
        process = self.environment.process(training.steps(job.steps, job.start_ps))
        return _Running(training, collective, process)

    def _collective(self, index: int, hosts: HostTimes, workload: Workload) -> Collective:
        job = self.variant.jobs[index]
        context = RunContext(
            self.environment,
            self.fabric,
            hosts,
            job.hosts,
            job.device,
            self.seed,
            index,
            partial(job.codec.server, len(job.hosts), self.seed),
            [bucket.tensors for bucket in workload.buckets],
        )
        return COLLECTIVES[job.collective.kind].start(job.collective, context)

    def _switch_names(self, job: JobPlan) -> list[str]:
        """The switches of its tree, the root first."""
        plan = job.collective.aggregation
        if plan is None:
            return []
        switches = (plan.switch, *(branch.switch for branch in plan.branches))
        return [self.variant.network.nodes[switch] for switch in switches]

    def facts(
        self, job: JobPlan, collective: Collective, links: list[LinkRecord], ending: Ending
    ) -> VariantFacts:
        """Facts for the summary of a job, after the end of the simulation."""
        points = collective.switch_counters()
        return VariantFacts(
            workers=len(job.hosts),
            packets_sent=sum(links[up].packets for up, _ in _host_links(self.variant, job)),
            packets_retransmitted=collective.retransmitted_packets(),
            references=job.references,
            variant=self.variant.name,
            warnings=(*job.warnings, *overflow_warnings(job, points), *leak_warnings(ending)),
            passes=passes_count(job.collective.passes, points) if points else None,
            results=results_count(points[0]) if points else 0,
            switches=tuple(
                {"switch": name, **counters}
                for name, counters in zip(self._switch_names(job), points, strict=True)
            ),
            duration_ps=int(self.environment.now),
            diagnosis=ending.diagnosis,
            trace=ending.trace,
        )


def _host_links(variant: VariantPlan, job: JobPlan) -> list[tuple[int, int]]:
    """Link rows out of and into each worker's host, which has one link."""
    network = variant.network
    return [
        (
            int(np.flatnonzero(network.link_source == host)[0]),
            int(np.flatnonzero(network.link_target == host)[0]),
        )
        for host in job.hosts
    ]
