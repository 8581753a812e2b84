"""What became of packets on links, and what that says about why nothing gets through."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from netfold.sim.diagnosis.report import Cause, listed, workers_listed
from netfold.sim.engine.interface import Disturbance, Fate, SlotState
from netfold.switch.programs import names_of
from netfold.topologies.routing import Network

_NAMES = {Fate.DUPLICATE: "duplicate", Fate.REORDER: "reorder", Fate.FLIP: "corruption"}
_DID = {Fate.DUPLICATE: "copied", Fate.REORDER: "held up", Fate.FLIP: "flipped bits of"}


class LinkFate(NamedTuple):
    """Packets put on a link in some stretch of time."""

    sent: int
    lost: int  # of those sent
    dropped: int  # refused, not sent
    waiting: int = 0  # taken and not arrived at the end of the stretch
    is_down: bool = False
    grown: int = 0  # by how much more waits than at its begin

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
        waiting = now["in_flight_packets"]
        grown = waiting - then.get("in_flight_packets", 0)
        found.append(LinkFate(sent, lost, dropped, waiting, is_down, grown))
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
    network: Network,
    program: str,
    since_start: tuple[Sequence[LinkFate], Sequence[Disturbance]],
    links: Sequence[int],
    cleared: str,
) -> Cause | None:
    """What a program that sends everything once does not survive; None if there was nothing of the kind.

    What is sent once can be lost at any time. `cleared` says which switch lost its registers and when, or is
    empty.
    """
    fates, disturbances = since_start
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
    for fact in _disturbed(network, [one for one in disturbances if one.fate == Fate.DUPLICATE], links):
        facts.append(f"{fact}, where a late copy counts as the slot's next packet")
        advice.append("no duplicate")
    if not facts:
        return None
    tried = ", ".join(dict.fromkeys(advice))
    other = names_of(lambda spec: spec.timeouts is not None)[0]
    return Cause(f"{listed(facts)}, and program {program} never sends again", f"{tried}, or program {other}")


def broken(network: Network, disturbances: Sequence[Disturbance], links: Sequence[int]) -> Cause | None:
    """What keeps messages of several packets from getting through links whole; None if nothing does.

    A front end, or a worker's network card, discards what is left of a message after a gap in its numbers.
    """
    rule = "a message counts only if its packets come one right behind the other"
    return _disturbing(network, disturbances, links, (rule, "message_packets: 1"))


def late(network: Network, disturbances: Sequence[Disturbance], links: Sequence[int]) -> Cause | None:
    """What lets packets of a unit come when its slot is at a later one; None if nothing does."""
    rule = "a packet that comes late counts for a later unit of its slot"
    return _disturbing(network, disturbances, links, (rule, "a shorter delay of it"))


def misread(
    network: Network, disturbances: Sequence[Disturbance], links: Sequence[int], workers: Sequence[int]
) -> Cause | None:
    """Why some workers send what the others do not; None if nothing flipped bits on the links to them."""
    flips = [one for one in disturbances if one.fate == Fate.FLIP]
    facts = _disturbed(network, flips, links)
    if not facts:
        return None
    return Cause(
        f"{workers_listed(workers)} read damaged words ({listed(facts)}), and so sent what the others do not",
        "no corruption with `detected: false` in `faults`",
    )


def gone(worker: int, switch: str, cleared: str) -> Cause:
    """A result that one worker has, and the switch has not for the others; `cleared` says since when."""
    has_it = f"worker {worker} already has this result, so it never sends the unit again"
    if not cleared:
        return Cause(
            f"{has_it}, and {switch} does not hold it for the others",
            f"fewer `faults`, or {_surviving()}",
        )
    return Cause(
        f"{has_it}: {switch} lost the slot after it was complete ({cleared}), before every worker had the "
        "result",
        f"no switch_reboot, no loss beside it, or {_surviving()}",
    )


def _surviving() -> str:
    return (
        f"a program whose results survive in a server ({', '.join(names_of(lambda spec: spec.has_server))})"
    )


def disagreement(switch: str, state: SlotState, cleared: str) -> Cause:
    """A bitmap that is full beside a counter that is not; `cleared` says when the registers were."""
    found = (
        f"bitmap and counter of {switch} disagree after a fault: all {state.children_count} "
        f"children are marked, the counter waits for {state.missing_count} more"
    )
    if cleared:
        return Cause(f"{found} ({cleared})", "no switch_reboot in `faults`")
    return Cause(found, "fewer `faults`, to find the one that causes it")


def _disturbing(
    network: Network, disturbances: Sequence[Disturbance], links: Sequence[int], says: tuple[str, str]
) -> Cause | None:
    """What faults did on some links, by which rule it matters, and what else than no fault helps."""
    rule, help = says
    met = [one for one in disturbances if one.fate != Fate.FLIP and set(one.links) & set(links)]
    if not met:
        return None
    kinds = dict.fromkeys(_NAMES[one.fate] for one in met)
    advice = f"no {' and no '.join(kinds)} in `faults`, or {help}"
    return Cause(f"{listed(_disturbed(network, met, links))}, and {rule}", advice)


def _disturbed(network: Network, disturbances: Sequence[Disturbance], links: Sequence[int]) -> list[str]:
    """What faults did to packets that arrived, of those faults that name one of some links."""
    facts = []
    for one in disturbances:
        names = [network.link_names[link] for link in one.links if link in set(links)]
        count = f"{one.packets_count} packet{'s' if one.packets_count > 1 else ''}"
        if names:
            facts.append(f"`{_NAMES[one.fate]}` {_DID[one.fate]} {count} on {listed(names)}")
    return facts


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
    if 2 * fate.grown > fate.sent:
        return Cause(
            f"link {name} is slower than what is put on it: {fate.waiting} packets wait for it",
            "a higher rate for it (link_rate in `faults`), a longer collective.timeout, or fewer slots",
        )
    if fate.lost:
        return Cause(
            f"link {name} loses so much that no message gets through whole "
            f"({fate.lost} of {fate.sent} packets)",
            "less loss in `faults`, or fewer packets per message",
        )
    return None
