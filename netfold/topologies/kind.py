"""What a kind of topology is: a dataclass whose fields are the keys that a scenario may set."""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import networkx as nx

from netfold.topologies.graph import LINKS_MAX, NODES_MAX, LinkSpec, TopologyError


class Size(NamedTuple):
    """How large a graph will be, and what to do where that is too large."""

    nodes: int
    links: int  # in both directions
    key: str  # the field to change …
    hint: str  # … and how


class Counts(NamedTuple):
    """How many of what a graph has."""

    hosts: int
    switches: int
    links: int  # in both directions


class Facts(NamedTuple):
    """The closed forms of a topology; None where none is known."""

    hosts: int
    switches: int
    links: int  # in both directions
    diameter_hops: int | None  # links on the longest of the shortest paths between two hosts
    bisection_bps: (
        int | None
    )  # least rate, one way, between two halves of the hosts (see `topologies.measures`)
    paths: int | None  # shortest paths between two hosts as far apart as the diameter; of the pair with most


class Topology(Protocol):
    """A frozen dataclass of plain data.

    Numbers carry their unit last: `rate_bps`, `delay_ps`, `buffer_bytes`. A scenario's key is the name
    without it, its value text with a unit. Other fields are counts (int, perhaps None), lists of counts
    (tuple[int, ...]) or text. The metadata of each field has its `meaning`, a sentence or two; `like`:
    another field whose value it has if it is left out; and `least`: the smallest value of a count, 1 by
    default.
    """

    kind: ClassVar[str]

    def size(self) -> Size:
        """The size of the graph, before it is made."""
        ...

    def facts(self) -> Facts:
        """The closed forms, before the graph is made; for sizes that fit the packet engine."""
        ...

    def graph(self) -> nx.Graph:
        """The graph; it passes `topologies.graph.validate`."""
        ...


class ParameterError(TopologyError):
    """A field of a topology whose value is not allowed."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def like(other: str, meaning: str) -> Any:
    """A field that has the value of another one if it is left out."""
    return field(default=None, metadata={"meaning": meaning, "like": other})


def count(meaning: str, default: int | None = None, least: int = 1) -> Any:
    """A field that is a whole number of at least `least`; without a default it is required."""
    about = {"meaning": meaning, "least": least}
    return field(metadata=about) if default is None else field(default=default, metadata=about)


def optional(meaning: str) -> Any:
    """A field that may be None, as it is if it is left out."""
    return field(default=None, metadata={"meaning": meaning})


@dataclass(frozen=True, kw_only=True)
class Links:
    """What the links and switches of a generated topology have in common."""

    rate_bps: int = field(
        default=100 * 10**9,
        metadata={"meaning": "Rate of the links between hosts and switches, in each direction."},
    )
    delay_ps: int = field(
        default=10**6,
        metadata={"meaning": "Propagation delay of every link that has none of its own."},
    )
    buffer_bytes: int = field(
        default=1 << 24,
        metadata={"meaning": "Buffer of every switch port; packets that do not fit are dropped (drop-tail)."},
    )
    switch: str = field(
        default="tofino1",
        metadata={"meaning": "Profile of the switches: what their hardware can do."},
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            if "like" in one.metadata and getattr(self, one.name) is None:
                object.__setattr__(self, one.name, getattr(self, one.metadata["like"]))

    def link(self, rate_bps: int | None = None, delay_ps: int | None = None) -> LinkSpec:
        """A link of this rate and delay, by default the hosts'."""
        return LinkSpec(
            self.rate_bps if rate_bps is None else rate_bps,
            self.delay_ps if delay_ps is None else delay_ps,
            self.buffer_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Generated(Links):
    """A topology made of counts; its size follows from them."""

    kind: ClassVar[str]
    growing: ClassVar[tuple[str, ...]]  # counts that make it larger: the one to make smaller comes first

    def counts(self) -> Counts:
        """Hosts, switches and links, by closed forms; the counts are valid."""
        raise TypeError(f"{type(self).__name__} must define counts()")

    def check(self) -> None:
        """Check what the counts must satisfy together; each by itself is valid."""

    def size(self) -> Size:
        """The size, by closed forms.

        Raises
        ------
        ParameterError
            A count is not allowed.
        """
        check_fields(self.kind, self)
        self.check()
        found = self.counts()
        key, hint = self._smaller()
        return Size(found.hosts + found.switches, found.links, key, hint)

    def _with(self, key: str, value: int) -> Generated:
        changes: dict[str, Any] = {key: value}
        return replace(self, **changes)

    def _smaller(self) -> tuple[str, str]:
        """The count to make smaller where the graph is too large, and how."""
        for key in self.growing:
            value = getattr(self, key)
            if isinstance(value, tuple):
                return key, f"use fewer or smaller {key}"
            low, high = 0, value + 1
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _fits(self._with(key, middle)) else (low, middle)
            most = low
            while most > 0 and not _is_valid(self._with(key, most)):
                most -= 1
            if most > 0:
                return key, f"use {most} {key} at most" if key.endswith(
                    "s"
                ) else f"{key} can be {most} at most"
        return self.growing[0], f"use smaller values of {', '.join(self.growing)}"


def _fits(topology: Generated) -> bool:
    found = topology.counts()
    return found.hosts + found.switches <= NODES_MAX and found.links <= LINKS_MAX


def _is_valid(topology: Generated) -> bool:
    try:
        check_fields(topology.kind, topology)
        topology.check()
    except ParameterError:
        return False
    return True


def check_fields(kind: str, topology: Any) -> None:
    """Check that each count of a topology is an int, and large enough.

    Raises
    ------
    ParameterError
        Names the first that is not.
    """
    for one in fields(topology):
        value, least, written = getattr(topology, one.name), one.metadata.get("least", 1), type_of(one)
        if one.name.endswith(_UNITS) or "int" not in written or (value is None and "None" in written):
            continue
        if written.startswith("tuple"):
            if not isinstance(value, tuple) or not value or any(_is_below(item, least) for item in value):
                raise ParameterError(
                    one.name, f"{kind}: {one.name} is {value!r}, must be a list of ints of at least {least}"
                )
        elif _is_below(value, least):
            raise ParameterError(
                one.name, f"{kind}: {one.name} is {value!r}, must be an int of at least {least}"
            )


def type_of(one: Field[Any]) -> str:
    """The type of a field as it is written: "int", "int | None", "tuple[int, ...]" or "str"."""
    return one.type.__name__ if isinstance(one.type, type) else str(one.type)


def _is_below(value: object, least: int) -> bool:
    return type(value) is not int or value < least


_UNITS = ("_bps", "_ps", "_bytes")  # endings of the names of fields
T = TypeVar("T", bound=type[Topology])
_registry: dict[str, type[Topology]] = {}


def register(topology: T) -> T:
    """Class decorator: make a topology known under its `kind`."""
    _registry[topology.kind] = topology
    return topology


def topology_kinds() -> dict[str, type[Topology]]:
    """All registered topologies by kind, in the order in which they were registered."""
    return dict(_registry)
