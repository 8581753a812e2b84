"""The checks that end every variant, each a sentence that can be false."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from homomorphic.merge import ORDER_FREE
from sim.engine.model import Job
from sim.job import Journal
from sim.plan import VariantPlan
from sim.record import CheckRecord, FaultRecord, LinkRecord


class Finding(NamedTuple):
    """Whether a check passed, and the numbers behind it."""

    passed: bool
    detail: str


def check_variant(
    variant: VariantPlan,
    journal: Journal,
    links: list[LinkRecord],
    faults: list[FaultRecord],
    aggregator: Mapping[str, int],
) -> list[CheckRecord]:
    """All checks of one variant; `aggregator` holds the counters of its switch program, if it runs one."""
    copies = sum(fault.count for fault in faults if fault.kind == "duplicate")
    checks: dict[str, Callable[[], Finding]] = {
        "sum_is_right": lambda: sum_is_right(journal),
        "merges_are_exact": lambda: merges_are_exact(variant, journal),
        "replicas_agree": lambda: replicas_agree(journal),
        "nothing_lost": lambda: nothing_lost(variant, journal, links),
        "conservation": lambda: conservation(links),
        "switches_add_up": lambda: switches_add_up(variant, links, copies, aggregator),
    }
    records = []
    for name, check in checks.items():
        finding = check()
        verdict = "pass" if finding.passed else "fail"
        records.append(CheckRecord(variant.name, name, verdict, finding.detail))
    return records


def sum_is_right(journal: Journal) -> Finding:
    """Every decoded element is within the codec's bound of the float64 sum of the gradients."""
    if not journal.rounds:
        return Finding(False, "no round was aggregated")
    worst = max(range(len(journal.rounds)), key=lambda index: journal.rounds[index].max_error_over_bound)
    record, findings = journal.rounds[worst], journal.findings[worst]
    error = max(one.max_abs_error for one in journal.rounds)
    detail = f"largest error {error:.3g}, at most {record.max_error_over_bound:.3g} of the codec's bound"
    if record.max_error_over_bound <= 1.0:
        return Finding(True, detail)
    place = f"step {record.step}, bucket {record.bucket}, element {findings.worst_element}"
    return Finding(False, f"{detail}, at {place}")


def merges_are_exact(variant: VariantPlan, journal: Journal) -> Finding:
    """Every merged integer word, at every worker, is the integer sum, bit for bit."""
    wrong = sum(findings.wrong_words for findings in journal.findings)
    if not variant.codec.merges <= ORDER_FREE:
        return Finding(wrong == 0, "float sums depend on their order: held to the error bound instead")
    if wrong == 0:
        return Finding(True, f"all merged words of {len(journal.rounds)} rounds equal their integer sums")
    first = next(i for i, findings in enumerate(journal.findings) if findings.wrong_words)
    record = journal.rounds[first]
    return Finding(
        False, f"{wrong} merged words are wrong, first in step {record.step}, bucket {record.bucket}"
    )


def replicas_agree(journal: Journal) -> Finding:
    """All workers decoded the same bits, so their models stay the same."""
    bad = [record for record in journal.rounds if not record.replicas_agree]
    if not bad:
        return Finding(True, f"all workers decoded the same bits in {len(journal.rounds)} rounds")
    return Finding(
        False, f"workers differ in {len(bad)} rounds, first step {bad[0].step}, bucket {bad[0].bucket}"
    )


def nothing_lost(variant: VariantPlan, journal: Journal, links: list[LinkRecord]) -> Finding:
    """Every bucket of every step was aggregated, whatever the network lost."""
    expected = variant.steps * journal.buckets_count
    lost = sum(link.lost_packets + link.dropped_packets for link in links)
    detail = (
        f"{len(journal.rounds)} of {expected} rounds aggregated; {lost} packets lost or dropped on the way"
    )
    return Finding(len(journal.rounds) == expected, detail)


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
    variant: VariantPlan, links: list[LinkRecord], copies: int, aggregator: Mapping[str, int]
) -> Finding:
    """What comes into a switch leaves it or is dropped; an aggregator sends copies of its results.

    Faults leave some play: up to `copies` packets were doubled on links that lead out of switches, and what
    was lost in a loopback, as by a reboot, is a result for all or an answer for one.
    """
    plan, network = variant.collective, variant.network
    home = network.nodes[plan.switch] if isinstance(plan, Job) else None
    for node, is_host in zip(network.nodes, network.is_host, strict=True):
        if is_host:
            continue
        own = [link for link in links if link.source == link.target == node]
        came = sum(link.delivered_packets for link in links if link.target == node and link not in own)
        left = sum(
            link.packets + link.dropped_packets for link in links if link.source == node and link not in own
        )
        wanted = came
        if node == home and isinstance(plan, Job):
            if came != aggregator["packets"]:
                detail = f"switch {node} received {came} packets, its program saw {aggregator['packets']}"
                return Finding(False, detail)
            if any(link.in_flight_packets for link in own):
                continue  # results on their way through the loopback: not copied yet
            wanted = aggregator["results"] * len(variant.hosts) + aggregator["answers"]
        lost = sum(link.lost_packets + link.dropped_packets for link in own)
        least, most = wanted - lost * len(variant.hosts), wanted - lost + copies
        if not least <= left <= most:
            due = str(wanted) if least == most else f"{least} to {most}"
            return Finding(False, f"switch {node} sent or dropped {left} packets, {due} were due")
    return Finding(True, "every packet into a switch left it, was dropped there, or was added up")
