"""The least time in which a result can reach all workers on a network, whatever the algorithm.

Three things bound it, and only what is proven to follow one another is added:

- every worker must send its message once, and what it sends last must still reach the farthest worker;
- every worker must receive the result once, or the messages of all others where nothing merges them;
- what one part of the workers has must reach the others over the links between the two parts. Where nodes
  that merge may be anywhere, one sum of each part crosses these links (cut-set bound). By the theorem of
  Ford and Fulkerson the least of these cuts is a maximum flow, so in small networks it is exact.

Headers are left out, as another algorithm may need none, and so is the time that packets take to be received
before they are forwarded. Hosts that merge must send 2 · (1 − 1 / n) messages; switches that merge need not,
so this is not asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import networkx as nx
import numpy as np
from networkx.algorithms.flow import build_residual_network, edmonds_karp
from numpy.typing import NDArray

from netfold.topologies.network import Network
from netfold.units import PS_PER_S

FLOWS_MAX = 20_000
"""Racks times links between switches up to which the least cut is searched for; else racks and islands."""
_RACKS_MAX = 1024  # more take memory, and time
_SOURCES_MAX = 64  # racks from which distances are measured …
_LINKS_MAX = 200_000  # … in all, over so many links
_BITS = 8
Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ProblemBound:
    """What a network lets W workers do at most."""

    own_ps: Doubles
    """(W,) Time of a byte on each worker's own link, either way."""
    farthest_ps: Doubles
    """(W,) Delays from each worker to the one that is farthest from it; 0 where they are not measured."""
    trip_ps: float
    """Delays between two workers in different racks that are far apart, in the faster direction."""
    sides: NDArray[np.bool_]  # (C, W) the workers on one side of each cut
    cut_ps: Doubles  # (C,) time of a byte across it, in one direction

    def crossing_bytes(self, sent_bytes: Doubles, is_merged: bool) -> tuple[Doubles, Doubles]:
        # From the sizes of messages, (W,): the least that each worker receives, (W,), and that crosses each
        # cut in either direction, (2, C). Messages that are not merged on their way all go to every worker.
        join = np.max if is_merged else np.sum
        received = _most_of_others(sent_bytes) if is_merged else sent_bytes.sum() - sent_bytes
        crossing = [join(np.where(sides, sent_bytes, 0.0), axis=1) for sides in (self.sides, ~self.sides)]
        return received, np.stack(crossing)

    def time_ps(self, sent_bytes: Doubles, received_bytes: Doubles, crossing_bytes: Doubles) -> float:
        """The least time of messages with these sums of bytes."""
        has_sent = sent_bytes > 0
        times_ps = (
            np.where(has_sent, sent_bytes * self.own_ps + self.farthest_ps, 0.0),
            received_bytes * self.own_ps,
            (crossing_bytes * self.cut_ps).ravel(),
        )
        return max(float(part.max(initial=0.0)) for part in times_ps)


def _most_of_others(values: Doubles) -> Doubles:
    """(W,) the largest of the others' values, which are two or more."""
    last = np.argsort(values, kind="stable")[-2:]
    most: Doubles = np.where(np.arange(values.size) == last[1], values[last[0]], values[last[1]])
    return most


def least_s(network: Network, nodes: Sequence[int], size_bytes: float) -> float:
    """The least seconds of a sum of messages of this size, of every worker on these nodes, two or more."""
    bound, sent_bytes = problem_bound(network, nodes), np.full(len(nodes), float(size_bytes))
    return bound.time_ps(sent_bytes, *bound.crossing_bytes(sent_bytes, is_merged=True)) / PS_PER_S


_KEPT: WeakKeyDictionary[Network, dict[tuple[int, ...], ProblemBound]] = WeakKeyDictionary()


def problem_bound(network: Network, nodes: Sequence[int]) -> ProblemBound:
    """The bound of workers on these nodes, two or more."""
    kept = _KEPT.setdefault(network, {})
    if tuple(nodes) not in kept:
        kept[tuple(nodes)] = _problem_bound(network, np.asarray(nodes))
    return kept[tuple(nodes)]


def _problem_bound(network: Network, nodes: NDArray[np.int64]) -> ProblemBound:
    down = network.tables.fabric.down_link[nodes]
    homes, rack = np.unique(network.link_target[nodes], return_inverse=True)
    own_bps = network.rate_bps[nodes]  # a host's link has its number
    graph = _switch_graph(network)
    up_ps, down_ps = network.delay_ps[nodes].astype(np.float64), network.delay_ps[down].astype(np.float64)
    farthest_ps, sources = np.zeros(nodes.size), np.arange(min(homes.size, _SOURCES_MAX))
    sources = sources[: max(2, _LINKS_MAX // max(1, graph.number_of_edges()))]
    samples = np.array([np.flatnonzero(rack == number)[0] for number in sources])  # a worker of each
    trips_ps = np.zeros((sources.size, sources.size))
    for number, home in enumerate(homes[sources].tolist()):
        reached = nx.single_source_dijkstra_path_length(graph, home, weight="delay_ps")
        to_worker_ps = np.array([reached[other] for other in homes.tolist()])[rack] + down_ps
        here = rack == number
        farthest_ps[here] = up_ps[here] + _most_of_others(to_worker_ps)[here]
        trips_ps[number] = up_ps[samples[number]] + to_worker_ps[samples]
    np.fill_diagonal(trips_ps, 0.0)
    sides, rates_bps = _cuts(network, graph, homes, rack, int(own_bps.min()))
    return ProblemBound(
        _BITS * PS_PER_S / own_bps,
        farthest_ps,
        float(np.minimum(trips_ps, trips_ps.T).max()) if homes.size > 1 else float((up_ps + down_ps).min()),
        np.array(sides, np.bool_).reshape(-1, nodes.size),
        _BITS * PS_PER_S / np.array(rates_bps, np.float64),
    )


def _switch_graph(network: Network) -> nx.DiGraph:
    """The links between switches; no path passes through a host."""
    graph = nx.DiGraph()
    graph.add_nodes_from(np.flatnonzero(~network.is_host).tolist())
    columns = (network.link_source, network.link_target, network.rate_bps, network.delay_ps)
    graph.add_edges_from(
        (source, target, {"rate_bps": rate_bps, "delay_ps": delay_ps})
        for source, target, rate_bps, delay_ps in zip(*(column.tolist() for column in columns), strict=True)
        if source != target and not (network.is_host[source] or network.is_host[target])
    )
    return graph


def _cuts(
    network: Network,
    graph: nx.DiGraph,
    homes: NDArray[np.int32],
    rack: NDArray[np.int64],
    own_bps: int,
) -> tuple[list[NDArray[np.bool_]], list[int]]:
    """Workers on one side of each cut, and its rate: racks, islands, and the least of all if that is less."""
    if homes.size < 2:
        return [], []
    sides, rates_bps = list[NDArray[np.bool_]](), list[int]()

    def add(switches: set[int]) -> None:
        side = np.isin(homes, list(switches))[rack]
        if side.any() and not side.all():
            sides.append(side)
            boundary = nx.edge_boundary(graph, switches, data="rate_bps")
            rates_bps.append(sum(rate_bps for _, _, rate_bps in boundary))

    for home in homes.tolist() if homes.size <= _RACKS_MAX else ():
        add({home})
    for island in np.unique(network.island[homes]).tolist():
        if island >= 0:
            add(set(np.flatnonzero((network.island == island) & ~network.is_host).tolist()))
    if homes.size * graph.number_of_edges() <= FLOWS_MAX:
        residual = build_residual_network(graph, "rate_bps")
        first, *others = homes.tolist()
        for home in others:  # a cut between workers is one between the first rack and another
            least_bps = min([own_bps, *rates_bps])
            flow = edmonds_karp(graph, first, home, "rate_bps", residual=residual, cutoff=least_bps).graph[
                "flow_value"
            ]
            if flow < least_bps:
                add(nx.minimum_cut(graph, first, home, "rate_bps")[1][0])
    return sides, rates_bps
