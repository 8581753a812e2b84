"""An upper bound of the bisection: the cheapest of some divisions of the switches."""

from __future__ import annotations

import math
from collections.abc import Iterator

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.topologies.measures.divisions import balance_bps
from netfold.topologies.measures.fabric import Fabric

_ITERATIONS = 300  # of the power method
_SETTLE = 12  # rounds in which switches without hosts follow their neighbours
_SWAP_RACKS_MAX = 512  # more racks are not swapped one by one

Sides = NDArray[np.float64]  # (S,): 1 and -1, 0 where a switch has no side yet


def cheapest_cut_bps(graph: nx.Graph, fabric: Fabric) -> int:
    """The least rate between halves of the hosts that was found; the bisection is that or less.

    Racks are put in an order, and each half of it is a side: as the graph lists them, by each coordinate and
    by group where switches have these attributes, by distance from one end, and by the second eigenvector of
    the Laplacian (Fiedler, 1973). Switches without hosts join the side that most of their capacity leads to,
    and pairs of racks change sides while that makes the cut cheaper (Kernighan and Lin, 1970).
    """
    best = _cut_bps(fabric, np.ones(len(fabric.switches)))  # half of the hosts against all switches
    for order in _orders(graph, fabric):
        for racks_ahead in _halves(fabric, order):
            sides = _settled(fabric, _started(fabric, racks_ahead))
            cut = _cut_bps(fabric, sides)
            if fabric.rack_rows.size <= _SWAP_RACKS_MAX:
                cut = min(cut, _cut_bps(fabric, _swapped(fabric, sides)))
            best = min(best, cut)
    return best


def _orders(graph: nx.Graph, fabric: Fabric) -> Iterator[NDArray[np.intp]]:
    """Racks in the order of a feature."""
    names = [fabric.switches[row] for row in fabric.rack_rows]
    yield np.arange(len(names))
    places = [graph.nodes[name].get("coordinates") for name in names]
    if all(places):
        for axis in range(min(map(len, places))):
            ranked = sorted((place[axis], place, at) for at, place in enumerate(places))
            yield np.array([at for _, _, at in ranked], np.intp)
    groups = [graph.nodes[name].get("group") for name in names]
    if all(group is not None for group in groups):
        yield np.argsort(np.array(groups), kind="stable")
    yield np.argsort(_far_from_an_end(fabric), kind="stable")
    yield np.argsort(_second_eigenvector(fabric)[fabric.rack_rows], kind="stable")


def _far_from_an_end(fabric: Fabric) -> NDArray[np.int64]:
    """Hops of each rack from a switch that is farthest from the first one."""
    end = int(np.argmax(_hops_from(fabric, 0)))
    hops: NDArray[np.int64] = _hops_from(fabric, end)[fabric.rack_rows]
    return hops


def _hops_from(fabric: Fabric, start: int) -> NDArray[np.int64]:
    hops = np.full(len(fabric.switches), -1, np.int64)
    frontier, level = [start], 0
    while frontier:
        hops[frontier] = level
        level += 1
        near = {int(one) for at in frontier for one in fabric.target[fabric.first[at] : fabric.first[at + 1]]}
        frontier = sorted(one for one in near if hops[one] < 0)
    return hops


def _second_eigenvector(fabric: Fabric) -> NDArray[np.float64]:
    """The second eigenvector of the Laplacian, about: power iterations that take out the constant vector."""
    weights = fabric.rate_bps / fabric.rate_bps.max() if fabric.rate_bps.size else np.zeros(0)
    size = len(fabric.switches)
    strength = np.bincount(fabric.source, weights, size)
    shift = 2 * strength.max(initial=1.0)
    vector = np.array([math.sin(1.0 + row) for row in range(size)])  # any start that is the same every time
    for _ in range(_ITERATIONS):
        vector -= vector.mean()
        vector /= max(float(np.abs(vector).max()), 1e-300)
        drawn = np.bincount(fabric.source, weights * vector[fabric.target], size)
        vector = (shift - strength) * vector + drawn
    return vector


def _halves(fabric: Fabric, order: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """The first racks of an order that hold half of the hosts: without and with the one in the middle."""
    held = np.cumsum(fabric.hosts_on_rack[order])
    middle = int(np.searchsorted(held, fabric.hosts_count // 2))
    yield order[: middle + 1]
    if held[middle] != fabric.hosts_count // 2:
        yield order[:middle]


def _started(fabric: Fabric, racks_ahead: NDArray[np.intp]) -> Sides:
    sides = np.zeros(len(fabric.switches))
    sides[fabric.rack_rows] = -1
    sides[fabric.rack_rows[racks_ahead]] = 1
    return sides


def _settled(fabric: Fabric, sides: Sides) -> Sides:
    """Sides in which switches without hosts follow most of their capacity; on a tie they stay."""
    free = np.ones(sides.size, np.bool_)
    free[fabric.rack_rows] = False
    sides = sides.copy()
    for _ in range(_SETTLE):
        drawn = np.bincount(fabric.source, fabric.rate_bps * sides[fabric.target], sides.size)
        moved = np.where(free & (drawn != 0), np.sign(drawn), sides)
        if (moved == sides).all():
            break
        sides = moved
    return np.where(sides == 0, 1.0, sides)


def _swapped(fabric: Fabric, sides: Sides) -> Sides:
    """Sides after pairs of racks with equal numbers of hosts were exchanged, the best pair first."""
    sides, rows = sides.copy(), fabric.rack_rows
    place = np.full(sides.size, -1, np.intp)
    place[rows] = np.arange(rows.size)
    between = np.zeros((rows.size, rows.size))
    inner = (place[fabric.source] >= 0) & (place[fabric.target] >= 0)
    between[place[fabric.source[inner]], place[fabric.target[inner]]] = fabric.rate_bps[inner]
    for _ in range(rows.size):
        drawn = np.bincount(fabric.source, fabric.rate_bps * sides[fabric.target], sides.size)[rows]
        gain = -drawn * sides[rows]  # capacity to the other side less that to the own
        ahead, behind = np.flatnonzero(sides[rows] > 0), np.flatnonzero(sides[rows] < 0)
        if not ahead.size or not behind.size:
            break
        gains = gain[ahead][:, None] + gain[behind] - 2 * between[np.ix_(ahead, behind)]
        gains[fabric.hosts_on_rack[ahead][:, None] != fabric.hosts_on_rack[behind]] = -1
        one, two = np.unravel_index(int(gains.argmax()), gains.shape)
        if gains[one, two] <= 0:
            break
        sides[rows[ahead[one]]], sides[rows[behind[two]]] = -1, 1
    return _settled(fabric, sides)


def _cut_bps(fabric: Fabric, sides: Sides) -> int:
    """Rate in one direction of the links between the sides, and of hosts that change sides to make halves."""
    crossing = fabric.rate_bps[(sides[fabric.source] > 0) & (sides[fabric.target] < 0)]
    near: list[int] = []
    far: list[int] = []
    for row, rates in zip(fabric.rack_rows, fabric.host_rates_bps, strict=True):
        (near if sides[row] > 0 else far).extend(rates)
    return int(sum(crossing.tolist())) + balance_bps(near, far)  # Python's ints: 2^18 links of 10^15 bps
