"""Tables of next hops: from every switch to every other, in two bytes a pair.

A host has one link, so routes are needed between switches only, and a host has those of its switch
("home"). A switch numbers its links to other switches: its *ports*, in order of link. What it does for a
target is one number: below `degrees[switch]` it is the only port on the way, from there on it is a set of
ports. Sets are kept once for each switch, one after the other. Numbers fit 16 bits, as a switch has fewer
ports than there are switches, and no more sets than targets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netfold.topologies.graph import TopologyError

_PORT = np.dtype(np.uint16)
_SET_BYTES = 8  # of a set, besides its ports
_GIB = 2**30


class PolicyError(TopologyError):
    """A routing policy is not for such a topology."""


class Fabric(NamedTuple):
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
        """S."""
        return int(self.degrees.size)


class Tables(NamedTuple):
    """What every switch does for every target, as the module says."""

    fabric: Fabric
    choice: NDArray[np.uint16]  # (S, S) by switch, then target; 0 where they are the same
    first_set: NDArray[np.int32]  # (S,) row of `sets` of a switch's first set
    sets: NDArray[np.int32]  # (sets, 2) first entry in `ports`, and their number
    ports: NDArray[np.uint16]  # ascending within a set

    @property
    def size_bytes(self) -> int:
        """Memory of the tables."""
        return sum(int(array.nbytes) for array in self[1:])


def fabric_of(link_source: NDArray[np.int32], link_target: NDArray[np.int32], hosts_count: int) -> Fabric:
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
    return Fabric(
        hosts_count,
        home,
        down_link,
        (end_link - degrees).astype(np.int32),
        degrees,
        first_port.astype(np.int64),
        (link_target[inner] - hosts_count).astype(np.int32),
    )


def check_room(fabric: Fabric, room_bytes: int | None) -> None:
    """Refuse tables that would not fit `room_bytes`, before they are made.

    Raises
    ------
    TopologyError
        With the estimate: what the tables take at most, and what it takes to make them.
    """
    needed = room_needed(fabric)
    if room_bytes is not None and needed > room_bytes:
        raise TopologyError(
            f"the routes between {fabric.switches_count} switches take up to {needed / _GIB:.3g} GiB, "
            f"{room_bytes / _GIB:.3g} GiB of memory are free for them; "
            "use fewer switches, or topologies that variants have in common"
        )


def room_needed(fabric: Fabric) -> int:
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

    def __init__(self, fabric: Fabric) -> None:
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
