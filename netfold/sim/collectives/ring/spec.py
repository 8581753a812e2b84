"""The ring (Patarasuk and Yuan, JPDC 2009): its keys and closed form.

With n workers, a message of M words takes 2 (n − 1) steps of M / n words. On an idle network with equal links
that is

    2 (1 − 1 / n) · M words at the rate of a link, and 2 (n − 1) ways from host to host.

Each of k channels carries M / k words round a ring of its own. Chunks let a worker pass on the first words of
a segment while the last are on their way: the same words at the rate of a link.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from netfold.homomorphic.message import MERGEABLE, Merge
from netfold.sim.collectives.between_hosts import WORD_BYTES, Chunk, HostSection, Schedule
from netfold.sim.collectives.closed_form import Cut, ScheduleSize, Steps, equal_cells, estimate_by
from netfold.sim.collectives.collective import CollectiveSpec, Composable, JobContext, Resolved
from netfold.sim.collectives.ring.plan import RingPlan
from netfold.sim.collectives.ring.run import Ring
from netfold.sim.collectives.ring.schedule import ring_schedule
from netfold.sim.keys.fields import count_of

KIND = "ring"
CHANNELS_MAX = 1024  # real libraries open some tens; each has transfers of its own in every step


class RingSection(HostSection):
    """Ring all-reduce between the hosts: reduce-scatter, then all-gather."""

    kind: Literal["ring"]
    channels: count_of(1, most=CHANNELS_MAX) = 1  # type: ignore[valid-type]
    """Rings that carry an equal share each; every other one goes backward, and each begins one worker on."""
    chunk: Chunk | None = None
    """Payload of a segment that a host receives before it merges or forwards it; by default all of it."""


def steps_of(workers: int, channels: int = 1) -> Steps:
    """Every worker sends one n-th of the words to the next, 2 (n − 1) times; half of these are merged."""
    pairs = [
        (worker, (worker + (1 if channel % 2 == 0 else -1)) % workers)
        for channel in range(channels)
        for worker in range(workers)
    ]
    return Steps(
        pairs,
        hops=2 * (workers - 1),
        chunks=workers * channels,
        merges=workers - 1,
        channels=[channel for channel in range(channels) for _ in range(workers)],
    )


def cut_of(section: Any, workers: int) -> Cut:
    """Its schedule of whole segments."""
    schedule = ring_schedule(workers, section.channels)
    return Cut(schedule, equal_cells(schedule.chunks))


def _resolve(section: RingSection, job: JobContext) -> Resolved:
    """The plan of a job's rings; raises as `Schedule.resolve`."""
    words = 0 if section.chunk is None else section.chunk // WORD_BYTES
    make_plan = partial(RingPlan, channels=section.channels, chunk_words=words)
    steps = partial(steps_of, channels=section.channels)
    segment = -(-job.elements // (section.channels * len(job.hosts)))
    size = partial(_size, channels=section.channels, pieces=-(-segment // words) if words else 1)
    return Schedule(KIND, steps, size).resolve_on(section, job, job.nodes, make_plan)


def _steps(section: Any, workers: int) -> Steps:
    return steps_of(workers, section.channels)


def _size(workers: int, channels: int = 1, pieces: int = 1) -> ScheduleSize:
    """On every channel, every worker sends 2 (n − 1) of n segments, piece by piece."""
    cells = workers * channels * pieces
    return ScheduleSize(2 * (workers - 1) * cells, cells)


SCHEDULE = Schedule(KIND, steps_of, _size)
RING = CollectiveSpec(
    KIND,
    MERGEABLE | {Merge.HOST},
    RingSection,
    _resolve,
    Ring,
    carries_absence=True,
    composable=Composable(cut_of, _steps),
    estimate=estimate_by(_steps),
)
