"""When jobs came and went, how much others slowed them down, and how evenly.

Times are simulated. A job *waits* from its arrival until it has hosts and slots, and *runs* from then until
its last step has ended; its *completion time* is both together. *Alone* is its completion time on the idle
network, with its own collective (not its fallback), the same faults on packets and no other faults. Its
*slowdown* is completion time over that.

*Fairness* is Jain's index of x_i = alone_i / running_i, the share of its own speed that job i had while it
ran: (Σx)² / (n · Σx²), over the n jobs that ran at the same time as another job, for a positive time. It is
1 if all are slowed down alike and tends to 1/n if one goes ahead of all others (Jain, Chiu, Hawe, "A
quantitative measure of fairness and discrimination for resource allocation in shared computer systems",
DEC-TR-301, 1984).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from netfold.units import PS_PER_US


@dataclass(frozen=True)
class JobTimes:
    """When a job came, ran and ended; None: not yet, at the end of the variant."""

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

    def as_dict(self) -> dict[str, Any]:
        """What a summary has of it beside the metrics."""
        return {
            "admission": self.admission,
            "admitted_us": us_of(self.admitted_ps),
            "end_us": us_of(self.end_ps),
            "hosts": list(self.hosts),
            "fallback": self.is_fallback,
        }


def overview(variant: str, jobs: Sequence[JobTimes]) -> dict[str, Any]:
    """All jobs of a variant together; a figure is None where no job has what it is made of."""
    ends = [job.end_ps for job in jobs if job.end_ps is not None]
    together = overlapping(jobs)
    is_done = len(ends) == len(jobs)
    return {
        "variant": variant,
        "admission": jobs[0].admission,
        "jobs": len(jobs),
        "finished": len(ends),
        "waited": sum(bool(job.waiting_ps) or job.admitted_ps is None for job in jobs),
        "fallbacks": sum(job.is_fallback for job in jobs),
        "makespan_us": us_of(max(ends) - min(job.arrival_ps for job in jobs)) if is_done else None,
        "completion_time_us": spread(us_of(job.completion_ps) for job in jobs),
        "waiting_us": spread(us_of(job.waiting_ps) for job in jobs),
        "slowdown": spread(job.slowdown for job in jobs),
        "overlapping": len(together),
        "fairness": jain([job.speed for job in together if job.speed is not None]),
    }


def overlapping(jobs: Sequence[JobTimes]) -> list[JobTimes]:
    """Finished jobs that ran at the same time as another job, for a positive time."""
    contenders = []
    for index, job in enumerate(jobs):
        if job.admitted_ps is None or job.end_ps is None:
            continue
        for other, another in enumerate(jobs):
            if other == index or another.admitted_ps is None:
                continue
            end_ps = job.end_ps if another.end_ps is None else min(job.end_ps, another.end_ps)
            if max(job.admitted_ps, another.admitted_ps) < end_ps:
                contenders.append(job)
                break
    return contenders


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
    figures = sorted(value for value in values if value is not None)
    if not figures:
        return None
    rank = -(-95 * len(figures) // 100)
    return {"mean": math.fsum(figures) / len(figures), "p95": figures[rank - 1], "max": figures[-1]}


def us_of(time_ps: int | None) -> float | None:
    return None if time_ps is None else time_ps / PS_PER_US
