"""Resolves a scenario to a plan, or reports why it cannot run and which line is the cause.

`_VariantResolver` resolves what the jobs of a variant share, and each job's collective makes the job's plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np

from netfold.errors import DataError, Mistakes, OptionError, ScenarioError, as_one_error, names_hint, shown
from netfold.homomorphic.codec import Codec
from netfold.sim.collectives import registry
from netfold.sim.collectives.collective import CollectiveSection, JobContext, Site, collectives
from netfold.sim.engine.engine_data import Fate
from netfold.sim.files import UnreadableError, read_text
from netfold.sim.keys import Location, ScenarioInfo
from netfold.sim.plan.host_profiles import HostProfile, with_work
from netfold.sim.plan.idle_network import (
    routing_warnings,
    timer_warning,
    warnings_of,
    with_pass_latency,
    without_drops,
)
from netfold.sim.plan.memory_footprint import available_bytes
from netfold.sim.plan.plan import (
    FIFO,
    RESERVED,
    Admission,
    HostAllocation,
    JobPlan,
    Overlap,
    VariantPlan,
    split_message_and_hint,
)
from netfold.sim.scenario import variant_keys
from netfold.sim.scenario.faults import JobWorkers, WorkerFault, plan_faults
from netfold.sim.scenario.job_placement import JobPlacer
from netfold.sim.scenario.load import Scenario
from netfold.sim.scenario.network_keys import TopologySection, key_of
from netfold.sim.scenario.run_limits import (
    Plan,
    check_duration,
    check_slowed,
    refuse_more_than_fits,
    refuse_more_than_kept,
    sizes_of,
)
from netfold.sim.scenario.variant_keys import Variant
from netfold.sim.workload.device_rooflines import Device, Place, Variation
from netfold.sim.workload.devices import DeviceOption
from netfold.sim.workload.gradient_files import FileSpec
from netfold.sim.workload.synthetic import SyntheticSpec, words_every
from netfold.sim.workload.workload import GradientSource, WorkloadOption, refusal_of_needs
from netfold.sim.workload.workload_keys import Training
from netfold.switch.profiles import PROFILES, Profile
from netfold.topologies.graph import (
    LINKS_MAX,
    NODES_MAX,
    CutOffError,
    NoMatchError,
    TopologyError,
    change_links,
    change_profiles,
    remove_matching,
    switches,
)
from netfold.topologies.kind import ParameterError
from netfold.topologies.network import Network, compile_network, rerouted
from netfold.topologies.routing import Policy, PolicyError
from netfold.topologies.topology_files import FORMATS, read_graph
from netfold.units import RATE, SIZE, TIME, Quantity, UnitError

# The jobs of a variant's list, with templates written out, and what jobs that come and go cannot have.


JOBS_MAX = 2000
"""The most jobs of a variant."""


Arriving = tuple[variant_keys.JobSection, Location, int]
"""A job: its keys, whose `start` is when it arrives, and the place of its template in the scenario's list."""


def jobs_of(scenario: Scenario, variant: variant_keys.Variant) -> list[Arriving]:
    """All jobs of a variant, template by template, those of a template in the order in which they arrive.

    Raises
    ------
    ScenarioError
        Two jobs have the same name, or there are too many.
    """
    jobs: list[Arriving] = []
    for section_index, section in enumerate(variant.jobs):
        for number, start_ps in enumerate(section.starts_ps(scenario.seed, section_index), start=1):
            location = Location(scenario, variant.name, section.name, number if section.is_template else 0)
            jobs.append((section.model_copy(update={"start": start_ps}), location, section_index))
    names: dict[str, Location] = {}
    for _, location, _ in jobs:
        if other := names.get(location.name):
            raise location.job_error(
                "name",
                f"the name {location.name!r} is that of a job of {other.job!r} too",
                "use another name: jobs of a template are named NAME-1, NAME-2 and so on",
            )
        names[location.name] = location
    if len(jobs) > JOBS_MAX:
        raise Location(scenario, variant.name).error(
            "jobs", f"{len(jobs):,} jobs are too many", f"use {JOBS_MAX:,} at most"
        )
    return jobs


def check_admission(variant: variant_keys.Variant, location: Location) -> None:
    """Refuse what jobs without hosts of their own cannot have, and keys that only such jobs need.

    Raises
    ------
    ScenarioError
        The first mistake.
    """
    if variant.admission != FIFO:
        for job in variant.jobs:
            if job.fallback is not None:
                raise _at(location, job).job_error(
                    "fallback", "every job has slots of its own, so none falls back", "add admission: fifo"
                )
        return
    if not variant.jobs:
        raise location.error(
            "admission", "there is one job, which has nothing to wait for", "add jobs, or leave out admission"
        )
    for job in variant.jobs:
        if job.hosts != variant.hosts:
            raise _at(location, job).job_error(
                "hosts",
                "with admission: fifo any job may come to any host, so all have the same profile",
                "move hosts out of the job",
            )
    for index, fault in enumerate(variant.faults):
        if isinstance(fault, WorkerFault):
            raise location.error(
                f"faults.{index}",
                f"with admission: fifo workers have no hosts of their own that {fault.kind} could strike",
                "use a fault on links or switches, or admission: reserved",
            )


def _at(location: Location, job: variant_keys.JobSection) -> Location:
    return Location(location.scenario, location.variant, job.name)


# Resolves the sections of a job that do not depend on others: workload and device.


def workload_of(section: WorkloadOption, workers: int, location: Location) -> GradientSource:
    folder, seed = Path(location.scenario.file).parent, location.scenario.seed
    try:
        source = section.resolved(folder, workers, seed)
    except DataError as error:
        raise location.job_error(f"workload.{section.file_key}", error.message, error.hint) from None
    try:
        source.fusion.outline.partition(source.layers)
    except OptionError as error:
        raise location.job_error(f"workload.fusion.{error.key}", error.message, error.hint) from None
    return source


def summed_at_once(workload: GradientSource) -> int:
    # Elements of a full bucket, or of the whole gradient.
    return workload.fusion.outline.full_elements(workload.layers)


def check_needs(codec: Codec, workload: GradientSource, kind: str, location: Location) -> None:
    # Refuse a codec that needs facts of a step that the workload, of this kind, does not know.
    if isinstance(workload, Training) and (reason := workload.refusal(codec.kind, codec.needs)):
        raise location.job_error(f"workload.{reason.key}", reason.message, reason.hint)
    if refusal := refusal_of_needs(codec, workload.facts, f"a workload of the kind {kind}"):
        raise location.job_error(refusal.key, refusal.message, refusal.hint)


def device_of(section: DeviceOption, workload: GradientSource, location: Location) -> Device:
    folder = Path(location.scenario.file).parent
    context = Place(folder, workload.tensors, isinstance(workload, Training))
    try:
        return section.device(context)
    except OptionError as error:
        raise location.job_error(f"device.{error.key}", error.message, error.hint) from None


def variation_of(section: DeviceOption, workers: int, location: Location) -> Variation:
    variation = section.variation
    if wrong := next((worker for worker, _ in variation.slow if worker >= workers), None):
        raise location.job_error(
            "device.slow", f"there is no worker {wrong}", f"workers are numbered from 0 to {workers - 1}"
        )
    return variation


def check_overlap(overlap: Overlap, device: Device, location: Location) -> None:
    """Refuse a codec that is to run on the device and on the host."""
    if overlap.encode == "on_device" and device.copy_ps(1):
        raise location.job_error(
            "overlap.encode",
            "device.codec puts encoding on the host, encode: on_device on the device",
            "leave out one of the two",
        )


def steps_of(section: WorkloadOption, workload: GradientSource) -> int:
    """Optimizer steps: the configured number, or that of the file."""
    held = None
    if isinstance(workload, FileSpec):
        held = workload.steps
    elif isinstance(workload, SyntheticSpec):
        held = workload.held_steps
    return section.steps or held or 1


def workload_warnings(workload: GradientSource, workers: int, codec: Codec) -> tuple[str, ...]:
    """Warnings about gradients."""
    if isinstance(workload, Training):
        warnings = workload.warnings(codec.kind, getattr(codec, "momentum", 0.0))
        if workload.stands_in_for:
            data = workload.model.data_named(workload.data).name
            warnings += (
                f"the data of {workload.model.facts.title} are {data}, in place of {workload.stands_in_for}",
            )
        return warnings
    if isinstance(workload, FileSpec) and workers < workload.rows:
        return (
            f"the first {workers} of the {workload.rows} workers' gradients in {workload.given} are used",
        )
    return (*workload.notes, *workload.payload_notes) if isinstance(workload, SyntheticSpec) else ()


def check_payload(
    sections: variant_keys.JobSection | variant_keys.Variant,
    workload: GradientSource,
    codec: Codec,
    workers: int,
    location: Location,
) -> None:
    """Refuse packets without words where bytes depend on words, or words are kept."""
    if (every := words_every(workload)) == 1:
        return
    payload, kept = (f"{{sample: {every}}}", "not all") if every else ("none", "no")
    if codec.bits_per_element(workers) is None:
        raise location.job_error(
            "workload.payload",
            f"{payload}: what {codec.kind} sends depends on the gradients, so packets need their values",
            "use all, {shared: COUNT}, or a codec whose bytes depend on the size alone, such as fixed_point",
        )
    if sections.keep:
        raise location.job_error(
            "keep",
            f"payload {payload} has {kept} {sections.keep[0]}",
            "use the payload all or {shared: COUNT}",
        )


# Builds the network of a variant.


_WRITTEN_MAX = 10**24  # larger numbers of nodes are rounded
GRAPH_BYTES_MAX = 2**26
"""Bytes of a file with a graph: some 400 for each of the most links."""


def build_topology(scenario: Scenario, variant: Variant) -> nx.Graph:
    """The graph of a variant's topology; the path of a file is relative to the scenario.

    Raises
    ------
    ScenarioError
        The file cannot be read; the graph is too large, which is known before it is made, or breaks the
        contract of `topologies.graph.validate`; a pattern of `links`, `switch_profiles` or `without` matches
        nothing; or what is absent cuts off hosts.
    """
    section = variant.topology
    path, prefix = "topology", ""
    try:
        if section.file is None:
            graph = _generate(scenario, variant)
        else:
            path, prefix = "topology.path", f"{section.file}: "
            text = _read(section.file, scenario, variant)
            graph = read_graph(section.file, text, section.defaults(), _UNITS)
    except ParameterError as error:
        raise _refusal(scenario, variant, f"topology.{key_of(error.key)}", str(error)) from None
    except TopologyError as error:
        raise as_one_error(
            _refusal(scenario, variant, path, prefix + mistake) for mistake in error.mistakes
        ) from None
    _change(graph, scenario, variant)
    return graph


def whole_topology(scenario: Scenario, variant: Variant) -> nx.Graph | None:
    """The graph with what is absent: what is paid for; None if nothing is absent."""
    if not variant.topology.without:
        return None
    topology = variant.topology.model_copy(update={"without": ()})
    return build_topology(scenario, variant.model_copy(update={"topology": topology}))


def check_profiles(graph: nx.Graph, scenario: ScenarioInfo, variant: Variant) -> None:
    profiles = {**PROFILES, **scenario.switch_profiles}
    for name in switches(graph):
        profile_name = graph.nodes[name]["profile"]
        if profile_name not in profiles:
            key = variant.topology.key_of_value("switch", profile_name)
            message = f"there is no switch profile {profile_name!r}"
            raise scenario.error(key, message, names_hint(profile_name, profiles), variant.name)


def _generate(scenario: Scenario, variant: Variant) -> nx.Graph:
    """The graph of a registered topology, if its size fits."""
    topology = variant.topology.topology()
    size = topology.size()
    for count, most, what in ((size.nodes, NODES_MAX, "nodes"), (size.links, LINKS_MAX, "links")):
        if count > most:
            number = str(count) if count < _WRITTEN_MAX else f"more than 10^{len(str(count)) - 1}"
            message = f"{number} {what} are too many: the packet engine takes up to {most}"
            raise scenario.error(f"topology.{key_of(size.key)}", message, size.hint, variant.name)
    return topology.graph()


def _change(graph: nx.Graph, scenario: Scenario, variant: Variant) -> None:
    """Make the changes that patterns select, then remove what is absent."""
    profiles = {**PROFILES, **scenario.switch_profiles}
    section = variant.topology
    for index, (_, profile) in enumerate(section.profile_changes()):
        if profile not in profiles:
            message = f"there is no switch profile {profile!r}"
            at = f"topology.switch_profiles.{index}.profile"
            raise scenario.error(at, message, names_hint(profile, profiles), variant.name)
    try:
        key = "links.{}.match"
        change_links(graph, section.link_changes())
        key = "switch_profiles.{}.match"
        change_profiles(graph, section.profile_changes())
        key = "without.{}"
        remove_matching(graph, section.without)
    except NoMatchError as error:
        raise _refusal(scenario, variant, f"topology.{key.format(error.index)}", str(error)) from None
    except CutOffError as error:
        raise _refusal(scenario, variant, "topology.without", str(error)) from None


def _refusal(scenario: Scenario, variant: Variant, path: str, text: str) -> ScenarioError:
    """The scenario error for a mistake in a graph; text after a semicolon is the hint."""
    message, _, hint = text.partition("; ")
    return scenario.error(path, message, hint, variant.name)


def _reader(quantity: Quantity) -> Callable[[object], int]:
    def read(text: object) -> int:
        try:
            return quantity.parse(text)
        except UnitError as error:
            raise ValueError(f"{error.message}; {error.hint}") from None

    return read


_UNITS = {"rate_bps": _reader(RATE), "delay_ps": _reader(TIME), "buffer_bytes": _reader(SIZE)}


def _read(file: str, scenario: Scenario, variant: Variant) -> str:
    try:
        return read_text(Path(scenario.file).parent / file, GRAPH_BYTES_MAX)
    except UnreadableError as error:
        formats = "node-link JSON, GraphML or GML"
        hint = f"give the path of a file of {formats} ({', '.join(FORMATS)}), relative to the scenario file"
        message = f"cannot read {shown(file)}: {error.message}"
        raise scenario.error("topology.path", message, hint, variant.name) from None


# Resolves variants: network, profiles, and the jobs one after the other.


_LOSING = (Fate.LOSS, Fate.CORRUPTION, Fate.BURST_LOSS)
_SHARINGS = (1, 2, 4, 8, 16, 32, 64)
"""Among how many jobs a switch is divided if it is too small for all."""


def resolve(scenario: Scenario, networks: Networks | None = None) -> Plan:
    """Resolve all variants, with networks that are compiled already if some are given.

    Raises
    ------
    ScenarioError
        All mistakes of all variants, each with its location in the file and what is allowed.
    """
    mistakes = Mistakes()
    networks = networks or Networks()
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
    plan = Plan(scenario, _with_timer_warnings(tuple(plans)))
    refuse_more_than_kept(plan)
    return plan


def _with_timer_warnings(variants: tuple[VariantPlan, ...]) -> tuple[VariantPlan, ...]:
    """Warn at the first job that loses packets if timeouts of such jobs differ, some as released."""
    timeouts_ps: dict[str, int] = {}
    released = []
    for variant in variants:
        if not any(rule.fate in _LOSING and rule.probability > 0 for rule in variant.faults.rules):
            continue
        for job in variant.jobs:
            if timeout_ps := job.collective.sender.timeout_ps:
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


class Networks:
    """Networks of a scenario's variants: equal topologies share one, whose routes may take gigabytes."""

    def __init__(self) -> None:
        self._made: list[tuple[TopologySection, Policy, Network]] = []

    def get(self, section: TopologySection, routing: Policy, graph: nx.Graph) -> Network:
        for known, policy, network in self._made:
            if (known, policy) == (section, routing):
                return network
        # A TopologyError if the routes take too much memory, a PolicyError if they are not for this topology.
        network = compile_network(graph, available_bytes(), routing)
        self._made.append((section, routing, network))
        return network


class _VariantResolver:
    """Resolves one variant; every error points to the line it comes from."""

    def __init__(self, scenario: Scenario, variant: variant_keys.Variant) -> None:
        self.variant, self.location = variant, Location(scenario, variant.name)
        self.graph, self._prices = build_topology(scenario, variant), scenario.prices
        self._whole = whole_topology(scenario, variant)
        self.sections: tuple[int, ...] = (0,)  # each job's place in the scenario's list
        self.jobs: list[tuple[variant_keys.JobSection | variant_keys.Variant, Location]] = [
            (variant, Location(scenario, variant.name))
        ]
        if variant.jobs:
            arriving = jobs_of(scenario, variant)
            self.jobs = [(section, location) for section, location, _ in arriving]
            self.sections = tuple(place for _, _, place in arriving)
        check_admission(variant, self.location)
        self._profiles_found = self._profiles()

    def compile(self, networks: Networks) -> None:
        """Find all routes, or take those of another variant."""
        try:
            network = networks.get(self.variant.topology, self.variant.routing.policy, self.graph)
        except PolicyError as error:
            raise self.location.error("routing", *split_message_and_hint(self.graph, error)) from None
        except TopologyError as error:
            raise self.location.error("topology", *split_message_and_hint(self.graph, error)) from None
        self._network = with_pass_latency(network, self._profiles_found)

    def resolve(self) -> VariantPlan:
        """The plan; the network must have been compiled."""
        site, jobs, admission = self._queue() if self.variant.admission == FIFO else self._divide()
        refuse_more_than_fits(sizes_of(jobs, [location for _, location in self.jobs]))
        job_workers = [self._job_workers(index, job) for index, job in enumerate(jobs)]
        faults = plan_faults(self.variant.faults, site.network, job_workers, self.location.error)
        for time_ps, failed in faults.reroutes.items() if self.variant.admission != FIFO else ():
            jobs = tuple(
                self._with_standby(index, job, site, time_ps, failed) for index, job in enumerate(jobs)
            )
        network = site.network
        if any(job.collective.needs_lossless for job in jobs):
            network = without_drops(network)
        site.network = network
        for index, (job, (_, location)) in enumerate(zip(jobs, self.jobs, strict=True)):
            check_duration(job, location, network, faults, index, self.variant.topology.key("rate"))
        check_slowed(jobs, network, faults, self.location.error)
        able = frozenset(
            self.graph.nodes[name]["profile"]
            for name, kind in self._profiles_found.items()
            if kind.can_aggregate
        )
        return VariantPlan(
            self.variant.name,
            network,
            faults,
            jobs,
            self.graph,
            able,
            self.sections,
            admission,
            self.location.scenario.seed,
            self._prices,
            self._whole,
        )

    def _divide(self) -> tuple[Site, tuple[JobPlan, ...], Admission | None]:
        """Jobs on switches that may hold too few slots for what each needs: then in equal parts."""
        network = self._network
        for sharing in _SHARINGS[:-1]:
            try:
                return self._reserve(sharing)
            except ScenarioError as error:
                if ".slots" not in error.path:
                    raise
                self._network = network
        return self._reserve(_SHARINGS[-1])

    def _reserve(self, sharing: int) -> tuple[Site, tuple[JobPlan, ...], Admission | None]:
        """Jobs that have hosts and slots of their own from the beginning to the end."""
        occupied = HostAllocation(self.graph)
        hosts = [
            occupied.place(sections.workers.count, sections.workers.placement, location)
            for sections, location in self.jobs
        ]
        self._network = with_work(self._network, self._work(hosts))
        site = Site(self.graph, self._network, self._profiles_found, self._profile_key(), occupied, sharing)
        jobs = tuple(self._job(index, names, site) for index, names in enumerate(hosts))
        is_arriving = any(job.is_template for job in self.variant.jobs)
        return site, jobs, Admission(RESERVED) if is_arriving else None

    def _queue(self) -> tuple[Site, tuple[JobPlan, ...], Admission]:
        """Jobs that take hosts and slots when they arrive: each as it is on the empty network."""
        occupied = HostAllocation(self.graph)
        self._network = with_work(self._network, self._work([()] * len(self.jobs)))
        site = Site(self.graph, self._network, self._profiles_found, self._profile_key(), occupied)
        wanted_jobs = [
            (section, location)
            for section, location in self.jobs
            if isinstance(section, variant_keys.JobSection)
        ]
        placer = JobPlacer(site, wanted_jobs, self._job)
        pairs = placer.alone()
        jobs, others = [first for first, _ in pairs], [second for _, second in pairs if second is not None]
        longest_ps = max((fallback.collective.sender.timeout_max_ps for fallback in others), default=0)
        return site, tuple(jobs), Admission(FIFO, placer.begin, placer.room([*jobs, *others]), longest_ps)

    def _work(self, hosts: Sequence[tuple[str, ...]]) -> dict[int, HostProfile]:
        """What each host takes for packets, by node: as its job says, or the variant."""
        rows = {name: row for row, name in enumerate(self._network.nodes)}
        profiles = dict.fromkeys(np.flatnonzero(self._network.is_host).tolist(), self.variant.hosts.whole())
        for (job, _), names in zip(self.jobs, hosts, strict=True):
            profiles |= dict.fromkeys((rows[name] for name in names), job.hosts.whole())
        return profiles

    def _job(
        self, index: int, names: tuple[str, ...], site: Site, collective: CollectiveSection | None = None
    ) -> JobPlan:
        """A job on its hosts, with another collective than its own if one is given."""
        sections, location = self.jobs[index]
        workload = workload_of(sections.workload, len(names), location)
        check_needs(sections.codec, workload, sections.workload.kind, location)
        if "weights" in sections.keep and not isinstance(workload, Training):
            raise location.job_error(
                "keep", "there are no weights: nothing is trained", "use a workload of the kind training"
            )
        section, device = collective or sections.collective, device_of(sections.device, workload, location)
        check_overlap(sections.overlap, device, location)
        summed, in_flight = summed_at_once(workload), sections.overlap.buckets_in_flight
        context = JobContext(site, location, index, names, sections.codec, device, summed, in_flight)
        resolved = registry.resolve(section, context)
        check_payload(sections, workload, resolved.codec, len(names), location)
        return JobPlan(
            label=location.label,
            hosts=context.nodes,
            workload=workload,
            steps=steps_of(sections.workload, workload),
            device=device,
            overlap=sections.overlap,
            variation=variation_of(sections.device, len(names), location),
            codec=resolved.codec,
            collective=resolved.plan,
            references=(*sections.published, *resolved.references),
            keep=sections.keep,
            start_ps=sections.start if isinstance(sections, variant_keys.JobSection) else 0,
            warnings=(
                *resolved.warnings,
                *device.notes,
                *warnings_of(resolved.codec, resolved.plan),
                *workload_warnings(workload, len(names), resolved.codec),
                *routing_warnings(site.network.policy, resolved.plan),
            ),
        )

    def _with_standby(
        self, index: int, job: JobPlan, site: Site, time_ps: int, failed: Sequence[int]
    ) -> JobPlan:
        """The job with trees on what is left of the network, if switches of its last ones are cut off."""
        network, collective, nodes = site.network, job.collective, site.network.nodes
        trees = (collective.aggregations, *collective.standby.values())[-1]
        left = self.graph.copy()
        left.remove_edges_from(
            (nodes[network.link_source[link]], nodes[network.link_target[link]]) for link in failed
        )
        names = tuple(nodes[host] for host in job.hosts)
        near = nx.node_connected_component(left, names[0])
        cut = [name for tree in trees for switch in tree.switches if (name := nodes[switch]) not in near]
        if not cut:
            return job
        program = trees[0].program
        if not near.issuperset(names):
            why = "some of its hosts are cut off, too"
        elif not (collectives()[collective.kind].rebuilds_trees and program.is_all_or_nothing):
            why = f"{collective.kind} with program {program.name} does not rebuild it"
        else:
            try:
                left.remove_nodes_from([name for name in nodes if name not in near])
                return self._rebuilt(index, job, site, time_ps, left=left, failed=failed)
            except ScenarioError as error:
                why = f"no other fits: {error.message}"
        after, lost = TIME.format(time_ps), ", ".join(dict.fromkeys(cut))
        warning = f"if it runs for longer than {after}, its tree loses {lost}, and {why}"
        return replace(job, warnings=(*job.warnings, warning))

    def _rebuilt(
        self, index: int, job: JobPlan, site: Site, time_ps: int, *, left: nx.Graph, failed: Sequence[int]
    ) -> JobPlan:
        """The job with trees that take over at a time, on what is left of the network; raises like `_job`."""
        network = site.network
        profiles = {name: kind if name in left else PROFILES["plain"] for name, kind in site.profiles.items()}
        around = replace(site, graph=left, network=rerouted(network, self.graph, failed), profiles=profiles)
        section = self.jobs[index][0].collective.model_copy(update={"switch": "auto"})
        names = tuple(network.nodes[host] for host in job.hosts)
        trees = self._job(index, names, around, section).collective.aggregations
        site.network = replace(around.network, tables=network.tables)
        standby = {**job.collective.standby, time_ps: trees}
        return replace(job, collective=replace(job.collective, standby=standby))

    def _job_workers(self, index: int, job: JobPlan) -> JobWorkers:
        """A job's workers, for resolving faults."""
        sections, location = self.jobs[index]
        return JobWorkers(location.name, job.hosts, job.start_ps, sections.device.computes)

    def _profiles(self) -> dict[str, Profile]:
        all_profiles = {**PROFILES, **self.location.scenario.switch_profiles}
        check_profiles(self.graph, self.location.scenario, self.variant)
        profiles = {name: all_profiles[self.graph.nodes[name]["profile"]] for name in switches(self.graph)}
        for a, b, edge in self.graph.edges(data=True):
            for kind in (profiles[node] for node in (a, b) if node in profiles):
                if 0 < kind.port_rate_bps < edge["rate_bps"]:
                    rates = RATE.format(edge["rate_bps"]), RATE.format(kind.port_rate_bps)
                    message = f"link {a}–{b} has {rates[0]}, a port of {kind.name} {rates[1]}"
                    key = self.variant.topology.key_of_value("rate", edge["rate_bps"])
                    raise self.location.error(key, message, "use a lower rate, or topology.switch: ideal")
        return profiles

    def _profile_key(self) -> str:
        # A topology file sets it itself.
        return self.variant.topology.key("switch")
