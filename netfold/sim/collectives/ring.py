"""Ring all-reduce (Patarasuk and Yuan, JPDC 2009): its schedule, how it runs, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from netfold.homomorphic.message import MERGEABLE, Merge
from netfold.sim.collectives.between_hosts import (
    WORD_BYTES,
    Chunk,
    ClosedForm,
    HostPlan,
    HostSection,
    Transfers,
)
from netfold.sim.collectives.collective import (
    CollectiveSpec,
    Composable,
    Cut,
    JobContext,
    OperationPlace,
    Resolved,
    RunContext,
    ScheduleSize,
    Steps,
    equal_cells,
    estimate_by,
)
from netfold.sim.collectives.host_messages import ScheduledCollective
from netfold.sim.engine.interface import NONE, Schedule
from netfold.sim.keys import count_of

# The plan of a job's rings.


@dataclass(frozen=True, kw_only=True)
class RingPlan(HostPlan):
    """Workers in one ring or several."""

    channels: int = 1
    chunk_words: int = 0
    """Words that are passed on as one; 0: a segment."""


# Its schedule, with channels and chunks.
#
# In n − 1 reduce-scatter steps every worker sends one segment to the next one, which merges it into its
# own; in n − 1 all-gather steps the finished segments go round.
#
# Channels are rings over different orders of the workers, each with an equal share of the message. Even
# channels go from a worker to the next one in rank order, odd ones back, so that both directions of a link
# between neighbours are used, and no channel leaves a rack more often than the first one does. Channel c
# begins at worker c: a worker's first segments are not all of the same workers.
#
# Pieces of a segment are merged and passed on as they come (NCCL's chunks). The messages of one worker to the
# next on one channel share a window, as on a connection: where the link between them is slower than others,
# they would else wait there for longer than the timeout.


@lru_cache(maxsize=16)
def ring_schedule(workers: int, channels: int = 1, pieces: int = 1) -> Schedule:
    """The ring of so many workers; T = 2 (n − 1) · n · channels · pieces transfers.

    Cell (c · n + i) · pieces + k is piece k of segment i of channel c.
    """
    n, each = workers, channels * workers * pieces
    if n == 1:
        return Transfers(1, channels * pieces).schedule()
    step, channel, place, piece = (
        one.ravel()
        for one in np.meshgrid(
            *(np.arange(count) for count in (2 * (n - 1), channels, n, pieces)), indexing="ij"
        )
    )
    is_forward = channel % 2 == 0
    source, target = ((channel + np.where(is_forward, at, -at)) % n for at in (place, place + 1))
    # In reduce-scatter step s, place p sends segment p − s; in all-gather step s, segment p + 1 − s.
    segment = np.where(step < n - 1, place - step, place - step + n) % n
    number = np.arange(each * 2 * (n - 1), dtype=np.int64)
    before = np.where(piece > 0, number - 1, np.where(step > 0, number - each + pieces - 1, NONE))
    transfers = Transfers(n, each)
    transfers.add(
        (source, target),
        ((channel * n + segment) * pieces + piece, 1),
        merges=step < n - 1,
        follows=before,
        lane=channel * n + place,
    )
    previous = np.where(place > 0, number - each - pieces, number - each + (n - 1) * pieces)
    later = step > 0
    transfers.wait(number[later], previous[later])
    return transfers.schedule((step * channels + channel) * pieces + piece, channel)


# How it runs, over reliable messages: the engine carries out the schedule.
#
# A codec's own merge (HOST) divides the words into a part for each segment of each channel, merges two
# parts at each hop, and joins the finished parts. The length of a part may change at every hop, so parts
# are not cut into chunks.
#
# A worker that is absent passes on what arrives; a segment to which nobody has contributed yet is a header
# that keeps its place in the schedule.


class Ring(ScheduledCollective):
    """One job's rings, in rank order."""

    def __init__(self, plan: RingPlan, context: RunContext) -> None:
        super().__init__(plan, context)
        self._channels, self._chunk_words = plan.channels, plan.chunk_words

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """The same for all messages, unless segments are cut into chunks."""
        pieces = 1
        if self._chunk_words and not is_host:
            pieces = max(1, -(-words // (self._channels * self.workers * self._chunk_words)))
        return ring_schedule(self.workers, self._channels, pieces)

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word; all workers merge it."""
        return f"message {part} of {place.in_words} around the ring, as worker {worker} got it"


# Its keys and closed form.
#
# With n workers, a message of M words takes 2 (n − 1) steps of M / n words. On an idle network with equal
# links that is
#
#     2 (1 − 1 / n) · M words at the rate of a link, and 2 (n − 1) ways from host to host.
#
# Each of k channels carries M / k words round a ring of its own. Chunks let a worker pass on the first
# words of a segment while the last are on their way: the same words at the rate of a link.


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
    """The plan of a job's rings; raises as `ClosedForm.resolve`."""
    words = 0 if section.chunk is None else section.chunk // WORD_BYTES
    make_plan = partial(RingPlan, channels=section.channels, chunk_words=words)
    steps = partial(steps_of, channels=section.channels)
    segment = -(-job.elements // (section.channels * len(job.hosts)))
    size = partial(_size, channels=section.channels, pieces=-(-segment // words) if words else 1)
    return ClosedForm(KIND, steps, size).resolve_on(section, job, job.nodes, make_plan)


def _steps(section: Any, workers: int) -> Steps:
    return steps_of(workers, section.channels)


def _size(workers: int, channels: int = 1, pieces: int = 1) -> ScheduleSize:
    """On every channel, every worker sends 2 (n − 1) of n segments, piece by piece."""
    cells = workers * channels * pieces
    return ScheduleSize(2 * (workers - 1) * cells, cells)


SCHEDULE = ClosedForm(KIND, steps_of, _size)
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
