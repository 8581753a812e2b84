"""Per-link packet outcomes, the evidence for a stall diagnosis."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from netfold.sim.diagnosis.report import Cause, listed, workers_listed
from netfold.sim.engine.interface import Disturbance, Fate, SlotState
from netfold.switch.programs import names_of
from netfold.topologies.network import Network

_NAMES = {Fate.DUPLICATE: "duplicate", Fate.REORDER: "reorder", Fate.FLIP: "corruption"}
_DID = {Fate.DUPLICATE: "copied", Fate.REORDER: "delayed", Fate.FLIP: "flipped bits of"}


class LinkOutcomes(NamedTuple):
    """What happened to the packets put on a link in a time interval."""

    sent: int
    lost: int  # of those sent
    dropped: int  # not sent: its buffer was full
    waiting: int = 0  # sent and not arrived at the end of the interval
    is_down: bool = False
    grown: int = 0  # increase of `waiting` over the interval
    is_corrupting: bool = False  # those lost were corrupted, and so discarded

    @property
    def tried(self) -> int:
        """Packets offered to the link."""
        return self.sent + self.dropped


def link_outcomes(
    before: Sequence[Mapping[str, int]] | None,
    after: Sequence[Mapping[str, int]],
    down: Collection[int] = (),
    corrupting: Collection[int] = (),
) -> list[LinkOutcomes]:
    """Outcomes on each link between two readings of its counters; `before` None: since the start.

    `down` are the links that are down at the second reading, `corrupting` those on which packets were lost by
    corruption alone.
    """
    names = ("sent_packets", "lost_packets", "dropped_packets")
    start = before or [dict.fromkeys(names, 0)] * len(after)
    found = []
    for link, (then, now) in enumerate(zip(start, after, strict=True)):
        sent, lost, dropped = (now[name] - then[name] for name in names)
        is_down = link in down
        waiting = now["in_flight_packets"]
        grown = waiting - then.get("in_flight_packets", 0)
        found.append(LinkOutcomes(sent, lost, dropped, waiting, is_down, grown, link in corrupting))
    return found


def why_undelivered(
    network: Network, outcomes: Sequence[LinkOutcomes], links: Sequence[int], packet_bytes: int
) -> Cause | None:
    """Why packets of one size do not pass some links, blocked links first; None if all pass."""
    if cause := why_blocked(network, outcomes, links, packet_bytes):
        return cause
    for link in links:
        cause = _why_lossy(network, link, outcomes[link])
        if cause:
            return cause
    return None


def why_blocked(
    network: Network,
    outcomes: Sequence[LinkOutcomes],
    links: Sequence[int],
    packet_bytes: int,
    *,
    repeats: bool = True,
) -> Cause | None:
    """Why the first link that passes no packets is blocked; None if each passes some.

    A link that lost all of its packets is blocked if their sender `repeats` them: one packet says nothing.
    """
    causes = (_why_link_blocked(network, link, outcomes[link], packet_bytes, repeats) for link in links)
    return next((cause for cause in causes if cause), None)


def why_not_repeated(
    network: Network,
    program: str,
    since_start: tuple[Sequence[LinkOutcomes], Sequence[Disturbance]],
    links: Sequence[int],
    cleared: str,
) -> Cause | None:
    """Why a program without retransmission stalls; None if nothing was lost, duplicated or cleared.

    `since_start` counts from the start of the run: such a program recovers from no loss. `cleared` says which
    switch lost its registers and when, or is empty.
    """
    outcomes, disturbances = since_start
    facts, advice = [], []
    if cleared:
        facts.append(cleared)
        advice.append("no switch_reboot")
    losing = [link for link in links if outcomes[link].lost + outcomes[link].dropped]
    if losing:
        worst = max(
            losing, key=lambda link: outcomes[link].lost + outcomes[link].dropped
        )  # of equal ones the first
        outcome = outcomes[worst]
        lost = f"{outcome.lost + outcome.dropped} of {outcome.tried} packets"
        what, verb = ("corruption", "corrupted") if outcome.is_corrupting else ("loss", "lost")
        facts.append(f"link {network.link_names[worst]} {verb} {lost}")
        advice.append(f"a network without {what}")
    for fact in _disturbance_facts(
        network, [one for one in disturbances if one.fate == Fate.DUPLICATE], links
    ):
        facts.append(f"{fact}, where a late copy counts as the slot's next packet")
        advice.append("no duplicate")
    if not facts:
        return None
    tried = ", ".join(dict.fromkeys(advice))
    other = names_of(lambda spec: spec.timeouts is not None)[0]
    return Cause(f"{listed(facts)}, and program {program} never retransmits", f"{tried}, or program {other}")


def why_incomplete(
    network: Network, disturbances: Sequence[Disturbance], links: Sequence[int]
) -> Cause | None:
    """Why messages of several packets do not arrive complete; None if no fault broke their order.

    A front end, or a worker's network card, discards the rest of a message after a gap in its numbers.
    """
    rule = "a message counts only if its packets arrive in order and without a gap"
    return _why_disturbed(network, disturbances, links, (rule, "message_packets: 1"))


def why_late(network: Network, disturbances: Sequence[Disturbance], links: Sequence[int]) -> Cause | None:
    """Why packets of a unit arrive when its slot serves a later one; None if no fault caused it."""
    rule = "a late packet counts for a later unit of its slot"
    return _why_disturbed(network, disturbances, links, (rule, "a shorter delay of it"))


def why_diverged(
    network: Network, disturbances: Sequence[Disturbance], links: Sequence[int], workers: Sequence[int]
) -> Cause | None:
    """Why some workers send units that others do not; None if no bits flipped on the links to them."""
    flips = [one for one in disturbances if one.fate == Fate.FLIP]
    facts = _disturbance_facts(network, flips, links)
    if not facts:
        return None
    return Cause(
        f"{workers_listed(workers)} received corrupted words ({listed(facts)}), "
        "and therefore sent what the others do not",
        "no corruption with `detected: false` in `faults`",
    )


def why_result_lost(worker: int, switch: str, cleared: str) -> Cause:
    """Why one worker has a result that the switch has not for the others; `cleared`: when it lost it."""
    has_it = f"worker {worker} already has this result, so it never sends the unit again"
    if not cleared:
        return Cause(
            f"{has_it}, and {switch} does not hold it for the others",
            f"fewer `faults`, or {_surviving()}",
        )
    return Cause(
        f"{has_it}: {switch} lost the slot after it was complete ({cleared}), before every worker had the "
        "result",
        f"no switch_reboot, no loss together with it, or {_surviving()}",
    )


def _surviving() -> str:
    return (
        f"a program whose results survive in a server ({', '.join(names_of(lambda spec: spec.has_server))})"
    )


def why_bitmap_full(switch: str, state: SlotState, cleared: str) -> Cause:
    """Why a bitmap is full and its counter is not; `cleared`: when the registers were cleared."""
    found = (
        f"bitmap and counter of {switch} disagree after a fault: all {state.children_count} "
        f"children are marked, the counter waits for {state.missing_count} more"
    )
    if cleared:
        return Cause(f"{found} ({cleared})", "no switch_reboot in `faults`")
    return Cause(found, "fewer `faults`, to find the one that causes it")


def _why_disturbed(
    network: Network, disturbances: Sequence[Disturbance], links: Sequence[int], consequence: tuple[str, str]
) -> Cause | None:
    """A cause from the faults that struck on some links; `consequence`: why they matter, and a remedy."""
    rule, remedy = consequence
    met = [one for one in disturbances if one.fate != Fate.FLIP and set(one.links) & set(links)]
    if not met:
        return None
    kinds = dict.fromkeys(_NAMES[one.fate] for one in met)
    advice = f"no {' and no '.join(kinds)} in `faults`, or {remedy}"
    return Cause(f"{listed(_disturbance_facts(network, met, links))}, and {rule}", advice)


def _disturbance_facts(
    network: Network, disturbances: Sequence[Disturbance], links: Sequence[int]
) -> list[str]:
    """What faults on some links did to packets that arrived, in words."""
    facts = []
    for one in disturbances:
        names = [network.link_names[link] for link in one.links if link in set(links)]
        count = f"{one.packets_count} packet{'s' if one.packets_count > 1 else ''}"
        if names:
            facts.append(f"`{_NAMES[one.fate]}` {_DID[one.fate]} {count} on {listed(names)}")
    return facts


def _why_link_blocked(
    network: Network, link: int, outcome: LinkOutcomes, packet_bytes: int, repeats: bool
) -> Cause | None:
    """Why a link passes no packets."""
    name = network.link_names[link]
    if outcome.is_down and outcome.waiting + outcome.dropped:
        refused = f", and it refused {outcome.dropped} because its buffer is full" if outcome.dropped else ""
        packets = "packet waits" if outcome.waiting == 1 else "packets wait"
        return Cause(
            f"link {name} is down: {outcome.waiting} {packets} for it{refused}",
            "a limited duration (`for`) of its link_down or switch_reboot in `faults`",
        )
    if repeats and outcome.sent and outcome.lost == outcome.sent and outcome.is_corrupting:
        return Cause(
            f"link {name} corrupts every packet ({outcome.lost} of {outcome.sent}), and what is corrupted is "
            "discarded where it arrives",
            "a corruption below 100% for it in `faults`",
        )
    if repeats and outcome.sent and outcome.lost == outcome.sent:
        return Cause(
            f"link {name} loses every packet ({outcome.lost} of {outcome.sent})",
            "a loss below 100% for it in `faults`",
        )
    if not outcome.dropped or outcome.sent:
        return None
    buffer_bytes = int(network.buffer_bytes[link])
    if not network.is_host[network.link_source[link]] and buffer_bytes < packet_bytes:
        return Cause(
            f"the buffer of link {name}, {buffer_bytes}B, is smaller than one packet, {packet_bytes}B",
            f"topology.buffer of {packet_bytes}B or more, better a full window",
        )
    return None


def _why_lossy(network: Network, link: int, outcome: LinkOutcomes) -> Cause | None:
    """Why a link passes too few packets."""
    name = network.link_names[link]
    if outcome.dropped:
        return Cause(
            f"the buffer of link {name} is too small for the traffic that meets there "
            f"({outcome.dropped} of {outcome.tried} packets refused)",
            "a larger topology.buffer, or fewer slots",
        )
    if 2 * outcome.grown > outcome.sent and network.is_inside(link):
        return Cause(
            f"host {name} is too slow for its packets: {outcome.waiting} wait for it",
            "more cores in `hosts`, a longer collective.timeout, or fewer slots",
        )
    if 2 * outcome.grown > outcome.sent:
        return Cause(
            f"link {name} is too slow for its traffic: {outcome.waiting} packets wait for it",
            "a higher rate for it (link_rate in `faults`), a longer collective.timeout, or fewer slots",
        )
    if outcome.lost:
        what, verb = ("corruption", "corrupts") if outcome.is_corrupting else ("loss", "loses")
        return Cause(
            f"link {name} {verb} so many packets that no message arrives complete "
            f"({outcome.lost} of {outcome.sent} packets)",
            f"less {what} in `faults`, or fewer packets per message",
        )
    return None
