"""Jobs that come and go, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from netfold.sim.report import words

JOBS_LEGEND = (
    "job: from its arrival to its end, waiting included; slowdown: that over its time on the idle network; "
    "fairness: Jain's index of the share of its own speed that each job had while it ran"
)


def lines(overviews: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for every variant with such jobs."""
    return [_line(one) for one in overviews]


def _line(one: Mapping[str, Any]) -> str:
    parts = [
        f"jobs of {one['variant']}: {one['finished']} of {one['jobs']} done"
        + ("" if one["makespan_us"] is None else f" in {words.time(one['makespan_us'])}"),
        _spread("completion", one["completion_time_us"], words.time),
        f"{one['waited']} waited, {_spread('waiting', one['waiting_us'], words.time)}",
        _spread("slowdown", one["slowdown"], words.times),
        fairness(one),
    ]
    if one["fallbacks"]:
        parts.append(f"{one['fallbacks']} with their fallback")
    return "; ".join(parts)


def fairness(one: Mapping[str, Any]) -> str:
    """Jain's index, and of how many jobs."""
    if one["fairness"] is None:
        return "fairness: no two jobs overlap"
    return f"fairness {one['fairness']:.3f} over {one['overlapping']} that overlap"


def _spread(name: str, found: Mapping[str, float] | None, shown: Any) -> str:
    if found is None:
        return f"{name} unknown"
    return (
        f"{name} {shown(found['mean'])} on average, p95 {shown(found['p95'])}, at most {shown(found['max'])}"
    )
