"""Latency inside switches, and closed forms of the idle network: round trips, bottlenecks, throughput."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from netfold.homomorphic.codec import Codec
from netfold.sim.engine.engine_data import Frame, Job, Overflow
from netfold.sim.engine.tree_paths import down_paths
from netfold.sim.plan.plan import CollectivePlan, JobPlan, Reference
from netfold.sim.workload.device_rooflines import memory_bps
from netfold.switch.profiles import Profile
from netfold.topologies.network import Network, equal_shares, nodes_of, path
from netfold.topologies.routing import Policy
from netfold.units import PS_PER_S, TIME, transmit_time_ps

NO_LIMIT_BYTES = 2**62


class WorkerPath(NamedTuple):
    """Links from a worker to where its packets are answered, loopback links of switches, and links back."""

    outbound: tuple[int, ...]
    inside: tuple[int, ...]
    back: tuple[int, ...]


class Traffic(NamedTuple):
    """The path of every worker, and how many packets each link carries per packet of a window."""

    paths: tuple[WorkerPath, ...]
    load: Mapping[int, float]  # fractions where packets are sprayed over paths


class Window(NamedTuple):
    """The packets that are sent at once on every path."""

    frame: Frame
    packets: int
    answer_bytes: int


def link_time_ps(network: Network, link: int, size_bytes: int, *, starts_message: bool = True) -> int:
    """Time of one packet on an idle link; inside a host that sends, of the first packet of a message."""
    work_ps = network.work_ps(link, starts_message=starts_message)
    return transmit_time_ps(size_bytes, int(network.rate_bps[link])) + work_ps


def packet_rate_bps(network: Network, link: int, size_bytes: int, message_packets: int = 0) -> int:
    """Bits of such packets that a link passes in a second: its rate, or less inside a host.

    `message_packets` are those of one message; 0 leaves out what messages take.
    """
    rate_bps = int(network.rate_bps[link])
    work_ps: float = network.work_ps(link)
    if message_packets:
        work_ps += (network.work_ps(link, starts_message=True) - work_ps) / message_packets
    if not work_ps:
        return rate_bps
    return max(1, int(8 * size_bytes * PS_PER_S / (transmit_time_ps(size_bytes, rate_bps) + work_ps)))


def with_pass_latency(network: Network, profiles: dict[str, Profile]) -> Network:
    """Add the switch's pass latency to the delay of every link into a switch."""
    latency = [profiles[name].pass_latency_ps if name in profiles else 0 for name in network.nodes]
    delay_ps = network.delay_ps + np.array(latency, np.int64)[network.link_target]
    return dataclasses.replace(network, delay_ps=delay_ps)


def with_loopback(network: Network, name: str, kind: Profile, passes: int) -> tuple[Network, int]:
    """Append a link from a switch to itself for packets with further passes; (network, −1) without any."""
    if passes == 0:
        return network, -1
    node = np.int32(network.nodes.index(name))
    extended = dataclasses.replace(
        network,
        link_names=(*network.link_names, f"{name}->{name}"),
        link_source=np.append(network.link_source, node),
        link_target=np.append(network.link_target, node),
        rate_bps=np.append(network.rate_bps, np.int64(kind.loopback_rate_bps)),
        delay_ps=np.append(network.delay_ps, np.int64(passes * kind.pass_latency_ps)),
        buffer_bytes=np.append(network.buffer_bytes, network.buffer_bytes.max()),
    )
    return extended, len(network.link_names)


def without_drops(network: Network) -> Network:
    # Buffers never fill, as in a lossless fabric with credits.
    return dataclasses.replace(network, buffer_bytes=np.full_like(network.buffer_bytes, NO_LIMIT_BYTES))


def job_traffic(network: Network, *trees: Job) -> Traffic:
    """Traffic of a job on switches: workers to points, points to parents, root to server, and back.

    A job may have several trees, each with a share of its words.
    """
    traffics = [_traffic_of(network, tree) for tree in trees]
    load: Counter[int] = Counter()
    for traffic in traffics:
        load.update(traffic.load)
    return Traffic(tuple(way for each in traffics for way in each.paths), load)


_TRAFFIC: WeakKeyDictionary[Network, dict[Any, Traffic]] = WeakKeyDictionary()
_TREES_MAX = 8  # of a network, whose traffic is kept: bounds, paces, timeouts and slots ask for the same


def _traffic_of(network: Network, job: Job) -> Traffic:
    kept = _TRAFFIC.setdefault(network, {})
    tree = (job.hosts, job.homes, job.routes, job.switch, job.branches, job.splits, job.loopback_link)
    if (name := (tree, job.server)) not in kept:
        while len(kept) >= _TREES_MAX:
            del kept[next(iter(kept))]
        kept[name] = _tree_traffic(network, job)
    return kept[name]


def _tree_traffic(network: Network, job: Job) -> Traffic:
    homes = job.homes or (0,) * len(job.hosts)
    down, switches = down_paths(network, job), job.switches
    up = {
        (point, index): path(network, job.hosts[number], switches[point], job.routes[number])
        if is_worker
        else path(network, switches[number], switches[point], job.branches[number - 1].route)
        for point in range(1 + len(job.branches))
        for index, (is_worker, number) in enumerate(job.children_of(point))
    }
    positions = {
        child: (point, index)
        for point in range(1 + len(job.branches))
        for index, child in enumerate(job.children_of(point))
    }
    server = None if job.server is None else _hop(network, job.switch, job.server.host, job.server.route)
    loopbacks = (job.loopback_link, *(branch.loopback_link for branch in job.branches))
    paths = []
    for worker, home in enumerate(homes):
        hops, points = [positions[True, worker]], [home]
        while points[-1] != 0:
            hops.append(positions[False, points[-1]])
            points.append(job.branches[points[-1] - 1].parent)
        paths.append(
            WorkerPath(
                tuple(link for hop in hops for link in up[hop]) + (server.outbound if server else ()),
                tuple(loopbacks[point] for point in points if loopbacks[point] >= 0),
                (server.back if server else ())
                + tuple(link for hop in reversed(hops) for link in down.to_child[hop]),
            )
        )
    above = [positions[False, point] for point in range(1, 1 + len(job.branches))]
    hops = [positions[True, worker] for worker in range(len(homes))] + above
    load = Counter(link for hop in hops for link in (*up[hop], *down.last[hop]))
    load.update(link for links in down.to_splits for link in links)
    if server is not None:
        load.update((*server.outbound, *server.back))
    load.update(link for link in loopbacks if link >= 0)  # a result passes once
    return Traffic(tuple(paths), load)


def _hop(network: Network, source: int, target: int, route: int) -> WorkerPath:
    outbound, back = path(network, source, target, route), path(network, target, source, route)
    return WorkerPath(tuple(outbound), (), tuple(back))


def full_window_trip_ps(network: Network, traffic: Traffic, window: Window) -> int:
    """Longest time until a window of packets per worker, all sent at once on an idle network, is answered.

    A packet waits for all others on the busiest link of its path. Answers that are results wait too;
    acknowledgements do not.
    """
    size_bytes = window.frame.wire_bytes(window.frame.elements, first=True, last=True)

    @cache  # paths share links
    def times_ps(link: int, size_bytes: int) -> tuple[int, int]:
        """Of a packet on an idle link, with its delay, and of those before it."""
        time_ps, load = link_time_ps(network, link, size_bytes), traffic.load.get(link)
        wait_ps = (math.ceil(window.packets * load) - 1) * time_ps if load else 0
        return time_ps + int(network.delay_ps[link]), wait_ps

    longest_ps = 0
    for worker_path in traffic.paths:
        hops_ps = [times_ps(link, size_bytes) for link in worker_path.outbound]
        hops_ps += [times_ps(link, window.answer_bytes) for link in (*worker_path.inside, *worker_path.back)]
        longest_wait_ps = max((wait_ps for _, wait_ps in hops_ps), default=0)
        longest_ps = max(longest_ps, sum(time_ps for time_ps, _ in hops_ps) + longest_wait_ps)
    return longest_ps


class Busiest(NamedTuple):
    """The link that limits a job, how many packets of every step of its workers it carries, and its rate.

    Inside a host, the rate is that of the job's packets.
    """

    link: int
    streams: float
    rate_bps: int

    @property
    def stream_bps(self) -> int:
        # All workers have the same rate: none is ahead of another by more than a window.
        return int(self.rate_bps // self.streams)


def busiest_link(
    network: Network, load: Mapping[int, float], frame: Frame, message_packets: int = 0
) -> Busiest:
    # The lowest rate per stream of full packets; the first of equal ones. `message_packets` are those of a
    # message, of which the first may take longer; 0: messages are long.
    size_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
    rates_bps = {link: packet_rate_bps(network, link, size_bytes, message_packets) for link in load}
    link = min(load, key=lambda candidate: rates_bps[candidate] / load[candidate])
    return Busiest(link, load[link], rates_bps[link])


def words_per_s(frame: Frame, stream_bps: float) -> float:
    # `stream_bps` is a rate on the wire, headers included.
    return stream_bps * frame.elements / (8 * frame.wire_bytes(frame.elements, first=False, last=False))


def wire_bound(network: Network, job: Job, *others: Job) -> Reference:
    # Dense elements per second that the busiest wire of a job can carry: its rate over what shares it.
    # `others` are further trees of the job; its words are divided equally.
    load = job_traffic(network, job, *others).load
    return _bound("wire bound, dense", network, _without(load, network, inside=True), (job, *others))


def host_bound(network: Network, job: Job, *others: Job) -> Reference | None:
    """The same of the busiest host; None where hosts take no time."""
    load = _without(job_traffic(network, job, *others).load, network, inside=False)
    return _bound("host bound, dense", network, load, (job, *others)) if load else None


def _without(load: Mapping[int, float], network: Network, *, inside: bool) -> dict[int, float]:
    # `inside` leaves out the links inside hosts; otherwise all others are left out.
    return {link: count for link, count in load.items() if network.is_inside(link) != inside}


def _bound(label: str, network: Network, load: Mapping[int, float], jobs: Sequence[Job]) -> Reference:
    job, trees = jobs[0], len(jobs)
    busiest, words = busiest_link(network, load, job.frame, job.unit_packets), job.frame.elements
    size_bytes = job.frame.wire_bytes(words, first=False, last=False)
    shared = (
        f", {busiest.streams} streams on {network.link_names[busiest.link]}" if busiest.streams > 1 else ""
    )
    shared += f", {trees} trees" if trees > 1 else ""
    bound = trees * words_per_s(job.frame, busiest.rate_bps / busiest.streams)
    return Reference(label, bound, f"{words} words per {size_bytes} B{shared}")


class Start(NamedTuple):
    """How parallel trees start: a worker's link sends the first windows of one tree after the other."""

    trees: int
    window_elements: int
    own_elements_per_s: float
    """The rate of the workers' own links."""
    elements_per_s: float
    """The rate of all trees together behind those links."""

    def last_ps(self, elements: float) -> float:
        """When the last tree has sent its share, which waits for the windows of the others."""
        before = (self.trees - 1) * min(self.window_elements, elements / self.trees)
        return (before / self.own_elements_per_s + elements / self.elements_per_s) * PS_PER_S


class Pace(NamedTuple):
    """Time of a collective for a sum of dense words on an idle network, in closed form."""

    elements_per_s: float
    """The rate for long gradients."""
    latency_ps: int
    """Time besides, whatever the gradient."""
    busiest: Busiest
    is_windowed: bool = False  # its window limits it, and no link is always busy
    start: Start | None = None
    """How its trees start, if there are several."""

    def time_ps(self, elements: float) -> float:
        moving_ps = elements / self.elements_per_s * PS_PER_S
        if self.start is not None:
            moving_ps = max(moving_ps, self.start.last_ps(elements))
        return self.latency_ps + moving_ps


class PredictedTime(NamedTuple):
    """The time of one dense message of every worker as a run has it, on the idle network."""

    latency_ps: float
    """Delays in sequence, whatever the size."""
    word_ps: float
    """Time of each word besides."""
    link_word_ps: float
    """Time of each word on the busiest link, which hides the delays while it is never idle."""
    block_words: float = math.inf
    """Words of the first block of a pipeline, behind which only the busiest link counts."""

    def time_ps(self, words: float) -> float:
        first = min(words, self.block_words)
        in_turn_ps = self.latency_ps + first * self.word_ps + (words - first) * self.link_word_ps
        return max(in_turn_ps, words * self.link_word_ps)


def job_pace(network: Network, job: Job, *others: Job) -> Pace:
    """Pace of a job on its switches, limited by its busiest link or by its windows.

    `others` are further trees of the job; its words are divided equally.
    """
    trees = (job, *others)
    traffic = job_traffic(network, *trees)
    busiest = busiest_link(network, traffic.load, job.frame, job.unit_packets)
    packet_bytes = job.frame.wire_bytes(job.frame.elements, first=True, last=True)
    trip_ps = full_window_trip_ps(network, traffic, Window(job.frame, 1, packet_bytes))
    on_the_wire = len(trees) * words_per_s(job.frame, busiest.rate_bps / busiest.streams)
    slots = len(trees) * min(tree.slots_count for tree in trees)
    in_windows = slots * job.frame.elements * PS_PER_S / max(1, trip_ps)
    start = None
    uplinks = {link for way in traffic.paths for link in _own_links(network, way.outbound)}
    ends = uplinks | {link for way in traffic.paths for link in _own_links(network, way.back[::-1])}
    behind = Counter({link: count for link, count in traffic.load.items() if link not in ends})
    if others and behind:
        inner_busiest = busiest_link(network, behind, job.frame, job.unit_packets)
        after = len(trees) * words_per_s(job.frame, inner_busiest.rate_bps / inner_busiest.streams)
        own_bps = busiest_link(network, dict.fromkeys(uplinks, 1), job.frame, job.unit_packets).rate_bps
        window = job.slots_count * job.frame.elements
        start = Start(len(trees), window, words_per_s(job.frame, own_bps), min(after, in_windows))
    return Pace(min(on_the_wire, in_windows), trip_ps, busiest, in_windows < on_the_wire, start)


def slots_needed(network: Network, job: Job, *others: Job) -> int:
    """Slots of each tree with which no window limits a job on the idle network, whole units.

    That is the bandwidth-delay product, in packets: the rate of a stream on the busiest link times the round
    trip of a unit, whose slots are free again when its last result is back. One unit more covers what is
    not even: packets of workers that share a link leave it in turns.
    """
    trees, frame, unit = (job, *others), job.frame, job.unit_packets
    traffic = job_traffic(network, *trees)
    stream_bps = busiest_link(network, traffic.load, frame, unit).stream_bps
    answer_bytes = frame.wire_bytes(job.lanes * frame.elements, first=True, last=True)
    trip_ps = full_window_trip_ps(network, traffic, Window(frame, unit, answer_bytes))
    unit_ps = unit * 8 * frame.wire_bytes(frame.elements, first=False, last=False) * PS_PER_S / stream_bps
    return unit * (math.ceil(trip_ps / unit_ps) + 1)


def _own_links(network: Network, links: Sequence[int]) -> Sequence[int]:
    # `links` begin at a host: its wire, and what is inside the host.
    return links[: 1 + network.is_inside(links[0])]


# Warnings about flows whose hashes have put them on few of the links that they could take.


Tiers = tuple[int, int]
"""Tiers of the switches at the ends of a link."""


def crowding_warnings(network: Network, ways: Iterable[Sequence[int]]) -> tuple[str, ...]:
    """A warning for each tier where flows use fewer than half of the links that they could fill.

    `ways` are the links of each flow. So many flows can fill as many links, of those that are on any of
    their shortest paths.
    """
    flows, used = defaultdict[Tiers, list[Sequence[int]]](list), defaultdict[Tiers, set[int]](set)
    for way in ways:
        for tiers, links in _by_tiers(network, way).items():
            flows[tiers].append(way)
            used[tiers] |= links
    warnings = []
    for tiers, crowd in sorted(flows.items()):
        count = len(used[tiers])
        if 2 * count >= min(len(crowd), _links_between(network, tiers)):
            continue  # whatever their shortest paths are
        inner = [[node for node in nodes_of(network, way) if network.tiers[node]] for way in crowd]
        racks = {(nodes[0], nodes[-1]) for nodes in inner}
        equal = [_by_tiers(network, equal_shares(network, *ends))[tiers] for ends in racks]
        links_count = len(used[tiers].union(*equal))
        if 2 * count < min(len(crowd), links_count):
            warnings.append(
                f"hashes put {len(crowd)} flows on {count} of the {links_count} links from tier {tiers[0]} "
                f"to tier {tiers[1]} that their shortest paths have: other seeds spread them better; compare "
                "several, or use routing: spray"
            )
    return tuple(warnings)


def port_warnings(network: Network, ways: Iterable[Sequence[int]]) -> tuple[str, ...]:
    """A warning if flows leave every server by fewer ports than it has; `ways` are the links of each flow."""
    used, ports_of = defaultdict[int, set[int]](set), Counter(network.link_source.tolist())
    for way in ways:
        outside = [link for link in way if not network.is_inside(link)]
        if len(outside) > 1 and int(network.link_target[outside[0]]) in network.server_ports:
            used[int(network.link_target[outside[0]])].add(outside[1])
    shares = [(len(links), ports_of[server] - 1) for server, links in used.items()]
    if not shares or any(count == ports for count, ports in shares):
        return ()
    count, ports = max(shares)
    return (
        f"hosts send on {count} of their {ports} ports, as the channels of a collective take ports in turn: "
        f"use {ports} channels (of trees in switches: trees)",
    )


def _by_tiers(network: Network, links: Iterable[int]) -> defaultdict[Tiers, set[int]]:
    """Links between switches by the tiers of their ends."""
    tier_links = defaultdict[Tiers, set[int]](set)
    for link in links:
        ends = int(network.link_source[link]), int(network.link_target[link])
        below, above = (network.tiers[node] for node in ends)
        if below and above and network.server_ports.isdisjoint(ends):  # a host has tier 0
            tier_links[below, above].add(link)
    return tier_links


def _links_between(network: Network, tiers: Tiers) -> int:
    """Links of a tier."""
    tier = np.array(network.tiers)
    return int(np.sum((tier[network.link_source] == tiers[0]) & (tier[network.link_target] == tiers[1])))


# Warnings about valid plans.


VAIN_SHARE = 0.01
"""The share of packets sent again from which on they are told."""
_LOST_SHARE = 0.05
"""The share of packets sent again up to which losses do not explain them."""
_LIMITS = {32: "int32", 16: "int16", 8: "int8", 4: "their 4 bits"}
"""What sums leave when they overflow, by the bits of their lanes."""
NO_WORK = (
    "declares no work: its encoding takes no time on the device; give its messages `work` and `decode_work`"
)
_DONE = {Overflow.WRAP: "wrapped", Overflow.SATURATE: "saturated", Overflow.STICKY: "stuck at the limit"}


def warnings_of(codec: Codec, collective: CollectivePlan) -> tuple[str, ...]:
    """One sentence each, printed and stored with the results."""
    if collective.overflow is Overflow.WRAP:
        return ()
    if codec.wrap_reason:
        policy = collective.overflow.name.lower()
        return (f"codec {codec.kind} with overflow {policy}: {codec.wrap_reason}",)
    return ()


def routing_warnings(policy: Policy, collective: CollectivePlan) -> tuple[str, ...]:
    """A warning if a job's packets go to switches, which the routing of the network does not apply to."""
    if collective.aggregation is None or not policy.is_for_hosts_alone:
        return ()
    return (
        f"routing {policy.kind} is for packets between hosts: packets between workers and switches that add "
        "them up keep one shortest path per worker, as the switches need them in order",
    )


def timer_warning(timeouts_ps: Mapping[str, int], released: Collection[str]) -> str:
    """A warning if packets are lost and timeouts differ, some of them as released; otherwise empty.

    `timeouts_ps` is by label of the job, of those that lose packets; `released` are the labels of those that
    have the timeout of their protocol's own client.
    """
    if len(set(timeouts_ps.values())) < 2 or not released:
        return ""
    by_time: dict[int, list[str]] = {}
    for label, timeout_ps in timeouts_ps.items():
        by_time.setdefault(timeout_ps, []).append(label)
    listed = [
        f"{TIME.format(timeout_ps)} ({', '.join(labels[:3])}{', …' if len(labels) > 3 else ''})"
        for timeout_ps, labels in sorted(by_time.items())
    ]
    return (
        f"packets are lost and timeouts differ, some as released: {', '.join(listed)}; timers decide such "
        "comparisons; to exclude them, use collective.timeout: auto, or give all jobs the same"
    )


def vain_warnings(job: JobPlan, sent: int, again: int, lost: int) -> tuple[str, ...]:
    """A warning if hosts sent many packets again to other hosts, and few were lost."""
    is_told = again > 0 and again >= VAIN_SHARE * sent and lost <= _LOST_SHARE * again
    if job.collective.aggregation is not None or not is_told:
        return ()
    return (
        f"{again} packets, {100 * again / sent:.0f} % of all, were sent again, and {lost} were lost: others "
        f"were acknowledged later than the timeout of {TIME.format(job.collective.sender.timeout_ps)}; "
        "use a longer collective.timeout, or a smaller collective.window or collective.chunk",
    )


def overflow_warnings(job: JobPlan, points: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """A warning about sums that left their lanes in switches; those of a sketch may wrap."""
    plan = job.collective
    count = sum(point["overflowed_words"] for point in points)
    if count == 0:
        return ()
    if plan.overflow is Overflow.WRAP and job.codec.wrap_reason:
        return ()
    limit = _LIMITS[job.codec.lane_bits]
    return (f"{count} sums left {limit} in switches and {_DONE[plan.overflow]}",)


def work_warnings(job: JobPlan, has_work: bool) -> tuple[str, ...]:
    """A warning about a codec that counts no work, where other codecs' takes time."""
    if has_work or memory_bps(job.device) is None:
        return ()
    return (f"codec {job.codec.kind} {NO_WORK}",)


def clipped_sums(job: JobPlan, points: Sequence[Mapping[str, int]]) -> str:
    """The reason of wrong words if counters of a sketch did not wrap; otherwise empty.

    Other codecs leave room for their sums: a sum that leaves int32 was damaged before.
    """
    plan = job.collective
    count = sum(point["overflowed_words"] for point in points)
    if plan.overflow is Overflow.WRAP or count == 0:
        return ""
    if not job.codec.wrap_reason:
        return ""
    limit = _LIMITS[job.codec.lane_bits]
    return f"; {count} sums left {limit} in switches and {_DONE[plan.overflow]}: use overflow wrap"
