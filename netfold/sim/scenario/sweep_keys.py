"""The `sweep` of a scenario: keys and the values that each takes, which span a grid of points.

    sweep: {workers: [4, 16], topology.rate: [10Gbps, 100Gbps], seeds: 3}

A key is a path as `--set` takes it; every point is the whole scenario with one value of each. The values keep
their lines, so that a mistake in a point is reported where its value was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any, Literal

from netfold.errors import Mistakes, ScenarioError, closest, names_hint, shown
from netfold.sim.keys import NAME_MAX, NAME_RULE, Section, is_name
from netfold.sim.scenario.validation_errors import unknown_key, validated
from netfold.sim.scenario.variant_keys import Seeds
from netfold.sim.scenario.yaml_tree import COMMAND_LINE, EXTENSION, Node, parse

SWEEP = "sweep"  # the key
POINTS_MAX = 10_000
_NOT_SWEPT = ("name", "description", "baseline", SWEEP)
_FORM = "a sweep is a mapping such as {workers: [4, 16], seeds: 3}"

Change = tuple[tuple[str, ...], Node]  # a path, and the value that it gets


class SweepOptions(Section):
    """What a sweep says besides its keys and their values."""

    seeds: Seeds = 1
    """How often each point is repeated: the scenario's seed, and others drawn from it; or a list of seeds."""
    impossible: Literal["refuse", "skip"] = "refuse"
    """A point that cannot run, such as more workers than hosts: refuse the sweep, or leave out the point."""


OPTIONS = tuple(SweepOptions.model_fields)


@dataclass(frozen=True)
class Axis:
    """A swept key and its values."""

    path: str
    """The key as `--set` takes it."""
    values: tuple[Node, ...]  # each one's path is that of the key


@dataclass(frozen=True)
class Sweep:
    """A grid of points: the product of its axes, every point with each seed."""

    axes: tuple[Axis, ...]
    seeds: int | tuple[int, ...]  # how many, or which
    skips_impossible: bool
    node: Node
    """Where errors about the whole sweep point to."""

    @property
    def size(self) -> int:
        """Number of points."""
        repeats = self.seeds if isinstance(self.seeds, int) else len(self.seeds)
        return prod(len(axis.values) for axis in self.axes) * repeats

    @property
    def first(self) -> tuple[Change, ...]:
        # Without the seed.
        return tuple(change(axis.values[0]) for axis in self.axes)

    @property
    def singles(self) -> Iterator[tuple[Change, ...]]:
        """The changes of points in which one key at a time has another value than its first."""
        for axis_index, axis in enumerate(self.axes):
            for value in axis.values[1:]:
                yield (*self.first[:axis_index], change(value), *self.first[axis_index + 1 :])


def change(value: Node) -> Change:
    return tuple(value.path.split(".")), value


def read_sweep(document: Node, changes: Iterable[Change], mistakes: Mistakes) -> Sweep | None:
    """The sweep of a document after the changes of the command line; None without one, or with mistakes."""
    node = document.children.get(SWEEP)
    for path, value in changes:
        if path == (SWEEP,):
            node = value
        elif path[0] == SWEEP:
            axis_nodes = node.children if node is not None else {}
            node = replace(node or value, value={**axis_nodes, ".".join(path[1:]): value}, path=SWEEP)
    if node is None or node.value is None:
        return None
    if not isinstance(node.value, Mapping):
        mistakes.add(node.error(f"must be a mapping, found {shown(node.plain)}", _FORM))
        return None
    mistakes_before = len(mistakes.found)
    swept = Sweep(*_split(node, mistakes), node)
    if len(mistakes.found) == mistakes_before:
        _check_size(swept, mistakes)
    return swept if len(mistakes.found) == mistakes_before else None


def _check_size(swept: Sweep, mistakes: Mistakes) -> None:
    if swept.size > POINTS_MAX:
        message = f"spans {swept.size:,} points, the most is {POINTS_MAX:,}"
        mistakes.add(swept.node.error(message, "use fewer values, or several sweeps"))
    if not swept.axes and swept.seeds == 1:
        mistakes.add(swept.node.error("sweeps nothing", _FORM))


def _split(node: Node, mistakes: Mistakes) -> tuple[tuple[Axis, ...], int | tuple[int, ...], bool]:
    """The axes, the seeds, and whether impossible points are left out."""
    children = node.children
    seeds = children.pop("seed", None)
    if seeds is not None and "seeds" in children:
        mistakes.add(seeds.error("is swept by `seeds` already", "remove one of the two"))
    elif seeds is not None and not isinstance(seeds.value, tuple):
        count = f"for {seeds.plain} repeats, " if isinstance(seeds.value, int) else ""
        mistakes.add(seeds.error("must be a list of seeds", f"{count}use `seeds`, which also takes a number"))
    elif seeds is not None:
        children["seeds"] = seeds
    options_node = replace(node, value={key: children.pop(key) for key in OPTIONS if key in children})
    options = SweepOptions()
    with mistakes.collecting():
        options = validated(SweepOptions, options_node)
    axes = tuple(axis for key, child in children.items() if (axis := _axis(key, child, mistakes)))
    return axes, options.seeds, options.impossible == "skip"


def _axis(path: str, node: Node, mistakes: Mistakes) -> Axis | None:
    """A key with its values; None if there is a mistake in it."""
    if path in _NOT_SWEPT or not all(path.split(".")):
        hint = "give a path as --set takes it, for example topology.rate"
        mistakes.add(node.error(f"cannot sweep {shown(path)}", hint))
    elif not isinstance(node.value, tuple) or not node.value:
        hint = f"for example {path}: [1, 2]"
        if isinstance(node.value, Mapping):
            hint = "write the path with dots, for example topology.rate: [10Gbps, 100Gbps]"
        mistakes.add(node.error(f"must be a list of values, found {shown(node.plain)}", hint))
    else:
        return Axis(path, tuple(_move(value, path) for value in node.value))
    return None


def _move(node: Node, path: str) -> Node:
    """A value as if it were written at another path, on its own line."""
    value = node.value
    if isinstance(value, Mapping):
        value = {key: _move(child, f"{path}.{key}") for key, child in value.items()}
    elif isinstance(value, tuple):
        labels = node.children
        value = tuple(_move(item, f"{path}.{label}") for label, item in labels.items())
    return replace(node, value=value, path=path)


def sweep_schema() -> dict[str, Any]:
    options = SweepOptions.model_json_schema(mode="serialization")
    values = {"description": "The values of this key.", "type": "array", "minItems": 1}
    return {
        "description": "A grid of points: keys as `--set` takes them, each with a list of values.",
        "type": ["object", "null"],
        "properties": {**options["properties"], "seed": {**values, "description": "The same as `seeds`."}},
        "additionalProperties": values,
    }


# Merges variants and values from the command line into a scenario.
#
# Mappings merge key by key; other values, lists included, are replaced. A mapping whose `kind` changes is
# replaced as a whole, because another kind has other options.


NONE = "none"  # the device on which compute takes no time
DEVICE_SUFFIX = ".json"
VARIANTS_MAX = 1000
"""The most variants of a grid."""
_EXCLUDING = {"workload": ("elements", "tensors"), "device": ("name", "file", "model")}  # keys of sections
_WHOLE_LIST = "write the list whole, for example --set 'faults=[{kind: loss, rate: 1%}]'"


def merge(base: Node, override: Node) -> Node:
    """`base` with the changes of `override`."""
    if not isinstance(base.value, Mapping) or not isinstance(override.value, Mapping):
        return override
    old, new = base.value.get("kind"), override.value.get("kind")
    if old is not None and new is not None and old.plain != new.plain:
        return override
    children = dict(base.value)
    for key, child in override.value.items():
        children[key] = merge(children[key], child) if key in children else child
    return Node(children, base.file, base.line, base.path)


def merge_settings(settings: Node, changes: Node) -> Node:
    """Settings with changes, in both of which short forms are written out first.

    Where a section changes to another of the keys that exclude each other, the key that it had is dropped.
    """
    settings, changes = _expand(settings), _expand(changes)
    for section, keys in _EXCLUDING.items():
        had, gets = (node.children.get(section) for node in (settings, changes))
        if had is None or gets is None or not any(key in gets.children for key in keys):
            continue
        dropped = {key for key in keys if key not in gets.children}
        if dropped & set(had.children):
            children = {key: child for key, child in had.children.items() if key not in dropped}
            settings = with_child(settings, section, replace(had, value=children))
    return merge(settings, changes)


def _expand(settings: Node) -> Node:
    """Settings with short forms written out, so that they merge with long ones.

    `workers: 8` is `workers: {count: 8}`, `hosts: dpdk` is `hosts: {kind: dpdk}`, `routing: spray` is
    `routing: {kind: spray}`; of a workload, `bucket: 8KiB` is `fusion: {kind: size, bytes: 8KiB}`;
    `device: a100` is `device: {kind: roofline, name: a100}`, and `device: cpu.json`
    `device: {kind: roofline, file: cpu.json}`.
    """
    workload, device = settings.children.get("workload"), settings.children.get("device")
    if device is not None and isinstance(device.value, str):
        settings = with_child(settings, "device", replace(device, value=_device(device)))
    for key, only_one in (("workers", "count"), ("hosts", "kind"), ("routing", "kind")):
        short = settings.children.get(key)
        if short is not None and not isinstance(short.value, Mapping | tuple | None):
            settings = with_child(settings, key, replace(short, value={only_one: short}))
    if workload is None or "bucket" not in workload.children or "fusion" in workload.children:
        return settings
    children = dict(workload.children)
    bucket = children.pop("bucket")
    kind = replace(bucket, value="one" if bucket.value is None else "size")
    options = {"kind": kind} if bucket.value is None else {"kind": kind, "bytes": bucket}
    fusion = replace(bucket, value=options)
    return with_child(settings, "workload", replace(workload, value={**children, "fusion": fusion}))


def _device(short: Node) -> dict[str, Node]:
    """The long form of a device that is written as its name, or as that of a device file."""
    name = str(short.value)
    if name == NONE:
        return {"kind": short}
    key = "file" if name.endswith(DEVICE_SUFFIX) else "name"
    return {"kind": replace(short, value="roofline"), key: short}


def as_first_job(settings: Node, sections: Sequence[str]) -> Node:
    """Settings whose job sections are those of the first job."""
    jobs = settings.children.get("jobs")
    if jobs is None or not jobs.value:
        return settings
    first = only(next(iter(jobs.children.values())), sections)
    return replace(settings, value={**settings.children, **first.children})


def only(mapping: Node, keys: Sequence[str]) -> Node:
    """The mapping with some of its keys alone."""
    children = {key: child for key, child in mapping.children.items() if key in keys}
    return Node(children, mapping.file, mapping.line, mapping.path)


def with_child(mapping: Node, key: str, child: Node) -> Node:
    return replace(mapping, value={**mapping.children, key: child})


def combinations(axes: Node, keys: Sequence[str]) -> Node:
    """Variants written as a grid, as a list: each combination of one named value of every axis.

    An axis is a key of variants with its values by name; or a name of its own, whose values each set several
    keys. The first axis varies slowest; a variant's name joins those of its values by "-".

    Raises
    ------
    ScenarioError
        An axis that is neither, or without named values; a name that variants cannot have; a key that two
        axes set; too many variants.
    """
    for key, named in axes.children.items():
        if key not in keys:
            _require_keys(named, key, keys)
        if not isinstance(named.value, Mapping) or not named.value:
            hint = f"for example {key}: {{first: …, second: …}}"
            raise named.error(f"must have its values by name, found {shown(named.plain)}", hint)
        for name, value in named.value.items():
            if not is_name(name):
                hint = f"use {NAME_RULE}, at most {NAME_MAX} characters"
                raise value.error(f"{shown(name)} cannot be part of a variant's name", hint)
    if (count := prod(len(named.children) for named in axes.children.values())) > VARIANTS_MAX:
        hint = "use fewer values, several scenarios, or a sweep"
        raise axes.error(f"spans {count:,} variants, the most is {VARIANTS_MAX:,}", hint)
    variants = [replace(axes, value={"name": replace(axes, value="")})]
    for key, named in axes.children.items():
        values = named.children.items()
        variants = [
            _combine(variant, name, value, {key: value} if key in keys else value.children)
            for variant in variants
            for name, value in values
        ]
    return replace(axes, value=tuple(variants))


def _require_keys(named: Node, axis: str, keys: Sequence[str]) -> None:
    """Refuse an axis that is no key of variants and whose values set other keys, or none."""
    values = named.children.values()
    changes = [
        change for value in values if isinstance(value.value, Mapping) for change in value.children.items()
    ]
    unknown = [(key, node) for key, node in changes if key not in keys]
    if len(unknown) == len(changes) or (unknown and closest(axis, keys)):
        raise unknown_key(named, axis, keys)
    for value in values:
        if not isinstance(value.value, Mapping) or not value.value:
            hint = f"{axis!r} is no key of variants, so each of its values is a mapping such as {{seed: 2}}"
            raise value.error(f"must set keys of variants, found {shown(value.plain)}", hint)
    for key, node in unknown:
        raise unknown_key(node, key, keys)


def _combine(variant: Node, name: str, value: Node, changes: Mapping[str, Node]) -> Node:
    before = str(variant.children["name"].value)
    whole = f"{before}-{name}" if before else name
    combined = replace(variant, line=value.line, path=f"variants.{whole}")
    for key, change in {"name": replace(value, value=whole), **changes}.items():
        if key != "name" and key in variant.children:
            raise change.error(f"{key} is set by another axis of the grid, too", "set each key in one axis")
        combined = with_child(combined, key, change)
    return combined


def axes_of(document: Node) -> dict[str, list[list[str]]]:
    """Of each variant of a grid its keys and values, in their order; empty if the variants are no grid."""
    variants = document.children.get("variants")
    if variants is None or not isinstance(variants.value, Mapping):
        return {}
    keys = list(variants.children)
    combined = product(*(named.children for named in variants.children.values()))
    return {"-".join(names): list(map(list, zip(keys, names, strict=True))) for names in combined}


def require_baseline(
    document: Node, name: str | None, variants: Mapping[str, Node], mistakes: Mistakes
) -> None:
    """Add a mistake if the baseline is none of the variants."""
    if name is not None and variants and name not in variants:
        where, _ = document.nearest(["baseline"])
        hint = names_hint(name, variants, "variants", 8)
        mistakes.add(where.error(f"there is no variant {shown(name)}", hint))


def parse_set(text: str) -> tuple[tuple[str, ...], Node]:
    """Path and value of one `--set PATH=VALUE`; the value is YAML, as in a file.

    Raises
    ------
    ScenarioError
        No "=", an empty part in the path, or a value that is broken YAML.
    """
    path, equals, value = text.partition("=")
    parts = tuple(path.split("."))
    if not equals or not all(parts):
        raise ScenarioError(
            COMMAND_LINE,
            0,
            "",
            f"cannot read {shown(text)}",
            "use PATH=VALUE, for example topology.rate=10Gbps",
        )
    _require_read(parts, path)
    return parts, parse(COMMAND_LINE, value, first_line=0, path=path)


def _require_read(parts: Sequence[str], path: str) -> None:
    """Refuse a path through an ignored key; names of variants and jobs may begin like one."""
    for above, part in zip(("", *parts), parts, strict=False):
        if part.startswith(EXTENSION) and above not in ("variants", "jobs", "profiles"):
            message = f"keys that begin with {EXTENSION!r} are ignored, so this changes nothing"
            raise ScenarioError(COMMAND_LINE, 0, path, message, "remove it")


def override_at(node: Node | None, path: Sequence[str], value: Node) -> Node:
    """A tree to merge into `node` that sets the value at `path`; list items go by index or name.

    Raises
    ------
    ScenarioError
        The path goes through a list without such an item, or through a missing list.
    """
    if not path:
        return value
    head, remaining = path[0], path[1:]
    if head.isdecimal() and (node is None or not node.plain):
        missing = ".".join(value.path.split(".")[: -len(path)])
        raise value.error(f"{missing} has no item {head}", _WHOLE_LIST)
    children = node.children if node is not None else {}
    below = override_at(children.get(head), remaining, value)
    if node is None or not isinstance(node.value, tuple):
        above = ".".join(value.path.split(".")[: -len(path)])
        return Node({head: below}, value.file, value.line, above)
    if head not in children:
        raise value.error(f"there is no item {head!r}", f"items: {', '.join(children)}")
    changed = {**children, head: merge(children[head], below)}
    return Node(tuple(changed.values()), node.file, node.line, node.path)
