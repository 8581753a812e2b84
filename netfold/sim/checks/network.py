"""Checks of the links and switches, which all jobs of a variant share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netfold.sim.checks.finding import Counters, Finding, recorded
from netfold.sim.plan.multicast import receivers_of
from netfold.sim.plan.plan import VariantPlan
from netfold.sim.results.records import CheckRecord, FaultRecord, LinkRecord
from netfold.switch.program import ProgramSpec


def check_network(
    variant: VariantPlan,
    links: list[LinkRecord],
    faults: list[FaultRecord],
    counters: Sequence[Counters],
    label: str,
) -> list[CheckRecord]:
    """Check the links and switches; the records have the label of one job.

    `counters` are those of every job's points, root first; empty for a job that runs no switch program.
    """
    copies = sum(fault.count for fault in faults if fault.kind == "duplicate")
    return recorded(
        label,
        {
            "conservation": lambda: conservation(links),
            "switches_add_up": lambda: switches_add_up(variant, links, copies, counters),
        },
    )


def conservation(links: list[LinkRecord]) -> Finding:
    """On every link, bytes sent = bytes delivered + lost + in flight, and they fit the time it was busy."""
    for link in links:
        accounted = link.delivered_bytes + link.lost_bytes + link.in_flight_bytes
        if link.bytes != accounted:
            return Finding(
                False, f"link {link.link} sent {link.bytes} B, but {accounted} B are accounted for"
            )
        if link.busy_ps * link.rate_bps < link.bytes * 8 * 10**12:
            return Finding(
                False, f"link {link.link} sent {link.bytes} B faster than {link.rate_bps} bps allows"
            )
    total = sum(link.bytes for link in links)
    return Finding(True, f"{total} B sent on {len(links)} links, every byte delivered, lost or in flight")


def switches_add_up(
    variant: VariantPlan, links: list[LinkRecord], copies: int, counters: Sequence[Counters]
) -> Finding:
    """Every packet into a switch leaves it or is dropped; a point takes packets and sends copies of results.

    Faults make the counts uncertain: up to `copies` packets were duplicated on links out of switches, and a
    packet lost in a loopback, as by a reboot, is a result for all children or a packet for one receiver.
    """
    network = variant.network
    programs = _programs(variant, counters)
    for number, node in enumerate(network.nodes):
        if network.is_host[number]:
            continue
        own = [link for link in links if link.source == link.target == node]
        came = sum(link.delivered_packets for link in links if link.target == node and link not in own)
        left = sum(
            link.packets + link.dropped_packets for link in links if link.source == node and link not in own
        )
        taken, sent, receivers = programs.get(number, _Programs())
        if came < taken:
            return Finding(False, f"switch {node} received {came} packets, its programs saw {taken}")
        if any(link.in_flight_packets for link in own):
            continue  # results in the loopback: not copied yet
        wanted = came - taken + sent
        lost = sum(link.lost_packets + link.dropped_packets for link in own)
        least, most = wanted - lost * receivers, wanted - lost + copies
        if not least <= left <= most:
            due = str(wanted) if least == most else f"{least} to {most}"
            return Finding(False, f"switch {node} sent or dropped {left} packets, {due} were due")
    return Finding(True, "every packet into a switch left it, was dropped there, or was added up")


class _Programs(NamedTuple):
    """Packet counts of all programs on one switch."""

    taken: int = 0  # packets
    sent: int = 0  # packets
    receivers_max: int = 0  # of one result


def _programs(variant: VariantPlan, counters: Sequence[Counters]) -> dict[int, _Programs]:
    """Packet counts of the programs, by the node of their switch."""
    programs: dict[int, _Programs] = {}
    for job, points in zip(variant.jobs, counters, strict=True):
        places = [
            (tree, place) for tree in job.collective.aggregations for place in range(len(tree.switches))
        ]
        for (tree, place), counted in zip(places, points, strict=True):
            node, receivers = tree.switches[place], len(receivers_of(tree, place))
            before, own = programs.get(node, _Programs()), _point_packets(tree.program, receivers, counted)
            programs[node] = _Programs(
                before.taken + own[0], before.sent + own[1], max(before.receivers_max, receivers)
            )
    return programs


def _point_packets(program: ProgramSpec, receivers: int, counted: Mapping[str, int]) -> tuple[int, int]:
    """Packets that one point, or split, took and sent."""
    found = Counter(counted)  # counters that a program does not have are 0
    if program.has_server:  # points send sums to the server, and its acknowledgements to all workers
        acknowledged = found["acknowledged"]
        return found["packets"] + acknowledged, found["forwarded"] + acknowledged * receivers
    to_one = sum(found[name] for name in ("answers", "late", "expired", "partials"))
    to_all = sum(found[name] for name in ("results", "timed_out", "installed", "split"))
    taken = sum(found[name] for name in ("packets", "installed", "stale_results", "split"))
    return taken, to_one + to_all * receivers
