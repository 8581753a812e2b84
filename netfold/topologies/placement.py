"""Placement of workers on hosts, and of an aggregator on a switch that can aggregate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, zip_longest

import networkx as nx

from netfold.errors import closest
from netfold.kernels import rng_streams
from netfold.kernels.keyed_random import mix_plain
from netfold.topologies.graph import TopologyError, check_counts, hosts, racks, switches, where

# A rack is a switch and the hosts on it; where all hosts have an `island` (a server of several GPUs), it is
# an island, its hosts in the order of their `rail`. The policies are
#
# - "pack": fill one rack after the other. So consecutive ranks share a server and the local rank is the rail,
#   as launchers such as torchrun and mpirun number them;
# - "spread": one host of each rack in turn, until racks are full;
# - "random": all hosts in an order that is drawn from a seed (Fisher-Yates by sorting keys);
# - "rails": fill one rail across all islands, then the next. So consecutive ranks are on one rail, which
#   joins the same GPU of every server by switches of its own (NVIDIA's rail-optimized networks).
POLICIES = ("pack", "spread", "random", "rails")


def place_workers(
    graph: nx.Graph, count: int, policy: str | Sequence[str], noun: str = "worker", seed: int = 0
) -> list[str]:
    # In order of rank. Errors call a worker `noun`.
    check_counts("place_workers", count=count)
    if not isinstance(policy, str):
        return _check_named(graph, count, policy, noun)
    available = len(hosts(graph))
    if count > available:
        raise TopologyError(
            f"{where(graph)}cannot place {count} {noun}s on {available} hosts, one a host; "
            f"use at most {available} {noun}s or a larger topology"
        )
    return _order(graph, policy, seed)[:count]


def _order(graph: nx.Graph, policy: str, seed: int) -> list[str]:
    """All hosts, in the order in which a policy takes them."""
    if policy == "pack":
        return list(chain.from_iterable(_groups(graph)))
    if policy == "spread":
        return [host for turn in zip_longest(*_groups(graph)) for host in turn if host is not None]
    if policy == "random":
        keys = {host: mix_plain(seed, rng_streams.PLACEMENT, row) for row, host in enumerate(hosts(graph))}
        return sorted(keys, key=keys.__getitem__)
    if policy == "rails":
        return _by_rail(graph)
    others = ", ".join(repr(name) for name in POLICIES)
    raise TopologyError(
        f"{where(graph)}there is no placement policy {policy!r}{_nearest(policy, POLICIES)}; "
        f"use {others} or a list of host names"
    )


def _groups(graph: nx.Graph) -> list[list[str]]:
    """The hosts of each island by rail, or of each rack where hosts are in no islands."""
    islands = {host: graph.nodes[host].get("island") for host in hosts(graph)}
    if None in islands.values():
        named: dict[str, list[str]] = {}
        for switch, members in racks(graph).items():
            for host in members:  # of several planes, the first one's
                named.setdefault(graph.nodes[host].get("rack", switch), []).append(host)
        return list(named.values())
    groups: dict[int, list[str]] = {}
    for host, island in islands.items():
        groups.setdefault(island, []).append(host)
    return [sorted(members, key=lambda host: graph.nodes[host].get("rail", 0)) for members in groups.values()]


def _by_rail(graph: nx.Graph) -> list[str]:
    without = [host for host in hosts(graph) if not {"rail", "island"} <= graph.nodes[host].keys()]
    if without:
        others = ", ".join(repr(name) for name in POLICIES if name != "rails")
        raise TopologyError(
            f"{where(graph)}cannot place by rails: host {without[0]!r} has no rail and island, as hosts of "
            f"topology rail_optimized have; use {others} or a list of host names"
        )
    nodes = graph.nodes
    return sorted(hosts(graph), key=lambda host: (nodes[host]["rail"], nodes[host]["island"]))


def place_aggregators(
    graph: nx.Graph,
    worker_hosts: Sequence[str],
    capable: Callable[[str], bool],
    trees: Mapping[str, int] | None = None,
) -> list[str]:
    """All switches with a capable profile, sorted by total hops to all workers, then by its `trees`.

    `trees` says at which switches trees of other jobs have their root, and how many. Ties keep the graph's
    order.

    Raises
    ------
    TopologyError
        No switch is capable (the message lists the profiles), or a worker's host is unknown.
    """
    _check_known(graph, worker_hosts)
    candidates = [name for name in switches(graph) if capable(graph.nodes[name]["profile"])]
    if not candidates:
        profile_counts = Counter(graph.nodes[name]["profile"] for name in switches(graph))
        listed = ", ".join(f"{profile!r} on {number}" for profile, number in profile_counts.items())
        raise TopologyError(
            f"{where(graph)}no switch can aggregate: profiles found are {listed}; "
            "give one a programmable profile"
        )
    # Workers on a rack share its distances, so one search per rack is enough.
    workers_on_rack = Counter(next(iter(graph.adj[host])) for host in worker_hosts)
    taken = trees or {}
    hops_total = dict.fromkeys(candidates, 0)
    for rack, workers in workers_on_rack.items():
        hops = nx.single_source_shortest_path_length(graph, rack)
        for name in candidates:
            hops_total[name] += workers * (hops[name] + 1)
    return sorted(candidates, key=lambda name: (hops_total[name], taken.get(name, 0)))


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
    host_names = hosts(graph)
    lookup = set(host_names)
    for name in names:
        if name not in lookup:
            raise TopologyError(
                f"{where(graph)}there is no host {name!r}{_nearest(name, host_names)}; "
                f"there are {len(host_names)} hosts, from {host_names[0]!r} to {host_names[-1]!r}"
            )


def _nearest(name: str, known: Sequence[str]) -> str:
    meant = closest(name, known)
    return f" (did you mean {meant!r}?)" if meant else ""
