"""From a scenario to a plan, or to the reason why it cannot be run, with the line it comes from."""

from __future__ import annotations

import dataclasses
import difflib
import os

from homomorphic.codec import Codec
from homomorphic.keyed import mix_plain
from sim.collectives.in_network import SWITCH_MERGES, InNetwork
from sim.collectives.ring import Ring, ring_route
from sim.engine.model import Job
from sim.fault_resolve import Team, plan_faults
from sim.frames import FRAMES
from sim.plan import Plan, RingPlan, VariantPlan
from sim.results.summary import Reference
from sim.scenario import Scenario
from sim.scenario import models as written
from sim.scenario.topology import build_topology
from sim.units import RATE, TIME
from sim.wiring import Trip, Window, full_window_trip_ps, wire_bound, with_loopback, with_pass_latency
from sim.workload import SyntheticSpec, TrainingSpec
from sim.workload.device import DEVICES, Device, FixedDevice, NoDevice
from switch.fit import FitError, fit_switchml
from switch.profiles import PROFILES, Profile, UnknownProfileError, profile
from topologies.graph import TopologyError, switches, where
from topologies.placement import place_aggregator, place_workers
from topologies.routing import Network, compile_network

RING_TIMEOUT_PS = TIME.parse("1ms")
SWITCHML_TIMEOUT_PS = TIME.parse("10ms")  # the released client's configuration
COPIES_HELD = 4  # of every worker's gradient, at most, in float32 sizes
NODES_MAX = 4096  # every pair has a route; the tables of more do not fit


def resolve(scenario: Scenario) -> Plan:
    """Resolve all variants.

    Raises
    ------
    ScenarioError
        With the place in the file and what is allowed.
    """
    return Plan(scenario, tuple(_Resolver(scenario, variant).resolve() for variant in scenario.variants))


class _Resolver:
    """Resolves one variant; every error points to the line it comes from."""

    def __init__(self, scenario: Scenario, variant: written.Variant) -> None:
        self.scenario, self.variant = scenario, variant
        self.graph = build_topology(scenario, variant)

    def resolve(self) -> VariantPlan:
        variant = self.variant
        self._check_memory()
        profiles = self._profiles()
        hosts = self._hosts()
        if len(self.graph) > NODES_MAX:
            raise self.error(
                "topology",
                f"{len(self.graph)} nodes are too many",
                f"the packet engine takes up to {NODES_MAX}",
            )
        network = with_pass_latency(compile_network(self.graph), profiles)
        nodes = tuple(network.nodes.index(host) for host in hosts)
        codec = variant.codec
        collective: RingPlan | Job
        bounds: tuple[Reference, ...]
        if isinstance(variant.collective, written.Ring):
            collective, bounds = self._ring(variant.collective, network, nodes), ()
        else:
            network, collective, codec = self._in_network(variant.collective, network, hosts, profiles)
            bounds = (wire_bound(network, collective),)
        return VariantPlan(
            name=variant.name,
            network=network,
            faults=plan_faults(variant.faults, network, [self._team(nodes)], self.error),
            hosts=nodes,
            workload=_workload(variant.workload),
            steps=variant.workload.steps,
            device=_device(variant.device),
            codec=codec,
            collective=collective,
            references=(*(Reference(**dict(one)) for one in variant.published), *bounds),
        )

    def _team(self, nodes: tuple[int, ...]) -> Team:
        """The workers, for faults that name one."""
        return Team("", nodes, computes=not isinstance(self.variant.device, written.NoDevice))

    def error(self, path: str, message: str, hint: str = "") -> Exception:
        return self.scenario.error(path, message, hint, self.variant.name)

    def _profiles(self) -> dict[str, Profile]:
        found = {}
        for name in switches(self.graph):
            wanted = self.graph.nodes[name]["profile"]
            try:
                found[name] = profile(wanted)
            except UnknownProfileError as error:
                near = difflib.get_close_matches(wanted, PROFILES, 1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                known = ", ".join(PROFILES)
                raise self.error(self._profile_key(), str(error), f"{hint}known: {known}") from None
        for a, b, edge in self.graph.edges(data=True):
            for kind in (found[node] for node in (a, b) if node in found):
                if 0 < kind.port_rate_bps < edge["rate_bps"]:
                    rates = RATE.format(edge["rate_bps"]), RATE.format(kind.port_rate_bps)
                    message = f"link {a}–{b} has {rates[0]}, a port of {kind.name} {rates[1]}"
                    raise self.error(
                        "topology.rate", message, "use a lower rate, or the switch profile ideal"
                    )
        return found

    def _check_memory(self) -> None:
        """Gradients, messages, sums and decoded sums of all workers are held at once."""
        workload = self.variant.workload
        if not isinstance(workload, written.Synthetic):
            return
        needed = COPIES_HELD * 4 * workload.elements * self.variant.workers.count
        there_is = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > there_is:
            most = there_is // (COPIES_HELD * 4 * self.variant.workers.count)
            message = f"{workload.elements} elements of {self.variant.workers.count} workers take about "
            message += f"{needed >> 30} GiB, this machine has {there_is >> 30} GiB"
            raise self.error("workload.elements", message, f"use {most} elements at most, or fewer workers")

    def _profile_key(self) -> str:
        """Where a scenario names the switches' profile: a topology from a file has its own."""
        is_file = isinstance(self.variant.topology, written.TopologyFile)
        return "topology.path" if is_file else "topology.switch"

    def _hosts(self) -> list[str]:
        section = self.variant.workers
        try:
            return place_workers(self.graph, section.count, section.placement)
        except TopologyError as error:
            key = "count" if isinstance(section.placement, str) else "placement"
            raise self.error(f"workers.{key}", *self._told(error)) from None

    def _told(self, error: TopologyError) -> tuple[str, str]:
        """Message and hint of a topology error; its place in the file says which topology."""
        message, _, hint = str(error).removeprefix(where(self.graph)).rpartition("; ")
        return message, hint

    def _ring(self, section: written.Ring, network: Network, hosts: tuple[int, ...]) -> RingPlan:
        refused = sorted(merge.value for merge in self.variant.codec.merges - Ring.merges)
        if refused:
            raise self.error(
                "codec",
                f"codec {self.variant.codec.kind!r} needs {', '.join(refused)}, which a ring cannot do",
                "a ring merges at every hop: use a codec whose messages can be merged",
            )
        if section.window < section.ack_every:
            raise self.error(
                "collective.window",
                f"a window of {section.window} packets is smaller than ack_every, {section.ack_every}: "
                "it would be full before there is enough to acknowledge",
                f"use at least {section.ack_every}",
            )
        frame = FRAMES[section.frame]
        trips = [
            Trip(hosts[w], hosts[(w + 1) % len(hosts)], ring_route(self.scenario.seed, w))
            for w in range(len(hosts))
        ]
        trip_ps = full_window_trip_ps(network, trips, Window(frame, section.window, has_results=False))
        timeout_ps = section.timeout
        if timeout_ps is None:
            timeout_ps = max(RING_TIMEOUT_PS, 2 * trip_ps)
        self._check_timeout("timeout", timeout_ps, trip_ps)
        return RingPlan(frame, section.window, timeout_ps, section.ack_every)

    def _check_timeout(self, key: str, timeout_ps: int, trip_ps: int) -> None:
        """A timer that expires while all is well floods the network with copies."""
        if timeout_ps <= trip_ps:
            raise self.error(
                f"collective.{key}",
                f"{TIME.format(timeout_ps)} is too short: a full window's round trip takes "
                f"{TIME.rough(trip_ps)} on the idle network, so packets would be sent again without need",
                f"use more than {TIME.rough(trip_ps)}, or a smaller window",
            )

    def _in_network(
        self, section: written.InNetwork, network: Network, hosts: list[str], profiles: dict[str, Profile]
    ) -> tuple[Network, Job, Codec]:
        frame = FRAMES[section.frame]
        self._check_merges()
        if section.slots % section.message_packets:
            raise self.error(
                "collective.slots",
                f"{section.slots} slots cannot be divided into messages of {section.message_packets} packets",
                f"use a multiple of {section.message_packets}",
            )
        name = self._switch(section, hosts, profiles)
        try:
            fit = fit_switchml(profiles[name], len(hosts), section.slots, frame.elements)
        except FitError as error:
            keys = {
                "profile": self._profile_key() if section.switch == "auto" else "collective.switch",
                "workers": "workers.count",
                "frame": "collective.frame",
                "slots": "collective.slots",
            }
            raise self.error(keys[error.about], error.message, error.hint) from None
        network, loopback = with_loopback(network, name, profiles[name], fit.extra_passes)
        job = Job(
            hosts=tuple(network.nodes.index(host) for host in hosts),
            switch=network.nodes.index(name),
            slot_base=0,
            slots_count=section.slots,
            unit_packets=section.message_packets,
            frame=frame,
            timeout_ps=0,
            first_timeout_ps=0,
            timeout_max_ps=section.timeout_max,
            routes=tuple(mix_plain(self.scenario.seed, 8, worker) >> 33 for worker in range(len(hosts))),
            loopback_link=loopback,
        )
        job = self._with_timeouts(section, network, job)
        return network, job, self._codec_with_unit(section.message_packets * frame.elements)

    def _with_timeouts(self, section: written.InNetwork, network: Network, job: Job) -> Job:
        """The job with its timeouts, checked against what a full window takes."""
        trips = [Trip(host, job.switch, route) for host, route in zip(job.hosts, job.routes, strict=True)]
        window = Window(job.frame, job.slots_count, True, job.loopback_link)
        trip_ps = full_window_trip_ps(network, trips, window)
        timeout_ps = section.timeout
        if timeout_ps is None:
            timeout_ps = max(SWITCHML_TIMEOUT_PS, 2 * trip_ps)
        first_timeout_ps = timeout_ps if section.first_timeout is None else section.first_timeout
        self._check_timeout("timeout", timeout_ps, trip_ps)
        self._check_timeout("first_timeout", first_timeout_ps, trip_ps)
        return dataclasses.replace(
            job,
            timeout_ps=timeout_ps,
            first_timeout_ps=first_timeout_ps,
            timeout_max_ps=max(timeout_ps, job.timeout_max_ps),
        )

    def _codec_with_unit(self, unit_elements: int) -> Codec:
        """The codec, with the network's unit where it left the block size to the network."""
        codec = self.variant.codec
        if getattr(codec, "block_elements", 0) is None:
            return dataclasses.replace(codec, block_elements=unit_elements)  # type: ignore[type-var]
        return codec

    def _check_merges(self) -> None:
        codec = self.variant.codec
        refused = sorted(merge.value for merge in codec.merges - InNetwork.merges)
        if refused:
            able = ", ".join(merge.value for merge in SWITCH_MERGES)
            raise self.error(
                "codec",
                f"codec {codec.kind!r} needs {', '.join(refused)}, "
                f"which switch registers cannot do (they do {able})",
                "use codec fixed_point or lossless, or a collective between hosts such as ring",
            )

    def _switch(self, section: written.InNetwork, hosts: list[str], profiles: dict[str, Profile]) -> str:
        if section.switch != "auto":
            if section.switch not in profiles:
                near = difflib.get_close_matches(section.switch, profiles, 1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                names = ", ".join(list(profiles)[:8])
                raise self.error(
                    "collective.switch", f"there is no switch {section.switch!r}", f"{hint}switches: {names}"
                )
            return section.switch
        try:
            return place_aggregator(self.graph, hosts, lambda name: PROFILES[name].is_programmable)
        except TopologyError as error:
            able = ", ".join(one.name for one in PROFILES.values() if one.is_programmable)
            message, hint = self._told(error)
            raise self.error(self._profile_key(), message, f"{hint}: {able}") from None


def _workload(section: written.Training | written.Synthetic) -> TrainingSpec | SyntheticSpec:
    if isinstance(section, written.Training):
        return TrainingSpec(
            section.model, section.batch, section.learning_rate, section.bucket, section.expand
        )
    return SyntheticSpec(
        section.elements,
        section.density,
        section.pattern,
        section.row_elements,
        section.overlap,
        section.distribution,
        section.bucket,
    )


def _device(section: written.NoDevice | written.FixedDevice | written.RooflineDevice) -> Device:
    if isinstance(section, written.FixedDevice):
        return FixedDevice(section.forward, section.backward, section.memory_rate)
    if isinstance(section, written.RooflineDevice):
        return DEVICES[section.model]
    return NoDevice()
