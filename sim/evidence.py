"""What became of packets on links, and what that says about why nothing gets through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sim.diagnosis import Cause
from topologies.routing import Network


class LinkFate(NamedTuple):
    """Packets put on a link in some stretch of time."""

    sent: int
    lost: int  # of those sent
    dropped: int  # refused, not sent

    @property
    def tried(self) -> int:
        """Packets that were to go over the link."""
        return self.sent + self.dropped


def fates(before: Sequence[Mapping[str, int]] | None, after: Sequence[Mapping[str, int]]) -> list[LinkFate]:
    """What happened on each link between two readings of its counters; `before` None: since the start."""
    names = ("sent_packets", "lost_packets", "dropped_packets")
    start = before or [dict.fromkeys(names, 0)] * len(after)
    return [
        LinkFate(*(now[name] - then[name] for name in names)) for then, now in zip(start, after, strict=True)
    ]


def trouble(
    network: Network, fates: Sequence[LinkFate], links: Sequence[int], packet_bytes: int, resends: bool = True
) -> Cause | None:
    """What keeps packets of one size from passing some links, the worst first; None if nothing does."""
    for link in links:
        cause = _closed(network, link, fates[link], packet_bytes)
        if cause:
            return cause
    for link in links:
        cause = _leaky(network.link_names[link], fates[link], resends)
        if cause:
            return cause
    return None


def _closed(network: Network, link: int, fate: LinkFate, packet_bytes: int) -> Cause | None:
    """A link that nothing passes."""
    name = network.link_names[link]
    if fate.sent and fate.lost == fate.sent:
        return Cause(
            f"link {name} loses every packet ({fate.lost} of {fate.sent})",
            "a loss below 100% for it in `faults`",
        )
    if not fate.dropped or fate.sent:
        return None
    buffer_bytes = int(network.buffer_bytes[link])
    if not network.is_host[network.link_source[link]] and buffer_bytes < packet_bytes:
        return Cause(
            f"the buffer of link {name}, {buffer_bytes}B, is smaller than one packet, {packet_bytes}B",
            f"topology.buffer of {packet_bytes}B or more, better a full window",
        )
    return Cause(
        f"link {name} is down: it refused all {fate.dropped} packets",
        "an end to its link_down or switch_reboot in `faults` (`for`)",
    )


def _leaky(name: str, fate: LinkFate, resends: bool) -> Cause | None:
    """A link that too little passes."""
    if not resends and fate.lost + fate.dropped:
        return Cause(
            f"link {name} lost {fate.lost + fate.dropped} of {fate.tried} packets, "
            "and program tree never sends again",
            "a network that loses nothing, or program switchml",
        )
    if fate.dropped:
        return Cause(
            f"the buffer of link {name} is too small for what always meets in it "
            f"({fate.dropped} of {fate.tried} packets refused)",
            "a larger topology.buffer, or fewer slots",
        )
    if fate.lost:
        return Cause(
            f"link {name} loses so much that no message gets through whole "
            f"({fate.lost} of {fate.sent} packets)",
            "less loss in `faults`, or fewer packets per message",
        )
    return None
