"""The summary of a run, computed from its records: metrics, checks and a verdict per variant."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from netfold.errors import InvariantError
from netfold.sim.plan.plan import Reference
from netfold.sim.results.records import (
    NO_BUCKET,
    CheckRecord,
    LinkRecord,
    PhaseRecord,
    Records,
    RoundRecord,
    StepRecord,
)
from netfold.sim.workload.recipe import metric_named
from netfold.units import PS_PER_S, PS_PER_US

# The aggregation time by phase and message, the skew between ranks, and the time after the last of them.


RANK_SKEW = "rank skew"  # how much later than the first worker of a round
_COMPUTE_BUCKET = -1  # bucket of forward and backward in a PhaseRecord


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
        if phase.bucket != _COMPUTE_BUCKET:
            by_round[phase.step, phase.bucket].append(phase)
    times_ps: dict[tuple[str, str], int] = defaultdict(int)
    payload_bytes: dict[tuple[str, str], int] = defaultdict(int)
    for counted in counted_rounds(rounds):
        for phase in _of_last_worker(by_round[counted.step, counted.bucket]):
            start_ps, end_ps = max(phase.start_ps, counted.start_ps), min(phase.end_ps, counted.end_ps)
            times_ps[phase.phase, phase.label] += max(0, end_ps - start_ps)
            payload_bytes[phase.phase, phase.label] += phase.payload_bytes
    times_ps[RANK_SKEW, ""] = aggregation_ps - sum(times_ps.values())
    return [
        {
            "phase": phase,
            "label": label,
            "time_us": time_ps / len(rounds) / PS_PER_US,
            "share": time_ps / aggregation_ps if aggregation_ps else None,
            "payload_bytes": payload_bytes[phase, label] / len(rounds),
        }
        for (phase, label), time_ps in times_ps.items()
    ]


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
        max(0, one.end_ps - max(one.start_ps, last_ps.get((one.step, one.bucket), 0)))
        for one in counted_rounds(rounds)
    )


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
    return max(by_worker.values(), key=lambda own: (own[-1].end_ps, own[0].start_ps), default=[])


# When jobs came and went, how much others slowed them down, and how evenly.
#
# Times are simulated. A job *waits* from its arrival until it has hosts and slots, and *runs* from then until
# its last step has ended; its *completion time* is both together. *Alone* is its completion time on the idle
# network, with its own collective (not its fallback), the same faults on packets and no other faults. Its
# *slowdown* is completion time over that.
#
# *Fairness* is Jain's index of x_i = alone_i / running_i, the share of its own speed that job i had while it
# ran: (Σx)² / (n · Σx²), over the n jobs that ran at the same time as another job, for a positive time. It
# is 1
# if all are slowed down alike and tends to 1/n if one goes ahead of all others (Jain, Chiu, Hawe, "A
# quantitative measure of fairness and discrimination for resource allocation in shared computer systems",
# DEC-TR-301, 1984).


@dataclass(frozen=True)
class Stay:
    """When a job was there; None: not yet, at the end of the variant."""

    arrival_ps: int
    admitted_ps: int | None
    end_ps: int | None
    alone_ps: int | None  # None: it does not come to its end even alone
    admission: str
    hosts: tuple[str, ...] = ()
    """Hosts of its workers; empty if it got none."""
    is_fallback: bool = False

    @property
    def completion_ps(self) -> int | None:
        return None if self.end_ps is None else self.end_ps - self.arrival_ps

    @property
    def waiting_ps(self) -> int | None:
        # Until it has hosts and slots.
        return None if self.admitted_ps is None else self.admitted_ps - self.arrival_ps

    @property
    def slowdown(self) -> float | None:
        """Its completion time over that alone."""
        if self.completion_ps is None or not self.alone_ps:
            return None
        return self.completion_ps / self.alone_ps

    @property
    def speed(self) -> float | None:
        """The share of its own speed that it had while it ran."""
        if self.end_ps is None or self.admitted_ps is None or self.alone_ps is None:
            return None
        running_ps = self.end_ps - self.admitted_ps
        return self.alone_ps / running_ps if running_ps else None

    def metrics(self) -> dict[str, Any]:
        """Its metrics in a summary."""
        return {
            "arrival_us": self.arrival_ps / PS_PER_US,
            "waiting_us": _us(self.waiting_ps),
            "completion_time_us": _us(self.completion_ps),
            "alone_us": _us(self.alone_ps),
            "slowdown": self.slowdown,
        }

    def as_dict(self) -> dict[str, Any]:
        """What a summary has of it beside the metrics."""
        return {
            "admission": self.admission,
            "admitted_us": _us(self.admitted_ps),
            "end_us": _us(self.end_ps),
            "hosts": list(self.hosts),
            "fallback": self.is_fallback,
        }


def overview(variant: str, stays: Sequence[Stay]) -> dict[str, Any]:
    """All jobs of a variant together; a figure is None where no job has what it is made of."""
    ends = [one.end_ps for one in stays if one.end_ps is not None]
    together = overlapping(stays)
    is_done = len(ends) == len(stays)
    return {
        "variant": variant,
        "admission": stays[0].admission,
        "jobs": len(stays),
        "finished": len(ends),
        "waited": sum(bool(one.waiting_ps) or one.admitted_ps is None for one in stays),
        "fallbacks": sum(one.is_fallback for one in stays),
        "makespan_us": _us(max(ends) - min(one.arrival_ps for one in stays)) if is_done else None,
        "completion_time_us": spread(_us(one.completion_ps) for one in stays),
        "waiting_us": spread(_us(one.waiting_ps) for one in stays),
        "slowdown": spread(one.slowdown for one in stays),
        "overlapping": len(together),
        "fairness": jain([one.speed for one in together if one.speed is not None]),
    }


def overlapping(stays: Sequence[Stay]) -> list[Stay]:
    """Finished jobs that ran at the same time as another job, for a positive time."""
    found = []
    for index, one in enumerate(stays):
        if one.admitted_ps is None or one.end_ps is None:
            continue
        for other, another in enumerate(stays):
            if other == index or another.admitted_ps is None:
                continue
            end_ps = one.end_ps if another.end_ps is None else min(one.end_ps, another.end_ps)
            if max(one.admitted_ps, another.admitted_ps) < end_ps:
                found.append(one)
                break
    return found


def jain(values: Sequence[float]) -> float | None:
    """Jain's fairness index of non-negative values; None for fewer than two, or if all are 0."""
    squares = math.fsum(value * value for value in values)
    if len(values) < 2 or squares == 0:
        return None
    return math.fsum(values) ** 2 / (len(values) * squares)


def spread(values: Iterable[float | None]) -> dict[str, float] | None:
    """Mean, 95th percentile and largest of the values that are there; None if there is none.

    The 95th percentile is the smallest value that at least 95 % of the values do not exceed.
    """
    found = sorted(value for value in values if value is not None)
    if not found:
        return None
    rank = -(-95 * len(found) // 100)
    return {"mean": math.fsum(found) / len(found), "p95": found[rank - 1], "max": found[-1]}


def _us(time_ps: int | None) -> float | None:
    return None if time_ps is None else time_ps / PS_PER_US


# Verdicts: "pass", "approximate: N entries", "stuck" or "fail", from good to bad.
#
# An approximate variant passes all its checks, but its codec reports that N elements of its sums are
# estimates. That is expected of such a codec, so it is not a failure; but those elements have no error
# bound.


GOOD = ("pass", "approximate")  # kinds of verdict with which a run exits with 0
PATTERN = r"^(pass|approximate: [0-9]{1,18} entries|stuck|fail)$"
_APPROXIMATE = "approximate: {} entries"


def kind(verdict: str) -> str:
    # "approximate" for "approximate: 12 entries".
    return verdict.partition(":")[0]


def of_checks(verdicts: Iterable[str], estimates_count: int) -> str:
    """Verdict of a variant, from those of its checks and its number of estimated elements."""
    checks = worst(verdicts)
    return _APPROXIMATE.format(estimates_count) if checks == "pass" and estimates_count else checks


def worst(verdicts: Iterable[str]) -> str:
    """The worst verdict: wrong numbers (fail) are worse than none (stuck), and no verdict at all is a fail.

    The entries of approximate verdicts are added up.
    """
    found = list(verdicts)
    kinds = {kind(verdict) for verdict in found}
    if not kinds or not kinds <= {*GOOD, "stuck"}:
        return "fail"
    if "stuck" in kinds:
        return "stuck"
    return _APPROXIMATE.format(sum(map(entries, found))) if "approximate" in kinds else "pass"


def entries(verdict: str) -> int:
    # The number of estimated elements.
    return int(verdict.split()[1]) if kind(verdict) == "approximate" else 0


DENSE_ELEMENT_BYTES = 4  # float32
NO_COMPUTE = "compute takes no time"
"""What results say of a variant whose device is none."""
ONLY_CODECS = "devices only encode and decode, as no model is computed"
"""What results say of a variant that has a device and nothing to compute."""


@dataclass(frozen=True, slots=True)
class VariantFacts:
    """Facts on a variant, or on one of its jobs, that a summary needs and its records do not have."""

    workers: int
    packets_sent: int = 0
    """Packets that hosts sent."""
    packets_retransmitted: int = 0
    """Packets that hosts sent again."""
    references: tuple[Reference, ...] = ()
    variant: str = ""  # the variant of a job; empty if this is the variant
    warnings: tuple[str, ...] = ()
    """What readers of its numbers must know."""
    passes: int | None = None
    """Trips through pipelines of switches that run its program; None if it has none."""
    results: int = 0
    """Results that its switches completed."""
    switches: tuple[Mapping[str, Any], ...] = ()
    """Counters of each switch, named as in `engine.tables.POINT_COUNTERS`."""
    duration_ps: int = 0
    """Time of the whole variant."""
    diagnosis: Mapping[str, Any] | None = None  # why it is stuck
    trace: str = ""  # Python's traceback, if its codec raised something
    bounds: tuple[Mapping[str, Any], ...] = ()
    """The parts of its aggregation time; see `sim.checks.bottleneck`."""
    reordering: tuple[int, int] | None = None
    """Packets that later ones overtook, and those sent again in vain."""
    target: float | None = None  # score on held-out data that it is to reach
    is_uncompressed: bool = False  # it sends gradients as they are, and hosts add them
    replays_times: bool = False  # its ranks compute as long as those of a recording
    fusion: Mapping[str, Any] | None = None  # its buckets, their costs, and the predicted time of a step
    stay: Stay | None = None
    """When it was there, if it is one of several jobs that come and go."""


def summarize(facts: Mapping[str, VariantFacts], records: Records) -> dict[str, Any]:
    """Verdict and warnings of the run; metrics, checks and verdict of each variant, in the order of `facts`.

    If a variant has several jobs, each has an entry, named "variant/job"; its links are the variant's.

    `injected` is the effect of every fault, all variants in one list. The result holds only what JSON can; a
    metric without a finite value is None. Means per step that are whole are ints. `loss_first` and `loss` are
    the training losses of the first and the last step, each taken before that step's update and averaged over
    workers. An unfinished variant has the means of its finished steps, or None if there are none.

    Raises
    ------
    InvariantError
        A variant that finished has no step or no round, or a record names a variant not in `facts`.
    """
    _require_known_variants(facts, [*records.steps, *records.rounds, *records.checks])
    _require_known_variants([fact.variant or name for name, fact in facts.items()], records.links)
    variants = [
        _summarize_variant(name, fact, _own_records(records, name, fact.variant or name))
        for name, fact in facts.items()
    ]
    stays: dict[str, list[Stay]] = {}
    for name, fact in facts.items():
        if fact.stay is not None:
            stays.setdefault(fact.variant or name, []).append(fact.stay)
    return {
        "verdict": worst(variant["verdict"] for variant in variants),
        "variants": variants,
        **({"jobs": [overview(name, own) for name, own in stays.items()]} if stays else {}),
        "warnings": [f"{name}: {warning}" for name, fact in facts.items() for warning in fact.warnings],
        "injected": [asdict(fault) for fault in records.faults],
    }


def _own_records(records: Records, name: str, variant: str) -> Records:
    """Records of one variant, or of one of its jobs; links are the variant's."""
    return Records(
        steps=[record for record in records.steps if record.variant == name],
        rounds=[record for record in records.rounds if record.variant == name],
        phases=[record for record in records.phases if record.variant == name],
        links=[record for record in records.links if record.variant == variant],
        checks=[record for record in records.checks if record.variant == name],
    )


def _summarize_variant(name: str, fact: VariantFacts, own: Records) -> dict[str, Any]:
    steps, rounds, links, checks = own.steps, own.rounds, own.links, own.checks
    is_unfinished = any(check.name == "finishes" and check.verdict != "pass" for check in checks)
    if not is_unfinished and not (steps and rounds):
        raise InvariantError(
            f"variant '{name}' has {len(steps)} step and {len(rounds)} round records, it needs some of both"
        )
    done = {step.step for step in steps}
    finished = [record for record in rounds if record.step in done]
    metrics: dict[str, Any] = {
        "steps": len(steps),
        "workers": fact.workers,
        **_time_metrics(steps),
        "since_last_rank_us": _mean_us(since_last_rank_ps(finished, own.phases), len(steps)),
        "compute_time_us": _compute_time_us(own, fact.workers, done),
        "predicted_iteration_time_us": fact.fusion["predicted_iteration_time_us"] if fact.fusion else None,
        "buckets": _mean(len(finished), len(steps)),
        "breakdown": breakdown(finished, own.phases, sum(step.aggregation_ps for step in steps)),
        **_traffic_metrics(len(steps), fact.workers, finished),
        "packets": fact.packets_sent,
        "packet_hops": sum(link.packets for link in links),
        "packets_lost": sum(link.lost_packets for link in links),
        "packets_dropped": sum(link.dropped_packets for link in links),
        "packets_retransmitted": fact.packets_retransmitted,
        **_reordering_metrics(fact),
        **_switch_metrics(fact, links),
        **_number_metrics(rounds),
        **_note_metrics(rounds),
        "loss_first": _finite(steps[0].loss) if steps else None,
        "loss": _finite(steps[-1].loss) if steps else None,
        **_test_metrics(steps),
        **_target_metrics(fact, steps, finished),
        **({} if fact.stay is None else fact.stay.metrics()),
    }
    entry: dict[str, Any] = {
        "name": name,
        "verdict": of_checks((check.verdict for check in checks), metrics["approximate_entries"]),
        "checks": [
            {"name": check.name, "verdict": check.verdict, "detail": check.detail} for check in checks
        ],
        "metrics": metrics,
        "references": [asdict(reference) for reference in fact.references],
        "switches": [dict(switch) for switch in fact.switches],
        "bounds": [dict(part) for part in fact.bounds],
        "is_uncompressed": fact.is_uncompressed,
        "replays_times": fact.replays_times,
    }
    if metrics["compute_time_us"] == 0:
        entry["compute"] = NO_COMPUTE
    if fact.stay is not None:
        entry["stay"] = fact.stay.as_dict()
    if fact.fusion is not None:
        entry["fusion"] = dict(fact.fusion)
    if fact.diagnosis is not None:
        entry["diagnosis"] = dict(fact.diagnosis)
    return entry | {"trace": fact.trace} if fact.trace else entry


def _compute_time_us(own: Records, workers: int, done: Collection[int]) -> float | None:
    """Time of a worker's passes and updates per step, the mean over workers."""
    passes = [one for one in own.phases if one.bucket == NO_BUCKET and one.step in done]
    return _mean_us(sum(one.end_ps - one.start_ps for one in passes), workers * len(done))


def _time_metrics(steps: Sequence[StepRecord]) -> dict[str, Any]:
    aggregation_ps = sum(step.aggregation_ps for step in steps)
    elements = sum(step.elements for step in steps)
    return {
        "elements": _mean(elements, len(steps)),
        "aggregation_time_us": _mean_us(aggregation_ps, len(steps)),
        "aggregation_elements_per_s": _ratio(elements * PS_PER_S, aggregation_ps),
        "iteration_time_us": _mean_us(sum(step.end_ps - step.start_ps for step in steps), len(steps)),
    }


def _traffic_metrics(steps_count: int, workers_count: int, rounds: list[RoundRecord]) -> dict[str, Any]:
    """Bytes per step: on the wire of all workers, and the payload of one worker."""
    wire_bytes_up = sum(record.wire_bytes_up for record in rounds)
    payload_bytes_up = sum(record.payload_bytes_up for record in rounds)
    payload_bytes_down = sum(record.payload_bytes_down for record in rounds)
    elements = sum(record.elements for record in rounds)
    dense_bytes = DENSE_ELEMENT_BYTES * elements
    return {
        "payload_bytes_up": _mean(payload_bytes_up, steps_count * workers_count),
        "payload_bytes_down": _mean(payload_bytes_down, steps_count * workers_count),
        "wire_bytes_up": _mean(wire_bytes_up, steps_count),
        "wire_bytes_up_per_worker": _mean(wire_bytes_up, steps_count * workers_count),
        "wire_bytes_down": _mean(sum(record.wire_bytes_down for record in rounds), steps_count),
        "compression_ratio": _ratio(workers_count * dense_bytes, payload_bytes_up),
        "bits_per_element_up": _ratio(8 * payload_bytes_up, workers_count * elements),
        "bits_per_element_down": _ratio(8 * payload_bytes_down, workers_count * elements),
        "uploads": sum(record.uploads for record in rounds) if rounds else None,
        "skips": sum(workers_count - record.uploads for record in rounds) if rounds else None,
    }


def _switch_metrics(fact: VariantFacts, links: Sequence[LinkRecord]) -> dict[str, Any]:
    """Use of switches: trips through their pipelines, and time of the busiest loopback port."""
    inside = [link.busy_ps for link in links if link.is_loopback]
    return {
        "passes": fact.passes,
        "passes_per_result": None if fact.passes is None else _ratio(fact.passes, fact.results),
        "overflowed_words": sum(switch["overflowed_words"] for switch in fact.switches),
        "loopback_busy": _ratio(max(inside), fact.duration_ps) if inside else None,
    }


def _number_metrics(rounds: Sequence[RoundRecord]) -> dict[str, Any]:
    """Quality of the sums: whether they are exact, error, and density before and after the union."""
    elements = sum(record.elements for record in rounds)
    return {
        "bit_exact": _all_of([record.bit_exact for record in rounds]),
        "merges_verified": all(record.merges_verified for record in rounds) if rounds else None,
        "max_abs_error": _largest(record.max_abs_error for record in rounds),
        "nmse": _mean_of_all([record.nmse for record in rounds]),
        "cosine": _mean_of(record.cosine for record in rounds),
        "max_error_over_bound": _largest(record.max_error_over_bound for record in rounds),
        "density": _ratio(sum(record.nonzeros for record in rounds), elements),
        "union_density": _ratio(sum(record.union_nonzeros for record in rounds), elements),
        "redo_messages": sum(record.redo_messages for record in rounds),
        "workers_held_min": min((record.workers_held_min for record in rounds), default=None),
        "workers_held_mean": _ratio(
            sum(record.workers_held_mean * record.elements for record in rounds), elements
        ),
    }


def _reordering_metrics(fact: VariantFacts) -> dict[str, Any]:
    """What spraying does to packets; nothing without it."""
    if fact.reordering is None:
        return {}
    return dict(zip(("packets_reordered", "packets_retransmitted_in_vain"), fact.reordering, strict=True))


def _test_metrics(steps: Sequence[StepRecord]) -> dict[str, Any]:
    """The last test on held-out data."""
    last = next((step for step in reversed(steps) if step.test_score is not None), None)
    score = _finite(last.test_score) if last else None
    return {"test_metric": last and last.test_metric, "test_score": score}


def _target_metrics(
    fact: VariantFacts, steps: Sequence[StepRecord], rounds: Sequence[RoundRecord]
) -> dict[str, Any]:
    """What it took to the first test that reached the target: all None if none did. Nothing without a target.

    Time is from the start of the first step to the end of the one before the test; bytes are those on the
    links of a worker, up and down, mean over workers.
    """
    if fact.target is None:
        return {}
    found: dict[str, Any] = {
        "target": fact.target,
        "steps_to_target": None,
        "time_to_target_us": None,
        "bytes_to_target": None,
    }
    for done, step in enumerate(steps, start=1):
        if step.test_metric is None or step.test_score is None:
            continue
        if metric_named(step.test_metric).reaches(step.test_score, fact.target):
            wire_bytes = sum(
                one.wire_bytes_up + one.wire_bytes_down for one in rounds if one.step <= step.step
            )
            found["steps_to_target"] = done
            found["time_to_target_us"] = (step.end_ps - steps[0].start_ps) / PS_PER_US
            found["bytes_to_target"] = _mean(wire_bytes, fact.workers)
            break
    return found


def _note_metrics(rounds: Sequence[RoundRecord]) -> dict[str, Any]:
    """Codec notes, counted; `codec_choice` is the number of rounds with each encoding."""
    choices = [record.choice for record in rounds if record.choice is not None]
    return {
        "decode_failures": sum(record.redone_parts for record in rounds),
        "forecast_misses": sum(record.forecast_misses for record in rounds),
        "approximate_entries": sum(record.estimated_elements for record in rounds),
        "infinite_entries": sum(record.infinite_elements for record in rounds),
        "codec_choice": dict(Counter(choices)) or None,
    }


def _mean(total: int, count: int) -> int | float | None:
    """Total over count, an int if that is whole; None if the count is 0."""
    if count == 0:
        return None
    return total / count if total % count else total // count


def _mean_us(total_ps: int, count: int) -> float | None:
    return total_ps / count / PS_PER_US if count else None


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _all_of(values: Sequence[bool | None]) -> bool | None:
    return False if False in values else None if None in values or not values else True


def _largest(values: Iterable[float]) -> float | None:
    """Largest value; None if there is none, or one is not finite (max() may keep or drop a NaN)."""
    found = list(values)
    return max(found, default=None) if all(math.isfinite(value) for value in found) else None


def _mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are there; None if there is none."""
    found = [value for value in values if value is not None]
    return math.fsum(found) / len(found) if found else None


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    return None if None in values else _mean_of(values)


def _require_known_variants(
    known: Collection[str],
    records: Iterable[StepRecord | RoundRecord | LinkRecord | CheckRecord],
) -> None:
    unknown = sorted({record.variant for record in records} - set(known))
    if unknown:
        raise InvariantError(f"records of unknown variants {unknown}; this run has {list(known)}")
