"""Aggregation in switches: what a scenario says of it, checked, placed and in integers."""

from __future__ import annotations

import dataclasses
import difflib

import networkx as nx

from homomorphic.codec import Codec, Merge
from homomorphic.keyed import mix_plain
from sim.engine.model import Branch, Job, Overflow, Program, Server
from sim.frames import frame_of, own_header_bytes
from sim.plan import Passes
from sim.resolve.aggregation_tree import Tree, build_tree, one_switch
from sim.resolve.carrier import fitted, switch_carrier
from sim.resolve.cells import check_cells
from sim.resolve.place import Place
from sim.resolve.placement import Hosts, told
from sim.resolve.sections import device_of
from sim.resolve.switches import Grant, Request, Switches
from sim.resolve.timeouts import check_timeout
from sim.scenario.collectives import InNetwork
from sim.scenario.models import JobSections
from sim.units import TIME
from sim.wiring import Window, full_window_trip_ps, job_traffic
from switch.declare import MERGES
from switch.fit import can_run, suits
from switch.profiles import PROFILES
from topologies.graph import TopologyError
from topologies.placement import place_aggregator

TIMEOUT_PS = TIME.parse("10ms")  # of SwitchML's released client
ATP_TIMEOUT_PS, ATP_FIRST_TIMEOUT_PS = TIME.parse("200us"), TIME.parse("50ms")  # in-ATP/ATP, p4ml_manager.cc
TABLE_LANES = 8  # result words per word of TABLE_ADD
_NEEDS_LINEAR = ("timed", "atp")  # a result may hold some workers only, or be asked for again as floats
_OVERFLOWS = {"switchml": "wrap", "atp": "sticky"}  # others: what the switch does by default


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A job of a switch program, and the codec with what it takes from the network."""

    job: Job
    codec: Codec
    passes: Passes  # at the root


@dataclasses.dataclass(frozen=True)
class InNetworkResolver:
    """Resolves one job's collective; `hosts` are its workers', in rank order."""

    graph: nx.Graph
    switches: Switches
    occupied: Hosts
    section: InNetwork
    sections: JobSections  # of the job
    place: Place
    index: int  # of the job in its variant
    hosts: tuple[str, ...]

    def resolve(self) -> Resolved:
        """The job.

        Raises
        ------
        ScenarioError
            Nothing that can run the program, no room for it, a merge it cannot do, a timeout too short,
            an index that does not count so many workers.
        """
        section = self.section
        self._check_codec()
        if section.slots % section.message_packets:
            raise self.place.job_error(
                "collective.slots",
                f"{section.slots} slots cannot be divided into messages of {section.message_packets} packets",
                f"use a multiple of {section.message_packets}",
            )
        root = self._root()
        tree = self._tree(root)
        frame = frame_of(section.frame)
        overflow = self._overflow(root)
        check_cells(self.place, self.sections.codec, len(self.hosts), overflow)
        grant = self.switches.admit(
            Request(
                self.place,
                section,
                frame.elements,
                self.sections.codec.merges,
                overflow,
                own_header_bytes(section.frame),
            ),
            tree,
        )
        job = self._with_timeouts(self._job(tree, grant, Overflow[overflow.upper()]))
        codec = fitted(
            self.sections.codec, switch_carrier(self.switches.network, job, device_of(self.sections.device))
        )
        return Resolved(job, codec, Passes(grant.fit.packet_passes, grant.fit.read_passes))

    def _check_codec(self) -> None:
        codec, program = self.sections.codec, self.section.program
        if program in _NEEDS_LINEAR and not codec.is_linear:
            raise self.place.job_error(
                "codec",
                f"codec {codec.kind!r} cannot decode the sum of some workers' messages alone, "
                f"as program {program} may deliver it",
                "use codec fixed_point with a factor, for example {kind: fixed_point, factor: 1e6}",
            )
        able = MERGES.get(program, codec.merges)
        if refused := sorted(merge.value for merge in codec.merges - able):
            raise self.place.job_error(
                "codec",
                f"codec {codec.kind!r} needs {', '.join(refused)}, which program {program} cannot do "
                f"(it does {', '.join(sorted(merge.value for merge in able))})",
                "use codec fixed_point with a factor, another program, or a collective between hosts",
            )

    def _root(self) -> str:
        section, profiles = self.section, self.switches.profiles
        if section.switch != "auto":
            if section.switch not in profiles:
                near = difflib.get_close_matches(section.switch, profiles, 1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                names = ", ".join(list(profiles)[:8])
                raise self.place.job_error(
                    "collective.switch", f"there is no switch {section.switch!r}", f"{hint}switches: {names}"
                )
            return section.switch
        kinds = {kind.name: kind for kind in profiles.values()}
        able = (
            {name for name, kind in kinds.items() if suits(kind, section.program)}
            or {name for name, kind in kinds.items() if can_run(kind, section.program)}  # told why it cannot
            or {name for name, kind in kinds.items() if kind.is_programmable}  # too
        )
        try:
            return place_aggregator(self.graph, self.hosts, able.__contains__)
        except TopologyError as error:
            known = {**PROFILES, **self.place.scenario.profiles}
            programmable = ", ".join(name for name, kind in known.items() if kind.is_programmable)
            message, hint = told(self.graph, error)
            raise self.place.error(self.switches.profile_key, message, f"{hint}: {programmable}") from None

    def _tree(self, root: str) -> Tree:
        network = self.switches.network
        node = network.nodes.index(root)
        if self.section.aggregators == "one":
            return one_switch(node, len(self.hosts))
        nodes = [network.nodes.index(host) for host in self.hosts]
        return build_tree(
            network,
            nodes,
            node,
            self._tree_route,
            lambda at: can_run(self.switches.profile_of(at), self.section.program),
        )

    @property
    def _tree_route(self) -> int:
        return self._route(0)

    def _route(self, worker: int) -> int:
        """What picks a worker's way among equal ones; on a tree it is the same for all."""
        return mix_plain(self.place.scenario.seed, 8, self.index, worker) >> 33

    def _overflow(self, root: str) -> str:
        """What becomes of sums that leave int32, at the root and so at all switches below it."""
        if self.section.overflow != "auto":
            return self.section.overflow
        usual = next(iter(self.switches.profiles[root].overflows), "wrap")
        return _OVERFLOWS.get(self.section.program, usual)

    def _job(self, tree: Tree, grant: Grant, overflow: Overflow) -> Job:
        section, network = self.section, self.switches.network
        is_tree = section.aggregators == "tree"
        below = range(1, len(tree.switches))
        return Job(
            hosts=tuple(network.nodes.index(host) for host in self.hosts),
            switch=tree.switches[0],
            slot_base=grant.slot_base,
            slots_count=section.slots,
            unit_packets=section.message_packets,
            frame=frame_of(section.frame),
            timeout_ps=0,
            first_timeout_ps=0,
            timeout_max_ps=section.timeout_max,
            routes=tuple(self._route(0 if is_tree else worker) for worker in range(len(self.hosts))),
            loopback_link=grant.loopback_links[0],
            program=Program[section.program.upper()],
            overflow=overflow,
            branches=tuple(
                Branch(tree.switches[i], tree.parents[i], grant.loopback_links[i], self._tree_route)
                for i in below
            ),
            homes=tree.homes if below else (),
            slot_timer_ps=section.slot_timer or 0,
            lanes=TABLE_LANES if Merge.TABLE_ADD in self.sections.codec.merges else 1,
            server=self._server() if section.program == "atp" else None,
        )

    def _server(self) -> Server:
        section, network = self.section, self.switches.network
        if section.entries < section.slots:
            raise self.place.job_error(
                "collective.entries",
                f"a window of {section.slots} packets needs as many entries, found {section.entries}",
                f"use {section.slots} entries or more, or {section.entries} slots or fewer",
            )
        name = self.occupied.first_free() if section.server == "auto" else section.server
        if name is None:
            raise self.place.job_error(
                "collective.server",
                "every host runs a worker, none is left for the parameter server",
                "use a larger topology or fewer workers",
            )
        names = [node for node, is_host in zip(network.nodes, network.is_host, strict=True) if is_host]
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise self.place.job_error(
                "collective.server",
                f"there is no host {name!r}",
                f"{hint}there are {len(names)} hosts, from {names[0]!r} to {names[-1]!r}",
            )
        if self.occupied.owner(name) is not None:
            raise self.place.job_error(
                "collective.server", f"host {name!r} runs a worker", "name a host without one, or use auto"
            )
        return Server(
            network.nodes.index(name),
            section.entries,
            section.slots,
            section.ecn_threshold,
            section.adaptive,
            mix_plain(self.place.scenario.seed, 8, self.index, len(self.hosts)) >> 33,
        )

    def _with_timeouts(self, job: Job) -> Job:
        """The job with its timeouts, checked against what a full window takes."""
        section, network = self.section, self.switches.network
        if job.program is Program.TREE:
            return dataclasses.replace(job, timeout_max_ps=0)
        size_bytes = job.frame.wire_bytes(job.lanes * job.frame.elements, first=True, last=True)
        window = Window(job.frame, job.slots_count, size_bytes)
        trip_ps = full_window_trip_ps(network, job_traffic(network, job), window)
        usual_ps = ATP_TIMEOUT_PS if job.program is Program.ATP else TIMEOUT_PS
        timeout_ps = max(usual_ps, 2 * trip_ps) if section.timeout is None else section.timeout
        first_timeout_ps = section.first_timeout
        if first_timeout_ps is None:
            is_atp = job.program is Program.ATP
            first_timeout_ps = max(timeout_ps, ATP_FIRST_TIMEOUT_PS) if is_atp else timeout_ps
        check_timeout(self.place, "timeout", timeout_ps, trip_ps)
        check_timeout(self.place, "first_timeout", first_timeout_ps, trip_ps)
        self._check_timeout_max(timeout_ps)
        return dataclasses.replace(
            job,
            timeout_ps=timeout_ps,
            first_timeout_ps=first_timeout_ps,
            timeout_max_ps=max(timeout_ps, job.timeout_max_ps),
        )

    def _check_timeout_max(self, timeout_ps: int) -> None:
        """Only a default gives way to a longer timeout: where it is written, one of the two is a mistake."""
        section = self.section
        if "timeout_max" not in section.model_fields_set or section.timeout_max >= timeout_ps:
            return
        found, timeout = TIME.format(section.timeout_max), TIME.format(timeout_ps)
        origin = " (default)" if section.timeout is None else ""
        raise self.place.job_error(
            "collective.timeout_max",
            f"{found} is less than timeout, {timeout}{origin}",
            f"use {timeout} or more, or a timeout of {found} at most",
        )
