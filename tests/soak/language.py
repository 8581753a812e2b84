"""The scenario language as its JSON Schema has it: what there is to draw, and what a scenario has drawn.

Three sorts of things are counted, each by name:

    keys      "topology[star].hosts": a key of a section, with the kind of the section
    choices   "workload.pattern=rows", "workers=integer": a value of a list of words, and a form of a key
    pairs     "codec=topk & topology=star": kinds of two sections that one job can have

A *section* is a path without kinds, such as `workload.fusion`; its kinds are the alternatives that have a
constant `kind`. Some lists of words decide as much as kinds do (`WORDS`). Keys of `jobs`, of variants and of
a grid are keys of the root a second time: they are counted as keys there, and what they hold as that of the
root. All is derived from the schema, so a new kind, key or word joins by itself.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from netfold.sim.scenario.load import schema

Schema = Mapping[str, Any]

WORDS = ("routing", "admission", "workers.placement", "collective.program")  # sections whose kinds are words
AGAIN = {"jobs.fallback": "collective"}  # sections that hold what another one holds, and are not read twice


class Place(NamedTuple):
    """Where a value is: its path without kinds, and the kind of the section that has it."""

    path: str = ""
    kind: str = ""

    @property
    def text(self) -> str:
        """As counted: with the kind of the innermost section."""
        return f"{self.path}[{self.kind}]" if self.kind else self.path

    def key(self, name: str) -> Place:
        """The place of a key's value."""
        return Place(f"{self.path}.{name}" if self.path else name)


@dataclass
class Units:
    """What a language has, or a scenario has drawn."""

    keys: set[str] = field(default_factory=set)
    choices: set[str] = field(default_factory=set)
    kinds: dict[str, set[str]] = field(default_factory=dict)  # by section
    # Section, and the kinds of another section within which alone it is.
    within: dict[str, dict[str, set[str]]] = field(default_factory=dict)

    def add_kind(self, section: str, kind: str, ancestors: Mapping[str, str]) -> None:
        """Count a kind of a section, which is inside kinds of other sections."""
        self.kinds.setdefault(section, set()).add(kind)
        for other, own in ancestors.items():
            self.within.setdefault(section, {}).setdefault(other, set()).add(own)


@cache
def language() -> Units:
    """All that the schema has."""
    units = Units()
    _Reader(units).value(root(), Place(), {})
    return units


@cache
def root() -> Schema:
    """The schema of scenarios."""
    return schema()


def pair(first: tuple[str, str], second: tuple[str, str]) -> str:
    """The name of a pair of kinds."""
    return " & ".join(f"{section}={kind}" for section, kind in sorted((first, second)))


@cache
def pairs() -> tuple[tuple[tuple[str, str], tuple[str, str]], ...]:
    """All pairs of kinds that one job of one scenario can have."""
    units = language()
    sections = sorted(units.kinds)
    return tuple(
        ((first, kind), (second, other))
        for first, second in itertools.combinations(sections, 2)
        for kind in sorted(units.kinds[first])
        for other in sorted(units.kinds[second])
        if can_meet((first, kind), (second, other))
    )


def can_meet(first: tuple[str, str], second: tuple[str, str]) -> bool:
    """Whether the sections that two kinds are in allow both."""
    one, two = allowed(*first), allowed(*second)
    return all(own & two[section] for section, own in one.items() if section in two)


def allowed(section: str, kind: str) -> dict[str, set[str]]:
    """The kinds that a kind leaves to its own section and to those that it is in."""
    return {**language().within.get(section, {}), section: {kind}}


def alternatives(schema: Schema) -> list[Schema]:
    """What a value may be: references are followed, unions and lists of types are taken apart."""
    held = _TAKEN_APART.get(id(schema))
    if held is None or held[0] is not schema:
        held = _TAKEN_APART[id(schema)] = (schema, _taken_apart(schema))
    return list(held[1])


_TAKEN_APART: dict[int, tuple[Schema, list[Schema]]] = {}  # by identity: those of the schema are read often


def _taken_apart(schema: Schema) -> list[Schema]:
    if reference := schema.get("$ref"):
        return alternatives(root()["$defs"][reference.rsplit("/", 1)[-1]])
    if options := schema.get("anyOf", schema.get("oneOf")):
        return [one for option in options for one in alternatives(option)]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": one} for one in schema["type"]]
    return [schema]


def kind_of(schema: Schema) -> str:
    """The constant kind of a mapping; "" if it has none."""
    return str(schema.get("properties", {}).get("kind", {}).get("const", ""))


def form(schema: Schema) -> str:
    """What an alternative is called: its kind, or its type."""
    if kind := kind_of(schema):
        return kind
    if "enum" in schema:
        return "word"
    return str(schema.get("type", "anything"))


def fits(schema: Schema, value: Any) -> bool:
    """Whether a value is of an alternative, by its type and kind alone."""
    if kind := kind_of(schema):
        return isinstance(value, dict) and value.get("kind") == kind
    if "enum" in schema:
        return any(value == one and type(value) is type(one) for one in schema["enum"])
    if "const" in schema:
        return bool(value == schema["const"])
    match schema.get("type"):
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            pattern = schema.get("pattern")
            return isinstance(value, str) and (pattern is None or re.search(pattern, value) is not None)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "null":
            return value is None
    return True


def chosen(options: list[Schema], value: Any) -> Schema | None:
    """The first alternative that a value is of."""
    return next((one for one in options if fits(one, value)), None)


class _Reader:
    """Walks a schema, or a value beside it, and counts."""

    def __init__(self, units: Units) -> None:
        self.units = units

    def value(self, schema: Schema, place: Place, ancestors: Mapping[str, str]) -> None:
        """Count everything that a value may be."""
        options = alternatives(schema)
        for option in options:
            self.option(option, place, ancestors, len(options) > 1)
            self.inside(option, self.at(option, place), self.below(option, place, ancestors))

    def option(self, option: Schema, place: Place, ancestors: Mapping[str, str], is_choice: bool) -> None:
        """Count one alternative of a value."""
        if is_choice and form(option) != "null":
            self.units.choices.add(f"{place.path}={form(option)}")
        if kind := kind_of(option):
            self.units.add_kind(place.path, kind, ancestors)
        for word in words_of(option):
            self.word(place, word, ancestors)

    def word(self, place: Place, word: Any, ancestors: Mapping[str, str]) -> None:
        """Count a word of a list."""
        self.units.choices.add(f"{place.path}={word}")
        section = place.path.removesuffix(".kind")
        if place.path in WORDS or section != place.path:
            self.units.add_kind(section, str(word), ancestors)

    def at(self, option: Schema, place: Place) -> Place:
        """The place as its keys see it."""
        return Place(place.path, kind_of(option))

    def below(self, option: Schema, place: Place, ancestors: Mapping[str, str]) -> Mapping[str, str]:
        """The sections around what is in an alternative."""
        kind = kind_of(option)
        return {**ancestors, place.path: kind} if kind and not place.path.startswith("faults") else ancestors

    def inside(self, option: Schema, place: Place, ancestors: Mapping[str, str]) -> None:
        """Count what is in a mapping or list."""
        if place.path in AGAIN:
            return
        for name, child in option.get("properties", {}).items():
            self.key(name, child, place, ancestors)
        more = option.get("additionalProperties")
        if isinstance(more, dict):
            self.key("*", more, place, ancestors)
        for child in _items(option):
            self.value(child, place, ancestors)

    def key(self, name: str, child: Schema, place: Place, ancestors: Mapping[str, str]) -> None:
        """Count a key, and what it may hold; what repeats the root's keys is not read again."""
        if name == "kind" and "const" in child:
            return
        if name == "*" and place.path.startswith("variants."):
            return  # the values of a grid, by name
        self.units.keys.add(f"{place.text}.{name}".lstrip("."))
        inner = place.key(name)
        if is_repeated(place, name):
            return
        if place.path == "" and name == "variants":
            for option in alternatives(child):
                self.units.choices.add(f"variants={form(option)}")
                inner = Place("variants", "grid" if form(option) == "object" else "list")
                self.inside(_item(option), inner, ancestors)
            return
        self.value(child, inner, ancestors)


def is_repeated(place: Place, name: str) -> bool:
    """Whether a key is one of the root, in a job, a variant, a grid or a sweep."""
    return place.path in ("jobs", "variants", "sweep") and (name in root()["properties"] or name == "*")


def words_of(option: Schema) -> list[Any]:
    """The words of a list, true and false."""
    if option.get("type") == "boolean":
        return [True, False]
    return list(option.get("enum", ()))


def _items(option: Schema) -> Iterator[Schema]:
    yield from option.get("prefixItems", ())
    if "items" in option:
        yield option["items"]


def _item(option: Schema) -> Schema:
    """The mapping of a variant: that of a list's items, or the grid itself."""
    item: Schema = option.get("items", option)
    return item
