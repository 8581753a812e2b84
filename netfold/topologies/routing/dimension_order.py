"""Dimension-order routing on tori and hypercubes: all hops of one dimension, then all of the next.

Also e-cube routing (Sullivan and Bashkow, ISCA 1977; Dally and Seitz, IEEE Trans. Computers C-36(5), 1987).
There is one path for each pair of switches. Each dimension is a ring and is walked the shorter way round.
Where both ways are equally long, a packet goes to the next higher coordinate from an even one and to the
next lower from an odd one, so that neighbours load both ways. Deadlock is not modelled: buffers here drop,
or never fill.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from netfold.topologies.graph import switches, where
from netfold.topologies.routing.tables import Fabric, PolicyError, Tables, TablesBuilder

_HINT = "use routing: ecmp, or a torus or a hypercube"


def dimension_order_tables(graph: nx.Graph, fabric: Fabric) -> Tables:
    """Tables with the one port that dimension order takes.

    The graph has `dimensions`, the sizes of the rings, and every switch has `coordinates`.

    Raises
    ------
    PolicyError
        Without those, or if a switch lacks a link to the next of a ring, or has one to elsewhere.
    """
    dimensions, place = _places(graph)
    number = _numbering(graph, dimensions, place)
    strides = np.append(np.cumprod(dimensions[::-1])[::-1][1:], 1)
    at = np.empty(place.shape[0], np.int64)
    at[number] = np.arange(place.shape[0])  # from a place's number to the switch there
    ports = _port_of(graph, fabric, dimensions, place)
    builder = TablesBuilder(fabric)
    for switch in range(fabric.switches_count):
        ahead = (place - place[switch]) % dimensions  # hops upwards round each ring, to every target
        first = (ahead != 0).argmax(axis=1)
        hops, size = ahead[np.arange(first.size), first], dimensions[first]
        is_even = place[switch][first] % 2 == 0
        is_up = (2 * hops < size) | ((2 * hops == size) & is_even)
        step = np.where(is_up, 1, -1)
        here = place[switch][first]
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
    found = []
    for name in switches(graph):
        own = graph.nodes[name].get("coordinates")
        if not _are_ints(own) or len(own) != len(sizes):
            raise PolicyError(
                f"{where(graph)}routing dimension_order needs {len(sizes)} coordinates of every switch, "
                f"switch {name!r} has {own!r}; {_HINT}"
            )
        if not all(0 <= one < size for one, size in zip(own, sizes, strict=True)):
            raise PolicyError(
                f"{where(graph)}switch {name!r} has coordinates {tuple(own)}, "
                f"must be within dimensions {tuple(sizes)}; {_HINT}"
            )
        found.append(own)
    return np.array(sizes, np.int64), np.array(found, np.int64).reshape(len(found), len(sizes))


def _are_ints(value: object) -> bool:
    return isinstance(value, Sequence) and all(type(one) is int for one in value)


def _numbering(graph: nx.Graph, dimensions: NDArray[np.int64], place: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of each switch's place, in row-major order: every place is taken once."""
    names = switches(graph)
    expected = int(np.prod(dimensions, dtype=np.float64)) if dimensions.size else 0
    if len(names) != expected:
        raise PolicyError(
            f"{where(graph)}{len(names)} switches do not fill dimensions "
            f"{tuple(dimensions.tolist())}; {_HINT}"
        )
    number = np.ravel_multi_index(tuple(place.T), tuple(dimensions))
    taken, first = np.unique(number, return_index=True)
    if taken.size < number.size:
        other = next(index for index in range(number.size) if index not in set(first.tolist()))
        raise PolicyError(
            f"{where(graph)}two switches have coordinates {tuple(place[other].tolist())}, "
            f"one of them {names[other]!r}; {_HINT}"
        )
    return np.asarray(number, np.int64)


def _port_of(
    graph: nx.Graph, fabric: Fabric, dimensions: NDArray[np.int64], place: NDArray[np.int64]
) -> list[_Ports]:
    """The port of each switch towards each of its neighbours, once they are known to be those of rings."""
    names = switches(graph)
    rings = int(np.minimum(dimensions - 1, 2).sum())  # neighbours of every switch
    found = []
    for switch, name in enumerate(names):
        begin, end = fabric.first_port[switch], fabric.first_port[switch + 1]
        neighbours = fabric.far_end[begin:end]
        apart = (place[neighbours] - place[switch]) % dimensions
        is_near = ((apart == 0) | (apart == 1) | (apart == dimensions - 1)).all(axis=1)
        is_one = (apart != 0).sum(axis=1) == 1
        if not (is_near & is_one).all():
            other = names[int(neighbours[int(np.flatnonzero(~(is_near & is_one))[0])])]
            raise PolicyError(
                f"{where(graph)}switches {name!r} and {other!r} are linked "
                f"and are not next to each other in one dimension; {_HINT}"
            )
        if neighbours.size != rings:
            raise PolicyError(
                f"{where(graph)}switch {name!r} has {neighbours.size} links to switches, "
                f"dimensions {tuple(dimensions.tolist())} need {rings}; {_HINT}"
            )
        found.append(_Ports(neighbours))
    return found


class _Ports:
    """Ports by the switch that they lead to."""

    def __init__(self, neighbours: NDArray[np.int32]) -> None:
        self._neighbours = neighbours  # ascending

    def towards(self, switch: NDArray[np.int64]) -> NDArray[np.int64]:
        """The port to each of these neighbours; any for what is none."""
        return np.searchsorted(self._neighbours, switch).clip(max=max(0, self._neighbours.size - 1))
