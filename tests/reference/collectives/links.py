"""Store-and-forward links with packets: a heap of events, exact integers, nothing lost.

A link sends one packet after the other, each in ceil(bits / rate), and delivers it `delay` later. Waiting
acknowledgements begin before waiting data. What happens at one instant happens in the order in which packets
were put on links; a transmitter that falls free comes before all else of its instant, and the end of what a
host computes comes after it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

FREE, ARRIVAL, COMPUTED = 0, 1, 2


@dataclass
class Packet:
    """A packet on its way over `links`; `arrived` is called at the end of the last."""

    size_bytes: int
    links: tuple[int, ...]
    arrived: Callable[[], None]
    is_ack: bool = False
    hop: int = 0


@dataclass
class Link:
    """One direction of a cable."""

    rate_bps: int
    delay_ps: int
    is_busy: bool = False
    acks: deque[tuple[Packet, int]] = field(default_factory=deque)
    data: deque[tuple[Packet, int]] = field(default_factory=deque)


class Links:
    """All links, and the clock."""

    def __init__(self, links: Sequence[tuple[int, int]]) -> None:
        """`links` are (rate in bit/s, delay in ps)."""
        self.links = [Link(*one) for one in links]
        self.now_ps = 0
        self._orders, self._ties = count(), count()
        self._events: list[tuple[int, int, int, int, Callable[[], None]]] = []

    def at(self, time_ps: int, do: Callable[[], None]) -> None:
        """Call `do` at a time, after the packets of that instant and in the order of calls."""
        self._push(time_ps, COMPUTED, next(self._orders), do)

    def put(self, packet: Packet) -> None:
        """Put a packet on the next link of its way."""
        link = self.links[packet.links[packet.hop]]
        (link.acks if packet.is_ack else link.data).append((packet, next(self._orders)))
        self._begin(link)

    def run(self) -> int:
        """Let everything happen; returns when the last thing happened."""
        while self._events:
            self.now_ps, _, _, _, do = heapq.heappop(self._events)
            do()
        return self.now_ps

    def _push(self, time_ps: int, what: int, order: int, do: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time_ps, what, order, next(self._ties), do))

    def _begin(self, link: Link) -> None:
        queue = link.acks or link.data
        if link.is_busy or not queue:
            return
        packet, order = queue.popleft()
        link.is_busy = True
        gone_ps = self.now_ps - (-packet.size_bytes * 8 * 10**12 // link.rate_bps)
        self._push(gone_ps, FREE, order, lambda: self._free(link))
        self._push(gone_ps + link.delay_ps, ARRIVAL, order, lambda: self._arrive(packet))

    def _free(self, link: Link) -> None:
        link.is_busy = False
        self._begin(link)

    def _arrive(self, packet: Packet) -> None:
        packet.hop += 1
        if packet.hop == len(packet.links):
            packet.arrived()
        else:
            self.put(packet)
