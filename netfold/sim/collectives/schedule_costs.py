"""What a schedule costs on an idle network: time, timeout, memory, and what codecs that choose are told.

All of it follows from the outline of the schedule (`transfers.py`) and the paths of its flows.

An estimate of the time is that of the busiest link, or that of the longest chain of transfers with its
delays, whichever is longer. It is no bound: all transfers of one level begin together in it, so a run can be
faster. It assumes that links are idle and full duplex; that no window limits what is sent; and that packets
take no time on the wire besides that of their words. If a schedule is pipelined, all transfers are under way
at the same time once the first block has passed all levels. To the time of the link on which all together put
the most, the delays are then added, and what the first block takes longer than on this link.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Carrier
from netfold.sim.collectives.transfers import Flow, Outline
from netfold.sim.engine.engine_data import Frame, Sender
from netfold.sim.keys import Location
from netfold.sim.plan.idle_network import (
    Busiest,
    Pace,
    PredictedTime,
    Traffic,
    Window,
    WorkerPath,
    full_window_trip_ps,
    link_time_ps,
    packet_rate_bps,
)
from netfold.sim.workload.device_rooflines import Device, memory_bps
from netfold.topologies.ecmp import flow_key_plain
from netfold.topologies.network import Network, path, shares
from netfold.units import PS_PER_S, TIME

WORD_BITS = 32
PACKET_BYTES = 1024  # hosts that take time work on packets of so many bytes, in estimates
_TRANSFER_BYTES = 300
"""Memory per transfer of a schedule and of what is derived from it, with two messages under way."""
_CELL_BYTES = 64
_SAMPLE_BYTES = 10**9
_ROUNDING = 1e-9  # of two links that are busy as long as each other, the first counts
Doubles = NDArray[np.float64]
KeyOf = Callable[[int, int, int], int]
"""The key of a flow, from its sender, receiver and channel."""


def tables_bytes(transfers: int, cells: int, workers: int) -> int:
    """Memory of a schedule's tables, which do not depend on the words, while it is built and carried out."""
    return _TRANSFER_BYTES * transfers + _CELL_BYTES * cells * workers


class Routed:
    """A schedule on a network: the paths of its flows, and what each level puts on every link."""

    def __init__(self, outline: Outline, network: Network, nodes: Sequence[int], key_of: KeyOf) -> None:
        """The workers, and servers after them, are on these nodes."""
        self.outline, self.network = outline, network
        self.paths: dict[Flow, WorkerPath] = {}
        """Acknowledgements go back on a path of their own, and delay no messages."""
        links, owners, parts = list[int](), list[int](), list[float]()
        for level in outline.levels:
            for flow in level.flows:
                if flow in self.paths:
                    continue
                sender, receiver, channel = flow
                ends, key = (nodes[sender], nodes[receiver]), key_of(*flow)
                way_there = path(network, *ends, key)
                back = path(network, *ends[::-1], key_of(receiver, sender, channel))
                spread = shares(network, *ends, key) if network.policy.is_sprayed else Counter(way_there)
                links += spread
                parts += spread.values()
                owners += [len(self.paths)] * len(spread)
                self.paths[flow] = WorkerPath(tuple(way_there), (), tuple(back))
        self.links = np.array(links, np.int64)
        """(E,) The links of all flows, one flow after the other."""
        self.owners = np.array(owners, np.int64)  # (E,) the number of the flow
        self.parts = np.array(parts, np.float64)  # (E,) messages on the link for every message sent
        number = {flow: at for at, flow in enumerate(self.paths)}
        self.flows = [np.array([number[flow] for flow in level.flows]) for level in outline.levels]
        """By level: the number of each transfer's flow."""

    @classmethod
    def by_seed(
        cls, outline: Outline, network: Network, nodes: Sequence[int], seed: int, job: int = 0
    ) -> Routed:
        """On the paths that a run with this seed uses."""
        return cls(outline, network, nodes, lambda *flow: flow_key_plain(seed, job, *flow))

    def loads(self, sent: Doubles) -> Doubles:
        """(links,) What each link carries where flows send so much, (F,)."""
        count = len(self.network.link_names)
        loads: Doubles = np.bincount(self.links, self.parts * sent[self.owners], count).astype(np.float64)
        return loads

    def sent(self, level: int, shares_sent: Doubles | None = None) -> Doubles:
        """(F,) What every flow sends at a level: its messages, or the shares of a message that they are."""
        return np.bincount(self.flows[level], shares_sent, len(self.paths)).astype(np.float64)

    def traffic(self, sent: Doubles) -> Traffic:
        """The paths of flows that send, and how many messages each link carries."""
        load = self.loads(sent)
        paths = tuple(way for way, count in zip(self.paths.values(), sent, strict=True) if count)
        return Traffic(paths, {int(link): float(load[link]) for link in np.flatnonzero(load)})

    def packets_on_the_way(self, frame: Frame) -> int:
        """Packets that a path carries in a round trip where nothing waits, at most."""
        most, lone = 0, Window(frame, 1, frame.ack_bytes)
        for way in self.paths.values():
            trip_ps = full_window_trip_ps(self.network, Traffic((way,), {}), lone)
            rates_bps = (int(self.network.rate_bps[link]) for link in way.outbound)
            most = max(most, trip_ps * min(rates_bps, default=0))
        return most // (8 * frame.wire_bytes(frame.elements, first=False, last=False) * PS_PER_S)

    def all_traffic(self, copies: int) -> Traffic:
        """The messages of so many collectives that may be under way at the same time.

        A host goes on to its next partner before what it has sent is acknowledged. So the windows of all
        flows whose paths share a link may wait there one behind the other.
        """
        windows = self.outline.windows
        return self.traffic(np.array([copies * windows[flow] for flow in self.paths], np.float64))


# The time of a message on the idle network.


class _Rate(NamedTuple):
    """Picoseconds that a message takes for each of its words."""

    in_turn_ps: (
        float  # the longest chain of transfers, each as long as on the link that is busiest at its level
    )
    busiest_ps: float  # the link on which all levels together put the most
    busiest: Busiest

    def word_ps(self, outline: Outline) -> float:
        """Of a schedule: if pipelined, only the busiest link counts."""
        return self.busiest_ps if outline.is_pipelined else max(self.in_turn_ps, self.busiest_ps)


def _rate_of(routed: Routed, packet_bytes: int, word_bits: float, *, is_free: bool = False) -> _Rate:
    """Of packets of `packet_bytes`; a word takes `word_bits` on the wire.

    `is_free`: the longest chain is that of a word, which waits for no other.
    """
    network, levels = routed.network, routed.outline.levels
    used = dict.fromkeys(routed.links.tolist())  # in the order of the flows
    if not used:
        return _Rate(0.0, 0.0, Busiest(0, 1, packet_rate_bps(network, 0, packet_bytes)))
    rates_bps = {link: packet_rate_bps(network, link, packet_bytes) for link in used}
    word_ps = np.zeros(len(network.link_names))
    word_ps[list(used)] = [word_bits * PS_PER_S / rate_bps for rate_bps in rates_bps.values()]
    busy_ps, streams, durations_ps = np.zeros_like(word_ps), np.zeros_like(word_ps), []
    for number, level in enumerate(levels):
        load = routed.loads(routed.sent(number, level.share))
        times_ps = load * word_ps
        busy_ps += level.times * times_ps
        streams = np.maximum(streams, load)
        of_flow_ps = np.zeros(len(routed.paths))
        np.maximum.at(of_flow_ps, routed.owners, times_ps[routed.links])
        durations_ps.append(of_flow_ps[routed.flows[number]])
    most_ps = float(busy_ps.max())
    link = next(link for link in used if busy_ps[link] >= most_ps * (1 - _ROUNDING))
    in_turn_ps = sum(
        level.times * float(level_ps.max()) for level, level_ps in zip(levels, durations_ps, strict=True)
    )
    if is_free or in_turn_ps > most_ps * (1 + _ROUNDING):
        in_turn_ps = _longest_chain(routed, durations_ps, occupies=not is_free)
    return _Rate(in_turn_ps, most_ps, Busiest(link, float(streams[link]), rates_bps[link]))


def _longest_chain(routed: Routed, durations_ps: Sequence[Doubles], *, occupies: bool) -> float:
    """The longest chain of transfers of which each begins where the one before ends; durations are by level.

    Channels carry words of their own. `occupies`: a flow has one transfer at a time.
    """
    levels = routed.outline.levels
    channels = 1 + max((int(level.channel.max()) for level in levels), default=0)
    arrived_ps = np.zeros((channels, routed.outline.workers))
    free_ps = np.zeros(len(routed.paths))
    for level, flows, level_ps in zip(levels, routed.flows, durations_ps, strict=True):
        for _ in range(level.times):
            ready_ps = arrived_ps[level.channel, level.source]
            if occupies:
                ready_ps = np.maximum(ready_ps, free_ps[flows])
            end_ps = ready_ps + level_ps
            np.maximum.at(free_ps, flows, end_ps)
            np.maximum.at(arrived_ps, (level.channel, level.target), end_ps)
    return float(arrived_ps.max())


def _ways_ps(routed: Routed, packet_bytes: int) -> int:
    """Ways that follow one another, each as long as the longest of its level."""
    network = routed.network

    def way_ps(links: Sequence[int]) -> int:
        return sum(link_time_ps(network, link, packet_bytes) + int(network.delay_ps[link]) for link in links)

    times_ps = np.array([way_ps(way.outbound) for way in routed.paths.values()], np.int64)
    levels = zip(routed.outline.levels, routed.flows, strict=True)
    return sum(level.times * int(times_ps[flows].max()) for level, flows in levels)


def _merge_share(outline: Outline) -> float:
    """Share of a message that hosts merge one after the other."""
    by_worker, in_turn = defaultdict[int, float](float), 0.0
    for level in outline.levels:
        at_once = defaultdict[int, float](float)
        for worker, share in zip(level.target.tolist(), level.merged.tolist(), strict=True):
            at_once[worker] += level.merging_times * share
        in_turn += max(at_once.values())
        for worker, share in at_once.items():
            by_worker[worker] += share
    return (max(by_worker.values(), default=0.0) if outline.is_pipelined else in_turn) + outline.last_merges


def pace_of(routed: Routed, frame: Frame) -> Pace:
    """The time of dense words, which nobody takes time to merge.

    Of a schedule that is pipelined in blocks, the first block passes all levels by itself.
    """
    outline, packet_bytes = routed.outline, frame.wire_bytes(frame.elements, first=False, last=False)
    rate = _rate_of(routed, packet_bytes, 8 * packet_bytes / frame.elements)
    latency_ps = _ways_ps(routed, packet_bytes)
    word_ps = rate.word_ps(outline)
    if outline.is_pipelined:
        latency_ps += round(outline.block_words * max(0.0, rate.in_turn_ps - rate.busiest_ps))
    return Pace(PS_PER_S / word_ps if word_ps else float(PS_PER_S), latency_ps, rate.busiest)


def prediction_of(routed: Routed, sender: Sender) -> PredictedTime:
    """The time of messages of many packets, which nobody takes time to merge.

    Its latency is that of the longest chain of transfers: delays, and the packet that each link but the
    slowest passes on once it has all of it. The first block of a pipeline passes all levels by itself.
    """
    frame = sender.frame
    packet_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
    # Workers receive as much as they send, so a link carries the acknowledgements of as many packets.
    sent_bytes = packet_bytes + frame.ack_bytes / sender.ack_every
    rate = _rate_of(routed, packet_bytes, 8 * sent_bytes / frame.elements, is_free=True)
    ways_ps = []
    for way in routed.paths.values():
        packet_ps = [link_time_ps(routed.network, link, packet_bytes) for link in way.outbound]
        delays_ps = int(routed.network.delay_ps[list(way.outbound)].sum())
        ways_ps.append(delays_ps + sum(packet_ps) - max(packet_ps))
    of_flows_ps = np.array(ways_ps, np.float64)
    latency_ps = _longest_chain(routed, [of_flows_ps[flows] for flows in routed.flows], occupies=False)
    word_ps, block_words = rate.in_turn_ps, math.inf
    if routed.outline.is_pipelined:
        word_ps, block_words = max(word_ps, rate.busiest_ps), routed.outline.block_words
    return PredictedTime(latency_ps, word_ps, rate.busiest_ps, block_words)


@dataclass(frozen=True, kw_only=True)
class HostCarrier(Carrier):
    """A carrier of collectives between hosts: each message of an operation waits for the one before."""

    def plain_ps(self, messages: Sequence[int]) -> int:
        """The time of messages with these numbers of words."""
        return sum(self.latency_ps + self.words_ps(words) for words in messages if words)


def carrier_of(routed: Routed, frame: Frame, device: Device) -> HostCarrier:
    """The network as codecs that choose by it see it: hosts merge with this device."""
    packet_bytes = frame.wire_bytes(frame.elements, first=False, last=False)
    header_bytes = packet_bytes - 4 * frame.elements  # the last packet is cut to its words
    rate = _rate_of(routed, packet_bytes, 8 * packet_bytes / frame.elements)
    merge_ps = 4 * device.work_ps(2 * _SAMPLE_BYTES, _SAMPLE_BYTES) / _SAMPLE_BYTES  # of a word
    word_ps = rate.word_ps(routed.outline) + _merge_share(routed.outline) * merge_ps
    return HostCarrier(
        latency_ps=max(1, _ways_ps(routed, header_bytes)),
        rate_bps=max(1, round(WORD_BITS * PS_PER_S / max(word_ps, 1 / frame.elements))),
        memory_bps=memory_bps(device),
    )


class Estimate(NamedTuple):
    """The estimated time of one all-reduce, and what bounds it for long messages."""

    seconds: float
    link: str
    """The link that bounds it, which is busy longest; empty for one worker."""
    busy_s: float  # how long that link is busy
    latency_s: float  # delays of paths that follow one another


def usable_bps(network: Network, link: int) -> int:
    """The rate of a link, or at which a host works on packets."""
    return packet_rate_bps(network, link, PACKET_BYTES)


def estimate_of(
    outline: Outline, network: Network, nodes: Sequence[int], words: int, seed: int = 0
) -> Estimate:
    """The estimated time of `words` words of 32 bits, without headers and acknowledgements.

    Ways that follow one another take the delays of a word's longest way: round a ring, up and down a tree.
    """
    if not outline.levels:
        return Estimate(0.0, "", 0.0, 0.0)
    routed = Routed.by_seed(outline, network, nodes, seed)
    rate = _rate_of(routed, PACKET_BYTES, WORD_BITS, is_free=True)
    delays_ps = [sum(int(network.delay_ps[link]) for link in way.outbound) for way in routed.paths.values()]
    ways_ps = np.array(delays_ps, np.float64)
    ways_of_levels_ps = [ways_ps[flows] for flows in routed.flows]
    latency_s = _longest_chain(routed, ways_of_levels_ps, occupies=False) / PS_PER_S
    busy_s, chain_s = (words * time_ps / PS_PER_S for time_ps in (rate.busiest_ps, rate.in_turn_ps))
    seconds = max(busy_s, latency_s + chain_s)
    if outline.is_pipelined:
        first = min(1.0, outline.block_words / words)  # share of the block that passes all levels by itself
        seconds = latency_s + busy_s + first * max(0.0, chain_s - busy_s)
    return Estimate(seconds, network.link_names[rate.busiest.link], busy_s, latency_s)


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


def timeout_of(routed: Routed, window: Window, copies: int, asked_ps: int | None, location: Location) -> int:
    """The retransmission timeout: what is asked for, or four round trips of all windows of `copies` messages.

    Raises
    ------
    ScenarioError
        The timeout that is asked for is not longer than the round trip of the windows of one level.
    """
    if asked_ps is None:
        return auto_timeout_ps(full_window_trip_ps(routed.network, routed.all_traffic(copies), window))
    trips_ps = (
        full_window_trip_ps(routed.network, routed.traffic(routed.sent(number)), window)
        for number in range(len(routed.outline.levels))
    )
    check_timeout(location, "timeout", asked_ps, max(trips_ps, default=0), "window")
    return asked_ps
