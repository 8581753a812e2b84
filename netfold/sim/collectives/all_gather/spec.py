"""All-gather round a ring (Chan et al., 2007): its keys and the numbers of its schedule.

Every worker receives the messages of the n − 1 others over its own link. On an idle network and with
messages that are longer than a hop takes, every link is busy all the time: M words each take
(n − 1) · M · 32 bit / rate, besides headers, acknowledgements and the way of the last packet. Short messages
take (n − 1) times the way of one from host to host.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from netfold.homomorphic.message import Merge
from netfold.sim.collectives.between_hosts import ChunkedPlan, ChunkedSection, Schedule, Steps
from netfold.sim.collectives.estimate import estimate_by
from netfold.sim.collectives.spec import CollectiveSpec, JobContext, Resolved

if TYPE_CHECKING:
    from netfold.sim.collectives.collective import Collective, RunContext

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


def _start(plan: ChunkedPlan, context: RunContext) -> Collective:
    from netfold.sim.collectives.all_gather.run import AllGather  # late: it needs the engine

    return AllGather(plan, context)


ALL_GATHER = CollectiveSpec(
    KIND,
    frozenset(Merge),
    AllGatherSection,
    _resolve,
    _start,
    carries_absence=True,
    estimate=estimate_by(lambda section, workers: _steps(workers)),
)
