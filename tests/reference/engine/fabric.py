"""Links, packets, timers and the order of events in plain Python.

The rules are docs/explanation/engine/packets-and-links.md. Everything is
an exact Python integer, so nothing here can overflow.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from netfold.kernels.keyed_random import mix_plain
from netfold.sim.engine.engine_data import Fate, Rule
from netfold.topologies.network import Network, next_links
from tests.reference.engine.link import (
    Faults,
    Label,
    Link,
    Packet,
    Queued,
    Sending,
    choice,
    copy_key,
    flipped,
    make_link,
    number_of,
)

ARRIVAL, STREAM_TIMER, FLOW_TIMER, HELD, SLOT_TIMER = range(5)  # the log's `what`
LEAVES = 5  # a packet leaves the transmitter: not in the log
MERGE_END = 6  # the log's `what`, too
LATE = 2**62  # added to the order of what comes after all else of its instant

LOSING = (Fate.LOSS, Fate.CORRUPTION, Fate.BURST_LOSS)

LogRow = tuple[int, int, int, int, int, int, int, int]  # time_ps, order, what, where, then a Label


class Timer:
    """Armed for at most one time; arming it anew or disarming it voids the event it had."""

    def __init__(
        self, what: int, label: Label, fire: Callable[[], None], host: int | None, *, is_late: bool = False
    ) -> None:
        self.what = what
        self.label = label
        self.fire = fire
        self.host = host  # that a crash or a pause stops; None: a switch's
        self.is_late = is_late  # comes after all else of its instant
        self.armed_ps: int | None = None
        self.order = -1  # of the event that is not void


class Event(NamedTuple):
    """Something in the queue: a timer, or a packet on its way over a link (HELD: over it already)."""

    time_ps: int
    order: int  # unique
    what: int
    item: Packet | Timer | Sending
    link: Link | None


class Fabric:
    """All links, every event in the order of (time_ps, order), and what goes wrong."""

    def __init__(self, network: Network, rules: Sequence[Rule], seed: int) -> None:
        self.network = network
        self.seed = seed
        self.now_ps = 0
        self.log: list[LogRow] = []
        self.faults = Faults(rules, seed)
        self.mark_bytes: int | None = None  # a packet that finds so much waiting at a switch's port is marked
        self.lost_ps = -1  # when something was last lost or struck
        self.crashed: set[int] = set()  # hosts
        self.paused_until_ps = [0] * len(network.nodes)
        self.links = [make_link(network, index) for index in range(len(network.link_source))]
        self._events: list[Event] = []
        self._next_order = 0
        self._silent = -(2**62)  # order of what comes before all others of its time

    def key(self, rng_stream: int, *identity: int, copy: int = 0) -> int:
        """Key of a packet, independent of time; packets that follow from a copy have another key."""
        key = mix_plain(self.seed, rng_stream, *identity)
        return mix_plain(key, copy) if copy else key

    def forward(self, packet: Packet, node: int, came_from: int = -1) -> None:
        """Put a packet on the next link from `node` towards its target; a host's work comes first.

        `came_from` is the node before it on its way.
        """
        if self.network.is_host[node] and self.network.first_link(node) != node:
            self.put(packet, self.network.first_link(node))
            return
        is_first = came_from >= 0 and bool(self.network.is_host[came_from])
        if is_first and packet.at_first:
            packet.at_first(packet, node)
        goal = packet.target if packet.via is None else packet.via
        is_sent_here = node in self.network.server_ports and is_first
        key = packet.route if packet.entropy is None else packet.entropy
        if packet.is_adaptive and not self.network.is_host[node]:
            waits_ps = {
                link: self.links[link].queued_ps(self.now_ps, 4096)
                for link in next_links(self.network, node, goal)
            }
            shortest = [link for link, wait_ps in waits_ps.items() if wait_ps == min(waits_ps.values())]
            self.put(packet, shortest[number_of(node, key) % len(shortest)])
            return
        self.put(packet, choice(self.network, node, goal, key, is_sent_here=is_sent_here))

    def put(self, packet: Packet, link_index: int) -> None:
        """Put a packet on a link: it is dropped, or sent and then lost, or it will arrive."""
        link = self.links[link_index]
        if not self._accept(packet, link):
            return
        hop = packet.hops
        packet.hops += 1
        rule = self.faults.strike(link.index, packet.key, hop, self.now_ps)
        fate = rule.fate if rule else None
        if rule:
            self.lost_ps = self.now_ps
        is_lost = fate in LOSING or (fate is Fate.FLIP and not packet.words)
        if is_lost:
            self._note_loss(packet)
        if fate is Fate.FLIP and not is_lost:
            packet.words = flipped(packet.words, packet.key, hop)
        late_ps = rule.delay_ps if rule and fate is Fate.REORDER else 0
        packet.is_late = late_ps > 0
        self._queue(link, packet, late_ps, is_lost=is_lost)
        if rule and fate is Fate.DUPLICATE:
            key = copy_key(packet.key, hop)
            copy = replace(packet, key=key, copy=key % 2**32 | 1, is_late=rule.delay_ps > 0, lost=None)
            if self._accept(copy, link):  # no fault strikes it on this link
                self._queue(link, copy, rule.delay_ps)

    def arm(self, timer: Timer, time_ps: int) -> None:
        """Make a timer fire at `time_ps` and at no other time."""
        timer.armed_ps = time_ps
        late = LATE if timer.is_late else 0
        timer.order = self._schedule(time_ps, timer.what, timer, None, late)

    def disarm(self, timer: Timer) -> None:
        """Void the event of a timer, if it has one."""
        timer.armed_ps = None
        timer.order = -1

    def set_rate(self, link_index: int, rate_bps: int) -> None:
        """Change a link's rate for all that has not left its transmitter."""
        link = self.links[link_index]
        if sending := link.set_rate(rate_bps, self.now_ps):
            self._push_silent(sending.ends_ps, sending, link)

    def cut(self, link_index: int) -> None:
        """Lose what is on the wire of a link, and let the rest wait until it is restored."""
        link = self.links[link_index]
        link.is_down = True
        if link.sending:
            self._lose(link.sending.queued, link)
        link.sending = None
        for event in self._events:
            if event.what == ARRIVAL and event.link is link:
                assert isinstance(event.item, Packet)
                link.counters.count("in_flight", event.item.size_bytes, -1)
                link.counters.count("lost", event.item.size_bytes)
                self._note_loss(event.item)
        self._events = [event for event in self._events if event.what != ARRIVAL or event.link is not link]
        heapq.heapify(self._events)

    def flush(self, link_index: int) -> None:
        link = self.links[link_index]
        if not link.is_down:
            return
        for queued in link.waiting:
            self._lose(queued, link)
        link.acks.clear()
        link.others.clear()
        link.sizes.clear()

    def kill(self, link_index: int) -> None:
        """Lose what waits on a link that is down, and drop what is put on it until it is restored."""
        self.flush(link_index)
        self.links[link_index].is_dead = self.links[link_index].is_down

    def reroute(self, network: Network) -> None:
        self.network = network

    def restore(self, link_index: int) -> None:
        self.links[link_index].is_down = self.links[link_index].is_dead = False
        self._begin(self.links[link_index])

    def _lose(self, queued: Queued, link: Link) -> None:
        if not queued.is_lost:
            link.counters.count("in_flight", queued.packet.size_bytes, -1)
            link.counters.count("lost", queued.packet.size_bytes)
            self._note_loss(queued.packet)

    def _note_loss(self, packet: Packet) -> None:
        self.lost_ps = self.now_ps
        if packet.lost:
            packet.lost()

    def crash(self, host: int) -> None:
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
        if isinstance(event.item, Sending):
            self._leave(event.item.queued, event.link)
            return
        self.log.append((time_ps, event.order, event.what, event.link.index, *event.item.label))
        if event.what == ARRIVAL:
            event.link.counters.count("in_flight", event.item.size_bytes, -1)
            event.link.counters.count("delivered", event.item.size_bytes)
        if event.item.is_late:
            event.item.is_late, self.lost_ps = False, self.now_ps
        self._arrive(event.item, event.link)

    def _ring(self, event: Event, timer: Timer) -> None:
        if timer.host is not None and self.now_ps < self.paused_until_ps[timer.host]:
            self.arm(timer, self.paused_until_ps[timer.host])
            return
        self.log.append((event.time_ps, event.order, timer.what, -1, *timer.label))
        self.disarm(timer)
        timer.fire()

    def _arrive(self, packet: Packet, link: Link) -> None:
        """A packet is at a link's end: a host or switch it was sent to, or one on its way."""
        node = link.target
        if self._passes_card(packet, link):
            return
        if node in self.crashed:
            self.lost_ps = self.now_ps
            return
        if self.now_ps < self.paused_until_ps[node]:
            self._schedule(self.paused_until_ps[node], HELD, packet, link)
        elif node == packet.target:
            packet.deliver(packet)
        else:
            assert not self.network.is_host[node], "no path passes through a host"
            if node == packet.via:
                packet.via = None
            self.forward(packet, node, int(self.network.link_source[link.index]))

    def _passes_card(self, packet: Packet, link: Link) -> bool:
        """Whether a packet is between a host's work and its wire; then it goes on, whatever the host does."""
        host, network = link.target, self.network
        if not network.is_host[host]:
            return False
        if link.index == network.first_link(host):
            self.put(packet, host)
            return True
        if link.index != network.last_link(host):
            self.put(packet, network.last_link(host))
            return True
        return False

    def _accept(self, packet: Packet, link: Link) -> bool:
        """Whether a link takes a packet; it is marked if it finds a long queue."""
        if link.refuses(packet, self.now_ps):
            link.counters.count("dropped", packet.size_bytes)
            self._note_loss(packet)
            return False
        if link.buffer_bytes is not None and self.mark_bytes is not None and not packet.has_priority:
            waits_ps = link.backlog_ps(self.now_ps)
            is_long = waits_ps >= link.hold_ps(self.mark_bytes)
            packet.is_marked |= link.queued_bytes >= self.mark_bytes if link.is_down else is_long
        return True

    def _queue(self, link: Link, packet: Packet, late_ps: int = 0, *, is_lost: bool = False) -> None:
        """Let a link send a packet when its turn comes."""
        link.counters.count("lost" if is_lost else "in_flight", packet.size_bytes)
        link.queue(Queued(packet, self._next_order, late_ps, is_lost), self.now_ps)
        self._next_order += 1
        self._begin(link)

    def _begin(self, link: Link) -> None:
        if sending := link.begin(self.now_ps):
            self._push_silent(sending.ends_ps, sending, link)

    def _leave(self, queued: Queued, link: Link) -> None:
        """A packet has left the transmitter: it is under way, and the next one begins."""
        link.sending = None
        if not queued.is_lost:
            time_ps = self.now_ps + link.delay_ps + queued.late_ps
            heapq.heappush(self._events, Event(time_ps, queued.order, ARRIVAL, queued.packet, link))
        self._begin(link)

    def _push_silent(self, time_ps: int, sending: Sending, link: Link) -> None:
        """An event that comes before all others of its time, and is not logged."""
        self._silent += 1
        heapq.heappush(self._events, Event(time_ps, self._silent, LEAVES, sending, link))

    def _schedule(
        self, time_ps: int, what: int, item: Packet | Timer, link: Link | None, late: int = 0
    ) -> int:
        order = self._next_order + late
        self._next_order += 1
        heapq.heappush(self._events, Event(time_ps, order, what, item, link))
        return order


def is_void(event: Event) -> bool:
    """Whether an event is of a timer that was armed anew or disarmed since, or of a rate that was changed."""
    if isinstance(event.item, Sending):
        assert event.link is not None
        return event.link.sending is not event.item
    return isinstance(event.item, Timer) and event.item.order != event.order
