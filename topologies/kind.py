"""What a kind of topology is: a dataclass whose fields are the keys that a scenario may set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, TypeVar

import networkx as nx

from netfold.topologies.graph import LinkSpec


class Size(NamedTuple):
    """How large a graph will be, and what to do where that is too large."""

    nodes: int
    links: int  # in both directions
    key: str  # the field to change …
    hint: str  # … and how


class Topology(Protocol):
    """A frozen dataclass of plain data.

    Numbers carry their unit last: `rate_bps`, `delay_ps`, `buffer_bytes`. A scenario's key is the name
    without it, its value text with a unit. Other fields are counts (int) or text. The metadata of each field
    has its `meaning`, a sentence or two, and `like`: another field whose value it has if it is left out.
    """

    kind: ClassVar[str]

    def size(self) -> Size:
        """The size of the graph, before it is made."""
        ...

    def graph(self) -> nx.Graph:
        """The graph; it passes `topologies.graph.validate`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Links:
    """What the links and switches of a generated topology have in common."""

    rate_bps: int = field(
        default=100 * 10**9,
        metadata={"meaning": "Rate of the links between hosts and switches, in each direction."},
    )
    delay_ps: int = field(default=10**6, metadata={"meaning": "Propagation delay of every link."})
    buffer_bytes: int = field(
        default=1 << 24,
        metadata={"meaning": "Buffer of every switch port; packets that do not fit are dropped (drop-tail)."},
    )
    switch: str = field(
        default="tofino1",
        metadata={"meaning": "Profile of the switches: what their hardware can do."},
    )

    def link(self, rate_bps: int | None = None) -> LinkSpec:
        """A link of this rate, by default the hosts'."""
        return LinkSpec(self.rate_bps if rate_bps is None else rate_bps, self.delay_ps, self.buffer_bytes)


T = TypeVar("T", bound=type[Topology])
_registry: dict[str, type[Topology]] = {}


def register(topology: T) -> T:
    """Class decorator: make a topology known under its `kind`."""
    _registry[topology.kind] = topology
    return topology


def topology_kinds() -> dict[str, type[Topology]]:
    """All registered topologies by kind, in the order in which they were registered."""
    return dict(_registry)
