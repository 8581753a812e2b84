"""Halves of schedules, and who carries which words across groups, for hierarchies with switches.

Where switches take the place of the inner or the outer collective, the halves of the inner one run by
themselves: the transfers that merge leave every word of a group at its owner, the others distribute what is
finished. The owners of the same words in all groups are a lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from netfold.sim.collectives.building.transfers import Ints, Transfers
from netfold.sim.collectives.closed_form import Cut, Steps, equal_cells
from netfold.sim.collectives.hierarchical.schedule import inners_of
from netfold.sim.engine.schedule import NONE

Groups = Sequence[Sequence[int]]  # workers


class Lane(NamedTuple):
    """Workers, one of each group, who own the same stretches of every message, as shares of it."""

    members: tuple[int, ...]  # by group
    stretches: tuple[tuple[Fraction, Fraction], ...]

    @property
    def share(self) -> float:
        """Share of the words that it carries."""
        return float(sum(end - start for start, end in self.stretches))

    def slices(self, words: int, blocks: int) -> list[slice]:
        """Its words of a message of so many words in blocks; edges are rounded down, as in a schedule."""
        return [
            slice(_edge(words, block, blocks, start), _edge(words, block, blocks, end))
            for block in range(blocks)
            for start, end in self.stretches
        ]


def _edge(words: int, block: int, blocks: int, edge: Fraction) -> int:
    at = (block + edge) / blocks
    return words * at.numerator // at.denominator


def lanes_of(groups: Groups, inner: Callable[[int], Cut]) -> tuple[Lane, ...]:
    """The lanes of a hierarchy whose groups have these schedules; together they carry every word once."""
    edges, inners = inners_of(groups, inner)
    owners = [[group[at] for at in inners[len(group)].owners.tolist()] for group in groups]
    found: dict[tuple[int, ...], list[tuple[Fraction, Fraction]]] = {}
    for stretch, own in zip(pairwise(edges), zip(*owners, strict=True), strict=True):
        found.setdefault(tuple(own), []).append(stretch)
    return tuple(Lane(members, tuple(stretches)) for members, stretches in found.items())


def half(cut: Cut, *, merges: bool) -> Cut:
    """The transfers of a schedule that merge, or those that do not; these wait for no others."""
    schedule = cut.schedule
    chosen = np.flatnonzero(schedule.merges == merges)
    numbers = np.full(schedule.transfers + 1, NONE, np.int64)  # the last is that of NONE
    numbers[chosen] = np.arange(chosen.size)
    found = Transfers(schedule.workers, schedule.chunks)
    found.add(
        (schedule.source[chosen].astype(np.int64), schedule.target[chosen].astype(np.int64)),
        (schedule.first[chosen].astype(np.int64), schedule.count[chosen].astype(np.int64)),
        merges=merges,
        follows=numbers[schedule.follows[chosen]],
    )
    waiting = numbers[np.repeat(np.arange(schedule.transfers), np.diff(schedule.waits_first))]
    awaited = numbers[schedule.waits_for]
    both = (waiting != NONE) & (awaited != NONE)
    found.wait(waiting[both], awaited[both])
    return Cut(found.schedule(), cut.cells)


def sharing(workers: int) -> Cut:
    """An all-reduce in which worker k owns the k-th share: all send it theirs, then it goes round.

    Only its second half runs: a switch has done the first.
    """
    every = np.arange(workers, dtype=np.int64)
    found = Transfers(workers, workers)
    merged = np.full(workers, NONE, np.int64)
    for ahead in range(1, workers):
        merged = found.add((((every + ahead) % workers), every), (every, 1), merges=True, follows=merged)
    before: Ints = merged
    for step in range(1, workers):
        chunk = (every - step + 1) % workers
        numbers = found.add((every, (every + 1) % workers), (chunk, 1), merges=False)
        found.wait(numbers, before)
        before = numbers[every - 1]  # what a worker has got from the one before it
    return Cut(found.schedule(), equal_cells(workers))


def sharing_steps(workers: int) -> Steps:
    """The second half of `sharing` in numbers: n − 1 hops of an n-th of the words, which nobody merges."""
    pairs = [(worker, (worker + 1) % workers) for worker in range(workers)]
    return Steps(pairs, hops=workers - 1, chunks=workers, merges=0)
