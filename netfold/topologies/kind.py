"""What a kind of topology is: a dataclass whose fields are the keys that a scenario may set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from fractions import Fraction
from itertools import product
from math import factorial, prod
from typing import Any, ClassVar, NamedTuple, Protocol

import networkx as nx

from netfold.kinds import family
from netfold.topologies.graph import (
    LINKS_MAX,
    NODES_MAX,
    LinkSpec,
    TopologyError,
    add_host,
    add_link,
    add_switch,
    new_graph,
    validate,
)


class Size(NamedTuple):
    """How large a graph will be, and what to do where that is too large."""

    nodes: int
    links: int
    """Links in both directions."""
    key: str
    """Field to change if the graph is too large."""
    hint: str
    """How to change that field."""


class Counts(NamedTuple):
    """How many of what a graph has."""

    hosts: int
    switches: int
    links: int
    """Links in both directions."""


class Facts(NamedTuple):
    """The closed forms of a topology; None where none is known."""

    hosts: int
    switches: int
    links: int
    """Links in both directions."""
    diameter_hops: int | None
    """Links on the longest of the shortest paths between two hosts."""
    bisection_bps: int | None
    """Least rate, one way, between two halves of the hosts (see `topologies.measures`)."""
    paths: int | None
    """Shortest paths between two hosts as far apart as the diameter; those of the pair with most."""


@family("topologies", "netfold.topologies")
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

    def facts(self) -> Facts:
        """The closed forms, before the graph is made; for sizes that fit the packet engine."""

    def graph(self) -> nx.Graph:
        """The graph; it passes `topologies.graph.validate`."""


class ParameterError(TopologyError):
    """A field of a topology whose value is not allowed."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


def like(other: str, meaning: str) -> Any:
    # A field that has the value of field `other` if it is left out.
    return field(default=None, metadata={"meaning": meaning, "like": other})


def count(meaning: str, default: int | None = None, least: int = 1) -> Any:
    """A field that is a whole number of at least `least`; without a default it is required."""
    about = {"meaning": meaning, "least": least}
    return field(metadata=about) if default is None else field(default=default, metadata=about)


def optional(meaning: str) -> Any:
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
        for parameter in fields(self):
            if "like" in parameter.metadata and getattr(self, parameter.name) is None:
                object.__setattr__(self, parameter.name, getattr(self, parameter.metadata["like"]))

    def link(self, rate_bps: int | None = None, delay_ps: int | None = None) -> LinkSpec:
        """A link of this rate and delay, by default the hosts'."""
        return LinkSpec(
            self.rate_bps if rate_bps is None else rate_bps,
            self.delay_ps if delay_ps is None else delay_ps,
            self.buffer_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class Generated(Links, Topology):
    """A topology made of counts; its size follows from them."""

    growing: ClassVar[tuple[str, ...]]  # counts that make it larger: the one to make smaller comes first

    def counts(self) -> Counts:
        """Hosts, switches and links, by closed forms; the counts are valid."""
        raise TypeError(f"{type(self).__name__} must define counts()")

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        """Networks of this kind to choose one from, with `hosts` hosts or a few more; by default none.

        `links` are fields that all have, such as `rate_bps`. Some may fail `check`.
        """
        yield from ()

    def check(self) -> None:
        """Check what the counts must satisfy together; each by itself is valid."""

    def size(self) -> Size:
        """The size, by closed forms; raises ParameterError where a count is not allowed."""
        check_fields(self.kind, self)
        self.check()
        counts = self.counts()
        key, hint = self._smaller()
        return Size(counts.hosts + counts.switches, counts.links, key, hint)

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


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def steps(most: int) -> list[int]:
    """Counts to choose from: powers of 2 and thrice these up to `most`, and that."""
    regular = {count << power for count in (1, 3) for power in range(most.bit_length())}
    return [*sorted(count for count in regular if count < most), most]


def lattices(switches: int) -> Iterator[tuple[int, ...]]:
    """The ways to put so many switches into one to three dimensions of two or more, the smallest first."""
    for first in divisors(switches):
        for second in divisors(switches // first):
            sizes = first, second, switches // first // second
            if sizes == tuple(sorted(sizes)) and sizes[-1] > 1:
                yield tuple(size for size in sizes if size > 1)


def _fits(topology: Generated) -> bool:
    counts = topology.counts()
    return counts.hosts + counts.switches <= NODES_MAX and counts.links <= LINKS_MAX


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
    for parameter in fields(topology):
        value, least, written = (
            getattr(topology, parameter.name),
            parameter.metadata.get("least", 1),
            type_of(parameter),
        )
        if parameter.name.endswith(_UNITS) or "int" not in written or (value is None and "None" in written):
            continue
        if written.startswith("tuple"):
            if not isinstance(value, tuple) or not value or any(_is_below(item, least) for item in value):
                raise ParameterError(
                    parameter.name,
                    f"{kind}: {parameter.name} is {value!r}, must be a list of ints of at least {least}",
                )
        elif _is_below(value, least):
            raise ParameterError(
                parameter.name, f"{kind}: {parameter.name} is {value!r}, must be an int of at least {least}"
            )


def type_of(field: Field[Any]) -> str:
    return field.type.__name__ if isinstance(field.type, type) else str(field.type)


def _is_below(value: object, least: int) -> bool:
    return type(value) is not int or value < least


_UNITS = ("_bps", "_ps", "_bytes")  # endings of the names of fields
# What direct networks have in common: every switch has hosts, and links to other switches in one fabric.


@dataclass(frozen=True, kw_only=True)
class Direct(Generated):
    """Switches with hosts on each, linked to each other."""

    kind: ClassVar[str]

    hosts_per_switch: int = count("Number of hosts on each switch.", 1)
    fabric_rate_bps: int = like(
        "rate_bps", "Rate of the links between switches; by default that of the host links."
    )
    fabric_delay_ps: int | None = optional("Delay of the links between switches; by default `delay`.")

    def counts_of(self, switches: int, edges: int) -> Counts:
        """The counts, with so many edges between switches."""
        hosts = switches * self.hosts_per_switch
        return Counts(hosts, switches, 2 * (hosts + edges))

    def build(
        self, switches: Mapping[str, Mapping[str, Any]], edges: Iterable[tuple[str, str]], **attributes: Any
    ) -> nx.Graph:
        """The graph of these switches, with their places, and of the edges between them.

        Hosts are h0 …, in the order of their switches.
        """
        graph = new_graph(self.kind)
        graph.graph.update(attributes)
        per_switch = self.hosts_per_switch
        for index in range(len(switches) * per_switch):
            add_host(graph, f"h{index}")
        for number, (name, places) in enumerate(switches.items()):
            add_switch(graph, name, 1, self.switch, **places)
            for index in range(number * per_switch, (number + 1) * per_switch):
                add_link(graph, f"h{index}", name, self.link())
        fabric = self.link(self.fabric_rate_bps, self.fabric_delay_ps)
        for switch, other in edges:
            add_link(graph, switch, other, fabric)
        validate(graph)
        return graph

    def torus_counts(self, dimensions: Sequence[int]) -> Counts:
        """Counts of a torus: two neighbours in each dimension, one where it has two switches."""
        switches = prod(dimensions)
        return self.counts_of(switches, sum(switches if size > 2 else switches // 2 for size in dimensions))

    def torus_facts(self, dimensions: Sequence[int]) -> Facts:
        """Closed forms of a torus, see `topologies.kinds.torus`."""
        counts = self.torus_counts(dimensions)
        hops = [size // 2 for size in dimensions]
        two_ways = sum(size > 2 and size % 2 == 0 for size in dimensions)
        paths = factorial(sum(hops)) // prod(map(factorial, hops)) * 2**two_ways
        slowest = max(dimensions, key=_load)
        bisection = None
        if slowest % 2 == 0:
            cut = Fraction(counts.switches) / (4 * _load(slowest))
            bisection = min(counts.hosts // 2 * self.rate_bps, int(cut) * self.fabric_rate_bps)
        return Facts(*counts, sum(hops) + 2, bisection, paths)

    def torus(self, dimensions: Sequence[int], separator: str) -> nx.Graph:
        """The graph of a torus: switches are named by their coordinates, with a separator between them."""
        places = list(product(*map(range, dimensions)))
        names = {coordinates: f"s{separator.join(map(str, coordinates))}" for coordinates in places}
        edges = []
        for coordinates in places:
            for axis, size in enumerate(dimensions):
                if size == 2 and coordinates[axis] == 1:  # the link to its one neighbour is there
                    continue
                following = (*coordinates[:axis], (coordinates[axis] + 1) % size, *coordinates[axis + 1 :])
                edges.append((names[coordinates], names[following]))
        switches = {name: {"coordinates": coordinates} for coordinates, name in names.items()}
        return self.build(switches, edges, dimensions=tuple(dimensions))


def _load(size: int) -> Fraction:
    # If every switch sends 1 to every other in dimension order, a link carries this times the number of
    # switches.
    if size == 2:
        return Fraction(1, 2)
    return Fraction(size * size // 4, 2 * size)  # k/8 or (k² − 1)/(8k)


# What fat_tree and clos have in common: pods of edge and aggregation switches under a core.


class Pods(NamedTuple):
    """How many of what a folded Clos network of three tiers has."""

    pods: int
    edges: int
    """Edge switches of a pod."""
    hosts: int
    """Hosts of an edge switch."""
    aggregations: int
    """Aggregation switches of a pod, each linked to all its edge switches."""
    cores: int
    """Core switches of each aggregation switch: those of switch j of all pods are the same."""


@dataclass(frozen=True, kw_only=True)
class ThreeTiers(Generated):
    """Pods of edge and aggregation switches, with hosts below and a core above."""

    kind: ClassVar[str]

    uplink_rate_bps: int = like(
        "rate_bps", "Rate of the links between edge and aggregation switches; by default `rate`."
    )
    uplink_delay_ps: int | None = optional("Delay of these links; by default `delay`.")
    core_rate_bps: int = like(
        "uplink_rate_bps", "Rate of the links to core switches; by default `uplink_rate`."
    )
    core_delay_ps: int | None = optional("Delay of the links to core switches; by default `uplink_delay`.")

    def parts(self) -> Pods:
        """Its pods and what is in each."""
        raise TypeError(f"{type(self).__name__} must define parts()")

    def counts(self) -> Counts:
        """Hosts, switches and links of the class's closed forms."""
        pods, edges, hosts, aggregations, cores = self.parts()
        links = edges * (hosts + aggregations) + aggregations * cores
        return Counts(
            pods * edges * hosts, pods * (edges + aggregations) + aggregations * cores, 2 * pods * links
        )

    def facts(self) -> Facts:
        """The closed forms of the class; no bisection with an odd number of pods."""
        pods, edges, hosts, aggregations, cores = self.parts()
        pod_bps = min(
            edges * hosts * self.rate_bps,
            edges * aggregations * self.uplink_rate_bps,
            aggregations * cores * self.core_rate_bps,
        )
        bisection = None if pods % 2 else pods // 2 * pod_bps
        return Facts(*self.counts(), 6, bisection, aggregations * cores)

    def graph(self) -> nx.Graph:
        """Hosts h0 …, switches pod0edge0 …, pod0agg0 …, core0 …."""
        pods, edges, hosts, aggregations, cores = self.parts()
        graph = new_graph(self.kind)
        for index in range(pods * edges * hosts):
            add_host(graph, f"h{index}", group=index // (edges * hosts))
        for tier, role, number in ((1, "edge", edges), (2, "agg", aggregations)):
            for pod, index in product(range(pods), range(number)):
                add_switch(graph, f"pod{pod}{role}{index}", tier, self.switch, group=pod)
        for core in range(aggregations * cores):
            add_switch(graph, f"core{core}", 3, self.switch)
        host, uplink = self.link(), self.link(self.uplink_rate_bps, self.uplink_delay_ps)
        core_delay = self.uplink_delay_ps if self.core_delay_ps is None else self.core_delay_ps
        core_link = self.link(self.core_rate_bps, core_delay)
        for pod in range(pods):
            for edge in range(edges):
                name, first = f"pod{pod}edge{edge}", (pod * edges + edge) * hosts
                for index in range(first, first + hosts):
                    add_link(graph, f"h{index}", name, host)
                for aggregation in range(aggregations):
                    add_link(graph, name, f"pod{pod}agg{aggregation}", uplink)
            for aggregation, core in product(range(aggregations), range(cores)):
                add_link(graph, f"pod{pod}agg{aggregation}", f"core{aggregation * cores + core}", core_link)
        validate(graph)
        return graph
