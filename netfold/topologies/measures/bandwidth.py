"""The bisection of a topology: the smallest rate, in one direction, between two equal halves of the hosts."""

from __future__ import annotations

from itertools import chain
from math import gcd
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.topologies.measures.cuts import cheapest_cut_bps
from netfold.topologies.measures.divisions import by_divisions
from netfold.topologies.measures.fabric import Fabric, distances, fabric_of
from netfold.topologies.measures.spread import uniform_loads, worst_loads

WORST_WORK_MAX = 10**9  # racks² · links: with more, the worst traffic is not computed
_FLOAT_SLACK = 1e-9  # relative; sums of float64 are far closer


class Bounds(NamedTuple):
    """What is known of a number: it is at least `low` and at most `high`."""

    low: int
    high: int

    @property
    def exact(self) -> int | None:
        """The number, if it is known."""
        return self.low if self.low == self.high else None


def bisection(graph: nx.Graph) -> Bounds:
    """Bounds of the bisection bandwidth in bits per second, equal where it is known.

    It is the least maximum flow between two halves of the hosts (one apart if their number is odd), over all
    splits into such halves. Finding it is NP-hard in general, so there are three steps:

    - exact, by all divisions of the switches, where interchangeable ones leave few (`by_divisions`);
    - at most the cheapest of some divisions (`cheapest_cut_bps`);
    - at least what traffic with fixed shortest paths can carry across any cut (`uniform_bound_bps`,
      `worst_bound_bps`).

    Every cut is a sum of rates of links, so it is a multiple of their greatest common divisor: bounds that
    leave room for only one multiple are the exact number.

    Raises
    ------
    TopologyError
        The graph breaks the contract (see `topologies.graph.validate`).
    """
    return bisection_on(graph, fabric_of(graph))


def bisection_on(graph: nx.Graph, fabric: Fabric, hops: NDArray[np.int32] | None = None) -> Bounds:
    """As `bisection`, with the arrays of the graph and the `distances` if they are known already."""
    exact = by_divisions(graph)
    if exact is not None:
        return Bounds(exact, exact)
    hops = distances(fabric) if hops is None else hops
    high = cheapest_cut_bps(graph, fabric)
    unit = gcd(*fabric.rate_bps.tolist(), *chain.from_iterable(fabric.host_rates_bps))
    low = _whole(uniform_bound_bps(fabric, hops), unit)
    if low < high and fabric.rack_rows.size**2 * fabric.rate_bps.size <= WORST_WORK_MAX:
        low = max(low, _whole(worst_bound_bps(fabric, hops), unit))
    return Bounds(min(low, high), high)


def uniform_bound_bps(fabric: Fabric, hops: NDArray[np.int32]) -> float:
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
    each = float((fabric.rate_bps[loads > 0] / loads[loads > 0]).min(initial=rates[-1]))
    return float((cost + each * (half - separated) * (hosts_count - half + separated)).min())


def worst_bound_bps(fabric: Fabric, hops: NDArray[np.int32]) -> float:
    """A lower bound of the bisection from any traffic at the rate r of the slowest host.

    If no link between switches ever carries more than γ times its rate, whoever sends to whom, then any
    pairing of two halves of the hosts gets through at r / γ. Traffic is spread evenly over shortest paths,
    whatever else is sent (oblivious routing: Towles and Dally, SPAA 2002).
    """
    slowest = float(min(chain.from_iterable(fabric.host_rates_bps)))
    worst = max(1.0, float((slowest * worst_loads(fabric, hops) / fabric.rate_bps).max()))
    return fabric.hosts_count // 2 * slowest / worst


def _whole(bound: float, unit: int) -> int:
    """The least multiple of a unit that a bound allows."""
    return -(-int(bound * (1 - _FLOAT_SLACK)) // unit) * unit
