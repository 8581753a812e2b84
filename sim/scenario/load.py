"""From a scenario file to its variants, each merged and validated.

`--set PATH=VALUE` changes the merged variants, all of them, so that the command line wins over everything in
the file; `--set variants.NAME.PATH=VALUE` changes one. Later ones win over earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from sim.errors import ScenarioError, shown
from sim.scenario.explain import explain, missing_key, unknown_key
from sim.scenario.merge import merge, override_at, parse_set
from sim.scenario.models import Header, Settings, Variant
from sim.scenario.node import COMMAND_LINE, Node, parse
from sim.scenario.section import Section

S = TypeVar("S", bound=Section)
_HEADER = tuple(Header.model_fields)
_SETTINGS = tuple(Settings.model_fields)
_KEYS = (*_HEADER, *_SETTINGS, "variants")
_A_VARIANT = "each variant has a name and the keys it changes"


@dataclass(frozen=True)
class Scenario:
    """A scenario file as given, and its variants with everything merged, validated and in base units."""

    name: str
    description: str
    seed: int
    variants: tuple[Variant, ...]
    file: str
    sets: tuple[str, ...]
    source_text: bytes = field(repr=False)
    document: Node = field(repr=False)
    trees: Mapping[str, Node] = field(repr=False)  # by name of the variant

    def locate(self, path: str, variant: str | None = None) -> str:
        """Where the value at a path such as "topology.rate" was written: "FILE:LINE", or "--set".

        What was not written is where it would belong. Without a variant, the part they share is searched.
        """
        node, _ = self._tree(variant).nearest(path.split("."))
        return f"{node.file}:{node.line}" if node.line else node.file

    def error(self, path: str, message: str, hint: str = "", variant: str | None = None) -> ScenarioError:
        """The error to raise when something later finds the value at `path` unusable.

        A value that no line of the variant writes is marked as a default.
        """
        node, missing = self._tree(variant).nearest(path.split("."))
        if missing and variant is not None:
            missing = (*missing[:-1], f"{missing[-1]} (default)")
        return node.error(message, hint, missing)

    def _tree(self, variant: str | None) -> Node:
        return self.document if variant is None else self.trees[variant]


def load(path: str | Path, sets: Iterable[str] = (), seed: int | None = None) -> Scenario:
    """Read a scenario file; `sets` are texts "PATH=VALUE", and `seed` wins over the file's.

    Raises
    ------
    ScenarioError
        The first mistake found, with its place in the file.
    """
    file, sets = str(path), tuple(sets)
    source_text = _read(Path(path))
    document = _document(file, source_text)
    changes = [parse_set(text) for text in sets]
    if seed is not None:
        changes.append(parse_set(f"seed={seed}"))
    for change, value in changes:
        if change[0] in _HEADER:
            document = merge(document, override_at(document, change, value))
    header = _validate(Header, _only(document, _HEADER))
    trees = _change({name: _merged(document, item) for name, item in _items(document).items()}, changes)
    return Scenario(
        header.name,
        header.description,
        header.seed,
        _variants(trees),
        file,
        sets,
        source_text,
        document,
        trees,
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        siblings = [str(other) for other in path.parent.glob("*.yaml")] if path.parent.is_dir() else []
        close = get_close_matches(str(path), siblings, n=1)
        hint = f"did you mean {close[0]}?" if close else "give the path of a scenario file"
        raise ScenarioError(str(path), 0, "", f"cannot be read: {error.strerror}", hint) from None


def _document(file: str, source_text: bytes) -> Node:
    try:
        text = source_text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source_text.count(b"\n", 0, error.start) + 1
        raise ScenarioError(file, line, "", "is not UTF-8 text", "save the file as UTF-8") from None
    document = parse(file, text)
    if not isinstance(document.value, Mapping):
        needed = [key for key, field in Variant.model_fields.items() if field.is_required()]
        hint = f"it needs the keys {', '.join(needed)}"
        raise document.error(f"a scenario must be a mapping, found {shown(document.plain)}", hint)
    _refuse_unknown(document, _KEYS)
    return document


def _items(document: Node) -> dict[str, Node]:
    """What each variant changes, by name; a file without variants has one, called like the scenario."""
    variants = document.children.get("variants")
    if variants is None:
        return {str(document.children["name"].value): _only(document, ("name",))}
    if not isinstance(variants.value, tuple) or not variants.value:
        raise variants.error(f"must be a list of variants, found {shown(variants.plain)}", _A_VARIANT)
    items: dict[str, Node] = {}
    for item in variants.value:
        if not isinstance(item.value, Mapping):
            raise item.error(f"must be a mapping, found {shown(item.plain)}", _A_VARIANT)
        if "name" not in item.value:
            raise missing_key(item, "name", _A_VARIANT)
        name = str(item.value["name"].plain)
        if name in items:
            raise item.error(f"the name {name!r} appears twice", f"it is already on line {items[name].line}")
        _refuse_unknown(item, ("name", *_SETTINGS))
        items[name] = item
    return items


def _merged(document: Node, item: Node) -> Node:
    merged = merge(_expand(_only(document, _SETTINGS)), _expand(item))
    return replace(merged, line=item.line, path=item.path)  # where a missing section can be added


def _change(trees: dict[str, Node], changes: Iterable[tuple[tuple[str, ...], Node]]) -> dict[str, Node]:
    """The variants' trees with what the command line says."""
    for path, value in changes:
        if path[0] in _HEADER:
            continue
        if path[0] == "variants":
            names, inner = _addressed(path, value, trees), path[2:]
        else:
            names, inner = tuple(trees), path
        if inner[0] not in _SETTINGS:
            raise unknown_key(value, inner[0], _SETTINGS if path[0] == "variants" else _KEYS)
        for name in names:
            trees[name] = merge(trees[name], _expand(override_at(trees[name], inner, value)))
    return trees


def _addressed(path: tuple[str, ...], value: Node, trees: Mapping[str, Node]) -> tuple[str, ...]:
    if len(path) < 3:
        raise value.error("a variant cannot be replaced as a whole", "use variants.NAME.PATH=VALUE")
    if path[1] not in trees:
        raise value.error(f"there is no variant {path[1]!r}", f"variants: {', '.join(trees)}")
    return path[1:2]


def _expand(settings: Node) -> Node:
    """Settings with `workers: 8` written out as `workers: {count: 8}`."""
    workers = settings.children.get("workers")
    if workers is None or isinstance(workers.value, Mapping | tuple | None):
        return settings
    children = {
        **settings.children,
        "workers": Node({"count": workers}, workers.file, workers.line, workers.path),
    }
    return Node(children, settings.file, settings.line, settings.path)


def _only(mapping: Node, keys: Sequence[str]) -> Node:
    children = {key: child for key, child in mapping.children.items() if key in keys}
    return Node(children, mapping.file, mapping.line, mapping.path)


def _refuse_unknown(mapping: Node, allowed: Sequence[str]) -> None:
    for key, child in mapping.children.items():
        if key not in allowed:
            raise unknown_key(child, key, allowed)


def _variants(trees: Mapping[str, Node]) -> tuple[Variant, ...]:
    variants: list[Variant] = []
    errors: dict[str, ScenarioError] = {}
    for name, tree in trees.items():
        try:
            variants.append(_validate(Variant, tree))
        except ScenarioError as error:
            errors[name] = error
    if errors:
        name, first = next(iter(errors.items()))
        raise first if len(errors) == len(trees) else _naming(name, first)
    return tuple(variants)


def _naming(variant: str, error: ScenarioError) -> ScenarioError:
    """The error of a value that is right in other variants."""
    if error.path.startswith("variants."):
        return error
    place = f"in variant {variant!r}"
    if error.file == COMMAND_LINE:
        place += f"; to change one variant, set variants.NAME.{error.path}"
    return ScenarioError(error.file, error.line, error.path, error.message, f"{error.hint} ({place})")


def _validate(section: type[S], tree: Node) -> S:
    try:
        return section.model_validate(tree.plain)
    except ValidationError as error:
        raise explain(error, tree, section) from None
