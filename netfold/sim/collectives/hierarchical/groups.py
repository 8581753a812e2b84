"""Groups of a job's workers: by the switch that they hang on, by island, or in rank order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from netfold.sim.collectives.collective import JobContext
from netfold.topologies.network import Network

Groups = tuple[tuple[int, ...], ...]  # workers, in rank order in each


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
