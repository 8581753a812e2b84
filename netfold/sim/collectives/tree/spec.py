"""Binary trees (Sanders, Speck and Träff, Parallel Computing 2009; NCCL since 2.4): keys and closed form.

With n workers, d = ⌊log2 n⌋ and a message of M words in chunks of c, a worker with two children in the first
tree and none in the second sends (1 + 2) · M / 2 + M / 2 words and receives as many. So on an idle network
with equal links, long messages take

    2 M words at the rate of a link, and 2 d ways from host to host, each of a chunk:

as many words as a ring with n = ∞, over 2 log2 n ways instead of 2 (n − 1). With one tree they take 3 M
words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from netfold.homomorphic.message import MERGEABLE, Merge
from netfold.sim.collectives.between_hosts import ChunkedSection, Schedule
from netfold.sim.collectives.closed_form import (
    Cut,
    Estimate,
    ScheduleSize,
    Steps,
    equal_cells,
    estimate_of,
    longest_ways_ps,
)
from netfold.sim.collectives.collective import CollectiveSpec, Composable, JobContext, Resolved
from netfold.sim.collectives.tree.plan import TreePlan
from netfold.sim.collectives.tree.run import Tree
from netfold.sim.collectives.tree.schedule import TREES, binary_tree, tree_schedule
from netfold.topologies.network import Network

KIND = "tree"


class TreeSection(ChunkedSection):
    """All-reduce between the hosts on two binary trees, or one: up to the root and down, chunk by chunk."""

    recorded_always: ClassVar[tuple[str, ...]] = (*ChunkedSection.recorded_always, "chunk")

    kind: Literal["tree"]
    trees: Literal[1, 2] = 2
    """2: each tree carries half of the words, and no worker has children in both; 1: one carries all."""


def steps_of(workers: int, trees: int = TREES, chunk_words: int = 0) -> Steps:
    """Everyone but the root sends up, and gets what comes down; a worker may merge two chunks a tree."""
    pairs = []
    for number in range(trees):
        tree = binary_tree(workers, number)
        up = [(rank, parent) for rank, parent in enumerate(tree.parents.tolist()) if parent >= 0]
        pairs += up + [(parent, rank) for rank, parent in up]
    depth = workers.bit_length() - 1
    merges = min(2, workers - 1)
    trips = 2 * depth
    return Steps(
        pairs or [(0, 0)],
        hops=1,
        chunks=trees,
        merges=merges,
        trips=trips,
        passed_words=chunk_words,
        channels=[number for number in range(trees) for _ in range(2 * (workers - 1))],
    )


def _estimate(section: Any, network: Network, nodes: Sequence[int], words: int, seed: int) -> Estimate:
    """Of words that go all the way up a tree, and sums that go all the way down."""
    return estimate_of(network, nodes, _steps(section, len(nodes)), words, seed, _ways_ps)


def _ways_ps(stage: Steps, delays_ps: Sequence[int]) -> int:
    """The longest way up a tree and the longest one down it, of the tree where both together are longest."""
    edges = len(stage.pairs) // (2 * stage.chunks)  # of a tree: all up, then as many down
    longest_ps = 0
    for start in range(0, len(stage.pairs), 2 * edges):
        pairs, trips = stage.pairs[start : start + edges], stage.trips // 2
        ups_ps, downs_ps = (delays_ps[at : at + edges] for at in (start, start + edges))
        both_ps = (longest_ways_ps(pairs, one, trips) for one in (ups_ps, downs_ps))
        longest_ps = max(longest_ps, sum(both_ps))
    return longest_ps


def cut_of(section: TreeSection, workers: int) -> Cut:
    """Its schedule of a message in one chunk for each tree."""
    schedule = tree_schedule(workers, section.trees)
    return Cut(schedule, equal_cells(schedule.chunks))


def _resolve(section: TreeSection, job: JobContext) -> Resolved:
    """The plan of a job's trees; raises as `Schedule.resolve`."""
    steps = partial(steps_of, trees=section.trees, chunk_words=section.chunk_words)
    make_plan = partial(TreePlan, chunk_words=section.chunk_words, trees=section.trees)
    cells = section.trees * max(1, -(-job.elements // (section.trees * section.chunk_words)))
    size = partial(_size, cells=cells)
    found = Schedule(KIND, steps, size).resolve_on(section, job, job.nodes, make_plan)
    return found._replace(warnings=(*section.warnings, *found.warnings))


def _size(workers: int, cells: int) -> ScheduleSize:
    """Every cell goes up and down every edge of its tree."""
    return ScheduleSize(2 * (workers - 1) * cells, cells)


def _steps(section: Any, workers: int) -> Steps:
    return steps_of(workers, section.trees)


TREE = CollectiveSpec(
    KIND,
    MERGEABLE | {Merge.HOST},
    TreeSection,
    _resolve,
    Tree,
    carries_absence=True,
    composable=Composable(cut_of, _steps),
    estimate=_estimate,
)
