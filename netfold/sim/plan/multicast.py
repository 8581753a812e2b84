"""Copies of results on their way down: one per child, or one per link that splits at switches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

from netfold.sim.engine.interface import Job, Split
from netfold.topologies.network import Network, nodes_of, path


class Down(NamedTuple):
    """Where a job's results go: links from each point to each child, and the links of each copy."""

    to_child: dict[tuple[int, int], tuple[int, ...]]  # by point and index of the child
    last: dict[tuple[int, int], tuple[int, ...]]  # likewise: of the copy for this child alone
    to_splits: tuple[tuple[int, ...], ...]  # of the copy that each split gets


class _Way(NamedTuple):
    """Nodes that a result still passes on its way to a child, which is the last of them."""

    child: int
    nodes: tuple[int, ...]


def down_paths(network: Network, job: Job) -> Down:
    """The paths of results, as the engine sends them: from point to split to split to child."""
    to_child: dict[tuple[int, int], tuple[int, ...]] = {}
    last: dict[tuple[int, int], tuple[int, ...]] = {}
    to_splits: list[tuple[int, ...]] = []
    before: list[tuple[int, ...]] = []  # links from its point to each split
    via: dict[tuple[int, int], int] = {}  # the split that sends a child its copy
    for number, split in enumerate(job.splits):
        at = split.parent
        node = job.switches[split.point] if at < 0 else job.splits[at].switch
        links = tuple(path(network, node, split.switch, split.route))
        before.append((*(before[at] if at >= 0 else ()), *links))
        to_splits.append(links)
        via.update(((split.point, child), number) for child in split.children)
    for point in range(1 + len(job.branches)):
        for index, (target, route) in enumerate(_children(job, point)):
            number = via.get((point, index), -1)
            node = job.switches[point] if number < 0 else job.splits[number].switch
            links = last[point, index] = tuple(path(network, node, target, route))
            to_child[point, index] = (*(before[number] if number >= 0 else ()), *links)
    return Down(to_child, last, tuple(to_splits))


def receivers_of(job: Job, place: int) -> tuple[int, ...]:
    """Nodes to which a point or split, by its place in `job.switches`, sends copies of a result for all.

    Of a point they are its children that no split serves, then its splits.
    """
    number = place - len(job.points)
    if number >= 0:
        point, kept = job.splits[number].point, job.splits[number].children
    else:
        point, number = place, -1
        served = {child for split in job.splits if split.point == point for child in split.children}
        kept = tuple(child for child in range(len(job.children_of(point))) if child not in served)
    targets = [target for target, _ in _children(job, point)]
    below = (one.switch for one in job.splits if (one.point, one.parent) == (point, number))
    return (*(targets[child] for child in kept), *below)


def with_splits(network: Network, job: Job, can_split: Callable[[int], bool]) -> Job:
    """The job with multicast of results: one copy down a link for all children behind it.

    Paths to children that begin alike share one copy, which splits at the last switch that they have in
    common and that can. A switch that cannot split forwards, and the copies are made before it.
    """
    splits: list[Split] = []
    for point in range(1 + len(job.branches)):
        ways = []
        for index, (target, route) in enumerate(_children(job, point)):
            links = path(network, job.switches[point], target, route)
            ways.append(_Way(index, tuple(nodes_of(network, links))))
        routes = [route for _, route in _children(job, point)]
        _grow(splits, point, -1, ways, (routes, can_split))
    return dataclasses.replace(job, splits=tuple(splits))


def _children(job: Job, point: int) -> list[tuple[int, int]]:
    """Node and route of each child of a point, by index."""
    return [
        (job.hosts[number], job.routes[number])
        if is_worker
        else (job.branches[number - 1].switch, job.branches[number - 1].route)
        for is_worker, number in job.children_of(point)
    ]


def _grow(
    splits: list[Split],
    point: int,
    parent: int,
    ways: Sequence[_Way],
    rules: tuple[list[int], Callable[[int], bool]],
) -> list[int]:
    """Append the splits below a sender; returns the children that the sender sends their copies itself."""
    routes, can_split = rules
    by_next: dict[int, list[_Way]] = {}
    direct = [way.child for way in ways if len(way.nodes) < 2]
    for way in ways:
        if len(way.nodes) >= 2:
            by_next.setdefault(way.nodes[0], []).append(way)
    for group in by_next.values():
        if len(group) == 1:
            direct.append(group[0].child)
            continue
        shared = _shared(group)
        able = [hops for hops in range(shared) if can_split(group[0].nodes[hops])]
        if not able:  # all go on as copies, and may meet a switch that can where some have left
            rest = [way._replace(nodes=way.nodes[shared:]) for way in group]
            direct += _grow(splits, point, parent, rest, rules)
            continue
        number, hops = len(splits), able[-1]
        splits.append(Split(group[0].nodes[hops], point, parent, (), routes[group[0].child]))
        rest = [way._replace(nodes=way.nodes[hops + 1 :]) for way in group]
        kept = _grow(splits, point, number, rest, rules)
        splits[number] = dataclasses.replace(splits[number], children=tuple(sorted(kept)))
    return direct


def _shared(ways: Sequence[_Way]) -> int:
    """Switches that all of these ways pass first; none is the end of one."""
    count = 0
    while all(len(way.nodes) > count + 1 for way in ways) and len({way.nodes[count] for way in ways}) == 1:
        count += 1
    return count
