"""Links, packets, timers and the order of events in plain Python.

The rules are the sections "Time, order, chance", "Links" and "Faults" of sim/engine/README.md. Everything is
an exact Python integer, so nothing here can overflow.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from homomorphic.keyed import mix_plain
from sim.engine.model import Fate, Rule
from tests.reference.faults import Faults, copy_key, flipped
from tests.reference.link import Label, Link, Packet, make_link, transmit_time_ps
from topologies.routing import Network

ARRIVAL, STREAM_TIMER, FLOW_TIMER, HELD, SLOT_TIMER = range(5)  # the log's `what`

LogRow = tuple[int, int, int, int, int, int, int, int]  # time_ps, order, what, where, then a Label


class Timer:
    """Armed for at most one time; arming it anew or disarming it voids the event it had."""

    def __init__(self, what: int, label: Label, fire: Callable[[], None], host: int | None) -> None:
        self.what = what
        self.label = label
        self.fire = fire
        self.host = host  # that a crash or a pause stops; None: a switch's
        self.armed_ps: int | None = None
        self.order = -1  # of the event that is not void


class Event(NamedTuple):
    """Something in the queue: a timer, or a packet on its way over a link (HELD: over it already)."""

    time_ps: int
    order: int  # unique
    what: int
    item: Packet | Timer
    link: Link | None


class Fabric:
    """All links, every event in the order of (time_ps, order), and what goes wrong."""

    def __init__(self, network: Network, rules: Sequence[Rule], seed: int) -> None:
        self.network = network
        self.seed = seed
        self.now_ps = 0
        self.log: list[LogRow] = []
        self.faults = Faults(rules)
        self.mark_bytes: int | None = None  # a packet that finds so much waiting at a switch's port is marked
        self.crashed: set[int] = set()  # hosts
        self.paused_until_ps = [0] * len(network.nodes)
        self.links = [make_link(network, index) for index in range(len(network.link_source))]
        self._events: list[Event] = []
        self._next_order = 0

    def key(self, purpose: int, *identity: int) -> int:
        """Key of a packet, the same whenever it is sent."""
        return mix_plain(self.seed, purpose, *identity)

    def forward(self, packet: Packet, node: int) -> None:
        """Put a packet on the next link from `node` towards its target."""
        choices = int(self.network.next_count[node, packet.target])
        self.put(packet, int(self.network.next_link[node, packet.target, packet.route % choices]))

    def put(self, packet: Packet, link_index: int) -> None:
        """Put a packet on a link: it is dropped, or sent and then lost, or it will arrive."""
        link = self.links[link_index]
        departure_ps = self._send(packet, link)
        if departure_ps is None:
            return
        hop = packet.hops
        packet.hops += 1
        rule = self.faults.strike(link.index, packet.key, hop, self.now_ps)
        fate = rule.fate if rule else None
        if fate in (Fate.LOSS, Fate.CORRUPTION) or (fate is Fate.FLIP and not packet.words):
            link.counters.count("lost", packet.size_bytes)
            return
        if fate is Fate.FLIP:
            packet.words = flipped(packet.words, packet.key, hop)
        late_ps = rule.delay_ps if rule and fate is Fate.REORDER else 0
        self._fly(packet, link, departure_ps + late_ps)
        if rule and fate is Fate.DUPLICATE:
            copy = replace(packet, key=copy_key(packet.key, hop))
            departure_ps = self._send(copy, link)
            if departure_ps is not None:  # no fault strikes it on this link
                self._fly(copy, link, departure_ps + rule.delay_ps)

    def arm(self, timer: Timer, time_ps: int) -> None:
        """Make a timer fire at `time_ps` and at no other time."""
        timer.armed_ps = time_ps
        timer.order = self._schedule(time_ps, timer.what, timer, None)

    def disarm(self, timer: Timer) -> None:
        """Void whatever event a timer has."""
        timer.armed_ps = None
        timer.order = -1

    def set_rate(self, link_index: int, rate_bps: int) -> None:
        """Change a link's rate for packets put on it from now on."""
        self.links[link_index].rate_bps = rate_bps

    def cut(self, link_index: int) -> None:
        """Lose what is in flight on a link, and drop what is put on it from now on."""
        link = self.links[link_index]
        link.is_cut = True
        link.free_at_ps = link.ack_free_at_ps = self.now_ps
        for event in self._events:
            if event.what == ARRIVAL and event.link is link:
                assert isinstance(event.item, Packet)
                link.counters.count("in_flight", event.item.size_bytes, -1)
                link.counters.count("lost", event.item.size_bytes)
        self._events = [event for event in self._events if event.what != ARRIVAL or event.link is not link]
        heapq.heapify(self._events)

    def restore(self, link_index: int) -> None:
        """End a cut."""
        self.links[link_index].is_cut = False

    def crash(self, host: int) -> None:
        """A host neither receives nor acts any more."""
        self.crashed.add(host)
        for event in self._events:
            if isinstance(event.item, Timer) and event.item.host == host:
                self.disarm(event.item)

    def pause(self, host: int, until_ps: int) -> None:
        """A host lies still until a time; a later time wins."""
        self.paused_until_ps[host] = max(self.paused_until_ps[host], until_ps)

    def next_event_ps(self) -> int | None:
        """When the next event that is not void happens, None if nothing will ever happen."""
        while self._events and is_void(self._events[0]):
            heapq.heappop(self._events)
        return self._events[0].time_ps if self._events else None

    def step(self) -> None:
        """Process the next event that is not void; there must be one."""
        time_ps = self.next_event_ps()
        assert time_ps is not None
        event = heapq.heappop(self._events)
        self.now_ps = time_ps
        if isinstance(event.item, Timer):
            self._ring(event, event.item)
            return
        assert event.link is not None
        self.log.append((time_ps, event.order, event.what, event.link.index, *event.item.label))
        if event.what == ARRIVAL:
            event.link.counters.count("in_flight", event.item.size_bytes, -1)
            event.link.counters.count("delivered", event.item.size_bytes)
        self._arrive(event.item, event.link)

    def _ring(self, event: Event, timer: Timer) -> None:
        """A timer fires, unless its host is paused."""
        if timer.host is not None and self.now_ps < self.paused_until_ps[timer.host]:
            self.arm(timer, self.paused_until_ps[timer.host])
            return
        self.log.append((event.time_ps, event.order, timer.what, -1, *timer.label))
        self.disarm(timer)
        timer.fire()

    def _arrive(self, packet: Packet, link: Link) -> None:
        """A packet is at a link's end: a host or switch it was sent to, or one on its way."""
        node = link.target
        if node in self.crashed:
            return
        if self.now_ps < self.paused_until_ps[node]:
            self._schedule(self.paused_until_ps[node], HELD, packet, link)
        elif node == packet.target:
            packet.deliver(packet)
        else:
            assert not self.network.is_host[node], "no path passes through a host"
            self.forward(packet, node)

    def _send(self, packet: Packet, link: Link) -> int | None:
        """Send a packet as soon as the link is free: when it has left, or None if it is dropped."""
        transmit_ps = transmit_time_ps(packet.size_bytes, link.rate_bps)
        waiting_ps = max(0, link.free_at_ps - self.now_ps)
        backlog_ps = waiting_ps + transmit_ps
        is_full = link.buffer_bytes is not None and backlog_ps > link.hold_ps(link.buffer_bytes)
        if link.is_cut or (is_full and not packet.has_priority):
            link.counters.count("dropped", packet.size_bytes)
            return None
        link.counters.busy_ps += transmit_ps
        link.counters.count("sent", packet.size_bytes)
        link.free_at_ps = self.now_ps + backlog_ps
        if packet.has_priority:
            link.ack_free_at_ps = max(self.now_ps, link.ack_free_at_ps) + transmit_ps
            return link.ack_free_at_ps
        link.counters.backlog_ps_max = max(link.counters.backlog_ps_max, backlog_ps)
        if link.buffer_bytes is not None and self.mark_bytes is not None:
            packet.is_marked |= waiting_ps >= link.hold_ps(self.mark_bytes)
        return link.free_at_ps

    def _fly(self, packet: Packet, link: Link, departure_ps: int) -> None:
        """Put a packet in flight."""
        link.counters.count("in_flight", packet.size_bytes)
        self._schedule(departure_ps + link.delay_ps, ARRIVAL, packet, link)

    def _schedule(self, time_ps: int, what: int, item: Packet | Timer, link: Link | None) -> int:
        order = self._next_order
        self._next_order += 1
        heapq.heappush(self._events, Event(time_ps, order, what, item, link))
        return order


def is_void(event: Event) -> bool:
    """Whether an event is of a timer that was armed anew or disarmed since."""
    return isinstance(event.item, Timer) and event.item.order != event.order
