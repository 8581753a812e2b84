"""All cheapest paths between all switches at once; a path costs its hops, or what its links cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from netfold.topologies.routing.tables import Fabric, Tables, TablesBuilder

_WORD = 64
_LISTED_PORTS = 16  # sets of so few ports are found by a table, others by sorting


def shortest_tables(fabric: Fabric, costs: NDArray[np.int64] | None = None) -> Tables:
    """Tables with all links that are on a cheapest path to their target; `costs` is by port.

    Breadth-first search from all targets at once, one bit a target (as the frontiers of multi-source
    search: Then et al., VLDB 8(4), 2014): O(D · L · S / 64) for S switches, L links between them and a
    longest path of cost D.
    """
    nearer = ports_nearer(fabric, costs)
    builder = TablesBuilder(fabric)
    for switch in range(fabric.switches_count):
        begin, end = fabric.first_port[switch], fabric.first_port[switch + 1]
        bits = nearer[begin:end].view(np.uint8)
        if begin == end:  # the only switch
            builder.add_single(np.zeros(fabric.switches_count, np.int64))
            continue
        flags = np.unpackbits(bits, axis=1, count=fabric.switches_count, bitorder="little")
        builder.add(*_distinct(flags))
    return builder.tables()


def ports_nearer(fabric: Fabric, costs: NDArray[np.int64] | None = None) -> NDArray[np.uint64]:
    """(ports, words) whether a cheapest path takes a port, by target: bit t mod 64 of word t div 64."""
    count, far_end = fabric.switches_count, fabric.far_end
    words = -(-count // _WORD)
    owner = np.repeat(np.arange(count), fabric.degrees)
    linked = np.flatnonzero(fabric.degrees)
    frontier = np.zeros((count, words), np.uint64)
    every = np.arange(count)
    frontier[every, every // _WORD] = np.uint64(1) << (every % _WORD).astype(np.uint64)
    unseen = ~frontier
    nearer = np.zeros((far_end.size, words), np.uint64)
    prices = [1] if costs is None else np.unique(costs).tolist()
    reached = [frontier]  # at the last costs, the latest first
    while far_end.size and any(one.any() for one in reached):
        beyond = frontier[far_end] if costs is None else _beyond(reached, far_end, costs, prices)
        new = np.zeros_like(frontier)
        new[linked] = np.bitwise_or.reduceat(beyond, fabric.first_port[linked], axis=0)
        new &= unseen
        unseen &= ~new
        beyond &= new[owner]
        nearer |= beyond
        frontier = new
        reached = [new, *reached][: prices[-1]]
    return nearer


def _beyond(
    reached: list[NDArray[np.uint64]], far_end: NDArray[np.int32], costs: NDArray[np.int64], prices: list[int]
) -> NDArray[np.uint64]:
    """(ports, words) targets that were reached at a port's far end as long ago as the port costs."""
    beyond = np.zeros((far_end.size, reached[0].shape[1]), np.uint64)
    for price in prices:
        if price <= len(reached):
            ports = np.flatnonzero(costs == price)
            beyond[ports] = reached[price - 1][far_end[ports]]
    return beyond


def _distinct(flags: NDArray[np.uint8]) -> tuple[NDArray[np.bool_], NDArray[np.integer]]:
    """The distinct columns of (ports, targets), and which one each column is."""
    ports, targets = flags.shape
    if ports <= _LISTED_PORTS:
        keys = np.zeros(targets, np.int32)
        for port in range(ports):
            keys |= flags[port].astype(np.int32) << port
        present = np.flatnonzero(np.bincount(keys, minlength=1))
        numbers = np.zeros(int(present[-1]) + 1, np.int32)
        numbers[present] = np.arange(present.size)
        patterns = (present[None, :] >> np.arange(ports)[:, None]) & 1
        return patterns.astype(np.bool_), numbers[keys]
    packed = np.packbits(flags, axis=0)
    padded = np.zeros((targets, -(-packed.shape[0] // 8) * 8), np.uint8)
    padded[:, : packed.shape[0]] = packed.T
    words = padded.view(np.uint64)
    rows = words[:, 0] if words.shape[1] == 1 else words.view([("", np.uint64)] * words.shape[1])[:, 0]
    _, first, which = np.unique(rows, return_index=True, return_inverse=True)
    return flags[:, first].astype(np.bool_), which.reshape(-1)
