"""Trees whose points have more children than a switch can tell apart: some move to other switches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from netfold.sim.collectives.in_network.placement.tree import Tree, numbered

Child = tuple[bool, int]  # (True, rank of a worker), or (False, node of a point)


class _Move(NamedTuple):
    """Children that leave a point for another switch, and the hops that it costs to relieve it by one."""

    hops_each: float
    relieved: int
    target: int
    children: tuple[Child, ...]
    is_new: bool


class _Growing:
    """A tree by node: the parent of each point, and the point of each worker."""

    def __init__(self, tree: Tree) -> None:
        self.root = tree.switches[0]
        self.parents = {
            node: tree.switches[parent]
            for node, parent in zip(tree.switches[1:], tree.parents[1:], strict=True)
        }
        self.homes = [tree.switches[home] for home in tree.homes]

    @property
    def points(self) -> list[int]:
        return [self.root, *self.parents]

    def children(self, node: int) -> list[Child]:
        workers = [(True, rank) for rank, home in enumerate(self.homes) if home == node]
        return workers + [(False, point) for point, parent in self.parents.items() if parent == node]

    def is_above(self, node: int, other: int) -> bool:
        """Whether a point is another one, or one of those that the other hangs on."""
        while other != node and other in self.parents:
            other = self.parents[other]
        return other == node

    def move(self, source: int, move: _Move) -> None:
        if move.is_new:
            self.parents[move.target] = source
        for is_worker, number in move.children:
            if is_worker:
                self.homes[number] = move.target
            else:
                self.parents[number] = move.target


def relieved(
    tree: Tree,
    hosts: tuple[int, ...],
    helpers: Iterable[int],
    children_max: Callable[[int], int],
    hops: Callable[[int, int], int],
    points_max: int | None = None,
) -> Tree | None:
    """The tree with no more than `children_max` children at any point; None if that cannot be reached.

    Surplus children move to the switch that adds the fewest hops for each: a point of the tree that has room,
    or one of `helpers`, which then hangs on the point that it relieves, as long as the tree has fewer than
    `points_max` points.
    """
    growing, spare = _Growing(tree), [node for node in helpers if node not in tree.switches]
    while True:
        over = next(
            (node for node in growing.points if len(growing.children(node)) > children_max(node)), None
        )
        if over is None:
            return numbered(growing.root, growing.parents, growing.homes)
        surplus = len(growing.children(over)) - children_max(over)
        moves = []
        points = growing.points
        may_grow = points_max is None or len(points) < points_max
        for target in (*points, *(spare if may_grow else ())):
            if target == over or children_max(target) == 0:
                continue
            is_new = target not in points
            movable = sorted(
                (hops(node, target) - hops(node, over), child)
                for child in growing.children(over)
                if (node := hosts[child[1]] if child[0] else child[1]) != target
                and (child[0] or is_new or not growing.is_above(child[1], target))
            )
            room = children_max(target) - (0 if is_new else len(growing.children(target)))
            count = min(room, surplus + is_new, len(movable))
            if count - is_new < 1:
                continue
            added = sum(extra for extra, _ in movable[:count]) + (hops(target, over) if is_new else 0)
            chosen = tuple(child for _, child in movable[:count])
            moves.append(_Move(added / (count - is_new), count - is_new, target, chosen, is_new))
        if not moves:
            return None
        best = min(moves, key=lambda move: (move.hops_each, -move.relieved))
        growing.move(over, best)
        spare = [node for node in spare if node != best.target]
