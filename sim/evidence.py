"""What became of packets on links, and what that says about why nothing gets through."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sim.diagnosis import Cause, listed
from sim.engine.model import Copies
from topologies.routing import Network


class LinkFate(NamedTuple):
    """Packets put on a link in some stretch of time."""

    sent: int
    lost: int  # of those sent
    dropped: int  # refused, not sent
    waiting: int = 0  # on a link that is down at the end of the stretch: what it has taken and not sent
    is_down: bool = False

    @property
    def tried(self) -> int:
        """Packets that were to go over the link."""
        return self.sent + self.dropped


def fates(
    before: Sequence[Mapping[str, int]] | None,
    after: Sequence[Mapping[str, int]],
    down: Collection[int] = (),
) -> list[LinkFate]:
    """What happened on each link between two readings of its counters; `before` None: since the start.

    `down` are the links that are down at the second reading.
    """
    names = ("sent_packets", "lost_packets", "dropped_packets")
    start = before or [dict.fromkeys(names, 0)] * len(after)
    found = []
    for link, (then, now) in enumerate(zip(start, after, strict=True)):
        sent, lost, dropped = (now[name] - then[name] for name in names)
        is_down = link in down
        found.append(LinkFate(sent, lost, dropped, now["in_flight_packets"] if is_down else 0, is_down))
    return found


def trouble(
    network: Network, fates: Sequence[LinkFate], links: Sequence[int], packet_bytes: int
) -> Cause | None:
    """What keeps packets of one size from passing some links, the worst first; None if nothing does."""
    if cause := closed(network, fates, links, packet_bytes):
        return cause
    for link in links:
        cause = _leaky(network.link_names[link], fates[link])
        if cause:
            return cause
    return None


def closed(
    network: Network, fates: Sequence[LinkFate], links: Sequence[int], packet_bytes: int
) -> Cause | None:
    """The first of some links that nothing passes; None if something passes each."""
    causes = (_closed(network, link, fates[link], packet_bytes) for link in links)
    return next((cause for cause in causes if cause), None)


def once_only(
    network: Network, fates: Sequence[LinkFate], copies: Sequence[Copies], links: Sequence[int], cleared: str
) -> Cause | None:
    """What a program that sends everything once does not survive; None if there was nothing of the kind.

    `fates` and `copies` are those since the start: what is sent once can be lost at any time. `cleared` says
    which switch lost its registers and when, or is empty.
    """
    facts, advice = [], []
    if cleared:
        facts.append(cleared)
        advice.append("no switch_reboot")
    losing = [link for link in links if fates[link].lost + fates[link].dropped]
    if losing:
        worst = max(losing, key=lambda link: fates[link].lost + fates[link].dropped)  # of equals the first
        fate = fates[worst]
        lost = f"{fate.lost + fate.dropped} of {fate.tried} packets"
        facts.append(f"link {network.link_names[worst]} lost {lost}")
        advice.append("a network that loses nothing")
    for copied in copies:
        if met := [network.link_names[link] for link in copied.links if link in links]:
            facts.append(
                f"`duplicate` copied {copied.packets_count} packets on {listed(met)}, "
                "where a late copy counts as the slot's next packet"
            )
            advice.append("no duplicate")
    if not facts:
        return None
    tried = ", ".join(dict.fromkeys(advice))
    return Cause(f"{listed(facts)}, and program tree never sends again", f"{tried}, or program switchml")


def _closed(network: Network, link: int, fate: LinkFate, packet_bytes: int) -> Cause | None:
    """A link that nothing passes."""
    name = network.link_names[link]
    if fate.is_down and fate.waiting + fate.dropped:
        refused = f", and it refused {fate.dropped} for want of room" if fate.dropped else ""
        packets = "packet waits" if fate.waiting == 1 else "packets wait"
        return Cause(
            f"link {name} is down: {fate.waiting} {packets} for it{refused}",
            "an end to its link_down or switch_reboot in `faults` (`for`)",
        )
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
    return None


def _leaky(name: str, fate: LinkFate) -> Cause | None:
    """A link that too little passes."""
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
