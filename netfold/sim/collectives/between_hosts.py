"""Common parts of collectives between hosts: keys, how they are resolved, and closed forms.

Such a collective is a schedule: which worker sends which chunk to which other, and where chunks are merged.
`Schedule` describes it in numbers; `host_messages.py` runs it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar

from pydantic import AfterValidator

from netfold.errors import shown
from netfold.homomorphic.codec import Carrier
from netfold.sim.collectives.closed_form import ScheduleSize, Steps
from netfold.sim.collectives.collective import CollectiveSection, JobContext, Resolved, check_workers, fitted
from netfold.sim.collectives.timeouts import AUTO, all_windows_trip_ps, auto_timeout_ps, check_timeout
from netfold.sim.engine.interface import BACKOFF_MAX, Frame
from netfold.sim.keys.fields import AutoTime, Count, Size
from netfold.sim.keys.frame import HostFrame
from netfold.sim.plan.idle_network import (
    Busiest,
    Pace,
    Traffic,
    Window,
    WorkerPath,
    busiest_link,
    crowding_warnings,
    full_window_trip_ps,
    one_way_ps,
    packet_rate_bps,
    words_per_s,
)
from netfold.sim.plan.plan import CollectivePlan, frame_of, with_members
from netfold.sim.workload.device_model import Device, memory_bps
from netfold.topologies.network import Network, flow_key_plain, path, shares
from netfold.units import PS_PER_S, SIZE, TIME


def _holds_a_word(value: int) -> int:
    if value < WORD_BYTES:
        raise ValueError(f"must be at least {WORD_BYTES}B, found {shown(SIZE.format(value))}")
    return value


Chunk = Annotated[Size, AfterValidator(_holds_a_word)]
KeyOf = Callable[[int, int, int], int]  # of a flow: its sender, receiver and channel
WORD_BYTES = 4
_HELD_BYTES = 12  # per element: chunks in flight and joined, of all workers together
_SAMPLE_BYTES = 10**9


class HostSection(CollectiveSection):
    """Keys of every collective between hosts: how it sends its messages."""

    recorded_always: ClassVar[tuple[str, ...]] = ("frame", "window")

    kind: str
    frame: HostFrame = "roce-1024"
    """Packet format: protocol and payload bytes, or a custom one such as {words: 256, overhead: 82B}."""
    window: Count = 512
    """Packets a host may have outstanding to another host."""
    timeout: AutoTime = "auto"
    """Retransmission timeout. auto: 4 round trips of all windows, at least 20us; never without loss."""
    ack_every: Count = 16
    """Packets per acknowledgement."""


@dataclass(frozen=True, kw_only=True)
class HostPlan(CollectivePlan):
    """A collective over reliable messages between hosts."""

    ack_every: int


class ChunkedSection(HostSection):
    """Keys of collectives whose hosts pass on messages chunk by chunk."""

    chunk: Chunk = SIZE.parse("64KiB")
    """Payload that a host receives before it merges or forwards it; 64KiB take about 5us at 100Gbps."""

    @property
    def chunk_words(self) -> int:
        """Words of a chunk."""
        return self.chunk // WORD_BYTES

    @property
    def warnings(self) -> tuple[str, ...]:
        """A warning if a connection cannot send a chunk while the one before is on its way."""
        packets = -(-self.chunk_words // frame_of(self.frame).elements)
        if 2 * packets <= self.window:
            return ()
        return (
            f"a chunk of {SIZE.format(self.chunk)} is {packets} packets, more than half of a window of "
            f"{self.window}: a connection waits for the delivery of every chunk; use a smaller "
            "collective.chunk, or a larger collective.window",
        )


@dataclass(frozen=True, kw_only=True)
class ChunkedPlan(HostPlan):
    """A collective whose hosts pass on messages chunk by chunk."""

    chunk_words: int


@dataclass(frozen=True)
class Schedule:
    """A collective between hosts, as a plan needs it."""

    kind: str
    steps: Callable[[int], Steps]  # for a number of workers
    size: Callable[[int], ScheduleSize] | None = None  # of its transfers; None: the engine carries out none

    def resolve(self, section: HostSection, job: JobContext) -> Resolved:
        """The plan of a job's collective.

        Raises
        ------
        ScenarioError
            More workers than the codec supports, a window smaller than `ack_every`, a timeout that is too
            short.
        """
        return self.resolve_on(section, job, job.nodes)

    def resolve_on(
        self,
        section: HostSection,
        job: JobContext,
        nodes: Sequence[int],
        make_plan: Callable[..., HostPlan] = HostPlan,
    ) -> Resolved:
        """As `resolve`, on the nodes of workers and servers, which the pairs of the schedule index.

        `make_plan` takes the fields of a `HostPlan`.
        """
        self._check(section, job)
        network, frame = job.site.network, frame_of(section.frame)
        if job.codec.may_be_absent:
            frame = with_members(frame, len(job.hosts), per_packet=False)
        steps, seed = self.steps(len(job.nodes)), job.location.scenario.seed
        key_of = partial(flow_key_plain, seed, job.index)
        window = Window(frame, section.window, frame.ack_bytes)
        stages = [(one, traffic_of(network, nodes, one.flows, key_of)) for one in steps.stages]
        trip_ps = max(full_window_trip_ps(network, traffic, window) for _, traffic in stages)
        sent = [(traffic, one.windows * job.buckets_in_flight) for one, traffic in stages]
        auto_ps = auto_timeout_ps(all_windows_trip_ps(network, sent, window))
        timeout_ps = section.timeout if isinstance(section.timeout, int) else auto_ps
        check_timeout(job.location, "timeout", timeout_ps, trip_ps, "window")
        plan = make_plan(
            kind=self.kind,
            frame=frame,
            window=section.window,
            timeout_ps=timeout_ps,
            timeout_max_ps=timeout_ps << BACKOFF_MAX,
            waits_for_loss=section.timeout == AUTO,
            held_bytes=_HELD_BYTES,
            tables_bytes=self._tables_bytes(len(job.hosts)),
            settled={"timeout": TIME.format(timeout_ps)},
            ack_every=section.ack_every,
        )
        carriers = [carrier_of(network, traffic, frame, job.device, one) for one, traffic in stages]
        carrier = in_turn(carriers)
        if steps.overlaps:
            words_s = pace_of(network, nodes, steps, key_of, frame).elements_per_s
            carrier = replace(carrier, rate_bps=max(1, round(32 * words_s)))
        ways = {
            flow: way.there
            for stage, traffic in stages
            for flow, way in zip(stage.flows, traffic.paths, strict=True)
        }
        told = () if network.policy.is_for_hosts_alone else crowding_warnings(network, ways.values())
        return Resolved(plan, fitted(job.codec, carrier), warnings=told)

    def _tables_bytes(self, workers: int) -> int:
        """Memory of the tables of its schedule."""
        return 0 if self.size is None or workers == 1 else self.size(workers).tables_bytes(workers)

    def _check(self, section: HostSection, job: JobContext) -> None:
        """Check workers and window, which need no network."""
        location = job.location
        check_workers(location, job.codec, len(job.hosts), "wrap")
        if section.window < section.ack_every:
            raise location.job_error(
                "collective.window",
                f"a window of {section.window} packets is smaller than ack_every, {section.ack_every}: "
                "it would be full before an acknowledgement is sent",
                f"use at least {section.ack_every}",
            )

    def pace(self, network: Network, nodes: Sequence[int], seed: int, job: int, frame: Frame) -> Pace:
        """Closed form for dense words: hops one after the other, each with one chunk."""
        return pace_of(network, nodes, self.steps(len(nodes)), partial(flow_key_plain, seed, job), frame)


def pace_of(network: Network, nodes: Sequence[int], steps: Steps, key_of: KeyOf, frame: Frame) -> Pace:
    """Closed form of a schedule for dense words on an idle network.

    Stages take their times one after the other. If they overlap, the link on which they put the most, all
    together, says how long they take.
    """
    if steps.overlaps:
        return _overlapping_pace(network, nodes, steps, key_of, frame)
    paces = [_stage_pace(network, nodes, stage, key_of, frame) for stage in steps.stages]
    if len(paces) == 1:
        return paces[0]
    slowest = min(paces, key=lambda pace: pace.elements_per_s)
    elements_per_s = 1 / sum(1 / pace.elements_per_s for pace in paces)
    return Pace(elements_per_s, sum(pace.latency_ps for pace in paces), slowest.busiest)


def _stage_pace(network: Network, nodes: Sequence[int], steps: Steps, key_of: KeyOf, frame: Frame) -> Pace:
    """The same of one stage."""
    traffic = traffic_of(network, nodes, steps.flows, key_of)
    busiest = busiest_link(network, traffic.load, frame)
    packet_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
    on_the_wire = words_per_s(frame, busiest.rate_bps / busiest.streams)
    latency_ps = (steps.trips or steps.hops) * one_way_ps(network, traffic, packet_bytes)
    latency_ps += _wait_ps(network, traffic, steps, frame)
    return Pace(on_the_wire * steps.chunks / steps.hops, latency_ps, busiest)


def _overlapping_pace(
    network: Network, nodes: Sequence[int], steps: Steps, key_of: KeyOf, frame: Frame
) -> Pace:
    """The same of stages that are under way at the same time."""
    packet_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
    parts, streams, latency_ps = dict[int, float](), dict[int, float](), 0
    for stage in steps.stages:
        traffic = traffic_of(network, nodes, stage.flows, key_of)
        latency_ps += (stage.trips or stage.hops) * one_way_ps(network, traffic, packet_bytes)
        latency_ps += _wait_ps(network, traffic, stage, frame)
        for link, count in traffic.load.items():
            streams[link] = streams.get(link, 0.0) + count
            parts[link] = parts.get(link, 0.0) + count * stage.share
    rates_bps = {link: packet_rate_bps(network, link, packet_bytes) for link in parts}
    slowest = max(parts, key=lambda link: parts[link] / rates_bps[link])
    elements_per_s = words_per_s(frame, rates_bps[slowest]) / parts[slowest]
    return Pace(elements_per_s, latency_ps, Busiest(slowest, streams[slowest], rates_bps[slowest]))


def _wait_ps(network: Network, traffic: Traffic, steps: Steps, frame: Frame) -> int:
    """How long those after the first wait for words that are passed on as one."""
    if not steps.passed_words or not traffic.load:
        return 0
    slowest_bps = busiest_link(network, dict.fromkeys(traffic.load, 1), frame).rate_bps
    trips = (steps.trips or steps.hops) - 1
    return round(trips * steps.passed_words / words_per_s(frame, slowest_bps) * PS_PER_S)


def traffic_of(
    network: Network, nodes: Sequence[int], flows: Iterable[tuple[int, int, int]], key_of: KeyOf
) -> Traffic:
    """Paths of messages that hosts send at the same time; acknowledgements delay no messages."""
    paths, load = [], defaultdict[int, float](int)
    for sender, receiver, channel in flows:
        source, target, key = nodes[sender], nodes[receiver], key_of(sender, receiver, channel)
        there = path(network, source, target, key)
        back = path(network, target, source, key_of(receiver, sender, channel))
        paths.append(WorkerPath(tuple(there), (), tuple(back)))
        for link, share in shares(network, source, target, key).items():
            load[link] += share
    return Traffic(tuple(paths), dict(load))


def carrier_of(network: Network, traffic: Traffic, frame: Frame, device: Device, steps: Steps) -> HostCarrier:
    """The network as codecs that choose by it see it, for one stage of a schedule."""
    packet_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
    links = [(link, count) for link, count in traffic.load.items() if count]
    rates_bps = (packet_rate_bps(network, link, packet_bytes) / count for link, count in links)
    rate_bps = min(rates_bps, default=float(PS_PER_S))
    header_bytes = packet_bytes - 4 * frame.elements  # the last packet is cut to its words
    packet_ps = 8 * packet_bytes * PS_PER_S / rate_bps
    merge_ps = device.work_ps(2 * _SAMPLE_BYTES, _SAMPLE_BYTES) / _SAMPLE_BYTES * 4 * frame.elements
    round_ps = steps.hops * packet_ps + steps.merges * merge_ps  # of a packet of every chunk
    return HostCarrier(
        latency_ps=max(1, (steps.trips or steps.hops) * one_way_ps(network, traffic, header_bytes)),
        rate_bps=max(1, round(32 * steps.chunks * frame.elements / max(1.0, round_ps) * PS_PER_S)),
        memory_bps=memory_bps(device),
    )


@dataclass(frozen=True, kw_only=True)
class HostCarrier(Carrier):
    """A carrier of collectives between hosts: each message of an operation waits for the one before."""

    def plain_ps(self, messages: Sequence[int]) -> int:
        """The time of messages with these numbers of words."""
        return sum(self.latency_ps + self.words_ps(words) for words in messages if words)


def in_turn(carriers: Sequence[HostCarrier]) -> HostCarrier:
    """The carrier of words that several carry one after the other."""
    if len(carriers) == 1:
        return carriers[0]
    rate_bps = 1 / sum(1 / one.rate_bps for one in carriers)
    latency_ps = sum(one.latency_ps for one in carriers)
    return replace(carriers[0], latency_ps=latency_ps, rate_bps=max(1, round(rate_bps)))
