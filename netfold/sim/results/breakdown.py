"""The aggregation time by phase and message, as predicted, and after the last rank; the skew of ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from netfold.sim.results.records import NO_BUCKET, PhaseRecord, RoundRecord
from netfold.units import PS_PER_US

RANK_SKEW = "rank skew"  # how much later than the first worker of a round


@dataclass(frozen=True)
class BreakdownPart:
    """The mean of a phase, and of the messages with a label, over some rounds."""

    phase: str
    label: str
    time_us: float
    share: float | None
    payload_bytes: float


class Counted(NamedTuple):
    """The part of a round that no earlier round covers."""

    step: int
    bucket: int
    start_ps: int
    end_ps: int


def breakdown(
    rounds: Sequence[RoundRecord], phases: Sequence[PhaseRecord], aggregation_ps: int
) -> list[dict[str, Any]] | None:
    """Mean time per round, share and payload of every phase and label of some rounds; None without a round.

    Each round is measured at the worker that finished last; of several, at the one that began last. If rounds
    of several buckets overlap, the time counts once, for the round that began first: what the others do then
    is hidden behind it. So the rows never add up to more than `aggregation_ps`, the time in which some round
    was in progress. The last row is the rest: how much later than the first worker of a round the last one
    began.
    """
    if not rounds:
        return None
    by_round: dict[tuple[int, int], list[PhaseRecord]] = defaultdict(list)
    for phase in phases:
        if phase.bucket != NO_BUCKET:
            by_round[phase.step, phase.bucket].append(phase)
    times_ps: dict[tuple[str, str], int] = defaultdict(int)
    payload_bytes: dict[tuple[str, str], int] = defaultdict(int)
    for counted in counted_rounds(rounds):
        for phase in _of_last_worker(by_round[counted.step, counted.bucket]):
            start_ps, end_ps = max(phase.start_ps, counted.start_ps), min(phase.end_ps, counted.end_ps)
            times_ps[phase.phase, phase.label] += max(0, end_ps - start_ps)
            payload_bytes[phase.phase, phase.label] += phase.payload_bytes
    times_ps[RANK_SKEW, ""] = aggregation_ps - sum(times_ps.values())
    parts = [
        BreakdownPart(
            phase=phase,
            label=label,
            time_us=time_ps / len(rounds) / PS_PER_US,
            share=time_ps / aggregation_ps if aggregation_ps else None,
            payload_bytes=payload_bytes[phase, label] / len(rounds),
        )
        for (phase, label), time_ps in times_ps.items()
    ]
    return [asdict(part) for part in parts]


def since_last_rank_ps(rounds: Sequence[RoundRecord], phases: Sequence[PhaseRecord]) -> int:
    """The part of the aggregation time of some rounds in which every worker had begun its round."""
    first_ps: dict[tuple[int, int, int], int] = {}
    for phase in phases:
        key = phase.step, phase.bucket, phase.worker
        first_ps[key] = min(phase.start_ps, first_ps.get(key, phase.start_ps))
    last_ps: dict[tuple[int, int], int] = {}
    for (step, bucket, _), start_ps in first_ps.items():
        last_ps[step, bucket] = max(start_ps, last_ps.get((step, bucket), 0))
    return sum(
        max(0, counted.end_ps - max(counted.start_ps, last_ps.get((counted.step, counted.bucket), 0)))
        for counted in counted_rounds(rounds)
    )


def predicted_us(variant: Any) -> float | None:
    """Time of a step of a `Measured`; None unless its steps are one dense message of every worker."""
    rounds, steps_count, prediction = variant.finished, len(variant.steps), variant.fact.prediction
    is_dense = variant.total("payload_bytes_up") == variant.dense_bytes
    if prediction is None or not is_dense or not 0 < len(rounds) == steps_count:
        return None
    return float(prediction.time_ps(variant.step_elements / steps_count) / PS_PER_US)


def counted_rounds(rounds: Sequence[RoundRecord]) -> Iterator[Counted]:
    """Every round in order of start, without the time that earlier rounds cover."""
    reached_ps = 0
    for record in sorted(rounds, key=lambda record: (record.start_ps, record.end_ps)):
        yield Counted(record.step, record.bucket, max(record.start_ps, reached_ps), record.end_ps)
        reached_ps = max(reached_ps, record.end_ps)


def _of_last_worker(phases: Sequence[PhaseRecord]) -> list[PhaseRecord]:
    """Phases of the worker that finished last; of several, of the one that began last."""
    by_worker: dict[int, list[PhaseRecord]] = defaultdict(list)
    for phase in phases:
        by_worker[phase.worker].append(phase)
    return max(by_worker.values(), key=lambda records: (records[-1].end_ps, records[0].start_ps), default=[])
