"""Parses YAML text into values with line numbers: the first half of reading a scenario.

Scalars follow the core schema of YAML 1.2: `on` is text, `1e9` a number, `2024-01-01` text. An alias is the
same object as its anchor's value, so nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.nodes import ScalarNode

from netfold.errors import ScenarioError

COMMAND_LINE = "--set"
DEPTH_MAX = 32  # nested mappings and lists; a scenario needs about eight levels
MERGE = "tag:yaml.org,2002:merge"

_YAML_ORG = "tag:yaml.org,2002:"
_SCALARS = {f"{_YAML_ORG}{name}" for name in ("str", "int", "float", "bool", "null")}
_TEXT_ONLY_IN_1_2 = {f"{_YAML_ORG}timestamp", f"{_YAML_ORG}value", MERGE}
_CONTAINERS = {f"{_YAML_ORG}map", f"{_YAML_ORG}seq"}

Scalar = str | int | float | bool | None


@dataclass(eq=False)
class YamlValue:
    """A value of the text. `problem` is a message if it cannot be used, with an optional hint below."""

    line: int  # 1-based; 0 for values from the command line
    value: Scalar | list[tuple[YamlValue, YamlValue]] | list[YamlValue] = None
    kind: str = "scalar"  # scalar, mapping or list
    problem: str = ""
    is_merge: bool = False  # the key "<<", without quotes
    pending: YamlValue | None = field(
        default=None, repr=False
    )  # of a mapping: a key that waits for its value

    @property
    def pairs(self) -> list[tuple[YamlValue, YamlValue]]:
        """Keys and values of a mapping; empty for other kinds."""
        return self.value if self.kind == "mapping" else []  # type: ignore[return-value]  # by its kind

    @property
    def items(self) -> list[YamlValue]:
        """Items of a list; empty for other kinds."""
        return self.value if self.kind == "list" else []  # type: ignore[return-value]  # by its kind

    @property
    def scalar(self) -> Scalar:
        """The value of a scalar; None for other kinds."""
        return self.value if self.kind == "scalar" else None  # type: ignore[return-value]  # by its kind

    def add(self, child: YamlValue) -> None:
        """Append an item, or alternately a key and its value."""
        if self.kind == "list":
            self.items.append(child)
        elif self.pending is None:
            self.pending = child
        else:
            self.pairs.append((self.pending, child))
            self.pending = None


def compose(file: str, text: str, first_line: int = 1, path: str = "") -> YamlValue:
    """Read one YAML document; its first line is number `first_line`, 0 if it has no lines.

    Raises
    ------
    ScenarioError
        Broken syntax, several documents, an alias without an anchor, or more than `DEPTH_MAX` levels.
    """
    try:
        return _Composer(file, first_line, path).compose(text)
    except MarkedYAMLError as error:
        problem = str(error.problem).removeprefix("but ")
        line = error.problem_mark.line + first_line if error.problem_mark and first_line else first_line
        raise ScenarioError(file, line, path, f"broken YAML: {problem}", _syntax_hint(error, file)) from None
    except YAMLError as error:
        raise ScenarioError(file, first_line, path, f"broken YAML: {str(error).splitlines()[0]}") from None
    except ValueError:  # from the scanner: "\U00110000" is not a character, %YAML 1.99999… not a version
        raise ScenarioError(
            file, first_line, path, "broken YAML: a number in it is out of range", "check its escapes"
        ) from None


def _syntax_hint(error: MarkedYAMLError, file: str) -> str:
    if "'\\t'" in str(error.problem):
        return "indent with spaces, YAML does not allow tabs"
    if file == COMMAND_LINE:
        return "check the brackets and quotes of the value in --set"
    mark = error.context_mark or error.problem_mark
    return f"check the indentation, brackets and quotes from line {mark.line + 1} on"


class _Composer:
    """Builds values from the events of the parser, without recursion."""

    def __init__(self, file: str, first_line: int, path: str) -> None:
        self._file, self._first_line, self._path = file, first_line, path
        yaml = YAML(typ="safe", pure=True)
        self._events = yaml.parse
        self._resolve = yaml.resolver.resolve
        self._construct = yaml.constructor.construct_object
        self._anchors: dict[str, YamlValue] = {}
        self._open: list[YamlValue] = []
        self._root: YamlValue | None = None

    def compose(self, text: str) -> YamlValue:
        documents = 0
        events: Iterator[Any] = self._events(text)
        for event in events:
            match event:
                case DocumentStartEvent():
                    documents += 1
                    if documents > 1:
                        hint = "a scenario file holds one document: remove the line '---' or split the file"
                        raise self._error(event, "broken YAML: found another document", hint)
                case MappingEndEvent() | SequenceEndEvent():
                    self._open.pop()
                case AliasEvent() | ScalarEvent() | MappingStartEvent() | SequenceStartEvent():
                    self._place(event)
        return self._root or YamlValue(self._first_line)

    def _place(self, event: Any) -> None:
        """Add the value that an event begins to the innermost open container."""
        value = self._alias(event) if isinstance(event, AliasEvent) else self._new(event)
        if self._open:
            self._open[-1].add(value)
        else:
            self._root = value
        if isinstance(event, MappingStartEvent | SequenceStartEvent):
            if len(self._open) == DEPTH_MAX:
                raise self._error(
                    event,
                    f"more than {DEPTH_MAX} nested mappings and lists",
                    "a scenario needs at most eight levels: check the brackets",
                )
            self._open.append(value)

    def _new(self, event: Any) -> YamlValue:
        line = self._line(event)
        if isinstance(event, ScalarEvent):
            value = self._scalar(event, line)
        else:
            kind = "mapping" if isinstance(event, MappingStartEvent) else "list"
            known = event.tag is None or str(event.tag) in {"!", *_CONTAINERS}
            value = YamlValue(line, [], kind, "" if known else _unknown_tag(event.tag))
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        return value

    def _alias(self, event: Any) -> YamlValue:
        value = self._anchors.get(event.anchor)
        if value is None:
            raise self._error(
                event,
                f"broken YAML: found undefined alias {event.anchor!r}",
                "a word that starts with '*' refers to an anchor; quote it if it is text, "
                "for example '*->s0'",
            )
        if value.kind != "scalar":
            return value
        return YamlValue(self._line(event), value.value, problem=value.problem)

    def _scalar(self, event: Any, line: int) -> YamlValue:
        tag = None if event.tag is None else str(event.tag)
        if tag in (None, "!"):
            tag = str(self._resolve(ScalarNode, event.value, event.implicit))
        if tag in _TEXT_ONLY_IN_1_2:
            return self._text(event.value, line, is_merge=tag == MERGE and event.style is None)
        if tag not in _SCALARS:
            return YamlValue(line, problem=_unknown_tag(tag))
        try:
            found = self._construct(ScalarNode(tag, event.value))
        except (ValueError, KeyError):  # Python reads no whole number of more than 4300 digits
            what = (
                f"a number of {len(event.value)} digits"
                if event.value.isdecimal()
                else f"{event.value[:40]!r} as {tag.removeprefix(_YAML_ORG)}"
            )
            hint = "use a shorter number" if event.value.isdecimal() else "remove the tag"
            return YamlValue(line, problem=f"cannot read {what}\n{hint}")
        return self._text(found, line) if isinstance(found, str) else YamlValue(line, found)

    @staticmethod
    def _text(text: str, line: int, is_merge: bool = False) -> YamlValue:
        if any("\ud800" <= character <= "\udfff" for character in text):
            return YamlValue(line, problem="text holds half of a character (a lone surrogate)\nremove it")
        return YamlValue(line, text, is_merge=is_merge)

    def _line(self, event: Any) -> int:
        return event.start_mark.line + self._first_line if self._first_line else 0

    def _error(self, event: Any, message: str, hint: str) -> ScenarioError:
        return ScenarioError(self._file, self._line(event), self._path, message, hint)


def _unknown_tag(tag: object) -> str:
    return f"unknown tag {str(tag)!r}\nquote text that starts with '!'"
