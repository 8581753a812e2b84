"""Checks of the results of one job."""

from __future__ import annotations

import math
from dataclasses import replace

from netfold.homomorphic.bounds import FLOAT_MAX, PART_ELEMENTS
from netfold.homomorphic.codec import Codec, Promise
from netfold.homomorphic.message import ORDER_FREE, Merge
from netfold.homomorphic.promises import largest_bias
from netfold.homomorphic.round import NoteKind
from netfold.sim.checks.distance import beyond_note, far_note, lost_note
from netfold.sim.checks.finding import Counters, Ending, Finding, recorded
from netfold.sim.checks.journal import Journal
from netfold.sim.checks.leaks import nothing_leaked
from netfold.sim.checks.rounds import Findings
from netfold.sim.plan.plan import JobPlan
from netfold.sim.plan.warnings import clipped_sums
from netfold.sim.report.words import MISSED_FORECASTS, REDONE
from netfold.sim.results.records import CheckRecord, LinkRecord, RoundRecord

_AT_HOSTS = {Merge.GATHER, Merge.HOST}  # merges whose results hosts make or pass on
ADDITIONS = "(n − 1) · 2⁻²⁴ · Σ|x|"  # the largest error of n − 1 float32 additions
_NOT_AT_ONCE = (
    (NoteKind.REDO, REDONE),
    (NoteKind.FORECAST, MISSED_FORECASTS),
    (NoteKind.ESTIMATE, "elements are estimates"),
)


def check_job(
    job: JobPlan, journal: Journal, links: list[LinkRecord], ending: Ending, points: Counters
) -> list[CheckRecord]:
    """Check the results of one job. Checks that fail only because the job did not finish have its verdict.

    `points` are the counters of its switches; empty if it runs no switch program.
    """
    checks = {
        "decodes": lambda: decodes(journal, ending),
        "sum_is_right": lambda: sum_is_right(job.codec, journal),
        "merges_are_exact": lambda: merges_are_exact(job, journal, points),
        "merges_are_right": lambda: merges_are_right(journal),
        "replicas_agree": lambda: replicas_agree(journal),
        "nothing_lost": lambda: nothing_lost(job, journal, links),
    }
    if job.codec.merges & _AT_HOSTS:
        checks["hosts_merge_right"] = lambda: hosts_merge_right(journal)
    if ending.verdict == "pass":
        checks["nothing_leaked"] = lambda: nothing_leaked(ending)
    unfinished = {"nothing_lost"} | (set() if journal.rounds else {"decodes", "sum_is_right"})
    return [
        CheckRecord(job.label, "finishes", ending.verdict, ending.detail),
        *(
            replace(check, verdict=ending.verdict)
            if check.name in unfinished and check.verdict == "fail" and ending.verdict != "pass"
            else check
            for check in recorded(job.label, checks)
        ),
    ]


def decodes(journal: Journal, ending: Ending) -> Finding:
    """Everything was decoded in the end, possibly after a redo."""
    if ending.is_undecoded:
        return Finding(False, f"after {len(journal.rounds)} rounds, merged messages were not decoded")
    if not journal.rounds:
        return Finding(False, "no round was aggregated")
    notes = [text for kind, what in _NOT_AT_ONCE if (text := _note_summary(journal, kind, what))]
    return Finding(True, "; ".join(notes) or f"all {len(journal.rounds)} rounds decoded at once")


def _note_summary(journal: Journal, kind: NoteKind, what: str) -> str:
    """How many parts the notes of a kind are about, their outcome, and the first place; "" if none."""
    notes = [note for note in journal.notes if note.kind == kind.value and note.count]
    if not notes:
        return ""
    counts = f"{sum(note.count for note in notes)} of {sum(note.total for note in notes)}"
    return f"{counts} {what}: first in step {notes[0].step}, bucket {notes[0].bucket}"


def sum_is_right(codec: Codec, journal: Journal) -> Finding:
    """Every total keeps the codec's promise about the contributions to it.

    Every element is within the codec's bound of the ideal: the float64 sum, unless the codec names another.
    Elements that the codec reports as estimates are exempt. Totals that are promised to be exact are the
    exact sums, rounded once; those promised to be unbiased have no bias that chance does not explain. None is
    infinite, not all are zero, and where workers contribute their whole gradients and no luck is involved,
    totals are near their sums (`NMSE_MAX`), estimates included.
    """
    if not journal.rounds:
        return Finding(False, "no round was aggregated")
    worst = max(range(len(journal.rounds)), key=lambda index: journal.rounds[index].max_error_over_bound)
    record, findings = journal.rounds[worst], journal.findings[worst]
    error = max(one.max_bounded_error for one in journal.findings)
    detail = f"largest error {error:.3g}, at most {record.max_error_over_bound:.3g} of the codec's bound"
    detail += _ideal_note(codec, journal)
    if record.max_error_over_bound <= 1.0:
        broken = (
            beyond_note(journal)
            or _inexact_note(journal)
            or _bias_note(journal)
            or lost_note(codec, journal)
            or far_note(codec, journal)
        )
        return Finding(not broken, broken or detail + _promise_note(codec, journal) + _exempt_note(journal))
    place = f"step {record.step}, bucket {record.bucket}, element {findings.worst_element}"
    merged = f"; merged wrong at {findings.first_wrong}" if findings.first_wrong else ""
    return Finding(False, f"{detail}, at {place}{merged}{_overflow_note(findings)}{_exempt_note(journal)}")


def _ideal_note(codec: Codec, journal: Journal) -> str:
    """What totals are compared with, if that is not the sum of the gradients."""
    if any(findings.is_held_back for findings in journal.findings):
        return f" around {codec.ideal_name}"
    return ""


def _promise_note(codec: Codec, journal: Journal) -> str:
    """How a promise beyond the bound was kept."""
    if codec.promise is Promise.UNBIASED:
        bias = largest_bias(journal.drifts)
        return f"; no bias: {bias.statistics} sums of errors are at most {bias.over_allowed:.3g} of chance's"
    return ""


def _inexact_note(journal: Journal) -> str:
    """Where totals are not the exact sums that the codec promises; empty if they are."""
    for record, findings in zip(journal.rounds, journal.findings, strict=True):
        if findings.inexact_elements:
            place = f"step {record.step}, bucket {record.bucket}"
            count = sum(one.inexact_elements for one in journal.findings)
            return f"{count} elements are not the exact sum of the contributions, first in {place}"
    return ""


def _bias_note(journal: Journal) -> str:
    """Where totals that should be unbiased are not; empty if they are."""
    bias = largest_bias(journal.drifts)
    if bias.over_allowed <= 1:
        return ""
    elements = f"from element {bias.stretch * PART_ELEMENTS} of bucket {bias.bucket}"
    return (
        f"totals are biased: the errors {elements} add up to {bias.sum:.3g}, and chance allows "
        f"{bias.allowed:.3g} in a run"
    )


def _overflow_note(findings: Findings) -> str:
    """Why finite values may have become infinite although their sum is finite."""
    if findings.max_error_over_bound < math.inf or findings.worst_magnitude < FLOAT_MAX:
        return ""
    return f"; partial sums may have left float32 on the way: Σ|x| is {findings.worst_magnitude:.3g} there"


def _exempt_note(journal: Journal) -> str:
    """Which elements are exempt from the bound."""
    elements = sum(record.elements for record in journal.rounds)
    estimates = sum(record.estimated_elements for record in journal.rounds)
    infinities = sum(record.infinite_elements for record in journal.rounds)
    note = ""
    if estimates:
        error = max(findings.max_estimate_error for findings in journal.findings)
        note += f"; {estimates} of {elements} elements are estimates, not held to it, "
        note += f"off by {error:.3g} at most"
    if infinities:
        note += f"; {infinities} of {elements} elements are infinite: their sums exceed float32"
    return note


def merges_are_exact(job: JobPlan, journal: Journal, points: Counters) -> Finding:
    """Every merged integer word, at every worker, is the integer sum, bit for bit.

    Counters of a sketch that saturated or stuck are allowed if parts of that round were sent again, as a tile
    with such a counter does not decode. Otherwise they are wrong.
    """
    merges = job.codec.merges
    places = list(zip(journal.rounds, journal.findings, strict=True))
    is_integer = bool(merges & (ORDER_FREE | {Merge.GATHER}))
    if not is_integer and not any(findings.wrong_words for _, findings in places):
        return Finding(True, "no words were added as integers")
    wrong = [
        (record, findings.first_wrong or findings.first_clipped, count)
        for record, findings in places
        if (count := findings.wrong_words + _not_sent_again(record, findings))
    ]
    if wrong:
        record, word, _ = wrong[0]
        place = f"step {record.step}, bucket {record.bucket}, {word}{clipped_sums(job, points)}"
        return Finding(False, f"{sum(count for *_, count in wrong)} merged words are wrong, first in {place}")
    what = "words" if all(findings.is_integer for findings in journal.findings) else "integer words"
    right = f"all merged {what} of {len(journal.rounds)} rounds equal their integer sums"
    gathered = f"all gathered words of {len(journal.rounds)} rounds arrived as they were sent"
    detail = right if merges & ORDER_FREE else gathered
    clipped = [(record, findings) for record, findings in places if findings.clipped_words]
    if clipped:
        record, findings = clipped[0]
        count = sum(findings.clipped_words for _, findings in clipped)
        detail += f", except {count} in parts that were sent again{clipped_sums(job, points)}: first in "
        detail += f"step {record.step}, bucket {record.bucket}, {findings.first_clipped}"
    return Finding(True, detail)


def _not_sent_again(record: RoundRecord, findings: Findings) -> int:
    """Words that adders clipped in a round of which no part was sent again."""
    return 0 if record.redone_parts or record.forecast_misses else findings.clipped_words


def merges_are_right(journal: Journal) -> Finding:
    """Every merged word that is no integer is right, at every worker.

    Float32 words are within the error of the additions from the sum of the words sent. Each bit of sign words
    is some present worker's, all workers received the same, and no worker's bits survive more often than its
    weight allows. This holds for any codec: estimates, too, are computed from sums that were added right.
    """
    found = [finding for finding in (_floats_are_right(journal), _signs_are_right(journal)) if finding]
    if not found:
        return Finding(True, "no words were added as floats")
    said = [one for one in found if not one.passed] or found
    return Finding(all(one.passed for one in found), "; ".join(one.detail for one in said))


def _floats_are_right(journal: Journal) -> Finding | None:
    """The findings on float32 words; None if there are none."""
    words = sum(findings.float_words for findings in journal.findings)
    wrong = sum(findings.wrong_floats for findings in journal.findings)
    if not words:
        return None
    if not wrong:
        return Finding(True, f"all {words} merged float32 words are within {ADDITIONS} of the words sent")
    first = next(i for i, findings in enumerate(journal.findings) if findings.wrong_floats)
    record, word = journal.rounds[first], journal.findings[first].first_wrong_float
    place = f"step {record.step}, bucket {record.bucket}, {word}"
    return Finding(
        False,
        f"{wrong} of {words} merged float32 words are not within {ADDITIONS} of the words sent, "
        f"first in {place}",
    )


def _signs_are_right(journal: Journal) -> Finding | None:
    """The findings on sign words; None if there are none."""
    signs = journal.signs
    if not signs.words:
        return None
    faults = []
    if signs.wrong_words:
        count = f"{signs.wrong_words} of {signs.words} merged sign words are wrong"
        faults.append(f"{count}, first at {signs.first_wrong}")
    if signs.first_unfair:
        faults.append(str(signs.first_unfair))
    if faults:
        return Finding(False, "; ".join(faults))
    words = f"all {signs.words} merged sign words"
    return Finding(True, f"{words} have only bits that workers sent, each worker's as often as is fair")


def hosts_merge_right(journal: Journal) -> Finding:
    """Host merges and server answers equal their replay bit for bit; every gathered message arrived."""
    found = [findings.at_hosts for findings in journal.findings]
    wrong = sum(one.wrong for one in found)
    if not wrong:
        words = sum(one.words for one in found)
        return Finding(True, f"all {words} words that hosts merged or passed on equal their replay")
    first = next(i for i, one in enumerate(found) if one.wrong)
    place = f"step {journal.rounds[first].step}, bucket {journal.rounds[first].bucket}"
    return Finding(
        False, f"{wrong} words of hosts differ from their replay, first in {place}, {found[first].first}"
    )


def replicas_agree(journal: Journal) -> Finding:
    """All workers decoded the same bits, so their models stay the same, and recorded the same notes."""
    bad = [record for record in journal.rounds if not record.replicas_agree]
    unlike = [record for record in journal.rounds if not record.notes_agree]
    if unlike and not bad:
        place = f"step {unlike[0].step}, bucket {unlike[0].bucket}"
        return Finding(False, f"workers recorded different notes on {len(unlike)} rounds, first {place}")
    if not bad:
        return Finding(True, f"all workers decoded the same bits in {len(journal.rounds)} rounds")
    return Finding(
        False, f"workers differ in {len(bad)} rounds, first step {bad[0].step}, bucket {bad[0].bucket}"
    )


def nothing_lost(job: JobPlan, journal: Journal, links: list[LinkRecord]) -> Finding:
    """Every bucket of every step was aggregated, regardless of lost packets."""
    expected = job.steps * journal.buckets_count
    lost = sum(link.lost_packets + link.dropped_packets for link in links)
    detail = (
        f"{len(journal.rounds)} of {expected} rounds aggregated; {lost} packets lost or dropped on the way"
    )
    return Finding(len(journal.rounds) == expected, detail)
