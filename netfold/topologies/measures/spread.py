"""Traffic spread evenly over all shortest paths: numbers of paths, and loads of links.

At every switch the traffic for a rack divides evenly among the links that lead closer to it (by hops), as
equal-cost multi-path does with very many flows. Loads are exact for that division, up to float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.topologies.measures.fabric import Fabric, expanded

_PAIRS = 2**19  # pairs of a switch and a rack that are looked at together


class _Part(NamedTuple):
    """Pairs of a switch and a rack at one distance, and the links that lead closer."""

    rows: NDArray[np.intp]  # switch of each pair
    columns: NDArray[np.intp]  # rack of each pair
    links: NDArray[np.intp]
    origin: NDArray[np.intp]  # pair that each of the links belongs to


def path_counts(fabric: Fabric, hops: NDArray[np.int32]) -> NDArray[np.float64]:
    """Number of shortest paths from every switch to every rack: (S, R); exact up to 2^53.

    `hops` are the `distances` of the fabric.
    """
    counts = np.zeros(hops.shape)
    counts[fabric.rack_rows, np.arange(hops.shape[1])] = 1
    flat = counts.reshape(-1)
    for part in _parts(fabric, hops, outward=True):
        beyond = counts[fabric.target[part.links], part.columns[part.origin]]
        found = np.bincount(part.origin, beyond, part.rows.size)
        flat[part.rows * hops.shape[1] + part.columns] = found
    return counts


def uniform_loads(fabric: Fabric, hops: NDArray[np.int32]) -> NDArray[np.float64]:
    """Load of every link if every host sends one unit to every other: (L,)."""
    flow = np.zeros(hops.shape)
    flow[fabric.rack_rows] = np.outer(fabric.hosts_on_rack, fabric.hosts_on_rack)
    flat, loads = flow.reshape(-1), np.zeros(fabric.target.size)
    for part in _parts(fabric, hops, outward=False):
        ways = np.bincount(part.origin, minlength=part.rows.size)
        each = (flow[part.rows, part.columns] / ways)[part.origin]
        loads += np.bincount(part.links, each, loads.size)
        pairs = fabric.target[part.links] * hops.shape[1] + part.columns[part.origin]
        np.add.at(flat, pairs, each)
    return loads


def worst_loads(fabric: Fabric, hops: NDArray[np.int32]) -> NDArray[np.float64]:
    """Most load of every link if every host sends at most one unit, and receives at most one: (L,).

    An upper bound over all such traffic: what all sources together can put on the link, each by its worst
    target; or what all targets together can draw over it, each from its worst source, if that is less. Takes
    O(R² · L).
    """
    racks_count = hops.shape[1]
    by_source = np.zeros((racks_count, fabric.target.size))  # largest share of its traffic on a link
    by_target = np.zeros(fabric.target.size)
    for column in range(racks_count):
        shares = _shares(fabric, hops[:, column])
        np.maximum(by_source, shares, out=by_source)
        by_target += fabric.hosts_on_rack[column] * shares.max(axis=0)
    from_sources = np.zeros(fabric.target.size)
    for hosts, shares in zip(fabric.hosts_on_rack.tolist(), by_source, strict=True):
        from_sources += hosts * shares
    return np.minimum(from_sources, by_target)


def _shares(fabric: Fabric, hops: NDArray[np.int32]) -> NDArray[np.float64]:
    """Share of the traffic from each rack on each link, all of it to one rack at `hops`: (R, L)."""
    racks_count = fabric.rack_rows.size
    shares = np.zeros((racks_count, fabric.target.size))
    passing = np.zeros((len(fabric.switches), racks_count))  # share of a rack's traffic through a switch
    passing[fabric.rack_rows, np.arange(racks_count)] = 1
    for level in range(int(hops.max()), 0, -1):
        links, origin = expanded(fabric, rows := np.flatnonzero(hops == level))
        closer = hops[fabric.target[links]] == level - 1
        links, origin = links[closer], origin[closer]
        ways = np.bincount(origin, minlength=rows.size)
        each = passing[rows[origin]] / ways[origin][:, None]
        shares[:, links] = each.T
        np.add.at(passing, fabric.target[links], each)
    return shares


def _parts(fabric: Fabric, hops: NDArray[np.int32], outward: bool) -> Iterator[_Part]:
    """All pairs with a path, from the nearest outward or from the farthest inward."""
    flat = hops.reshape(-1)
    order = np.argsort(flat if outward else -flat, kind="stable")
    bounds = [0, *(np.flatnonzero(np.diff(flat[order])) + 1).tolist(), order.size]
    for begin, end in pairwise(bounds):
        if flat[order[begin]] <= 0:
            continue
        for start in range(begin, end, _PAIRS):
            rows, columns = np.divmod(order[start : min(end, start + _PAIRS)], hops.shape[1])
            links, origin = expanded(fabric, rows)
            closer = hops[fabric.target[links], columns[origin]] == hops[rows, columns][origin] - 1
            yield _Part(rows, columns, links[closer], origin[closer])
