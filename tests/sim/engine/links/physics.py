"""Two hosts and a switch as physics has it, packet by packet, for holding both engines to it.

A transmitter is a rate over time and two queues; what it has sent is the integral of the rate. Nothing here
knows when a packet will leave before it has, and nothing is shared with the engines or their rules. Times are
whole picoseconds: a packet has left at the first of them by which all of its bits are sent.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import NamedTuple

BITS = 8
SECOND_PS = 10**12


class Packet(NamedTuple):
    """A message of one packet (`is_ack`: the answer to it), and what it weighs on the wire."""

    number: int
    size_bytes: int
    is_ack: bool


class Offer(NamedTuple):
    """A host (0 or 1) sends a packet to the other one."""

    time_ps: int
    host: int
    size_bytes: int


class Change(NamedTuple):
    """Something done to a link: `set_rate` with a rate, `cut`, `restore`, `flush`."""

    time_ps: int
    name: str
    link: int
    rate_bps: int = 0


class Arrival(NamedTuple):
    """A packet has come to the end of a link."""

    time_ps: int
    link: int
    number: int
    is_ack: bool


@dataclass
class Transmitter:
    """Sends what is queued: acknowledgements first, but never instead of what it has begun."""

    rate_bps: int
    buffer_bytes: int | None
    urgent: deque[Packet] = field(default_factory=deque)
    ordinary: deque[Packet] = field(default_factory=deque)
    current: Packet | None = None
    left_bits: Fraction = Fraction(0)
    clock_ps: int = 0  # all is known up to here
    is_down: bool = False
    dropped: int = 0
    lost: int = 0
    most_bytes: Fraction = Fraction(0)  # unsent at once

    def next_ps(self) -> int | None:
        """When the packet on the wire has left, if nothing changes."""
        if self.current is None:
            return None
        return self.clock_ps + ceil(self.left_bits * SECOND_PS / self.rate_bps)

    def pass_time(self, time_ps: int) -> None:
        """Send until a time by which nothing is done."""
        if self.current is not None:
            self.left_bits -= Fraction(self.rate_bps * (time_ps - self.clock_ps), SECOND_PS)
        self.clock_ps = time_ps

    def start(self) -> None:
        """Take the next packet, if there is one and the wire is free."""
        if self.is_down or self.current is not None:
            return
        queue = self.urgent or self.ordinary
        if queue:
            self.current = queue.popleft()
            self.left_bits = Fraction(BITS * self.current.size_bytes)

    def unsent_bytes(self) -> Fraction:
        """What there is to send."""
        left = self.left_bits / BITS if self.current is not None else Fraction(0)
        return left + sum(packet.size_bytes for packet in [*self.urgent, *self.ordinary])

    def offer(self, packet: Packet) -> None:
        """Queue a packet, or drop it where it finds no room."""
        if not packet.is_ack and self.buffer_bytes is not None and not self.has_room(packet.size_bytes):
            self.dropped += 1
            return
        (self.urgent if packet.is_ack else self.ordinary).append(packet)
        self.most_bytes = max(self.most_bytes, self.unsent_bytes())
        self.start()

    def has_room(self, size_bytes: int) -> bool:
        """Whether so many bytes fit: each packet counts as whole picoseconds, as on the wire."""
        assert self.buffer_bytes is not None
        if self.is_down:
            return self.unsent_bytes() + size_bytes <= self.buffer_bytes
        byte_ps = Fraction(BITS * SECOND_PS, self.rate_bps)
        sizes = [packet.size_bytes for packet in [*self.urgent, *self.ordinary]] + [size_bytes]
        needed_ps = sum(ceil(size * byte_ps) for size in sizes)
        leaves_ps = self.next_ps()
        needed_ps += leaves_ps - self.clock_ps if leaves_ps is not None else 0
        return needed_ps <= self.buffer_bytes * byte_ps


UP, DOWN, BACK_UP, BACK_DOWN = range(4)  # host 0 → switch → host 1 → switch → host 0
NEXT = {UP: DOWN, BACK_UP: BACK_DOWN}
ANSWER = {DOWN: BACK_UP, BACK_DOWN: UP}  # where the target's acknowledgement goes


@dataclass
class World:
    """The four links of two hosts on a switch."""

    transmitters: list[Transmitter]
    delays_ps: list[int]
    ack_bytes: int
    arrivals: list[Arrival] = field(default_factory=list)
    flying: list[tuple[int, int, int, Packet]] = field(default_factory=list)  # time, serial, link, packet
    serial: int = 0

    def play(self, offers: list[Offer], changes: list[Change], end_ps: int) -> None:
        """Let it all happen. Of one instant: what leaves and arrives, then changes, then offers."""
        actions = sorted(
            [(change.time_ps, 0, number, change) for number, change in enumerate(changes)]
            + [(offer.time_ps, 1, number, offer) for number, offer in enumerate(offers)]
        )
        for time_ps, _, number, action in actions:
            self.run(time_ps)
            if isinstance(action, Offer):
                link = UP if action.host == 0 else BACK_UP
                self.transmitters[link].offer(Packet(number, action.size_bytes, is_ack=False))
            else:
                self.change(action)
        self.run(end_ps)

    def run(self, until_ps: int) -> None:
        """Pass time up to and including an instant."""
        while True:
            leaving = [time for one in self.transmitters if (time := one.next_ps()) is not None]
            now_ps = min([*leaving, *(time for time, *_ in self.flying[:1]), until_ps])
            nothing = True
            for link, transmitter in enumerate(self.transmitters):
                is_leaving = transmitter.next_ps() == now_ps
                transmitter.pass_time(now_ps)
                if is_leaving:
                    nothing = False
                    self.launch(link)
            if nothing and self.flying and self.flying[0][0] == now_ps:
                nothing = False
                _, _, link, packet = heapq.heappop(self.flying)
                self.land(link, packet)
            if nothing and now_ps == until_ps:
                return

    def launch(self, link: int) -> None:
        """A packet has left a transmitter."""
        transmitter = self.transmitters[link]
        assert transmitter.current is not None
        self.serial += 1
        time_ps = transmitter.clock_ps + self.delays_ps[link]
        heapq.heappush(self.flying, (time_ps, self.serial, link, transmitter.current))
        transmitter.current = None
        transmitter.start()

    def land(self, link: int, packet: Packet) -> None:
        """A packet is at the end of a link: it goes on, or is acknowledged."""
        now_ps = self.transmitters[link].clock_ps
        self.arrivals.append(Arrival(now_ps, link, packet.number, packet.is_ack))
        if link in NEXT:
            self.transmitters[NEXT[link]].offer(packet)
        elif not packet.is_ack:
            self.transmitters[ANSWER[link]].offer(Packet(packet.number, self.ack_bytes, is_ack=True))

    def change(self, change: Change) -> None:
        """Do something to a link."""
        transmitter = self.transmitters[change.link]
        match change.name:
            case "set_rate":
                transmitter.rate_bps = change.rate_bps
            case "cut":
                transmitter.is_down = True
                struck = [entry for entry in self.flying if entry[2] == change.link]
                transmitter.lost += len(struck) + (transmitter.current is not None)
                transmitter.current = None
                self.flying = [entry for entry in self.flying if entry[2] != change.link]
                heapq.heapify(self.flying)
            case "flush" if transmitter.is_down:
                transmitter.lost += len(transmitter.urgent) + len(transmitter.ordinary)
                transmitter.urgent.clear()
                transmitter.ordinary.clear()
            case "restore":
                transmitter.is_down = False
                transmitter.start()
