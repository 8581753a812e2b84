"""The integer view of a graph: nodes and links as rows of arrays, and all shortest next hops.

Equal cost means equal hop count. Where several links are on shortest paths, a flow's key picks one at every
node (equal-cost multi-path by modulo-N hash, RFC 2991), so one flow stays on one path.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.topologies.graph import TopologyError, hosts, switches, validate

ROUTES_MAX = 2**30  # entries of `Network.next_link`, of 4 bytes each
_PAIR_COST = 16  # cost of following a link for one pair, relative to following it for all pairs at once
_BLOCK = 512


@dataclass(frozen=True, eq=False)
class Network:
    """The integer view of a valid graph, with N nodes and L links. Holding one means that:

    - nodes are the hosts, then the switches, each in the graph's order; a node's index is its row;
    - links are one direction each, two for every edge, sorted by source, then target;
    - `next_link[node, target, :next_count[node, target]]` are the links out of `node` on shortest paths to
      `target`, in order of index; the rest of that row is -1, and all of it where node is target;
    - every node, switches too, can be a target, and no path passes through a host.
    """

    nodes: tuple[str, ...]
    profiles: tuple[str, ...]  # of the switches; "" for hosts
    is_host: NDArray[np.bool_]  # (N,)
    link_names: tuple[str, ...]  # "h0->s0"
    link_source: NDArray[np.int32]  # (L,) node
    link_target: NDArray[np.int32]  # (L,) node
    rate_bps: NDArray[np.int64]  # (L,)
    delay_ps: NDArray[np.int64]  # (L,)
    buffer_bytes: NDArray[np.int64]  # (L,) of the port at the source; no limit where the source is a host
    next_link: NDArray[np.int32]  # (N, N, W), W the largest of next_count
    next_count: NDArray[np.int32]  # (N, N)


def compile_network(graph: nx.Graph, room_bytes: int | None = None) -> Network:
    """Integer view of a graph, with all shortest routes, in at most `room_bytes` of memory.

    Takes O(S · L + N²) in NumPy for S switches and L links between them: a leaf-spine of 1000 nodes well
    under a second.

    Raises
    ------
    TopologyError
        The graph breaks the contract (see `topologies.graph.validate`), or its routes take more than
        `ROUTES_MAX` entries or `room_bytes`.
    """
    validate(graph)
    nodes = (*hosts(graph), *switches(graph))
    index = {name: row for row, name in enumerate(nodes)}
    links = sorted((index[a], index[b]) for edge in graph.edges for a, b in (edge, edge[::-1]))
    edges = [graph.edges[nodes[source], nodes[target]] for source, target in links]
    link_source, link_target = np.array(links, dtype=np.int32).T.copy()
    next_link, next_count = _next_links(link_source, link_target, len(hosts(graph)), room_bytes)
    return Network(
        nodes=nodes,
        profiles=tuple(graph.nodes[name]["profile"] for name in nodes),
        is_host=np.array([graph.nodes[name]["kind"] == "host" for name in nodes]),
        link_names=tuple(f"{nodes[source]}->{nodes[target]}" for source, target in links),
        link_source=link_source,
        link_target=link_target,
        rate_bps=np.array([edge["rate_bps"] for edge in edges], dtype=np.int64),
        delay_ps=np.array([edge["delay_ps"] for edge in edges], dtype=np.int64),
        buffer_bytes=np.array([edge["buffer_bytes"] for edge in edges], dtype=np.int64),
        next_link=next_link,
        next_count=next_count,
    )


def path(network: Network, source: int, target: int, key: int) -> list[int]:
    """Links that a flow takes from one node to another; empty if they are the same.

    The choice at each node is `next_link[node, target, key % next_count[node, target]]`, where `key` is a
    hash of the flow. The same key serves every node, so where a path has several choices in a row they are
    correlated, as they are among real switches that share one hash function ("hash polarisation").
    """
    links: list[int] = []
    node = source
    while node != target:
        link = int(network.next_link[node, target, key % int(network.next_count[node, target])])
        links.append(link)
        node = int(network.link_target[link])
    return links


def _next_links(
    link_source: NDArray[np.int32],
    link_target: NDArray[np.int32],
    hosts_count: int,
    room_bytes: int | None,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """`next_link` and `next_count` of links sorted by source, hosts first, where every node has a link.

    A link is on a shortest path to a target if its far end is closer. No such path leads through a
    host, which has one link: so routes are computed between switches, and a host has those of its switch.
    """
    nodes_count = int(link_source[-1]) + 1
    is_inner = (link_source >= hosts_count) & (link_target >= hosts_count)
    inner = np.flatnonzero(is_inner)
    far_end = link_target[inner] - hosts_count
    switches_count = nodes_count - hosts_count
    first = np.searchsorted(link_source[inner] - hosts_count, np.arange(switches_count + 1))
    distance = _distances(far_end, first)
    count = np.zeros((switches_count, switches_count), dtype=np.int32)
    for node in range(switches_count):
        closer = distance[far_end[first[node] : first[node + 1]]] < distance[node]  # (links of node, targets)
        count[node] = closer.sum(axis=0)
    width = max(1, int(count.max()))
    _check_room(nodes_count, width, room_bytes)
    home = np.concatenate([link_target[:hosts_count], np.arange(hosts_count, nodes_count, dtype=np.int32)])
    home -= hosts_count  # of each target: its switch, as a row of `distance`
    next_link = np.full((nodes_count, nodes_count, width), -1, dtype=np.int32)
    next_count = np.zeros((nodes_count, nodes_count), dtype=np.int32)
    for node in range(switches_count):
        links = inner[first[node] : first[node + 1]]
        closer = distance[far_end[first[node] : first[node + 1]]] < distance[node]
        targets, offsets = np.nonzero(closer.T)  # by target, then by link
        ends = np.cumsum(count[node])
        ranks = np.arange(targets.size) - (ends - count[node])[targets]
        rows = np.full((switches_count, width), -1, dtype=np.int32)
        rows[targets, ranks] = links[offsets]
        next_link[hosts_count + node] = rows[home]
        next_count[hosts_count + node] = count[node][home]
    down = np.flatnonzero((link_source >= hosts_count) & (link_target < hosts_count))  # to hosts
    next_link[link_source[down], link_target[down], 0] = down
    next_count[link_source[down], link_target[down]] = 1
    next_link[:hosts_count, :, 0] = np.arange(hosts_count, dtype=np.int32)[:, None]  # a host's only link
    next_count[:hosts_count] = 1
    same = np.arange(hosts_count)
    next_link[same, same], next_count[same, same] = -1, 0
    return next_link, next_count


def _check_room(nodes_count: int, ways: int, room_bytes: int | None) -> None:
    if nodes_count**2 * ways > ROUTES_MAX:
        gib = nodes_count**2 * ways * 4 / 2**30
        raise TopologyError(
            f"the routes of {nodes_count} nodes with up to {ways} equal ways take {gib:.3g} GiB; "
            f"{nodes_count} nodes may have up to {ROUTES_MAX // nodes_count**2} equal ways"
        )
    needed = 4 * nodes_count**2 * (ways + 1)  # `next_link` and `next_count`
    if room_bytes is not None and needed > room_bytes:
        raise TopologyError(
            f"the routes of {nodes_count} nodes with up to {ways} equal ways take {needed / 2**30:.3g} GiB, "
            f"{room_bytes / 2**30:.3g} GiB of memory are free for them; "
            "use fewer hosts or spines, or topologies that variants have in common"
        )


def _distances(far_end: NDArray[np.int32], first: NDArray[np.intp]) -> NDArray[np.int32]:
    """Hops from each switch (row) to each other (column); −1 where there is no path.

    Breadth-first search towards all targets at once: over the pairs (switch, target) that the previous step
    found, or over all pairs where most are new. So it takes O(S · L) in total for paths of any length.
    """
    switches_count = first.size - 1
    distance = np.full((switches_count, switches_count), -1, dtype=np.int32)
    flat = distance.reshape(-1)
    last = np.empty_like(flat)
    degree = np.diff(first)
    at = target = np.arange(switches_count)
    hops = 0
    while at.size:
        flat[at * switches_count + target] = hops
        hops += 1
        if _PAIR_COST * int(degree[at].sum()) < far_end.size * switches_count:
            at, target = _neighbours(at, target, far_end, first)
            pairs = at * switches_count + target
            is_new = flat[pairs] < 0
            at, target, pairs = at[is_new], target[is_new], pairs[is_new]
            numbers = np.arange(pairs.size, dtype=np.int32)
            last[pairs] = numbers
            is_last = last[pairs] == numbers  # each pair once
            at, target = at[is_last], target[is_last]
        else:
            at, target = np.nonzero(_reached(distance == hops - 1, far_end, first) & (distance < 0))
    return distance


def _neighbours(
    at: NDArray[np.intp], target: NDArray[np.intp], far_end: NDArray[np.int32], first: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pairs (neighbour, target) of the given pairs; some are no farther from their target."""
    counts = first[at + 1] - first[at]
    starts = np.cumsum(counts) - counts
    links = np.arange(int(counts.sum())) - np.repeat(starts - first[at], counts)
    return far_end[links].astype(np.intp), np.repeat(target, counts)


def _reached(
    frontier: NDArray[np.bool_], far_end: NDArray[np.int32], first: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Pairs with a neighbour in the frontier; none for switches without links."""
    reached = np.zeros_like(frontier)
    has_links = np.flatnonzero(np.diff(first))
    for begin in range(0, frontier.shape[1], _BLOCK):  # memory for so many targets at a time
        block = frontier[:, begin : begin + _BLOCK]
        reached[has_links, begin : begin + _BLOCK] = np.logical_or.reduceat(
            block[far_end], first[has_links], axis=0
        )
    return reached
