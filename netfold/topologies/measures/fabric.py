"""The switches of a topology as arrays: what all measures start from."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.topologies.graph import racks, switches

_PAIR_COST = 16  # cost of following a link for one pair, relative to following it for all pairs at once
_BLOCK = 512


@dataclass(frozen=True, eq=False)
class Fabric:
    """S switches, R of them with hosts (racks), and L links between switches, one direction each.

    Links are sorted by source; `first[s]` to `first[s + 1]` are those out of switch s.
    """

    switches: tuple[str, ...]
    rack_rows: NDArray[np.intp]  # (R,) row of each rack among the switches
    hosts_on_rack: NDArray[np.int64]  # (R,)
    host_rates_bps: tuple[tuple[int, ...], ...]  # of each rack
    first: NDArray[np.intp]  # (S + 1,)
    source: NDArray[np.intp]  # (L,)
    target: NDArray[np.intp]  # (L,)
    rate_bps: NDArray[np.int64]  # (L,)

    @property
    def hosts_count(self) -> int:
        """Number of hosts."""
        return int(self.hosts_on_rack.sum())

    @property
    def degree(self) -> NDArray[np.intp]:
        """Links from each switch to other switches: (S,)."""
        return np.diff(self.first)


def fabric_of(graph: nx.Graph) -> Fabric:
    """The arrays of a valid graph."""
    names = tuple(switches(graph))
    row = {name: index for index, name in enumerate(names)}
    on_rack = racks(graph)
    links = sorted(
        (row[a], row[b], rate)
        for one, two, rate in graph.edges(data="rate_bps")
        if one in row and two in row
        for a, b in ((one, two), (two, one))
    )
    source, target, rate_bps = (np.array([link[part] for link in links], np.int64) for part in range(3))
    return Fabric(
        names,
        np.array([row[name] for name in on_rack], np.intp),
        np.array([len(members) for members in on_rack.values()], np.int64),
        tuple(
            tuple(graph.edges[name, host]["rate_bps"] for host in members)
            for name, members in on_rack.items()
        ),
        np.searchsorted(source, np.arange(len(names) + 1)).astype(np.intp),
        source.astype(np.intp),
        target.astype(np.intp),
        rate_bps,
    )


def distances(fabric: Fabric) -> NDArray[np.int32]:
    """Hops from every switch to every rack: (S, R), −1 where there is no path.

    Breadth-first search towards all racks at once, over the pairs (switch, rack) that the step before found,
    or over all pairs where most are new. At most O(R · L) for any lengths of paths.
    """
    racks_count = fabric.rack_rows.size
    found = np.full((len(fabric.switches), racks_count), -1, np.int32)
    flat, degree = found.reshape(-1), fabric.degree
    at, rack = fabric.rack_rows, np.arange(racks_count)
    hops = 0
    while at.size:
        found[at, rack] = hops
        hops += 1
        if _PAIR_COST * int(degree[at].sum()) < fabric.target.size * racks_count:
            links, origin = expanded(fabric, at)
            pairs = fabric.target[links] * racks_count + rack[origin]
            at, rack = np.divmod(np.unique(pairs[flat[pairs] < 0]), racks_count)
        else:
            at, rack = np.nonzero(_reached(found == hops - 1, fabric) & (found < 0))
    return found


def expanded(fabric: Fabric, at: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Links out of all these switches, and for each link the index in `at` of the one that it leaves."""
    counts = fabric.degree[at]
    ends = np.cumsum(counts)
    origin = np.repeat(np.arange(at.size), counts)
    links = np.arange(int(counts.sum())) - (ends - counts)[origin] + fabric.first[at][origin]
    return links, origin


def _reached(frontier: NDArray[np.bool_], fabric: Fabric) -> NDArray[np.bool_]:
    """Pairs with a neighbour in the frontier."""
    reached = np.zeros_like(frontier)
    linked = np.flatnonzero(fabric.degree)
    for begin in range(0, frontier.shape[1], _BLOCK):  # memory for so many racks at a time
        block = frontier[:, begin : begin + _BLOCK]
        reached[linked, begin : begin + _BLOCK] = np.logical_or.reduceat(
            block[fabric.target], fabric.first[linked], axis=0
        )
    return reached
