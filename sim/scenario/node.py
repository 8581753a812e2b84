"""The YAML of a scenario as a tree that knows on which line every value was written.

Scalars follow the core schema of YAML 1.2: `on` is text, `1e9` a number, `2024-01-01` text. Aliases work;
merge keys (`<<`) and custom tags do not: `variants` is the one way to say "like that, but".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode
from ruamel.yaml.nodes import Node as YamlNode

from sim.errors import ScenarioError, shown

_SCALARS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")}
_TEXT_ONLY_IN_1_2 = {"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge", "tag:yaml.org,2002:value"}
COMMAND_LINE = "--set"

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Node:
    """One value, where it was written, and its path there; list items go by their `name` if they have one."""

    value: Scalar | Mapping[str, Node] | tuple[Node, ...]
    file: str
    line: int  # 1-based; 0 for values from the command line
    path: str

    @property
    def children(self) -> dict[str, Node]:
        """What lies directly below: by key, or by label (name or index) in a list; empty for a scalar."""
        if isinstance(self.value, Mapping):
            return dict(self.value)
        if isinstance(self.value, tuple):
            return {_label(item, index): item for index, item in enumerate(self.value)}
        return {}

    @property
    def plain(self) -> object:
        """The value without places: scalars, dicts and tuples."""
        if isinstance(self.value, Mapping):
            return {key: child.plain for key, child in self.value.items()}
        if isinstance(self.value, tuple):
            return tuple(item.plain for item in self.value)
        return self.value

    @property
    def place(self) -> str:
        """File and line; "--set" alone for values from the command line, which has no lines."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def nearest(self, path: Sequence[str]) -> tuple[Node, tuple[str, ...]]:
        """The node at `path`, or the deepest one on the way, and the part of the path that is missing."""
        node = self
        for depth, part in enumerate(path):
            child = node.children.get(part)
            if child is None:
                return node, tuple(path[depth:])
            node = child
        return node, ()

    def error(self, message: str, hint: str = "", missing: Sequence[str] = ()) -> ScenarioError:
        """An error at this node, or at a path below it that was not written."""
        path = ".".join(part for part in (self.path, *missing) if part)
        return ScenarioError(self.file, self.line, path, message, hint)


def already(first: Node, written: str) -> str:
    """Hint for what stands twice in the value written at a path: where it stands first."""
    place = f"on line {first.line}" if first.line else f"in {COMMAND_LINE} {written}"
    return f"it is already {place}"


def _label(item: Node, index: int) -> str:
    name = item.children.get("name")
    return name.value if name is not None and isinstance(name.value, str) else str(index)


def _yaml_name(item: YamlNode) -> str:
    if not isinstance(item, MappingNode):
        return ""
    return next(
        (value.value for key, value in item.value if key.value == "name" and isinstance(value, ScalarNode)),
        "",
    )


def parse(file: str, text: str, first_line: int = 1, path: str = "") -> Node:
    """Read one YAML document.

    Raises
    ------
    ScenarioError
        Broken syntax, several documents, a key that appears twice or is no text, a custom tag, a circle.
    """
    try:
        document = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        problem = str(error.problem).removeprefix("but ")
        line = error.problem_mark.line + first_line if error.problem_mark and first_line else first_line
        raise ScenarioError(file, line, path, f"broken YAML: {problem}", _syntax_hint(error, file)) from None
    except YAMLError as error:
        raise ScenarioError(file, first_line, path, f"broken YAML: {str(error).splitlines()[0]}") from None
    if document is None:
        return Node(None, file, first_line, path)
    return _Reader(file, first_line, path).read(document, path, first_line)


def _syntax_hint(error: MarkedYAMLError, file: str) -> str:
    if "'\\t'" in str(error.problem):
        return "indent with spaces, YAML does not allow tabs"
    if "another document" in str(error.problem):
        return "a scenario file holds one document: remove the line '---' or split the file"
    if "undefined alias" in str(error.problem):
        return "a word that starts with '*' refers to an anchor; quote it if it is text, for example '*->s0'"
    if file == COMMAND_LINE:
        return "check the brackets and quotes of the value in --set"
    mark = error.context_mark or error.problem_mark
    return f"check the indentation, brackets and quotes from line {mark.line + 1} on"


class _Reader:
    """Turns composed YAML nodes into `Node`s."""

    def __init__(self, file: str, first_line: int, written: str) -> None:
        self._file = file
        self._written = written  # path of the whole document
        self._first_line = first_line
        self._construct = YAML(typ="safe", pure=True).constructor.construct_object
        self._open: set[int] = set()  # containers being read, to notice an alias inside its own anchor

    def read(self, yaml: YamlNode, path: str, line: int) -> Node:
        if id(yaml) in self._open:
            raise ScenarioError(self._file, line, path, "an alias refers to the value it is part of")
        if isinstance(yaml, ScalarNode):
            return Node(self._scalar(yaml, path, line), self._file, line, path)
        self._open.add(id(yaml))
        read = self._mapping if isinstance(yaml, MappingNode) else self._sequence
        value = read(yaml, path)
        self._open.remove(id(yaml))
        return Node(value, self._file, line, path)

    def _mapping(self, yaml: YamlNode, path: str) -> dict[str, Node]:
        children: dict[str, Node] = {}
        for key_node, value_node in yaml.value:
            line = self._line(key_node)
            key = self._scalar(key_node, path, line) if isinstance(key_node, ScalarNode) else [key_node]
            if not isinstance(key, str):
                raise ScenarioError(
                    self._file, line, path, f"a key must be text, found {shown(key)}", "quote it"
                )
            if key in children:
                hint = already(children[key], self._written)
                raise ScenarioError(self._file, line, path, f"the key {key!r} appears twice", hint)
            children[key] = self.read(value_node, f"{path}.{key}".lstrip("."), line)
        return children

    def _sequence(self, yaml: YamlNode, path: str) -> tuple[Node, ...]:
        return tuple(
            self.read(item, f"{path}.{_yaml_name(item) or index}", self._line(item))
            for index, item in enumerate(yaml.value)
        )

    def _scalar(self, yaml: ScalarNode, path: str, line: int) -> Scalar:
        if yaml.tag in _TEXT_ONLY_IN_1_2:
            return str(yaml.value)
        if yaml.tag not in _SCALARS:
            raise ScenarioError(
                self._file, line, path, f"unknown tag {str(yaml.tag)!r}", "quote text that starts with '!'"
            )
        try:
            scalar: Scalar = self._construct(yaml)
        except ValueError:  # Python reads no whole number of more than 4300 digits
            message = f"cannot read a number of {len(yaml.value)} digits"
            raise ScenarioError(self._file, line, path, message, "write a shorter one") from None
        return scalar

    def _line(self, yaml: YamlNode) -> int:
        return yaml.start_mark.line + self._first_line if self._first_line else 0
