"""Composes schedules: reduce inside groups, all-reduce across them, distribute inside them.

An all-reduce of a group has two halves: its transfers that merge leave every cell of the group at one worker,
its owner, and the others distribute what is finished. Between the two, the owners of the same words in all
groups carry out an all-reduce of their own. A ring or halving inside makes every worker the owner of a share;
a tree makes its root that of all its words. The groups may differ in size: the words are then cut wherever
the cells of any group begin.

A message is cut into blocks that are carried side by side, so that some links of one block work while others
wait. What a worker sends to another shares one window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from netfold.sim.collectives.building.transfers import Ints, Transfers
from netfold.sim.collectives.closed_form import Cells, Cut
from netfold.sim.engine.schedule import NONE, Schedule

Groups = Sequence[Sequence[int]]  # workers


class _Inner(NamedTuple):
    """The schedule of a group of some size, on the cells that all groups share."""

    schedule: Schedule
    bounds: Ints  # (its chunks + 1,) the segment with which each of its chunks begins
    owners: Ints  # (segments,) the member that owns each after the reduction
    merged: Ints  # (segments,) the last transfer that merges into the owner's; NONE


def owners_of(groups: Groups, inner: Callable[[int], Cut]) -> list[tuple[float, list[int]]]:
    """The stretches of a message that cross groups as one: the share of each, and its owner in each group."""
    edges, inners = inners_of(groups, inner)
    owners = [[group[at] for at in inners[len(group)].owners.tolist()] for group in groups]
    shares = [float(end - start) for start, end in pairwise(edges)]
    return [(share, list(own)) for share, own in zip(shares, zip(*owners, strict=True), strict=True)]


def inners_of(groups: Groups, inner: Callable[[int], Cut]) -> tuple[list[Fraction], dict[int, _Inner]]:
    """Where the cells of any group begin, and the schedules of groups by their size."""
    cuts = {size: inner(size) for size in {len(group) for group in groups}}
    edges = sorted({edge for cut in cuts.values() for edge in cut.cells})
    return edges, {size: _on_edges(cut, edges) for size, cut in cuts.items()}


def composed(groups: Groups, inner: Callable[[int], Cut], outer: Cut, blocks: int = 1) -> Cut:
    """The schedule of a hierarchy; `inner` gives that of a group of some size, `outer` is that across."""
    edges, inners = inners_of(groups, inner)
    across = outer.schedule.chunks
    block = Transfers(sum(map(len, groups)), (len(edges) - 1) * across)
    parts = [inners[len(group)] for group in groups]
    members = [np.array(group, np.int64) for group in groups]
    numbers = [_add(block, part, who, across, merges=True) for part, who in zip(parts, members, strict=True)]
    owners = np.array([who[part.owners] for part, who in zip(parts, members, strict=True)])
    merged = np.array([_numbered(number, part.merged) for number, part in zip(numbers, parts, strict=True)])
    finals = _across(block, outer.schedule, owners, merged)
    for group, (part, who) in enumerate(zip(parts, members, strict=True)):
        _distribute(block, (part, who), across, finals[group])
    cells = [start + (end - start) * edge for start, end in pairwise(edges) for edge in outer.cells[:-1]]
    return in_blocks(block.schedule(), (*cells, Fraction(1)), blocks)


def _on_edges(cut: Cut, edges: Sequence[Fraction]) -> _Inner:
    """A group's schedule on the segments between `edges`, which have its own among them."""
    place = {edge: number for number, edge in enumerate(edges)}
    bounds = np.array([place[edge] for edge in cut.cells], np.int64)
    schedule = cut.schedule
    merging = np.flatnonzero(schedule.merges)
    number, cell = _expanded(schedule, merging)
    sent = np.zeros((schedule.workers, schedule.chunks), np.bool_)
    sent[schedule.source[number], cell] = True
    owners = np.argmin(sent, axis=0)
    to_owner = schedule.target[number] == owners[cell]
    merged = np.full(schedule.chunks, NONE, np.int64)
    np.maximum.at(merged, cell[to_owner], number[to_owner])
    times = np.diff(bounds)
    return _Inner(schedule, bounds, np.repeat(owners, times), np.repeat(merged, times))


def _expanded(schedule: Schedule, numbers: Ints) -> tuple[Ints, Ints]:
    """Transfers, and each of the chunks that they carry."""
    counts = schedule.count[numbers]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(numbers, counts), np.repeat(schedule.first[numbers], counts) + within


def _numbered(numbers: Ints, own: Ints) -> Ints:
    """Transfers of a part by their numbers in the whole; NONE stays."""
    found: Ints = np.where(own == NONE, NONE, np.append(numbers, NONE)[own])
    return found


def _add(block: Transfers, part: _Inner, who: Ints, across: int, *, merges: bool) -> Ints:
    """Add the transfers of a group that merge, or those that do not; returns the numbers of all its own."""
    schedule = part.schedule
    chosen = np.flatnonzero(schedule.merges == merges)
    numbers = np.full(schedule.transfers, NONE, np.int64)
    numbers[chosen] = np.arange(block.count, block.count + chosen.size)
    first, last = schedule.first[chosen], schedule.first[chosen] + schedule.count[chosen]
    block.add(
        (who[schedule.source[chosen]], who[schedule.target[chosen]]),
        (part.bounds[first] * across, (part.bounds[last] - part.bounds[first]) * across),
        merges=merges,
        follows=_numbered(numbers, schedule.follows[chosen].astype(np.int64)),
    )
    waiting = np.repeat(np.arange(schedule.transfers), np.diff(schedule.waits_first))
    both = (schedule.merges[waiting] == merges) & (schedule.merges[schedule.waits_for] == merges)
    block.wait(numbers[waiting[both]], numbers[schedule.waits_for[both]])
    return numbers


def _across(block: Transfers, outer: Schedule, owners: Ints, merged: Ints) -> list[list[Ints]]:
    """Add an all-reduce of each segment among its owners.

    `owners` and `merged` are (groups, segments). Returns, for each group and segment, the transfers after
    which the owner's cells are final.
    """
    finals: list[list[Ints]] = [[] for _ in owners]
    waiting = np.repeat(np.arange(outer.transfers), np.diff(outer.waits_first))
    last = [_finals(outer, member) for member in range(outer.workers)]
    for segment, leaders in enumerate(owners.T):
        ready = merged[:, segment]  # by group: its last merge inside
        base = block.count
        follows = outer.follows.astype(np.int64)
        numbers = block.add(
            (leaders[outer.source], leaders[outer.target]),
            (segment * outer.chunks + outer.first.astype(np.int64), outer.count.astype(np.int64)),
            merges=outer.merges,
            follows=np.where(follows == NONE, ready[outer.target], base + follows),
        )
        block.wait(
            np.r_[numbers[waiting], numbers[outer.merges]],
            np.r_[base + outer.waits_for, ready[outer.source[outer.merges]]],
        )
        for group, own in enumerate(finals):
            own.append(base + last[group] if outer.transfers else ready[group : group + 1])
    return finals


def _finals(schedule: Schedule, worker: int) -> Ints:
    """The transfers after all of which a worker's cells are final."""
    mine = np.flatnonzero(schedule.target == worker)
    final = mine[~schedule.merges[mine]]
    merging = mine[schedule.merges[mine]]
    return np.concatenate([merging[-1:], final])  # merges follow one another


def _distribute(block: Transfers, group: tuple[_Inner, Ints], across: int, finals: Sequence[Ints]) -> None:
    """Add the transfers inside a group that do not merge; owners wait for what comes from across."""
    part, who = group
    schedule = part.schedule
    numbers = _add(block, part, who, across, merges=False)
    for transfer in np.flatnonzero(~schedule.merges):
        first, count = int(schedule.first[transfer]), int(schedule.count[transfer])
        segments = np.arange(part.bounds[first], part.bounds[first + count])
        own = segments[part.owners[segments] == schedule.source[transfer]]
        awaited = [finals[segment] for segment in own]
        if awaited:
            every = np.unique(np.concatenate(awaited))
            block.wait(np.full(every.size, numbers[transfer]), every)


def in_blocks(schedule: Schedule, cells: Cells, blocks: int) -> Cut:
    """The same schedule for every block of a message, with one lane for each pair of workers."""
    count, chunks, workers = schedule.transfers, schedule.chunks, schedule.workers
    pairs = schedule.source.astype(np.int64) * workers + schedule.target
    lanes = np.unique(pairs, return_inverse=True)[1] if count else pairs
    repeated = Transfers(workers, chunks * blocks)
    waiting = np.repeat(np.arange(count), np.diff(schedule.waits_first))
    for block in range(blocks):
        base = block * count
        repeated.add(
            (schedule.source.astype(np.int64), schedule.target.astype(np.int64)),
            (schedule.first.astype(np.int64) + block * chunks, schedule.count.astype(np.int64)),
            merges=schedule.merges,
            follows=np.where(schedule.follows == NONE, NONE, schedule.follows + base),
            lane=lanes,
        )
        repeated.wait(waiting + base, schedule.waits_for.astype(np.int64) + base)
    shares = [(block + edge) / blocks for block in range(blocks) for edge in cells[:-1]]
    return Cut(repeated.schedule(), (*shares, Fraction(1)))
