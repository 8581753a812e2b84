"""The journal of a job: all records of its run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.codec import Decoded
from netfold.homomorphic.message import Gradient
from netfold.homomorphic.promises import Drift
from netfold.homomorphic.round import Note
from netfold.kernels.words import same_bits
from netfold.sim.checks.codec_notes import NoteCounts
from netfold.sim.checks.rounds import Findings, Operation
from netfold.sim.checks.rounds.merges.signs import Signs
from netfold.sim.results.records import NoteRecord, PhaseRecord, RoundRecord, StepRecord
from netfold.sim.workload import Bucket

REDO_LABEL = "redo"


@dataclass
class RoundLog:
    """One round in progress."""

    gradients: list[Gradient]  # every worker's, while the round is open
    operations: list[Operation] = field(default_factory=list)
    decoded: dict[int, Decoded] = field(default_factory=dict)
    notes: dict[int, list[Note]] = field(default_factory=dict)  # of each worker that has begun
    start_ps: int | None = None
    end_ps: int = 0
    wire_bytes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))  # up and down

    @property
    def has_work(self) -> bool:
        """Whether the codec counts any work for any message."""
        messages = (one for operation in self.operations for sent in operation.sent.values() for one in sent)
        return any(not (one.work.is_free and one.decode_work.is_free) for one in messages)

    def store(self, worker: int, decoded: Decoded) -> None:
        """Store what a worker decoded; equal totals share one array."""
        distinct = {id(one.total): one.total for one in self.decoded.values()}.values()
        total = next((one for one in distinct if same_bits(one, decoded.total)), decoded.total)
        self.decoded[worker] = replace(decoded, total=total)

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
            redo_messages=sum(
                message.label == REDO_LABEL for operation in self.operations for message in operation.sent[0]
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
            merges_verified=findings.merges_verified(bool(counts.redone_parts or counts.forecast_misses)),
            bit_exact=findings.bit_exact,
            replicas_agree=findings.replicas_agree,
            workers_held_min=findings.workers_held_min,
            workers_held_mean=findings.workers_held_mean,
            max_abs_error=findings.max_abs_error,
            nmse=None if self.decoded[0].is_update else findings.loss.nmse,
            cosine=findings.loss.cosine,
            max_error_over_bound=findings.max_error_over_bound,
            notes_agree=counts.agree,
            choice=counts.choice,
            redone_parts=counts.redone_parts,
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
    signs: Signs = field(default_factory=Signs)  # checks of all rounds
    phases: list[PhaseRecord] = field(default_factory=list)
    findings: list[Findings] = field(default_factory=list)  # one per round
    drifts: dict[int, Drift] = field(default_factory=dict)  # of an unbiased codec, by bucket
    has_work: bool = False  # its codec counts work for some message

    def add_findings(self, bucket: int, findings: Findings) -> None:
        """Add the findings on a round."""
        if findings.drift is not None:
            known = self.drifts.get(bucket)
            self.drifts[bucket] = findings.drift if known is None else known.join(findings.drift)
        self.findings.append(replace(findings, drift=None))


def covered_ps(spans: list[tuple[int, int]]) -> int:
    """Total time that the spans cover; overlaps count once."""
    covered, reached = 0, 0
    for start, end in sorted(spans):
        covered += max(0, end - max(start, reached))
        reached = max(reached, end)
    return covered
