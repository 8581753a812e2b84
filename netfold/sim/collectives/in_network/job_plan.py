"""Where a job is aggregated: candidate switches and trees, their resources, and the best that fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from netfold.errors import ScenarioError, did_you_mean
from netfold.homomorphic.codec import Carrier, Codec, MessageSize
from netfold.homomorphic.merge import Merge, words_per_word
from netfold.kernels import rng_streams
from netfold.kernels.keyed_random import mix_plain
from netfold.sim.collectives.collective import JobContext, check_absence, check_workers, collectives
from netfold.sim.collectives.in_network.aggregation_tree import Candidate, Candidates, Shapes, none_fits
from netfold.sim.collectives.in_network.in_network_keys import InNetworkSection
from netfold.sim.collectives.in_network.switch_resources import AggregationTree, Switches, SwitchRequest
from netfold.sim.collectives.schedule_costs import AUTO, Routed, auto_timeout_ps, check_timeout, pace_of
from netfold.sim.engine.congestion_policies import AIMD, BACKOFF_MAX, FIXED
from netfold.sim.engine.engine_data import AtpServer, Branch, Job, Overflow, Sender
from netfold.sim.engine.tree_paths import with_splits
from netfold.sim.keys import Location
from netfold.sim.plan.idle_network import (
    Pace,
    Window,
    crowding_warnings,
    full_window_trip_ps,
    host_bound,
    job_pace,
    job_traffic,
    port_warnings,
    slots_needed,
    wire_bound,
)
from netfold.sim.plan.plan import HostAllocation, custom_header_bytes, frame_of, with_members
from netfold.sim.workload.device_rooflines import Device, memory_bps
from netfold.switch.fit import Fit
from netfold.switch.program import Demand, names_of
from netfold.topologies.ecmp import SWITCHES, flow_key_plain, planned_key
from netfold.topologies.network import Network, path
from netfold.units import PS_PER_S, TIME

# Time that switches take for messages, for codecs that choose by it.


@dataclass(frozen=True, kw_only=True)
class WindowCarrier(Carrier):
    """A carrier of windows: messages of an operation follow each other in whole units, without gaps."""

    window_words: int
    sends_exponents_ahead: bool  # one window ahead, of messages with one block per unit

    def time_ps(self, operation: Sequence[MessageSize]) -> int:
        """Time of an operation; exponents sent ahead cost no extra round trip."""
        are_ahead = all(size.block_elements == self.unit_elements for size in operation)
        if not (self.sends_exponents_ahead and are_ahead):
            return super().time_ps(operation)
        return sum(self._scaled_ps(self._pad(size.words)) for size in operation if size.words)

    def plain_ps(self, messages: Sequence[int]) -> int:
        """Time of messages with these numbers of words, as one stream."""
        return self._stream_ps(sum(self._pad(words) for words in messages))

    def _pad(self, words: int) -> int:
        return -(-words // self.unit_elements) * self.unit_elements

    def _scaled_ps(self, words: int) -> int:
        """The first values follow the window's exponents, and not before the first of these are back."""
        ahead_ps = self.words_ps(min(words, self.window_words))
        return max(self._trip_ps, ahead_ps) + self._stream_ps(words)

    def _stream_ps(self, words: int) -> int:
        """Window after window; each except the last waits for its first answer or for the link."""
        if not words:
            return 0
        full = -(-words // self.window_words) - 1
        full_ps = max(self._trip_ps, self.words_ps(self.window_words))
        return full * full_ps + self.latency_ps + self.words_ps(words - full * self.window_words)

    @property
    def _trip_ps(self) -> int:
        return self.latency_ps + self.words_ps(self.unit_elements)


def window_carrier(network: Network, trees: Sequence[Job], device: Device) -> WindowCarrier:
    """The carrier of a job on switches: its round trip without words, and its busiest link's rate."""
    job = trees[0]
    frame = job.frame
    packet_bytes = frame.wire_bytes(job.lanes * frame.elements, first=True, last=True)
    trip_ps = full_window_trip_ps(network, job_traffic(network, *trees), Window(frame, 1, packet_bytes))
    bounds = (wire_bound(network, *trees), host_bound(network, *trees))
    words_per_s = min(bound.elements_per_s for bound in bounds if bound is not None)
    return WindowCarrier(
        unit_elements=job.unit_packets * frame.elements,
        latency_ps=max(1, round(trip_ps - PS_PER_S * frame.elements / words_per_s)),
        rate_bps=max(1, round(32 * words_per_s)),
        memory_bps=memory_bps(device),
        window_words=len(trees) * job.slots_count * frame.elements,
        sends_exponents_ahead=job.program.has_exponents_ahead,
    )


# Compares a job on switches with a ring between the hosts, by closed forms of the idle network.


RING_MARGIN = 0.98  # accuracy of the closed forms


def is_ring_faster(pace: Pace, ring: Pace, elements: int) -> bool:
    """Whether a ring between the hosts sums this number of dense elements sooner."""
    return RING_MARGIN * pace.time_ps(elements) > ring.time_ps(elements)


def slower_than_ring(tree_pace: Pace, ring: Pace, network: Network, elements: int, remedy: str) -> str:
    """The warning that a ring is faster; `remedy` is what to change."""
    name = network.link_names[tree_pace.busiest.link]
    compared = (
        f"{ring.elements_per_s / 1e9:.3g} G against {tree_pace.elements_per_s / 1e9:.3g} G dense elements/s"
    )
    if RING_MARGIN * ring.elements_per_s <= tree_pace.elements_per_s:
        times = (TIME.rough(round(pace.time_ps(elements))) for pace in (ring, tree_pace))
        compared = " against ".join(times) + f" for {elements:,} elements"
        why = f"a message takes {TIME.rough(tree_pace.latency_ps)} to the switch and back"
    elif tree_pace.is_windowed:
        why = f"its slots are too few for a round trip of {TIME.rough(tree_pace.latency_ps)}"
    elif network.is_inside(tree_pace.busiest.link):
        why = f"host {name} takes longest, for packets of this size"
    elif tree_pace.busiest.streams == 1:
        why = "its packets carry fewer words per byte"
    else:
        why = f"{tree_pace.busiest.streams} streams share {name}"
    return f"a ring would be faster here, with about {compared}: {why}; {remedy}"


# Resolves the parameter server of a job: its host, and the entries of its switch.


def resolve_server(
    section: InNetworkSection, location: Location, network: Network, occupied: HostAllocation, route: int
) -> AtpServer:
    """A job's server; a window that is not known yet is one packet.

    Raises
    ------
    ScenarioError
        A window larger than the entries, or a host that is unknown or runs a worker.
    """
    entries, wanted = section.option("entries"), section.option("server")
    window = section.slots if isinstance(section.slots, int) else 1
    if entries < window:
        raise location.job_error(
            "collective.entries",
            f"a window of {window} packets needs at least {window} entries, found {entries}",
            f"use {window} entries or more, or {entries} slots or fewer",
        )
    name = occupied.first_free() if wanted == "auto" else wanted
    if name is None:
        raise location.job_error(
            "collective.server",
            "every host runs a worker, so none is free for the parameter server",
            "use a larger topology or fewer workers",
        )
    names = [node for node, is_host in zip(network.nodes, network.is_host, strict=True) if is_host]
    if name not in names:
        hint = did_you_mean(name, names)
        raise location.job_error(
            "collective.server",
            f"there is no host {name!r}",
            f"{hint}there are {len(names)} hosts, from {names[0]!r} to {names[-1]!r}",
        )
    if occupied.owner(name) is not None:
        raise location.job_error(
            "collective.server", f"host {name!r} runs a worker", "name a host without one, or use auto"
        )
    return AtpServer(
        network.nodes.index(name),
        entries,
        window,
        route,
    )


# The retransmission timers of a job on switches.


def with_timeouts(
    section: InNetworkSection, location: Location, network: Network, jobs: tuple[Job, ...]
) -> tuple[Job, ...]:
    """The trees with their timeouts, checked against the round trip of full windows.

    Raises
    ------
    ScenarioError
        A timeout is too short, or longer than the longest.
    """
    job = jobs[0]
    if job.program.timeouts is None:
        return tuple(_with_sender(tree, timeout_max_ps=0) for tree in jobs)
    size_bytes = job.frame.wire_bytes(job.lanes * job.frame.elements, first=True, last=True)
    window = Window(job.frame, job.slots_count, size_bytes)
    trip_ps = full_window_trip_ps(network, job_traffic(network, *jobs), window)
    is_auto, first_timeout_ps = section.timeout == AUTO, section.first_timeout
    if isinstance(section.timeout, int):
        timeout_ps = section.timeout
    elif is_auto:
        timeout_ps = job.slot_timer_ps + auto_timeout_ps(trip_ps)
    else:
        timeout_ps = max(job.program.timeouts.usual_ps, 2 * trip_ps)
    if first_timeout_ps is None:
        first_timeout_ps = timeout_ps if is_auto else max(timeout_ps, job.program.timeouts.first_ps)
    longest_ps = section.timeout_max
    if is_auto and "timeout_max" not in section.model_fields_set:
        longest_ps = timeout_ps << (BACKOFF_MAX if job.program.timeouts.doubles else 0)
    check_timeout(location, "timeout", timeout_ps, trip_ps)
    check_timeout(location, "first_timeout", first_timeout_ps, trip_ps)
    _check_timeout_max(section, location, timeout_ps)
    return tuple(
        _with_sender(
            tree,
            timeout_ps=timeout_ps,
            first_timeout_ps=first_timeout_ps,
            timeout_max_ps=max(timeout_ps, longest_ps),
            waits_for_loss=is_auto,
        )
        for tree in jobs
    )


def _with_sender(job: Job, **changes: Any) -> Job:
    return dataclasses.replace(job, sender=dataclasses.replace(job.sender, **changes))


def _check_timeout_max(section: InNetworkSection, location: Location, timeout_ps: int) -> None:
    """Reject an explicit timeout_max below the timeout; the default is raised instead."""
    if "timeout_max" not in section.model_fields_set or section.timeout_max >= timeout_ps:
        return
    timeout_max, timeout = TIME.format(section.timeout_max), TIME.format(timeout_ps)
    origin = f" ({section.timeout})" if isinstance(section.timeout, str) else ""
    raise location.job_error(
        "collective.timeout_max",
        f"{timeout_max} is less than timeout, {timeout}{origin}",
        f"use {timeout} or more, or a timeout of {timeout_max} at most",
    )


# Resolves aggregation in switches: checks the section, places the job, and makes its plan.


RING_FRAME = "roce-1024"  # default frame of a ring, for the comparison
_ENOUGH = 2**30  # slots, for any round trip


def tree_route(seed: int, job: int, number: int) -> int:
    """The key of all paths of one of several trees: consecutive ones take equal paths in turn."""
    all_workers = 0
    first = mix_plain(seed, rng_streams.SWITCH_ROUTE, job, all_workers) >> 33
    return planned_key((first + number) % 2**31)


@dataclasses.dataclass(frozen=True)
class PlacedJob:
    """A placed job of a switch program, and the codec adapted to the network."""

    jobs: tuple[Job, ...]  # one per tree
    codec: Codec
    passes: tuple[int, int]
    """Passes at the root."""
    warnings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class InNetworkResolver:
    """Resolves one job's collective."""

    job: JobContext
    switches: Switches
    section: InNetworkSection

    def resolve(self) -> PlacedJob:
        """The job.

        Raises
        ------
        ScenarioError
            No switch can run the program or has room for it, a merge is unsupported, a timeout is too
            short, or the codec does not support this number of workers.
        """
        self._check_codec()
        if isinstance(self.section.slots, int):
            self._check_slots(self.section.slots)
        refused = []
        for candidate in self._candidates():
            switches = self.switches.copy()
            try:
                placed_job = (
                    dataclasses.replace(self, switches=switches)._with_slots(candidate)._place(candidate)
                )
            except ScenarioError as error:
                refused.append((candidate, error))
                continue
            self.switches.adopt(switches)
            return dataclasses.replace(placed_job, warnings=self._warnings(placed_job.jobs))
        raise none_fits(refused)

    def _check_slots(self, slots: int) -> None:
        """Reject a number that messages and trees do not divide."""
        section = self.section
        if section.trees > 1 and slots < section.trees * section.message_packets:
            raise self.job.location.job_error(
                "collective.trees",
                f"{slots} slots cannot be divided among {section.trees} trees in whole messages of "
                f"{section.message_packets} packets",
                f"use {slots // section.message_packets} trees at most, or more collective.slots",
            )
        if slots % section.message_packets:
            raise self.job.location.job_error(
                "collective.slots",
                f"{slots} slots cannot be divided into messages of {section.message_packets} packets",
                f"use a multiple of {section.message_packets}",
            )

    def _with_slots(self, candidate: Candidate) -> InNetworkResolver:
        """With a number of slots: if the scenario leaves it open, what a place needs and its switches hold.

        What is needed depends on further passes, which are known when a job has one unit.
        """
        section = self.section
        if section.slots != AUTO:
            return self
        size = section.message_packets
        trial = self._of_slots(section.trees * size)
        trial = dataclasses.replace(trial, switches=self.switches.copy())
        jobs = trial._reserve(candidate)[0]
        needed = slots_needed(trial.switches.network, *jobs)
        wanted = self._of_slots(section.trees * needed)
        room = self.switches.room(wanted._request(candidate), candidate.trees)
        return self._of_slots(section.trees * max(size, room // size * size))

    def _of_slots(self, slots: int) -> InNetworkResolver:
        return dataclasses.replace(self, section=self.section.model_copy(update={"slots": slots}))

    def _candidates(self) -> Candidates:
        graph, nodes = self.job.site.graph, self.job.nodes
        shapes = Shapes(graph, self.switches, self.section, nodes, self._tree_route, self._job)
        return Candidates(shapes, self.job.location)

    def _warnings(self, jobs: tuple[Job, ...]) -> tuple[str, ...]:
        """Warnings if streams crowd on few links, and, with a remedy, if a ring would be faster."""
        hosts = jobs[0].hosts
        if len(hosts) == 1:
            return ()
        network, seed = self.switches.network, self.job.location.scenario.seed
        streams = [(job.switch, *stream) for job in jobs for stream in zip(hosts, job.routes, strict=True)]
        paths = [path(network, host, switch, route) for switch, host, route in streams]
        hashed = [way for way, (*_, route) in zip(paths, streams, strict=True) if route >= 0]
        crowded = (*crowding_warnings(network, hashed), *port_warnings(network, paths))
        section: Any = collectives()["ring"].section(kind="ring")
        outline = section.outline(len(hosts))
        routed = Routed.by_seed(outline, network, hosts, seed, self.job.index)
        ring = pace_of(routed, frame_of(RING_FRAME))
        pace = job_pace(network, *jobs)
        if not is_ring_faster(pace, ring, self.job.elements):
            return crowded
        return (
            *crowded,
            slower_than_ring(pace, ring, network, self.job.elements, self._remedy(pace, ring)),
        )

    def _remedy(self, pace: Pace, ring: Pace) -> str:
        """The change that makes the job no slower than a ring."""
        section = self.section
        closed = [key for key in ("aggregators", "switch") if getattr(section, key) != "auto"]
        for keys in (*([key] for key in closed), *([closed] if len(closed) > 1 else [])):
            open_section = section.model_copy(update=dict.fromkeys(keys, "auto"))
            fastest = next(iter(dataclasses.replace(self, section=open_section)._candidates()))
            best = fastest.pace.elements_per_s
            if best > max(ring.elements_per_s, pace.elements_per_s):
                changes = " and ".join(f"collective.{key}: auto" for key in keys)
                return f"use {changes} ({best / 1e9:.3g} G)"
        if pace.is_windowed and section.slots != AUTO:
            return "use more collective.slots"
        return "use collective: {kind: ring}"

    def _place(self, candidate: Candidate) -> PlacedJob:
        """The job at one candidate place; raises like `resolve`."""
        jobs, fit = self._reserve(candidate)
        jobs = with_timeouts(self.section, self.job.location, self.switches.network, jobs)
        self._check_multicast(jobs)
        codec = self.job.codec.carried_by(window_carrier(self.switches.network, jobs, self.job.device))
        return PlacedJob(jobs, codec, (fit.packet_passes, fit.read_passes))

    def _reserve(self, candidate: Candidate) -> tuple[tuple[Job, ...], Fit]:
        """The trees of the job with their slots and loopback links, and the fit at the first root."""
        request = self._request(candidate)
        places = [self.switches.reserve(request, tree) for tree in candidate.trees]
        jobs = tuple(
            dataclasses.replace(
                self._job(tree, number, allocation.slot_base, allocation.loopback_links),
                overflow=Overflow[request.overflow.upper()],
            )
            for number, (tree, allocation) in enumerate(zip(candidate.trees, places, strict=True))
        )
        return jobs, places[0].fit

    def _request(self, candidate: Candidate) -> SwitchRequest:
        """What each tree asks of its switches; raises if the codec does not support so many workers."""
        section, codec, overflow = self.section, self.job.codec, self._overflow(candidate.root)
        may_wrap = not section.spec.only_overflow
        check_workers(self.job.location, self.job.codec, len(self.job.hosts), overflow, may_wrap=may_wrap)
        return SwitchRequest(
            self.job.location,
            section,
            Demand(
                workers=1,
                slots=self._slots,
                words=frame_of(section.frame).elements,
                header_bytes=custom_header_bytes(section.frame),
                lane_bits=codec.lane_bits,
                is_lifted=Merge.TABLE_ADD in codec.merges,
                may_be_absent=codec.may_be_absent,
            ),
            codec.merges,
            overflow,
            candidate.pace.busiest.stream_bps,
            codec.instead,
        )

    @property
    def _slots(self) -> int:
        # Those of one tree, in whole messages. Where the scenario leaves the number open, places are compared
        # as with as many as they need.
        size = self.section.message_packets
        slots = self.section.slots if isinstance(self.section.slots, int) else _ENOUGH
        return slots // (self.section.trees * size) * size

    def _check_multicast(self, jobs: tuple[Job, ...]) -> None:
        """Reject `multicast: on` where a switch cannot copy packets at which results would split."""
        if self.section.multicast != "on":
            return
        for job in jobs:
            for split in with_splits(self.switches.network, job, lambda _: True).splits:
                if not self.switches.profile_of(split.switch).multicast:
                    name = self.switches.network.nodes[split.switch]
                    raise self.job.location.job_error(
                        "collective.multicast",
                        f"switch {name} (profile {self.switches.profiles[name].name!r}) cannot copy "
                        "results that split there",
                        "use multicast: auto, or a switch profile with multicast",
                    )

    def _check_codec(self) -> None:
        codec, program = self.job.codec, self.section.spec
        if not program.is_all_or_nothing and not codec.is_linear:
            raise self.job.location.job_error(
                "codec",
                f"codec {codec.kind!r} cannot decode the sum of only some workers' messages, "
                f"which program {program.name} may deliver",
                f"{_other_programs(codec)}, or codec fixed_point with a factor, for example "
                "{kind: fixed_point, factor: 1e6}",
            )
        check_absence(self.job.location, codec, f"program {program.name}", program.carries_absence)
        able = codec.merges if program.merges is None else program.merges
        if refused := sorted(merge.value for merge in codec.merges - able):
            raise self.job.location.job_error(
                "codec",
                f"codec {codec.kind!r} needs {', '.join(refused)}, which program {program.name} cannot do "
                f"(it does {', '.join(sorted(merge.value for merge in able))})",
                f"{_other_programs(codec)}, or codec fixed_point with a factor, for example "
                "{kind: fixed_point, factor: 1e6}",
            )

    def _route(self, source: int, target: int) -> int:
        return flow_key_plain(self.job.location.scenario.seed, self.job.index, source, target)

    def _tree_route(self, number: int) -> int:
        return tree_route(self.job.location.scenario.seed, self.job.index, number)

    def _overflow(self, root: str) -> str:
        """The overflow policy of the root, and so of all switches below it."""
        if self.section.overflow != "auto":
            return self.section.overflow
        usual = next(iter(self.switches.profiles[root].overflows), "wrap")
        return self.section.spec.overflow or usual

    def _job(
        self, tree: AggregationTree, number: int = 0, slot_base: int = 0, loopbacks: tuple[int, ...] = ()
    ) -> Job:
        """The job of a tree, the `number`-th of several in parallel; all its paths have the same key."""
        section, network = self.section, self.switches.network
        numbers = {name: node for node, name in enumerate(network.nodes)}
        links = loopbacks or (-1,) * len(tree.switches)
        below = range(1, len(tree.switches))
        is_tree = (
            bool(below)
            or section.aggregators not in ("auto", "one")
            or section.trees > 1
            or section.multicast != "off"
        )
        job = Job(
            hosts=tuple(map(numbers.__getitem__, self.job.hosts)),
            switch=tree.switches[0],
            slot_base=slot_base,
            unit_packets=section.message_packets,
            sender=Sender(
                with_members(frame_of(section.frame))
                if self.job.codec.may_be_absent
                else frame_of(section.frame),
                self._slots,
                timeout_ps=0,
                timeout_max_ps=section.timeout_max,
                policy=AIMD if section.spec.has_server and section.option("adaptive") else FIXED,
                ecn_bytes=section.option("ecn_threshold") if section.spec.has_server else -1,
            ),
            routes=tuple(
                self._tree_route(number) if is_tree else self._route(worker, SWITCHES)
                for worker in range(len(self.job.hosts))
            ),
            loopback_link=links[0],
            program=section.spec,
            branches=tuple(
                Branch(tree.switches[i], tree.parents[i], links[i], self._tree_route(number)) for i in below
            ),
            homes=tree.homes if below else (),
            slot_timer_ps=section.option("slot_timer") if section.spec.has_timers else 0,
            lanes=max(
                (words_per_word(merge, self.job.codec.lane_bits) for merge in self.job.codec.merges),
                default=1,
            ),
            server=self._server(),
        )
        if section.multicast == "off":
            return job
        return with_splits(network, job, lambda node: self.switches.profile_of(node).multicast)

    def _server(self) -> AtpServer | None:
        """The parameter server, if the program has one; raises like `resolve`."""
        if not self.section.spec.has_server:
            return None
        network, occupied = self.switches.network, self.job.site.occupied
        route = self._route(SWITCHES, len(self.job.hosts))
        return resolve_server(self.section, self.job.location, network, occupied, route)


def _other_programs(codec: Codec) -> str:
    """The programs that carry a codec where the switch does its merges, as a hint."""
    names = names_of(
        lambda spec: (
            (spec.is_all_or_nothing or codec.is_linear)
            and (spec.merges is None or codec.merges <= spec.merges)
            and (spec.carries_absence or not codec.may_be_absent)
        )
    )
    return f"use program {' or '.join(names)}" if names else "use a collective between hosts"
