"""Routing policies, what each makes of a graph, and compact tables of next hops; flows choose by ECMP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.kernels import rng_streams
from netfold.kernels.compiled import kernel
from netfold.kernels.keyed_random import mix_plain, splitmix64
from netfold.topologies.graph import TopologyError, server_ports, switches, where

# Tables of next hops: from every switch to every other, in two bytes a pair.
#
# A host has one link, so routes are needed between switches only, and a host has those of its switch
# ("home"). A switch numbers its links to other switches: its *ports*, in order of link. What it does for a
# target is one number: below `degrees[switch]` it is the only port on the way, from there on it is a set of
# ports. Sets are kept once for each switch, one after the other. Numbers fit 16 bits, as a switch has fewer
# ports than there are switches, and no more sets than targets.


_PORT = np.dtype(np.uint16)
_SET_BYTES = 8
"""Bytes of a set, besides its ports."""
_GIB = 2**30


class PolicyError(TopologyError):
    """A routing policy is not for such a topology."""


class SwitchLinks(NamedTuple):
    """The links between S switches; hosts come first among nodes and targets of links."""

    hosts_count: int
    home: NDArray[np.int32]  # (N,) switch of a host, itself of a switch; counted from the first switch
    down_link: NDArray[np.int32]  # (N,) from its switch to a host; -1 of a switch
    first_link: NDArray[np.int32]  # (S,) the first link to another switch
    degrees: NDArray[np.int32]  # (S,) ports
    first_port: NDArray[np.int64]  # (S + 1,) rows of `far_end`
    far_end: NDArray[np.int32]  # (ports of all switches,) switch, counted from the first switch

    @property
    def switches_count(self) -> int:
        return int(self.degrees.size)


class Tables(NamedTuple):
    """What every switch does for every target, as said above."""

    fabric: SwitchLinks
    choice: NDArray[np.uint16]  # (S, S) by switch, then target; 0 where they are the same
    first_set: NDArray[np.int32]  # (S,) row of `sets` of a switch's first set
    sets: NDArray[np.int32]  # (sets, 2) first entry in `ports`, and their number
    ports: NDArray[np.uint16]  # ascending within a set

    @property
    def size_bytes(self) -> int:
        return sum(int(array.nbytes) for array in self[1:])


def fabric_of(
    link_source: NDArray[np.int32], link_target: NDArray[np.int32], hosts_count: int
) -> SwitchLinks:
    """The fabric of links sorted by source, then target, hosts first, where every node has a link."""
    nodes_count = int(link_source[-1]) + 1
    switches_count = nodes_count - hosts_count
    home = np.arange(-hosts_count, switches_count, dtype=np.int32)
    home[:hosts_count] = link_target[:hosts_count] - hosts_count
    down_link = np.full(nodes_count, -1, np.int32)
    down = np.flatnonzero((link_source >= hosts_count) & (link_target < hosts_count))
    down_link[link_target[down]] = down
    inner = np.flatnonzero((link_source >= hosts_count) & (link_target >= hosts_count))
    first_port = np.searchsorted(link_source[inner], np.arange(hosts_count, nodes_count + 1))
    end_link = np.searchsorted(link_source, np.arange(hosts_count, nodes_count), side="right")
    degrees = np.diff(first_port).astype(np.int32)
    return SwitchLinks(
        hosts_count,
        home,
        down_link,
        (end_link - degrees).astype(np.int32),
        degrees,
        first_port.astype(np.int64),
        (link_target[inner] - hosts_count).astype(np.int32),
    )


def first_ports(tables: Tables, switch: int) -> NDArray[np.int64]:
    """(S,) the first port that a switch uses for each target."""
    degree = int(tables.fabric.degrees[switch])
    port: NDArray[np.int64] = tables.choice[switch].astype(np.int64)
    is_set = port >= degree
    rows = tables.first_set[switch] + port[is_set] - degree
    if rows.size and degree:
        port[is_set] = tables.ports[tables.sets[rows, 0]]
    return port


def check_room(fabric: SwitchLinks, room_bytes: int | None) -> None:
    needed = room_needed(fabric)
    if room_bytes is not None and needed > room_bytes:
        raise TopologyError(
            f"the routes between {fabric.switches_count} switches take up to {needed / _GIB:.3g} GiB, "
            f"{room_bytes / _GIB:.3g} GiB of memory are free for them; "
            "use fewer switches, or topologies that variants have in common"
        )


def room_needed(fabric: SwitchLinks) -> int:
    """Bytes that tables take at most, with what it takes to make them.

    A switch of d ports has at most 2^d - 1 sets, and at most one for each target. While shortest paths are
    searched, there are two bits for each pair of a port and a target, and four for each pair of switches.
    """
    count = fabric.switches_count
    degrees = fabric.degrees.astype(np.int64)
    sets = np.minimum(count, 2 ** np.minimum(degrees, 32) - 1)
    sets_bytes = int((sets * (_SET_BYTES + _PORT.itemsize * degrees)).sum())
    search_bytes = count * (2 * fabric.far_end.size + 4 * count) // 8
    return _PORT.itemsize * count * count + sets_bytes + search_bytes


class TablesBuilder:
    """Collects what every switch does, in order of the switches."""

    def __init__(self, fabric: SwitchLinks) -> None:
        self._fabric = fabric
        self._choice = np.zeros((fabric.switches_count,) * 2, _PORT)
        self._first_set: list[int] = []
        self._counts: list[NDArray[np.int64]] = []
        self._ports: list[NDArray[np.uint16]] = []
        self._sets_count = 0

    def add_single(self, port: NDArray[np.integer]) -> None:
        """The next switch takes one port for each target."""
        self._choice[len(self._first_set)] = port
        self._first_set.append(self._sets_count)

    def add(self, patterns: NDArray[np.bool_], which: NDArray[np.integer]) -> None:
        """The next switch uses the ports `patterns[:, which[t]]` for target t; patterns are distinct columns.

        A pattern without ports is that of the switch itself.
        """
        sizes = patterns.sum(axis=0)
        numbers = np.zeros(sizes.size, _PORT)
        numbers[sizes == 1] = patterns[:, sizes == 1].argmax(axis=0)
        several = np.flatnonzero(sizes > 1)
        numbers[several] = patterns.shape[0] + np.arange(several.size)
        self._choice[len(self._first_set)] = numbers[which]
        self._first_set.append(self._sets_count)
        self._counts.append(sizes[several])
        self._ports.append(np.nonzero(patterns[:, several].T)[1].astype(_PORT))
        self._sets_count += several.size

    def tables(self) -> Tables:
        """The tables, once all switches are added."""
        counts = np.concatenate([np.zeros(0, np.int64), *self._counts])
        ends = np.cumsum(counts)
        return Tables(
            self._fabric,
            self._choice,
            np.array(self._first_set, np.int32),
            np.stack([ends - counts, counts], axis=1).astype(np.int32).copy(),
            np.concatenate([np.zeros(0, _PORT), *self._ports]),
        )


# Dimension-order routing on tori, hypercubes and HyperX: all hops of one dimension, then all of the next.
#
# Also e-cube routing (Sullivan and Bashkow, ISCA 1977; Dally and Seitz, IEEE Trans. Computers C-36(5), 1987).
# There is one path for each pair of switches. Each dimension is a ring and is walked the shorter way round,
# or all its switches are linked and it takes one hop (HyperX: Ahn et al., SC 2009). In a ring,
# where both ways are equally long, a packet goes to the next higher coordinate from an even one and to the
# next lower from an odd one, so that neighbours load both ways. Deadlock is not modelled: buffers here drop,
# or never fill.


_HINT = "use routing: ecmp, or a torus, hypercube or hyperx with neither `planes` nor `without`"


def dimension_order_tables(graph: nx.Graph, fabric: SwitchLinks) -> Tables:
    """Tables with the one port that dimension order takes.

    The graph has `dimensions`, the sizes of the rings or complete graphs, and every switch has `coordinates`.

    Raises
    ------
    PolicyError
        Without those, or if a switch lacks a link to the next of a ring, or has one to elsewhere, or if hosts
        have several ports.
    """
    _require_one_port(graph, "dimension_order")
    dimensions, positions = _places(graph)
    number = _numbering(graph, dimensions, positions)
    strides = np.append(np.cumprod(dimensions[::-1])[::-1][1:], 1)
    at = np.empty(positions.shape[0], np.int64)
    at[number] = np.arange(positions.shape[0])  # the switch at each place, by the place's number
    is_complete = fabric.far_end.size == int((dimensions - 1).sum()) * fabric.switches_count
    ports = _port_of(graph, fabric, dimensions, positions, is_complete)
    builder = TablesBuilder(fabric)
    for switch in range(fabric.switches_count):
        ahead = (positions - positions[switch]) % dimensions  # hops upwards round each ring, to every target
        first = (ahead != 0).argmax(axis=1)
        hops, size = ahead[np.arange(first.size), first], dimensions[first]
        is_even = positions[switch][first] % 2 == 0
        is_up = (2 * hops < size) | ((2 * hops == size) & is_even)
        step = hops if is_complete else np.where(is_up, 1, -1)
        here = positions[switch][first]
        following = number[switch] + ((here + step) % size - here) * strides[first]
        builder.add_single(ports[switch].towards(at[following]))
    return builder.tables()


def _places(graph: nx.Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sizes of the rings, and (switches, dimensions) coordinates."""
    sizes = graph.graph.get("dimensions")
    if not _are_ints(sizes) or not sizes or min(sizes) < 1:
        raise PolicyError(
            f"{where(graph)}routing dimension_order needs the sizes of the dimensions, "
            f"and this topology has none; {_HINT}"
        )
    places = []
    for name in switches(graph):
        coordinates = graph.nodes[name].get("coordinates")
        if not _are_ints(coordinates) or len(coordinates) != len(sizes):
            raise PolicyError(
                f"{where(graph)}routing dimension_order needs {len(sizes)} coordinates of every switch, "
                f"switch {name!r} has {coordinates!r}; {_HINT}"
            )
        if not all(0 <= coordinate < size for coordinate, size in zip(coordinates, sizes, strict=True)):
            raise PolicyError(
                f"{where(graph)}switch {name!r} has coordinates {tuple(coordinates)}, "
                f"must be within dimensions {tuple(sizes)}; {_HINT}"
            )
        places.append(coordinates)
    return np.array(sizes, np.int64), np.array(places, np.int64).reshape(len(places), len(sizes))


def _are_ints(value: object) -> bool:
    return isinstance(value, Sequence) and all(type(number) is int for number in value)


def _numbering(
    graph: nx.Graph, dimensions: NDArray[np.int64], positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The number of each switch's place, in row-major order: every place is taken once."""
    names = switches(graph)
    expected = int(np.prod(dimensions, dtype=np.float64)) if dimensions.size else 0
    if len(names) != expected:
        raise PolicyError(
            f"{where(graph)}{len(names)} switches do not fill dimensions "
            f"{tuple(dimensions.tolist())}; {_HINT}"
        )
    number = np.ravel_multi_index(tuple(positions.T), tuple(dimensions))
    numbers_used, first = np.unique(number, return_index=True)
    if numbers_used.size < number.size:
        other = next(index for index in range(number.size) if index not in set(first.tolist()))
        raise PolicyError(
            f"{where(graph)}two switches have coordinates {tuple(positions[other].tolist())}, "
            f"one of them {names[other]!r}; {_HINT}"
        )
    return np.asarray(number, np.int64)


def _port_of(
    graph: nx.Graph,
    fabric: SwitchLinks,
    dimensions: NDArray[np.int64],
    positions: NDArray[np.int64],
    is_complete: bool,
) -> list[_Ports]:
    """The port of each switch towards each neighbour, once they are known to be those of every dimension."""
    names = switches(graph)
    expected = int((dimensions - 1 if is_complete else np.minimum(dimensions - 1, 2)).sum())
    ports = []
    for switch, name in enumerate(names):
        begin, end = fabric.first_port[switch], fabric.first_port[switch + 1]
        neighbours = fabric.far_end[begin:end]
        apart = (positions[neighbours] - positions[switch]) % dimensions
        is_near = is_complete | ((apart == 0) | (apart == 1) | (apart == dimensions - 1)).all(axis=1)
        is_one = (apart != 0).sum(axis=1) == 1
        if not (is_near & is_one).all():
            other = names[int(neighbours[int(np.flatnonzero(~(is_near & is_one))[0])])]
            raise PolicyError(
                f"{where(graph)}switches {name!r} and {other!r} are linked "
                f"and are not next to each other in one dimension; {_HINT}"
            )
        if neighbours.size != expected:
            raise PolicyError(
                f"{where(graph)}switch {name!r} has {neighbours.size} links to switches, "
                f"dimensions {tuple(dimensions.tolist())} need {expected}; {_HINT}"
            )
        ports.append(_Ports(neighbours))
    return ports


class _Ports:
    """Ports by the switch that they lead to."""

    def __init__(self, neighbours: NDArray[np.int32]) -> None:
        self._neighbours = neighbours  # ascending

    def towards(self, switch: NDArray[np.int64]) -> NDArray[np.int64]:
        # Switches that are no neighbours get any port.
        return np.searchsorted(self._neighbours, switch).clip(max=max(0, self._neighbours.size - 1))


# Groups of switches, as a dragonfly has them: where every switch has a `group`, an int.


def groups_of(graph: nx.Graph) -> NDArray[np.int32] | None:
    """(switches,) number of each switch's group, from 0 in order of their names; None without groups."""
    groups = [graph.nodes[name].get("group") for name in switches(graph)]
    if not all(type(group) is int for group in groups):
        return None
    return np.unique(groups, return_inverse=True)[1].astype(np.int32)


def port_costs(graph: nx.Graph, fabric: SwitchLinks) -> NDArray[np.int64] | None:
    """(ports,) cost of each link between switches, where links between groups cost more than others.

    Minimal routing on a dragonfly takes as few links between groups as possible, and then as few hops (Kim,
    Dally, Scott and Abts, ISCA 2008): a way over a third group may have fewer hops, and is not minimal. So
    a link between groups costs more than all hops inside groups on any way with as few of them as possible.
    None where all links cost the same.
    """
    group = groups_of(graph)
    if group is None:
        return None
    owner = np.repeat(np.arange(fabric.switches_count), fabric.degrees)
    is_between = group[owner] != group[fabric.far_end]
    if not is_between.any() or is_between.all():
        return None
    inside = nx.Graph()
    inside.add_nodes_from(range(fabric.switches_count))
    inside.add_edges_from(zip(owner[~is_between].tolist(), fabric.far_end[~is_between].tolist(), strict=True))
    parts = list(nx.connected_components(inside))
    longest = max(nx.diameter(inside.subgraph(part)) for part in parts)
    number = {switch: index for index, part in enumerate(parts) for switch in part}
    between = nx.Graph()
    between.add_edges_from(
        (number[a], number[b])
        for a, b in zip(owner[is_between].tolist(), fabric.far_end[is_between].tolist(), strict=True)
    )
    # Where links have failed, parts may be without paths to others.
    joined = map(between.subgraph, nx.connected_components(between))
    return np.where(is_between, (max(map(nx.diameter, joined)) + 1) * longest + 1, 1)


# All cheapest paths between all switches at once; a path costs its hops, or what its links cost.


_WORD = 64
_LISTED_PORTS = 16  # sets of so few ports are found by a table, others by sorting
_COMPILED_SWITCHES = 2048  # from here on compiled code is worth its import: 2 s, not 12, for 7000 switches


def shortest_tables(fabric: SwitchLinks, costs: NDArray[np.int64] | None = None) -> Tables:
    """Tables with all links that are on a cheapest path to their target; `costs` is by port.

    Breadth-first search from all targets at once, one bit a target (as the frontiers of multi-source
    search: Then et al., VLDB 8(4), 2014): O(D · L · S / 64) for S switches, L links between them and a
    longest path of cost D.
    """
    is_large = fabric.switches_count >= _COMPILED_SWITCHES
    nearer = compiled_ports_nearer(fabric, costs) if is_large else ports_nearer(fabric, costs)
    builder = TablesBuilder(fabric)
    for switch in range(fabric.switches_count):
        begin, end = fabric.first_port[switch], fabric.first_port[switch + 1]
        if begin == end:  # the only switch
            builder.add_single(np.zeros(fabric.switches_count, np.int64))
            continue
        if is_large and end - begin > _LISTED_PORTS:
            builder.add(*compiled_distinct(nearer[begin:end], fabric.switches_count))
        else:
            builder.add(*_distinct(_flags(nearer[begin:end], fabric.switches_count)))
    return builder.tables()


def _flags(nearer: NDArray[np.uint64], targets: int) -> NDArray[np.uint8]:
    # (ports, targets) of (ports, words).
    return np.unpackbits(nearer.view(np.uint8), axis=1, count=targets, bitorder="little")


def ports_nearer(fabric: SwitchLinks, costs: NDArray[np.int64] | None = None) -> NDArray[np.uint64]:
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
    reached = [frontier]  # frontiers at the last costs, the latest first
    while far_end.size and any(bits.any() for bits in reached):
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


# The same two steps compiled, with the same bits, for large networks.


def compiled_ports_nearer(fabric: SwitchLinks, costs: NDArray[np.int64] | None = None) -> NDArray[np.uint64]:
    # As `ports_nearer`.
    count, words = fabric.switches_count, -(-fabric.switches_count // _WORD)
    costs = np.ones(fabric.far_end.size, np.int64) if costs is None else costs
    reached = np.zeros((int(costs.max(initial=1)) + 1, count, words), np.uint64)
    every = np.arange(count)
    reached[0, every, every // _WORD] = np.uint64(1) << (every % _WORD).astype(np.uint64)
    unseen, nearer = ~reached[0], np.zeros((fabric.far_end.size, words), np.uint64)
    latest, idle_steps = 0, 0
    while idle_steps < len(reached):
        latest += 1
        is_new = search_step(fabric.far_end, fabric.first_port, costs, reached, latest, unseen, nearer)
        idle_steps = 0 if is_new else idle_steps + 1
    return nearer


@kernel
def search_step(
    far_end: NDArray[np.int32],
    first_port: NDArray[np.int64],
    costs: NDArray[np.int64],
    reached: NDArray[np.uint64],
    latest: int,
    unseen: NDArray[np.uint64],
    nearer: NDArray[np.uint64],
) -> bool:
    """Find the targets at cost `latest` from every switch; `reached` has the last frontiers, by cost."""
    kept, words, is_new = reached.shape[0], reached.shape[2], False
    for switch in range(first_port.size - 1):
        new, left = reached[latest % kept, switch], unseen[switch]
        is_open = False
        for word in range(words):
            new[word] = 0
            is_open |= left[word] != 0
        if not is_open:
            continue
        for port in range(first_port[switch], first_port[switch + 1]):
            if costs[port] <= latest:
                beyond = reached[(latest - costs[port]) % kept, far_end[port]]
                for word in range(words):
                    new[word] |= beyond[word]
        for word in range(words):
            new[word] &= left[word]
            left[word] &= ~new[word]
            is_new |= new[word] != 0
        for port in range(first_port[switch], first_port[switch + 1]):
            if costs[port] <= latest:
                beyond = reached[(latest - costs[port]) % kept, far_end[port]]
                for word in range(words):
                    nearer[port, word] |= beyond[word] & new[word]
    return is_new


def compiled_distinct(
    nearer: NDArray[np.uint64], targets: int
) -> tuple[NDArray[np.bool_], NDArray[np.integer]]:
    # As `_distinct`, which puts the few columns in order that are left.
    columns = np.zeros((nearer.shape[1] * _WORD, -(-nearer.shape[0] // _WORD)), np.uint64)
    transpose_bits(nearer, columns)
    which, first = np.empty(targets, np.int32), np.empty(targets, np.int32)
    table = np.full(1 << (2 * targets).bit_length(), -1, np.int32)
    first = first[: number_columns(columns, table, which, first)]
    few = nearer[:, first // _WORD] >> (first % _WORD).astype(np.uint64) & np.uint64(1)
    patterns, order = _distinct(few.astype(np.uint8))
    return patterns, order[which]


@kernel
def transpose_bits(rows: NDArray[np.uint64], columns: NDArray[np.uint64]) -> None:
    """Make bit r of column c bit c of row r, in squares of 64 bits (Warren, Hacker's Delight, 7-3)."""
    for begin in range(0, rows.shape[0], 64):
        for word in range(rows.shape[1]):
            square = columns[64 * word : 64 * word + 64, begin // 64]
            for row in range(begin, min(begin + 64, rows.shape[0])):
                square[row - begin] = rows[row, word]
            half, mask = 32, np.uint64(0xFFFFFFFF)
            while half:
                shift, upper = np.uint64(half), 0
                while upper < 64:
                    swapped = ((square[upper] >> shift) ^ square[upper + half]) & mask
                    square[upper] ^= swapped << shift
                    square[upper + half] ^= swapped
                    upper = (upper + half + 1) & ~half
                half >>= 1
                mask ^= mask << np.uint64(half)


@kernel
def number_columns(
    columns: NDArray[np.uint64], table: NDArray[np.int32], which: NDArray[np.int32], first: NDArray[np.int32]
) -> int:
    """Number the distinct columns: `which` column each one is, where each is `first`, how many there are."""
    count = 0
    for target in range(which.size):
        hashed = np.uint64(0)
        for word in range(columns.shape[1]):
            hashed = splitmix64(hashed ^ columns[target, word])
        entry = np.int64(hashed & np.uint64(table.size - 1))
        while True:
            number = table[entry]
            if number < 0:
                table[entry] = number = count
                first[count] = target
                count += 1
            is_same = True
            for word in range(columns.shape[1]):
                is_same &= columns[first[number], word] == columns[target, word]
            if is_same:
                which[target] = number
                break
            entry = (entry + 1) % table.size
    return count


# Valiant routing: minimally to a random intermediate group, then minimally to the target.
#
# Valiant and Brebner, STOC 1981; on dragonflies by groups: Kim, Dally, Scott and Abts, ISCA 2008, section
# 4.2. Where every switch has a `group`, those are the groups; elsewhere each switch is a group of its own.
# Neither part of the way is a loop, but a node may be on both. Deadlock is not modelled: buffers here drop,
# or never fill.


class Detours(NamedTuple):
    """Groups of switches, and where a group is entered; switches are counted from the first switch."""

    group: NDArray[np.int32]  # (S,) from 0
    groups_count: int
    first_entry: NDArray[np.int64]  # (S * groups + 1,) rows of `entries`; (1,) where a switch is a group
    entries: NDArray[np.int32]
    """By switch, then group: the switches of the group that are nearest, ascending."""


def find_detours(graph: nx.Graph, tables: Tables) -> Detours:
    """The groups of a graph and their entries: O(S²) for S switches if there are groups.

    Raises
    ------
    PolicyError
        A group is no int, or there are servers with ports of their own, which would be on the way.
    """
    _require_one_port(graph, "valiant or ugal")
    names, group = switches(graph), groups_of(graph)
    if group is None:
        for name in names:
            node_group = graph.nodes[name].get("group")
            if not (node_group is None or type(node_group) is int):
                raise PolicyError(f"{where(graph)}switch {name!r} has group {node_group!r}, must be an int")
        single = np.arange(len(names), dtype=np.int32)
        return Detours(single, len(names), np.zeros(1, np.int64), np.zeros(0, np.int32))
    count, hops = int(group.max()) + 1, hops_between(tables)
    owners, members = [], []
    for number in range(count):
        group_switches = np.flatnonzero(group == number)
        distance = hops[:, group_switches]
        switch, member = np.nonzero(distance == distance.min(axis=1, keepdims=True))
        owners.append(switch * count + number)
        members.append(group_switches[member])
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    first_entry = np.searchsorted(owner[order], np.arange(len(names) * count + 1)).astype(np.int64)
    return Detours(group, count, first_entry, np.concatenate(members)[order].astype(np.int32))


def hops_between(tables: Tables) -> NDArray[np.int16]:
    """(S, S) hops from each switch to each other."""
    fabric, count = tables.fabric, tables.fabric.switches_count
    following = np.empty((count, count), np.int32)
    for switch in range(count):
        ends = fabric.far_end[fabric.first_port[switch] : fabric.first_port[switch + 1]]
        following[switch] = ends[first_ports(tables, switch)] if ends.size else switch
    target = np.arange(count)
    at = np.broadcast_to(target[:, None], (count, count)).copy()
    hops = np.zeros((count, count), np.int16)
    while (away := at != target).any():
        hops += away
        at = np.where(away, following[at, target], at)
    return hops


def detour(detours: Detours, fabric: SwitchLinks, source: int, target: int, key: int) -> int:
    """The intermediate switch (a node) of a flow between two hosts; -1 where it goes straight on.

    Hosts of one group, and hosts where there is no third group, reach each other minimally.
    """
    source_switch, target_switch = int(fabric.home[source]), int(fabric.home[target])
    first, second = sorted((int(detours.group[source_switch]), int(detours.group[target_switch])))
    other_groups = detours.groups_count - 2
    if first == second or other_groups < 1:
        return -1
    draw = mix_plain(rng_streams.VALIANT, source, target, key)
    group = draw % other_groups
    group += group >= first
    group += group >= second
    if detours.entries.size == 0:
        return fabric.hosts_count + group
    row = source_switch * detours.groups_count + group
    begin, end = int(detours.first_entry[row]), int(detours.first_entry[row + 1])
    return fabric.hosts_count + int(detours.entries[begin + (draw >> 32) % (end - begin)])


# The routing policies that a scenario can name: what each makes of a graph, and what it does to packets.


def _require_one_port(graph: nx.Graph, kinds: str) -> None:
    """Raise PolicyError if hosts have several ports."""
    if server_ports(graph):
        raise PolicyError(
            f"{where(graph)}hosts with several ports cannot be used with routing {kinds}; "
            "use routing: ecmp, spray, adaptive or flowlet"
        )


def _minimal(graph: nx.Graph, fabric: SwitchLinks) -> Tables:
    return shortest_tables(fabric, port_costs(graph, fabric))


class Steering(IntEnum):
    """What a policy does to packets of flows; from `SPRAYED` on they may overtake each other."""

    PLAIN = 0  # nothing: a hash of the flow's key chooses
    DETOURED = 1  # sends a flow over another group
    SPRAYED = 2  # hashes each packet
    ADAPTIVE = 3  # chooses for each packet at every switch, by queues
    FLOWLETS = 4  # hashes each flowlet
    UGAL = 5  # chooses for each packet at its first switch, by queues, whether it goes over another group


@dataclass(frozen=True)
class Policy:
    """How packets between hosts choose among paths. Packets from or to a switch keep one path a flow."""

    kind: str
    meaning: str  # a sentence, after the kind
    make_tables: Callable[[nx.Graph, SwitchLinks], Tables] = _minimal
    steering: Steering = Steering.PLAIN
    find_detours: Callable[[nx.Graph, Tables], Detours] | None = None
    gap_ps: int = 0
    """Of `FLOWLETS`: the pause after which a flow may take another path."""

    @property
    def is_sprayed(self) -> bool:
        # Packets choose for themselves: they load equal paths evenly, and overtake each other.
        return self.steering in (Steering.SPRAYED, Steering.ADAPTIVE, Steering.UGAL)

    @property
    def can_reroute(self) -> bool:
        """Whether it has routes on what is left of a network; see `topologies.network.rerouted`."""
        return self.make_tables is _minimal and self.find_detours is None

    @property
    def reorders(self) -> bool:
        return self.steering >= Steering.SPRAYED

    @property
    def is_for_hosts_alone(self) -> bool:
        return self.steering != Steering.PLAIN


ECMP = Policy("ecmp", "one of the shortest paths for each flow, by a hash of its key")
SPRAY = Policy(
    "spray", "one of the shortest paths for each packet, by a hash of its key", steering=Steering.SPRAYED
)
VALIANT = Policy(
    "valiant",
    "minimally to a random group (of a dragonfly; elsewhere: switch) for each flow, and on from there",
    steering=Steering.DETOURED,
    find_detours=find_detours,
)
ADAPTIVE = Policy(
    "adaptive",
    "at every switch each packet takes the shortest path whose link has the least to send",
    steering=Steering.ADAPTIVE,
)
FLOWLET = Policy(
    "flowlet",
    "as ecmp, but a flow takes another path after a pause longer than `gap`",
    steering=Steering.FLOWLETS,
    gap_ps=500 * 10**6,  # as CONGA (SIGCOMM 2014) and LetFlow (NSDI 2017)
)
UGAL = Policy(
    "ugal",
    "each packet goes minimally or as with valiant, by the queues at its first switch (UGAL-L)",
    steering=Steering.UGAL,
    find_detours=find_detours,
)
DIMENSION_ORDER = Policy(
    "dimension_order",
    "all hops of the first dimension of a torus, hypercube or hyperx, then of the next",
    make_tables=dimension_order_tables,
)
POLICIES = {
    policy.kind: policy for policy in (ECMP, SPRAY, ADAPTIVE, FLOWLET, VALIANT, UGAL, DIMENSION_ORDER)
}
