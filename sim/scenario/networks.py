"""The `topology` section: one for every registered topology, made of its fields, and a graph from a file."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from functools import cache
from inspect import get_annotations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union

import pydantic
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

import netfold.topologies  # noqa: F401  # which registers those there are
from netfold.sim.keys.fields import Count, Rate, Size, Time
from netfold.sim.keys.section import Section
from netfold.topologies.kind import Topology, topology_kinds

_UNITS: dict[str, Any] = {"_bps": Rate, "_ps": Time, "_bytes": Size}


class TopologySection(Section):
    """What the sections of all topologies have in common."""

    if TYPE_CHECKING:
        kind: str
    made_by: ClassVar[type[Topology]]

    @property
    def file(self) -> str | None:
        """The file that it names, relative to the scenario's."""
        return None

    def topology(self) -> Topology:
        """The topology that it describes."""
        given = {one.name: getattr(self, _split(one.name)[0]) for one in fields(_dataclass(self.made_by))}
        return self.made_by(**given)

    def key(self, name: str) -> str:
        """Where a scenario says something of links or switches: at a key of its own, or in the file."""
        return "topology.path" if self.file is not None else f"topology.{name}"


class TopologyFile(TopologySection):
    """A graph from a file."""

    kind: Literal["file"]
    path: str
    """Node-link JSON, relative to the scenario file."""

    @property
    def file(self) -> str | None:
        """The graph."""
        return self.path


def _split(name: str) -> tuple[str, Any]:
    """The key of a field, and the type of its text if it has a unit: "rate" and Rate of "rate_bps"."""
    unit = next((unit for unit in _UNITS if name.endswith(unit)), "")
    return name.removesuffix(unit), _UNITS.get(unit)


def _dataclass(topology: type[Topology]) -> Any:
    return topology


@cache
def _section(topology: type[Topology]) -> type[TopologySection]:
    """The section whose keys are the fields of a topology; those that it inherits stand before `kind`."""
    found = fields(_dataclass(topology))
    own = get_annotations(topology)
    kind: Any = Literal
    keys: dict[str, Any] = {
        **{_split(one.name)[0]: _key(one) for one in found if one.name not in own},
        "kind": (kind[topology.kind], ...),
        **{_split(one.name)[0]: _key(one) for one in found if one.name in own},
    }
    made = create_model(topology.__name__, __base__=TopologySection, __doc__=topology.__doc__, **keys)
    made.made_by = topology
    return made


def _key(field: Field[Any]) -> tuple[Any, Any]:
    """Type and default of a key, as pydantic takes them."""
    _, quantity = _split(field.name)
    about = {"description": field.metadata["meaning"]}
    value_type = quantity or (Count if field.type in (int, "int") else str)
    if "like" in field.metadata:
        like, _ = _split(field.metadata["like"])
        return value_type, pydantic.Field(default_factory=lambda read: read.get(like, 0), **about)
    return value_type, pydantic.Field(... if field.default is MISSING else field.default, **about)


def topology_sections() -> tuple[type[TopologySection], ...]:
    """The sections of all kinds."""
    return (*map(_section, topology_kinds().values()), TopologyFile)


@cache
def _adapter(sections: tuple[type[TopologySection], ...]) -> TypeAdapter[TopologySection]:
    union: Any = Union
    return TypeAdapter(Annotated[union[sections], pydantic.Field(discriminator="kind")])


class _Registered:
    """A mapping becomes the section of its `kind`, whenever that was registered."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # An error becomes the cause of this field's, and has the place that it would have without this.
        return core_schema.no_info_plain_validator_function(
            lambda value: _adapter(topology_sections()).validate_python(value)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(_adapter(topology_sections()).core_schema)


AnyTopology = Annotated[TopologySection, _Registered()]
