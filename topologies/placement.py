"""Placement of workers on hosts, and of an aggregator on a switch that can aggregate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest

import networkx as nx

from netfold.spelling import closest
from netfold.topologies.graph import TopologyError, check_counts, hosts, racks, switches, where


def place_workers(
    graph: nx.Graph, count: int, policy: str | Sequence[str], noun: str = "worker"
) -> list[str]:
    """Host of each worker, in order of worker index; errors call a worker `noun`.

    A rack is a switch and the hosts on it. The policies are

    - "pack": fill one rack after the other;
    - "spread": one host of each rack in turn, until racks are full;
    - host names, one per worker: exactly these.

    Raises
    ------
    TopologyError
        Not enough hosts; an unknown policy; or names that are too few or too many, unknown, or used twice.
    """
    check_counts("place_workers", count=count)
    if not isinstance(policy, str):
        return _check_named(graph, count, policy, noun)
    available = len(hosts(graph))
    if count > available:
        raise TopologyError(
            f"{where(graph)}cannot place {count} {noun}s on {available} hosts, one a host; "
            f"use at most {available} {noun}s or a larger topology"
        )
    members = racks(graph).values()
    if policy == "pack":
        order = list(chain.from_iterable(members))
    elif policy == "spread":
        order = [host for turn in zip_longest(*members) for host in turn if host is not None]
    else:
        raise TopologyError(
            f"{where(graph)}there is no placement policy {policy!r}{_nearest(policy, ['pack', 'spread'])}; "
            "use 'pack', 'spread' or a list of host names"
        )
    return order[:count]


def place_aggregators(
    graph: nx.Graph, worker_hosts: Sequence[str], capable: Callable[[str], bool]
) -> list[str]:
    """All switches with a capable profile, sorted by total hops to all workers.

    Ties keep the graph's order.

    Raises
    ------
    TopologyError
        No switch is capable (the message lists the profiles), or a worker's host is unknown.
    """
    _check_known(graph, worker_hosts)
    candidates = [name for name in switches(graph) if capable(graph.nodes[name]["profile"])]
    if not candidates:
        found = Counter(graph.nodes[name]["profile"] for name in switches(graph))
        listed = ", ".join(f"{profile!r} on {number}" for profile, number in found.items())
        raise TopologyError(
            f"{where(graph)}no switch can aggregate: profiles found are {listed}; "
            "give one a programmable profile"
        )
    # Workers on a rack share its distances, so one search per rack is enough.
    workers_on_rack = Counter(next(iter(graph.adj[host])) for host in worker_hosts)
    hops_total = dict.fromkeys(candidates, 0)
    for rack, workers in workers_on_rack.items():
        hops = nx.single_source_shortest_path_length(graph, rack)
        for name in candidates:
            hops_total[name] += workers * (hops[name] + 1)
    return sorted(candidates, key=lambda name: hops_total[name])


def _check_named(graph: nx.Graph, count: int, names: Sequence[str], noun: str) -> list[str]:
    if len(names) != count:
        raise TopologyError(
            f"{where(graph)}{count} {noun}s need as many host names, found {len(names)}; "
            f"name exactly one a {noun}"
        )
    _check_known(graph, names)
    for name, uses in Counter(names).items():
        if uses > 1:
            raise TopologyError(
                f"{where(graph)}host {name!r} is named for {uses} {noun}s; a host takes one, so name another"
            )
    return list(names)


def _check_known(graph: nx.Graph, names: Sequence[str]) -> None:
    known = hosts(graph)
    lookup = set(known)
    for name in names:
        if name not in lookup:
            raise TopologyError(
                f"{where(graph)}there is no host {name!r}{_nearest(name, known)}; "
                f"there are {len(known)} hosts, from {known[0]!r} to {known[-1]!r}"
            )


def _nearest(name: str, known: Sequence[str]) -> str:
    meant = closest(name, known)
    return f" (did you mean {meant!r}?)" if meant else ""
