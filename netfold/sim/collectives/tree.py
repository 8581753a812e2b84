"""Binary trees (Sanders, Speck and Träff, Parallel Computing 2009; NCCL 2.4): schedule, run, keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.message import MERGEABLE, Merge
from netfold.sim.collectives.between_hosts import ChunkedPlan, ChunkedSection, ClosedForm, Ints, Transfers
from netfold.sim.collectives.collective import (
    CollectiveSpec,
    Composable,
    Cut,
    Estimate,
    JobContext,
    OperationPlace,
    Resolved,
    RunContext,
    ScheduleSize,
    Steps,
    equal_cells,
    estimate_of,
    longest_ways_ps,
)
from netfold.sim.collectives.host_messages import ScheduledCollective
from netfold.sim.engine.interface import NONE, Schedule
from netfold.topologies.network import Network

# The plan of a job's trees.


@dataclass(frozen=True, kw_only=True)
class TreePlan(ChunkedPlan):
    """Workers in one binary tree or two."""

    trees: int


# The schedule of one or two binary trees.
#
# Each tree has an equal share of the message, cut into chunks. A worker merges a chunk of its first child,
# then that of its second, and sends it to its parent; the root sends what is finished back to its children,
# and so on.
#
# The first tree numbers its workers in order, with the leaves at ranks 0, 2, 4, …: it is ⌊log2 n⌋ links deep.
# The second is the first mirrored or, for an odd number of workers, shifted by one. So every worker has
# children in at most one of the two, and with two trees sends and receives at most twice the message.


TREES = 2


class BinaryTree(NamedTuple):
    """A tree of n workers; NONE where there is none."""

    parents: Ints  # (n,)
    children: Ints  # (n, 2) the first, or only, child before the second
    depths: Ints  # (n,) links to the root

    @property
    def root(self) -> int:
        """The worker without a parent."""
        return int(np.argmin(self.depths))

    @property
    def is_second(self) -> NDArray[np.bool_]:
        """(n,) whether a worker is the second child of its parent."""
        ranks = np.arange(self.parents.size)
        found: NDArray[np.bool_] = (self.parents != NONE) & (self.children[self.parents, 1] == ranks)
        return found

    @property
    def last(self) -> Ints:
        """(n,) the last child of each; NONE of leaves."""
        return np.where(self.children[:, 1] == NONE, self.children[:, 0], self.children[:, 1])


@lru_cache(maxsize=64)
def binary_tree(workers: int, number: int) -> BinaryTree:
    """The first (`number` 0) or second (1) tree."""
    # Places are in order; one with i zeros at its end is i links above its leaves.
    places = np.arange(1, workers + 1)
    parents = _above(places)
    while (parents > workers).any():  # beyond the last worker: the next one above takes its place
        parents = np.where(parents > workers, _above(parents), parents)
        parents[parents > 2 * workers] = 0  # nothing is above the root
    ranks = places - 1
    if number:
        ranks = workers - places if workers % 2 == 0 else (places - 2) % workers
    rank_of = np.r_[NONE, ranks]  # index: place
    above, children, depths = (np.full(shape, NONE, np.int64) for shape in (workers, (workers, 2), workers))
    above[ranks] = rank_of[parents]
    for place in np.flatnonzero(parents) + 1:
        parent = rank_of[parents[place - 1]]
        children[parent, 0 if children[parent, 0] == NONE else 1] = rank_of[place]
    depths = np.zeros(workers, np.int64)
    up = above.copy()
    while (up != NONE).any():
        depths += up != NONE
        up = np.where(up == NONE, NONE, above[up])
    return BinaryTree(above, children, depths)


def _above(places: Ints) -> Ints:
    """Parents in a perfect tree without end."""
    low = places & -places
    return np.where(places & low << 1, places - low, places + low)


@lru_cache(maxsize=16)
def tree_schedule(workers: int, trees: int = TREES, pieces: int = 1) -> Schedule:
    """The trees of so many workers; T = 2 (n − 1) · trees · pieces transfers.

    Cell t · pieces + k is piece k of tree t's share.
    """
    transfers = Transfers(workers, trees * pieces)
    edges = trees * (workers - 1)
    ups, downs = _ups(workers, trees), _downs(workers, trees)
    if not edges:
        return transfers.schedule()
    piece = np.repeat(np.arange(pieces, dtype=np.int64), 2 * edges)
    base = piece * 2 * edges
    source, target, tree, follows, before, awaited = (
        np.tile(np.concatenate(both), pieces) for both in zip(ups, downs, strict=True)
    )
    # `before` is a transfer of the piece before this one; there is none before the first.
    chained = np.where(before == NONE, NONE, np.where(piece > 0, base - 2 * edges + before, NONE))
    number = np.arange(2 * edges * pieces, dtype=np.int64)
    transfers.add(
        (source, target),
        (tree * pieces + piece, 1),
        merges=number % (2 * edges) < edges,
        follows=np.where(follows == NONE, chained, base + follows),
        lane=number % (2 * edges),
    )
    transfers.wait(number, np.where(awaited == NONE, NONE, base + awaited))
    return transfers.schedule(channel=tree)


Rows = tuple[Ints, Ints, Ints, Ints, Ints, Ints]
"""Source, target, tree, follows, before and awaited, of the transfers of one piece."""


def _ups(workers: int, trees: int) -> Rows:
    """Transfers to parents, the lowest first: numbers 0 … trees · (n − 1) − 1."""
    rows: list[Ints] = []
    for number in range(trees):
        tree, first = binary_tree(workers, number), number * (workers - 1)
        order = np.lexsort((tree.is_second, -tree.depths))[: workers - 1]  # without the root
        sent = np.full(workers + 1, NONE, np.int64)  # each child's transfer; the last one is that of NONE
        sent[order] = first + np.arange(workers - 1)
        parents, is_second = tree.parents[order], tree.is_second[order]
        follows = np.where(is_second, sent[tree.children[parents, 0]], NONE)
        before = np.where(is_second, NONE, sent[tree.last[parents]])
        awaited = sent[tree.last[order]]
        rows.append(np.array([order, parents, np.full(workers - 1, number), follows, before, awaited]))
    return tuple(np.concatenate(rows, axis=1))


def _downs(workers: int, trees: int) -> Rows:
    """Transfers to children, the highest first: the numbers after those to parents."""
    rows: list[Ints] = []
    up, _, of_tree, *_ = _ups(workers, trees)
    for number in range(trees):
        tree, first = binary_tree(workers, number), (trees + number) * (workers - 1)
        order = np.lexsort((tree.is_second, tree.depths))[1:]  # without the root
        arrives = np.full(workers, NONE, np.int64)  # what makes a worker's cell final
        arrives[order] = first + np.arange(workers - 1)
        to_root = np.flatnonzero((of_tree == number) & (up == tree.last[tree.root]))
        arrives[tree.root] = to_root[0] if to_root.size else NONE
        parents, none = tree.parents[order], np.full(workers - 1, NONE)
        rows.append(np.array([parents, order, np.full(workers - 1, number), none, none, arrives[parents]]))
    return tuple(np.concatenate(rows, axis=1))


# How they run, over reliable messages: the engine carries out the schedule.
#
# A codec's own merge (HOST) cuts a message into as many parts for each tree as it is links deep, up and down:
# then half of the links of a way are at work at a time.


class Tree(ScheduledCollective):
    """One job's trees."""

    def __init__(self, plan: TreePlan, context: RunContext) -> None:
        super().__init__(plan, context)
        self._trees, self._chunk_words = plan.trees, plan.chunk_words

    def schedule(self, words: int, is_host: bool) -> Schedule:
        """As many chunks as a message needs; of HOST, a fixed number."""
        pieces = -(-words // (self._trees * self._chunk_words))
        if is_host:
            pieces = 2 * (self.workers.bit_length() - 1)
        return tree_schedule(self.workers, self._trees, max(1, pieces))

    def locate(self, worker: int, place: OperationPlace, part: int, word: int) -> str:
        """The message, operation and worker of a word."""
        where = f"{self._trees} trees" if self._trees > 1 else "the tree"
        return f"message {part} of {place.in_words} on {where}, as worker {worker} got it"


# Their keys and closed form.
#
# With n workers, d = ⌊log2 n⌋ and a message of M words in chunks of c, a worker with two children in the
# first tree and none in the second sends (1 + 2) · M / 2 + M / 2 words and receives as many. So on an idle
# network with equal links, long messages take
#
#     2 M words at the rate of a link, and 2 d ways from host to host, each of a chunk:
#
# as many words as a ring with n = ∞, over 2 log2 n ways instead of 2 (n − 1). With one tree they take 3 M
# words.


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
    # Words go all the way up a tree, and sums all the way down.
    return estimate_of(network, nodes, _steps(section, len(nodes)), words, seed, _ways_ps)


def _ways_ps(stage: Steps, delays_ps: Sequence[int]) -> int:
    """The longest way up a tree and the longest one down it, of the tree where both together are longest."""
    edges = len(stage.pairs) // (2 * stage.chunks)  # edges of one tree: all up, then as many down
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
    """The plan of a job's trees; raises as `ClosedForm.resolve`."""
    steps = partial(steps_of, trees=section.trees, chunk_words=section.chunk_words)
    make_plan = partial(TreePlan, chunk_words=section.chunk_words, trees=section.trees)
    cells = section.trees * max(1, -(-job.elements // (section.trees * section.chunk_words)))
    size = partial(_size, cells=cells)
    found = ClosedForm(KIND, steps, size).resolve_on(section, job, job.nodes, make_plan)
    return found._replace(warnings=(*section.warnings, *found.warnings))


def _size(workers: int, cells: int) -> ScheduleSize:
    # Every cell goes up and down every edge of its tree.
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
