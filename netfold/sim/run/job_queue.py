"""Starts the jobs of a variant: all at the beginning, or each when it is admitted; takes back what they had.

First in, first out: the job that has waited longest is placed next, and no later one overtakes it. Jobs
that arrive at the same time are in the order of the scenario. A job that ends gives back its hosts at
once, and slots of its own too; but where it has sent packets again, or faults are on packets, it keeps
the slots for its timeout and the longest delay of these faults, and as often again while its packets are
on their way, because copies would get into those of the next job. Then its slots are reset, as a control
plane does. Entries that all jobs share are not: no job owns them. A job that fails gives back nothing:
its other workers wait for the one that failed, and send again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import simpy

from netfold.sim.engine.engine import Engine
from netfold.sim.network.fabric import Fabric
from netfold.sim.network.stall import StalledError
from netfold.sim.plan.plan import (
    JobPlan,
    Placer,
)
from netfold.sim.results.job_times import JobTimes
from netfold.sim.run.job import RunningJob
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.simulation import Simulation
from netfold.sim.workload.workload_keys import Workloads


class JobQueue:
    """The jobs of a running variant.

    Attributes
    ----------
    jobs
        The jobs, by number: as they run, or as planned if they have not been admitted.
    running
        What runs of each, also after its end; None before it is admitted.
    leaks
        What each job has left in switches when others got its slots; None if it still has them.
    alone_ps
        The time of each job on the idle network, by its place in the scenario's list, for `job_times`.
    """

    def __init__(self, simulation: Simulation, after_step: Callable[[], None]) -> None:
        self.jobs: list[JobPlan] = list(simulation.variant.jobs)
        self.running: list[RunningJob | None] = [None] * len(self.jobs)
        self.leaks: list[list[str] | None] = [None] * len(self.jobs)
        self.alone_ps: dict[int, int | None] = {}
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
    def started(self) -> list[RunningJob]:
        # Jobs that have been admitted.
        return [job for job in self.running if job is not None]

    @property
    def waiting(self) -> list[int]:
        # Numbers of the jobs that have arrived and wait, the first one first.
        return list(self._queue)

    def job_times(self, index: int) -> JobTimes | None:
        """When a job was there; None where no job comes and goes."""
        variant, job = self._simulation.variant, self.jobs[index]
        if variant.admission is None:
            return None
        is_there = self.running[index] is not None
        return JobTimes(
            arrival_ps=job.start_ps,
            admitted_ps=job.start_ps if self._placer is None else self._admitted_ps[index],
            end_ps=self._end_ps(index),
            alone_ps=self.alone_ps[variant.sections[index]],
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
        if running is None or running.process.is_alive or running.failure is not None:
            return None
        return running.journal.steps[-1].end_ps

    def _come(self, index: int) -> Generator[simpy.Event, Any, None]:
        """A job from its arrival on: it arrives, waits, runs and gives back what it had."""
        yield self._environment.timeout(self.jobs[index].start_ps)
        self._queue.append(index)
        self._admit()
        yield self._turns[index]
        running = self.running[index]
        assert running is not None
        assert self._placer is not None
        yield running.process
        if running.failure is not None:
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
            job, is_fallback = admitted
            self.jobs[index] = replace(job, workload=planned.workload, costs=planned.costs)
            if is_fallback:
                self._fallbacks.add(index)
            self._admitted_ps[index] = int(self._environment.now)
            earlier = self.started
            self._start(index)
            running = self.running[index]
            assert running is not None
            for earlier_job in earlier:
                running.take_hosts(earlier_job)
            self._turns[index].succeed()

    def _pause_ps(self, index: int, running: RunningJob) -> int:
        """How long copies of a job's packets may be on their way after its end."""
        if not self._has_own_slots(index):
            return 0
        rules = self._simulation.variant.faults.rules
        if not rules and not running.collective.retransmitted_packets():
            return 0
        return self.jobs[index].collective.sender.timeout_ps + max(
            (rule.delay_ps for rule in rules), default=0
        )

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
    variant, times_ps = simulation.variant, dict[int, int | None]()
    for section_index, job in zip(variant.sections, variant.jobs, strict=True):
        if section_index not in times_ps:
            simulation.reporter.report(f"{job.label} runs alone")
            times_ps[section_index] = _alone_ps(simulation, job)
    return times_ps


def _alone_ps(simulation: Simulation, job: JobPlan) -> int | None:
    """Completion time of a job without others, with the variant's faults on packets."""
    variant, rules = simulation.variant, simulation.variant.faults.rules
    on_packets = tuple(fault for fault in variant.faults.faults if fault.effect in rules)
    alone = replace(
        variant,
        jobs=(replace(job, start_ps=0),),
        faults=replace(variant.faults, faults=on_packets),
        sections=(),
        admission=None,
    )
    environment = simpy.Environment()
    fabric = Fabric(environment, Engine(variant.network, variant.seed, rules), alone.timeout_max_ps)
    running = Simulation(environment, fabric, alone, ProgressReporter(), Workloads()).start(0)
    try:
        fabric.run_until(running.process)
        return None if running.failure is not None else int(environment.now)
    except StalledError:
        return None
    finally:
        environment.__dict__.clear()  # see `run_variant`
