"""The parts of a job's aggregation time, the largest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from netfold.sim.bounds.causes import Cause
from netfold.sim.bounds.network_time import NetworkTime, network_time
from netfold.sim.bounds.path import Piece, critical_path
from netfold.sim.engine.observe.samples import Samples
from netfold.sim.results.records import PhaseRecord, RoundRecord, StepRecord
from netfold.units import PS_PER_US

PARTS_MAX = 12  # kept; smaller ones of the same cause are added up
_OF_NETWORK = (Cause.WINDOW, Cause.TIMER, Cause.LATENCY, Cause.MERGING)


class Network(NamedTuple):
    """Names of links and of the workers' hosts, and the samples of the network."""

    link_names: Sequence[str]
    kinds: Sequence[Cause]  # by link: what it is called where it bounds a job
    busy_ps: Sequence[int]  # by link, in all the run
    hosts: Sequence[str]  # by worker
    samples: Samples
    job: int  # in the samples


class Records(NamedTuple):
    """What is recorded of a job."""

    steps: Sequence[StepRecord]
    rounds: Sequence[RoundRecord]
    phases: Sequence[PhaseRecord]


@dataclass(frozen=True)
class Part:
    """One cause, and its part of the aggregation time of a step; see `sim/bounds`."""

    cause: str  # one of `CAUSES`
    where: str  # link or host; empty: no single one
    stage: str  # device and straggler: encode, decode, backward …; else empty
    time_us: float  # mean per step
    share: float  # of the aggregation time
    busy: float | None = None  # link, loopback, host: its busy share of the aggregation time
    alike: int = 0  # link, loopback, host: further ones that were as busy
    following: str = ""  # link, loopback, host: the busiest that is not among them …
    following_busy: float | None = None  # … and its busy share
    hosts: int = 0  # link: hosts whose packets were seen on it; 0: not counted
    faster: float | None = None  # aggregation time over what a remedy would leave of it, at least


def bounds(records: Records, network: Network) -> list[dict[str, Any]]:
    """The parts of the aggregation time of finished steps, the largest first; empty without such time.

    Shares add up to 1, and times to the mean aggregation time of a step.
    """
    total_ps = sum(step.aggregation_ps for step in records.steps)
    if total_ps == 0:
        return []
    done = {step.step for step in records.steps}
    pieces = critical_path(
        [one for one in records.rounds if one.step in done],
        [one for one in records.phases if one.step in done],
    )
    spans = [(piece.start_ps, piece.end_ps) for piece in pieces if piece.cause is None]
    spans_ps = sum(end_ps - start_ps for start_ps, end_ps in spans)
    split = network_time(network.samples, network.job, spans, network.busy_ps)
    found = [*_host_parts(pieces, network, total_ps), *_network_parts(split, network, spans_ps, total_ps)]
    rest = 1 - sum(part.share for part in found)
    if rest > 1e-9:
        found.append(Part(Cause.UNEXPLAINED, "", "", 0.0, rest))
    step_us = total_ps / len(records.steps) / PS_PER_US
    found = _fewer(sorted(found, key=lambda part: (-part.share, part.cause, part.where, part.stage)))
    return [asdict(part) | {"time_us": part.share * step_us} for part in found if part.share > 0]


def _host_parts(pieces: Sequence[Piece], network: Network, total_ps: int) -> list[Part]:
    """One part per stage of all devices, and one per straggler, whose stages are named, the longest first."""
    stages: dict[tuple[Cause, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for piece in pieces:
        if piece.cause is not None:
            where = network.hosts[piece.worker] if piece.cause is Cause.STRAGGLER else ""
            stages[piece.cause, where][piece.stage] += piece.end_ps - piece.start_ps
    times = {
        (cause, "", stage): time_ps
        for (cause, where), own in stages.items()
        if not where
        for stage, time_ps in own.items()
    }
    for (cause, where), own in stages.items():
        if where:
            times[cause, where, " and ".join(sorted(own, key=lambda one: -own[one]))] = sum(own.values())
    return [
        Part(
            cause, where, stage, 0.0, time_ps / total_ps, faster=_faster(total_ps, _remedied(cause) * time_ps)
        )
        for (cause, where, stage), time_ps in times.items()
    ]


def _remedied(cause: Cause) -> float:
    """The share of a part that its remedy saves: half of what is done, all that is waited for in vain."""
    return 1.0 if cause is Cause.STRAGGLER else 0.5


def _network_parts(split: NetworkTime, network: Network, spans_ps: int, total_ps: int) -> list[Part]:
    """One part per group of links, equally busy, that bound some samples, and one per other cause."""
    parts = []
    told: set[int] = set()
    left = set(np.unique(split.chosen[split.by_link_ps > 0]).tolist())
    while left:
        link = max(left, key=lambda one: (split.total_ps[one], -one))
        group = [
            one for one in split.alike(link) if network.kinds[one] is network.kinds[link] and one not in told
        ]
        left -= set(group)
        told |= set(group)
        following = split.next_busiest(group)
        time_ps = float(split.by_link_ps[np.isin(split.chosen, group)].sum())
        parts.append(
            Part(
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
        if cause is Cause.MERGING:
            time_ps += spans_ps - float(split.covered_ps.sum())
        saved_ps = split.saved_by_windows_ps() if cause is Cause.WINDOW else _remedied(cause) * time_ps
        parts.append(Part(cause, "", "", 0.0, time_ps / total_ps, faster=_faster(total_ps, saved_ps)))
    return parts


def _faster(total_ps: float, saved_ps: float) -> float | None:
    return total_ps / (total_ps - saved_ps) if saved_ps < total_ps else None


def _fewer(parts: list[Part]) -> list[Part]:
    """The largest parts; the time of the others is that of their cause, at no single place."""
    kept, rest = parts[:PARTS_MAX], parts[PARTS_MAX:]
    shares: dict[str, float] = defaultdict(float)
    for part in rest:
        shares[part.cause] += part.share
    return [*kept, *(Part(cause, "", "", 0.0, share) for cause, share in shares.items())]
