"""Packets, and one direction of a wire with the queue in front of it, in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from topologies.routing import Network

BIT_PS_PER_BYTE = 8 * 10**12  # times a size in bytes, over a rate in bit/s: picoseconds


class Label(NamedTuple):
    """What the log calls a packet or timer."""

    owner: int
    unit: int = 0
    part: int = 0
    attempt: int = 0


@dataclass
class Packet:
    """One packet under way: `deliver` is called with it when it reaches `target`."""

    target: int
    route: int
    size_bytes: int  # on the wire
    key: int  # decides its fate
    label: Label
    deliver: Callable[[Packet], None]
    words: Sequence[int] = ()  # int32 values that a fault can strike; none: what a flow sends
    has_priority: bool = False  # acknowledgements
    hops: int = 0  # links it was put on
    is_marked: bool = False  # found a long queue (ECN)


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
    buffer_bytes: int | None  # most that waits, the newest packet included; None: no limit
    is_cut: bool = False
    free_at_ps: int = 0
    ack_free_at_ps: int = 0
    counters: Counters = field(default_factory=Counters)

    def hold_ps(self, size_bytes: int) -> int:
        """Longest time, rounded down, that so many bytes in the queue take to leave."""
        return size_bytes * BIT_PS_PER_BYTE // self.rate_bps


def transmit_time_ps(size_bytes: int, rate_bps: int) -> int:
    """Time on the wire, rounded up: a link is never faster than its rate."""
    return -(-size_bytes * BIT_PS_PER_BYTE // rate_bps)


def make_link(network: Network, index: int) -> Link:
    """Link `index` of a network, idle; a host's own window limits what waits in front of its link."""
    is_limited = not network.is_host[network.link_source[index]]
    return Link(
        index=index,
        target=int(network.link_target[index]),
        rate_bps=int(network.rate_bps[index]),
        delay_ps=int(network.delay_ps[index]),
        buffer_bytes=int(network.buffer_bytes[index]) if is_limited else None,
    )
