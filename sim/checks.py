"""The checks that end every variant, each a sentence that can be false."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from homomorphic.merge import ORDER_FREE
from sim.engine.model import Job
from sim.job import Journal
from sim.plan import VariantPlan
from sim.record import CheckRecord, LinkRecord

LEAKS_SHOWN = 3


class Finding(NamedTuple):
    """Whether a check passed, and the numbers behind it."""

    passed: bool
    detail: str


class Ending(NamedTuple):
    """How a variant ended: "pass" when all its steps are done, "stuck", or "fail" with a codec's error."""

    verdict: str
    detail: str
    diagnosis: Mapping[str, Any] | None = None  # of a stuck one


class Switches(NamedTuple):
    """What a variant left in its switches."""

    counters: Mapping[str, int]  # of its program, none if it runs none
    leaks: Sequence[str]  # slots and entries that nobody will use any more


def check_variant(
    variant: VariantPlan, journal: Journal, links: list[LinkRecord], switches: Switches, ending: Ending
) -> list[CheckRecord]:
    """All checks of one variant. What is only missing because it did not finish has the verdict of that."""
    checks: dict[str, Callable[[], Finding]] = {
        "sum_is_right": lambda: sum_is_right(journal),
        "merges_are_exact": lambda: merges_are_exact(variant, journal),
        "replicas_agree": lambda: replicas_agree(journal),
        "nothing_lost": lambda: nothing_lost(variant, journal, links),
        "conservation": lambda: conservation(links),
        "switches_add_up": lambda: switches_add_up(variant, links, switches.counters),
    }
    if ending.verdict == "pass":
        checks["nothing_leaked"] = lambda: nothing_leaked(switches.leaks)
    unfinished = {"nothing_lost"} | (set() if journal.rounds else {"sum_is_right"})
    records = [CheckRecord(variant.name, "finishes", ending.verdict, ending.detail)]
    for name, check in checks.items():
        finding = check()
        verdict = "pass" if finding.passed else "fail"
        if verdict == "fail" and name in unfinished and ending.verdict != "pass":
            verdict = ending.verdict
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
    merged = f"; merged wrong at {findings.first_wrong}" if findings.first_wrong else ""
    return Finding(False, f"{detail}, at {place}{merged}")


def merges_are_exact(variant: VariantPlan, journal: Journal) -> Finding:
    """Every merged integer word, at every worker, is the integer sum, bit for bit."""
    wrong = sum(findings.wrong_words for findings in journal.findings)
    if not variant.codec.merges <= ORDER_FREE:
        return Finding(wrong == 0, "float sums depend on their order: held to the error bound instead")
    if wrong == 0:
        return Finding(True, f"all merged words of {len(journal.rounds)} rounds equal their integer sums")
    first = next(i for i, findings in enumerate(journal.findings) if findings.wrong_words)
    record, word = journal.rounds[first], journal.findings[first].first_wrong
    place = f"step {record.step}, bucket {record.bucket}, {word}"
    return Finding(False, f"{wrong} merged words are wrong, first in {place}")


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


def nothing_leaked(leaks: Sequence[str]) -> Finding:
    """When all is done and nothing is under way, no slot of a switch holds a part of a sum."""
    if not leaks:
        return Finding(True, "every slot and entry of the switches is free or complete")
    more = f" and {len(leaks) - LEAKS_SHOWN} more" if len(leaks) > LEAKS_SHOWN else ""
    return Finding(False, f"{len(leaks)} left behind: {'; '.join(leaks[:LEAKS_SHOWN])}{more}")


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


def switches_add_up(variant: VariantPlan, links: list[LinkRecord], aggregator: Mapping[str, int]) -> Finding:
    """What comes into a switch leaves it or is dropped; an aggregator sends copies of its results."""
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
        if left != wanted:
            return Finding(False, f"switch {node} sent or dropped {left} packets, {wanted} were due")
    return Finding(True, "every packet into a switch left it, was dropped there, or was added up")
