"""Parses YAML text into values with line numbers: the first half of reading a scenario.

Scalars follow the core schema of YAML 1.2: `on` is text, `1e9` a number, `2024-01-01` text. An alias is the
same object as its anchor's value, so nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
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

from netfold.errors import Mistakes, ScenarioError, UnreadableValueError, closest, shown
from netfold.sim.files import UnreadableError, read_bytes, read_standard_input

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
    pending: YamlValue | None = field(default=None, repr=False)
    """In a mapping, the key that waits for its value."""

    @property
    def pairs(self) -> list[tuple[YamlValue, YamlValue]]:
        return self.value if self.kind == "mapping" else []  # type: ignore[return-value]  # by its kind

    @property
    def items(self) -> list[YamlValue]:
        return self.value if self.kind == "list" else []  # type: ignore[return-value]  # by its kind

    @property
    def scalar(self) -> Scalar:
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
    except ValueError:  # the scanner's: "\U00110000" is not a character, %YAML 1.99999… not a version
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
            scalar = self._construct(ScalarNode(tag, event.value))
        except (ValueError, KeyError):  # Python reads no whole number of more than 4300 digits
            what = (
                f"a number of {len(event.value)} digits"
                if event.value.isdecimal()
                else f"{event.value[:40]!r} as {tag.removeprefix(_YAML_ORG)}"
            )
            hint = "use a shorter number" if event.value.isdecimal() else "remove the tag"
            return YamlValue(line, problem=f"cannot read {what}\n{hint}")
        return self._text(scalar, line) if isinstance(scalar, str) else YamlValue(line, scalar)

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


# The YAML of a scenario as a tree of values with their lines and paths.
#
# Aliases and merge keys (`<<`) are resolved; their values keep their own lines. Keys that begin with `x-` are
# ignored: they are for comments and anchors. Depth and number of values are limited.


EXTENSION = "x-"  # prefix of ignored keys
NODES_MAX = 100_000
"""The most values of a document, with all aliases expanded."""

__all__ = ["COMMAND_LINE", "EXTENSION", "Node", "duplicate_hint", "parse"]


@dataclass(frozen=True)
class Node:
    """One value with its file, line and path; list items go by their `name` if they have one."""

    value: Scalar | Mapping[str, Node] | tuple[Node, ...]
    file: str
    line: int  # 1-based; 0 for values from the command line
    path: str

    @property
    def children(self) -> dict[str, Node]:
        """Direct children: by key, or by label (name or index) in a list; empty for a scalar."""
        if isinstance(self.value, Mapping):
            return dict(self.value)
        if isinstance(self.value, tuple):
            return {_label(item, index): item for index, item in enumerate(self.value)}
        return {}

    @property
    def plain(self) -> object:
        """The value without lines: scalars, dicts and tuples."""
        if isinstance(self.value, Mapping):
            return {key: child.plain for key, child in self.value.items()}
        if isinstance(self.value, tuple):
            return tuple(item.plain for item in self.value)
        return self.value

    @property
    def place(self) -> str:
        # "--set" alone for values from the command line, which has no lines.
        return f"{self.file}:{self.line}" if self.line else self.file

    def nearest(self, path: Sequence[str]) -> tuple[Node, tuple[str, ...]]:
        """The node at `path`, or its deepest ancestor, and the missing part of the path."""
        node = self
        for depth, part in enumerate(path):
            child = node.children.get(part)
            if child is None:
                return node, tuple(path[depth:])
            node = child
        return node, ()

    def error(self, message: str, hint: str = "", missing: Sequence[str] = ()) -> ScenarioError:
        """An error at this node, or at a missing path below it."""
        path = ".".join(part for part in (self.path, *missing) if part)
        return ScenarioError(self.file, self.line, path, message, hint)


def duplicate_hint(first: Node, path: str) -> str:
    """The hint for a duplicate: where the first one is."""
    where = f"on line {first.line}" if first.line else f"in {COMMAND_LINE} {path}"
    return f"it is already {where}"


def _label(item: Node, index: int) -> str:
    name = item.children.get("name")
    return name.value if name is not None and isinstance(name.value, str) else str(index)


def parse(
    file: str, text: str, first_line: int = 1, path: str = "", mistakes: Mistakes | None = None
) -> Node:
    # Mistakes of single values go to `mistakes` if given, and the values are left out.
    collector = Mistakes() if mistakes is None else mistakes
    node = _Reader(file, path, collector).read(compose(file, text, first_line, path), path)
    if mistakes is None:
        collector.raise_any()
    return node


class _Reader:
    """Builds nodes from YAML values: expands aliases and merge keys, and adds paths."""

    def __init__(self, file: str, path: str, mistakes: Mistakes) -> None:
        self._file = file
        self._whole_path = path  # path of the whole document
        self._mistakes = mistakes
        self._open: set[int] = set()  # containers being read, to notice an alias inside its own anchor
        self._count = 0

    def read(self, yaml_value: YamlValue, path: str, line: int | None = None) -> Node:
        """The node of a YAML value at a path; a value of a mapping has the line of its key."""
        line = yaml_value.line if line is None else line
        self._count += 1
        if self._count > NODES_MAX:
            raise ScenarioError(
                self._file,
                line,
                path,
                f"more than {NODES_MAX} values, with all aliases expanded",
                "use fewer aliases of aliases, or fewer variants",
            )
        if yaml_value.problem:
            message, _, hint = yaml_value.problem.partition("\n")
            self._mistakes.add(UnreadableValueError(self._file, line, path, message, hint))
            return Node(None, self._file, line, path)
        if yaml_value.kind == "scalar":
            return Node(yaml_value.scalar, self._file, line, path)
        if id(yaml_value) in self._open:
            message = "an alias refers to the value it is part of"
            self._mistakes.add(UnreadableValueError(self._file, line, path, message))
            return Node(None, self._file, line, path)
        if len(self._open) == DEPTH_MAX:
            message = f"more than {DEPTH_MAX} nested mappings and lists"
            raise ScenarioError(self._file, line, path, message, "use fewer nested aliases")
        self._open.add(id(yaml_value))
        value = (
            self._mapping(yaml_value, path) if yaml_value.kind == "mapping" else self._list(yaml_value, path)
        )
        self._open.remove(id(yaml_value))
        return Node(value, self._file, line, path)

    def _add(self, line: int, path: str, message: str, hint: str = "") -> None:
        self._mistakes.add(ScenarioError(self._file, line, path, message, hint))

    def _mapping(self, yaml_value: YamlValue, path: str) -> dict[str, Node]:
        children: dict[str, Node] = {}
        merged: list[YamlValue] = []
        for key, value in self._read_pairs(yaml_value, path):
            if key.is_merge:
                merged += self._merge_sources(value, key.line, path)
                continue
            name = str(key.scalar)
            if name in children:
                first = duplicate_hint(children[name], self._whole_path)
                self._add(key.line, path, f"the key {shown(name)} appears twice", first)
                continue
            children[name] = self.read(value, f"{path}.{name}".lstrip("."), key.line)
        for mapping in merged:  # keys of this mapping win, then those of the first merged mapping
            for name, child in self._merge_children(mapping, path).items():
                children.setdefault(name, child)
        return children

    def _read_pairs(self, yaml_value: YamlValue, path: str) -> Iterator[tuple[YamlValue, YamlValue]]:
        """Keys and values of a mapping, without ignored keys."""
        for key, value in yaml_value.pairs:
            name = key.scalar
            if key.problem:
                self._add(key.line, path, *key.problem.split("\n"))
            elif not isinstance(name, str):
                what = shown(name) if key.kind == "scalar" else f"a {key.kind}"
                self._add(key.line, path, f"a key must be text, found {what}", "quote it")
            elif not name.startswith(EXTENSION):
                yield key, value

    def _merge_sources(self, value: YamlValue, line: int, path: str) -> list[YamlValue]:
        """The mappings of a merge key."""
        sources = value.items if value.kind == "list" else [value]
        for source in sources:
            if source.kind != "mapping":
                what = "a list" if source.kind == "list" else shown(source.scalar)
                message = f"the merge key << takes a mapping or a list of mappings, found {what}"
                self._add(line, path, message, "give it an alias of a mapping, for example <<: *shared")
        return [mapping for mapping in sources if mapping.kind == "mapping"]

    def _merge_children(self, mapping: YamlValue, path: str) -> dict[str, Node]:
        node = self.read(mapping, path)
        return node.children if isinstance(node.value, Mapping) else {}

    def _list(self, yaml_value: YamlValue, path: str) -> tuple[Node, ...]:
        return tuple(
            self.read(item, f"{path}.{_name_of(item) or index}")
            for index, item in enumerate(yaml_value.items)
        )


def _name_of(item: YamlValue) -> str:
    return next(
        (str(value.scalar) for key, value in item.pairs if key.scalar == "name" and value.kind == "scalar"),
        "",
    )


# Reads the text of a scenario from a file, standard input, or a string.


SCENARIO_BYTES_MAX = 2**20
STANDARD_INPUT = "-"
_LISTED_MAX = 1000  # files of a folder that are searched for the nearest name


@dataclass(frozen=True)
class ScenarioText:
    """A scenario without a file; its paths are relative to the working folder."""

    text: str
    name: str  # the name in errors


def read_source(path: str | Path | ScenarioText) -> tuple[str, Path, bytes]:
    """The scenario's name in errors, the folder of its paths, and its text; "-" is standard input.

    Raises
    ------
    ScenarioError
        It cannot be read; the hint suggests a file with a similar name.
    """
    if isinstance(path, ScenarioText):
        return path.name, Path(), path.text.encode("utf-8", "surrogatepass")
    try:
        if str(path) == STANDARD_INPUT:
            return "<stdin>", Path(), read_standard_input(SCENARIO_BYTES_MAX)
        return str(path), Path(path).parent, read_bytes(path, SCENARIO_BYTES_MAX)
    except UnreadableError as error:
        hint = error.hint or _near(Path(path), error.is_missing)
        raise ScenarioError(str(path), 0, "", f"cannot be read: {error.message}", hint) from None


def _near(path: Path, is_missing: bool) -> str:
    """A hint that suggests another file."""
    if path.is_dir():
        inside = sorted(str(file) for file in islice(path.glob("*.yaml"), _LISTED_MAX))
        return f"give a file, for example {inside[0]}" if inside else "give the path of a scenario file"
    if not is_missing:
        return "give the path of a scenario file"
    siblings = [str(other) for other in islice(path.parent.glob("*.yaml"), _LISTED_MAX) if other.is_file()]
    meant = closest(str(path), siblings)
    return f"did you mean {meant}?" if meant else "`netfold examples` copies those that come with netfold"
