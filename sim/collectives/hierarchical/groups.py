"""Groups of a job's workers: by the switch that they hang on, by island, or so many in rank order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from netfold.sim.collectives.spec import JobContext
from netfold.topologies.routing import Network

Groups = tuple[tuple[int, ...], ...]  # workers, in rank order in each


def groups_of(groups: str | int, job: JobContext) -> Groups:
    """The groups, in the order of their first workers.

    Raises
    ------
    ScenarioError
        There is one worker, a worker's host is in no island, or every worker would be in a group of its own
        or all in one.
    """
    if isinstance(groups, int):
        found = _by([rank // groups for rank in range(len(job.hosts))])
    elif groups == "rack":
        found = _by([next(iter(job.site.graph[host])) for host in job.hosts])
    else:
        found = _by([_island(host, job) for host in job.hosts])
    workers = len(job.hosts)
    if workers == 1:
        raise job.location.job_error(
            "workers",
            "one worker: there are no groups to divide it into",
            "use more workers, or another collective.kind",
        )
    if len(found) in (1, workers):
        one = "all workers are in one group" if len(found) == 1 else "every worker is in a group of its own"
        fewer = max(2, workers // 2)
        raise job.location.job_error(
            "collective.groups",
            f"{one}: there is nothing to do {'across' if len(found) == 1 else 'inside'} groups",
            f"use a number of workers a group, such as {fewer}, or another collective.kind",
        )
    return found


def groups_on(groups: str | int, network: Network, nodes: Sequence[int]) -> Groups:
    """The same on the nodes of workers, without a scenario.

    Raises
    ------
    ValueError
        Islands are asked for, which a network does not know.
    """
    if isinstance(groups, int):
        return _by([rank // groups for rank in range(len(nodes))])
    if groups == "rack":
        return _by([int(network.link_target[node]) for node in nodes])  # a host's link has its number
    raise ValueError("a network without its graph has no islands: use rack, or a number of workers a group")


def _by(keys: Sequence[Hashable]) -> Groups:
    members: dict[Hashable, list[int]] = {}
    for rank, key in enumerate(keys):
        members.setdefault(key, []).append(rank)
    return tuple(map(tuple, members.values()))


def _island(host: str, job: JobContext) -> Hashable:
    nodes = job.site.graph.nodes
    if "island" not in nodes[host]:
        raise job.location.job_error(
            "collective.groups",
            f"host {host} is in no island: the topology has none",
            "use rack, or a number of workers a group",
        )
    island: Hashable = nodes[host]["island"]
    return island
