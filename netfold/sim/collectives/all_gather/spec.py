"""All-gather round a ring (Chan et al., 2007): its keys and the numbers of its schedule.

Every worker receives the messages of the n − 1 others over its own link. On an idle network and with
messages that are longer than a hop takes, every link is busy all the time: M words each take
(n − 1) · M · 32 bit / rate, besides headers, acknowledgements and the way of the last packet. Short messages
take (n − 1) times the way of one from host to host.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.all_gather.run import AllGather
from netfold.sim.collectives.between_hosts import ChunkedPlan, ChunkedSection, Schedule
from netfold.sim.collectives.closed_form import Steps, estimate_by
from netfold.sim.collectives.collective import CollectiveSpec, JobContext, Resolved

KIND = "all_gather"


class AllGatherSection(ChunkedSection):
    """Every worker's messages go round a ring of the hosts, and every worker merges them itself."""

    kind: Literal["all_gather"]


def _steps(workers: int) -> Steps:
    """Every worker passes n − 1 messages to the next, and merges as many into its own."""
    following = [(worker, (worker + 1) % workers) for worker in range(workers)]
    return Steps(following, hops=workers - 1, chunks=1, merges=workers - 1)


SCHEDULE = Schedule(KIND, _steps)


def _resolve(section: AllGatherSection, job: JobContext) -> Resolved:
    make_plan = partial(ChunkedPlan, chunk_words=section.chunk_words)
    found = SCHEDULE.resolve_on(section, job, job.nodes, make_plan)
    return found._replace(warnings=(*section.warnings, *found.warnings))


ALL_GATHER = CollectiveSpec(
    KIND,
    frozenset(Merge),
    AllGatherSection,
    _resolve,
    AllGather,
    carries_absence=True,
    estimate=estimate_by(lambda section, workers: _steps(workers)),
)
