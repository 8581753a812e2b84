"""What bounds a job: its aggregation time, split into parts that add up to 100 %.

The time to split is `aggregation_ps` of all finished steps: the time in which some bucket was being
aggregated, from the first worker's encoding to the last worker's decoded result. It is split in two stages,
from the records of the run and the samples of its network alone. Nothing is taken from the scenario.

**1. The critical path.** Each round is walked backwards from its end, at the worker that finished last. Where
rounds overlap, the time counts for the one that began first, as in `results/metrics.py`.

- While a worker encodes or decodes, its *device* bounds the round, with that stage. What it takes longer
  than the median of the workers at the same place is a *straggler*'s: without that worker it would not
  be there.
- An operation on the network needs the words of all workers. So its network time begins when the last
  worker's does, and the walk goes on at that worker.
- While that worker waits for its device, or is not in the round yet, what its device does instead counts
  (*straggler* if it is not in the round: some other worker is).
- All else is *network* time.

**2. Network time**, sample by sample (`engine/engine_views.py`). The *busiest link* of
a sample is, of the links that were busy for at least 95 % of what the busiest one was, the one that was busy
longest in all the network time of the job. Let b be its busy share of the sample, d the share of units that
senders wait for and of which no packet is on its way (they wait for a retransmission timer), and u the share
of senders that have more to send than their window allows. In this order:

    b >= 95 %                    all of it *link* (*loopback* if it leads from a switch to itself, *host* if
                                 it is what a host does for packets)
    no unit is waited for, and   b link, the rest *merging*: of all that an operation does, only hosts
    no packet is on its way      that merge leave the network empty. So is network time without samples,
                                 which are taken while some process waits for the network
    nothing began or ended in    d *timer*, (1 - d)·u *window*; of the remaining (1 - d)·(1 - u): b link and
    it, and u > 0                1 - b *latency*. Senders that have more to send, while no link is always
                                 busy, are held by their windows; so are the links, while they are busy
    otherwise                    b link; of the rest d timer, (1 - d)·u window, (1 - d)·(1 - u) latency:
                                 messages end and begin within the sample

*Latency* is thus the time in which packets are on their way, nobody has more to send, and no link is always
busy: delays and transmission of single packets, over hops one after the other.

**The bound** is the cause with the largest part. `faster` is what the same records say of a remedy: the
aggregation time over what it would be if that resource did twice as much (a link twice as fast, with all that
are as busy; twice the slots; a device, timer or delay of half the time), or, of a straggler, were like the
median. The time that a link or the window bounds cannot fall below the time for which any other link was busy
meanwhile. Other limits may come up, so it is an upper bound.

A sample has its 48 busiest links. How long others were busy follows from their busy time in all the run, so
all links that are as busy are counted.

Approximations: within a sample nothing is known of order, but a time when hosts merge and the network is
empty is a sample of its own if it is longer than 1/4096 of all time so far; samples are at most 1/16 of the
time that was waited until then; what senders wait for is the mean of what was found at the sample's ends.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.engine.engine_views import BLOCKED, DEAD, OUTSTANDING, SENDERS, Samples
from netfold.sim.results.breakdown import Counted, counted_rounds
from netfold.sim.results.records import LinkRecord, PhaseRecord, Records, RoundRecord, TimePart
from netfold.units import PS_PER_US

# What can bound a job.


class BottleneckCause(StrEnum):
    """What the critical resource did; the top of this file says how it is found."""

    LINK = "link"
    LOOPBACK = "loopback"
    HOST = "host"
    WINDOW = "window"
    TIMER = "timer"
    LATENCY = "latency"
    DEVICE = "device"
    STRAGGLER = "straggler"
    MERGING = "merging"
    UNEXPLAINED = "unexplained"


CAUSES = tuple(cause.value for cause in BottleneckCause)


# Network time, split by the samples of the network; the top of this file states the rule.


ALIKE = 0.95  # links that were busy this share of what the busiest was are as busy as it
SATURATED = 0.95  # busy share of a link that bounds a sample

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NetworkTime:
    """Network time of a job by cause: (n,) ps of each of the samples. It adds up to `covered_ps`."""

    covered_ps: Floats  # (n,) of the sample, in network time
    chosen: NDArray[np.int64]  # (n,) its busiest link; −1: none was busy
    by_link_ps: Floats  # (n,) that `chosen` bounds
    window_ps: Floats
    timer_ps: Floats
    latency_ps: Floats
    merging_ps: Floats
    busy: Floats  # (n, K) busy shares, as `Samples.links`
    links: NDArray[np.int32]  # (n, K)
    total_ps: Floats  # (L,) busy time of each link in the network time of the job, listed in `links` or not

    def of_cause(self, cause: BottleneckCause) -> Floats:
        """(n,) ps of one of the causes that are not links."""
        return {
            BottleneckCause.WINDOW: self.window_ps,
            BottleneckCause.TIMER: self.timer_ps,
            BottleneckCause.LATENCY: self.latency_ps,
            BottleneckCause.MERGING: self.merging_ps,
        }[cause]

    def alike(self, link: int) -> list[int]:
        """The links that were as busy as one, itself among them: within 95 % of each other."""
        busy_ps = self.total_ps[link]
        is_alike = (self.total_ps >= ALIKE * busy_ps) & (ALIKE * self.total_ps <= busy_ps)
        links: list[int] = np.flatnonzero(is_alike).tolist()
        return links

    def next_busiest(self, links: Sequence[int]) -> int:
        """The busiest of the other links; −1 if none of them was busy."""
        other_ps = self.total_ps.copy()
        other_ps[list(links)] = 0.0
        return int(other_ps.argmax()) if other_ps.max(initial=0.0) > 0 else -1

    def saved_ps(self, group: Sequence[int]) -> float:
        """Time that the job saves at most if some links are twice as fast and others as busy as before."""
        bound_ps = np.where(np.isin(self.chosen, group), self.by_link_ps, 0.0)
        return self._saved_ps(bound_ps, group)

    def saved_by_windows_ps(self) -> float:
        # Windows are twice as large, and links as busy as they were.
        return self._saved_ps(self.window_ps, ())

    def _saved_ps(self, bound_ps: Floats, group: Sequence[int]) -> float:
        """Half of the time that something bounds, (n,), or what the busiest other link leaves of it."""
        totals = np.zeros_like(self.total_ps)
        shares = _ratio(bound_ps, self.covered_ps)[:, None] * self.busy * self.covered_ps[:, None]
        is_link = self.links >= 0
        np.add.at(totals, self.links[is_link], shares[is_link])
        whole_ps = float(bound_ps.sum())
        rest_ps = float(self.covered_ps.sum()) - whole_ps
        # Links that samples do not list were busy for at least this long.
        totals = np.maximum(totals, self.total_ps - rest_ps)
        totals[list(group)] = 0.0
        return max(0.0, whole_ps - max(whole_ps / 2, float(totals.max(initial=0.0))))


def network_time(
    samples: Samples, job: int, spans_ps: Sequence[tuple[int, int]], run_busy_ps: Sequence[int]
) -> NetworkTime:
    """Split the network time of a job, some disjoint spans in any order, by what its samples say.

    `run_busy_ps` is (L,) how long each link was busy in all the run.
    """
    covered = _covered(samples, spans_ps)
    length = np.maximum(1, samples.end_ps - samples.start_ps).astype(np.float64)
    busy = samples.busy_ps / length[:, None]
    total = _unlisted(samples, busy, covered, run_busy_ps)
    is_link = samples.links >= 0
    np.add.at(total, samples.links[is_link], (busy * covered[:, None])[is_link])
    chosen, b = _busiest(samples.links, busy, total)
    waiting = samples.waiting[:, job]
    d = _ratio(waiting[:, DEAD], waiting[:, OUTSTANDING])
    u = _ratio(waiting[:, BLOCKED], waiting[:, SENDERS])
    is_idle = samples.is_empty & (waiting[:, OUTSTANDING] == 0)
    is_held = samples.is_steady & (u > 0) & ~is_idle

    def share(always: float, idle: Floats, held: Floats, otherwise: Floats) -> Floats:
        shares: Floats = np.select([b >= SATURATED, is_idle, is_held], [always, idle, held], otherwise)
        return shares * covered

    zero, complement = np.zeros_like(b), 1 - b
    return NetworkTime(
        covered_ps=covered,
        chosen=chosen,
        by_link_ps=share(1.0, b, b * (1 - d) * (1 - u), b),
        window_ps=share(0.0, zero, (1 - d) * u, complement * (1 - d) * u),
        timer_ps=share(0.0, zero, d, complement * d),
        latency_ps=share(0.0, zero, complement * (1 - d) * (1 - u), complement * (1 - d) * (1 - u)),
        merging_ps=share(0.0, complement, zero, zero),
        busy=busy,
        links=samples.links,
        total_ps=total,
    )


def _unlisted(samples: Samples, busy: Floats, covered: Floats, run_busy_ps: Sequence[int]) -> Floats:
    """(L,) how long each link was busy in network time in samples that do not list it.

    It was at most as busy there as the last one listed. Of a run with one job this is exact, as its links are
    only busy in its network time; of several jobs it is the most that it can be.
    """
    unlisted_ps = np.array(run_busy_ps, np.float64)
    if samples.links.shape[1] == 0:
        return np.zeros_like(unlisted_ps)
    is_link = samples.links >= 0
    np.subtract.at(unlisted_ps, samples.links[is_link], samples.busy_ps[is_link])
    least = (busy[:, -1] * covered)[:, None]
    most = np.full_like(unlisted_ps, least.sum())
    np.subtract.at(most, samples.links[is_link], np.broadcast_to(least, busy.shape)[is_link])
    return np.clip(unlisted_ps, 0.0, np.maximum(most, 0.0))


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _busiest(links: NDArray[np.int32], busy: Floats, total: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The busiest link of each sample, and its busy share; of alike ones, the busiest of all network time."""
    if links.shape[1] == 0:
        return np.full(len(links), -1, np.int64), np.zeros(len(links))
    is_candidate = (links >= 0) & (busy >= ALIKE * busy.max(1, keepdims=True)) & (busy > 0)
    rank = np.where(is_candidate, total[links], -1.0)
    best = rank.max(1, keepdims=True)
    # Of links that are equally busy, the one with the lowest number is chosen.
    numbers = np.where(is_candidate & (rank >= best), links, np.iinfo(np.int32).max)
    columns = numbers.argmin(1)
    rows = np.arange(len(links))
    has_any = is_candidate.any(1)
    chosen = np.where(has_any, links[rows, columns], -1).astype(np.int64)
    return chosen, np.where(has_any, busy[rows, columns], 0.0)


def _covered(samples: Samples, spans_ps: Sequence[tuple[int, int]]) -> Floats:
    """(n,) how much of each sample lies in some disjoint spans."""
    starts, ends = samples.start_ps, samples.end_ps
    if not spans_ps or not starts.size:
        return np.zeros(starts.size)
    spans = np.array(sorted(spans_ps), np.int64)
    before = _until(spans)
    return (before(ends) - before(starts)).astype(np.float64)


def _until(spans: NDArray[np.int64]) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """A function of times: how much of sorted, disjoint spans is before each."""
    lengths = spans[:, 1] - spans[:, 0]
    sums = np.concatenate([[0], np.cumsum(lengths)])

    def before(times_ps: NDArray[np.int64]) -> NDArray[np.int64]:
        index = np.searchsorted(spans[:, 0], times_ps, side="right")
        at = np.maximum(index - 1, 0)
        inside = np.clip(times_ps - spans[at, 0], 0, lengths[at])
        covered_ps: NDArray[np.int64] = np.where(index > 0, sums[at] + inside, 0)
        return covered_ps

    return before


# The critical path of a round: from its end, back to what each thing waited for.


_COMPUTE_BUCKET = -1


class Piece(NamedTuple):
    """A part of the critical path; `cause` None: the network, whose samples say more."""

    start_ps: int
    end_ps: int
    cause: BottleneckCause | None = None
    worker: int = -1
    stage: str = ""


class _Worker:
    """The phases of one worker, to find what it did at some time."""

    def __init__(self, phases: Sequence[PhaseRecord]) -> None:
        self._phases = sorted(
            (phase for phase in phases if phase.phase != "wait"),
            key=lambda phase: (phase.start_ps, phase.end_ps),
        )
        self._starts = [phase.start_ps for phase in self._phases]
        self._longest_ps = max((phase.end_ps - phase.start_ps for phase in self._phases), default=0)

    def during(self, start_ps: int, end_ps: int) -> Iterator[PhaseRecord]:
        """Phases that overlap an interval, those of its device first, each by their start."""
        last = bisect_right(self._starts, end_ps)
        first = bisect_right(self._starts, start_ps - self._longest_ps - 1)
        phases = [
            phase for phase in self._phases[first:last] if phase.end_ps > start_ps and phase.start_ps < end_ps
        ]
        return iter(sorted(phases, key=lambda phase: phase.phase == "network"))


def critical_path(rounds: Sequence[RoundRecord], phases: Sequence[PhaseRecord]) -> list[Piece]:
    """Pieces that cover the time of some rounds once: the latest first within a round.

    They add up to the time in which some of the rounds was in progress.
    """
    by_round: dict[tuple[int, int], dict[int, list[PhaseRecord]]] = defaultdict(lambda: defaultdict(list))
    by_worker: dict[int, list[PhaseRecord]] = defaultdict(list)
    for phase in phases:
        by_worker[phase.worker].append(phase)
        if phase.bucket != _COMPUTE_BUCKET:
            by_round[phase.step, phase.bucket][phase.worker].append(phase)
    workers = {worker: _Worker(records) for worker, records in by_worker.items()}
    pieces = []
    for span in counted_rounds(rounds):
        walk = _Walk(span, by_round[span.step, span.bucket], workers)
        pieces += [piece for piece in walk.pieces() if piece.end_ps > piece.start_ps]
    return pieces


class _Walk:
    """One round, walked backwards."""

    def __init__(
        self, span: Counted, own_phases: Mapping[int, list[PhaseRecord]], workers: Mapping[int, _Worker]
    ) -> None:
        self._start_ps, self._end_ps = span.start_ps, span.end_ps
        self._own, self._workers = own_phases, workers
        self._operations = {
            worker: [index for index, phase in enumerate(phases) if phase.phase == "network"]
            for worker, phases in own_phases.items()
        }

    def pieces(self) -> Iterator[Piece]:
        """Pieces from the end of the round to its start, or to the end of earlier rounds."""
        at_ps = self._end_ps
        if not self._own or at_ps <= self._start_ps:
            return
        worker = max(self._own, key=lambda rank: (self._own[rank][-1].end_ps, self._own[rank][0].start_ps))
        index = len(self._own[worker]) - 1
        while at_ps > self._start_ps:
            if index < 0:
                yield from self._instead(worker, self._start_ps, at_ps, is_late=True)
                return
            phase = self._own[worker][index]
            if phase.end_ps < at_ps:
                yield from self._instead(worker, max(phase.end_ps, self._start_ps), at_ps, is_late=False)
                at_ps = phase.end_ps
            elif phase.phase == "network":
                begin_ps, worker, index = self._last_to_begin(worker, index, at_ps)
                yield Piece(max(begin_ps, self._start_ps), at_ps)
                at_ps, index = begin_ps, index - 1
            else:
                yield from self._on_device(worker, index, at_ps)
                at_ps, index = phase.start_ps, index - 1

    def _last_to_begin(self, worker: int, index: int, at_ps: int) -> tuple[int, int, int]:
        """When the last worker began an operation, which one, and the index of its phase.

        A worker that began after the operation was over somewhere was not waited for.
        """
        number = self._operations[worker].index(index)
        begun = [
            (self._own[other][places[number]].start_ps, other == worker, -other, places[number])
            for other, places in self._operations.items()
            if number < len(places)
        ]
        start_ps, _, other, phase_index = max(start for start in begun if start[0] < at_ps or start[1])
        return start_ps, -other, phase_index

    def _on_device(self, worker: int, index: int, at_ps: int) -> Iterator[Piece]:
        """What a worker does, or waits for, in a phase that is not the network's."""
        phase = self._own[worker][index]
        start_ps, end_ps = max(phase.start_ps, self._start_ps), at_ps
        if phase.phase == "wait":
            if phase.label == "network":
                yield Piece(start_ps, end_ps)
            else:
                yield from self._instead(worker, start_ps, end_ps, is_late=False)
            return
        usual_ps = phase.start_ps + self._median_ps(index, phase)
        middle_ps = min(max(usual_ps, start_ps), end_ps)
        yield Piece(middle_ps, end_ps, BottleneckCause.STRAGGLER, worker, phase.phase)
        yield Piece(start_ps, middle_ps, BottleneckCause.DEVICE, worker, phase.phase)

    def _median_ps(self, index: int, phase: PhaseRecord) -> int:
        """Median time of the workers in the same phase, after as many operations."""
        number = sum(phase_index < index for phase_index in self._operations[phase.worker])
        times_ps = []
        for worker, phases in self._own.items():
            places = self._operations[worker]
            first = places[number - 1] + 1 if number else 0
            last = places[number] if number < len(places) else len(phases)
            same = [record for record in phases[first:last] if record.phase == phase.phase]
            times_ps.append(sum(record.end_ps - record.start_ps for record in same))
        return int(median(times_ps))

    def _instead(self, worker: int, start_ps: int, end_ps: int, is_late: bool) -> Iterator[Piece]:
        """What a worker does while it is not in the round, or waits for its device."""
        uncovered = [(start_ps, end_ps)]
        cause = BottleneckCause.STRAGGLER if is_late else BottleneckCause.DEVICE
        for phase in self._workers[worker].during(start_ps, end_ps):
            outside: list[tuple[int, int]] = []
            for begin_ps, until_ps in uncovered:
                low, high = max(begin_ps, phase.start_ps), min(until_ps, phase.end_ps)
                if low >= high:
                    outside.append((begin_ps, until_ps))
                    continue
                if phase.phase == "network":
                    yield Piece(low, high)
                else:
                    yield Piece(low, high, cause, worker, phase.phase)
                outside += [(begin_ps, low), (high, until_ps)]
            uncovered = [span for span in outside if span[0] < span[1]]
        for begin_ps, until_ps in uncovered:
            yield Piece(begin_ps, until_ps, cause, worker, "idle")


# The parts of a job's aggregation time, the largest first.


PARTS_MAX = 12  # kept; smaller ones of the same cause are added up
_OF_NETWORK = (
    BottleneckCause.WINDOW,
    BottleneckCause.TIMER,
    BottleneckCause.LATENCY,
    BottleneckCause.MERGING,
)


class SampledNetwork(NamedTuple):
    """Names of links and of the workers' hosts, and the samples of the network."""

    link_names: Sequence[str]
    kinds: Sequence[BottleneckCause]
    """What each link is called where it bounds a job."""
    busy_ps: Sequence[int]
    """Time that each link was busy in all the run."""
    hosts: Sequence[str]
    samples: Samples
    job: int
    """The job's number in the samples."""


def bounds(records: Records, network: SampledNetwork) -> list[dict[str, Any]]:
    """The parts of the aggregation time of finished steps, the largest first; empty without such time.

    Shares add up to 1, and times to the mean aggregation time of a step.
    """
    total_ps = sum(step.aggregation_ps for step in records.steps)
    if total_ps == 0:
        return []
    done = {step.step for step in records.steps}
    pieces = critical_path(
        [record for record in records.rounds if record.step in done],
        [record for record in records.phases if record.step in done],
    )
    spans = [(piece.start_ps, piece.end_ps) for piece in pieces if piece.cause is None]
    spans_ps = sum(end_ps - start_ps for start_ps, end_ps in spans)
    split = network_time(network.samples, network.job, spans, network.busy_ps)
    parts = [*_host_parts(pieces, network, total_ps), *_network_parts(split, network, spans_ps, total_ps)]
    unexplained = 1 - sum(part.share for part in parts)
    if unexplained > 1e-9:
        parts.append(TimePart(BottleneckCause.UNEXPLAINED, "", "", 0.0, unexplained))
    step_us = total_ps / len(records.steps) / PS_PER_US
    parts = _fewer(sorted(parts, key=lambda part: (-part.share, part.cause, part.where, part.stage)))
    return [asdict(part) | {"time_us": part.share * step_us} for part in parts if part.share > 0]


def _host_parts(pieces: Sequence[Piece], network: SampledNetwork, total_ps: int) -> list[TimePart]:
    """One part per stage of all devices, and one per straggler, whose stages are named, the longest first."""
    stages: dict[tuple[BottleneckCause, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for piece in pieces:
        if piece.cause is not None:
            where = network.hosts[piece.worker] if piece.cause is BottleneckCause.STRAGGLER else ""
            stages[piece.cause, where][piece.stage] += piece.end_ps - piece.start_ps
    times = {
        (cause, "", stage): time_ps
        for (cause, where), stage_times in stages.items()
        if not where
        for stage, time_ps in stage_times.items()
    }
    for (cause, where), spent_ps in stages.items():
        if where:
            times[cause, where, " and ".join(sorted(spent_ps, key=lambda stage: -spent_ps[stage]))] = sum(
                spent_ps.values()
            )
    return [
        TimePart(
            cause, where, stage, 0.0, time_ps / total_ps, faster=_faster(total_ps, _remedied(cause) * time_ps)
        )
        for (cause, where, stage), time_ps in times.items()
    ]


def _remedied(cause: BottleneckCause) -> float:
    # A straggler is waited for in vain, so its remedy saves all of the part; other remedies save half.
    return 1.0 if cause is BottleneckCause.STRAGGLER else 0.5


def _network_parts(
    split: NetworkTime, network: SampledNetwork, spans_ps: int, total_ps: int
) -> list[TimePart]:
    """One part per group of links, equally busy, that bound some samples, and one per other cause."""
    parts = []
    named_links: set[int] = set()
    links_left = set(np.unique(split.chosen[split.by_link_ps > 0]).tolist())
    while links_left:
        link = max(links_left, key=lambda candidate: (split.total_ps[candidate], -candidate))
        group = [
            peer
            for peer in split.alike(link)
            if network.kinds[peer] is network.kinds[link] and peer not in named_links
        ]
        links_left -= set(group)
        named_links |= set(group)
        following = split.next_busiest(group)
        time_ps = float(split.by_link_ps[np.isin(split.chosen, group)].sum())
        parts.append(
            TimePart(
                cause=network.kinds[link],
                where=network.link_names[link],
                stage="",
                time_us=0.0,
                share=time_ps / total_ps,
                busy=float(split.total_ps[link]) / total_ps,
                alike=len(group) - 1,
                hosts=int(network.samples.sharing[link]),
                following=network.link_names[following] if following >= 0 else "",
                following_busy=float(split.total_ps[following]) / total_ps if following >= 0 else None,
                faster=_faster(total_ps, split.saved_ps(group)),
            )
        )
    for cause in _OF_NETWORK:
        time_ps = float(split.of_cause(cause).sum())
        if cause is BottleneckCause.MERGING:
            time_ps += spans_ps - float(split.covered_ps.sum())
        saved_ps = (
            split.saved_by_windows_ps() if cause is BottleneckCause.WINDOW else _remedied(cause) * time_ps
        )
        parts.append(TimePart(cause, "", "", 0.0, time_ps / total_ps, faster=_faster(total_ps, saved_ps)))
    return parts


def _faster(total_ps: float, saved_ps: float) -> float | None:
    return total_ps / (total_ps - saved_ps) if saved_ps < total_ps else None


def _fewer(parts: list[TimePart]) -> list[TimePart]:
    """The largest parts; the time of the others is that of their cause, at no single place."""
    largest_parts, merged_parts = parts[:PARTS_MAX], parts[PARTS_MAX:]
    shares: dict[str, float] = defaultdict(float)
    for part in merged_parts:
        shares[part.cause] += part.share
    return [*largest_parts, *(TimePart(cause, "", "", 0.0, share) for cause, share in shares.items())]


# Which links between switches are used, and whether too few of them are where the bottleneck is.


Ends = tuple[str, str]
"""The nodes that a link leads from and to."""
_UNUSED = 0.05  # share of what the busiest link of a tier carried
_FEW = 0.5  # share of links below which their tier can carry much more


def links_used(tiers: Mapping[str, set[Ends]], links: Sequence[LinkRecord]) -> dict[str, dict[str, int]]:
    """How many of the links of each tier were used, and how many there are.

    A link with less than 5 % of the bytes of the busiest link of its tier counts as unused, as it is one that
    carries acknowledgements alone.
    """
    sent_bytes = {(link.source, link.target): link.bytes for link in links}
    counts = {}
    for name, ends in tiers.items():
        each = [sent_bytes[link] for link in ends]
        counts[name] = {"used": sum(sent > _UNUSED * max(each) for sent in each), "links": len(each)}
    return counts


def few_links_warnings(
    tiers: Mapping[str, set[Ends]],
    links: Sequence[LinkRecord],
    parts: Sequence[Mapping[str, Any]],
    remedy: str,
) -> tuple[str, ...]:
    """A warning if the bottleneck is in a tier of which less than half of the links are used.

    There is none if links elsewhere were as busy: these would be the bottleneck next.
    """
    slowest = next((link for link in links if parts and link.link == parts[0]["where"]), None)
    if slowest is None:
        return ()
    for name, count in links_used(tiers, links).items():
        ends, few = tiers[name], _FEW * count["links"]
        both_ways = ends | {(target, source) for source, target in ends}
        others_ps = [link.busy_ps for link in links if (link.source, link.target) not in both_ways]
        is_tier = (slowest.source, slowest.target) in ends and count["used"] < few
        if is_tier and max(others_ps, default=0) < ALIKE * slowest.busy_ps:
            return (
                f"the bottleneck is {slowest.link}, and only {count['used']} of {count['links']} links "
                f"{name} are used: {remedy}",
            )
    return ()
