"""Binary trees (Sanders, Speck and Träff, Parallel Computing 35(12), 2009; NCCL 2.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.sim.collectives.host_collective import ChunkedCollective
from netfold.sim.collectives.host_messages import scheduled
from netfold.sim.collectives.schedule_costs import Routed
from netfold.sim.collectives.topology_order import Orders, tree_orders
from netfold.sim.collectives.transfers import Ints, Step, Transfers
from netfold.sim.engine.engine_data import NONE
from netfold.sim.keys import Count, named_or_count
from netfold.sim.plan.plan import frame_of
from netfold.topologies.network import Network

# Each tree has an equal share of the message, cut into chunks. A worker merges a chunk of its first child,
# then that of its second, and sends it to its parent; the root sends what is finished back to its children,
# and so on.
#
# The first tree numbers its workers in order, with the leaves at ranks 0, 2, 4, …: it is ⌊log2 n⌋ links deep.
# The second is the first mirrored or, for an odd number of workers, shifted by one. So every worker has
# children in at most one of the two, and with two trees sends and receives at most twice the message.
#
# With n workers, d = ⌊log2 n⌋ and a message of M words in chunks of c, a worker with two children in the
# first tree and none in the second sends (1 + 2) · M / 2 + M / 2 words and receives as many. So on an idle
# network with equal links, long messages take
#
#     2 M words at the rate of a link, and 2 d ways from host to host, each of a chunk:
#
# as many words as a ring with n = ∞, over 2 log2 n ways instead of 2 (n − 1). With one tree they take 3 M
# words.
#
# A codec's own merge (HOST) cuts a message into as many parts for each tree as it is links deep, up and down:
# then half of the links of a way are at work at a time.


CHUNKS_AHEAD = 4  # as few as keep links busy: see `window`
LEAST_WORDS = 1 << 14
SENT_AT_ONCE = 4  # streams of a worker, at most: to a parent in both trees, and to two children in one


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
        mask: NDArray[np.bool_] = (self.parents != NONE) & (self.children[self.parents, 1] == ranks)
        return mask

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
    for position in np.flatnonzero(parents) + 1:
        parent = rank_of[parents[position - 1]]
        children[parent, 0 if children[parent, 0] == NONE else 1] = rank_of[position]
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


class Tree(ChunkedCollective):
    """All-reduce between the hosts on two binary trees, or one: up to the root and down, chunk by chunk."""

    recorded_always: ClassVar[tuple[str, ...]] = (*ChunkedCollective.recorded_always, "chunk")
    kind: Literal["tree"]
    window: Annotated[Count | Literal["auto"], named_or_count(("auto",), "packets")] = "auto"  # type: ignore[assignment]
    """Packets a host may have outstanding to another host. auto: four chunks, at least 256KiB, or a quarter
    of what a path carries in a round trip if that is more; with a larger window, chunks that are sent ahead
    delay chunks that others wait for."""
    trees: Literal[1, 2] = 2
    """2: each tree carries half of the words, and no worker has children in both; 1: one carries all."""

    order: Literal["rank", "topology"] = "rank"
    """Which places workers have: by rank, or by the topology: rack by rack, or island by island."""

    def orders(self, network: Network, nodes: Sequence[int]) -> Orders:
        """One for each tree."""
        return tree_orders(network, nodes, self.trees) if self.order == "topology" else ()

    @property
    def block_words(self) -> int:
        """A chunk for each tree."""
        return self.trees * self.chunk_words

    def window_packets(self, routed: Routed) -> int:
        """Packets a host may have outstanding to another host."""
        if isinstance(self.window, int):
            return self.window
        frame = frame_of(self.frame)
        words = CHUNKS_AHEAD * max(self.chunk_words, LEAST_WORDS)
        on_the_way = -(-routed.packets_on_the_way(frame) // SENT_AT_ONCE)
        return max(self.ack_every, on_the_way, -(-words // frame.elements))

    @property
    def path_in_words(self) -> str:
        """Where words are."""
        return f"on {self.trees} trees" if self.trees > 1 else "on the tree"

    def schedule(self, workers: int, words: int, by_codec: bool = False) -> Transfers:
        """Cell t · pieces + k is piece k of tree t's share."""
        pieces = 2 * (workers.bit_length() - 1) if by_codec else -(-words // (self.trees * self.chunk_words))
        pieces = max(1, pieces)
        steps = _steps([binary_tree(workers, number) for number in range(self.trees)])
        return Transfers(workers, self.trees * pieces, steps, pieces=pieces, is_pipelined=True)


def _steps(trees: list[BinaryTree]) -> Iterator[Step]:
    """One piece: up to the root in every tree, the lowest first; then down, the highest first."""
    edges = trees[0].parents.size - 1
    up = []  # the number of each worker's transfer to its parent; the last one is that of NONE
    for number, tree in enumerate(trees):
        order = np.lexsort((tree.is_second, -tree.depths))[:edges]  # without the root
        sent = np.full(edges + 2, NONE, np.int64)
        sent[order] = number * edges + np.arange(edges)
        up.append(sent)
        for workers in _by_depth(tree, order):
            parents, is_second = tree.parents[workers], tree.is_second[workers]
            yield Step(
                workers,
                parents,
                number,
                merges=True,
                waits=sent[tree.last[workers]],
                follows=np.where(is_second, sent[tree.children[parents, 0]], NONE),
                before=np.where(is_second, NONE, sent[tree.last[parents]]),
                channel=number,
            )
    for number, tree in enumerate(trees):
        order = np.lexsort((tree.is_second, tree.depths))[1:]
        arrives = np.full(edges + 1, NONE, np.int64)  # what makes a worker's cell final
        arrives[order] = (len(trees) + number) * edges + np.arange(edges)
        arrives[tree.root] = up[number][tree.last[tree.root]]
        for workers in _by_depth(tree, order):
            parents = tree.parents[workers]
            yield Step(parents, workers, number, waits=arrives[parents], channel=number)


def _by_depth(tree: BinaryTree, workers: Ints) -> list[Ints]:
    # Workers in this order, those of each depth together.
    return np.split(workers, np.flatnonzero(np.diff(tree.depths[workers])) + 1) if workers.size else []


TREE = scheduled(Tree, listed=3)
