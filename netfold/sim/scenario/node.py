"""The YAML of a scenario as a tree of values with their lines and paths.

Aliases and merge keys (`<<`) are resolved; their values keep their own lines. Keys that begin with `x-` are
ignored: they are for comments and anchors. Depth and number of values are limited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from netfold.errors import Mistakes, ScenarioError, UnreadableValueError, shown
from netfold.sim.scenario.compose import COMMAND_LINE, DEPTH_MAX, Scalar, YamlValue, compose

EXTENSION = "x-"  # prefix of ignored keys
NODES_MAX = 100_000  # of a document, with all aliases expanded

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
        """File and line; "--set" alone for values from the command line, which has no lines."""
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
    place = f"on line {first.line}" if first.line else f"in {COMMAND_LINE} {path}"
    return f"it is already {place}"


def _label(item: Node, index: int) -> str:
    name = item.children.get("name")
    return name.value if name is not None and isinstance(name.value, str) else str(index)


def parse(
    file: str, text: str, first_line: int = 1, path: str = "", mistakes: Mistakes | None = None
) -> Node:
    """Read one YAML document.

    Mistakes of single values go to `mistakes` if given, and the values are left out.

    Raises
    ------
    ScenarioError
        Broken syntax, several documents, too many levels or values; without `mistakes` also a key that
        appears twice or is not text, a custom tag, a circular alias, a merge key without a mapping.
    """
    found = Mistakes() if mistakes is None else mistakes
    node = _Reader(file, path, found).read(compose(file, text, first_line, path), path)
    if mistakes is None:
        found.raise_any()
    return node


class _Reader:
    """Builds nodes from YAML values: expands aliases and merge keys, and adds paths."""

    def __init__(self, file: str, path: str, mistakes: Mistakes) -> None:
        self._file = file
        self._whole_path = path  # of the whole document
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
        found = value.items if value.kind == "list" else [value]
        for one in found:
            if one.kind != "mapping":
                what = "a list" if one.kind == "list" else shown(one.scalar)
                message = f"the merge key << takes a mapping or a list of mappings, found {what}"
                self._add(line, path, message, "give it an alias of a mapping, for example <<: *shared")
        return [one for one in found if one.kind == "mapping"]

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
