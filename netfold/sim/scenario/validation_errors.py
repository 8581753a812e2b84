"""Turns pydantic's validation errors into ScenarioErrors with lines and hints."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from decimal import Decimal
from types import UnionType
from typing import Annotated, Any, Union, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from netfold.errors import (
    MissingKeyError,
    NetfoldError,
    OptionError,
    ScenarioError,
    UnknownKeyError,
    UnreadableValueError,
    as_one_error,
    closest,
    names_hint,
    shown,
)
from netfold.homomorphic.codec import Codec, codec_kinds
from netfold.sim.keys import NAME_RULE, AnySection, S, keys, kinds_of, members_of, read
from netfold.sim.scenario.network_keys import TopologySection, topology_sections
from netfold.sim.scenario.yaml_tree import COMMAND_LINE, Node
from netfold.sim.workload.model import Model
from netfold.sim.workload.models.registry import model_sections

_MUST_BE = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "too_short": "a list of at least {min_length}",
    "model_type": "a mapping",
    "dataclass_type": "a mapping",
    "model_attributes_type": "a mapping",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "finite_number": "finite",
    "string_pattern_mismatch": NAME_RULE,
    "string_too_long": "text of at most {max_length} characters",
}
# Errors of fields that were not validated because another field is wrong.
_CONSEQUENCES = {"default_factory_not_called"}


def validated(section: type[S], tree: Node) -> S:
    """A section or an option as a file has it; raises one ScenarioError with all mistakes and their lines."""
    try:
        return read(section, tree.plain)
    except ValidationError as error:
        of_any: Any = section
        mistakes = list(_mistakes(error, tree, of_any, ()))
    raise as_one_error(without_consequences(mistakes))


def unknown_key(child: Node, key: str, allowed: Sequence[str]) -> ScenarioError:
    error = UnknownKeyError(
        child.file, child.line, child.path, f"unknown key {shown(key)}", _nearest(key, allowed)
    )
    error.meant = closest(key, allowed)
    return error


def missing_key(parent: Node, key: str, hint: str) -> ScenarioError:
    """The error for a missing key; it points to the mapping that needs the key."""
    error = MissingKeyError(parent.file, parent.line, parent.path, f"the key {key!r} is missing", hint)
    error.key = key
    return error


def without_consequences(mistakes: Sequence[ScenarioError]) -> Sequence[ScenarioError]:
    """Mistakes without those that others cause.

    A key may be missing because it is misspelt; a value may have the wrong type because it cannot be read.
    """
    meant = {mistake.meant for mistake in mistakes if isinstance(mistake, UnknownKeyError)}
    unread = {
        (mistake.file, mistake.line, mistake.path)
        for mistake in mistakes
        if isinstance(mistake, UnreadableValueError)
    }
    return [
        mistake
        for mistake in mistakes
        if isinstance(mistake, UnreadableValueError)
        or (
            not (isinstance(mistake, MissingKeyError) and mistake.key in meant)
            and (mistake.file, mistake.line, mistake.path) not in unread
        )
    ]


def naming(variant: str, error: ScenarioError) -> ScenarioError:
    """The error with the variant's name in its hint, because other variants do not have it."""
    if error.path.startswith("variants."):
        return error
    where = f"in variant {variant!r}"
    if error.file == COMMAND_LINE:
        where += f"; to change one variant, set variants.NAME.{error.path}"
    named = copy(error)
    named.hint = f"{error.hint} ({where})".strip()
    return named


def _nearest(value: object, allowed: Sequence[str]) -> str:
    if str(value) in allowed:  # right except for its type
        return f"write it without quotes; allowed: {', '.join(allowed)}"
    return names_hint(str(value), allowed, "allowed")


def _mistakes(
    error: ValidationError, tree: Node, section: type[AnySection], prefix: tuple[str | int, ...]
) -> Iterator[ScenarioError]:
    for details in error.errors(include_url=False):
        location = prefix + details["loc"]
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, ValidationError):  # options of codecs and topologies are validated separately
            yield from _mistakes(cause, tree, section, location)
        elif isinstance(cause, OptionError):
            yield _mistake(details, _follow(tree, section, (*location, cause.key)))
        elif not _follows_from_another(details):
            yield _mistake(details, _follow(tree, section, location))


def _follows_from_another(details: ErrorDetails) -> bool:
    # A list is also too short if its items are wrong: pydantic counts the right ones.
    is_long_enough = details["type"] == "too_short" and len(details["input"]) >= details["ctx"]["min_length"]
    return is_long_enough or details["type"] in _CONSEQUENCES


@dataclasses.dataclass(frozen=True)
class _Position:
    """A position in the file, with the section and field that it belongs to."""

    node: Node  # the deepest node that exists
    missing: tuple[str, ...]  # the missing keys below it
    owner: Any  # the section or codec that has this key
    field: FieldInfo | None
    annotation: Any  # the type of the value

    @property
    def key(self) -> str:
        return self.missing[-1] if self.missing else self.node.path.rpartition(".")[2]

    @property
    def meaning(self) -> str:
        if self.annotation is Codec or _is_codec(self.owner):
            return "`netfold codecs` lists codecs and their options"
        return f"{self.key}: {self.field.description}" if self.field and self.field.description else ""

    def error(self, message: str, hint: str) -> ScenarioError:
        return self.node.error(message, hint, self.missing)


def _follow(tree: Node, section: type[AnySection], location: Iterable[str | int]) -> _Position:
    """Walk tree and models side by side; pydantic's location also names the `kind` of union members."""
    node = tree
    missing: list[str] = []
    owner: Any = section
    annotation: Any = section
    field: FieldInfo | None = None
    for part in location:
        members = _members(annotation)
        member = next((member for member in members if part in _kinds(member)), None)
        if member is not None and len(members) > 1:
            annotation = member
            continue
        sections = [member for member in members if _is_section(member)]
        if len(members) > 1 and len(sections) == 1:  # a name, or a mapping
            annotation = sections[0]
        owner, field = annotation, None
        if annotation is Codec:
            owner = codec_kinds()[str(node.children["kind"].value)]
        elif _is_section(annotation):
            field = keys(annotation).get(str(part))
        annotation = field.annotation if field is not None else members[0]
        child = _child(node, part) if not missing else None
        if child is None:
            missing.append(str(part))
        else:
            node = child
    return _Position(node, tuple(missing), owner, field, annotation)


def _child(node: Node, part: str | int) -> Node | None:
    """A child of a node; list items go by number here, regardless of their names."""
    if isinstance(part, int) and isinstance(node.value, tuple):
        return node.value[part] if part < len(node.value) else None  # a list that has too few items
    return node.children.get(str(part))


def _members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, the item type of a list, or the annotation alone."""
    if annotation is TopologySection:
        return topology_sections()
    if annotation is Model:
        return model_sections()
    if get_origin(annotation) is Annotated:
        return _members(annotation.__origin__)
    parts = getattr(annotation, "__args__", None) or members_of(annotation)
    if get_origin(annotation) not in (Union, UnionType):
        return tuple(parts)
    return tuple(
        member for part in parts for member in (_members(part) if get_origin(part) is Annotated else (part,))
    )


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, AnySection)


def _is_codec(owner: Any) -> bool:
    return dataclasses.is_dataclass(owner) and not _is_section(owner)


def _kinds(member: Any) -> tuple[str, ...]:
    return kinds_of(member) if _is_section(member) else ()


def _keys(owner: Any) -> list[str]:
    """Keys of a section or codec, `kind` first."""
    if _is_codec(owner):
        return ["kind", *(field.name for field in dataclasses.fields(owner))]
    return list(keys(owner))


def _kinds_of(annotation: Any) -> list[str]:
    if annotation is Codec:
        return list(codec_kinds())
    return [kind for member in _members(annotation) for kind in _kinds(member)]


_FEW = "write as many as the default has; `netfold schema` describes every key"


def _mistake(details: ErrorDetails, position: _Position) -> ScenarioError:
    wrong_value = details["input"] if position.missing else position.node.plain
    context: Mapping[str, Any] = details.get("ctx", {})
    match details["type"]:
        case "missing" if isinstance(position.node.value, tuple):
            return position.node.error(f"has too few items: {len(position.node.value)}", _FEW)
        case "missing":
            return missing_key(position.node, position.key, position.meaning)
        case "extra_forbidden" | "unexpected_keyword_argument":
            return unknown_key(position.node, position.key, _keys(position.owner))
        case "union_tag_not_found":
            return missing_key(
                position.node, "kind", f"use one of {', '.join(_kinds_of(position.annotation))}"
            )
        case "union_tag_invalid":
            kind = position.node.children["kind"]
            hint = _nearest(kind.plain, _kinds_of(position.annotation))
            return kind.error(f"cannot use {shown(kind.plain)} as a kind", hint)
        case "literal_error":
            # The format of pydantic, for sections and codecs alike: 'flat', 'two_level' or 'bloom'.
            allowed = re.findall(r"[^\s',]+", context["expected"].replace(" or ", ", "))
            return position.error(f"cannot use {shown(wrong_value)}", _nearest(wrong_value, allowed))
        case "value_error":
            return _refusal(context["error"], position)
    rule = _MUST_BE.get(details["type"], "").format(**context) or details["msg"].removeprefix(
        "Input should be "
    )
    return position.error(
        f"must be {rule}, found {shown(wrong_value)}",
        _repair(rule, wrong_value, position) or position.meaning,
    )


def _repair(rule: str, value: object, position: _Position) -> str:
    """The nearest fix of a value with the wrong syntax."""
    if rule == "a number" and isinstance(value, str) and value.endswith("%"):
        return _of_percentage(value)
    if rule.endswith("number") and isinstance(value, str):
        return _number(value)
    if rule == "a mapping" and value in _kinds_of(position.annotation):
        return f"write it as {{kind: {value}}}"
    if rule == "a list":
        return "a list is written [a, b], or with one item a line after '- '"
    return ""


def _of_percentage(text: str) -> str:
    """The nearest fix of a percentage where only numbers are allowed."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text, re.A)
    return "" if match is None else f"write {Decimal(match[1]) / 100:f}"


def _number(text: str) -> str:
    """The nearest fix of a number that YAML parses as text."""
    if text.isdecimal():
        return "write it without quotes"
    match = re.fullmatch(r"(\d+)(?:\.(\d+))? ?([KMGT]?)", text.replace("_", "").replace(",", ""), re.I | re.A)
    if match is None:
        return ""
    whole, decimals, suffix = match.groups(default="")
    if len(whole + decimals) > 1000:  # Python writes no number of more than 4300 digits
        return ""
    zeros = 3 * " KMGT".index(suffix.upper() or " ") - len(decimals)
    return f"write {int(whole + decimals) * 10**zeros}" if zeros >= 0 else ""


def _refusal(cause: Exception, position: _Position) -> ScenarioError:
    """The error for a value that a unit, section or codec refused: a message, with an optional hint below."""
    if isinstance(cause, NetfoldError):
        return position.error(cause.message, cause.hint or position.meaning)
    message, _, hint = str(cause).partition("\n")
    return position.error(message, hint or position.meaning)
