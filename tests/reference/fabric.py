"""Links, packets, timers and the order of events in plain Python.

The rules are the sections "Time, order, chance" and "Links" of sim/engine/README.md. Everything is an exact
Python integer, so nothing here can overflow.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from homomorphic.keyed import mix_plain
from topologies.routing import Network

BIT_PS_PER_BYTE = 8 * 10**12  # times a size in bytes, over a rate in bit/s: picoseconds

ARRIVAL, STREAM_TIMER, FLOW_TIMER = 0, 1, 2  # the log's `what`

LogRow = tuple[int, int, int, int, int, int, int, int]  # time_ps, order, what, where, then a Label


class Label(NamedTuple):
    """What the log calls a packet or timer."""

    owner: int
    unit: int
    part: int
    attempt: int


@dataclass
class Packet:
    """One packet under way: `deliver` is called when it reaches `target`."""

    target: int
    route: int
    size_bytes: int  # on the wire
    key: int  # decides its losses
    label: Label
    deliver: Callable[[], None]
    has_priority: bool = False  # acknowledgements
    hops: int = 0  # links it was put on


@dataclass
class Timer:
    """Armed for at most one time; arming it anew or disarming it voids the event it had."""

    what: int
    owner: int
    fire: Callable[[], None]
    armed_ps: int | None = None
    order: int = -1  # of the event that is not void


@dataclass
class Counters:
    """What a link saw. sent = delivered + lost + in flight; dropped packets were never sent."""

    sent_packets: int = 0
    sent_bytes: int = 0
    delivered_packets: int = 0
    delivered_bytes: int = 0
    lost_packets: int = 0
    lost_bytes: int = 0
    dropped_packets: int = 0
    dropped_bytes: int = 0
    in_flight_packets: int = 0
    in_flight_bytes: int = 0
    busy_ps: int = 0  # transmit times of all sent packets, those still queued included
    backlog_ps_max: int = 0  # longest time from a packet's coming to the end of its transmission

    def count(self, what: str, size_bytes: int, packets: int = 1) -> None:
        """Add a packet of this size, or take it away (`packets` = -1)."""
        setattr(self, f"{what}_packets", getattr(self, f"{what}_packets") + packets)
        setattr(self, f"{what}_bytes", getattr(self, f"{what}_bytes") + packets * size_bytes)


@dataclass
class Link:
    """One direction of a wire with the queue in front of it."""

    index: int
    target: int
    rate_bps: int
    delay_ps: int
    buffer_ps: int | None  # longest backlog, its own packet included; None: no limit
    lost_below: int  # of 2^64 equally likely hash values
    free_at_ps: int = 0
    ack_free_at_ps: int = 0
    counters: Counters = field(default_factory=Counters)


Event = tuple[
    int, int, "Packet | Timer", "Link | None"
]  # time_ps, order (unique), what, the link it arrives by


class Fabric:
    """All links, every event in the order of (time_ps, order), and the keys that decide losses."""

    def __init__(self, network: Network, loss: Sequence[float], seed: int) -> None:
        self.network = network
        self.seed = seed
        self.now_ps = 0
        self.log: list[LogRow] = []
        self._events: list[Event] = []
        self._next_order = 0
        self.links = [make_link(network, index, float(probability)) for index, probability in enumerate(loss)]

    def key(self, purpose: int, *identity: int) -> int:
        """Key of a packet, the same whenever it is sent."""
        return mix_plain(self.seed, purpose, *identity)

    def forward(self, packet: Packet, node: int) -> None:
        """Put a packet on the next link from `node` towards its target."""
        choices = int(self.network.next_count[node, packet.target])
        self.put(packet, int(self.network.next_link[node, packet.target, packet.route % choices]))

    def put(self, packet: Packet, link_index: int) -> None:
        """Put a packet on a link: it will arrive, be lost under way, or be dropped if the buffer is full."""
        link = self.links[link_index]
        transmit_ps = -(-packet.size_bytes * BIT_PS_PER_BYTE // link.rate_bps)
        if packet.has_priority:
            departure_ps = max(self.now_ps, link.ack_free_at_ps) + transmit_ps
            link.ack_free_at_ps = departure_ps
            link.free_at_ps = max(self.now_ps, link.free_at_ps) + transmit_ps
        else:
            departure_ps = max(self.now_ps, link.free_at_ps) + transmit_ps
            backlog_ps = departure_ps - self.now_ps
            if link.buffer_ps is not None and backlog_ps > link.buffer_ps:
                link.counters.count("dropped", packet.size_bytes)
                return
            link.free_at_ps = departure_ps
            link.counters.backlog_ps_max = max(link.counters.backlog_ps_max, backlog_ps)
        link.counters.busy_ps += transmit_ps
        link.counters.count("sent", packet.size_bytes)
        hop = packet.hops
        packet.hops += 1
        if mix_plain(packet.key, hop) < link.lost_below:
            link.counters.count("lost", packet.size_bytes)
            return
        link.counters.count("in_flight", packet.size_bytes)
        self._schedule(departure_ps + link.delay_ps, packet, link)

    def arm(self, timer: Timer, time_ps: int) -> None:
        """Make a timer fire at `time_ps` and at no other time."""
        timer.armed_ps = time_ps
        timer.order = self._schedule(time_ps, timer, None)

    def disarm(self, timer: Timer) -> None:
        """Void whatever event a timer has."""
        timer.armed_ps = None
        timer.order = -1

    def next_event_ps(self) -> int | None:
        """When the next event that is not void happens, None if nothing will ever happen."""
        while self._events and is_void(self._events[0]):
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else None

    def step(self) -> None:
        """Process the next event that is not void; there must be one."""
        time_ps = self.next_event_ps()
        assert time_ps is not None
        _, order, item, link = heapq.heappop(self._events)
        self.now_ps = time_ps
        if isinstance(item, Timer):
            self.log.append((time_ps, order, item.what, -1, item.owner, 0, 0, 0))
            self.disarm(item)
            item.fire()
            return
        assert link is not None
        self.log.append((time_ps, order, ARRIVAL, link.index, *item.label))
        link.counters.count("in_flight", item.size_bytes, -1)
        link.counters.count("delivered", item.size_bytes)
        if link.target == item.target:
            item.deliver()
        else:
            assert not self.network.is_host[link.target], "no path passes through a host"
            self.forward(item, link.target)

    def _schedule(self, time_ps: int, item: Packet | Timer, link: Link | None) -> int:
        order = self._next_order
        self._next_order += 1
        heapq.heappush(self._events, (time_ps, order, item, link))
        return order


def is_void(event: Event) -> bool:
    """Whether an event is of a timer that was armed anew or disarmed since."""
    _, order, item, _ = event
    return isinstance(item, Timer) and item.order != order


def make_link(network: Network, index: int, loss: float) -> Link:
    """Link `index` of a network, idle."""
    rate_bps = int(network.rate_bps[index])
    limited = not network.is_host[network.link_source[index]]
    return Link(
        index=index,
        target=int(network.link_target[index]),
        rate_bps=rate_bps,
        delay_ps=int(network.delay_ps[index]),
        buffer_ps=int(network.buffer_bytes[index]) * BIT_PS_PER_BYTE // rate_bps if limited else None,
        lost_below=int(loss * 2.0**64),  # exact: a float times a power of two
    )
