"""Measures of a topology that need no simulation: bisection, cost, path diversity, spread traffic."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise, product
from math import gcd, prod
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.topologies import exact_bisection
from netfold.topologies.graph import hosts, racks, server_ports, switches, validate

# The exact bisection of a topology, by all divisions of its switches.


# With more divisions of the switches the bisection is not computed this way; this many take about a second.
DIVISIONS_MAX = 2**14


class _Group(NamedTuple):
    """Interchangeable switches: the same neighbours at the same rates, and the same rates of hosts."""

    switches: list[str]
    host_rates_bps: tuple[int, ...]
    """Rates of the hosts on one of the switches, sorted; all have the same."""


def by_divisions(graph: nx.Graph) -> int | None:
    """Smallest rate in one direction between two halves of the hosts (equal, or one apart); exact.

    That is the minimum of the maximum flow between the halves over all such splits of the hosts. A maximum
    flow is a minimum cut, and a cut puts each switch on one side; so instead of splits of the hosts we go
    through divisions of the *switches*. Given one, the links between its sides are cut and hosts follow
    their switch; if one side then has too many hosts, those with the slowest links change sides, each at the
    cost of its link. Of interchangeable switches only the number on a side matters, so a leaf-spine of L
    leaves and S spines has (L + 1)·(S + 1) divisions.

    The problem is NP-hard in general: None where there are more than `DIVISIONS_MAX` divisions.
    """
    groups = _exchangeable(graph)
    if prod(len(group.switches) + 1 for group in groups) > DIVISIONS_MAX:
        return None
    group_links = [
        (index, two, graph.edges[groups[index].switches[0], groups[two].switches[0]]["rate_bps"])
        for index, two in combinations(range(len(groups)), 2)
        if graph.has_edge(groups[index].switches[0], groups[two].switches[0])
    ]
    sizes = [len(group.switches) for group in groups]
    best: int | None = None
    for near in product(*(range(size + 1) for size in sizes)):
        far = [size - count for size, count in zip(sizes, near, strict=True)]
        cut_bps = sum(
            rate * (near[index] * far[two] + far[index] * near[two]) for index, two, rate in group_links
        )
        if best is None or cut_bps < best:
            cut_bps += balance_bps(_host_rates(groups, near), _host_rates(groups, far))
            best = cut_bps if best is None else min(best, cut_bps)
    return best


def _exchangeable(graph: nx.Graph) -> list[_Group]:
    groups: dict[tuple[frozenset[tuple[str, int]], tuple[int, ...]], list[str]] = defaultdict(list)
    on_rack = racks(graph)
    for name in switches(graph):
        members = set(on_rack.get(name, ()))
        neighbours = {other: edge["rate_bps"] for other, edge in graph.adj[name].items()}
        host_rates = tuple(sorted(rate for other, rate in neighbours.items() if other in members))
        uplinks = frozenset(item for item in neighbours.items() if item[0] not in members)
        groups[uplinks, host_rates].append(name)
    return [_Group(names, host_rates) for (_, host_rates), names in groups.items()]


def _host_rates(groups: Sequence[_Group], counts: Sequence[int]) -> list[int]:
    """Rates of the hosts on `counts[i]` switches of each group i."""
    return [
        rate for group, count in zip(groups, counts, strict=True) for rate in group.host_rates_bps * count
    ]


def balance_bps(near: Sequence[int], far: Sequence[int]) -> int:
    """Smallest total rate of the hosts that change sides to make the sides differ by at most one host."""
    smaller, larger = sorted((near, far), key=len)
    return sum(sorted(larger)[: (len(larger) - len(smaller)) // 2])


# The switches of a topology as arrays: what all measures start from.


_PAIR_COST = 16  # cost of following a link for one pair, relative to following it for all pairs at once
_BLOCK = 512


@dataclass(frozen=True, eq=False)
class SwitchFabric:
    """S switches, R of them with hosts (racks), and L links between switches, one direction each.

    Links are sorted by source; `first[s]` to `first[s + 1]` are those out of switch s.
    """

    switches: tuple[str, ...]
    rack_rows: NDArray[np.intp]  # (R,) row of each rack among the switches
    hosts_on_rack: NDArray[np.int64]  # (R,)
    host_rates_bps: tuple[tuple[int, ...], ...]
    """Rates of the hosts on each rack."""
    first: NDArray[np.intp]  # (S + 1,)
    source: NDArray[np.intp]  # (L,)
    target: NDArray[np.intp]  # (L,)
    rate_bps: NDArray[np.int64]  # (L,)

    @property
    def hosts_count(self) -> int:
        return int(self.hosts_on_rack.sum())

    @property
    def degree(self) -> NDArray[np.intp]:
        # (S,) links to other switches.
        return np.diff(self.first)


def fabric_of(graph: nx.Graph) -> SwitchFabric:
    """The arrays of a valid graph."""
    names = tuple(switches(graph))
    row = {name: index for index, name in enumerate(names)}
    on_rack = racks(graph)
    links = sorted(
        (row[a], row[b], rate)
        for node, two, rate in graph.edges(data="rate_bps")
        if node in row and two in row
        for a, b in ((node, two), (two, node))
    )
    source, target, rate_bps = (np.array([link[part] for link in links], np.int64) for part in range(3))
    return SwitchFabric(
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


def distances(fabric: SwitchFabric) -> NDArray[np.int32]:
    """Hops from every switch to every rack: (S, R), −1 where there is no path.

    Breadth-first search towards all racks at once, over the pairs (switch, rack) that the step before found,
    or over all pairs where most are new. At most O(R · L) for any lengths of paths.
    """
    racks_count = fabric.rack_rows.size
    hop_counts = np.full((len(fabric.switches), racks_count), -1, np.int32)
    flat, degree = hop_counts.reshape(-1), fabric.degree
    at, rack = fabric.rack_rows, np.arange(racks_count)
    hops = 0
    while at.size:
        hop_counts[at, rack] = hops
        hops += 1
        if _PAIR_COST * int(degree[at].sum()) < fabric.target.size * racks_count:
            links, origin = expand(fabric, at)
            pairs = fabric.target[links] * racks_count + rack[origin]
            at, rack = np.divmod(np.unique(pairs[flat[pairs] < 0]), racks_count)
        else:
            at, rack = np.nonzero(_reach(hop_counts == hops - 1, fabric) & (hop_counts < 0))
    return hop_counts


def expand(fabric: SwitchFabric, at: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Links out of all these switches, and for each link the index in `at` of the one that it leaves."""
    counts = fabric.degree[at]
    ends = np.cumsum(counts)
    origin = np.repeat(np.arange(at.size), counts)
    links = np.arange(int(counts.sum())) - (ends - counts)[origin] + fabric.first[at][origin]
    return links, origin


def _reach(frontier: NDArray[np.bool_], fabric: SwitchFabric) -> NDArray[np.bool_]:
    """Pairs with a neighbour in the frontier."""
    reached = np.zeros_like(frontier)
    linked = np.flatnonzero(fabric.degree)
    for begin in range(0, frontier.shape[1], _BLOCK):  # memory for so many racks at a time
        block = frontier[:, begin : begin + _BLOCK]
        reached[linked, begin : begin + _BLOCK] = np.logical_or.reduceat(
            block[fabric.target], fabric.first[linked], axis=0
        )
    return reached


# An upper bound of the bisection: the cheapest of some divisions of the switches.


_ITERATIONS = 300
"""Iterations of the power method."""
_SETTLE = 12  # rounds in which switches without hosts follow their neighbours
_SWAP_RACKS_MAX = 512  # more racks are not swapped one by one

Sides = NDArray[np.float64]  # (S,): 1 and -1, 0 where a switch has no side yet


def cheapest_cut_bps(graph: nx.Graph, fabric: SwitchFabric) -> int:
    """The least rate between halves of the hosts that was found; the bisection is that or less.

    Racks are put in an order, and each half of it is a side: as the graph lists them, by each coordinate and
    by group where switches have these attributes, by distance from one end, and by the second eigenvector of
    the Laplacian (Fiedler, 1973). Switches without hosts join the side that most of their capacity leads to,
    and pairs of racks change sides while that makes the cut cheaper (Kernighan and Lin, 1970).
    """
    best = _cut_bps(fabric, np.ones(len(fabric.switches)))  # half of the hosts against all switches
    for order in _orders(graph, fabric):
        for racks_ahead in _halves(fabric, order):
            sides = _settle(fabric, _start(fabric, racks_ahead))
            cut = _cut_bps(fabric, sides)
            if fabric.rack_rows.size <= _SWAP_RACKS_MAX:
                cut = min(cut, _cut_bps(fabric, _swap(fabric, sides)))
            best = min(best, cut)
    return best


def _orders(graph: nx.Graph, fabric: SwitchFabric) -> Iterator[NDArray[np.intp]]:
    """Racks in the order of a feature."""
    names = [fabric.switches[row] for row in fabric.rack_rows]
    yield np.arange(len(names))
    places = [graph.nodes[name].get("coordinates") for name in names]
    if all(places):
        for axis in range(min(map(len, places))):
            ranked = sorted((coordinates[axis], coordinates, at) for at, coordinates in enumerate(places))
            yield np.array([at for _, _, at in ranked], np.intp)
    groups = [graph.nodes[name].get("group") for name in names]
    if all(group is not None for group in groups):
        yield np.argsort(np.array(groups), kind="stable")
    yield np.argsort(_far_from_an_end(fabric), kind="stable")
    yield np.argsort(_second_eigenvector(fabric)[fabric.rack_rows], kind="stable")


def _far_from_an_end(fabric: SwitchFabric) -> NDArray[np.int64]:
    """Hops of each rack from a switch that is farthest from the first one."""
    end = int(np.argmax(_hops_from(fabric, 0)))
    hops: NDArray[np.int64] = _hops_from(fabric, end)[fabric.rack_rows]
    return hops


def _hops_from(fabric: SwitchFabric, start: int) -> NDArray[np.int64]:
    hops = np.full(len(fabric.switches), -1, np.int64)
    frontier, level = [start], 0
    while frontier:
        hops[frontier] = level
        level += 1
        near = {int(row) for at in frontier for row in fabric.target[fabric.first[at] : fabric.first[at + 1]]}
        frontier = sorted(row for row in near if hops[row] < 0)
    return hops


def _second_eigenvector(fabric: SwitchFabric) -> NDArray[np.float64]:
    """The second eigenvector of the Laplacian, about: power iterations that take out the constant vector."""
    weights = fabric.rate_bps / fabric.rate_bps.max() if fabric.rate_bps.size else np.zeros(0)
    size = len(fabric.switches)
    strength = np.bincount(fabric.source, weights, size)
    shift = 2 * strength.max(initial=1.0)
    vector = np.array([math.sin(1.0 + row) for row in range(size)])  # any start that is the same every time
    for _ in range(_ITERATIONS):
        vector -= vector.mean()
        vector /= max(float(np.abs(vector).max()), 1e-300)
        neighbour_sums = np.bincount(fabric.source, weights * vector[fabric.target], size)
        vector = (shift - strength) * vector + neighbour_sums
    return vector


def _halves(fabric: SwitchFabric, order: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """The first racks of an order that hold half of the hosts: without and with the one in the middle."""
    hosts_so_far = np.cumsum(fabric.hosts_on_rack[order])
    middle = int(np.searchsorted(hosts_so_far, fabric.hosts_count // 2))
    yield order[: middle + 1]
    if hosts_so_far[middle] != fabric.hosts_count // 2:
        yield order[:middle]


def _start(fabric: SwitchFabric, racks_ahead: NDArray[np.intp]) -> Sides:
    sides = np.zeros(len(fabric.switches))
    sides[fabric.rack_rows] = -1
    sides[fabric.rack_rows[racks_ahead]] = 1
    return sides


def _settle(fabric: SwitchFabric, sides: Sides) -> Sides:
    """Sides in which switches without hosts follow most of their capacity; on a tie they stay."""
    free = np.ones(sides.size, np.bool_)
    free[fabric.rack_rows] = False
    sides = sides.copy()
    for _ in range(_SETTLE):
        pull_bps = np.bincount(fabric.source, fabric.rate_bps * sides[fabric.target], sides.size)
        moved = np.where(free & (pull_bps != 0), np.sign(pull_bps), sides)
        if (moved == sides).all():
            break
        sides = moved
    return np.where(sides == 0, 1.0, sides)


def _swap(fabric: SwitchFabric, sides: Sides) -> Sides:
    """Sides after pairs of racks with equal numbers of hosts were exchanged, the best pair first."""
    sides, rows = sides.copy(), fabric.rack_rows
    rack_numbers = np.full(sides.size, -1, np.intp)
    rack_numbers[rows] = np.arange(rows.size)
    between = np.zeros((rows.size, rows.size))
    inner = (rack_numbers[fabric.source] >= 0) & (rack_numbers[fabric.target] >= 0)
    between[rack_numbers[fabric.source[inner]], rack_numbers[fabric.target[inner]]] = fabric.rate_bps[inner]
    for _ in range(rows.size):
        pull_bps = np.bincount(fabric.source, fabric.rate_bps * sides[fabric.target], sides.size)[rows]
        gain = -pull_bps * sides[rows]  # capacity to the other side less that to the own
        ahead, behind = np.flatnonzero(sides[rows] > 0), np.flatnonzero(sides[rows] < 0)
        if not ahead.size or not behind.size:
            break
        gains = gain[ahead][:, None] + gain[behind] - 2 * between[np.ix_(ahead, behind)]
        gains[fabric.hosts_on_rack[ahead][:, None] != fabric.hosts_on_rack[behind]] = -1
        best_ahead, two = np.unravel_index(int(gains.argmax()), gains.shape)
        if gains[best_ahead, two] <= 0:
            break
        sides[rows[ahead[best_ahead]]], sides[rows[behind[two]]] = -1, 1
    return _settle(fabric, sides)


def _cut_bps(fabric: SwitchFabric, sides: Sides) -> int:
    """Rate in one direction of the links between the sides, and of hosts that change sides to make halves."""
    crossing = fabric.rate_bps[(sides[fabric.source] > 0) & (sides[fabric.target] < 0)]
    near: list[int] = []
    far: list[int] = []
    for row, rates in zip(fabric.rack_rows, fabric.host_rates_bps, strict=True):
        (near if sides[row] > 0 else far).extend(rates)
    return int(sum(crossing.tolist())) + balance_bps(near, far)  # Python's ints: 2^18 links of 10^15 bps


# Traffic spread evenly over all shortest paths: numbers of paths, and loads of links.
#
# At every switch the traffic for a rack divides evenly among the links that lead closer to it (by hops), as
# equal-cost multi-path does with very many flows. Loads are exact for that division, up to float64.


_PAIRS = 2**19  # pairs of a switch and a rack that are looked at together


class _Part(NamedTuple):
    """Pairs of a switch and a rack at one distance, and the links that lead closer."""

    rows: NDArray[np.intp]  # switch of each pair
    columns: NDArray[np.intp]  # rack of each pair
    links: NDArray[np.intp]
    origin: NDArray[np.intp]  # pair that each of the links belongs to


def path_counts(fabric: SwitchFabric, hops: NDArray[np.int32]) -> NDArray[np.float64]:
    """Number of shortest paths from every switch to every rack: (S, R); exact up to 2^53.

    `hops` are the `distances` of the fabric.
    """
    counts = np.zeros(hops.shape)
    counts[fabric.rack_rows, np.arange(hops.shape[1])] = 1
    flat = counts.reshape(-1)
    for part in _parts(fabric, hops, outward=True):
        beyond = counts[fabric.target[part.links], part.columns[part.origin]]
        paths = np.bincount(part.origin, beyond, part.rows.size)
        flat[part.rows * hops.shape[1] + part.columns] = paths
    return counts


def uniform_loads(fabric: SwitchFabric, hops: NDArray[np.int32]) -> NDArray[np.float64]:
    """Load of every link if every host sends one unit to every other: (L,)."""
    flow = np.zeros(hops.shape)
    flow[fabric.rack_rows] = np.outer(fabric.hosts_on_rack, fabric.hosts_on_rack)
    flat, loads = flow.reshape(-1), np.zeros(fabric.target.size)
    for part in _parts(fabric, hops, outward=False):
        ways = np.bincount(part.origin, minlength=part.rows.size)
        flow_each = (flow[part.rows, part.columns] / ways)[part.origin]
        loads += np.bincount(part.links, flow_each, loads.size)
        pairs = fabric.target[part.links] * hops.shape[1] + part.columns[part.origin]
        np.add.at(flat, pairs, flow_each)
    return loads


def worst_loads(fabric: SwitchFabric, hops: NDArray[np.int32]) -> NDArray[np.float64]:
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
    for hosts_count, shares in zip(fabric.hosts_on_rack.tolist(), by_source, strict=True):
        from_sources += hosts_count * shares
    return np.minimum(from_sources, by_target)


def _shares(fabric: SwitchFabric, hops: NDArray[np.int32]) -> NDArray[np.float64]:
    """Share of the traffic from each rack on each link, all of it to one rack at `hops`: (R, L)."""
    racks_count = fabric.rack_rows.size
    shares = np.zeros((racks_count, fabric.target.size))
    passing = np.zeros((len(fabric.switches), racks_count))  # share of a rack's traffic through a switch
    passing[fabric.rack_rows, np.arange(racks_count)] = 1
    for level in range(int(hops.max()), 0, -1):
        links, origin = expand(fabric, rows := np.flatnonzero(hops == level))
        closer = hops[fabric.target[links]] == level - 1
        links, origin = links[closer], origin[closer]
        ways = np.bincount(origin, minlength=rows.size)
        per_way = passing[rows[origin]] / ways[origin][:, None]
        shares[:, links] = per_way.T
        np.add.at(passing, fabric.target[links], per_way)
    return shares


def _parts(fabric: SwitchFabric, hops: NDArray[np.int32], outward: bool) -> Iterator[_Part]:
    """All pairs with a path, from the nearest outward or from the farthest inward."""
    flat = hops.reshape(-1)
    order = np.argsort(flat if outward else -flat, kind="stable")
    bounds = [0, *(np.flatnonzero(np.diff(flat[order])) + 1).tolist(), order.size]
    for begin, end in pairwise(bounds):
        if flat[order[begin]] <= 0:
            continue
        for start in range(begin, end, _PAIRS):
            rows, columns = np.divmod(order[start : min(end, start + _PAIRS)], hops.shape[1])
            links, origin = expand(fabric, rows)
            closer = hops[fabric.target[links], columns[origin]] == hops[rows, columns][origin] - 1
            yield _Part(rows, columns, links[closer], origin[closer])


# The bisection of a topology: the smallest rate, in one direction, between two equal halves of the hosts.
#
# It is the least maximum flow between two halves of the hosts (one apart if their number is odd), over all
# splits into such halves. Finding it is NP-hard in general, so there are four steps:
#
# - exact, by all divisions of the switches, where interchangeable ones leave few (`by_divisions`);
# - at most the cheapest of some divisions (`cheapest_cut_bps`);
# - at least what traffic with fixed shortest paths can carry across any cut (`uniform_bound_bps`,
#   `worst_bound_bps`);
# - exact, by an integer program between these bounds, if SciPy is there and the network small.
#
# Every cut is a sum of rates of links, so it is a multiple of their greatest common divisor: bounds that
# leave room for only one multiple are the exact number.


WORST_WORK_MAX = 10**9  # racks² · links: with more, the worst traffic is not computed
_FLOAT_SLACK = 1e-9  # relative; sums of float64 are far closer


class Bounds(NamedTuple):
    """What is known of a number: it is at least `low` and at most `high`."""

    low: int
    high: int

    @property
    def exact(self) -> int | None:
        return self.low if self.low == self.high else None


def bisection(
    graph: nx.Graph,
    fabric: SwitchFabric | None = None,
    hops: NDArray[np.int32] | None = None,
    *,
    may_search: bool = True,
) -> Bounds:
    # The arrays of the graph and the `distances` are given where they are known already. The integer program
    # is tried if it `may_search`: that takes some seconds.
    fabric = fabric_of(graph) if fabric is None else fabric
    exact = by_divisions(graph)
    if exact is not None:
        return Bounds(exact, exact)
    hops = distances(fabric) if hops is None else hops
    high = cheapest_cut_bps(graph, fabric)
    unit = gcd(*fabric.rate_bps.tolist(), *chain.from_iterable(fabric.host_rates_bps))
    low = _whole(uniform_bound_bps(fabric, hops), unit)
    if low < high and fabric.rack_rows.size**2 * fabric.rate_bps.size <= WORST_WORK_MAX:
        low = max(low, _whole(worst_bound_bps(fabric, hops), unit))
    if low < high and may_search and exact_bisection.is_available():
        once = fabric.source < fabric.target
        links = np.stack([fabric.source[once], fabric.target[once], fabric.rate_bps[once]], axis=1)
        alike = [
            exact_bisection.Rack(row, rate_bps, rates.count(rate_bps))
            for row, rates in zip(fabric.rack_rows.tolist(), fabric.host_rates_bps, strict=True)
            for rate_bps in sorted(set(rates))
        ]
        exact = exact_bisection.by_program(links, alike, (low, high))
    return Bounds(min(low, high), high) if exact is None else Bounds(exact, exact)


def uniform_bound_bps(fabric: SwitchFabric, hops: NDArray[np.int32]) -> float:
    """A lower bound of the bisection from traffic between all hosts, spread evenly over shortest paths.

    Every host sends to every other at the rate f that no link between switches exceeds. If a cut separates m
    hosts from their switches, it cuts their links; the n hosts then are on racks of which one side has at
    least ⌊n/2⌋ − m, and f times the pairs between the sides must cross.
    """
    hosts_count = fabric.hosts_count
    half, rates = hosts_count // 2, np.sort(list(chain.from_iterable(fabric.host_rates_bps)))
    separated = np.arange(half + 1)
    cost = np.concatenate([[0.0], np.cumsum(rates[:half].astype(np.float64))])
    loads = uniform_loads(fabric, hops)
    bound_bps = float((fabric.rate_bps[loads > 0] / loads[loads > 0]).min(initial=rates[-1]))
    return float((cost + bound_bps * (half - separated) * (hosts_count - half + separated)).min())


def worst_bound_bps(fabric: SwitchFabric, hops: NDArray[np.int32]) -> float:
    # A lower bound: if no link between switches ever carries more than γ times its rate, whoever sends to
    # whom, then any pairing of two halves of the hosts gets through at r / γ, for the slowest host's rate r.
    # Traffic is spread evenly over shortest paths (oblivious routing: Towles and Dally, SPAA 2002).
    slowest = float(min(chain.from_iterable(fabric.host_rates_bps)))
    worst = max(1.0, float((slowest * worst_loads(fabric, hops) / fabric.rate_bps).max()))
    return fabric.hosts_count // 2 * slowest / worst


def _whole(bound: float, unit: int) -> int:
    # Rounded up, as every cut is a multiple of the unit.
    return -(-int(bound * (1 - _FLOAT_SLACK)) // unit) * unit


# What a topology is built of: switches, ports and cables.


WITHIN_RACK, WITHIN_ROW, ACROSS_HALL = "within a rack", "within a row", "across the hall"
LENGTHS = (WITHIN_RACK, WITHIN_ROW, ACROSS_HALL)
PS_PER_METRE = 5_000  # light in fibre
_RACK_PS, _ROW_PS = 3 * PS_PER_METRE, 30 * PS_PER_METRE
BY_DELAY = (
    f"by delay, at {PS_PER_METRE // 1000} ns a metre: up to {_RACK_PS // PS_PER_METRE} m within a rack, "
    f"up to {_ROW_PS // PS_PER_METRE} m within a row, longer ones across the hall"
)
BY_TIER = (
    "by tier: those of hosts within a rack; those between switches of tiers 1 and 2, if both are in one "
    "group or in none, within a row; all others across the hall"
)


class NetworkCost(NamedTuple):
    """Parts of a topology. What is inside of a server (`graph.server_ports`) is no switch, port or cable."""

    switches_by_tier: dict[int, int]
    switch_ports_by_rate: dict[int, int]  # bits per second, fastest first
    host_ports_by_rate: dict[int, int]
    cables: dict[str, dict[int, int]]
    """Cables by length class, then by rate; one for both directions."""
    length_rule: str  # how the classes were told apart

    @property
    def switches_count(self) -> int:
        return sum(self.switches_by_tier.values())

    @property
    def cables_count(self) -> int:
        return sum(sum(by_rate.values()) for by_rate in self.cables.values())


class Cable(NamedTuple):
    """A cable between two nodes, for both directions."""

    ends: tuple[str, str]
    rate_bps: int
    length: str  # one of LENGTHS


def cables_of(graph: nx.Graph) -> tuple[list[Cable], str]:
    """The cables of a valid graph, and how their length classes were told apart.

    Delays decide how long cables are if at least one is so short that it stays within a row. Otherwise a
    delay stands for more than a cable, as the default of 1 us does, and tiers decide.
    """
    inside = server_ports(graph)
    at_hosts = {*inside, *hosts(graph)}
    cabled = [
        (a, b, edge) for a, b, edge in graph.edges(data=True) if inside.get(a) != b and inside.get(b) != a
    ]
    by_delay = any(edge["delay_ps"] <= _ROW_PS for _, _, edge in cabled)
    cables = [
        Cable(
            (a, b),
            edge["rate_bps"],
            _by_delay(edge["delay_ps"]) if by_delay else _by_tier(graph, a, b, at_hosts),
        )
        for a, b, edge in cabled
    ]
    return cables, BY_DELAY if by_delay else BY_TIER


def cost(graph: nx.Graph) -> NetworkCost:
    """Switches, ports and cables of a valid graph."""
    inside = server_ports(graph)
    at_hosts = {*inside, *hosts(graph)}
    lengths: dict[str, Counter[int]] = {length: Counter() for length in LENGTHS}
    ports: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    cables, length_rule = cables_of(graph)
    for ends, rate_bps, length in cables:
        lengths[length][rate_bps] += 1
        for end in ends:
            ports[end in at_hosts][rate_bps] += 1
    tiers = Counter(graph.nodes[name]["tier"] for name in switches(graph) if name not in inside)
    return NetworkCost(
        dict(sorted(tiers.items())),
        _fastest_first(ports[False]),
        _fastest_first(ports[True]),
        {length: _fastest_first(rate_counts) for length, rate_counts in lengths.items() if rate_counts},
        length_rule,
    )


def oversubscription(graph: nx.Graph) -> dict[int, float]:
    """By tier: the most that a switch's links down carry over what its links up carry.

    Down lead to lower tiers, up to higher ones; tiers without both are left out. Links inside of servers do
    not count, and the ports of a server count as tier 0.
    """
    inside = server_ports(graph)
    tier = {name: 0 if name in inside else node_tier for name, node_tier in graph.nodes(data="tier")}
    ratios: dict[int, float] = {}
    for name in switches(graph):
        if name in inside:
            continue
        down = up = 0
        for other, edge in graph.adj[name].items():
            down += edge["rate_bps"] * (tier[other] < tier[name])
            up += edge["rate_bps"] * (tier[other] > tier[name])
        if down and up:
            ratios[tier[name]] = max(ratios.get(tier[name], 0.0), down / up)
    return dict(sorted(ratios.items()))


def _by_delay(delay_ps: int) -> str:
    if delay_ps <= _RACK_PS:
        return WITHIN_RACK
    return WITHIN_ROW if delay_ps <= _ROW_PS else ACROSS_HALL


def _by_tier(graph: nx.Graph, a: str, b: str, at_hosts: set[str]) -> str:
    if a in at_hosts or b in at_hosts:
        return WITHIN_RACK
    node, two = graph.nodes[a], graph.nodes[b]
    is_near = max(node["tier"], two["tier"]) <= 2 and node.get("group") == two.get("group")
    return WITHIN_ROW if is_near else ACROSS_HALL


def _fastest_first(counts: Counter[int]) -> dict[int, int]:
    return dict(sorted(counts.items(), reverse=True))


# Path diversity: how many ways there are between racks (switches with hosts).


class Diversity(NamedTuple):
    """Ways between two different racks, over all pairs of them."""

    shortest_min: float  # equal-cost shortest paths; whole numbers, exact up to 2^53
    shortest_median: float
    shortest_max: float
    disjoint_min: int  # paths without a common link, of the pair that has fewest


def diversity(fabric: SwitchFabric, hops: NDArray[np.int32]) -> Diversity | None:
    """Path diversity; None with a single rack. `hops` are the `distances` of the fabric."""
    racks_count = fabric.rack_rows.size
    if racks_count < 2:
        return None
    counts = path_counts(fabric, hops)[fabric.rack_rows]
    between = counts[~np.eye(racks_count, dtype=np.bool_)]
    low, middle, high = (float(pick(between)) for pick in (np.min, np.median, np.max))
    return Diversity(low, middle, high, _disjoint_min(fabric, hops))


def _disjoint_min(fabric: SwitchFabric, hops: NDArray[np.int32]) -> int:
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
    for paths_count in range(enough):
        previous = {start: start}
        frontier, end = [start], None
        while frontier and end is None:
            following = []
            for at in frontier:
                for near in neighbours[at]:
                    if near not in previous and (at, near) not in used:
                        previous[near] = at
                        following.append(near)
            end = next((at for at in following if at in ends), None)
            frontier = following
        if end is None:
            return paths_count
        while end != start:
            at, end = end, previous[end]
            if (at, end) in used:
                used.remove((at, end))
            else:
                used.add((end, at))
    return enough


class Measures(NamedTuple):
    hosts_count: int
    switches_count: int  # nodes of the kind "switch"; `cost` counts those that are devices
    links_count: int  # both directions counted
    diameter_hops: int  # links on the longest of the shortest paths between two hosts; 0 with one host
    mean_hops: float  # links on a shortest path, the mean over all pairs of different hosts; 0 with one host
    bisection: Bounds  # bits per second, see `bisection`
    oversubscription: dict[int, float]
    """Oversubscription of each tier, see the function of that name."""
    diversity: Diversity | None  # None with one rack
    cost: NetworkCost

    @property
    def bisection_bps(self) -> int | None:
        return self.bisection.exact


def measure(graph: nx.Graph) -> Measures:
    """Figures of a topology.

    Takes O(R · L) for R racks and L links, and O(R² · L) within `WORST_WORK_MAX`.

    Raises
    ------
    TopologyError
        The graph breaks the contract (see `topologies.graph.validate`).
    """
    validate(graph)
    fabric = fabric_of(graph)
    hops = distances(fabric)
    diameter, mean = _host_hops(fabric, hops)
    return Measures(
        hosts_count=len(hosts(graph)),
        switches_count=len(switches(graph)),
        links_count=2 * graph.number_of_edges(),
        diameter_hops=diameter,
        mean_hops=mean,
        bisection=bisection(graph, fabric, hops),
        oversubscription=oversubscription(graph),
        diversity=diversity(fabric, hops),
        cost=cost(graph),
    )


def _host_hops(fabric: SwitchFabric, hops: NDArray[np.int32]) -> tuple[int, float]:
    """Longest and mean distance of two different hosts: each is one hop from its switch."""
    count = fabric.hosts_count
    if count < 2:
        return 0, 0.0
    between = hops[fabric.rack_rows] + 2  # (R, R); on one rack two hosts are two hops apart
    is_pair = ~np.diag(fabric.hosts_on_rack < 2)
    weights = np.outer(fabric.hosts_on_rack, fabric.hosts_on_rack) - np.diag(fabric.hosts_on_rack)
    return int(between[is_pair].max()), int((weights * between).sum()) / (count * (count - 1))
