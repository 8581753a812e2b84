"""Paths through a job's aggregation tree: copies of results on their way down, links up and down."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from netfold.sim.engine.engine_data import Job, Split
from netfold.topologies.network import Network, nodes_of, path

# Copies of results on their way down: one per child, or one per link that splits at switches.


class Down(NamedTuple):
    """Where a job's results go: links from each point to each child, and the links of each copy."""

    to_child: dict[tuple[int, int], tuple[int, ...]]
    """Links to each child, by point and index of the child."""
    last: dict[tuple[int, int], tuple[int, ...]]
    """Links of the copy for a child alone, likewise."""
    to_splits: tuple[tuple[int, ...], ...]
    """Links of the copy that each split gets."""


class _Way(NamedTuple):
    """Nodes that a result still passes on its way to a child, which is the last of them."""

    child: int
    nodes: tuple[int, ...]


def down_paths(network: Network, job: Job) -> Down:
    """The paths of results, as the engine sends them: from point to split to split to child."""
    to_child: dict[tuple[int, int], tuple[int, ...]] = {}
    last: dict[tuple[int, int], tuple[int, ...]] = {}
    to_splits: list[tuple[int, ...]] = []
    split_paths: list[tuple[int, ...]] = []  # links from its point to each split
    via: dict[tuple[int, int], int] = {}  # the split that sends a child its copy
    switches = job.switches
    for number, split in enumerate(job.splits):
        at = split.parent
        node = switches[split.point] if at < 0 else job.splits[at].switch
        links = tuple(path(network, node, split.switch, split.route))
        split_paths.append((*(split_paths[at] if at >= 0 else ()), *links))
        to_splits.append(links)
        via.update(((split.point, child), number) for child in split.children)
    for point in range(1 + len(job.branches)):
        for index, (target, route) in enumerate(_children(job, point)):
            number = via.get((point, index), -1)
            node = switches[point] if number < 0 else job.splits[number].switch
            links = last[point, index] = tuple(path(network, node, target, route))
            to_child[point, index] = (*(split_paths[number] if number >= 0 else ()), *links)
    return Down(to_child, last, tuple(to_splits))


def receivers_of(job: Job, place: int) -> tuple[int, ...]:
    """Nodes to which a point or split, by its place in `job.switches`, sends copies of a result for all.

    Of a point they are its children that no split serves, then its splits.
    """
    number = place - len(job.points)
    if number >= 0:
        point, children = job.splits[number].point, job.splits[number].children
    else:
        point, number = place, -1
        served = {child for split in job.splits if split.point == point for child in split.children}
        children = tuple(child for child in range(len(job.children_of(point))) if child not in served)
    targets = [target for target, _ in _children(job, point)]
    below = (split.switch for split in job.splits if (split.point, split.parent) == (point, number))
    return (*(targets[child] for child in children), *below)


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
        _grow(splits, point, -1, ways, routes=routes, can_split=can_split)
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
    *,
    routes: Sequence[int],
    can_split: Callable[[int], bool],
) -> list[int]:
    """Append the splits below a sender; returns the children that the sender sends their copies itself."""
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
            remaining_ways = [way._replace(nodes=way.nodes[shared:]) for way in group]
            direct += _grow(splits, point, parent, remaining_ways, routes=routes, can_split=can_split)
            continue
        number, hops = len(splits), able[-1]
        splits.append(Split(group[0].nodes[hops], point, parent, (), routes[group[0].child]))
        remaining_ways = [way._replace(nodes=way.nodes[hops + 1 :]) for way in group]
        branches = _grow(splits, point, number, remaining_ways, routes=routes, can_split=can_split)
        splits[number] = dataclasses.replace(splits[number], children=tuple(sorted(branches)))
    return direct


def _shared(ways: Sequence[_Way]) -> int:
    """Switches that all of these ways pass first; none is the end of one."""
    count = 0
    while all(len(way.nodes) > count + 1 for way in ways) and len({way.nodes[count] for way in ways}) == 1:
        count += 1
    return count


# Links that the packets of a job on switches pass.


ROOT = 0


def round_trip(network: Network, job: Job, worker: int) -> list[int]:
    # To the root and back, switch by switch of the tree.
    return [link for links in _paths(network, job, worker) for link in links]


def into_switches(network: Network, job: Job) -> set[int]:
    """Links on the paths into the job's switches: from its workers, its other switches, and its server."""
    links: set[int] = set()
    for worker in range(len(job.hosts)):
        # The path down to the worker enters no switch of the job.
        up, _, *between = _paths(network, job, worker)
        links |= {*up, *(link for links in between for link in links)}
    if job.server is not None:
        links |= {*path(network, job.server.host, job.switch, job.server.route)}
    return links


def _paths(network: Network, job: Job, worker: int) -> Iterator[list[int]]:
    """Up to a worker's switch and down again, then up to that one's parent and down, and so on."""
    down = down_paths(network, job).to_child
    child, route = (True, worker), job.routes[worker]
    node, point = job.hosts[worker], job.homes[worker] if job.homes else ROOT
    while True:
        yield path(network, node, job.switches[point], route)
        yield list(down[point, job.children_of(point).index(child)])
        if point == ROOT:
            return
        branch = job.branches[point - 1]
        node, route, child, point = branch.switch, branch.route, (False, point), branch.parent
