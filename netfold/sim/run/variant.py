"""One variant in simulated time: its network, its jobs, and the results."""

from __future__ import annotations

import gc
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import simpy

from netfold.errors import RunError
from netfold.kernels.processor import instructions
from netfold.sim.checks.bottleneck import BottleneckCause, bounds, few_links_warnings
from netfold.sim.checks.bottleneck import SampledNetwork as BoundsNetwork
from netfold.sim.checks.checks import Ending, Journal, check_job, check_network, leak_causes
from netfold.sim.collectives.collective import collectives
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import BacklogError
from netfold.sim.engine.engine_views import Samples
from netfold.sim.network.fabric import Fabric, Sampler
from netfold.sim.network.stall import CLEARED, CRASHED, HAS_CRASHED, Diagnosis, StalledError
from netfold.sim.plan.idle_network import work_warnings
from netfold.sim.plan.plan import Change, Failure, JobPlan, Reboot, Stop, VariantPlan
from netfold.sim.results.job_times import JobTimes
from netfold.sim.results.metrics import VariantFacts
from netfold.sim.results.records import (
    CheckRecord,
    FaultRecord,
    LinkRecord,
    NodeRecord,
    PhaseRecord,
    Records,
    RoundRecord,
    SeriesRecord,
    StepRecord,
)
from netfold.sim.results.summary import summarize, worst
from netfold.sim.results.time_series import series_records
from netfold.sim.run.checkpoint import Keeper
from netfold.sim.run.encoding_costs import WarmUps
from netfold.sim.run.job import RunningJob
from netfold.sim.run.job_queue import JobQueue, alone_times
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.simulation import FaultDriver, Simulation
from netfold.sim.scenario.run_limits import Plan
from netfold.sim.workload.workload_keys import Key, Workloads
from netfold.topologies.network import Network, rerouted
from netfold.units import PS_PER_MS

# The results of a run, before they are written to a folder.


@dataclass(frozen=True)
class Outcome:
    """A finished run, or the finished variants of a run that was stopped."""

    scenario: str
    seed: int
    run_dir: Path | None  # None: nothing could be written
    summary: dict[str, Any]
    engine: dict[str, Any]
    stopped: BaseException | None = None  # why some variants are not done, or not written
    unwritten: tuple[str, ...] = ()  # finished variants that are not in `run_dir`
    approximations: tuple[str, ...] = ()  # what was not modelled, where that is not the usual

    def as_dict(self) -> dict[str, Any]:
        """The object that `netfold run --json` prints."""
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "verdict": self.summary["verdict"],
            "run_dir": None if self.run_dir is None else str(self.run_dir),
            **{key: self.summary.get(key) for key in ("baseline", "question", "answer")},
            "variants": self.summary["variants"],
            **{key: self.summary[key] for key in ("jobs", "seeds", "repeats") if key in self.summary},
            "warnings": self.summary["warnings"],
            "injected": self.summary["injected"],
            "engine": self.engine,
            **instructions()._asdict(),
            **({} if self.stopped is None else self._missing()),
        }

    def place(self) -> list[str]:
        """Lines that say where the results of a run that was stopped are, and which are missing."""
        unfinished = ", ".join(self._missing()["unfinished"])
        if unfinished:
            state = f"{unfinished} did not run to the end."
        else:
            state = "all variants are done, the run folder was not written."
        if self.run_dir is None:
            return [f"Unfinished: {state}", "Nothing was written."]
        unwritten = f", without {', '.join(self.unwritten)}" if self.unwritten else ""
        return [
            f"Unfinished: {state}",
            f"Finished variants are in {self.run_dir}{unwritten}",
            f"To write a report: netfold report {shlex.quote(str(self.run_dir))}",
        ]

    def _missing(self) -> dict[str, Any]:
        return {"unfinished": self.summary.get("unfinished", []), "unwritten": list(self.unwritten)}


@dataclass(frozen=True)
class JobResult:
    label: str
    journal: Journal
    checks: list[CheckRecord]
    facts: VariantFacts


@dataclass(frozen=True)
class VariantResult:
    jobs: tuple[JobResult, ...]
    links: list[LinkRecord]
    faults: list[FaultRecord]
    nodes: list[NodeRecord]
    series: list[SeriesRecord]
    packet_hops: int
    wall_s: float
    """Seconds that the engine alone took."""

    @property
    def facts(self) -> dict[str, VariantFacts]:
        return {job.label: job.facts for job in self.jobs}

    @property
    def steps(self) -> list[StepRecord]:
        return [record for job in self.jobs for record in job.journal.steps]

    @property
    def rounds(self) -> list[RoundRecord]:
        return [record for job in self.jobs for record in job.journal.rounds]

    @property
    def phases(self) -> list[PhaseRecord]:
        return [record for job in self.jobs for record in job.journal.phases]

    @property
    def checks(self) -> list[CheckRecord]:
        return [record for job in self.jobs for record in job.checks]

    @property
    def records(self) -> Records:
        notes = [record for job in self.jobs for record in job.journal.notes]
        return Records(
            *(self.steps, self.rounds, notes, self.phases, self.links, self.faults, self.checks),
            *(self.nodes, self.series),
        )

    @cached_property
    def summary(self) -> dict[str, Any]:
        # As that of a run of this variant alone.
        return summarize(self.facts, self.records)


def link_records(variant: VariantPlan, engine: Engine) -> list[LinkRecord]:
    """Traffic of every link so far."""
    network = variant.network
    records = []
    for row, counters in enumerate(engine.link_counters()):
        rate_bps = int(network.rate_bps[row])
        records.append(
            LinkRecord(
                variant=variant.name,
                link=network.link_names[row],
                source=network.nodes[network.link_source[row]],
                target=network.nodes[network.link_target[row]],
                rate_bps=rate_bps,
                packets=counters["sent_packets"],
                bytes=counters["sent_bytes"],
                **{
                    f"{what}_{unit}": counters[f"{what}_{unit}"]
                    for what in ("delivered", "lost", "dropped", "in_flight")
                    for unit in ("packets", "bytes")
                },
                busy_ps=counters["busy_ps"],
                backlog_bytes_max=counters["backlog_bytes_max"],
            )
        )
    return records


def node_records(variant: VariantPlan) -> list[NodeRecord]:
    """All nodes of a variant's topology, in the graph's order."""
    return [
        NodeRecord(
            variant=variant.name,
            node=name,
            kind=data["kind"],
            tier=data["tier"],
            profile=data["profile"],
            can_aggregate=data["profile"] in variant.can_aggregate,
            coordinates=",".join(map(str, data["coordinates"])) if "coordinates" in data else None,
            group=data.get("group"),
            rail=data.get("rail"),
            island=data.get("island"),
        )
        for name, data in variant.graph.nodes(data=True)
    ]


def records_of(results: list[VariantResult]) -> Records:
    job_records = [result.records for result in results]
    return Records(
        **{
            field.name: [record for records in job_records for record in getattr(records, field.name)]
            for field in fields(Records)
        }
    )


def summary_of(results: list[VariantResult]) -> dict[str, Any]:
    """Verdict, metrics and checks of all variants; each is summed up once, however often this is called."""
    rows: dict[str, list[Any]] = {}
    for result in results:
        for name, section in result.summary.items():
            if name != "verdict":
                rows.setdefault(name, []).extend(section)
    return {"verdict": worst(entry["verdict"] for entry in rows["variants"]), **rows}


def engine_of(results: list[VariantResult]) -> dict[str, Any]:
    """Packet hops and speed of the engine."""
    hops, wall_s = sum(result.packet_hops for result in results), sum(result.wall_s for result in results)
    return {"packet_hops": hops, "wall_s": wall_s, "packet_hops_per_s": hops / wall_s if wall_s else 0.0}


def run_variant(
    plan: Plan,
    variant: VariantPlan,
    reporter: ProgressReporter | None = None,
    workloads: Workloads | None = None,
    warm_ups: WarmUps | None = None,
    keeper: Keeper | None = None,
) -> VariantResult:
    """Simulate one variant from time 0 until its last job is done, or a stall is detected.

    Only the result stays in memory when this returns or raises. Given workloads and warm-ups stay: the caller
    owns them. A keeper stores its state between steps, and may have one to go on from.

    Raises
    ------
    RunError
        There is not enough memory, the backlog of a link exceeds what the clock can represent, or what a rule
        of fusion weighs cannot be measured.
    """
    reporter = reporter or ProgressReporter()
    workload_pool = workloads or Workloads([workload_keys(variant)])
    environment = simpy.Environment(0 if keeper is None else keeper.start_ps)
    # Existing objects, modules mostly, are not searched for the garbage of this variant; garbage among them
    # waits for a later collection.
    gc.freeze()
    try:
        variant = (warm_ups or WarmUps(plan)).settled(variant, reporter)
        return _run_variant(environment, plan, variant, reporter, workload_pool, keeper)
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
        if keeper is not None:
            keeper.end_variant()
        environment.__dict__.clear()  # it and its processes refer to each other, and to buffers
        gc.collect()
        gc.unfreeze()


def workload_keys(variant: VariantPlan) -> list[Key]:
    return [(index, job.workload, len(job.hosts), variant.seed) for index, job in enumerate(variant.jobs)]


def _run_variant(
    environment: simpy.Environment,
    plan: Plan,
    variant: VariantPlan,
    reporter: ProgressReporter,
    workloads: Workloads,
    keeper: Keeper | None,
) -> VariantResult:
    """Build the network and the jobs, run them, and check the results."""
    engine = Engine(variant.network, variant.seed, variant.faults.rules)
    sampler = Sampler(engine, len(variant.jobs))
    fabric = Fabric(environment, engine, variant.timeout_max_ps, variant.job_names, sampler)
    fabric.expect_change(max(variant.faults.last_change_ps, *(job.start_ps for job in variant.jobs)))
    note = partial(_note, fabric)
    driver = FaultDriver(
        environment,
        engine,
        variant.faults,
        variant.network.rate_bps,
        note,
        lambda failed: fabric.reroute(rerouted(variant.network, variant.graph, failed)),
    )
    simulation = Simulation(environment, fabric, variant, reporter, workloads)
    after_step = (lambda: None) if keeper is None else partial(keeper.after_step, variant)
    arrivals = JobQueue(simulation, after_step)
    everyone = arrivals.begin()
    fabric.on_packets(_packets_reporter(reporter, arrivals, engine, variant.network))
    if keeper is not None:
        keeper.watch(variant, arrivals.started, fabric, sampler)
    diagnosis: Diagnosis | None = None
    try:
        fabric.run_until(everyone)
        fabric.drain()  # of the packets in flight
        for job in arrivals.started:
            job.settle()
    except StalledError as error:
        diagnosis = error.diagnosis
    reporter.report("results are being checked")
    links, faults = link_records(variant, engine), driver.records(variant.name)
    arrivals.alone_ps = alone_times(simulation) if variant.admission else {}
    counters = [None if job is None else job.collective.switch_counters() for job in arrivals.running]
    samples = sampler.samples()
    # Jobs with the hosts that they had.
    simulation = replace(simulation, variant=replace(variant, jobs=tuple(arrivals.jobs)))
    results = [
        _job_result(
            simulation,
            arrivals,
            index,
            links=links,
            faults=faults,
            counters=counters,
            samples=samples,
            diagnosis=diagnosis,
        )
        for index in range(len(variant.jobs))
    ]
    return VariantResult(
        *(tuple(results), links, faults, node_records(variant)),
        series_records(variant.name, samples, variant.network.link_names, [link.busy_ps for link in links]),
        *(engine.packet_hops, fabric.wall_s),
    )


def _job_result(
    simulation: Simulation,
    arrivals: JobQueue,
    index: int,
    *,
    links: list[LinkRecord],
    faults: list[FaultRecord],
    counters: list[list[dict[str, int]] | None],
    samples: Samples,
    diagnosis: Diagnosis | None,
) -> JobResult:
    """The records, checks and facts of one job, when the last job has ended or is stalled.

    `counters` are those of each job's switches; None if the job was never admitted.
    """
    variant = simulation.variant
    plan, job = variant.jobs[index], arrivals.running[index]
    job_times = arrivals.job_times(index)
    if job is None:
        return _never_admitted(variant, plan, job_times)
    job.record_open_step()
    ending = _ending(plan, job, diagnosis.of(variant.job_names[index]) if diagnosis else None)
    if (leak := arrivals.leaks[index]) is not None and ending.verdict == "pass":
        ending = ending._replace(leaks=leak)
    if ending.leaks:
        ending = ending._replace(leak_causes=leak_causes(variant, plan, faults))
    admitted = tuple(plan for plan, counts in zip(variant.jobs, counters, strict=True) if counts is not None)
    own_counters = [counts for counts in counters if counts is not None]
    checks = check_job(plan, job.journal, links, ending, counters[index] or [])
    checks += check_network(replace(variant, jobs=admitted), links, faults, own_counters, plan.label)
    facts = simulation.facts(plan, job, links, ending)
    free = work_warnings(plan, job.journal.has_work or not job.journal.rounds)
    bound_by = _bounds(variant, index, job.journal, links=links, samples=samples)
    few = few_links_warnings(simulation.tiers, links, bound_by, _remedy(plan))
    return JobResult(
        plan.label,
        job.journal,
        checks,
        replace(facts, bounds=bound_by, job_times=job_times, warnings=(*facts.warnings, *free, *few)),
    )


def _remedy(plan: JobPlan) -> str:
    """How a job's packets come to use more links, by keys that its collective has."""
    collective = plan.collective
    if collective.aggregation is None:
        has_channels = "channels" in collectives()[collective.kind].section.model_fields
        return f"use routing: spray{', or more channels' if has_channels else ''}"
    may_be_tree = collective.aggregation.program.may_be_tree
    return "use more trees" if may_be_tree else "use a program that can have several trees"


def _bounds(
    variant: VariantPlan, index: int, journal: Journal, *, links: list[LinkRecord], samples: Samples
) -> tuple[dict[str, Any], ...]:
    """What bounds a job: the parts of its aggregation time."""
    network = variant.network
    names = BoundsNetwork(
        network.link_names,
        _kinds(network),
        [link.busy_ps for link in links],
        [network.nodes[host] for host in variant.jobs[index].hosts],
        samples,
        index,
    )
    return tuple(bounds(Records(journal.steps, journal.rounds, phases=journal.phases), names))


def _kinds(network: Network) -> list[BottleneckCause]:
    """What each link is: a link, a loopback port of a switch, or a host's work."""
    loops = (network.link_source == network.link_target).tolist()
    return [
        BottleneckCause.LINK
        if not is_loop
        else BottleneckCause.HOST
        if network.is_inside(link)
        else BottleneckCause.LOOPBACK
        for link, is_loop in enumerate(loops)
    ]


def _never_admitted(variant: VariantPlan, job: JobPlan, job_times: JobTimes | None) -> JobResult:
    """The result of a job that was still waiting, or had not arrived, when a stall ended the variant."""
    detail = "it never got hosts and slots: other jobs are stalled, or failed and keep theirs"
    facts = VariantFacts(len(job.hosts), references=job.references, variant=variant.name, job_times=job_times)
    return JobResult(job.label, Journal(0), [CheckRecord(job.label, "finishes", "stalled", detail)], facts)


def _packets_reporter(
    reporter: ProgressReporter, arrivals: JobQueue, engine: Engine, network: Network
) -> Callable[[int, int], None]:
    """A callback that reports packets in flight: simulated time, hops, the link that was busy for longest,
    the last loss, and the done share of a step."""

    def report(now_ps: int, hops: int) -> None:
        share = max((job.share() for job in arrivals.started), default=0.0)
        link, busy_ps = engine.busiest_link()
        steps = [job.journal.steps[-1] for job in arrivals.started if job.journal.steps]
        losses = [f", loss {step.loss:.3g}" for step in steps[-1:] if step.loss is not None]
        reporter.report(
            f"{now_ps / PS_PER_MS:.3f} ms simulated, {hops / 1e6:.1f} M packet hops, "
            f"link {network.link_names[link]} busy {100 * busy_ps / max(1, now_ps):.0f} %{''.join(losses)}",
            share,
        )

    return report


def _note(fabric: Fabric, change: Change) -> None:
    """Note a change on the fabric that packets do not show, for the diagnosis of a stall."""
    match change:
        case Stop() if change.is_crash:
            fabric.record_node_event(change.host, CRASHED)
            fabric.set_activity(change.job, change.worker, HAS_CRASHED, change.from_ps)
        case Reboot(clears_registers=True, switch=switch) | Failure(switch=int(switch)):
            fabric.record_node_event(switch, CLEARED)


def _ending(plan: JobPlan, job: RunningJob, diagnosis: Diagnosis | None) -> Ending:
    """How a job ended; `diagnosis` is this job's, given if any job is stalled."""
    failure = job.failure
    if failure is not None:
        return Ending("fail", str(failure), is_undecoded=failure.is_undecoded, trace=failure.trace)
    if job.process.is_alive:
        assert diagnosis is not None
        return Ending("stalled", str(diagnosis), diagnosis.as_dict())
    return Ending("pass", f"all {plan.steps} steps are done", leaks=job.collective.leaks())
