"""The schedule of one or two binary trees (Sanders, Speck and Träff, Parallel Computing 2009; NCCL 2.4).

Each tree has an equal share of the message, cut into chunks. A worker merges a chunk of its first child, then
that of its second, and sends it to its parent; the root sends what is finished back to its children, and so
on.

The first tree numbers its workers in order, with the leaves at ranks 0, 2, 4, …: it is ⌊log2 n⌋ links deep.
The second is the first mirrored or, for an odd number of workers, shifted by one. So every worker has
children in at most one of the two, and with two trees sends and receives at most twice the message.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.collectives.building.transfers import Ints, Transfers
from netfold.sim.engine.schedule import NONE, Schedule

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
    places = np.arange(
        1, workers + 1
    )  # in order; a place with i zeros at its end is i links above its leaves
    parents = _above(places)
    while (parents > workers).any():  # beyond the last worker: the next one above takes its place
        parents = np.where(parents > workers, _above(parents), parents)
        parents[parents > 2 * workers] = 0  # nothing is above the root
    ranks = places - 1
    if number:
        ranks = workers - places if workers % 2 == 0 else (places - 2) % workers
    rank_of = np.r_[NONE, ranks]  # by place
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


Rows = tuple[
    Ints, Ints, Ints, Ints, Ints, Ints
]  # source, target, tree, follows, before, awaited; of one piece


def _ups(workers: int, trees: int) -> Rows:
    """Transfers to parents, the lowest first: numbers 0 … trees · (n − 1) − 1."""
    rows: list[Ints] = []
    for number in range(trees):
        tree, first = binary_tree(workers, number), number * (workers - 1)
        order = np.lexsort((tree.is_second, -tree.depths))[: workers - 1]  # without the root
        sent = np.full(workers + 1, NONE, np.int64)  # by child; the last one is that of NONE
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
