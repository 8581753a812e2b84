"""The `topology` section: one for every registered topology, made of its fields, and a graph from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from functools import cache, partial
from inspect import get_annotations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import pydantic
from pydantic import create_model

from netfold.kinds import registered
from netfold.sim.keys import ByKind, Count, Option, Rate, Section, Size, Time, count_of
from netfold.topologies.kind import Links, Topology, type_of
from netfold.topologies.planes import Planes
from netfold.topologies.topology_files import Defaults

_UNITS: dict[str, Any] = {"_bps": Rate, "_ps": Time, "_bytes": Size}


@dataclass(frozen=True)
class LinkOverride(Option):
    """Changes of the links that a pattern matches."""

    match: str
    """Pattern of a link's ends, such as leaf*-spine0, in either order: * is any text, ? a character."""
    rate_bps: Rate | None = None
    """Their rate, in each direction."""
    delay_ps: Time | None = None
    """Their propagation delay."""
    buffer_bytes: Size | None = None
    """Buffer of the switch ports at their ends."""

    def __post_init__(self) -> None:
        if not self.attributes:
            raise ValueError("changes nothing\ngive rate, delay or buffer")

    @property
    def attributes(self) -> dict[str, int]:
        # What changes, as a graph has it.
        return {name: value for name, value in vars(self).items() if name != "match" and value is not None}


@dataclass(frozen=True)
class ProfileOverride(Option):
    """The profile of the switches that a pattern matches."""

    match: str
    """Pattern of a switch's name, such as spine*."""
    profile: str
    """Their profile."""


_PLANES = (
    "Copies of the network, which share its hosts: every host has a port on each, of `rate`, and channels of "
    "a collective take the ports in turn. Switch `spine1` of the first copy is `p0.spine1`."
)
_LINKS = "Changes of single links, each {match, rate, delay, buffer}; later ones win."
_PROFILES = "Profiles of single switches, each {match, profile}; later ones win."
_WITHOUT = "Patterns of switches (spine0) and links (leaf3-spine*) that are absent from the start."


class TopologySection(Section):
    """What the sections of all topologies have in common."""

    if TYPE_CHECKING:
        kind: str
        links: tuple[LinkOverride, ...]
        switch_profiles: tuple[ProfileOverride, ...]
        without: tuple[str, ...]
    made_by: ClassVar[type[Topology]]

    @property
    def file(self) -> str | None:
        # The file with the graph, relative to the scenario's; None if there is none.
        return None

    def defaults(self) -> Defaults:
        # What the graph in its file is given where it leaves something out.
        raise TypeError(f"{self.kind} is not a file")

    def topology(self) -> Topology | Planes:
        kwargs = {field.name: getattr(self, key_of(field.name)) for field in fields(_dataclass(self.made_by))}
        made, planes = self.made_by(**kwargs), getattr(self, "planes", 1)
        return made if planes == 1 else Planes(made, planes)

    def key(self, name: str) -> str:
        # Where a scenario says something of links or switches: at a key of its own, or in the file.
        return "topology.path" if self.file is not None else f"topology.{name}"

    def key_of_value(self, name: str, value: object) -> str:
        """Where a scenario gives links or switches this value, by the name of the key for all of them.

        That is an entry of `links` or `switch_profiles`, or one of the topology's keys.
        """
        changes = self.links if name == "rate" else self.switch_profiles
        for index, change in reversed(list(enumerate(changes))):
            part = "rate_bps" if name == "rate" else "profile"
            if getattr(change, part) == value:
                listed = "links" if name == "rate" else "switch_profiles"
                return f"topology.{listed}.{index}.{key_of(part)}"
        keys = [key for key in type(self).model_fields if key.endswith(name) and getattr(self, key) == value]
        explicit_keys = [key for key in keys if key in self.model_fields_set]
        return f"topology.{(explicit_keys or keys)[0]}" if keys else self.key(name)

    def link_changes(self) -> list[tuple[str, dict[str, int]]]:
        return [(override.match, override.attributes) for override in self.links]

    def profile_changes(self) -> list[tuple[str, str]]:
        return [(override.match, override.profile) for override in self.switch_profiles]


def key_of(name: str) -> str:
    # "rate" for "rate_bps".
    return _split(name)[0]


def _split(name: str) -> tuple[str, Any]:
    """The key of a field, and the type of its text if it has a unit: "rate" and Rate of "rate_bps"."""
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    return name.removesuffix(unit), _UNITS.get(unit)


def _dataclass(topology: type[Topology]) -> Any:
    return topology


@cache
def _section(topology: type[Topology]) -> type[TopologySection]:
    """The section whose keys are the fields of a topology; those that it inherits stand before `kind`."""
    all_fields = fields(_dataclass(topology))
    annotations = get_annotations(topology)
    literal: Any = Literal
    keys: dict[str, Any] = {
        **{_split(field.name)[0]: _key(field) for field in all_fields if field.name not in annotations},
        "kind": (literal[topology.kind], ...),
        **{_split(field.name)[0]: _key(field) for field in all_fields if field.name in annotations},
        "planes": (Count, pydantic.Field(1, description=_PLANES)),
        **_OVERRIDES,
    }
    section = create_model(topology.__name__, __base__=TopologySection, __doc__=topology.__doc__, **keys)
    section.made_by = topology
    return section


def _key(field: Field[Any]) -> tuple[Any, Any]:
    """Type and default of a key, as pydantic takes them."""
    _, quantity = _split(field.name)
    written = type_of(field)
    about = {"description": field.metadata["meaning"]}
    counted = count_of(field.metadata.get("least", 1))
    value_type: Any = quantity or (counted if written in ("int", "int | None") else str)
    if written.startswith("tuple"):
        value_type = Annotated[tuple.__class_getitem__((counted, ...)), pydantic.Field(min_length=1)]
    elif written.endswith("| None"):
        value_type = value_type | None
    if "like" in field.metadata:
        like, _ = _split(field.metadata["like"])
        return value_type, pydantic.Field(default_factory=lambda read: read.get(like, 0), **about)
    return value_type, pydantic.Field(... if field.default is MISSING else field.default, **about)


_OVERRIDES: dict[str, Any] = {
    "links": (tuple[LinkOverride, ...], pydantic.Field((), description=_LINKS)),
    "switch_profiles": (tuple[ProfileOverride, ...], pydantic.Field((), description=_PROFILES)),
    "without": (tuple[str, ...], pydantic.Field((), description=_WITHOUT)),
}


_LINK = Links()  # what is left out in a file is as in generated topologies


class TopologyFile(TopologySection):
    """A graph from a file."""

    kind: Literal["file"]
    path: str
    """Node-link JSON, or GraphML or GML (.graphml, .gml), relative to the scenario file."""
    hosts_per_switch: Count | None = None
    """Hosts to add to each switch of a file that has no hosts, as those of the Topology Zoo."""
    rate: Rate | None = None
    """Rate of added hosts' links, and in GraphML and GML of links that have none; by default 100Gbps."""
    delay: Time | None = None
    """Delay of added hosts' links, and of those whose file has neither delay nor places; by default 1us."""
    buffer: Size | None = None
    """Buffer of switch ports for which the file has none; by default 16MiB."""
    switch: str | None = None
    """Profile of switches that have none in GraphML or GML; by default tofino1."""
    links: tuple[LinkOverride, ...] = pydantic.Field((), description=_LINKS)
    switch_profiles: tuple[ProfileOverride, ...] = pydantic.Field((), description=_PROFILES)
    without: tuple[str, ...] = pydantic.Field((), description=_WITHOUT)

    @property
    def file(self) -> str | None:
        return self.path

    def defaults(self) -> Defaults:
        """What the file leaves out."""
        link = _LINK.link(self.rate, self.delay)
        link = link if self.buffer is None else replace(link, buffer_bytes=self.buffer)
        return Defaults(link, self.switch or _LINK.switch, self.hosts_per_switch)


def topology_sections() -> tuple[type[TopologySection], ...]:
    return (*map(_section, registered(Topology).values()), TopologyFile)


class _Registered(ByKind):
    """A mapping becomes the section of its `kind`, whenever that was registered."""

    def sections(self, source: Any) -> Mapping[str, Callable[[], type[Section]]]:
        generated = {kind: partial(_section, topology) for kind, topology in registered(Topology).items()}
        return {**generated, "file": lambda: TopologyFile}


AnyTopology = Annotated[TopologySection, _Registered()]
