"""Records of a run: one flat record type per table, columns with their unit last.

Reports, comparisons and checks are computed from these tables alone, never from live objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NO_BUCKET = -1
"""The bucket of phases that belong to none: passes, updates."""
PHASES = (
    "forward",
    "backward",
    "more passes",
    "update",
    "wait",
    "encode",
    "network",
    "decode",
)
"""Phases of a worker's step."""
FALLEN_BACK = "parts did not decode and were sent again"
MISSED_FORECASTS = "parts did not match their forecast and were sent again"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimizer step of one variant."""

    variant: str
    step: int
    start_ps: int
    forward_end_ps: int
    backward_end_ps: int
    aggregation_start_ps: int  # first worker has its first bucket ready
    aggregation_end_ps: int  # last worker has decoded its last bucket
    aggregation_ps: int  # time in which some bucket was being aggregated, without waits for backward
    end_ps: int
    elements: int
    loss: float | None  # mean over workers before the update; None if nothing is trained
    test_metric: str | None = None  # accuracy, HR@10; None if the step was not followed by a test
    test_score: float | None = None
    """Score of the weights after the update, on held-out data."""


@dataclass(frozen=True, slots=True)
class BucketRecord:
    """What a row of a table is about: a bucket of a step of a variant."""

    variant: str
    step: int
    bucket: int


@dataclass(frozen=True, slots=True)
class RoundRecord(BucketRecord):
    """One aggregation of one bucket: all workers, all messages."""

    elements: int
    start_ps: int  # first worker begins to encode
    end_ps: int  # last worker has decoded
    messages: int  # network operations, retries included
    fallback_messages: int
    """Those of `messages` that answer a failed decode."""
    payload_bytes_up: int  # all workers: of the messages that they sent
    payload_bytes_down: int  # all workers: of the merged messages that they received
    uploads: int  # workers that contributed words
    wire_bytes_up: int  # all workers, all links out of hosts, retransmissions included; see `WireBytes`
    wire_bytes_down: int  # all workers, all links into hosts
    nonzeros: int
    """Non-zero elements of worker 0's gradient."""
    union_nonzeros: int  # elements that are non-zero at any worker
    merges_verified: bool | None
    """Every merged word at every worker is the merge of the words sent; None: packets carry none."""
    bit_exact: bool | None  # the decoded total is the exact sum of the gradients; None: added as float32
    replicas_agree: bool  # all workers decoded the same bits
    workers_held_min: int  # fewest workers that one result, at any worker, holds
    workers_held_mean: float  # mean over results; below the number of workers only if slots have timers
    max_abs_error: float  # decoded against the float64 sum of all gradients
    nmse: float | None  # squared error over the squared norm of the sum of all gradients
    cosine: float | None
    """Cosine of the angle between the decoded total and the sum of all gradients."""
    max_error_over_bound: float  # against the contributions; 1.0 is the bound; without estimated elements
    notes_agree: bool  # all workers reported the same notes
    choice: str | None  # the encoding that the codec chose; None if it has no choice
    fallback_parts: int  # parts that did not decode and were sent again
    forecast_misses: int  # parts that did not match their forecast and were sent again
    estimated_elements: int  # elements of the decoded sum that are estimates
    infinite_elements: int  # elements whose sum is beyond float32


@dataclass(frozen=True, slots=True)
class NoteRecord(BucketRecord):
    """One note of the codec on one round.

    It is worker 0's note; of a round that never ended, that of the worker with most notes.
    """

    kind: str  # choice, fallback, forecast, estimate, infinite
    text: str
    count: int  # parts, elements or rounds that it is about …
    total: int  # … out of this many
    elements: int | None  # how many elements it names; None if it names none


@dataclass(frozen=True, slots=True)
class PhaseRecord(BucketRecord):
    """One phase of one worker: a bar of the time line; of forward and backward the bucket is `NO_BUCKET`."""

    worker: int
    phase: str  # one of PHASES
    label: str  # the message's label, "" for compute; what is waited for: "device" or "network"
    start_ps: int
    end_ps: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node of a variant's topology, and where it is in a regular one."""

    variant: str
    node: str
    kind: str  # host or switch
    tier: int  # 0 for hosts
    profile: str
    """The switch's profile; empty for hosts."""
    can_aggregate: bool
    coordinates: str | None  # "0,3"
    group: int | None
    rail: int | None
    island: int | None


@dataclass(frozen=True, slots=True)
class LinkRecord:
    """One direction of one link over a whole variant: sent = delivered + lost + in flight."""

    variant: str
    link: str  # "h0->s0"; inside a host: "h0 CPU, sending"
    source: str
    target: str
    rate_bps: int
    packets: int
    bytes: int  # put on the wire, headers and gaps included
    delivered_packets: int
    delivered_bytes: int
    lost_packets: int
    lost_bytes: int
    dropped_packets: int  # refused by a full buffer
    dropped_bytes: int
    in_flight_packets: int
    """Packets that were on their way when the run ended."""
    in_flight_bytes: int
    busy_ps: int
    backlog_bytes_max: int

    @property
    def is_loopback(self) -> bool:
        # Links inside hosts have other names.
        return self.source == self.target and self.link == f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class SeriesRecord:
    """What a quantity was in a stretch of a variant's time."""

    variant: str
    quantity: str  # one of `series.QUANTITIES`
    where: str  # a link; empty: all of the network
    start_ps: int
    end_ps: int
    value: float  # a share of the time; µs on the wire; a mean count


@dataclass(frozen=True, slots=True)
class CheckRecord:
    variant: str
    name: str  # sum_is_right, nothing_lost, conservation, replicas_agree …
    verdict: str  # pass | pass: sums not checked | pass: N % of sums checked | stalled | fail
    detail: str


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """The effect of one fault of one variant."""

    variant: str
    fault: int  # its place in the scenario's list, from 0
    kind: str
    where: str  # patterns of links, a switch, or a worker
    extent: str  # strength and duration of a timed fault: "10Gbps for 2ms"
    count: int
    counted: str  # the unit of `count`: packets hit, or times applied
    first_ps: int | None
    """When it was applied, or hit its first packet; None if that never happened."""


@dataclass(frozen=True)
class TimePart:
    """One cause, and its part of the aggregation time of a step, as `checks/bottleneck.py` finds it."""

    cause: str  # a `BottleneckCause`
    where: str  # link or host; empty: no single one
    stage: str  # device and straggler: encode, decode, backward …; else empty
    time_us: float  # mean per step
    share: float
    """Share of the aggregation time."""
    busy: float | None = None  # link, loopback, host: its busy share of the aggregation time
    alike: int = 0  # link, loopback, host: further ones that were as busy
    following: str = ""  # link, loopback, host: the busiest that is not among them …
    following_busy: float | None = None  # … and its busy share
    hosts: int = 0  # link: hosts whose packets were seen on it; 0: not counted
    faster: float | None = None  # aggregation time over what a remedy would leave of it, at least


@dataclass(frozen=True)
class Records:
    """All records of some variants, by table."""

    steps: Sequence[StepRecord] = ()
    rounds: Sequence[RoundRecord] = ()
    notes: Sequence[NoteRecord] = ()
    phases: Sequence[PhaseRecord] = ()
    links: Sequence[LinkRecord] = ()
    faults: Sequence[FaultRecord] = ()
    checks: Sequence[CheckRecord] = ()
    nodes: Sequence[NodeRecord] = ()
    series: Sequence[SeriesRecord] = ()


# What the counters of a job's switches come to: trips through pipelines, and results.


def passes_count(passes: tuple[int, int], points: Sequence[Mapping[str, int]]) -> int:
    # A packet that is discarded, or a duplicate of one in an unfinished slot, is dropped in its first pass;
    # one that is answered takes the way of one that completes a slot. With n workers and nothing lost that
    # makes n + 1 per result for SwitchML's 64 words and 4 · n + 7 for its 256 (`next_step_selector.py` of
    # p4lang/p4app-switchML).
    total, (of_packet, of_result) = 0, passes
    for point in points:
        dropped = point["discarded"] + point["duplicates_dropped"]
        total += dropped + (point["packets"] - dropped) * of_packet
        total += (point["results"] + point.get("partials", 0) + point["answers"]) * of_result
    return total


def results_count(root: Mapping[str, int]) -> int:
    """Sums that went down to workers, complete or not: of ATP the server's, else the root's."""
    if root["acknowledged"]:
        return root["acknowledged"] - root["requests"]
    return root["results"] + root["timed_out"]
