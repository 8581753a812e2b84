"""Custom switch profiles of a scenario: a known profile and what differs, in the scenario or a YAML file."""

from __future__ import annotations

import re
from dataclasses import Field as DataclassField
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
    create_model,
)

from netfold.errors import Mistakes, OptionError, shown
from netfold.homomorphic.merge import MERGEABLE, Merge
from netfold.sim.files import UnreadableError, read_text
from netfold.sim.keys import Name, Section, described
from netfold.sim.plan import prices
from netfold.sim.plan.prices import Prices
from netfold.sim.scenario.validation_errors import validated
from netfold.sim.scenario.yaml_tree import Node, parse
from netfold.switch.profiles import ADDER_BITS, OVERFLOWS, PROFILES, Profile, derived
from netfold.units import RATE, SIZE, TIME, Quantity

SUFFIXES = (".yaml", ".yml")
"""Suffixes of files that hold a profile."""
PROFILE_BYTES_MAX = 2**20


def _limit(quantity: Quantity) -> tuple[BeforeValidator, PlainSerializer, WithJsonSchema]:
    """Field type of a quantity that may be 0: none of it, or no limit."""
    schema = {"type": "string", "pattern": quantity.pattern, "examples": [quantity.example]}
    return (
        BeforeValidator(quantity.parse),
        PlainSerializer(quantity.format, return_type=str),
        WithJsonSchema(schema),
    )


Number = Annotated[int, Field(ge=0)]
_Rate = Annotated[int, *_limit(RATE)]
_Time = Annotated[int, *_limit(TIME)]
Size = Annotated[int, *_limit(SIZE)]
_QUANTITIES: dict[str, Any] = {"bps": _Rate, "ps": _Time, "bytes": Size}
_CHOICES: dict[str, tuple[str | int, ...]] = {
    "merges": tuple(merge.value for merge in Merge if merge in MERGEABLE),
    "overflows": OVERFLOWS,
    "adder_bits": ADDER_BITS,
}
*_KNOWN, _LAST = PROFILES


class _ProfileKeys(Section):
    """A known profile and what differs from it; keys left out have its values. 0 means none, or no limit."""

    name: Name
    """Name for `topology.switch`, and for switches in a topology file."""
    like: str = Field(description=f"Known profile that it is based on: {', '.join(_KNOWN)} or {_LAST}.")
    summary: str = ""
    """What it is, in a few words."""


def _several(choices: tuple[str | int, ...]) -> Any:
    """The field type of a list of some of these names or numbers."""
    a_choice: Any = Literal
    tuple_of: Any = tuple
    return tuple_of[a_choice[choices], ...]


def _field(field: DataclassField[Any]) -> tuple[Any, Any]:
    """The pydantic field of a limit of a switch."""
    about = described(field.metadata["meaning"])
    if field.name in _CHOICES:
        return _several(_CHOICES[field.name]), Field(default_factory=tuple, description=about)
    unit = field.name.rpartition("_")[2]
    kind = bool if field.type == "bool" else _QUANTITIES.get(unit, Number)
    return kind | None, Field(None, description=about)


_FIELDS = {
    re.sub("_(bps|ps|bytes)$", "", field.name): field
    for field in fields(Profile)
    if "meaning" in field.metadata
}
if TYPE_CHECKING:
    SwitchProfile = _ProfileKeys
else:
    SwitchProfile = create_model(
        "SwitchProfile",
        __base__=_ProfileKeys,
        __doc__=_ProfileKeys.__doc__,
        **{key: _field(field) for key, field in _FIELDS.items()},
    )


def with_profile_files(document: Node, folder: Path, mistakes: Mistakes) -> Node:
    """The scenario with the profiles and prices of files read in, so that all are mappings.

    Files that cannot be read, or are broken YAML, go to `mistakes` and are left out.
    """
    price_node = document.children.get("prices")
    if price_node is not None and isinstance(price_node.value, str):
        others = {key: node for key, node in document.children.items() if key != "prices"}
        with mistakes.collecting():
            others["prices"] = from_file(price_node, folder)
        document = Node(others, document.file, document.line, document.path)
    listed = document.children.get("profiles")
    if listed is None or not isinstance(listed.value, tuple):
        return document
    items = []
    for item in listed.value:
        if not isinstance(item.value, str):
            items.append(item)
            continue
        with mistakes.collecting():
            items.append(from_file(item, folder))
    list_node = Node(tuple(items), listed.file, listed.line, listed.path)
    return Node({**document.children, "profiles": list_node}, document.file, document.line, document.path)


def from_file(item: Node, folder: Path) -> Node:
    path = folder / str(item.value)
    try:
        text = read_text(path, PROFILE_BYTES_MAX)
    except UnreadableError as error:
        hint = "give a mapping, or the path of a YAML file with one, relative to the scenario file"
        raise item.error(f"cannot read {shown(item.value)}: {error.message}", hint) from None
    return parse(str(path), text)


def custom_profiles(
    sections: tuple[SwitchProfile, ...], document: Node, mistakes: Mistakes
) -> dict[str, Profile]:
    """Profiles of a scenario by name; duplicate names and invalid profiles go to `mistakes`."""
    profiles: dict[str, Profile] = {}
    nodes = document.children["profiles"].value if sections else ()
    assert isinstance(nodes, tuple)
    for section, node in zip(sections, nodes, strict=True):
        with mistakes.collecting():
            if section.name in profiles:
                raise node.error(f"the name {section.name!r} appears twice", "use another name")
            profiles[section.name] = _make(section, node)
    return profiles


def read_profile(path: str) -> Profile:
    node = from_file(Node(path, path, 0, ""), Path())
    return _make(validated(SwitchProfile, node), node)


def read_prices(path: str) -> Prices:
    # Of a YAML file; a ScenarioError names the line that is not allowed.
    return validated(Prices, from_file(Node(path, path, 0, ""), Path()))


@cache
def default_prices() -> Prices:
    return read_prices(str(Path(prices.__file__).with_suffix(".yaml")))


def _make(section: SwitchProfile, node: Node) -> Profile:
    settings = {key: getattr(section, key) for key in section.model_fields_set - {"name", "like"}}
    values = {_FIELDS[key].name if key in _FIELDS else key: value for key, value in settings.items()}
    changes = {key: value for key, value in values.items() if value is not None}
    if "merges" in changes:
        changes["merges"] = frozenset(merge for merge in Merge if merge.value in changes["merges"])
    try:
        return derived(section.name, section.like, changes, node.place)
    except OptionError as error:
        at, missing = node.nearest([error.key])
        raise at.error(error.message, error.hint, missing) from None
