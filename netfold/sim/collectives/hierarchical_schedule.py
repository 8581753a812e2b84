"""Hierarchies between hosts: groups of workers, the composed schedule, what it comes to, and how it runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from netfold.sim.collectives.collective import JobContext, OperationId, RunContext, collectives
from netfold.sim.collectives.host_collective import HostCollective, HostPlan
from netfold.sim.collectives.host_messages import ScheduledRun
from netfold.sim.collectives.transfers import (
    Cut,
    Ints,
    Level,
    Outline,
    ScheduleBuilder,
    Shares,
    combine_outlines,
    half_of,
    together,
)
from netfold.sim.engine.engine_data import NONE, Schedule
from netfold.topologies.network import Network

Groups = tuple[tuple[int, ...], ...]  # workers, in rank order in each
RankGroups = Sequence[Sequence[int]]  # workers


def groups_of(section: Any, job: JobContext) -> Groups:
    """The groups, in the order of their first workers.

    Raises
    ------
    ScenarioError
        There is one worker, a worker's host is in no island, or every worker would be in a group of its own
        or all in one.
    """
    workers = len(job.hosts)
    if workers == 1:
        raise job.location.job_error(
            "workers",
            "one worker: there are no groups to divide it into",
            "use more workers, or another collective.kind",
        )
    try:
        groups = groups_on(section, job.site.network, job.nodes)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        raise job.location.job_error("collective.groups", message, hint) from None
    if len(groups) in (1, workers):
        fault = (
            "all workers are in one group" if len(groups) == 1 else "every worker is in a group of its own"
        )
        fewer = max(2, workers // 2)
        raise job.location.job_error(
            f"collective.{key_of(section)}",
            f"{fault}: there is nothing to do {'across' if len(groups) == 1 else 'inside'} groups",
            f"use group_size, such as {fewer}, or another collective.kind",
        )
    return groups


def key_of(section: Any) -> str:
    """The key that divides the workers."""
    if section.group_size is not None:
        return "group_size"
    return "groups" if section.group_count is None else "group_count"


def groups_on(section: Any, network: Network, nodes: Sequence[int]) -> Groups:
    """The groups of workers on these nodes.

    Raises
    ------
    ValueError
        Islands are asked for, and a worker's host is in none.
    """
    workers = len(nodes)
    if section.group_size is not None:
        return _by([rank // section.group_size for rank in range(workers)])
    if section.group_count is not None:
        return _by([rank * section.group_count // workers for rank in range(workers)])
    if section.groups == "rack":
        return _by([int(network.link_target[node]) for node in nodes])  # a host's link has its number
    for node in nodes:
        if network.island[node] < 0:
            raise ValueError(
                f"host {network.nodes[node]} is in no island: the topology has none; use rack, or group_size"
            )
    return _by([int(network.island[node]) for node in nodes])


def _by(keys: Sequence[Hashable]) -> Groups:
    members: dict[Hashable, list[int]] = {}
    for rank, key in enumerate(keys):
        members.setdefault(key, []).append(rank)
    return tuple(map(tuple, members.values()))


# The parts of a hierarchy, and what a hierarchy of them comes to.


Parts = tuple[HostCollective, HostCollective]
"""The collective inside groups, and that across them."""


def collective_of(part: Any) -> HostCollective:
    """The collective that the keys of a part name; how it sends its messages is said for the whole."""
    section = collectives()[part.kind].section
    assert issubclass(section, HostCollective)
    return section.model_construct(**{name: getattr(part, name) for name in part.model_fields_set})


def levels_inside(groups: RankGroups, inner: Callable[[int], Outline], *, merges: bool) -> list[Level]:
    """All groups at the same time: what merges, or what distributes what is merged."""
    halves = {size: half_of(inner(size).levels, merges=merges) for size in {len(group) for group in groups}}
    return combine_outlines([(halves[len(group)], np.array(group), 1.0) for group in groups])


def levels_across(owners: Sequence[tuple[float, Sequence[int]]], outer: Outline) -> list[Level]:
    """Each stretch of words has an all-reduce of its own among its owners, with its share of the words."""
    return combine_outlines([(outer.levels, np.array(members), share) for share, members in owners])


def outline_of_hierarchy(groups: Groups, parts: Parts, words: int, block_words: int) -> Outline:
    """What the hierarchy comes to for messages of so many words.

    Blocks of a message are carried side by side: of a message of many blocks, the inside and the outside of a
    group work at the same time, and the one that takes longer counts. What a worker sends to another shares
    one window, in all phases and blocks.
    """
    inner, outer = parts
    before, after = (levels_inside(groups, inner.outline, merges=merges) for merges in (True, False))
    owners, outside = owners_of(groups, inner.cut), outer.outline(len(groups))
    across = levels_across(owners, outside)
    levels = (*before, *across, *after)
    edges, inners = inners_of(groups, inner.cut)
    segments, outer_schedule = len(edges) - 1, outer.cut(len(groups)).schedule
    inside = sum(inners[len(group)].schedule.transfers for group in groups)
    blocks = max(1, -(-words // block_words))
    return Outline(
        workers=sum(map(len, groups)),
        transfers=(inside + segments * outer_schedule.transfers) * blocks,
        cells=segments * outer_schedule.chunks * blocks,
        levels=levels,
        is_pipelined=words > block_words,
        windows=together(
            [
                *((inner.outline(len(group)).at_once, group) for group in groups),
                *((outside.at_once, members) for _, members in owners),
            ]
        ),
    )


# The plan of a job's hierarchy.


@dataclass(frozen=True, kw_only=True)
class HierarchicalPlan(HostPlan):
    """Workers in groups."""

    groups: Groups
    parts: Parts
    block_words: int


# Composes schedules: reduce inside groups, all-reduce across them, distribute inside them.
#
# An all-reduce of a group has two halves: its transfers that merge leave every cell of the group at one
# worker, its owner, and the others distribute what is finished. Between the two, the owners of the same
# words in all groups carry out an all-reduce of their own. A ring or halving inside makes every worker the
# owner of a share; a tree makes its root that of all its words. The groups may differ in size: the words
# are then cut wherever the cells of any group begin.
#
# A message is cut into blocks that are carried side by side, so that some links of one block work while
# others wait. What a worker sends to another shares one window.


class _Inner(NamedTuple):
    """The schedule of a group of some size, on the cells that all groups share."""

    schedule: Schedule
    bounds: Ints  # (its chunks + 1,) the segment with which each of its chunks begins
    owners: Ints  # (segments,) the member that owns each after the reduction
    merged: Ints  # (segments,) the last transfer that merges into the owner's; NONE


def owners_of(groups: RankGroups, inner: Callable[[int], Cut]) -> list[tuple[float, list[int]]]:
    """The stretches of a message that cross groups as one: the share of each, and its owner in each group."""
    edges, inners = inners_of(groups, inner)
    owners = [[group[at] for at in inners[len(group)].owners.tolist()] for group in groups]
    shares = [float(end - start) for start, end in pairwise(edges)]
    return [(share, list(leaders)) for share, leaders in zip(shares, zip(*owners, strict=True), strict=True)]


def inners_of(groups: RankGroups, inner: Callable[[int], Cut]) -> tuple[list[Fraction], dict[int, _Inner]]:
    """Where the cells of any group begin, and the schedules of groups by their size."""
    cuts = {size: inner(size) for size in {len(group) for group in groups}}
    edges = sorted({edge for cut in cuts.values() for edge in cut.cuts})
    return edges, {size: _on_edges(cut, edges) for size, cut in cuts.items()}


def compose(groups: RankGroups, inner: Callable[[int], Cut], outer: Cut, blocks: int = 1) -> Cut:
    """The schedule of a hierarchy; `inner` gives that of a group of some size, `outer` is that across."""
    edges, inners = inners_of(groups, inner)
    across = outer.schedule.chunks
    block = ScheduleBuilder(sum(map(len, groups)), (len(edges) - 1) * across)
    parts = [inners[len(group)] for group in groups]
    members = [np.array(group, np.int64) for group in groups]
    numbers = [_add(block, part, who, across, merges=True) for part, who in zip(parts, members, strict=True)]
    owners = np.array([who[part.owners] for part, who in zip(parts, members, strict=True)])
    merged = np.array([_renumber(number, part.merged) for number, part in zip(numbers, parts, strict=True)])
    finals = _across(block, outer.schedule, owners, merged)
    for group, (part, who) in enumerate(zip(parts, members, strict=True)):
        _distribute(block, part, who, across=across, finals=finals[group])
    cells = [start + (end - start) * edge for start, end in pairwise(edges) for edge in outer.cuts[:-1]]
    return in_blocks(block.schedule(), (*cells, Fraction(1)), blocks)


def _on_edges(cut: Cut, edges: Sequence[Fraction]) -> _Inner:
    """A group's schedule on the segments between `edges`, which have its own among them."""
    edge_numbers = {edge: number for number, edge in enumerate(edges)}
    bounds = np.array([edge_numbers[edge] for edge in cut.cuts], np.int64)
    schedule = cut.schedule
    merging = np.flatnonzero(schedule.merges)
    number, cell = _expand(schedule, merging)
    sent = np.zeros((schedule.workers, schedule.chunks), np.bool_)
    sent[schedule.source[number], cell] = True
    owners = np.argmin(sent, axis=0)
    to_owner = schedule.target[number] == owners[cell]
    merged = np.full(schedule.chunks, NONE, np.int64)
    np.maximum.at(merged, cell[to_owner], number[to_owner])
    times = np.diff(bounds)
    return _Inner(schedule, bounds, np.repeat(owners, times), np.repeat(merged, times))


def _expand(schedule: Schedule, numbers: Ints) -> tuple[Ints, Ints]:
    """Transfers, and each of the chunks that they carry."""
    counts = schedule.count[numbers]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(numbers, counts), np.repeat(schedule.first[numbers], counts) + within


def _renumber(numbers: Ints, new_numbers: Ints) -> Ints:
    """Transfers of a part by their numbers in the whole; NONE stays."""
    transfers: Ints = np.where(new_numbers == NONE, NONE, np.append(numbers, NONE)[new_numbers])
    return transfers


def _add(block: ScheduleBuilder, part: _Inner, who: Ints, across: int, *, merges: bool) -> Ints:
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
        follows=_renumber(numbers, schedule.follows[chosen].astype(np.int64)),
    )
    waiting = np.repeat(np.arange(schedule.transfers), np.diff(schedule.waits_first))
    chained = (schedule.merges[waiting] == merges) & (schedule.merges[schedule.waits_for] == merges)
    block.wait(numbers[waiting[chained]], numbers[schedule.waits_for[chained]])
    return numbers


def _across(block: ScheduleBuilder, outer: Schedule, owners: Ints, merged: Ints) -> list[list[Ints]]:
    """Add an all-reduce of each segment among its owners.

    `owners` and `merged` are (groups, segments). Returns, for each group and segment, the transfers after
    which the owner's cells are final.
    """
    finals: list[list[Ints]] = [[] for _ in owners]
    waiting = np.repeat(np.arange(outer.transfers), np.diff(outer.waits_first))
    last = [_finals(outer, member) for member in range(outer.workers)]
    for segment, leaders in enumerate(owners.T):
        ready = merged[:, segment]  # each group's last merge inside
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
        for group, group_finals in enumerate(finals):
            group_finals.append(base + last[group] if outer.transfers else ready[group : group + 1])
    return finals


def _finals(schedule: Schedule, worker: int) -> Ints:
    """The transfers after all of which a worker's cells are final."""
    arriving = np.flatnonzero(schedule.target == worker)
    final = arriving[~schedule.merges[arriving]]
    merging = arriving[schedule.merges[arriving]]
    return np.concatenate([merging[-1:], final])  # merges follow one another


def _distribute(
    block: ScheduleBuilder, part: _Inner, who: Ints, *, across: int, finals: Sequence[Ints]
) -> None:
    """Add the transfers inside a group that do not merge; owners wait for what comes from across."""
    schedule = part.schedule
    numbers = _add(block, part, who, across, merges=False)
    for transfer in np.flatnonzero(~schedule.merges):
        first, count = int(schedule.first[transfer]), int(schedule.count[transfer])
        segments = np.arange(part.bounds[first], part.bounds[first + count])
        owned_segments = segments[part.owners[segments] == schedule.source[transfer]]
        awaited = [finals[segment] for segment in owned_segments]
        if awaited:
            every = np.unique(np.concatenate(awaited))
            block.wait(np.full(every.size, numbers[transfer]), every)


def in_blocks(schedule: Schedule, cells: Shares, blocks: int) -> Cut:
    """The same schedule for every block of a message, with one lane for each pair of workers."""
    count, chunks, workers = schedule.transfers, schedule.chunks, schedule.workers
    pairs = schedule.source.astype(np.int64) * workers + schedule.target
    lanes = np.unique(pairs, return_inverse=True)[1] if count else pairs
    repeated = ScheduleBuilder(workers, chunks * blocks)
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


# A hierarchy of host collectives over reliable messages: the engine carries out one composed schedule.


class HierarchicalRun(ScheduledRun):
    """One job's hierarchy."""

    def __init__(self, plan: HierarchicalPlan, context: RunContext) -> None:
        super().__init__(plan, context)
        self._hierarchy = plan
        self._group_of = {rank: number for number, group in enumerate(plan.groups) for rank in group}
        self._cuts: dict[int, Cut] = {}  # keys: blocks of a message

    def cut(self, words: int, by_codec: bool) -> Cut:
        """As many blocks as a message needs; one of HOST, whose words the codec cuts."""
        plan = self._hierarchy
        blocks = 1 if by_codec else max(1, -(-words // plan.block_words))
        if blocks not in self._cuts:
            inner, outer = plan.parts
            self._cuts[blocks] = compose(plan.groups, inner.cut, outer.cut(len(plan.groups)), blocks)
        return self._cuts[blocks]

    def locate(self, worker: int, operation_id: OperationId, part: int, word: int) -> str:
        """The message, operation and worker of a word, and the worker's group."""
        group = f"group {self._group_of[worker]} of {len(self._hierarchy.groups)}"
        return (
            f"message {part} of {operation_id.in_words} in a hierarchy, as worker {worker} ({group}) got it"
        )
