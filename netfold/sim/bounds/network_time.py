"""Network time, split by the samples of the network; `sim/bounds` states the rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netfold.sim.bounds.causes import Cause
from netfold.sim.engine.observe.samples import BLOCKED, DEAD, OUTSTANDING, SENDERS, Samples

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

    def of_cause(self, cause: Cause) -> Floats:
        """(n,) ps of one of the causes that are not links."""
        return {
            Cause.WINDOW: self.window_ps,
            Cause.TIMER: self.timer_ps,
            Cause.LATENCY: self.latency_ps,
            Cause.MERGING: self.merging_ps,
        }[cause]

    def alike(self, link: int) -> list[int]:
        """The links that were as busy as one, itself among them: within 95 % of each other."""
        own = self.total_ps[link]
        is_alike = (self.total_ps >= ALIKE * own) & (ALIKE * self.total_ps <= own)
        found: list[int] = np.flatnonzero(is_alike).tolist()
        return found

    def next_busiest(self, links: Sequence[int]) -> int:
        """The busiest of the other links; −1 if none of them was busy."""
        others = self.total_ps.copy()
        others[list(links)] = 0.0
        return int(others.argmax()) if others.max(initial=0.0) > 0 else -1

    def saved_ps(self, group: Sequence[int]) -> float:
        """Time that the job saves at most if some links are twice as fast and others as busy as before."""
        bound_ps = np.where(np.isin(self.chosen, group), self.by_link_ps, 0.0)
        return self._saved_ps(bound_ps, group)

    def saved_by_windows_ps(self) -> float:
        """Time that the job saves at most if windows are twice as large, and links as busy as they were."""
        return self._saved_ps(self.window_ps, ())

    def _saved_ps(self, bound_ps: Floats, group: Sequence[int]) -> float:
        """Half of the time that something bounds, (n,), or what the busiest other link leaves of it."""
        totals = np.zeros_like(self.total_ps)
        shares = _ratio(bound_ps, self.covered_ps)[:, None] * self.busy * self.covered_ps[:, None]
        known = self.links >= 0
        np.add.at(totals, self.links[known], shares[known])
        whole_ps = float(bound_ps.sum())
        rest_ps = float(self.covered_ps.sum()) - whole_ps
        totals = np.maximum(totals, self.total_ps - rest_ps)  # of links that samples do not list, at least
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
    known = samples.links >= 0
    np.add.at(total, samples.links[known], (busy * covered[:, None])[known])
    chosen, b = _busiest(samples.links, busy, total)
    waiting = samples.waiting[:, job]
    d = _ratio(waiting[:, DEAD], waiting[:, OUTSTANDING])
    u = _ratio(waiting[:, BLOCKED], waiting[:, SENDERS])
    is_idle = samples.is_empty & (waiting[:, OUTSTANDING] == 0)
    is_held = samples.is_steady & (u > 0) & ~is_idle

    def share(always: float, idle: Floats, held: Floats, otherwise: Floats) -> Floats:
        found: Floats = np.select([b >= SATURATED, is_idle, is_held], [always, idle, held], otherwise)
        return found * covered

    zero, rest = np.zeros_like(b), 1 - b
    return NetworkTime(
        covered_ps=covered,
        chosen=chosen,
        by_link_ps=share(1.0, b, b * (1 - d) * (1 - u), b),
        window_ps=share(0.0, zero, (1 - d) * u, rest * (1 - d) * u),
        timer_ps=share(0.0, zero, d, rest * d),
        latency_ps=share(0.0, zero, rest * (1 - d) * (1 - u), rest * (1 - d) * (1 - u)),
        merging_ps=share(0.0, rest, zero, zero),
        busy=busy,
        links=samples.links,
        total_ps=total,
    )


def _unlisted(samples: Samples, busy: Floats, covered: Floats, run_busy_ps: Sequence[int]) -> Floats:
    """(L,) how long each link was busy in network time in samples that do not list it.

    It was at most as busy there as the last one listed. Of a run with one job this is exact, as its links are
    only busy in its network time; of several jobs it is the most that it can be.
    """
    rest = np.array(run_busy_ps, np.float64)
    if samples.links.shape[1] == 0:
        return np.zeros_like(rest)
    known = samples.links >= 0
    np.subtract.at(rest, samples.links[known], samples.busy_ps[known])
    least = (busy[:, -1] * covered)[:, None]
    most = np.full_like(rest, least.sum())
    np.subtract.at(most, samples.links[known], np.broadcast_to(least, busy.shape)[known])
    return np.clip(rest, 0.0, np.maximum(most, 0.0))


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Shares; 0 of nothing."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _busiest(links: NDArray[np.int32], busy: Floats, total: Floats) -> tuple[NDArray[np.int64], Floats]:
    """The busiest link of each sample, and its busy share; of alike ones, the busiest of all network time."""
    if links.shape[1] == 0:
        return np.full(len(links), -1, np.int64), np.zeros(len(links))
    is_candidate = (links >= 0) & (busy >= ALIKE * busy.max(1, keepdims=True)) & (busy > 0)
    rank = np.where(is_candidate, total[links], -1.0)
    best = rank.max(1, keepdims=True)
    numbers = np.where(
        is_candidate & (rank >= best), links, np.iinfo(np.int32).max
    )  # of equal ones the first
    place = numbers.argmin(1)
    rows = np.arange(len(links))
    has_any = is_candidate.any(1)
    chosen = np.where(has_any, links[rows, place], -1).astype(np.int64)
    return chosen, np.where(has_any, busy[rows, place], 0.0)


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
        found: NDArray[np.int64] = np.where(index > 0, sums[at] + inside, 0)
        return found

    return before
