"""The metrics of a variant: one row each, from which all that shows, checks or explains them is derived.

A row says what a metric is, how it is computed from a run's records, and where it is shown. From it follow
summaries, the check of run folders (`file_formats.py`), columns (`report/columns.py`), orders of `compare`,
figures of sweeps, help, and the table in docs/reference.md. To add a metric, add a row with `is_later`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum, unique
from functools import cached_property
from typing import TYPE_CHECKING, Any

from netfold.sim.results.breakdown import breakdown, predicted_us, since_last_rank_ps
from netfold.sim.results.job_times import JobTimes, us_of
from netfold.sim.results.records import (
    NO_BUCKET,
    LinkRecord,
    PhaseRecord,
    RoundRecord,
    StepRecord,
)
from netfold.units import PS_PER_S, PS_PER_US

if TYPE_CHECKING:
    from netfold.sim.plan.idle_network import PredictedTime
    from netfold.sim.plan.plan import Reference
    from netfold.sim.plan.prices import Bill

DENSE_ELEMENT_BYTES = 4  # float32


@unique
class Unit(Enum):
    """What the values of a metric are: their type, and what a document calls them."""

    COUNT = (int, "count")
    NUMBER = (float, "number")
    SIGNED = (float, "number of any sign")
    TIME = (float, "µs")
    BYTES = (float, "bytes")
    RATE = (float, "1/s")
    BYTE_RATE = (float, "bytes/s")
    MONEY = (float, "US$")
    POWER = (float, "W")
    RATIO = (float, "×")
    SHARE = (float, "share")
    ERROR = (float, "size of an error")
    FLAG = (bool, "true or false")
    TEXT = (str, "text")
    TABLE = (dict, "several values")

    def __init__(self, type: type, title: str) -> None:
        self.type, self.title = type, title


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
    bounds_ps: tuple[tuple[float, float], ...] = ()
    """The least aggregation time of each finished step: of any algorithm, and of its own schedule."""
    diagnosis: Mapping[str, Any] | None = None  # why it is stalled
    trace: str = ""  # Python's traceback, if its codec raised something
    bounds: tuple[Mapping[str, Any], ...] = ()
    """The parts of its aggregation time; see `sim.checks.bottleneck`."""
    reordering: tuple[int, int] | None = None
    """Packets that later ones overtook, and those sent again in vain."""
    kept_bytes_per_element: int = 0  # of the gradient; what its codec keeps at a worker between steps
    target: float | None = None  # score on held-out data that it is to reach
    chance: float | None = None  # score of a model that guesses, if that is known
    is_uncompressed: bool = False  # it sends gradients as they are, and hosts add them
    replays_times: bool = False  # its ranks compute as long as those of a recording
    fusion: Mapping[str, Any] | None = None  # its buckets, their costs, and the predicted time of a step
    bill: Bill | None = None
    """What its network is made of, and costs."""
    prediction: PredictedTime | None = None  # of dense messages
    links_used: Mapping[str, Mapping[str, int]] | None = None
    """How many links between switches were used; see `sim.checks.bottleneck.links_used`."""
    job_times: JobTimes | None = None
    """When it was there, if it is one of several jobs that come and go."""


@dataclass(frozen=True)
class Measured:
    """A variant, or one of its jobs, whose metrics are computed: facts on it and its records."""

    fact: VariantFacts
    steps: Sequence[StepRecord] = ()
    rounds: Sequence[RoundRecord] = ()
    phases: Sequence[PhaseRecord] = ()
    links: Sequence[LinkRecord] = ()

    @cached_property
    def finished(self) -> list[RoundRecord]:
        """The rounds of finished steps."""
        done = {step.step for step in self.steps}
        return [record for record in self.rounds if record.step in done]

    @cached_property
    def aggregation_ps(self) -> int:
        return sum(step.aggregation_ps for step in self.steps)

    @cached_property
    def step_elements(self) -> int:
        return sum(step.elements for step in self.steps)

    def total(self, column: str) -> int:
        # Over the rounds of finished steps.
        return sum(getattr(record, column) for record in self.finished)

    def noted(self, column: str, rounds: Sequence[RoundRecord] | None = None) -> int:
        # Over all rounds, or these.
        return sum(getattr(record, column) for record in (self.rounds if rounds is None else rounds))

    @cached_property
    def examined(self) -> list[RoundRecord]:  # rounds whose packets carry words
        return [record for record in self.rounds if record.merges_verified is not None]

    def on_links(self, column: str) -> int:
        return sum(getattr(link, column) for link in self.links)

    def per_step(self, total: int) -> int | float | None:
        return _mean(total, len(self.steps))

    def per_worker(self, total: int) -> int | float | None:
        # And by step.
        return _mean(total, len(self.steps) * self.fact.workers)

    def step_us(self, total_ps: float, workers: int = 1) -> float | None:
        """Mean time per step, or per step and worker."""
        count = workers * len(self.steps)
        return total_ps / count / PS_PER_US if count else None

    def bound_us(self, number: int) -> float | None:
        """The mean least aggregation time of a step; None if it is not known of all of them."""
        bounds_ps = [bounds[number] for bounds in self.fact.bounds_ps]
        if len(bounds_ps) < len(self.steps) or not all(bounds_ps):
            return None
        return self.step_us(math.fsum(bounds_ps[: len(self.steps)]))

    def of_bound(self, number: int) -> float | None:
        bound_us, time_us = self.bound_us(number), self.step_us(self.aggregation_ps)
        return _ratio(bound_us, time_us) if bound_us and time_us else None

    @property
    def algorithm_bandwidth(self) -> float | None:
        return _ratio(DENSE_ELEMENT_BYTES * self.step_elements * PS_PER_S, self.aggregation_ps)

    @property
    def job_times(self) -> JobTimes:
        assert self.fact.job_times is not None  # only of jobs that come and go
        return self.fact.job_times

    @property
    def bill(self) -> Bill:
        assert self.fact.bill is not None  # only where the network is known
        return self.fact.bill

    @property
    def reordering(self) -> tuple[int, int]:
        assert self.fact.reordering is not None  # only where packets may overtake each other
        return self.fact.reordering

    @property
    def compute_ps(self) -> int:
        """Time of passes and updates in finished steps, all workers."""
        done = {step.step for step in self.steps}
        return sum(
            phase.end_ps - phase.start_ps
            for phase in self.phases
            if phase.bucket == NO_BUCKET and phase.step in done
        )

    @property
    def dense_bytes(self) -> int:
        # The gradients of all workers as float32.
        return self.fact.workers * DENSE_ELEMENT_BYTES * self.total("elements")

    def bits_per_element(self, column: str) -> float | None:
        return _ratio(8 * self.total(column), self.fact.workers * self.total("elements"))

    @property
    def loopback_busy(self) -> float | None:
        inside = [link.busy_ps for link in self.links if link.is_loopback]
        return _ratio(max(inside), self.fact.duration_ps) if inside else None

    @property
    def last_test(self) -> StepRecord | None:
        # The last step that was followed by a test on held-out data.
        return next((step for step in reversed(self.steps) if step.test_score is not None), None)

    @cached_property
    def to_target(self) -> tuple[int | None, float | None, float | None]:
        """Steps, time and bytes to the first test that reached the target; None if none did."""
        from netfold.sim.workload.training_keys import metric_named  # late: the command line needs this file

        for done, step in enumerate(self.steps, start=1):
            if step.test_metric is None or step.test_score is None or self.fact.target is None:
                continue
            if metric_named(step.test_metric).reaches(step.test_score, self.fact.target):
                wire_bytes = sum(
                    record.wire_bytes_up + record.wire_bytes_down
                    for record in self.finished
                    if record.step <= step.step
                )
                time_us = (step.end_ps - self.steps[0].start_ps) / PS_PER_US
                return done, time_us, _mean(wire_bytes, self.fact.workers)
        return None, None, None


Values = Mapping[str, Any]
"""The metrics of a variant, by name."""


def is_lossy(values: Values) -> bool:
    # None: float32 additions explain the difference.
    return values["bit_exact"] is False


def has_trained(values: Values) -> bool:
    # The loss of a single step cannot change.
    return values["loss_first"] is not None and values["loss"] is not None and values["steps"] > 1


def is_tested(values: Values) -> bool:
    return values.get("test_score") is not None


def is_bounded(values: Values) -> bool:
    return values.get("of_bound") is not None


def has_target(values: Values) -> bool:
    return values.get("target") is not None


def has_job_times(values: Values) -> bool:
    return "completion_time_us" in values


def _has_times(variant: Measured) -> bool:
    return variant.fact.job_times is not None


def _is_priced(variant: Measured) -> bool:
    return variant.fact.bill is not None


def _sprays(variant: Measured) -> bool:
    return variant.fact.reordering is not None


def _aims(variant: Measured) -> bool:
    return variant.fact.target is not None


@dataclass(frozen=True)
class Metric:
    name: str
    """Its key in a summary, and its column in tables; its unit is last."""
    unit: Unit
    what: str
    """What it is, as the documents say."""
    of: Callable[[Measured], Any]
    """Its value, None if there is none."""
    _: KW_ONLY
    per: str = "run"  # step: mean per step; round: mean over rounds
    better: str = ""  # higher, lower; empty: neither
    label: str = ""  # the heading of its column; empty: the name
    note: str = ""  # what the terminal says of the column, below its table
    sort: str = ""  # what `compare --sort` calls it; empty: nothing is ranked by it
    has_ratio: bool = False  # comparisons divide it by the baseline's
    applies: Callable[[Measured], bool] | None = None  # variants that have it; None: all
    shown_if: Callable[[Values], bool] | None = None
    """The column is shown if this holds of some variant; None: always."""
    is_later: bool = False  # the format is older: folders of earlier versions may lack it
    is_nullable: bool = False  # a count that may be None, as others may be anyway
    least: float = 0

    @property
    def may_be_missing(self) -> bool:
        return self.is_later or self.applies is not None

    @property
    def may_be_none(self) -> bool:
        return self.is_nullable or self.may_be_missing or self.unit is not Unit.COUNT

    @property
    def title(self) -> str:
        return self.name.removesuffix("_us").replace("_per_s", " per s").replace("_", " ")

    def value(self, variant: Measured) -> Any:
        """Its value; None if it is not finite, as JSON has no such numbers."""
        value = self.of(variant)
        return None if isinstance(value, float) and not math.isfinite(value) else value


def _mean(total: int, count: int) -> int | float | None:
    """Total over count, an int if that is whole; None if the count is 0."""
    if count == 0:
        return None
    return total / count if total % count else total // count


def bus_factor(workers: int) -> float:
    # Bus bandwidth by algorithm bandwidth of an all-reduce (nccl-tests, PERFORMANCE.md).
    return 2 * (workers - 1) / workers


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


def _all_of(values: Sequence[bool | None]) -> bool | None:
    return False if False in values else None if None in values or not values else True


def _largest(values: Iterable[float]) -> float | None:
    """Largest value; None if there is none, or one is not finite (max() may keep or drop a NaN)."""
    numbers = list(values)
    return max(numbers, default=None) if all(math.isfinite(value) for value in numbers) else None


def _mean_of(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are there; None if there is none."""
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    return None if None in values else _mean_of(values)


# A row is a few lines, not one for each of its members.
# fmt: off
METRICS: tuple[Metric, ...] = (
    Metric(
        "arrival_us", Unit.TIME,
        "when the job arrived; this and the next four are of jobs that come and go",
        lambda v: us_of(v.job_times.arrival_ps), applies=_has_times,
    ),
    Metric(
        "waiting_us", Unit.TIME, "from its arrival until it has hosts and slots",
        lambda v: us_of(v.job_times.waiting_ps), better="lower", applies=_has_times,
    ),
    Metric(
        "completion_time_us", Unit.TIME, "from its arrival to its end",
        lambda v: us_of(v.job_times.completion_ps), better="lower", applies=_has_times, label="job",
        shown_if=has_job_times,
    ),
    Metric(
        "alone_us", Unit.TIME, "its completion time on the idle network",
        lambda v: us_of(v.job_times.alone_ps), better="lower", applies=_has_times,
    ),
    Metric(
        "slowdown", Unit.RATIO, "`completion_time_us` over `alone_us`",
        lambda v: v.job_times.slowdown, better="lower", applies=_has_times, shown_if=has_job_times,
    ),
    Metric(
        "steps", Unit.COUNT, "finished steps",
        lambda v: len(v.steps),
    ),
    Metric(
        "workers", Unit.COUNT, "workers of the job",
        lambda v: v.fact.workers, least=1,
    ),
    Metric(
        "elements", Unit.NUMBER, "elements of the gradient",
        lambda v: v.per_step(v.step_elements), per="step",
    ),
    Metric(
        "aggregation_time_us", Unit.TIME, "time in which some bucket was being aggregated",
        lambda v: v.step_us(v.aggregation_ps), better="lower", label="aggregation", sort="aggregation",
        has_ratio=True, note="mean per step", per="step",
    ),
    Metric(
        "aggregation_elements_per_s", Unit.RATE,
        "dense elements, however many words were sent for them, over the aggregation time",
        lambda v: _ratio(v.step_elements * PS_PER_S, v.aggregation_ps), better="higher",
        label="elements/s", sort="elements", has_ratio=True,
    ),
    Metric(
        "algbw_bytes_per_s", Unit.BYTE_RATE,
        "bytes of the gradient as float32 over the aggregation time: what nccl-tests prints as algbw of an "
        "all-reduce",
        lambda v: v.algorithm_bandwidth, better="higher", label="algbw", sort="algbw", is_later=True,
        note="dense bytes over the aggregation time",
    ),
    Metric(
        "busbw_bytes_per_s", Unit.BYTE_RATE,
        "`algbw_bytes_per_s` times 2(n − 1)/n for n workers, which nccl-tests compares with the rate of "
        "links: hosts that add cannot exceed that, switches that add can",
        lambda v: v.algorithm_bandwidth and v.algorithm_bandwidth * bus_factor(v.fact.workers),
        better="higher", label="busbw", sort="busbw", is_later=True, note="algbw × 2(n − 1)/n for n workers",
    ),
    Metric(
        "bound_us", Unit.TIME,
        "the least aggregation time of any algorithm on this network, for the messages that its workers "
        "sent: no run is faster",
        lambda v: v.bound_us(0), is_later=True, per="step",
    ),
    Metric(
        "schedule_bound_us", Unit.TIME,
        "the same of its own collective, on the paths that its packets take, with headers",
        lambda v: v.bound_us(1), is_later=True, per="step",
    ),
    Metric(
        "of_bound", Unit.SHARE, "`bound_us` over `aggregation_time_us`",
        lambda v: v.of_bound(0), better="higher", label="% of bound", sort="bound", is_later=True,
        shown_if=is_bounded,
        note="least time of any algorithm on this network, over its time",
    ),
    Metric(
        "of_schedule_bound", Unit.SHARE, "`schedule_bound_us` over `aggregation_time_us`",
        lambda v: v.of_bound(1), better="higher", label="% of own bound", is_later=True,
        shown_if=is_bounded,
        note="least time of its own schedule on its paths, over its time",
    ),
    Metric(
        "predicted_time_us", Unit.TIME, "`aggregation_time_us` in closed form, for the idle network; of "
        "steps that are one dense message of every worker",
        predicted_us, label="prediction", applies=lambda v: predicted_us(v) is not None,
        per="step", note="closed form for the idle network",
    ),
    Metric(
        "iteration_time_us", Unit.TIME, "time of a whole step",
        lambda v: v.step_us(sum(step.end_ps - step.start_ps for step in v.steps)), better="lower",
        label="iteration", sort="iteration", has_ratio=True, note="whole steps", per="step",
    ),
    Metric(
        "since_last_rank_us", Unit.TIME,
        "the part of the aggregation time in which every worker had begun its round",
        lambda v: v.step_us(since_last_rank_ps(v.finished, v.phases)), better="lower",
        label="after last rank", note="of it, since all ranks arrived", per="step",
    ),
    Metric(
        "predicted_iteration_time_us", Unit.TIME,
        "time of a step as predicted by a rule of fusion that weighs the costs of buckets; null for "
        "others",
        lambda v: v.fact.fusion["predicted_iteration_time_us"] if v.fact.fusion else None,
        is_later=True, per="step",
    ),
    Metric(
        "compute_time_us", Unit.TIME,
        "time of a worker's passes and updates, the mean over workers; where it is 0, the variant's "
        '`compute` says "compute takes no time" or, with a device, that this only encodes and decodes',
        lambda v: v.step_us(v.compute_ps, v.fact.workers), is_later=True, per="step",
    ),
    Metric(
        "buckets", Unit.COUNT, "buckets of a step",
        lambda v: v.per_step(len(v.finished)), is_later=True, per="step",
    ),
    Metric(
        "breakdown", Unit.TABLE, "where the aggregation time went, see below",
        lambda v: breakdown(v.finished, v.phases, v.aggregation_ps), per="round",
    ),
    Metric(
        "payload_bytes_up", Unit.BYTES, "bytes of the messages that a worker sent, the mean over workers",
        lambda v: v.per_worker(v.total("payload_bytes_up")), better="lower", per="step",
    ),
    Metric(
        "wire_bytes_up", Unit.BYTES, "bytes on all links out of hosts, of all workers",
        lambda v: v.per_step(v.total("wire_bytes_up")), better="lower", has_ratio=True, per="step",
    ),
    Metric(
        "wire_bytes_up_per_worker", Unit.BYTES, "the same of a worker, the mean over workers",
        lambda v: v.per_worker(v.total("wire_bytes_up")), better="lower", label="bytes/worker",
        sort="wire", has_ratio=True, note="sent by a worker, mean per step", per="step",
    ),
    Metric(
        "wire_bytes_down", Unit.BYTES, "bytes on all links into hosts, of all workers",
        lambda v: v.per_step(v.total("wire_bytes_down")), better="lower", has_ratio=True, per="step",
    ),
    Metric(
        "compression_ratio", Unit.RATIO, "dense float32 bytes over `payload_bytes_up`",
        lambda v: _ratio(v.dense_bytes, v.total("payload_bytes_up")),
        better="higher", label="compression", sort="compression", has_ratio=True,
        note="dense float32 bytes over the payload, of all workers",
    ),
    Metric(
        "payload_bytes_down", Unit.BYTES,
        "bytes of the merged messages that a worker received, the mean over workers",
        lambda v: v.per_worker(v.total("payload_bytes_down")), better="lower", is_later=True, per="step",
    ),
    Metric(
        "bits_per_element_up", Unit.NUMBER,
        "payload that a worker sent, in bits per element of the gradient",
        lambda v: v.bits_per_element("payload_bytes_up"), better="lower", is_later=True,
    ),
    Metric(
        "bits_per_element_down", Unit.NUMBER, "payload that a worker received, in bits per element",
        lambda v: v.bits_per_element("payload_bytes_down"), better="lower", is_later=True,
    ),
    Metric(
        "kept_bytes_per_worker", Unit.BYTES,
        "bytes that the codec keeps at each worker between steps, such as a residual or the last upload",
        lambda v: v.per_step(v.fact.kept_bytes_per_element * v.step_elements), better="lower",
        label="kept/worker", is_later=True,
    ),
    Metric(
        "uploads", Unit.COUNT, "workers that contributed words to a round, over all rounds",
        lambda v: v.total("uploads") if v.finished else None, better="lower", is_later=True,
    ),
    Metric(
        "skips", Unit.COUNT, "workers that did not",
        lambda v: v.fact.workers * len(v.finished) - v.total("uploads") if v.finished else None,
        better="higher", is_later=True,
    ),
    Metric(
        "cost_usd", Unit.MONEY,
        "price of the network's switches, network cards and cables, by the scenario's `prices`; this and the "
        "next five are of the whole network, without what is inside servers",
        lambda v: v.bill.cost_usd, better="lower", label="cost", sort="cost", applies=_is_priced,
    ),
    Metric(
        "power_w", Unit.POWER, "what these draw",
        lambda v: v.bill.power_w, better="lower", label="power", sort="power", applies=_is_priced,
    ),
    Metric(
        "network_switches", Unit.COUNT, "its switches",
        lambda v: v.bill.switches, better="lower", label="switches", applies=_is_priced,
    ),
    Metric(
        "network_ports", Unit.COUNT, "ports of its switches and hosts",
        lambda v: v.bill.ports, better="lower", label="ports", applies=_is_priced,
    ),
    Metric(
        "network_cables", Unit.COUNT, "its cables",
        lambda v: v.bill.cables, better="lower", label="cables", applies=_is_priced,
    ),
    Metric(
        "network_optics", Unit.COUNT, "those of its cables that are optical",
        lambda v: v.bill.optics, better="lower", label="optics", applies=_is_priced,
    ),
    Metric(
        "links_used", Unit.TABLE,
        'links between switches that are used, by what they join, as in `{"leaf→spine": {"used": 4, "links": '
        "16}}`; a link with less than 5 % of the bytes of the busiest link of its tier is not used, such as "
        "one with acknowledgements alone; the jobs of a variant have the same",
        lambda v: v.fact.links_used, label="links used", is_later=True,
    ),
    Metric(
        "packets", Unit.COUNT, "packets that hosts sent",
        lambda v: v.fact.packets_sent, better="lower",
    ),
    Metric(
        "packet_hops", Unit.COUNT, "packets on all links, each hop counted, as in the next two",
        lambda v: v.on_links("packets"), better="lower",
    ),
    Metric(
        "packets_lost", Unit.COUNT, "packets that links lost",
        lambda v: v.on_links("lost_packets"), better="lower", label="lost + dropped",
    ),
    Metric(
        "packets_dropped", Unit.COUNT, "packets that a full buffer refused",
        lambda v: v.on_links("dropped_packets"), better="lower",
    ),
    Metric(
        "packets_retransmitted", Unit.COUNT, "packets that hosts sent again",
        lambda v: v.fact.packets_retransmitted, better="lower", label="resent",
    ),
    Metric(
        "packets_reordered", Unit.COUNT,
        "packets that later ones overtook; this and the next are there where the routing lets them",
        lambda v: v.reordering[0], better="lower", applies=_sprays,
    ),
    Metric(
        "packets_retransmitted_in_vain", Unit.COUNT,
        "packets that were sent again although the first had arrived",
        lambda v: v.reordering[1], better="lower", applies=_sprays,
    ),
    Metric(
        "passes", Unit.COUNT, "trips through the pipelines of switches that add up; null if none does",
        lambda v: v.fact.passes, better="lower", is_nullable=True,
    ),
    Metric(
        "passes_per_result", Unit.NUMBER,
        "how many of them a result takes: with n workers and nothing lost, n + 1 for SwitchML's 64 "
        "words and 4 n + 7 for its 256",
        lambda v: None if v.fact.passes is None else _ratio(v.fact.passes, v.fact.results),
        better="lower", label="per result",
    ),
    Metric(
        "overflowed_words", Unit.COUNT,
        "sums that left int32, or a narrower lane, in switches: wrapped, saturated or stuck, as the "
        "scenario says",
        lambda v: sum(switch["overflowed_words"] for switch in v.fact.switches), better="lower",
    ),
    Metric(
        "loopback_busy", Unit.SHARE, "share of simulated time that the busiest loopback port worked",
        lambda v: v.loopback_busy, better="lower", label="loopback busy",
    ),
    Metric(
        "checked_share", Unit.SHARE,
        "share of elements, over all rounds, whose sums are checked; the next eight are of these elements",
        lambda v: _ratio(v.noted("elements", v.examined), v.noted("elements")), is_later=True,
    ),
    Metric(
        "bit_exact", Unit.FLAG,
        "false if the total of some round is not the exact sum, null if one was added as float32",
        lambda v: _all_of([record.bit_exact for record in v.examined]), better="higher",
        label="bit-exact", note="the decoded sum is the exact one, bit for bit (n/a: added as float32)",
    ),
    Metric(
        "merges_verified", Unit.FLAG,
        "every merged word of every round is the merge of the words sent; null without a round",
        lambda v: _all_of([record.merges_verified for record in v.examined]),
        better="higher", label="merges verified",
    ),
    Metric(
        "max_abs_error", Unit.ERROR,
        "largest error of an element of a total, against the float64 sum of all gradients; null: not "
        "finite",
        lambda v: _largest(record.max_abs_error for record in v.examined), better="lower",
        label="max error", sort="error",
    ),
    Metric(
        "nmse", Unit.ERROR, "‖total − Σ gradients‖² over ‖Σ gradients‖²",
        lambda v: _mean_of_all([record.nmse for record in v.examined]), per="round", better="lower",
        sort="nmse", shown_if=is_lossy, note="‖decoded − true sum‖² over ‖true sum‖²", is_later=True,
    ),
    Metric(
        "cosine", Unit.SIGNED, "cosine of the angle between the total and Σ gradients",
        lambda v: _mean_of(record.cosine for record in v.examined), per="round", better="higher",
        sort="cosine", shown_if=is_lossy, least=-1e300, note="of the angle between them", is_later=True,
    ),
    Metric(
        "max_error_over_bound", Unit.NUMBER,
        "largest error against the contributions; 1.0 is the codec's bound",
        lambda v: _largest(record.max_error_over_bound for record in v.examined), better="lower",
    ),
    Metric(
        "density", Unit.SHARE, "share of elements of worker 0's gradients that are not zero",
        lambda v: _ratio(v.noted("nonzeros"), v.noted("elements", v.examined)),
    ),
    Metric(
        "union_density", Unit.SHARE, "share of elements that are not zero at some worker",
        lambda v: _ratio(v.noted("union_nonzeros"), v.noted("elements", v.examined)),
    ),
    Metric(
        "fallback_messages", Unit.COUNT, "messages that answer a failed decode",
        lambda v: v.noted("fallback_messages"), better="lower",
    ),
    Metric(
        "workers_held_min", Unit.COUNT,
        "fewest workers that a result holds; fewer than all only where slots have timers",
        lambda v: min((record.workers_held_min for record in v.rounds), default=None),
        better="higher", label="workers held, least", is_nullable=True,
    ),
    Metric(
        "workers_held_mean", Unit.NUMBER, "workers that a result holds, the mean over all results",
        lambda v: _ratio(
            sum(record.workers_held_mean * record.elements for record in v.rounds), v.noted("elements")
        ),
        better="higher", label="mean",
    ),
    Metric(
        "decode_failures", Unit.COUNT,
        "parts that did not decode and were sent again; this and the next three are what codecs noted",
        lambda v: v.noted("fallback_parts"), better="lower",
    ),
    Metric(
        "forecast_misses", Unit.COUNT, "parts sent again because a forecast was wrong",
        lambda v: v.noted("forecast_misses"), better="lower",
    ),
    Metric(
        "approximate_entries", Unit.COUNT, "elements that are estimates",
        lambda v: v.noted("estimated_elements"), better="lower",
    ),
    Metric(
        "infinite_entries", Unit.COUNT, "elements whose sum is beyond float32",
        lambda v: v.noted("infinite_elements"), better="lower",
    ),
    Metric(
        "codec_choice", Unit.TABLE,
        'how many rounds took which encoding, `{"packed": 12, "dense": 3}`: the name is what stands '
        'before the ":" of a note on a choice; those of several notes of one round are joined by " + '
        '"',
        lambda v: dict(Counter(record.choice for record in v.rounds if record.choice is not None)) or None,
    ),
    Metric(
        "loss_first", Unit.SIGNED, "training loss before the first update, the mean over workers",
        lambda v: v.steps[0].loss if v.steps else None, least=-1e300,
    ),
    Metric(
        "loss", Unit.SIGNED, "training loss before the last update, the mean over workers",
        lambda v: v.steps[-1].loss if v.steps else None, better="lower", least=-1e300,
        label="training loss", sort="loss", shown_if=has_trained,
    ),
    Metric(
        "test_metric", Unit.TEXT, "what the last test on held-out data measured",
        lambda v: v.last_test and v.last_test.test_metric, is_later=True,
    ),
    Metric(
        "test_score", Unit.SIGNED, "what it found; of `perplexity` and `loss` less is better",
        lambda v: v.last_test and v.last_test.test_score, better="higher", least=-1e300,
        label="held-out data", note="the last score", sort="score", shown_if=is_tested, is_later=True,
    ),
    Metric(
        "target", Unit.SIGNED, "the score to reach; this and the next three exist where a scenario has one",
        lambda v: v.fact.target, least=-1e300, applies=_aims, shown_if=has_target,
        note="steps, simulated time, and bytes sent and received by a worker, until the score was reached",
    ),
    Metric(
        "steps_to_target", Unit.COUNT,
        "steps up to the first test that reached it; this and the next two are null if none did",
        lambda v: v.to_target[0], better="lower", applies=_aims,
    ),
    Metric(
        "time_to_target_us", Unit.TIME, "simulated time until then, from the start of the first step",
        lambda v: v.to_target[1], better="lower", sort="target", applies=_aims,
    ),
    Metric(
        "bytes_to_target", Unit.BYTES,
        "bytes until then on a worker's links, up and down, the mean over workers",
        lambda v: v.to_target[2], better="lower", applies=_aims,
    ),
)
# fmt: on
BY_NAME = {metric.name: metric for metric in METRICS}
TYPES = {metric.name: metric.unit.type for metric in METRICS if metric.unit is not Unit.TABLE}
SORTS = {metric.sort: metric for metric in METRICS if metric.sort}
"""The metrics that variants are ranked by, as `compare --sort` calls them."""
RATIOS = tuple(metric.name for metric in METRICS if metric.has_ratio)
"""The metrics that a comparison divides by the baseline's."""

# Where columns are shown, in their order.
QUALITY = ("bit_exact", "nmse", "cosine")
TRAINING = ("loss", "test_score", "target")
TO_TARGET = ("steps_to_target", "time_to_target_us", "bytes_to_target")
"""What is null of a variant that misses its target."""
ALL = "all"
RUN_TABLE = (
    *("aggregation_time_us", "of_bound", "since_last_rank_us", "iteration_time_us"),
    *("aggregation_elements_per_s", "wire_bytes_up_per_worker", "compression_ratio", *QUALITY, *TRAINING),
)
"""Of `netfold run --columns all`."""
ANSWERING: Mapping[str, Sequence[str]] = {
    "time_to_target": ("target", "iteration_time_us", "wire_bytes_up_per_worker"),
    "step_time": (
        *("since_last_rank_us", "iteration_time_us", "wire_bytes_up_per_worker", "nmse"),
        *("aggregation_time_us", "compression_ratio"),
    ),
    "throughput": ("aggregation_elements_per_s", "wire_bytes_up_per_worker", "nmse", "compression_ratio"),
    "makespan": ("completion_time_us", "slowdown", "iteration_time_us"),
    "score_at_time": ("test_score", "iteration_time_us", "wire_bytes_up_per_worker"),
}
"""Of `netfold run`, by what it is asked: the last ones give way where a table is too broad. Where compute
takes no time, the aggregation stands in the place of whole steps."""
COMPARISON = (
    *("since_last_rank_us", "aggregation_time_us", "of_bound", "aggregation_elements_per_s"),
    *("iteration_time_us", "wire_bytes_up_per_worker", *QUALITY, *TRAINING, "completion_time_us", "slowdown"),
)
"""Of `netfold compare`."""
PAGE_SPEED = (
    *("aggregation_elements_per_s", "aggregation_time_us", "of_bound", "of_schedule_bound"),
    *("since_last_rank_us", "iteration_time_us", "wire_bytes_up_per_worker", "compression_ratio"),
)
"""Of the report, and the next two as well."""
PAGE_SUMS = (
    *(*QUALITY, "max_abs_error", "merges_verified", "packets_lost", "packets_retransmitted"),
    *TRAINING,
)
PAGE_SWITCHES = (*("passes", "passes_per_result", "loopback_busy", "workers_held_min", "workers_held_mean"),)
SWEEP_FIRST = (
    *("aggregation_time_us", "iteration_time_us", "aggregation_elements_per_s", "compression_ratio"),
    *("wire_bytes_up_per_worker", "test_score"),
)
"""The figures that come first in the report of a sweep."""


def metrics_of(variant: Measured) -> dict[str, Any]:
    """The metrics of a variant, or of one of its jobs, by name."""
    return {
        metric.name: metric.value(variant)
        for metric in METRICS
        if metric.applies is None or metric.applies(variant)
    }
