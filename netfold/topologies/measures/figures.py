"""All measures of one topology."""

from __future__ import annotations

from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.topologies.graph import hosts, switches, validate
from netfold.topologies.measures.bandwidth import Bounds, bisection_on
from netfold.topologies.measures.cost import Cost, cost, oversubscription
from netfold.topologies.measures.diversity import Diversity, diversity
from netfold.topologies.measures.fabric import Fabric, distances, fabric_of


class Measures(NamedTuple):
    """Figures of one topology."""

    hosts_count: int
    switches_count: int  # nodes of the kind "switch"; `cost` counts those that are devices
    links_count: int  # both directions counted
    diameter_hops: int  # links on the longest of the shortest paths between two hosts; 0 with one host
    mean_hops: float  # links on a shortest path, the mean over all pairs of different hosts; 0 with one host
    bisection: Bounds  # bits per second, see `bisection`
    oversubscription: dict[int, float]  # by tier, see `oversubscription`
    diversity: Diversity | None  # None with one rack
    cost: Cost

    @property
    def bisection_bps(self) -> int | None:
        """The bisection bandwidth if it is known exactly."""
        return self.bisection.exact


def measure(graph: nx.Graph) -> Measures:
    """Figures of a topology.

    Takes O(R · L) for R racks and L links, and O(R² · L) within `bisection.WORST_WORK_MAX`.

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
        bisection=bisection_on(graph, fabric, hops),
        oversubscription=oversubscription(graph),
        diversity=diversity(fabric, hops),
        cost=cost(graph),
    )


def _host_hops(fabric: Fabric, hops: NDArray[np.int32]) -> tuple[int, float]:
    """Longest and mean distance of two different hosts: each is one hop from its switch."""
    count = fabric.hosts_count
    if count < 2:
        return 0, 0.0
    between = hops[fabric.rack_rows] + 2  # (R, R); on one rack two hosts are two hops apart
    is_pair = ~np.diag(fabric.hosts_on_rack < 2)
    weights = np.outer(fabric.hosts_on_rack, fabric.hosts_on_rack) - np.diag(fabric.hosts_on_rack)
    return int(between[is_pair].max()), int((weights * between).sum()) / (count * (count - 1))
