"""From a scenario file to a run folder: every variant is simulated, checked and written down."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import simpy

from homomorphic.codec import DecodeError
from sim.checks import Ending, check_job, check_network, leak_causes, leak_warnings
from sim.collectives.collective import Collective
from sim.collectives.in_network import InNetwork
from sim.collectives.ring import Ring, RingOptions
from sim.diagnosis import Diagnosis
from sim.engine.engine import Engine
from sim.engine.model import Job
from sim.errors import RunError, StuckError
from sim.fabric import Fabric
from sim.fault_plan import Change, Crash, Reboot
from sim.faults import FaultDriver
from sim.hosts import Hosts
from sim.job import JobParts, TrainingJob
from sim.out_folder import require_writable
from sim.outcome import JobResult, Outcome, VariantResult, engine_of, link_records, records_of, summary_of
from sim.plan import JobPlan, Plan, VariantPlan, passes_count, results_count
from sim.record import LinkRecord
from sim.resolve import resolve
from sim.resolve.warnings import overflow_warnings
from sim.results import RunData, write_run
from sim.results.summary import VariantFacts
from sim.scenario import load
from sim.scenario.models import TopologyFile
from sim.setup import with_setups
from sim.standstill import CLEARED, CRASHED, HAS_CRASHED
from sim.workload import SyntheticSpec, Workload, synthetic_workload, training_workload

Progress = Callable[[str, int, int], None]  # what is going on, steps done, steps in all

APPROXIMATIONS = (
    "Hosts take no time per packet; a worker sends its buckets one at a time, in gradient-ready order.",
    "Queues are FIFO and drop-tail; only acknowledgements have priority. No pause frames; ECN for ATP alone.",
    "Networks that lose nothing (program tree) have buffers without limit: credits are not modelled.",
    "A switch's extra passes are one loopback port with its rate and delay; results are copied per receiver.",
    "Backward is taken to produce gradient bytes at an even rate; a bucket is ready when its last byte is.",
    "Compute takes what the device model says; encoding and decoding are charged memory traffic alone.",
    "Retransmission timers expire exactly, those of copies up to a quarter later; real clients poll them.",
)


def run_scenario(
    path: str | Path, sets: tuple[str, ...], seed: int | None, out_dir: Path, progress: Progress
) -> Outcome:
    """Run all variants of a scenario file and write the run folder.

    Raises
    ------
    ScenarioError, DataError
        Nothing was run.
    RunError
        Memory does not suffice; nothing was written. (Traffic that makes no progress and gradients that a
        codec cannot carry end their variant alone: see `sim.checks`.)
    InvariantError
        netfold contradicts itself.
    """
    started_at, started = datetime.now(UTC), time.perf_counter()
    plan = resolve(load(path, sets, seed))
    require_writable(out_dir, plan.scenario.name)
    results = []
    done, total = 0, sum(variant.steps for variant in plan.variants)
    for variant in plan.variants:
        tell = _Teller(progress, variant.name, done, total)
        results.append(run_variant(plan, variant, tell))
        done += variant.steps
    progress("writing the report", done, total)
    summary, engine = with_setups(summary_of(results), plan), engine_of(results)
    scenario = plan.scenario
    run_dir = write_run(
        out_dir,
        RunData(
            scenario_name=scenario.name,
            scenario_text=scenario.source_text,
            seed=scenario.seed,
            started_at=started_at,
            wall_s=time.perf_counter() - started,
            approximations=APPROXIMATIONS,
            records=records_of(results),
            summary=summary,
            engine=engine,
            sets=sets,
            extra_files=_topology_files(plan),
        ),
    )
    return Outcome(scenario.name, scenario.seed, run_dir, summary, engine)


def _topology_files(plan: Plan) -> dict[str, bytes]:
    """Graph files beside or below the scenario, by the path it gives them: the run folder keeps a copy."""
    folder = Path(plan.scenario.file).parent
    paths = {v.topology.path for v in plan.scenario.variants if isinstance(v.topology, TopologyFile)}
    kept = [path for path in paths if not Path(path).is_absolute() and ".." not in Path(path).parts]
    return {path: (folder / path).read_bytes() for path in sorted(kept)}


@dataclass
class _Teller:
    """Tells how far the steps of one variant are."""

    progress: Progress
    variant: str
    done: int
    total: int

    def __call__(self) -> None:
        """One more step begins."""
        self.progress(self.variant, self.done, self.total)
        self.done += 1


def run_variant(
    plan: Plan, variant: VariantPlan, step_begins: Callable[[], None] = lambda: None
) -> VariantResult:
    """Simulate one variant from time 0 until its last job is done, or nothing will ever move again.

    Raises
    ------
    RunError
        Memory does not suffice.
    """
    environment = simpy.Environment()
    engine = Engine(variant.network, plan.scenario.seed, variant.faults.rules)
    fabric = Fabric(environment, engine, variant.timeout_max_ps, variant.job_names)
    fabric.expect_change(max(variant.faults.last_change_ps, *(job.start_ps for job in variant.jobs)))
    driver = FaultDriver(
        environment, engine, variant.faults, variant.network.rate_bps, partial(_note, fabric)
    )
    stage = _Stage(environment, fabric, variant, plan.scenario.seed)
    running = [stage.start(index, step_begins) for index in range(len(variant.jobs))]
    try:
        diagnosis = _finish(environment, fabric, running)
    except MemoryError as error:
        hint = "use fewer elements, samples or workers"
        raise RunError(f"{plan.scenario.file}: {variant.name}: not enough memory: {error}", hint) from None
    links, faults = link_records(variant, engine), driver.records(variant.name)
    counters = [one.collective.switch_counters() for one in running]
    results = []
    for index, (job, one) in enumerate(zip(variant.jobs, running, strict=True)):
        one.training.keep_open_notes()
        ending = _ending(job, one, diagnosis.of(variant.job_names[index]) if diagnosis else None)
        if ending.leaks:
            ending = ending._replace(leak_causes=leak_causes(variant, job, faults))
        checks = check_job(job, one.training.journal, links, ending, counters[index])
        checks += check_network(variant, links, faults, counters, job.label)
        facts = stage.facts(job, one.collective, links, ending)
        results.append(JobResult(job.label, one.training.journal, checks, facts))
    return VariantResult(tuple(results), links, faults, engine.packet_hops, fabric.wall_s)


def _note(fabric: Fabric, change: Change) -> None:
    """Have the fabric remember what packets do not show, in case somebody asks why nothing moves."""
    match change:
        case Crash():
            fabric.note(change.host, CRASHED)
            fabric.tell(change.team, change.worker, HAS_CRASHED, change.from_ps)
        case Reboot(clears_registers=True):
            fabric.note(change.switch, CLEARED)


@dataclass(frozen=True)
class _Running:
    """A job under way."""

    training: TrainingJob
    collective: Collective
    process: simpy.Process


def _finish(environment: simpy.Environment, fabric: Fabric, running: list[_Running]) -> Diagnosis | None:
    """Let all jobs come to their end, and what is under way after them; else, why that cannot be."""
    try:
        fabric.run_until(environment.all_of([job.process for job in running]))
    except StuckError as error:
        return error.diagnosis
    fabric.drain()
    return None


def _ending(job: JobPlan, running: _Running, diagnosis: Diagnosis | None) -> Ending:
    """How a job ended; the diagnosis is there if anything is stuck, and its own."""
    failure = running.training.failure
    if failure is not None:
        return Ending("fail", str(failure), is_undecoded=isinstance(failure, DecodeError))
    if running.process.is_alive:
        assert diagnosis is not None
        return Ending("stuck", str(diagnosis), diagnosis.as_dict())
    return Ending("pass", f"all {job.steps} steps are done", leaks=running.collective.leaks())


@dataclass(frozen=True)
class _Stage:
    """Where a variant's jobs run."""

    environment: simpy.Environment
    fabric: Fabric
    variant: VariantPlan
    seed: int

    def start(self, index: int, step_begins: Callable[[], None]) -> _Running:
        """Start a job by its number; it begins when its plan says."""
        job = self.variant.jobs[index]
        hosts = Hosts(self.environment, self.variant.faults.conditions(index, len(job.hosts)))
        collective = self._collective(index, hosts)
        parts = JobParts(
            label=job.label,
            seed=self.seed,
            workload=_workload(job, self.seed),
            codec=job.codec,
            collective=collective,
            device=job.device,
            hosts=hosts,
            host_links=_host_links(self.variant, job),
            step_begins=step_begins,
            tell=partial(self.fabric.tell, index),
        )
        training = TrainingJob(self.environment, self.fabric.engine, parts)
        process = self.environment.process(training.steps(job.steps, job.start_ps))
        return _Running(training, collective, process)

    def _collective(self, index: int, hosts: Hosts) -> Collective:
        job = self.variant.jobs[index]
        plan = job.collective
        if isinstance(plan, Job):
            return InNetwork(self.fabric, plan, index)
        limits = plan.window, plan.timeout_ps, plan.ack_every
        options = RingOptions(job.hosts, plan.frame, *limits, self.seed, index)
        return Ring(self.environment, self.fabric, options, job.device, hosts)

    def _switch_names(self, job: JobPlan) -> list[str]:
        """The switches of its tree, the root first."""
        plan = job.collective
        if not isinstance(plan, Job):
            return []
        switches = (plan.switch, *(branch.switch for branch in plan.branches))
        return [self.variant.network.nodes[switch] for switch in switches]

    def facts(
        self, job: JobPlan, collective: Collective, links: list[LinkRecord], ending: Ending
    ) -> VariantFacts:
        """What the summary of a job needs, when nothing goes on any more."""
        points = collective.switch_counters()
        return VariantFacts(
            workers=len(job.hosts),
            packets_sent=sum(links[up].packets for up, _ in _host_links(self.variant, job)),
            packets_retransmitted=collective.retransmitted_packets(),
            references=job.references,
            variant=self.variant.name,
            warnings=(*job.warnings, *overflow_warnings(job, points), *leak_warnings(ending)),
            passes=passes_count(job.passes, points) if points else None,
            results=results_count(points[0]) if points else 0,
            switches=tuple(
                {"switch": name, **counters}
                for name, counters in zip(self._switch_names(job), points, strict=True)
            ),
            duration_ps=int(self.environment.now),
            diagnosis=ending.diagnosis,
        )


def _workload(job: JobPlan, seed: int) -> Workload:
    workers = len(job.hosts)
    if isinstance(job.workload, SyntheticSpec):
        return synthetic_workload(job.workload, workers, seed)
    return training_workload(job.workload, workers, seed)


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
