"""The jobs of a variant on its network, in simulated time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from netfold.sim.checks.bottleneck import Ends, links_used
from netfold.sim.checks.checks import Ending, leak_warnings
from netfold.sim.collectives.collective import RunContext, collectives
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import NEVER_PS, Rule
from netfold.sim.network.fabric import Fabric, HostTimes
from netfold.sim.plan.idle_network import PredictedTime, overflow_warnings, vain_warnings
from netfold.sim.plan.plan import (
    Change,
    Failure,
    FaultPlan,
    JobPlan,
    LinksDown,
    LinksSlower,
    Reboot,
    Stop,
    VariantPlan,
)
from netfold.sim.plan.prices import Bill, bill_of
from netfold.sim.results.metrics import VariantFacts
from netfold.sim.results.records import FaultRecord, LinkRecord, passes_count, results_count
from netfold.sim.run.job import RunningJob
from netfold.sim.run.progress import ProgressReporter
from netfold.sim.run.step_bounds import StepBounds
from netfold.sim.scenario.profile_keys import default_prices
from netfold.sim.workload.fusion import pieces_of
from netfold.sim.workload.fusion_rules import Cost, Costs, predict
from netfold.sim.workload.gradient_files import FileSpec
from netfold.sim.workload.layers import is_vector, layers_of
from netfold.sim.workload.workload_keys import Training, Workloads
from netfold.topologies.drawing_layout import tier_links
from netfold.topologies.graph import unmarked_ports
from netfold.units import PS_PER_US

# Applies a fault plan to a running network, and counts the faults that it injected.


class FaultDriver:
    """A SimPy process that applies the changes of a plan, and records the injected faults.

    Where faults overlap, a link is down while any of them holds it down, and has the rate of the one that
    began last (of those that began together: the last in the scenario), or else its configured rate. A link
    that has failed drops packets until it is up again.

    Parameters
    ----------
    rates_bps
        (links,) of the network as built.
    note
        Called for every change when it begins.
    reroute
        Called when routes change, with the rows of the links that they leave out from then on.
    """

    def __init__(
        self,
        environment: simpy.Environment,
        engine: Engine,
        plan: FaultPlan,
        rates_bps: NDArray[Any],
        note: Callable[[Change], None] = lambda change: None,
        reroute: Callable[[list[int]], None] = lambda links: None,
    ) -> None:
        self._environment, self._engine, self._plan, self._rates_bps = environment, engine, plan, rates_bps
        self._note, self._reroute = note, reroute
        self._holds: Counter[int] = Counter()  # faults that hold a link down now, by link
        self._slowed: dict[int, list[LinksSlower]] = {}  # each link's, in the order in which they began
        self._applied: set[int] = set()
        self.process = environment.process(self._run())

    def _run(self) -> Generator[simpy.Event, Any, None]:
        faults, reroutes = self._plan.faults, self._plan.reroutes
        moments = [(time_ps, len(faults), False) for time_ps in reroutes]
        for index, fault in enumerate(faults):
            if isinstance(fault.effect, Change):
                moments.append((fault.effect.from_ps, index, False))
                if fault.effect.until_ps != NEVER_PS:
                    moments.append((fault.effect.until_ps, index, True))
        for time_ps, fault_index, is_end in sorted(moments):
            yield self._environment.timeout(time_ps - int(self._environment.now))
            self._engine.advance(time_ps)
            if fault_index == len(faults):
                self._reroute(reroutes[time_ps])
                continue
            effect = faults[fault_index].effect
            assert isinstance(effect, Change)
            if is_end:
                self._end(effect)
            else:
                self._begin(effect)
                self._applied.add(fault_index)

    def _begin(self, change: Change) -> None:
        self._note(change)
        match change:
            case LinksDown():
                self._hold_down(change.links)
            case Failure():
                self._hold_down(change.links)
                for link in change.links:
                    self._engine.kill(link)
                if change.switch is not None:
                    self._engine.clear(change.switch)
            case LinksSlower():
                for link in change.links:
                    self._slowed.setdefault(link, []).append(change)
                    self._engine.set_rate(link, change.rate_bps)
            case Reboot():
                self._hold_down(change.links)
                self._flush(change)
                if change.clears_registers:
                    self._engine.clear(change.switch)
            case Stop() if change.is_crash:
                self._engine.crash(change.host)
            case Stop():
                self._engine.pause(change.host, change.until_ps)

    def _end(self, change: Change) -> None:
        match change:
            case LinksDown() | Failure() | Reboot():
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
            case Stop():  # the engine ends a pause by itself
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
class Simulation:
    """What the jobs of a variant share while they run."""

    environment: simpy.Environment
    fabric: Fabric
    variant: VariantPlan
    reporter: ProgressReporter
    workloads: Workloads

    def start(
        self, index: int, admitted: JobPlan | None = None, after_step: Callable[[], None] = lambda: None
    ) -> RunningJob:
        """Start a job by its number, as planned or as `admitted`.

        Its first step begins at the time in its plan, or now if that is over.
        """
        job, seed = admitted or self.variant.jobs[index], self.variant.seed
        hosts = HostTimes(self.environment, self.variant.faults.conditions(index, len(job.hosts)))
        workload = self.workloads.get((index, job.workload, len(job.hosts), seed))
        device = job.device.on(workload)
        context = RunContext(
            self.environment,
            self.fabric,
            hosts,
            job.hosts,
            device,
            seed,
            index,
            partial(job.codec.server, len(job.hosts), seed),
            [bucket.tensors for bucket in workload.buckets],
        )
        running = RunningJob(
            plan=job,
            index=index,
            seed=seed,
            environment=self.environment,
            workload=workload,
            collective=collectives()[job.collective.kind].start(job.collective, context),
            device=device,
            hosts=hosts,
            host_links=host_links(self.variant, job),
            sent_bytes=self.fabric.engine.sent_bytes,
            reporter=self.reporter,
            set_activity=partial(self.fabric.set_activity, index),
            after_step=after_step,
            bounds=self._bounds(index, job),
        )
        running.start(job.steps, max(job.start_ps, int(self.environment.now)))
        return running

    def _bounds(self, index: int, job: JobPlan) -> StepBounds:
        """Where links fail, the paths that a schedule takes are not known."""
        bound, network = collectives()[job.collective.kind].bound, self.variant.network
        has_failures = any(
            isinstance(fault.effect, LinksDown | Failure | Reboot) for fault in self.variant.faults.faults
        )
        schedule = None
        if bound is not None and not has_failures:
            schedule = bound(job.collective, network, job.hosts, self.variant.seed, index)
        is_serial = job.overlap.buckets_in_flight == 1
        return StepBounds(network, job.hosts, schedule, is_serial=is_serial)

    def _prediction(self, job: JobPlan) -> PredictedTime | None:
        """None if nothing is predicted: of its collective, beside other jobs, or with faults."""
        predict = collectives()[job.collective.kind].predict
        is_disturbed = len(self.variant.jobs) > 1 or self.variant.faults.faults
        if predict is None or len(job.hosts) < 2 or is_disturbed:
            return None
        return predict(job.collective, self.variant.network, job.hosts, self.variant.seed, 0)

    def _reordering(self, job: JobPlan) -> tuple[int, int] | None:
        """Of packets between hosts, where they may overtake each other."""
        if not self.variant.network.policy.reorders:
            return None
        index = next(index for index, candidate in enumerate(self.variant.jobs) if candidate is job)
        return self.fabric.engine.flow_reordering(index)

    @cached_property
    def _bill(self) -> Bill | None:
        # Of the network that all jobs share; what is absent was paid for. Of a file without the marks of
        # servers it is not known which links are bought.
        graph = self.variant.whole or self.variant.graph
        return None if unmarked_ports(graph) else bill_of(graph, self.variant.prices or default_prices())

    @cached_property
    def tiers(self) -> dict[str, set[Ends]]:
        return tier_links(self.variant.graph)

    def _switch_names(self, job: JobPlan) -> list[str]:
        """The switches of its trees, each with the root first, then the splits of its results."""
        nodes = self.variant.network.nodes
        return [nodes[switch] for tree in job.collective.trees for switch in tree.switches]

    def facts(
        self, job: JobPlan, running: RunningJob, links: list[LinkRecord], ending: Ending
    ) -> VariantFacts:
        """Facts for the summary of a job, after the end of the simulation."""
        collective, workload = running.collective, running.workload
        points = collective.switch_counters()
        trees = job.collective.trees
        roots = [points[sum(len(other.switches) for other in trees[:i])] for i in range(len(trees))]
        sent = sum(links[up].packets for up, _ in host_links(self.variant, job))
        again = collective.retransmitted_packets()
        lost = sum(link.lost_packets + link.dropped_packets for link in links)
        reordering = self._reordering(job)
        training = job.workload if isinstance(job.workload, Training) else None
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
                *vain_warnings(job, sent, again, lost),
                *leak_warnings(ending),
            ),
            passes=passes_count(job.collective.passes, points) if points else None,
            results=sum(results_count(root) for root in roots),
            switches=tuple(
                {"switch": name, **counters}
                for name, counters in zip(self._switch_names(job), points, strict=True)
            ),
            bounds_ps=tuple(running.journal.bounds_ps),
            duration_ps=int(self.environment.now),
            diagnosis=ending.diagnosis,
            trace=ending.trace,
            kept_bytes_per_element=job.codec.state_bytes,
            target=training.evaluate.target if training and training.evaluate else None,
            chance=training.model.facts.chance if training else None,
            is_uncompressed=job.codec.is_uncompressed and job.collective.aggregation is None,
            replays_times=isinstance(job.workload, FileSpec) and job.workload.longest_ps > 0,
            fusion=fusion_facts(job),
            bill=self._bill,
            prediction=self._prediction(job),
            links_used=links_used(self.tiers, links),
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


# What a run records of the fusion of a job: the buckets, the costs, and the predicted time of a step.


def fusion_facts(job: JobPlan) -> dict[str, Any] | None:
    """The facts on a settled job as plain data; None if no rule asked for its costs."""
    costs, workload = job.costs, job.workload
    if costs is None:
        return None
    layers, partition = workload.layers, workload.fusion.partition(workload.layers)
    if is_vector(workload.tensors):
        layers = layers_of(pieces_of(workload.tensors, workload.fusion))
        partition = tuple((index,) for index in range(len(layers)))
    prediction = predict(layers, partition, costs)
    groups = sorted(partition, key=max)
    return {
        "rule": workload.fusion.title,
        "layers": len(layers),
        "predicted_iteration_time_us": prediction.step_ps / PS_PER_US,
        "costs": _costs(costs),
        "buckets": [
            {
                "layers": [layers[index].name for index in sorted(group)],
                "elements": sum(layers[index].elements for index in group),
                "encoded_us": encoded_ps / PS_PER_US,
                "arrived_us": arrived_ps / PS_PER_US,
            }
            for group, encoded_ps, arrived_ps in zip(
                groups, prediction.encoded_ps, prediction.arrived_ps, strict=True
            )
        ],
    }


def _costs(costs: Costs) -> dict[str, Any]:
    stages = costs.stages
    stage_costs = {"encode": stages.encode, "network": stages.network, "decode": stages.decode}
    return {
        "forward_us": costs.forward_ps / PS_PER_US,
        "backward_us": costs.backward_ps / PS_PER_US,
        "samples": len(costs.samples),
        "fit_error": costs.fit_error,
        "stages": {name: _cost(cost) for name, cost in stage_costs.items()},
    }


def _cost(cost: Cost) -> dict[str, float]:
    return {
        "start_us": cost.start_ps / PS_PER_US,
        "element_us": cost.element_ps / PS_PER_US,
        "sort_us": cost.sort_ps / PS_PER_US,
    }
