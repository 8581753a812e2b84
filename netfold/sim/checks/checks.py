"""The checks at the end of every variant; each is a statement that can be false."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Codec, Decoded, Promise
from netfold.homomorphic.codec_driver import Driven, Sent
from netfold.homomorphic.error_bounds import FLOAT_MAX, PART_ELEMENTS, Drift, largest_bias
from netfold.homomorphic.merge import ORDER_FREE, Merge
from netfold.homomorphic.message import Decodings, Gradient, Note, NoteKind
from netfold.kernels.bits import same_bits
from netfold.sim.checks.merged_signs import SignCheck
from netfold.sim.checks.round_checks import NMSE_MAX
from netfold.sim.checks.round_findings import Findings, NoteCounts, RecordedOperation
from netfold.sim.engine.engine_data import Rule
from netfold.sim.engine.tree_paths import into_switches, receivers_of
from netfold.sim.network.stall import DID_TO_PACKETS
from netfold.sim.plan.idle_network import clipped_sums
from netfold.sim.plan.plan import Failure, JobPlan, PlannedFault, Reboot, VariantPlan
from netfold.sim.results.records import (
    FALLEN_BACK,
    MISSED_FORECASTS,
    CheckRecord,
    FaultRecord,
    LinkRecord,
    NoteRecord,
    PhaseRecord,
    RoundRecord,
    StepRecord,
)
from netfold.sim.results.summary import verdict_of_share
from netfold.sim.workload.fusion import Bucket
from netfold.switch.program import ProgramSpec

Counters = Sequence[Mapping[str, int]]
"""Counters of one job's switch program, by point."""


class Finding(NamedTuple):
    """Whether a check passed, and the numbers behind it."""

    passed: bool
    detail: str


class LeakCause(NamedTuple):
    """An effect of an injected fault that can leave slots or entries occupied."""

    what: str
    most: int | None = None  # slots or entries that it can leave occupied; None: any number


class Ending(NamedTuple):
    """How a job ended: "pass" when all its steps are done, "stalled", or "fail" if its codec cannot go on."""

    verdict: str
    detail: str
    diagnosis: Mapping[str, Any] | None = None
    leaks: Sequence[str] = ()  # slots and entries that are still occupied at the end
    leak_causes: Sequence[LeakCause] = ()  # injected faults that can explain them
    is_undecoded: bool = False  # some merged messages could not be decoded
    trace: str = ""
    """Python's traceback of a codec that raised."""


def run_checks(label: str, checks: Mapping[str, Callable[[], Finding]]) -> list[CheckRecord]:
    """Run the checks of a variant or job."""
    findings = {name: check() for name, check in checks.items()}
    return [
        CheckRecord(label, name, "pass" if finding.passed else "fail", finding.detail)
        for name, finding in findings.items()
    ]


# The journal of a job: all records of its run.


FALLBACK_LABEL = "fallback"


@dataclass
class RoundLog:
    gradients: list[Gradient]  # every worker's, while the round is open
    operations: list[RecordedOperation] = field(default_factory=list)
    decoded: dict[int, Decoded] = field(default_factory=dict)
    notes: dict[int, list[Note]] = field(default_factory=dict)
    """Notes of each worker that has begun."""
    decodings: Decodings = field(default_factory=Decodings)
    has_words: bool = True
    """Whether packets carry its words."""
    shared: tuple[Driven, list[Sent]] | None = None
    """The exchange of all workers and what it has sent, where packets carry no words."""
    _totals: list[Gradient] = field(default_factory=list)  # the different ones that workers decoded
    start_ps: int | None = None
    end_ps: int = 0
    wire_bytes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))  # up and down

    @property
    def has_work(self) -> bool:
        """Whether the codec counts any work for any message."""
        messages = (
            message for operation in self.operations for sent in operation.sent.values() for message in sent
        )
        return any(not (message.work.is_free and message.decode_work.is_free) for message in messages)

    def store(self, worker: int, decoded: Decoded) -> None:
        """Store what a worker decoded; equal totals share one array."""
        total = next((stored for stored in self._totals if same_bits(stored, decoded.total)), None)
        if total is None:
            total = decoded.total
            self._totals.append(total)
        self.decoded[worker] = decoded if total is decoded.total else replace(decoded, total=total)

    def keep_first(self) -> None:
        """Keep worker 0's total alone."""
        first = self.decoded[0]
        self.decoded = {0: replace(first, contribution=first.total)}
        self._totals = [first.total]
        self.decodings.clear()
        self.shared = None

    def record(
        self, label: str, step: int, bucket: Bucket, findings: Findings, counts: NoteCounts
    ) -> RoundRecord:
        """The record of the finished round; values that are equal for all workers are worker 0's."""
        assert self.start_ps is not None
        return RoundRecord(
            variant=label,
            step=step,
            bucket=bucket.index,
            elements=bucket.elements,
            start_ps=self.start_ps,
            end_ps=self.end_ps,
            messages=sum(len(operation.sent[0]) for operation in self.operations),
            fallback_messages=sum(
                message.label == FALLBACK_LABEL
                for operation in self.operations
                for message in operation.sent[0]
            ),
            payload_bytes_up=sum(operation.sent_bytes for operation in self.operations),
            payload_bytes_down=sum(operation.received_bytes for operation in self.operations),
            uploads=sum(
                any(operation.contributes(worker) for operation in self.operations)
                for worker in range(len(self.gradients))
            ),
            wire_bytes_up=int(self.wire_bytes[0]),
            wire_bytes_down=int(self.wire_bytes[1]),
            nonzeros=findings.nonzeros,
            union_nonzeros=findings.union_nonzeros,
            merges_verified=findings.merges_verified(bool(counts.fallback_parts or counts.forecast_misses)),
            bit_exact=findings.bit_exact,
            replicas_agree=findings.replicas_agree,
            workers_held_min=findings.held.fewest,
            workers_held_mean=findings.held.mean,
            max_abs_error=findings.max_abs_error,
            nmse=None if self.decoded[0].is_update else findings.loss.nmse,
            cosine=findings.loss.cosine,
            max_error_over_bound=findings.max_error_over_bound,
            notes_agree=counts.agree,
            choice=counts.choice,
            fallback_parts=counts.fallback_parts,
            forecast_misses=counts.forecast_misses,
            estimated_elements=counts.exempt.estimates.size,
            infinite_elements=counts.exempt.infinities.size,
        )

    def note_records(self, label: str, step: int, bucket: int) -> list[NoteRecord]:
        """Worker 0's notes; for a round that never ended, those of the worker with the most notes."""
        has_ended = len(self.decoded) == len(self.gradients)
        notes = self.notes[0] if has_ended else max(self.notes.values(), key=len, default=[])
        return [
            NoteRecord(
                variant=label,
                step=step,
                bucket=bucket,
                kind=note.kind.value,
                text=note.text,
                count=note.count,
                total=note.total,
                elements=None if note.elements is None else note.elements.size,
            )
            for note in notes
        ]


@dataclass
class Journal:
    """All records of a job."""

    buckets_count: int
    steps: list[StepRecord] = field(default_factory=list)
    rounds: list[RoundRecord] = field(default_factory=list)
    notes: list[NoteRecord] = field(default_factory=list)
    signs: SignCheck = field(default_factory=SignCheck)  # checks of all rounds
    phases: list[PhaseRecord] = field(default_factory=list)
    findings: list[Findings] = field(default_factory=list)  # one per round
    bounds_ps: list[tuple[float, float]] = field(default_factory=list)
    """The least aggregation time of each step: of any algorithm, and of its own schedule."""
    drifts: dict[int, Drift] = field(default_factory=dict)
    """Drift of an unbiased codec, by bucket."""
    arrays: dict[str, list[NDArray[np.float32]]] = field(default_factory=dict)
    """What is kept of each step, by its name in the file (`results/kept_arrays.py`)."""
    has_work: bool = False  # its codec counts work for some message

    def add_findings(self, bucket: int, findings: Findings) -> None:
        if findings.drift is not None:
            drift = self.drifts.get(bucket)
            self.drifts[bucket] = findings.drift if drift is None else drift.join(findings.drift)
        self.findings.append(replace(findings, drift=None))

    def with_words(self) -> Journal:
        # Its rounds whose packets carry words, and their findings.
        rounds = [record for record in self.rounds if record.merges_verified is not None]
        return replace(self, rounds=rounds, findings=[each for each in self.findings if each.is_checked])


def covered_ps(spans: list[tuple[int, int]]) -> int:
    """Total time that the spans cover; overlaps count once."""
    covered, reached = 0, 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered


# What is wrong with totals that keep a codec's bound: beyond float32, all zero, or far from the sums.


def beyond_note(journal: Journal) -> str:
    """Where the sum of all workers is more than float32 has; empty if it never is."""
    for record, findings in zip(journal.rounds, journal.findings, strict=True):
        if (beyond := findings.beyond) is not None:
            where = f"step {record.step}, bucket {record.bucket}, element {beyond.element}"
            return (
                f"the sum of {beyond.workers} workers is beyond float32 at {where}: {beyond.sum:.3g}, and "
                f"the largest is {FLOAT_MAX:.3g}; clip or scale the gradients, or lower the learning rate"
            )
    return ""


def lost_note(codec: Codec, journal: Journal) -> str:
    """How many rounds decoded to nothing but zeros; empty if a round did not, or should have."""
    losses = [findings.loss for findings in journal.findings]
    sent = zip(journal.rounds, losses, strict=True)
    lost = [loss for record, loss in sent if record.uploads and loss.sums[1] > 0]
    if not lost or any(loss.sums[2] for loss in losses):
        return ""
    return (
        f"all totals are zero, and the sums of the gradients are not, in {len(lost)} of {len(losses)} "
        f"rounds: the values are lost in encoding; use {codec.remedy}"
    )


def far_note(codec: Codec, journal: Journal) -> str:
    """The round whose total is farthest from the sum of the gradients that went in; empty if all are near."""
    far = [
        (findings.loss.nmse or 0.0, record)
        for record, findings in zip(journal.rounds, journal.findings, strict=True)
        if findings.is_far
    ]
    if not far:
        return ""
    nmse, record = max(far, key=lambda pair: pair[0])
    estimates = f", with {record.estimated_elements} estimates" if record.estimated_elements else ""
    return (
        f"totals are far from the sums of the gradients, which workers contribute whole: NMSE {nmse:.3g} in "
        f"step {record.step}, bucket {record.bucket}{estimates}, at most {NMSE_MAX:g} is allowed, in "
        f"{len(far)} of {len(journal.rounds)} rounds; use {codec.remedy}"
    )


# Checks of the results of one job.


_AT_HOSTS = {Merge.GATHER, Merge.HOST}  # merges whose results hosts make or pass on
ADDITIONS = "(n − 1) · 2⁻²⁴ · Σ|x|"  # the largest error of n − 1 float32 additions
_WITHOUT_WORDS = {"nothing_lost", "nothing_leaked"}
"""Checks that need no words."""
_NOT_AT_ONCE = (
    (NoteKind.FALLBACK, FALLEN_BACK),
    (NoteKind.FORECAST, MISSED_FORECASTS),
    (NoteKind.ESTIMATE, "elements are estimates"),
)


def check_job(
    job: JobPlan, journal: Journal, links: list[LinkRecord], ending: Ending, points: Counters
) -> list[CheckRecord]:
    """Check the results of one job. Checks that fail only because the job did not finish have its verdict.

    `points` are the counters of its switches; empty if it runs no switch program.
    """
    examined = journal.with_words()
    checks = {
        "decodes": lambda: decodes(journal, ending),
        "sum_is_right": lambda: sum_is_right(job.codec, examined),
        "merges_are_exact": lambda: merges_are_exact(job, examined, points),
        "merges_are_right": lambda: merges_are_right(examined),
        "replicas_agree": lambda: replicas_agree(examined),
        "nothing_lost": lambda: nothing_lost(job, journal, links),
    }
    if job.codec.merges & _AT_HOSTS:
        checks["hosts_merge_right"] = lambda: hosts_merge_right(examined)
    if ending.verdict == "pass":
        checks["nothing_leaked"] = lambda: nothing_leaked(ending)
    records = run_checks(job.label, checks)
    if len(examined.rounds) < len(journal.rounds):
        records = _of_part(records, examined.rounds, journal.rounds)
    unfinished = {"nothing_lost"} | (set() if journal.rounds else {"decodes", "sum_is_right"})
    return [
        CheckRecord(job.label, "finishes", ending.verdict, ending.detail),
        *(
            replace(check, verdict=ending.verdict)
            if check.name in unfinished and check.verdict == "fail" and ending.verdict != "pass"
            else check
            for check in records
        ),
    ]


def _of_part(
    records: Sequence[CheckRecord], examined: Sequence[RoundRecord], rounds: Sequence[RoundRecord]
) -> list[CheckRecord]:
    """Checks of a job with rounds whose packets carry no words: those that could be made, and of what."""
    verdict = verdict_of_share(*(sum(record.elements for record in some) for some in (examined, rounds)))
    if examined:
        others = f"in {len(examined)} of {len(rounds)} rounds: packets of the others carry no words"
        return [
            replace(record, verdict=verdict, detail=f"{record.detail}; {others} (workload.payload)")
            if record.name == "sum_is_right" and record.verdict == "pass"
            else record
            for record in records
        ]
    detail = "packets carry no words (workload.payload); times, packets and bytes are checked"
    return [
        replace(record, verdict=verdict, detail=detail) if record.name == "sum_is_right" else record
        for record in records
        if record.name in {"sum_is_right", "nothing_lost", "nothing_leaked"}
    ]


def decodes(journal: Journal, ending: Ending) -> Finding:
    """Everything was decoded in the end, possibly after a fallback."""
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
    error = max(round_findings.max_bounded_error for round_findings in journal.findings)
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
    where = f"step {record.step}, bucket {record.bucket}, element {findings.worst_element}"
    merged = f"; merged wrong at {findings.first_wrong}" if findings.first_wrong else ""
    return Finding(False, f"{detail}, at {where}{merged}{_overflow_note(findings)}{_exempt_note(journal)}")


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
            where = f"step {record.step}, bucket {record.bucket}"
            count = sum(round_findings.inexact_elements for round_findings in journal.findings)
            return f"{count} elements are not the exact sum of the contributions, first in {where}"
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
        where = f"step {record.step}, bucket {record.bucket}, {word}{clipped_sums(job, points)}"
        return Finding(False, f"{sum(count for *_, count in wrong)} merged words are wrong, first in {where}")
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
    # Adders may clip words of a round of which parts are sent again.
    return 0 if record.fallback_parts or record.forecast_misses else findings.clipped_words


def merges_are_right(journal: Journal) -> Finding:
    # This holds for any codec: estimates, too, are computed from sums that were added right.
    findings = [finding for finding in (_floats_are_right(journal), _signs_are_right(journal)) if finding]
    if not findings:
        return Finding(True, "no words were added as floats")
    examples = [finding for finding in findings if not finding.passed] or findings
    return Finding(
        all(finding.passed for finding in findings), "; ".join(finding.detail for finding in examples)
    )


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
    where = f"step {record.step}, bucket {record.bucket}, {word}"
    return Finding(
        False,
        f"{wrong} of {words} merged float32 words are not within {ADDITIONS} of the words sent, "
        f"first in {where}",
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
    replays = [findings.at_hosts for findings in journal.findings]
    wrong = sum(replay.wrong for replay in replays)
    if not wrong:
        words = sum(replay.words for replay in replays)
        return Finding(True, f"all {words} words that hosts merged or passed on equal their replay")
    first = next(i for i, replay in enumerate(replays) if replay.wrong)
    where = f"step {journal.rounds[first].step}, bucket {journal.rounds[first].bucket}"
    return Finding(
        False, f"{wrong} words of hosts differ from their replay, first in {where}, {replays[first].first}"
    )


def replicas_agree(journal: Journal) -> Finding:
    """All workers decoded the same bits, so their models stay the same, and recorded the same notes."""
    bad = [record for record in journal.rounds if not record.replicas_agree]
    unlike = [record for record in journal.rounds if not record.notes_agree]
    if unlike and not bad:
        where = f"step {unlike[0].step}, bucket {unlike[0].bucket}"
        return Finding(False, f"workers recorded different notes on {len(unlike)} rounds, first {where}")
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
    return run_checks(
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
        loopbacks = [link for link in links if link.source == link.target == node]
        came = sum(link.delivered_packets for link in links if link.target == node and link not in loopbacks)
        left = sum(
            link.packets + link.dropped_packets
            for link in links
            if link.source == node and link not in loopbacks
        )
        counted_in, sent, receivers = programs.get(number, _Programs())
        if came < counted_in:
            return Finding(False, f"switch {node} received {came} packets, its programs saw {counted_in}")
        if any(link.in_flight_packets for link in loopbacks):
            continue  # results in the loopback: not copied yet
        departures = came - counted_in + sent
        lost = sum(link.lost_packets + link.dropped_packets for link in loopbacks)
        least, most = departures - lost * receivers, departures - lost + copies
        if not least <= left <= most:
            due = str(departures) if least == most else f"{least} to {most}"
            return Finding(False, f"switch {node} sent or dropped {left} packets, {due} were due")
    return Finding(True, "every packet into a switch left it, was dropped there, or was added up")


class _Programs(NamedTuple):
    """Packet counts of all programs on one switch."""

    taken: int = 0  # packets
    sent: int = 0  # packets
    receivers_max: int = 0
    """Receivers of one result, at most."""


def _programs(variant: VariantPlan, counters: Sequence[Counters]) -> dict[int, _Programs]:
    """Packet counts of the programs, by the node of their switch."""
    programs: dict[int, _Programs] = {}
    for job, points in zip(variant.jobs, counters, strict=True):
        places = [(tree, index) for tree in job.collective.trees for index in range(len(tree.switches))]
        for (tree, switch_index), counted in zip(places, points, strict=True):
            node, receivers = tree.switches[switch_index], len(receivers_of(tree, switch_index))
            before, packets = (
                programs.get(node, _Programs()),
                _point_packets(tree.program, receivers, counted),
            )
            programs[node] = _Programs(
                before.taken + packets[0], before.sent + packets[1], max(before.receivers_max, receivers)
            )
    return programs


def _point_packets(program: ProgramSpec, receivers: int, counted: Mapping[str, int]) -> tuple[int, int]:
    """Packets that one point, or split, took and sent."""
    counts = Counter(counted)  # counters that a program does not have are 0
    if program.has_server:  # points send sums to the server, and its acknowledgements to all workers
        acknowledged = counts["acknowledged"]
        return counts["packets"] + acknowledged, counts["forwarded"] + acknowledged * receivers
    to_one = sum(counts[name] for name in ("answers", "late", "expired", "partials"))
    to_all = sum(counts[name] for name in ("results", "timed_out", "installed", "split"))
    packets_count = sum(counts[name] for name in ("packets", "installed", "stale_results", "split"))
    return packets_count, to_one + to_all * receivers


# Slots that still hold words at the end of a run, and the injected faults that can explain them.


LEAKS_SHOWN = 3

# A packet that arrives after its slot or entry was released opens it again, and no worker sends the rest. A
# slot with a timer closes by itself. Without retransmissions no packet can overtake a copy of itself.


def nothing_leaked(ending: Ending) -> Finding:
    """At the end, with no packet in flight, no slot of a switch holds part of a sum.

    Slots that injected faults explain are reported, and are no failure. A late packet opens at most one slot
    or entry.
    """
    if not ending.leaks:
        return Finding(True, "every slot and entry of the switches is free or complete")
    leaked, causes = _format_leaks(ending.leaks), ", ".join(cause.what for cause in ending.leak_causes)
    if not causes:
        return Finding(False, f"{leaked}; no injected fault explains it")
    most = _explained_count(ending)
    if most < len(ending.leaks):
        return Finding(False, f"{leaked}; injected faults explain {most} of them at most: {causes}")
    return Finding(True, f"{leaked}; injected faults explain it: {causes}")


def leak_warnings(ending: Ending) -> tuple[str, ...]:
    """The same finding as a warning of the summary, if it is no failure."""
    finding = nothing_leaked(ending)
    return (finding.detail,) if ending.leaks and finding.passed else ()


def _explained_count(ending: Ending) -> int:
    """How many occupied slots and entries the injected faults explain."""
    leaks = len(ending.leaks)
    return min(leaks, sum(leaks if cause.most is None else cause.most for cause in ending.leak_causes))


def _format_leaks(leaks: Sequence[str]) -> str:
    more = f" and {len(leaks) - LEAKS_SHOWN} more" if len(leaks) > LEAKS_SHOWN else ""
    return f"{len(leaks)} left behind in switches: {'; '.join(leaks[:LEAKS_SHOWN])}{more}"


def leak_causes(variant: VariantPlan, job: JobPlan, faults: Sequence[FaultRecord]) -> tuple[LeakCause, ...]:
    """Injected faults on the paths into the job's switches that leave slots or entries occupied."""
    trees = job.collective.trees
    if not trees:
        return ()
    switches = {node for tree in trees for node in tree.points}
    links = {link for tree in trees for link in into_switches(variant.network, tree)}
    causes = (
        _cause(planned, record, trees[0].program, (switches, links))
        for planned, record in zip(variant.faults.faults, faults, strict=True)
        if record.count
    )
    return tuple(cause for cause in causes if cause)


def _cause(
    planned: PlannedFault, record: FaultRecord, program: ProgramSpec, job: tuple[set[int], set[int]]
) -> LeakCause | None:
    """The effect of a fault that leaves slots occupied; None if it has none."""
    switches, links = job
    match planned.effect:
        case Rule(fate=fate, links=hit) if fate.name.lower() in program.reopened_by and links & set(hit):
            packets = f"{record.count} packet{'s' if record.count > 1 else ''}"
            did = f"{planned.kind} {DID_TO_PACKETS[fate]} {packets} on {planned.where}"
            return LeakCause(did, record.count)
        case Reboot(clears_registers=True, switch=node) | Failure(switch=node) if node in switches:
            if "reboot" in program.reopened_by:
                return LeakCause(f"{planned.kind} cleared {planned.where}")
    return None
