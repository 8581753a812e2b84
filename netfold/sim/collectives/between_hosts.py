"""Common parts of collectives between hosts: keys, how they are resolved, and closed forms.

Such a collective is a schedule: which worker sends which chunk to which other, and where chunks are merged.
`ClosedForm` describes it in numbers; `host_messages.py` runs it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator

from netfold.errors import shown
from netfold.homomorphic.codec import Carrier
from netfold.sim.collectives.collective import (
    CollectiveSection,
    JobContext,
    Resolved,
    ScheduleSize,
    Steps,
    check_workers,
    fitted,
)
from netfold.sim.engine.interface import BACKOFF_MAX, NONE, Frame, Schedule
from netfold.sim.keys import AutoTime, Count, HostFrame, Location, Size
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
from netfold.sim.workload.hardware import Device, memory_bps
from netfold.topologies.network import Network, flow_key_plain, path, shares
from netfold.units import PS_PER_S, SIZE, TIME

# Timeouts from the round trip: a timer that expires without loss floods the network with copies.


AUTO = "auto"
AUTO_LEAST_PS = TIME.parse("20us")
AUTO_TRIPS = 4  # a full window, twice as long because of another such job, and twice that to be sure
AUTO_MEANING = (
    f"{AUTO_TRIPS} round trips of a full window on the idle network and at least "
    f"{TIME.format(AUTO_LEAST_PS)}, and nothing is sent again while nothing was lost, whoever is late"
)


def auto_timeout_ps(trip_ps: int) -> int:
    """The timeout for a full window's round trip on the idle network."""
    return max(AUTO_LEAST_PS, AUTO_TRIPS * trip_ps)


def all_windows_trip_ps(network: Network, stages: Sequence[tuple[Traffic, int]], window: Window) -> int:
    """The round trip of a collective between hosts, of whose stages each pair has so many windows under way.

    A host goes on to its next partner before what it has sent is acknowledged. So the windows of all pairs
    whose paths share a link, in whatever stage, may wait there one behind the other.
    """
    load = defaultdict[int, float](float)
    for traffic, windows in stages:
        for link, count in traffic.load.items():
            load[link] += windows * count
    paths = tuple(path for traffic, _ in stages for path in traffic.paths)
    return full_window_trip_ps(network, Traffic(paths, load), window)


def check_timeout(
    location: Location, key: str, timeout_ps: int, trip_ps: int, window_key: str = "slots"
) -> None:
    """Reject timeouts that are not longer than a full window's round trip; `key` is the timeout's key.

    Raises
    ------
    ScenarioError
        The timeout is too short.
    """
    if timeout_ps <= trip_ps:
        raise location.job_error(
            f"collective.{key}",
            f"{TIME.format(timeout_ps)} is too short: a full window's round trip takes "
            f"{TIME.rough(trip_ps)} on the idle network, so packets would be sent again without need",
            f"use more than {TIME.rough(trip_ps)}, or a smaller window (collective.{window_key})",
        )


def _holds_a_word(value: int) -> int:
    if value < WORD_BYTES:
        raise ValueError(f"must be at least {WORD_BYTES}B, found {shown(SIZE.format(value))}")
    return value


Chunk = Annotated[Size, AfterValidator(_holds_a_word)]
KeyOf = Callable[[int, int, int], int]
"""The key of a flow, from its sender, receiver and channel."""
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
class ClosedForm:
    """A collective between hosts, as a plan needs it."""

    kind: str
    steps: Callable[[int], Steps]
    """The numbers of its schedule, for some number of workers."""
    size: Callable[[int], ScheduleSize] | None = None
    """The size of its schedule, for some number of workers; None: the engine carries out none."""

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
    round_ps = steps.hops * packet_ps + steps.merges * merge_ps  # time of one packet of every chunk
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


# Builds schedules from columns: what several collectives need to write theirs as NumPy arrays.


Ints = NDArray[np.int64]


@dataclass
class Transfers:
    """Transfers of a schedule that is being built; each has the number of those added before it."""

    workers: int
    chunks: int
    count: int = 0
    _columns: list[tuple[Ints, ...]] = field(default_factory=list)
    _merges: list[NDArray[np.bool_]] = field(default_factory=list)
    _waits: list[tuple[Ints, Ints]] = field(default_factory=list)

    def add(
        self,
        pairs: tuple[Ints, Ints],
        cells: tuple[Ints | int, Ints | int],
        *,
        merges: bool | NDArray[np.bool_],
        follows: Ints | int = NONE,
        lane: Ints | int = NONE,
    ) -> Ints:
        """Add transfers (sources, targets) of cells (first, count); returns their numbers."""
        size = pairs[0].size
        shaped = (np.broadcast_to(np.asarray(one, np.int64), size) for one in (*pairs, *cells, follows, lane))
        self._columns.append(tuple(shaped))
        self._merges.append(np.broadcast_to(np.asarray(merges, np.bool_), size))
        numbers = np.arange(self.count, self.count + size, dtype=np.int64)
        self.count += size
        return numbers

    def wait(self, waiting: Ints, awaited: Ints) -> None:
        """Let each transfer wait for another; for NONE of −1."""
        known = awaited >= 0
        self._waits.append((waiting[known], awaited[known]))

    def schedule(self, step: Ints | None = None, channel: Ints | int = 0) -> Schedule:
        """The schedule; `step` is by default the number of a transfer, and `channel` the same for all."""
        columns = [np.concatenate(one) for one in zip(*self._columns, strict=True)] or [_NO_INTS] * 6
        source, target, first, count, follows, lane = columns
        waits_first, waits_for = _grouped(self._waits, self.count)
        return Schedule(
            workers=self.workers,
            chunks=self.chunks,
            source=source.astype(np.int32),
            target=target.astype(np.int32),
            first=first.astype(np.int32),
            count=count.astype(np.int32),
            merges=np.concatenate(self._merges) if self._merges else np.empty(0, np.bool_),
            step=np.arange(self.count, dtype=np.int64) if step is None else step,
            follows=follows.astype(np.int32),
            lane=lane.astype(np.int32),
            waits_first=waits_first,
            waits_for=waits_for,
            channel=np.broadcast_to(np.asarray(channel, np.int32), self.count),
        )


_NO_INTS = np.empty(0, np.int64)


def _grouped(waits: Sequence[tuple[Ints, Ints]], count: int) -> tuple[Ints, NDArray[np.int32]]:
    """What is awaited, in the order of those that wait, and where each one's begin."""
    waiting = np.concatenate([one for one, _ in waits] or [_NO_INTS])
    awaited = np.concatenate([one for _, one in waits] or [_NO_INTS])
    if np.any(waiting[1:] < waiting[:-1]):
        order = np.argsort(waiting, kind="stable")
        waiting, awaited = waiting[order], awaited[order]
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(waiting, minlength=count), out=first[1:])
    return first, awaited.astype(np.int32)
