"""One variant in simulated time: its network, its jobs, and the results."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import simpy

from netfold.errors import RunError
from netfold.sim.checkpoint.keeper import Keeper, State
from netfold.sim.checks.bottleneck import Cause, bounds
from netfold.sim.checks.bottleneck import Network as BoundsNetwork
from netfold.sim.checks.bottleneck import Records as BoundsRecords
from netfold.sim.checks.checks import Journal, check_job, check_network
from netfold.sim.checks.finding import Ending, leak_causes
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import BacklogError
from netfold.sim.engine.observe.samples import Samples
from netfold.sim.network.fabric import Fabric, Sampler
from netfold.sim.network.stall import CLEARED, CRASHED, HAS_CRASHED, Diagnosis, StuckError
from netfold.sim.plan.idle_network import work_warnings
from netfold.sim.plan.plan import Change, Crash, JobPlan, Reboot, VariantPlan
from netfold.sim.resolve.plan import Plan
from netfold.sim.results.records import CheckRecord, FaultRecord, LinkRecord
from netfold.sim.results.summary import Stay, VariantFacts
from netfold.sim.run.coming.alone import alone_times
from netfold.sim.run.coming.arrivals import Arrivals
from netfold.sim.run.costs.measure import WarmUps
from netfold.sim.run.fault_driver import FaultDriver
from netfold.sim.run.keeping import Built, Keeping
from netfold.sim.run.outcome import JobResult, VariantResult, link_records, node_records
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.simulation import Running, Simulation
from netfold.sim.workload.workload_keys import Key, Workloads
from netfold.topologies.network import Network
from netfold.units import PS_PER_MS


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
    own = workloads or Workloads([workload_keys(variant)], plan.scenario.seed)
    state = None if keeper is None else keeper.state()
    environment = simpy.Environment(0 if state is None else state.now_ps)
    # Existing objects, modules mostly, are not searched for the garbage of this variant; garbage among them
    # waits for a later collection.
    gc.freeze()
    try:
        variant = (warm_ups or WarmUps(plan)).settled(variant, reporter)
        kept = _Kept(keeper, state)
        return _run_variant(environment, plan, variant, reporter, own, kept)
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


class _Kept(NamedTuple):
    """Where a variant's checkpoints go, and the one that it goes on from."""

    keeper: Keeper | None
    state: State | None


def _run_variant(
    environment: simpy.Environment,
    plan: Plan,
    variant: VariantPlan,
    reporter: ProgressReporter,
    workloads: Workloads,
    kept: _Kept,
) -> VariantResult:
    """Build the network and the jobs, run them, and check the results."""
    engine = Engine(variant.network, plan.scenario.seed, variant.faults.rules)
    sampler = Sampler(engine, len(variant.jobs))
    fabric = Fabric(environment, engine, variant.timeout_max_ps, variant.job_names, sampler)
    fabric.expect_change(max(variant.faults.last_change_ps, *(job.start_ps for job in variant.jobs)))
    done_ps = -1 if kept.state is None else kept.state.now_ps
    note = partial(_note, fabric)
    driver = FaultDriver(environment, engine, variant.faults, variant.network.rate_bps, note, done_ps)
    simulation = Simulation(environment, fabric, variant, plan.scenario.seed, reporter, workloads)
    keeping = Keeping(kept.keeper, variant, Built(environment, fabric, sampler, driver))
    arrivals = Arrivals(simulation, keeping.after_step)
    everyone = arrivals.begin()
    keeping.begin(arrivals.started, kept.state)
    fabric.on_packets(_packets_reporter(reporter, arrivals))
    diagnosis = _finish(fabric, everyone, arrivals)
    there = replace(variant, jobs=tuple(arrivals.jobs))  # where the jobs were
    reporter.report("results are being checked")
    links, faults = link_records(variant, engine), driver.records(variant.name)
    alone_ps = alone_times(simulation) if variant.admission else {}
    counters = [None if one is None else one.collective.switch_counters() for one in arrivals.running]
    records = _Records(links, faults, counters, sampler.samples())
    end = _End(replace(simulation, variant=there), arrivals, records, diagnosis)
    results = []
    for index in range(len(variant.jobs)):
        stay = arrivals.stay(index, alone_ps[variant.sections[index]]) if variant.admission else None
        results.append(_job_result(end, index, stay))
    return VariantResult(
        tuple(results), links, faults, node_records(variant), engine.packet_hops, fabric.wall_s
    )


class _Records(NamedTuple):
    """What links, faults and switches did until then."""

    links: list[LinkRecord]
    faults: list[FaultRecord]
    counters: list[list[dict[str, int]] | None]  # of each job's switches; None: it was never admitted
    samples: Samples


class _End(NamedTuple):
    """What is known of a variant when its last job has ended, or is stuck."""

    simulation: Simulation
    arrivals: Arrivals
    records: _Records
    diagnosis: Diagnosis | None


def _job_result(end: _End, index: int, stay: Stay | None) -> JobResult:
    """The records, checks and facts of one job."""
    variant, (links, faults, counters, samples) = end.simulation.variant, end.records
    job, one = variant.jobs[index], end.arrivals.running[index]
    if one is None:
        return _never_admitted(variant, job, stay)
    one.training.record_open_step()
    ending = _ending(job, one, end.diagnosis.of(variant.job_names[index]) if end.diagnosis else None)
    if (left := end.arrivals.leaks[index]) is not None and ending.verdict == "pass":
        ending = ending._replace(leaks=left)
    if ending.leaks:
        ending = ending._replace(leak_causes=leak_causes(variant, job, faults))
    there = tuple(job for job, own in zip(variant.jobs, counters, strict=True) if own is not None)
    own_counters = [own for own in counters if own is not None]
    checks = check_job(job, one.training.journal, links, ending, counters[index] or [])
    checks += check_network(replace(variant, jobs=there), links, faults, own_counters, job.label)
    facts = end.simulation.facts(job, one, links, ending)
    free = work_warnings(job, one.training.journal.has_work or not one.training.journal.rounds)
    bound_by = _bounds(variant, index, one.training.journal, (links, samples))
    return JobResult(
        job.label,
        one.training.journal,
        checks,
        replace(facts, bounds=bound_by, stay=stay, warnings=(*facts.warnings, *free)),
    )


def _bounds(
    variant: VariantPlan, index: int, journal: Journal, seen: tuple[list[LinkRecord], Samples]
) -> tuple[dict[str, Any], ...]:
    """What bounds a job: the parts of its aggregation time."""
    network, (links, samples) = variant.network, seen
    names = BoundsNetwork(
        network.link_names,
        _kinds(network),
        [link.busy_ps for link in links],
        [network.nodes[host] for host in variant.jobs[index].hosts],
        samples,
        index,
    )
    return tuple(bounds(BoundsRecords(journal.steps, journal.rounds, journal.phases), names))


def _kinds(network: Network) -> list[Cause]:
    """What each link is: a link, a loopback port of a switch, or a host's work."""
    loops = (network.link_source == network.link_target).tolist()
    return [
        Cause.LINK if not is_loop else Cause.HOST if network.is_inside(link) else Cause.LOOPBACK
        for link, is_loop in enumerate(loops)
    ]


def _never_admitted(variant: VariantPlan, job: JobPlan, stay: Stay | None) -> JobResult:
    """The result of a job that was still waiting, or had not arrived, when a stall ended the variant."""
    detail = "it never got hosts and slots: other jobs are stuck, or failed and keep theirs"
    facts = VariantFacts(len(job.hosts), references=job.references, variant=variant.name, stay=stay)
    return JobResult(job.label, Journal(0), [CheckRecord(job.label, "finishes", "stuck", detail)], facts)


def _packets_reporter(reporter: ProgressReporter, arrivals: Arrivals) -> Callable[[int, int], None]:
    """A callback that reports packets in flight: simulated time, hops, and the done share of a step."""

    def report(now_ps: int, hops: int) -> None:
        share = max((one.training.share() for one in arrivals.started), default=0.0)
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


def _finish(fabric: Fabric, everyone: simpy.Event, arrivals: Arrivals) -> Diagnosis | None:
    """Run all jobs and the packets in flight to their end; returns a diagnosis if they stall."""
    try:
        fabric.run_until(everyone)
    except StuckError as error:
        return error.diagnosis
    fabric.drain()
    for job in arrivals.started:
        job.training.settle()
    return None


def _ending(job: JobPlan, running: Running, diagnosis: Diagnosis | None) -> Ending:
    """How a job ended; `diagnosis` is this job's, given if any job is stuck."""
    failure = running.training.failure
    if failure is not None:
        return Ending("fail", str(failure), is_undecoded=failure.is_undecoded, trace=failure.trace)
    if running.process.is_alive:
        assert diagnosis is not None
        return Ending("stuck", str(diagnosis), diagnosis.as_dict())
    return Ending("pass", f"all {job.steps} steps are done", leaks=running.collective.leaks())
