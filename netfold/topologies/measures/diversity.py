"""Path diversity: how many ways there are between racks (switches with hosts)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.topologies.measures.fabric import Fabric
from netfold.topologies.measures.spread import path_counts


class Diversity(NamedTuple):
    """Ways between two different racks, over all pairs of them."""

    shortest_min: float  # equal-cost shortest paths; whole numbers, exact up to 2^53
    shortest_median: float
    shortest_max: float
    disjoint_min: int  # paths without a common link, of the pair that has fewest


def diversity(fabric: Fabric, hops: NDArray[np.int32]) -> Diversity | None:
    """Path diversity; None with a single rack. `hops` are the `distances` of the fabric."""
    racks_count = fabric.rack_rows.size
    if racks_count < 2:
        return None
    counts = path_counts(fabric, hops)[fabric.rack_rows]
    between = counts[~np.eye(racks_count, dtype=np.bool_)]
    low, middle, high = (float(pick(between)) for pick in (np.min, np.median, np.max))
    return Diversity(low, middle, high, _disjoint_min(fabric, hops))


def _disjoint_min(fabric: Fabric, hops: NDArray[np.int32]) -> int:
    """Least number of paths without a common link between two racks: a least cut (Menger, 1927).

    A rack that has as many such paths to a set of racks as the least known so far joins the set, because no
    smaller cut leaves it outside (Even and Tarjan, 1975).
    """
    neighbours = [
        fabric.target[begin:end].tolist()
        for begin, end in zip(fabric.first[:-1], fabric.first[1:], strict=True)
    ]
    racks = fabric.rack_rows[np.argsort(hops[fabric.rack_rows, 0], kind="stable")].tolist()
    joined, least = {racks[0]}, len(neighbours[racks[0]])
    for rack in racks[1:]:
        least = min(least, _disjoint_paths(neighbours, rack, joined, least))
        joined.add(rack)
    return least


def _disjoint_paths(neighbours: list[list[int]], start: int, ends: set[int], enough: int) -> int:
    """Paths without a common link from a switch to any of several others; at most `enough` are looked for.

    Shortest augmenting paths in a network of unit capacities (Edmonds and Karp, 1972).
    """
    used: set[tuple[int, int]] = set()
    for found in range(enough):
        before = {start: start}
        frontier, end = [start], None
        while frontier and end is None:
            following = []
            for at in frontier:
                for near in neighbours[at]:
                    if near not in before and (at, near) not in used:
                        before[near] = at
                        following.append(near)
            end = next((at for at in following if at in ends), None)
            frontier = following
        if end is None:
            return found
        while end != start:
            at, end = end, before[end]
            if (at, end) in used:
                used.remove((at, end))
            else:
                used.add((end, at))
    return enough
