"""Resolves variants: network, profiles, and the jobs one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import networkx as nx
import numpy as np

from netfold.errors import Mistakes, ScenarioError
from netfold.sim.collectives import registry
from netfold.sim.collectives.spec import CollectiveSection, JobContext, Site
from netfold.sim.engine.interface import Fate
from netfold.sim.keys.location import Location
from netfold.sim.memory.available import available_bytes
from netfold.sim.plan.host_profiles import HostProfile, with_work
from netfold.sim.plan.idle_network import (
    routing_warnings,
    timer_warning,
    warnings_of,
    with_pass_latency,
    without_drops,
)
from netfold.sim.plan.plan import (
    FIFO,
    RESERVED,
    Admission,
    HostAllocation,
    JobPlan,
    Reference,
    VariantPlan,
    split_message_and_hint,
)
from netfold.sim.resolve.arriving import check_admission, jobs_of
from netfold.sim.resolve.duration import check_duration, check_slowed
from netfold.sim.resolve.faults import JobWorkers, plan_faults
from netfold.sim.resolve.memory import refuse_more_than_fits, sizes_of
from netfold.sim.resolve.plan import Plan
from netfold.sim.resolve.queue import Queue, Wanted
from netfold.sim.resolve.sections import (
    check_needs,
    device_of,
    overlap_of,
    steps_of,
    summed_at_once,
    variation_of,
    workload_of,
    workload_warnings,
)
from netfold.sim.scenario import Scenario, models
from netfold.sim.scenario.networks import TopologySection
from netfold.sim.scenario.topology import build_topology, check_profiles
from netfold.switch.profiles import PROFILES, Profile
from netfold.topologies.graph import TopologyError, switches
from netfold.topologies.network import Network, compile_network
from netfold.topologies.routing import POLICIES, PolicyError
from netfold.units import RATE

_LOSING = (Fate.LOSS, Fate.CORRUPTION, Fate.BURST_LOSS)
_SHARINGS = (1, 2, 4, 8, 16, 32, 64)  # by how many jobs a switch is divided if it is too small for all


def resolve(scenario: Scenario) -> Plan:
    """Resolve all variants.

    Raises
    ------
    ScenarioError
        All mistakes of all variants, each with its location in the file and what is allowed.
    """
    mistakes = Mistakes()
    networks = _Networks()
    resolvers, plans = [], []
    for variant in scenario.variants:  # all networks first, so that available memory excludes them
        with mistakes.collecting():
            resolver = _VariantResolver(scenario, variant)
            resolver.compile(networks)
            resolvers.append(resolver)
    for resolver in resolvers:
        with mistakes.collecting():
            plans.append(resolver.resolve())
    mistakes.raise_any()
    return Plan(scenario, _with_timer_warnings(tuple(plans)))


def _with_timer_warnings(variants: tuple[VariantPlan, ...]) -> tuple[VariantPlan, ...]:
    """Warn at the first job that loses packets if timeouts of such jobs differ, some as released."""
    timeouts_ps: dict[str, int] = {}
    released = []
    for variant in variants:
        if not any(rule.fate in _LOSING and rule.probability > 0 for rule in variant.faults.rules):
            continue
        for job in variant.jobs:
            if timeout_ps := job.collective.timeout_ps:
                timeouts_ps[job.label] = timeout_ps
                released += [job.label] if job.collective.is_timeout_released else []
    if not (sentence := timer_warning(timeouts_ps, released)):
        return variants
    first = next(iter(timeouts_ps))
    return tuple(
        replace(
            variant,
            jobs=tuple(
                replace(job, warnings=(*job.warnings, sentence)) if job.label == first else job
                for job in variant.jobs
            ),
        )
        for variant in variants
    )


class _Networks:
    """Networks of a scenario's variants: equal topologies share one, whose routes may take gigabytes."""

    def __init__(self) -> None:
        self._made: list[tuple[TopologySection, str, Network]] = []

    def get(self, section: TopologySection, routing: str, graph: nx.Graph) -> Network:
        """The network of a topology with a routing policy.

        Raises
        ------
        PolicyError
            The policy is not for such a topology.
        TopologyError
            Its routes take more memory than available.
        """
        for known, policy, network in self._made:
            if (known, policy) == (section, routing):
                return network
        network = compile_network(graph, available_bytes(), POLICIES[routing])
        self._made.append((section, routing, network))
        return network


class _VariantResolver:
    """Resolves one variant; every error points to the line it comes from."""

    def __init__(self, scenario: Scenario, variant: models.Variant) -> None:
        self.variant, self.location = variant, Location(scenario, variant.name)
        self.graph = build_topology(scenario, variant)
        self.sections: tuple[int, ...] = (0,)  # of each job: its place in the scenario's list
        self.jobs: list[tuple[models.JobSection | models.Variant, Location]] = [
            (variant, Location(scenario, variant.name))
        ]
        if variant.jobs:
            arriving = jobs_of(scenario, variant)
            self.jobs = [(one.section, one.location) for one in arriving]
            self.sections = tuple(one.place for one in arriving)
        check_admission(variant, self.location)
        self._profiles_found = self._profiles()

    def compile(self, networks: _Networks) -> None:
        """Find all routes, or take those of another variant."""
        try:
            network = networks.get(self.variant.topology, self.variant.routing, self.graph)
        except PolicyError as error:
            raise self.location.error("routing", *split_message_and_hint(self.graph, error)) from None
        except TopologyError as error:
            raise self.location.error("topology", *split_message_and_hint(self.graph, error)) from None
        self._network = with_pass_latency(network, self._profiles_found)

    def resolve(self) -> VariantPlan:
        """The plan; the network must have been compiled."""
        site, jobs, admission = self._queued() if self.variant.admission == FIFO else self._divided()
        refuse_more_than_fits(sizes_of(jobs, [location for _, location in self.jobs]))
        network = site.network
        if any(job.collective.needs_lossless for job in jobs):
            network = without_drops(network)
        site.network = network
        job_workers = [self._job_workers(index, job) for index, job in enumerate(jobs)]
        faults = plan_faults(self.variant.faults, network, job_workers, self.location.error)
        for index, (job, (_, location)) in enumerate(zip(jobs, self.jobs, strict=True)):
            check_duration(job, location, network, faults, index, self._rate_key())
        check_slowed(jobs, network, faults, self.location.error)
        able = frozenset(
            self.graph.nodes[name]["profile"]
            for name, kind in self._profiles_found.items()
            if kind.is_programmable
        )
        return VariantPlan(
            self.variant.name, network, faults, jobs, self.graph, able, self.sections, admission
        )

    def _divided(self) -> tuple[Site, tuple[JobPlan, ...], Admission | None]:
        """Jobs on switches that may hold too few slots for what each needs: then in equal parts."""
        network = self._network
        for sharing in _SHARINGS[:-1]:
            try:
                return self._reserved(sharing)
            except ScenarioError as error:
                if ".slots" not in error.path:
                    raise
                self._network = network
        return self._reserved(_SHARINGS[-1])

    def _reserved(self, sharing: int) -> tuple[Site, tuple[JobPlan, ...], Admission | None]:
        """Jobs that have hosts and slots of their own from the beginning to the end."""
        occupied = HostAllocation(self.graph)
        hosts = [
            occupied.place(sections.workers.count, sections.workers.placement, location)
            for sections, location in self.jobs
        ]
        self._network = with_work(self._network, self._work(hosts))
        site = Site(self.graph, self._network, self._profiles_found, self._profile_key(), occupied, sharing)
        jobs = tuple(self._job(index, names, site) for index, names in enumerate(hosts))
        is_arriving = any(one.is_template for one in self.variant.jobs)
        return site, jobs, Admission(RESERVED) if is_arriving else None

    def _queued(self) -> tuple[Site, tuple[JobPlan, ...], Admission]:
        """Jobs that take hosts and slots when they arrive: each as it is on the empty network."""
        occupied = HostAllocation(self.graph)
        self._network = with_work(self._network, self._work([()] * len(self.jobs)))
        site = Site(self.graph, self._network, self._profiles_found, self._profile_key(), occupied)
        wanted = [
            Wanted(section, location)
            for section, location in self.jobs
            if isinstance(section, models.JobSection)
        ]
        queue = Queue(site, wanted, self._job)
        pairs = queue.alone()
        jobs, others = [first for first, _ in pairs], [second for _, second in pairs if second is not None]
        longest_ps = max((one.collective.timeout_max_ps for one in others), default=0)
        return site, tuple(jobs), Admission(FIFO, queue.begin, queue.room([*jobs, *others]), longest_ps)

    def _work(self, hosts: Sequence[tuple[str, ...]]) -> dict[int, HostProfile]:
        """What each host takes for packets, by node: as its job says, or the variant."""
        rows = {name: row for row, name in enumerate(self._network.nodes)}
        found = dict.fromkeys(np.flatnonzero(self._network.is_host).tolist(), self.variant.hosts.profile())
        for (sections, _), names in zip(self.jobs, hosts, strict=True):
            found |= dict.fromkeys((rows[name] for name in names), sections.hosts.profile())
        return found

    def _job(
        self, index: int, names: tuple[str, ...], site: Site, collective: CollectiveSection | None = None
    ) -> JobPlan:
        """A job on its hosts, with another collective than its own if one is given."""
        sections, location = self.jobs[index]
        workload = workload_of(sections.workload, len(names), location)
        check_needs(sections.codec, workload, sections.workload.kind, location)
        section, device = collective or sections.collective, device_of(sections.device, workload, location)
        overlap = overlap_of(sections.overlap, device, location)
        summed, in_flight = summed_at_once(workload), overlap.buckets_in_flight
        context = JobContext(site, location, index, names, sections.codec, device, summed, in_flight)
        found = registry.resolve(section, context)
        return JobPlan(
            label=location.label,
            hosts=context.nodes,
            workload=workload,
            steps=steps_of(sections.workload, workload),
            device=device,
            overlap=overlap,
            variation=variation_of(sections.device, len(names), location),
            codec=found.codec,
            collective=found.plan,
            references=(*(Reference(**dict(one)) for one in sections.published), *found.references),
            start_ps=sections.start if isinstance(sections, models.JobSection) else 0,
            warnings=(
                *found.warnings,
                *device.notes,
                *warnings_of(found.codec, found.plan),
                *workload_warnings(workload, len(names), found.codec),
                *routing_warnings(site.network.policy, found.plan),
            ),
        )

    def _job_workers(self, index: int, job: JobPlan) -> JobWorkers:
        """A job's workers, for resolving faults."""
        sections, location = self.jobs[index]
        return JobWorkers(location.name, job.hosts, job.start_ps, sections.device.computes)

    def _profiles(self) -> dict[str, Profile]:
        known = {**PROFILES, **self.location.scenario.profiles}
        check_profiles(self.graph, self.location.scenario, self.variant)
        found = {name: known[self.graph.nodes[name]["profile"]] for name in switches(self.graph)}
        for a, b, edge in self.graph.edges(data=True):
            for kind in (found[node] for node in (a, b) if node in found):
                if 0 < kind.port_rate_bps < edge["rate_bps"]:
                    rates = RATE.format(edge["rate_bps"]), RATE.format(kind.port_rate_bps)
                    message = f"link {a}–{b} has {rates[0]}, a port of {kind.name} {rates[1]}"
                    key = self.variant.topology.key_of_value("rate", edge["rate_bps"])
                    raise self.location.error(key, message, "use a lower rate, or topology.switch: ideal")
        return found

    def _rate_key(self) -> str:
        """The key of the links' rate."""
        return self.variant.topology.key("rate")

    def _profile_key(self) -> str:
        """The key of the switches' profile, which a topology file sets itself."""
        return self.variant.topology.key("switch")
