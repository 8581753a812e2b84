"""The jobs of a variant on its network, in simulated time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import simpy
from numpy.typing import NDArray

from netfold.sim.checks.finding import Ending, leak_warnings
from netfold.sim.collectives.collective import Collective, RunContext
from netfold.sim.collectives.registry import COLLECTIVES
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import NEVER_PS, Rule
from netfold.sim.network.fabric import Fabric, HostTimes
from netfold.sim.network.stall import StuckError
from netfold.sim.plan.idle_network import overflow_warnings, vain_warnings
from netfold.sim.plan.plan import (
    Change,
    Crash,
    FaultPlan,
    JobPlan,
    LinksDown,
    LinksSlower,
    Pause,
    Placer,
    Reboot,
    VariantPlan,
)
from netfold.sim.results.records import FaultRecord, LinkRecord, passes_count, results_count
from netfold.sim.results.summary import Stay, VariantFacts
from netfold.sim.run.context import JobParts, ProgressReporter, fusion_facts
from netfold.sim.run.job import TrainingJob
from netfold.sim.workload import FileSpec, TrainingSpec, Workload
from netfold.sim.workload.hardware import Device
from netfold.sim.workload.workload_keys import Workloads

# Applies a fault plan to a running network, and counts the faults that it injected.


class Changeable(Protocol):
    """Changes of a running network that an engine supports, at the current time; see sim/engine/README.md."""

    # To a time before which no event is due.
    def advance(self, time_ps: int) -> None: ...

    def set_rate(self, link: int, rate_bps: int) -> None: ...

    # Packets on the wire are lost; queued and new packets wait.
    def cut(self, link: int) -> None: ...

    # The packets that wait for a link that is cut are lost.
    def flush(self, link: int) -> None: ...

    # A link that was cut carries packets again.
    def restore(self, link: int) -> None: ...

    # All registers are reset.
    def clear(self, switch: int) -> None: ...

    # The host ignores arriving packets and sends nothing.
    def crash(self, host: int) -> None: ...

    # Packets that arrive wait.
    def pause(self, host: int, until_ps: int) -> None: ...

    # How many packets each rule affected.
    def rule_counters(self) -> list[int]: ...


class _Moment(NamedTuple):
    """The begin or end of a change; sorted by time, then by plan, with the begin before the end."""

    time_ps: int
    fault: int
    is_end: bool


class FaultDriver:
    """A SimPy process that applies the changes of a plan, and records the injected faults.

    Where faults overlap, a link is down while any of them holds it down, and has the rate of the one that
    began last (of those that began together: the last in the scenario), or else its configured rate.

    Parameters
    ----------
    rates_bps
        (links,) of the network as built.
    note
        Called for every change when it begins.
    done_ps
        Of a run that goes on: changes up to then are in force already.
    """

    def __init__(
        self,
        environment: simpy.Environment,
        engine: Changeable,
        plan: FaultPlan,
        rates_bps: NDArray[Any],
        note: Callable[[Change], None] = lambda change: None,
        done_ps: int = -1,
    ) -> None:
        self._environment, self._engine, self._plan, self._rates_bps = environment, engine, plan, rates_bps
        self._note = note
        self._holds: Counter[int] = Counter()  # faults that hold a link down now, by link
        self._slowed: dict[int, list[LinksSlower]] = {}  # each link's, in the order in which they began
        self._applied: set[int] = set()
        self.process = environment.process(self._run(done_ps))

    def _run(self, done_ps: int) -> Generator[simpy.Event, Any, None]:
        moments = []
        for index, fault in enumerate(self._plan.faults):
            if isinstance(fault.effect, Change):
                moments.append(_Moment(fault.effect.from_ps, index, is_end=False))
                if fault.effect.until_ps != NEVER_PS:
                    moments.append(_Moment(fault.effect.until_ps, index, is_end=True))
        for moment in sorted(moments):
            if moment.time_ps <= done_ps:
                continue
            yield self._environment.timeout(moment.time_ps - int(self._environment.now))
            self._engine.advance(moment.time_ps)
            effect = self._plan.faults[moment.fault].effect
            assert isinstance(effect, Change)
            if moment.is_end:
                self._end(effect)
            else:
                self._begin(effect)
                self._applied.add(moment.fault)

    def _begin(self, change: Change) -> None:
        self._note(change)
        match change:
            case LinksDown():
                self._hold_down(change.links)
            case LinksSlower():
                for link in change.links:
                    self._slowed.setdefault(link, []).append(change)
                    self._engine.set_rate(link, change.rate_bps)
            case Reboot():
                self._hold_down(change.links)
                self._flush(change)
                if change.clears_registers:
                    self._engine.clear(change.switch)
            case Crash():
                self._engine.crash(change.host)
            case Pause():
                self._engine.pause(change.host, change.until_ps)

    def _end(self, change: Change) -> None:
        match change:
            case LinksDown() | Reboot():
                if isinstance(change, Reboot):
                    self._flush(change)
                for link in change.links:
                    self._holds[link] -= 1
                    if self._holds[link] == 0:
                        self._engine.restore(link)
            case LinksSlower():
                for link in change.links:
                    others = self._slowed[link]
                    others.remove(change)
                    rate_bps = others[-1].rate_bps if others else int(self._rates_bps[link])
                    self._engine.set_rate(link, rate_bps)
            case Crash() | Pause():  # the engine ends a pause by itself
                pass

    def _hold_down(self, links: tuple[int, ...]) -> None:
        for link in links:
            self._holds[link] += 1
            if self._holds[link] == 1:
                self._engine.cut(link)

    def _flush(self, reboot: Reboot) -> None:
        """Lose the packets inside the switch: those queued when it went down, and those that came since."""
        for link in reboot.queues:
            self._engine.flush(link)

    def records(self, variant: str) -> list[FaultRecord]:
        """What each fault did so far, in the order of the plan."""
        struck = iter(self._engine.rule_counters())
        records = []
        for index, fault in enumerate(self._plan.faults):
            if isinstance(fault.effect, Rule):
                counted, count = "packets", next(struck)
            else:  # late starts and slow hosts apply from the start
                counted, count = "times", int(index in self._applied or not isinstance(fault.effect, Change))
            records.append(
                FaultRecord(
                    variant=variant,
                    fault=index,
                    kind=fault.kind,
                    where=fault.where,
                    extent=fault.extent,
                    count=count,
                    counted=counted,
                    first_ps=fault.effect.from_ps if count else None,
                )
            )
        return records


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


# Starts the jobs of a variant: all at the beginning, or each when it is admitted; takes back what they had.
#
# First in, first out: the job that has waited longest is placed next, and no later one overtakes it. Jobs
# that arrive at the same time are in the order of the scenario. A job that ends gives back its hosts at
# once, and slots of its own too; but where it has sent packets again, or faults are on packets, it keeps
# the slots for its timeout and the longest delay of these faults, and as often again while its packets are
# on their way, because copies would get into those of the next job. Then its slots are reset, as a control
# plane does. Entries that all jobs share are not: no job owns them. A job that fails gives back nothing:
# its other workers wait for the one that failed, and send again.


class Arrivals:
    """The jobs of a running variant.

    Attributes
    ----------
    jobs
        The jobs, by number: as they run, or as planned if they have not been admitted.
    running
        What runs of each, also after its end; None before it is admitted.
    leaks
        What each job has left in switches when others got its slots; None if it still has them.
    """

    def __init__(self, simulation: Simulation, after_step: Callable[[], None]) -> None:
        self.jobs: list[JobPlan] = list(simulation.variant.jobs)
        self.running: list[Running | None] = [None] * len(self.jobs)
        self.leaks: list[list[str] | None] = [None] * len(self.jobs)
        self._simulation, self._environment = simulation, simulation.environment
        self._admitted_ps: list[int | None] = [None] * len(self.jobs)
        self._after_step = after_step
        self._fallbacks: set[int] = set()
        self._queue: deque[int] = deque()
        self._turns = [self._environment.event() for _ in self.jobs]  # a job is admitted
        self._placer: Placer | None = None
        admission = simulation.variant.admission
        if admission is not None and admission.placer is not None:
            self._placer = admission.placer()
            simulation.fabric.engine.reserve_slots(admission.room)

    def begin(self) -> simpy.Event:
        """Let the jobs come; the event fires when the last has ended."""
        if self._placer is None:
            return self._environment.all_of([self._start(index) for index in range(len(self.jobs))])
        return self._environment.all_of(
            [self._environment.process(self._come(index)) for index in range(len(self.jobs))]
        )

    @property
    def started(self) -> list[Running]:
        # Jobs that have been admitted.
        return [one for one in self.running if one is not None]

    @property
    def waiting(self) -> list[int]:
        # Numbers of the jobs that have arrived and wait, the first one first.
        return list(self._queue)

    def stay(self, index: int, alone_ps: int | None) -> Stay:
        """When a job was there."""
        variant, job = self._simulation.variant, self.jobs[index]
        assert variant.admission is not None
        is_there = self.running[index] is not None
        return Stay(
            arrival_ps=job.start_ps,
            admitted_ps=job.start_ps if self._placer is None else self._admitted_ps[index],
            end_ps=self._end_ps(index),
            alone_ps=alone_ps,
            admission=variant.admission.kind,
            hosts=tuple(variant.network.nodes[host] for host in job.hosts) if is_there else (),
            is_fallback=index in self._fallbacks,
        )

    def _start(self, index: int) -> simpy.Process:
        running = self.running[index] = self._simulation.start(index, self.jobs[index], self._after_step)
        return running.process

    def _end_ps(self, index: int) -> int | None:
        """When a job was done; None if it has not come to its end."""
        running = self.running[index]
        if running is None or running.process.is_alive or running.training.failure is not None:
            return None
        return running.training.journal.steps[-1].end_ps

    def _come(self, index: int) -> Generator[simpy.Event, Any, None]:
        """A job's stay: it arrives, waits, runs and gives back what it had."""
        yield self._environment.timeout(self.jobs[index].start_ps)
        self._queue.append(index)
        self._admit()
        yield self._turns[index]
        running = self.running[index]
        assert running is not None
        assert self._placer is not None
        yield running.process
        if running.training.failure is not None:
            return  # its other workers still wait, and send
        if pause_ps := self._pause_ps(index, running):
            self._placer.release_hosts(index)
            self._admit()
            yield from self._wait_for_copies(index, pause_ps)
        if self._has_own_slots(index):
            self.leaks[index] = running.collective.leaks()
        self._simulation.fabric.release(index)
        self._placer.release(index)
        self._admit()

    def _admit(self) -> None:
        """Admit jobs from the head of the queue, while there is room."""
        assert self._placer is not None
        while self._queue:
            index = self._queue[0]
            admitted = self._placer.place(index)
            if admitted is None:
                return
            self._queue.popleft()
            planned = self.jobs[index]  # it has what a warm-up has found
            self.jobs[index] = replace(admitted.job, workload=planned.workload, costs=planned.costs)
            if admitted.is_fallback:
                self._fallbacks.add(index)
            self._admitted_ps[index] = int(self._environment.now)
            earlier = self.started
            self._start(index)
            running = self.running[index]
            assert running is not None
            for one in earlier:
                running.training.take_hosts(one.training)
            self._turns[index].succeed()

    def _pause_ps(self, index: int, running: Running) -> int:
        """How long copies of a job's packets may be on their way after its end."""
        if not self._has_own_slots(index):
            return 0
        rules = self._simulation.variant.faults.rules
        if not rules and not running.collective.retransmitted_packets():
            return 0
        return self.jobs[index].collective.timeout_ps + max((one.delay_ps for one in rules), default=0)

    def _wait_for_copies(self, index: int, pause_ps: int) -> Generator[simpy.Event, Any, None]:
        """Wait for a time, and as often again as copies are on their way then and may still arrive."""
        fabric, last_change_ps = self._simulation.fabric, self._simulation.variant.faults.last_change_ps
        hops = -1
        while hops != fabric.engine.packet_hops or int(self._environment.now) <= last_change_ps:
            hops = fabric.engine.packet_hops
            yield self._environment.timeout(pause_ps)
            if not fabric.has_packets(index):
                return

    def _has_own_slots(self, index: int) -> bool:
        """Whether switches hold slots for a job that no other job uses at that time."""
        trees = self.jobs[index].collective.aggregations
        return any(not tree.program.has_server for tree in trees)


# How long each job takes on the idle network, for its slowdown.


def alone_times(simulation: Simulation) -> dict[int, int | None]:
    """The completion time of each job on the idle network, by its place in the scenario's list.

    Jobs of one template are alike: one of them is run. None: it does not come to its end.
    """
    variant, found = simulation.variant, dict[int, int | None]()
    for place, job in zip(variant.sections, variant.jobs, strict=True):
        if place not in found:
            simulation.reporter.report(f"{job.label} runs alone")
            found[place] = _alone_ps(simulation, job)
    return found


def _alone_ps(simulation: Simulation, job: JobPlan) -> int | None:
    """Completion time of a job without others, with the variant's faults on packets."""
    variant, seed = simulation.variant, simulation.seed
    rules = variant.faults.rules
    on_packets = tuple(one for one in variant.faults.faults if one.effect in rules)
    alone = replace(
        variant,
        jobs=(replace(job, start_ps=0),),
        faults=replace(variant.faults, faults=on_packets),
        sections=(),
        admission=None,
    )
    environment = simpy.Environment()
    fabric = Fabric(environment, Engine(variant.network, seed, rules), alone.timeout_max_ps)
    running = Simulation(environment, fabric, alone, seed, ProgressReporter(), Workloads([], seed)).start(0)
    try:
        fabric.run_until(running.process)
        return None if running.training.failure is not None else int(environment.now)
    except StuckError:
        return None
    finally:
        environment.__dict__.clear()  # see `run_variant`
