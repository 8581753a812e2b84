"""The checks that end every variant, each a sentence that can be false."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from homomorphic.codec import NoteKind
from homomorphic.merge import ORDER_FREE
from sim.engine.model import Job, Program
from sim.journal import Journal
from sim.plan import JobPlan, VariantPlan
from sim.record import CheckRecord, FaultRecord, LinkRecord
from sim.resolve.warnings import clipped_sums

Counters = Sequence[Mapping[str, int]]  # of one job's switch program, by point

LEAKS_SHOWN = 3
_NOT_AT_ONCE = (
    (NoteKind.REDO, "parts did not decode and were sent again"),
    (NoteKind.FORECAST, "parts were sent on a forecast that did not suit, and again"),
    (NoteKind.ESTIMATE, "elements did not decode and are estimates"),
)


class Finding(NamedTuple):
    """Whether a check passed, and the numbers behind it."""

    passed: bool
    detail: str


class Ending(NamedTuple):
    """How a job ended: "pass" when all its steps are done, "stuck", or "fail" with a codec's error."""

    verdict: str
    detail: str
    diagnosis: Mapping[str, Any] | None = None  # of a stuck one
    leaks: Sequence[str] = ()  # slots and entries of switches that nobody will use any more
    is_undecoded: bool = False  # merged messages were left that could not be decoded


def check_job(
    job: JobPlan, journal: Journal, links: list[LinkRecord], ending: Ending, points: Counters
) -> list[CheckRecord]:
    """Checks of what one job came to. What is only missing because it did not finish has that verdict.

    `points` are the counters of its switches, none where it runs no switch program.
    """
    checks = {
        "decodes": lambda: decodes(journal, ending),
        "sum_is_right": lambda: sum_is_right(journal),
        "merges_are_exact": lambda: merges_are_exact(job, journal, points),
        "replicas_agree": lambda: replicas_agree(journal),
        "nothing_lost": lambda: nothing_lost(job, journal, links),
    }
    if ending.verdict == "pass":
        checks["nothing_leaked"] = lambda: nothing_leaked(ending.leaks)
    unfinished = {"nothing_lost"} | (set() if journal.rounds else {"decodes", "sum_is_right"})
    return [
        CheckRecord(job.label, "finishes", ending.verdict, ending.detail),
        *(
            replace(check, verdict=ending.verdict)
            if check.name in unfinished and check.verdict == "fail" and ending.verdict != "pass"
            else check
            for check in _recorded(job.label, checks)
        ),
    ]


def check_network(
    variant: VariantPlan,
    links: list[LinkRecord],
    faults: list[FaultRecord],
    counters: Sequence[Counters],
    label: str,
) -> list[CheckRecord]:
    """Checks of what all jobs of a variant share, as those of one of them.

    `counters` are those of every job's points, root first; none where it runs no switch program.
    """
    copies = sum(fault.count for fault in faults if fault.kind == "duplicate")
    return _recorded(
        label,
        {
            "conservation": lambda: conservation(links),
            "switches_add_up": lambda: switches_add_up(variant, links, copies, counters),
        },
    )


def _recorded(label: str, checks: Mapping[str, Callable[[], Finding]]) -> list[CheckRecord]:
    found = {name: check() for name, check in checks.items()}
    return [
        CheckRecord(label, name, "pass" if finding.passed else "fail", finding.detail)
        for name, finding in found.items()
    ]


def decodes(journal: Journal, ending: Ending) -> Finding:
    """Everything was decoded in the end, if not at once."""
    if ending.is_undecoded:
        return Finding(False, f"after {len(journal.rounds)} rounds, merged messages were left undecoded")
    if not journal.rounds:
        return Finding(False, "no round was aggregated")
    told = [text for kind, what in _NOT_AT_ONCE if (text := _told(journal, kind, what))]
    return Finding(True, "; ".join(told) or f"all {len(journal.rounds)} rounds decoded at once")


def _told(journal: Journal, kind: NoteKind, what: str) -> str:
    """How many parts notes of a kind are about, what became of them, and where first; nothing if none."""
    notes = [note for note in journal.notes if note.kind == kind.value and note.count]
    if not notes:
        return ""
    counts = f"{sum(note.count for note in notes)} of {sum(note.total for note in notes)}"
    return f"{counts} {what}: first in step {notes[0].step}, bucket {notes[0].bucket}"


def sum_is_right(journal: Journal) -> Finding:
    """Every decoded element is within the codec's bound of the float64 sum of the gradients.

    Those that the codec tells to be estimates are not held to it; infinities are held to be right.
    """
    if not journal.rounds:
        return Finding(False, "no round was aggregated")
    worst = max(range(len(journal.rounds)), key=lambda index: journal.rounds[index].max_error_over_bound)
    record, findings = journal.rounds[worst], journal.findings[worst]
    error = max(one.max_bounded_error for one in journal.findings)
    detail = f"largest error {error:.3g}, at most {record.max_error_over_bound:.3g} of the codec's bound"
    if record.max_error_over_bound <= 1.0:
        return Finding(True, detail + _exempt(journal))
    place = f"step {record.step}, bucket {record.bucket}, element {findings.worst_element}"
    merged = f"; merged wrong at {findings.first_wrong}" if findings.first_wrong else ""
    return Finding(False, f"{detail}, at {place}{merged}{_exempt(journal)}")


def _exempt(journal: Journal) -> str:
    """Which elements are not held to the bound."""
    elements = sum(record.elements for record in journal.rounds)
    estimates = sum(record.estimated_elements for record in journal.rounds)
    infinities = sum(record.infinite_elements for record in journal.rounds)
    told = ""
    if estimates:
        error = max(findings.max_estimate_error for findings in journal.findings)
        told += f"; {estimates} of {elements} elements are estimates, not held to it, "
        told += f"off by {error:.3g} at most"
    if infinities:
        told += f"; {infinities} of {elements} elements are infinite, their sums being beyond float32"
    return told


def merges_are_exact(job: JobPlan, journal: Journal, points: Counters) -> Finding:
    """Every merged integer word, at every worker, is the integer sum, bit for bit."""
    wrong = sum(findings.wrong_words for findings in journal.findings)
    if not job.codec.merges <= ORDER_FREE:
        return Finding(wrong == 0, "float sums depend on their order: held to the error bound instead")
    if wrong == 0:
        detail = f"all merged words of {len(journal.rounds)} rounds equal their integer sums"
        if not all(findings.is_integer for findings in journal.findings):
            detail += ", but for units sent as floats where sums overflowed: held to the error bound instead"
        return Finding(True, detail)
    first = next(i for i, findings in enumerate(journal.findings) if findings.wrong_words)
    record, word = journal.rounds[first], journal.findings[first].first_wrong
    place = f"step {record.step}, bucket {record.bucket}, {word}"
    return Finding(False, f"{wrong} merged words are wrong, first in {place}{clipped_sums(job, points)}")


def replicas_agree(journal: Journal) -> Finding:
    """All workers decoded the same bits, so their models stay the same, and told the same notes of them."""
    bad = [record for record in journal.rounds if not record.replicas_agree]
    unlike = [record for record in journal.rounds if not record.notes_agree]
    if unlike and not bad:
        place = f"step {unlike[0].step}, bucket {unlike[0].bucket}"
        return Finding(False, f"workers tell different notes of {len(unlike)} rounds, first {place}")
    if not bad:
        return Finding(True, f"all workers decoded the same bits in {len(journal.rounds)} rounds")
    return Finding(
        False, f"workers differ in {len(bad)} rounds, first step {bad[0].step}, bucket {bad[0].bucket}"
    )


def nothing_lost(job: JobPlan, journal: Journal, links: list[LinkRecord]) -> Finding:
    """Every bucket of every step was aggregated, whatever the network lost."""
    expected = job.steps * journal.buckets_count
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
    shown = f"{'; '.join(leaks[:LEAKS_SHOWN])}{more}"
    return Finding(
        False, f"{len(leaks)} left behind: {shown} (late duplicates or a switch_reboot can do this)"
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
    """What comes into a switch leaves it or is dropped; a point takes packets and sends copies of results.

    Faults leave some play: up to `copies` packets were doubled on links that lead out of switches, and what
    was lost in a loopback, as by a reboot, is a result for all children or a packet for one receiver.
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
        taken, sent, children = programs.get(number, _Programs())
        if came < taken:
            return Finding(False, f"switch {node} received {came} packets, its programs saw {taken}")
        if any(link.in_flight_packets for link in own):
            continue  # results on their way through the loopback: not copied yet
        wanted = came - taken + sent
        lost = sum(link.lost_packets + link.dropped_packets for link in own)
        least, most = wanted - lost * children, wanted - lost + copies
        if not least <= left <= most:
            due = str(wanted) if least == most else f"{least} to {most}"
            return Finding(False, f"switch {node} sent or dropped {left} packets, {due} were due")
    return Finding(True, "every packet into a switch left it, was dropped there, or was added up")


class _Programs(NamedTuple):
    """What the programs on one switch did, all together."""

    taken: int = 0  # packets
    sent: int = 0  # packets
    children_max: int = 0  # receivers of one result


def _programs(variant: VariantPlan, counters: Sequence[Counters]) -> dict[int, _Programs]:
    """What programs did, by the node of their switch."""
    programs: dict[int, _Programs] = {}
    for job, points in zip(variant.jobs, counters, strict=True):
        plan = job.collective
        if not isinstance(plan, Job):
            continue
        switches = (plan.switch, *(branch.switch for branch in plan.branches))
        homes = plan.homes or (0,) * len(plan.hosts)
        parents = [branch.parent for branch in plan.branches]
        for point, (node, counted) in enumerate(zip(switches, points, strict=True)):
            children = homes.count(point) + parents.count(point)
            before, own = programs.get(node, _Programs()), _point_packets(plan.program, children, counted)
            programs[node] = _Programs(
                before.taken + own[0], before.sent + own[1], max(before.children_max, children)
            )
    return programs


def _point_packets(program: Program, children: int, counted: Mapping[str, int]) -> tuple[int, int]:
    """Packets that one point took and sent."""
    found = Counter(counted)  # a program counts what it does: the rest is 0
    if program is Program.ATP:  # sums go to the server, its acknowledgements to all workers
        acknowledged = found["acknowledged"]
        return found["packets"] + acknowledged, found["forwarded"] + acknowledged * children
    to_one = sum(found[name] for name in ("answers", "late", "expired", "partials"))
    to_all = sum(found[name] for name in ("results", "timed_out", "installed"))
    return found["packets"] + found["installed"] + found["stale_results"], to_one + to_all * children
