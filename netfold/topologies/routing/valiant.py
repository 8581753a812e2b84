"""Valiant routing: minimally to a random intermediate group, then minimally to the target.

Valiant and Brebner, STOC 1981; on dragonflies by groups: Kim, Dally, Scott and Abts, ISCA 2008, section
4.2. Where every switch has a `group`, those are the groups; elsewhere each switch is a group of its own.
Neither part of the way is a loop, but a node may be on both. Deadlock is not modelled: buffers here drop,
or never fill.
"""

from __future__ import annotations

from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.homomorphic.kernels import purposes
from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.topologies.graph import switches, where
from netfold.topologies.routing.groups import groups_of
from netfold.topologies.routing.tables import Fabric, PolicyError, Tables


class Detours(NamedTuple):
    """Groups of switches, and where a group is entered; switches are counted from the first switch."""

    group: NDArray[np.int32]  # (S,) from 0
    groups_count: int
    first_entry: NDArray[np.int64]  # (S * groups + 1,) rows of `entries`; (1,) where a switch is a group
    entries: NDArray[np.int32]  # by switch, then group: the switches of the group that are nearest, ascending


def find_detours(graph: nx.Graph, tables: Tables) -> Detours:
    """The groups of a graph and their entries: O(S²) for S switches if there are groups.

    Raises
    ------
    PolicyError
        A group is no int.
    """
    names, group = switches(graph), groups_of(graph)
    if group is None:
        for name in names:
            found = graph.nodes[name].get("group")
            if not (found is None or type(found) is int):
                raise PolicyError(f"{where(graph)}switch {name!r} has group {found!r}, must be an int")
        single = np.arange(len(names), dtype=np.int32)
        return Detours(single, len(names), np.zeros(1, np.int64), np.zeros(0, np.int32))
    count, hops = int(group.max()) + 1, hops_between(tables)
    owners, members = [], []
    for number in range(count):
        own = np.flatnonzero(group == number)
        distance = hops[:, own]
        switch, member = np.nonzero(distance == distance.min(axis=1, keepdims=True))
        owners.append(switch * count + number)
        members.append(own[member])
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    first_entry = np.searchsorted(owner[order], np.arange(len(names) * count + 1)).astype(np.int64)
    return Detours(group, count, first_entry, np.concatenate(members)[order].astype(np.int32))


def hops_between(tables: Tables) -> NDArray[np.int16]:
    """(S, S) hops from each switch to each other."""
    fabric, count = tables.fabric, tables.fabric.switches_count
    following = np.empty((count, count), np.int32)
    for switch in range(count):
        port = tables.choice[switch].astype(np.int64)
        is_set = port >= fabric.degrees[switch]
        rows = tables.first_set[switch] + port[is_set] - fabric.degrees[switch]
        if rows.size and fabric.degrees[switch]:
            port[is_set] = tables.ports[tables.sets[rows, 0]]
        ends = fabric.far_end[fabric.first_port[switch] : fabric.first_port[switch + 1]]
        following[switch] = ends[port] if ends.size else switch
    target = np.arange(count)
    at = np.broadcast_to(target[:, None], (count, count)).copy()
    hops = np.zeros((count, count), np.int16)
    while (away := at != target).any():
        hops += away
        at = np.where(away, following[at, target], at)
    return hops


def detour(detours: Detours, fabric: Fabric, source: int, target: int, key: int) -> int:
    """The intermediate switch (a node) of a flow between two hosts; -1 where it goes straight on.

    Hosts of one group, and hosts where there is no third group, reach each other minimally.
    """
    here, there = int(fabric.home[source]), int(fabric.home[target])
    first, second = sorted((int(detours.group[here]), int(detours.group[there])))
    others = detours.groups_count - 2
    if first == second or others < 1:
        return -1
    draw = mix_plain(purposes.VALIANT, source, target, key)
    group = draw % others
    group += group >= first
    group += group >= second
    if detours.entries.size == 0:
        return fabric.hosts_count + group
    row = here * detours.groups_count + group
    begin, end = int(detours.first_entry[row]), int(detours.first_entry[row + 1])
    return fabric.hosts_count + int(detours.entries[begin + (draw >> 32) % (end - begin)])
